#ifndef TESTS_UNIT_MHA_TRUTH_H
#define TESTS_UNIT_MHA_TRUTH_H

#include "tests/unit/request_text.h"

/* The same by hand: the contract in naive loops and in double, from the
 * request alone. (N, H, L, .) throughout, as nested as the page has it. */
struct truth {
    const struct mha_request *r;
    enum layout layout;
    int64_t N, L, S, T, H, G, D, Dv, out_width;
    double *q, *k, *v, *scores, *weights, *mean, *context, *output, *lse;
    int64_t fully_masked;
};

static double number_at(const struct tensor *t, int64_t i)
{
    switch (t->dtype) {
    case DTYPE_BOOL: return ((const uint8_t *)t->data)[i];
    case DTYPE_F64: return ((const double *)t->data)[i];
    default: return (double)((const float *)t->data)[i];
    }
}

/* bfloat16 has 8 bits of mantissa. */
static double rounded(const struct mha_request *r, double x)
{
    int exponent;

    if (r->precision != PRECISION_BF16)
        return x;
    x = frexp(x, &exponent);
    return ldexp(nearbyint(ldexp(x, 8)), exponent - 8);
}

/* Element c of row i, batch n, of an input of `rows` rows, heads merged. */
static double input_at(const struct truth *t, const struct tensor *x,
                       int64_t n, int64_t i, int64_t c)
{
    int64_t width = x->dim[x->rank - 1], at;

    if (t->layout == LAYOUT_NHLD)
        at = ((n * x->dim[1] + c / width) * x->dim[2] + i) * width + c % width;
    else if (t->layout == LAYOUT_LNE)
        at = (i * t->N + n) * width + c;
    else
        at = (n * x->dim[x->rank - 2] + i) * width + c;
    return rounded(t->r, number_at(x, at));
}

static const struct tensor *item(const struct mha_request *r, const char *name)
{
    for (int64_t i = 0; i < r->state_dict.count; i++) {
        if (strcmp(r->state_dict.item[i].name, name) == 0)
            return &r->state_dict.item[i].value;
    }
    return NULL;
}

struct projection {
    const struct tensor *weight, *bias;
    int64_t first_row, first_bias, rows;
};

/* Which of q, k, v (0, 1, 2) is projected by what. */
static struct projection find_projection(const struct mha_request *r, int which)
{
    static const char *const torch[] = { "q_proj_weight", "k_proj_weight",
                                         "v_proj_weight" };
    static const char *const bert[] = { "query.weight", "key.weight",
                                        "value.weight" };
    static const char *const bias[] = { "query.bias", "key.bias",
                                        "value.bias" };
    struct projection p = { .bias = item(r, "in_proj_bias") };

    if ((p.weight = item(r, "in_proj_weight")) != NULL) {
        p.rows = p.weight->dim[0] / 3;
        p.first_row = p.first_bias = which * p.rows;
    } else if (item(r, torch[0]) != NULL) {
        for (int i = 0; i < which; i++)
            p.first_bias += item(r, torch[i])->dim[0];
        p.weight = item(r, torch[which]);
        p.rows = p.weight->dim[0];
    } else if (item(r, bert[0]) != NULL) {
        if (which == 2 && item(r, bert[2]) == NULL)
            which = 1;
        p.weight = item(r, bert[which]);
        p.bias = item(r, bias[which]);
        p.rows = p.weight->dim[0];
    }
    return p;
}

static double project_at(const struct truth *t, const struct projection *p,
                         const struct tensor *x, int64_t n, int64_t i,
                         int64_t row)
{
    double sum = 0;

    if (p->weight == NULL)
        return input_at(t, x, n, i, row);
    for (int64_t c = 0; c < p->weight->dim[1]; c++)
        sum += rounded(t->r, number_at(p->weight, (p->first_row + row) *
                                                      p->weight->dim[1] + c)) *
               input_at(t, x, n, i, c);
    return sum + (p->bias == NULL ? 0
                                  : number_at(p->bias, p->first_bias + row));
}

static double *make(int64_t count)
{
    double *x = calloc((size_t)count, sizeof *x);

    assert_non_null(x);
    return x;
}

/* (N, heads, places, width) of `x`, of which `rows` have an input; then
 * `extra`, then zeros. */
static double *make_heads(const struct truth *t, int which,
                          const struct tensor *x, int64_t heads, int64_t rows,
                          int64_t places, int64_t width,
                          const struct tensor *extra)
{
    struct projection p = find_projection(t->r, which);
    double *out = make(t->N * heads * places * width), *at = out;

    for (int64_t n = 0; n < t->N; n++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < places; i++)
                for (int64_t d = 0; d < width; d++, at++) {
                    if (i < rows)
                        *at = project_at(t, &p, x, n, i, h * width + d);
                    else if (i == rows && extra != NULL)
                        *at = number_at(extra, h * width + d);
                }
    return out;
}

static double bool_mask(const struct mha_request *r, double value)
{
    bool hides = (value != 0) == (r->conventions == CONVENTIONS_TORCH_MHA);

    return hides ? -INFINITY : 0;
}

/* What attn_mask adds: its axes as the contract reads them. */
static double attn_mask_at(const struct truth *t, int64_t n, int64_t h,
                           int64_t i, int64_t j)
{
    const struct tensor *m = &t->r->attn_mask.value;
    int64_t full[4] = { n, h, i, j }, at = 0;

    if (m->rank == 0)
        return 0;
    if (m->rank == 3 && m->dim[0] == t->N * t->H &&
        t->r->conventions == CONVENTIONS_TORCH_MHA)
        full[1] = n * t->H + h;
    else if (m->rank == 3 && (t->r->conventions == CONVENTIONS_TORCH_MHA ||
                              t->r->conventions == CONVENTIONS_KERAS))
        full[1] = n;
    for (int a = 0; a < m->rank; a++) {
        int64_t index = full[4 - m->rank + a];

        at = at * m->dim[a] + (m->rank == 4 && m->dim[a] == 1 ? 0 : index);
    }
    return m->dtype == DTYPE_BOOL ? bool_mask(t->r, number_at(m, at))
                                  : number_at(m, at);
}

static int64_t shift_of(const struct truth *t)
{
    bool bottom = t->r->causal_alignment == ALIGNMENT_BOTTOM_RIGHT ||
                  (t->r->causal_alignment == ALIGNMENT_BY_CONVENTION &&
                   t->r->conventions == CONVENTIONS_FLASH_ATTN);

    return bottom ? t->S - t->L : 0;
}

/* What all masks together add to a score; -INFINITY hides. */
static double mask_at(const struct truth *t, int64_t n, int64_t h, int64_t i,
                      int64_t j)
{
    const struct mha_request *r = t->r;
    int64_t at = i + shift_of(t);
    double sum = attn_mask_at(t, n, h, i, j);

    if (r->key_padding_mask.value.rank != 0 &&
        number_at(&r->key_padding_mask.value, n * t->S + j) != 0)
        return -INFINITY;
    if (r->attention_mask.value.rank != 0 &&
        number_at(&r->attention_mask.value, n * t->S + j) == 0)
        sum += r->mask_filter_value;
    if (r->is_causal && j > at)
        return -INFINITY;
    if (r->has_window && r->window[0] >= 0 && j < at - r->window[0])
        return -INFINITY;
    if (r->has_window && r->window[1] >= 0 && j > at + r->window[1])
        return -INFINITY;
    return sum;
}

static double score_at(const struct truth *t, int64_t n, int64_t h, int64_t i,
                       int64_t j)
{
    const struct mha_request *r = t->r;
    const double *q = t->q + ((n * t->H + h) * t->L + i) * t->D;
    const double *k = t->k +
                      ((n * t->G + h * t->G / t->H) * t->T + j) * t->D;
    double s = 0;

    for (int64_t d = 0; d < t->D; d++)
        s += q[d] * k[d];
    s *= r->has_scale ? r->scale : 1 / sqrt((double)t->D);
    if (r->softcap > 0)
        s = r->softcap * tanh(s / r->softcap);
    if (j >= t->S)
        return s;
    if (r->alibi_slopes.value.rank != 0)
        s -= number_at(&r->alibi_slopes.value, h) *
             fabs((double)(i + shift_of(t) - j));
    return s + mask_at(t, n, h, i, j);
}

static void attend_row(struct truth *t, int64_t n, int64_t h, int64_t i)
{
    int64_t row = (n * t->H + h) * t->L + i;
    double *s = t->scores + row * t->T, *w = t->weights + row * t->T;
    double max = -INFINITY, sum = 0, sink = -INFINITY;

    for (int64_t j = 0; j < t->T; j++) {
        s[j] = score_at(t, n, h, i, j);
        max = fmax(max, s[j]);
    }
    t->fully_masked += max == -INFINITY;
    if (t->r->sinks.value.rank != 0)
        sink = number_at(&t->r->sinks.value, h);
    if (fmax(max, sink) == -INFINITY) {
        t->lse[row] = -INFINITY;
        return;
    }
    double top = fmax(max, sink);

    for (int64_t j = 0; j < t->T; j++)
        sum += exp(s[j] - top);
    sum += exp(sink - top);
    t->lse[row] = top + log(sum);
    for (int64_t j = 0; j < t->T; j++)
        w[j] = exp(s[j] - top) / sum;
}

/* (N, L, H*Dv) and the mean over heads. */
static void sum_values(struct truth *t)
{
    for (int64_t n = 0; n < t->N; n++)
        for (int64_t h = 0; h < t->H; h++)
            for (int64_t i = 0; i < t->L; i++)
                for (int64_t j = 0; j < t->T; j++) {
                    double w = t->weights[((n * t->H + h) * t->L + i) * t->T +
                                          j];
                    const double *v = t->v + ((n * t->G + h * t->G / t->H) *
                                                  t->T + j) * t->Dv;

                    t->mean[(n * t->L + i) * t->T + j] += w / (double)t->H;
                    for (int64_t d = 0; d < t->Dv; d++)
                        t->context[((n * t->L + i) * t->H + h) * t->Dv + d] +=
                            w * v[d];
                }
}

static void project_context(struct truth *t)
{
    const struct tensor *w = item(t->r, "out_proj.weight");
    const struct tensor *b = item(t->r, "out_proj.bias");
    int64_t in = t->H * t->Dv, rows = t->N * t->L;

    t->out_width = w == NULL ? in : w->dim[0];
    t->output = make(rows * t->out_width);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t o = 0; o < t->out_width; o++) {
            double sum = w == NULL ? t->context[i * in + o] : 0;

            for (int64_t c = 0; w != NULL && c < in; c++)
                sum += rounded(t->r, number_at(w, o * in + c)) *
                       t->context[i * in + c];
            t->output[i * t->out_width + o] =
                sum + (b == NULL ? 0 : number_at(b, o));
        }
}

static void truth_sizes(struct truth *t, const struct tensor *query,
                        const struct tensor *key, const struct tensor *value)
{
    static const enum layout by_rank[] = { [2] = LAYOUT_LE, [3] = LAYOUT_NLE,
                                           [4] = LAYOUT_NHLD };
    const struct mha_request *r = t->r;
    bool nhld, lne;

    t->layout = r->layout != LAYOUT_BY_RANK ? r->layout : by_rank[query->rank];
    nhld = t->layout == LAYOUT_NHLD;
    lne = t->layout == LAYOUT_LNE;
    t->N = t->layout == LAYOUT_LE ? 1 : query->dim[lne ? 1 : 0];
    t->L = query->dim[lne ? 0 : query->rank - 2];
    t->S = key->dim[lne ? 0 : key->rank - 2];
    t->T = t->S + (item(r, "bias_k") != NULL) + r->add_zero_attn;
    t->H = nhld ? query->dim[1] : r->num_heads != 0 ? r->num_heads : 1;
    t->G = nhld ? key->dim[1] : r->num_kv_heads != 0 ? r->num_kv_heads : t->H;

    struct projection q = find_projection(r, 0), v = find_projection(r, 2);

    t->D = nhld ? query->dim[3]
                : (q.weight ? q.rows : query->dim[query->rank - 1]) / t->H;
    t->Dv = nhld ? value->dim[3]
                 : (v.weight ? v.rows : value->dim[value->rank - 1]) / t->G;
}

static void truth_make(struct truth *t, const struct mha_request *r)
{
    const struct tensor *query = &r->query.value;
    const struct tensor *key = r->key.value.rank ? &r->key.value : query;
    const struct tensor *value = r->value.value.rank ? &r->value.value : key;

    *t = (struct truth){ .r = r };
    truth_sizes(t, query, key, value);
    t->q = make_heads(t, 0, query, t->H, t->L, t->L, t->D, NULL);
    t->k = make_heads(t, 1, key, t->G, t->S, t->T, t->D, item(r, "bias_k"));
    t->v = make_heads(t, 2, value, t->G, t->S, t->T, t->Dv, item(r, "bias_v"));
    t->scores = make(t->N * t->H * t->L * t->T);
    t->weights = make(t->N * t->H * t->L * t->T);
    t->mean = make(t->N * t->L * t->T);
    t->context = make(t->N * t->L * t->H * t->Dv);
    t->lse = make(t->N * t->H * t->L);
    for (int64_t n = 0; n < t->N; n++)
        for (int64_t h = 0; h < t->H; h++)
            for (int64_t i = 0; i < t->L; i++)
                attend_row(t, n, h, i);
    sum_values(t);
    project_context(t);
}

static void truth_free(struct truth *t)
{
    double *all[] = { t->q, t->k, t->v, t->scores, t->weights, t->mean,
                      t->context, t->output, t->lse };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* Where element (n, i, c) of (N, L, width) stands in the client's layout. */
static int64_t place_of(const struct truth *t, int64_t n, int64_t i, int64_t c,
                        int64_t width)
{
    if (t->layout == LAYOUT_NHLD)
        return ((n * t->H + c / t->Dv) * t->L + i) * t->Dv + c % t->Dv;
    if (t->layout == LAYOUT_LNE)
        return (i * t->N + n) * width + c;
    return (n * t->L + i) * width + c;
}

#endif
