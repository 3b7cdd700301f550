#include "core/mha.h"

#include "core/finite.h"
#include "core/kernels/kernels.h"
#include "core/mha_mask.h"
#include "core/mha_memory.h"
#include "core/stopwatch.h"
#include "core/topk.h"

#include <math.h>
#include <string.h>

void mha_request_init(struct mha_request *request)
{
    *request = (struct mha_request){
        .query.name = "query",
        .key.name = "key",
        .value.name = "value",
        .mask_filter_value = -INFINITY,
        .need_weights = true,
        .average_attn_weights = true,
    };
}

struct run {
    const struct mha_plan *plan;
    const struct kernels *kernels;
    struct parallel *parallel;
    struct mha_memory memory;
    struct mha_response *response;
};

static bool out_of_memory(struct error *err)
{
    return error_set(err, ERR_OVERLOADED, "",
                     "there is no memory left for this request");
}

/* What rows become before they are multiplied. */
enum form {
    ROUNDED, /* to bfloat16 */
    PAIRS,   /* the same, in pairs */
    PIECES,  /* split */
};

struct conversion {
    const struct tensor *from[8];
    const struct tensor *to[8];
    enum form form[8];
    int count;
    const struct kernels *kernels;
};

enum { CONVERSION_BLOCK = 1 << 15 }; /* numbers in a piece: half of an L2 */

static int64_t row_of(const struct tensor *t)
{
    return t->dim[t->rank - 1];
}

/* Rows in a piece. */
static int64_t conversion_rows(const struct tensor *t)
{
    return row_of(t) < CONVERSION_BLOCK ? CONVERSION_BLOCK / row_of(t) : 1;
}

static int64_t conversion_pieces(const struct tensor *t)
{
    int64_t rows = tensor_count(t) / row_of(t);

    return (rows + conversion_rows(t) - 1) / conversion_rows(t);
}

static void convert_rows(const struct conversion *c, int i, int64_t first,
                         int64_t rows)
{
    int64_t k = row_of(c->from[i]);
    const float *from = (const float *)c->from[i]->data + first * k;
    float *to = c->to[i]->data;

    switch (c->form[i]) {
    case ROUNDED:
        memcpy(to + first * k, from, (size_t)(rows * k) * sizeof *to);
        tensor_round_bf16(to + first * k, rows * k);
        break;
    case PAIRS:
        c->kernels->round_pairs(rows, k, from, to + first * ((k + 1) / 2));
        break;
    case PIECES:
        c->kernels->split_rows(rows, k, from, to + first * kernels_pieces(k));
        break;
    }
}

static bool convert_piece(void *arg, int64_t piece, struct arena *scratch)
{
    const struct conversion *c = arg;
    int i = 0;

    (void)scratch;
    while (piece >= conversion_pieces(c->from[i]))
        piece -= conversion_pieces(c->from[i++]);

    int64_t rows = conversion_rows(c->from[i]), first = piece * rows;
    int64_t rest = tensor_count(c->from[i]) / row_of(c->from[i]) - first;

    convert_rows(c, i, first, rest < rows ? rest : rows);
    return true;
}

/* A copy that is shared is made once. */
static void add_conversion(struct conversion *c, const struct tensor *from,
                           const struct tensor *to, enum form form)
{
    for (int i = 0; i < c->count; i++) {
        if (c->to[i]->data == to->data)
            return;
    }
    if (to->rank == 0)
        return;
    c->from[c->count] = from;
    c->form[c->count] = form;
    c->to[c->count++] = to;
}

static bool convert(const struct run *run, struct conversion *c)
{
    int64_t pieces = 0;

    for (int i = 0; i < c->count; i++)
        pieces += conversion_pieces(c->from[i]);
    return pieces == 0 ||
           run->parallel->run(run->parallel, pieces, convert_piece, c);
}

/* Whether Q, K and V are made from pairs: of held weights where these are, of
 * others where the processor can. The output's projection is not: its input is
 * not rounded. */
static bool by_pairs(const struct run *run)
{
    return run->memory.q_weight.rank == 0 ? run->plan->weights.q.pairs
                                          : run->kernels->round_pairs != NULL;
}

static bool convert_inputs(struct run *run)
{
    const struct mha_plan *plan = run->plan;
    const struct mha_memory *m = &run->memory;
    const struct weights *w = &plan->weights;
    struct conversion c = { .kernels = run->kernels };
    enum form weights = by_pairs(run) ? PAIRS : ROUNDED;
    enum form inputs = w->q.pieces != NULL ? PIECES : weights;

    add_conversion(&c, &plan->query, &m->query, inputs);
    add_conversion(&c, &plan->key, &m->key, inputs);
    add_conversion(&c, &plan->value, &m->value, inputs);
    add_conversion(&c, &w->q.weight, &m->q_weight, weights);
    add_conversion(&c, &w->k.weight, &m->k_weight, weights);
    add_conversion(&c, &w->v.weight, &m->v_weight, weights);
    add_conversion(&c, &w->out.weight, &m->out_weight, ROUNDED);
    return convert(run, &c);
}

/* The layer, with its rounded weight where there is one. */
static struct linear with_weight(const struct linear *layer,
                                 const struct tensor *rounded, bool pairs)
{
    struct linear with = *layer;

    if (rounded->rank != 0) {
        with.weight = *rounded;
        with.arranged = false;
        with.pairs = pairs;
    }
    return with;
}

/* `rows` of each batch through `layer`, to an array with `places` for each.
 * What x was converted to is multiplied instead, or beside it where it was
 * split. */
static struct linear_use project_rows(const struct mha_plan *plan,
                                      const struct linear *layer,
                                      const struct tensor *x,
                                      const struct tensor *converted,
                                      const struct tensor *y, int64_t rows,
                                      int64_t places)
{
    bool gaps = plan->layout == LAYOUT_NLE && places != rows;
    bool split = layer->pieces != NULL && converted->rank != 0;
    int64_t in = linear_width(layer), out = layer->weight.dim[0];

    return (struct linear_use){
        .layer = layer,
        .x = split || converted->rank == 0 ? x->data : converted->data,
        .pieces = split ? converted->data : NULL,
        .y = y->data,
        .runs = gaps ? plan->N : 1,
        .rows = gaps ? rows : plan->N * rows,
        .x_run = rows * in,
        .x_row = in,
        .y_run = places * out,
        .y_row = out,
    };
}

static bool project(struct run *run)
{
    const struct mha_plan *p = run->plan;
    const struct mha_memory *m = &run->memory;
    const struct weights *w = &p->weights;
    bool pairs = by_pairs(run);
    const struct linear q = with_weight(&w->q, &m->q_weight, pairs);
    const struct linear k = with_weight(&w->k, &m->k_weight, pairs);
    const struct linear v = with_weight(&w->v, &m->v_weight, pairs);
    const struct linear_use uses[LINEAR_USES_MAX] = {
        project_rows(p, &q, &p->query, &m->query, &m->q, p->L, p->L),
        project_rows(p, &k, &p->key, &m->key, &m->k, p->S, p->T),
        project_rows(p, &v, &p->value, &m->value, &m->v, p->S, p->T),
    };

    return linear_run(uses, m->key_is_value ? 2 : 3, run->kernels,
                      run->parallel,
                      &run->response->step_ns[MHA_PROJECTIONS]);
}

/* Without projections: to where there is room behind the rows, or to where
 * they may be rounded. */
static void copy_rows(const struct run *run, const struct tensor *from,
                      const struct tensor *to, int64_t rows, int64_t places,
                      int64_t heads, int64_t width)
{
    const struct mha_plan *p = run->plan;
    struct tensor source = heads_view(from->data, p->dtype, p->layout, p->N,
                                      rows, heads, width);
    struct tensor target = heads_view(to->data, p->dtype, p->layout, p->N,
                                      places, heads, width);
    struct tensor there = heads_rows(&target, 0, rows);

    heads_copy(&source, &there);
    if (places != rows) { /* no garbage for the rounding to read */
        there = heads_rows(&target, rows, places - rows);
        heads_clear(&there);
    }
    if (p->request->precision == PRECISION_BF16)
        tensor_round_bf16(to->data, tensor_count(to));
}

static void copy_inputs(const struct run *run)
{
    const struct mha_plan *p = run->plan;
    const struct mha_memory *m = &run->memory;

    if (m->q.rank != 0)
        copy_rows(run, &p->query, &m->q, p->L, p->L, p->H, p->D);
    if (m->k.rank != 0)
        copy_rows(run, &p->key, &m->k, p->S, p->T, p->G, p->D);
    if (m->v.rank != 0 && !m->key_is_value)
        copy_rows(run, &p->value, &m->v, p->S, p->T, p->G, p->Dv);
}

/* Row S is `bias`, where there is one; the last is zero for add_zero_attn. */
static void append_keys(const struct mha_plan *p, const struct tensor *bias,
                        const struct tensor *to, int64_t width)
{
    struct tensor view = heads_view(to->data, p->dtype, p->layout, p->N, p->T,
                                    p->G, width);
    struct tensor row = heads_rows(&view, p->S, 1);

    if (bias->rank != 0) {
        struct tensor repeated = heads_view(bias->data, p->dtype, LAYOUT_LE,
                                            p->N, 1, p->G, width);

        heads_copy(&repeated, &row);
        row = heads_rows(&view, p->T - 1, 1);
    }
    if (p->request->add_zero_attn)
        heads_clear(&row);
}

static bool make_qkv(struct run *run)
{
    const struct mha_plan *p = run->plan;
    const struct mha_memory *m = &run->memory;
    bool projected = p->weights.kind != WEIGHTS_NONE;
    int64_t start = stopwatch_ns();

    if (projected && !convert_inputs(run))
        return false;
    if (!projected)
        copy_inputs(run);
    if (p->T != p->S) {
        append_keys(p, &p->weights.bias_k, &m->k, p->D);
        append_keys(p, &p->weights.bias_v, &m->v, p->Dv);
    }
    run->response->step_ns[MHA_PROJECTIONS] += stopwatch_ns() - start;
    return !projected || project(run);
}

static bool attend(struct run *run, struct attention *a)
{
    a->mask = mha_mask_resolve(run->plan, run->memory.key_hidden.data,
                               run->memory.key_bias.data);
    a->fully_masked_queries = &run->response->fully_masked_queries;
    a->step_ns = &run->response->step_ns[MHA_SIMILARITY];
    return attention_run(a, run->kernels, run->parallel);
}

static bool project_output(struct run *run)
{
    const struct mha_plan *p = run->plan;
    const struct mha_memory *m = &run->memory;
    const struct linear layer = with_weight(&p->weights.out, &m->out_weight,
                                            false);

    struct conversion c = { .kernels = run->kernels };

    if (layer.weight.rank == 0)
        return true;
    add_conversion(&c, &m->context, &m->context_pieces, PIECES);

    struct linear_use use = project_rows(p, &layer, &m->context,
                                         &m->context_pieces,
                                         &run->response->output, p->L, p->L);

    return convert(run, &c) &&
           linear_run(&use, 1, run->kernels, run->parallel,
                      &run->response->step_ns[MHA_OUTPUT_PROJECTION]);
}

static void copy_heads(const struct tensor *view, struct tensor *result)
{
    struct tensor packed = tensor_packed(result->data, view->dtype, 4,
                                         view->dim);

    if (result->rank != 0)
        heads_copy(view, &packed);
}

static bool check_results(const struct run *run, struct error *err)
{
    const struct mha_response *r = run->response;

    return finite_check(&r->output, "output", false, err) &&
           finite_check(&run->memory.weights, "weights", false, err) &&
           finite_check(&r->q, "q", false, err) &&
           finite_check(&r->k, "k", false, err) &&
           finite_check(&r->v, "v", false, err) &&
           finite_check(&r->context, "context", false, err) &&
           finite_check(&r->scores, "scores", true, err) &&
           finite_check(&r->lse, "lse", true, err);
}

enum { TOPK_BLOCK = 1 << 15 }; /* weights in a piece, or one row */

static int64_t topk_rows(int64_t T)
{
    return T < TOPK_BLOCK ? TOPK_BLOCK / T : 1;
}

static bool topk_piece(void *arg, int64_t piece, struct arena *scratch)
{
    const struct run *run = arg;
    const struct tensor *weights = &run->memory.weights;
    const struct mha_response *r = run->response;
    int64_t T = run->plan->T, k = run->plan->request->weights_top_k;
    int64_t first = piece * topk_rows(T), last = first + topk_rows(T);
    int64_t rows = tensor_count(weights) / T;
    size_t size = dtype_size(weights->dtype);

    (void)scratch;
    for (int64_t i = first; i < last && i < rows; i++)
        topk_row((const char *)weights->data + (size_t)(i * T) * size,
                 weights->dtype, T, k, (int64_t *)r->top_indices.data + i * k,
                 (char *)r->top_values.data + (size_t)(i * k) * size,
                 (char *)r->top_kept.data + (size_t)i * size);
    return true;
}

static bool keep_largest(struct run *run)
{
    int64_t T = run->plan->T;

    if (run->response->top_indices.rank == 0)
        return true;

    int64_t rows = tensor_count(&run->memory.weights) / T;
    int64_t pieces = (rows + topk_rows(T) - 1) / topk_rows(T);

    return run->parallel->run(run->parallel, pieces, topk_piece, run);
}

static bool compare(const struct tensor *got, const struct named_tensor *want,
                    const char *name, struct comparison *comparison,
                    struct error *err)
{
    if (want->value.rank == 0 ||
        compare_tensors(got, &want->value, comparison))
        return true;
    return error_set(err, ERR_NOT_FINITE, "",
                     "the comparison with compare_to/%s is not finite: the "
                     "numbers are too far apart", name);
}

void mha_shape(const struct mha_plan *plan, struct mha_response *response)
{
    struct mha_memory memory;

    *response = (struct mha_response){ 0 };
    mha_memory_take(plan, NULL, &memory, response);
}

bool mha_run(const struct mha_plan *plan, const struct kernels *kernels,
             struct parallel *parallel, struct arena *arena,
             struct mha_response *response, struct error *err)
{
    struct run run = { plan, kernels, parallel, .response = response };

    if (!mha_memory_take(plan, arena, &run.memory, response))
        return out_of_memory(err);

    struct attention a = mha_memory_attention(plan, &run.memory, response);

    if (!make_qkv(&run) || !attend(&run, &a) || !project_output(&run))
        return out_of_memory(err);
    copy_heads(&a.q, &response->q);
    copy_heads(&a.k, &response->k);
    copy_heads(&a.v, &response->v);
    if (!check_results(&run, err))
        return false;
    if (!keep_largest(&run))
        return out_of_memory(err);
    return compare(&response->output, &plan->request->compare_output, "output",
                   &response->compare_output, err) &&
           compare(&run.memory.weights, &plan->request->compare_weights,
                   "weights", &response->compare_weights, err);
}
