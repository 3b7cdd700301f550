#ifndef TESTS_UNIT_ATTENTION_TRUTH_H
#define TESTS_UNIT_ATTENTION_TRUTH_H

#include "core/attention.h"
#include "core/philox.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Problems for attention_run(), of drawn numbers, and the loop that knows no
 * tiles, no kernels and no float. */

enum { MEMORY = 1 << 30 };

static struct arena memory; /* of one test */

static int set_up(void **state)
{
    (void)state;
    arena_init(&memory, MEMORY);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(&memory);
    return 0;
}

static uint64_t random_state;

static uint32_t random_bits(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

static int64_t random_below(int64_t n)
{
    return (int64_t)random_bits() % n;
}

static bool one_in(int64_t n)
{
    return random_below(n) == 0;
}

static double random_number(void) /* in (-1.7, 1.7), of variance 1 */
{
    return ((double)random_bits() * 0x1p-30 - 1) * 1.7;
}

/* ---- numbers of either dtype ---- */

static double get(const void *data, enum dtype dtype, int64_t at)
{
    return dtype == DTYPE_F32 ? (double)((const float *)data)[at]
                              : ((const double *)data)[at];
}

static void set(void *data, enum dtype dtype, int64_t at, double value)
{
    if (dtype == DTYPE_F32)
        ((float *)data)[at] = (float)value;
    else
        ((double *)data)[at] = value;
}

static void *new_numbers(enum dtype dtype, int64_t count)
{
    void *data = arena_array(&memory, (size_t)count, dtype_size(dtype));

    assert_non_null(data);
    for (int64_t i = 0; i < count; i++)
        set(data, dtype, i, random_number());
    return data;
}

static int64_t at4(const struct tensor *t, int64_t a, int64_t b, int64_t c,
                   int64_t d)
{
    return a * t->step[0] + b * t->step[1] + c * t->step[2] + d * t->step[3];
}

static double get4(const struct tensor *t, int64_t a, int64_t b, int64_t c,
                   int64_t d)
{
    return get(t->data, t->dtype, at4(t, a, b, c, d));
}

static void set4(const struct tensor *t, int64_t a, int64_t b, int64_t c,
                 int64_t d, double value)
{
    set(t->data, t->dtype, at4(t, a, b, c, d), value);
}

/* (N, H, L, D) in one of the three orders that the contract's layouts give. */
static struct tensor new_tensor(enum dtype dtype, int64_t N, int64_t H,
                                int64_t L, int64_t D, int64_t order)
{
    struct tensor t = tensor_packed(new_numbers(dtype, N * H * L * D), dtype, 4,
                                    (int64_t[]){ N, H, L, D });

    if (order == 1) { /* NLE */
        t.step[0] = L * H * D;
        t.step[1] = D;
        t.step[2] = H * D;
    } else if (order == 2) { /* LNE */
        t.step[0] = H * D;
        t.step[1] = D;
        t.step[2] = N * H * D;
    }
    return t;
}

/* ---- problems ---- */

static struct attention problem(enum dtype dtype, int64_t N, int64_t H,
                                int64_t G, int64_t L, int64_t S, int64_t T,
                                int64_t D, int64_t Dv)
{
    struct attention a = { .dtype = dtype, .N = N, .H = H, .G = G, .L = L,
                           .S = S, .T = T, .D = D, .Dv = Dv,
                           .scale = 1 / sqrt((double)D) };

    a.q = new_tensor(dtype, N, H, L, D, random_below(3));
    a.k = new_tensor(dtype, N, G, T, D, random_below(3));
    a.v = new_tensor(dtype, N, G, T, Dv, random_below(3));
    a.out = new_tensor(dtype, N, H, L, Dv, random_below(3));
    a.mask = (struct mask){ .S = S, .left = INT64_MAX, .right = INT64_MAX };
    return a;
}

static struct attention square(int64_t N, int64_t H, int64_t L, int64_t D)
{
    return problem(DTYPE_F32, N, H, H, L, L, L, D, D);
}

/* A mask of (N, H, L, S) with some axes broadcast. */
static struct tensor new_mask(const struct attention *a, enum dtype dtype,
                              int64_t axes)
{
    const int64_t full[4] = { a->N, a->H, a->L, a->S };
    int64_t dim[4];
    struct tensor t;

    for (int i = 0; i < 4; i++)
        dim[i] = axes >> i & 1 ? full[i] : 1;

    int64_t count = dim[0] * dim[1] * dim[2] * dim[3];
    uint8_t *data = arena_array(&memory, (size_t)count, dtype_size(dtype));

    t = tensor_packed(data, dtype, 4, dim);
    for (int i = 0; i < 4; i++) {
        if (dim[i] == 1)
            t.step[i] = i == 3 && full[3] == 1 ? 1 : 0;
        t.dim[i] = full[i];
    }
    for (int64_t i = 0; i < count; i++) {
        if (dtype == DTYPE_BOOL)
            data[i] = one_in(3);
        else
            set(data, dtype, i,
                one_in(5) ? -(double)INFINITY : 3 * random_number());
    }
    return t;
}

static uint8_t *new_padding(const struct attention *a)
{
    uint8_t *hidden = arena_array(&memory, (size_t)a->N, (size_t)a->S);

    for (int64_t n = 0; n < a->N; n++) {
        int64_t from = random_below(a->S + 1), to = random_below(a->S + 1);
        bool holes = one_in(2);

        for (int64_t j = 0; j < a->S; j++)
            hidden[n * a->S + j] =
                (j >= from && j < to) || (holes && one_in(4));
    }
    return hidden;
}

static void ask_for_everything(struct attention *a, bool average)
{
    const int64_t dim[4] = { a->N, a->H, a->L, a->T };
    const int64_t mean[3] = { a->N, a->L, a->T };
    const int64_t parts[4] = { attention_mean_parts(a->H, a->G, a->L) - 1,
                               a->N, a->L, a->T };

    a->mean_parts = (struct tensor){ 0 };
    if (average && parts[0] > 0)
        a->mean_parts = tensor_packed(
            new_numbers(a->dtype, parts[0] * a->N * a->L * a->T), a->dtype, 4,
            parts);

    a->average_weights = average;
    a->weights = average
        ? tensor_packed(new_numbers(a->dtype, a->N * a->L * a->T), a->dtype, 3,
                        mean)
        : tensor_packed(new_numbers(a->dtype, a->N * a->H * a->L * a->T),
                        a->dtype, 4, dim);
    a->scores = tensor_packed(new_numbers(a->dtype, a->N * a->H * a->L * a->T),
                              a->dtype, 4, dim);
    a->lse = tensor_packed(new_numbers(a->dtype, a->N * a->H * a->L), a->dtype,
                           3, dim);
    a->fully_masked_queries = arena_alloc(&memory, sizeof(int64_t));
}

static void ask_for_nothing(struct attention *a)
{
    a->weights.rank = a->scores.rank = a->lse.rank = 0;
    a->average_weights = false;
    a->mean_parts.rank = 0;
}

/* ---- the plain loop ---- */

/* What the masks make of element (n, h, i, j): -INFINITY when hidden. */
static double mask_value(const struct attention *a, int64_t n, int64_t h,
                         int64_t i, int64_t j)
{
    const struct mask *m = &a->mask;
    int64_t distance = j - (i + m->shift);
    double sum = 0;

    if (j >= m->S)
        return 0;
    if ((distance < 0 && -distance > m->left) ||
        (distance > 0 && distance > m->right) || (distance == 0 &&
        (m->left < 0 || m->right < 0)))
        return -(double)INFINITY;
    if (m->key_hidden != NULL && m->key_hidden[n * m->S + j])
        return -(double)INFINITY;
    if (m->hidden.rank != 0 &&
        ((const uint8_t *)m->hidden.data)[at4(&m->hidden, n, h, i, j)] ==
            m->hides_when)
        return -(double)INFINITY;
    if (m->key_bias != NULL)
        sum += get(m->key_bias, a->dtype, n * m->S + j);
    if (m->bias.rank != 0)
        sum += get4(&m->bias, n, h, i, j);
    return a->dtype == DTYPE_F32 && sum < -(double)FLT_MAX * (1 + 0x1p-25)
        ? -(double)INFINITY : sum;
}

struct reference {
    double *scores, *weights; /* T */
    bool *hidden;
    double lse;
    bool dead;
};

static void reference_scores(const struct attention *a, int64_t n, int64_t h,
                             int64_t i, struct reference *r)
{
    int64_t g = h / (a->H / a->G);

    r->dead = true;
    for (int64_t j = 0; j < a->T; j++) {
        double dot, mask = mask_value(a, n, h, i, j);
        long double sum = 0;

        for (int64_t d = 0; d < a->D; d++)
            sum += (long double)get4(&a->q, n, h, i, d) *
                   (long double)get4(&a->k, n, g, j, d);
        dot = (double)((long double)a->scale * sum);
        if (a->softcap != 0)
            dot = a->softcap * tanh(dot / a->softcap);
        if (a->alibi_slopes != NULL && j < a->S)
            dot -= get(a->alibi_slopes, a->dtype, h) *
                   fabs((double)(i + a->mask.shift - j));
        r->hidden[j] = mask == -(double)INFINITY;
        r->scores[j] = r->hidden[j] ? -(double)INFINITY : dot + mask;
        r->dead &= r->hidden[j];
    }
}

static void reference_row(const struct attention *a, int64_t n, int64_t h,
                          int64_t i, struct reference *r)
{
    double sink = a->sinks == NULL ? -(double)INFINITY
                                   : get(a->sinks, a->dtype, h);
    double max = sink, sum = 0;
    int64_t first = ((n * a->H + h) * a->L + i) * a->T;

    reference_scores(a, n, h, i, r);
    for (int64_t j = 0; j < a->T; j++)
        max = fmax(max, r->scores[j]);
    for (int64_t j = 0; j < a->T; j++)
        sum += r->hidden[j] ? 0 : exp(r->scores[j] - max);
    sum += a->sinks == NULL ? 0 : exp(sink - max);
    r->lse = r->dead ? sink : max + log(sum);
    for (int64_t j = 0; j < a->T; j++) {
        uint32_t word;

        philox_words(a->seed, (uint64_t)(first + j), 1, &word);
        r->weights[j] = r->hidden[j] || r->dead ||
                                (double)word < a->dropout_p * 0x1p32
            ? 0
            : exp(r->scores[j] - max) / sum / (1 - a->dropout_p);
    }
}

static void expect(const char *what, const struct attention *a, int64_t n,
                   int64_t h, int64_t i, int64_t j, double got, double want,
                   double allowed)
{
    if (got == want)
        return;
    if (!(fabs(got - want) <= allowed * fmax(1, fabs(want))))
        fail_msg("%s[%ld,%ld,%ld,%ld]: got %.9g, want %.9g; dtype %s N %ld H "
                 "%ld G %ld L %ld S %ld T %ld D %ld Dv %ld",
                 what, (long)n, (long)h, (long)i, (long)j, got, want,
                 dtype_name(a->dtype), (long)a->N, (long)a->H, (long)a->G,
                 (long)a->L, (long)a->S, (long)a->T, (long)a->D, (long)a->Dv);
}

static void expect_row(const struct attention *a, int64_t n, int64_t h,
                       int64_t i, const struct reference *r, double near)
{
    for (int64_t d = 0; d < a->Dv; d++) {
        double sum = 0;

        for (int64_t j = 0; j < a->T; j++)
            if (r->weights[j] != 0)
                sum += r->weights[j] *
                       get4(&a->v, n, h / (a->H / a->G), j, d);
        expect("out", a, n, h, i, d, get4(&a->out, n, h, i, d), sum,
               near / (1 - a->dropout_p));
    }
    for (int64_t j = 0; j < a->T; j++) {
        if (a->scores.rank != 0)
            expect("scores", a, n, h, i, j, get4(&a->scores, n, h, i, j),
                   r->scores[j], near);
        if (a->weights.rank != 0 && !a->average_weights)
            expect("weights", a, n, h, i, j, get4(&a->weights, n, h, i, j),
                   r->weights[j], r->hidden[j] ? 0 : near);
    }
    if (a->lse.rank != 0)
        expect("lse", a, n, h, i, 0,
               get(a->lse.data, a->dtype, (n * a->H + h) * a->L + i), r->lse,
               near);
}

static void expect_mean(const struct attention *a, int64_t n, int64_t i,
                        const double *mean, const bool *seen, double near)
{
    if (a->weights.rank != 0 && a->average_weights)
        for (int64_t j = 0; j < a->T; j++)
            expect("mean", a, n, 0, i, j,
                   get(a->weights.data, a->dtype, (n * a->L + i) * a->T + j),
                   mean[j] / (double)a->H, seen[j] ? near : 0);
}

static void expect_right(const struct attention *a, double near)
{
    struct arena_mark mark = arena_mark(&memory);
    struct reference r = {
        .scores = arena_array(&memory, (size_t)a->T, sizeof(double)),
        .weights = arena_array(&memory, (size_t)a->T, sizeof(double)),
        .hidden = arena_array(&memory, (size_t)a->T, sizeof(bool)),
    };
    double *mean = arena_array(&memory, (size_t)a->T, sizeof *mean);
    bool *seen = arena_array(&memory, (size_t)a->T, sizeof *seen);
    int64_t dead = 0;

    for (int64_t n = 0; n < a->N; n++)
        for (int64_t i = 0; i < a->L; i++) {
            memset(mean, 0, (size_t)a->T * sizeof *mean);
            memset(seen, 0, (size_t)a->T * sizeof *seen);
            for (int64_t h = 0; h < a->H; h++) {
                reference_row(a, n, h, i, &r);
                expect_row(a, n, h, i, &r, near);
                dead += r.dead;
                for (int64_t j = 0; j < a->T; j++) {
                    mean[j] += r.weights[j];
                    seen[j] |= !r.hidden[j];
                }
            }
            expect_mean(a, n, i, mean, seen, near);
        }
    if (a->fully_masked_queries != NULL)
        assert_int_equal(*a->fully_masked_queries, dead);
    arena_release(&memory, mark);
}

#endif
