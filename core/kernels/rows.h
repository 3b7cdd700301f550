#ifndef CORE_KERNELS_ROWS_H
#define CORE_KERNELS_ROWS_H

/* The row kernels, written once in GNU vectors and compiled by each level's
 * file for its own instruction set. The file defines before including this:
 *
 *     LANES   floats in a vector
 *     ISA     the target attribute of every function, or nothing
 *     lanes, lanes_word
 *             the vectors of LANES floats and of as many uint32_t
 *     lanes select_above(lanes a, lanes b, lanes x, lanes y);
 *             lane by lane a > b ? x : y; a NaN in a or b gives y
 *     lanes larger(lanes a, lanes b), smaller(lanes a, lanes b);
 *             a NaN in either gives b
 *     float lanes_largest(lanes x), lanes_total(lanes x);
 *     lanes totals(const lanes x[LANES]);
 *             the total of each, added up in one order
 *     lanes load_part(const float *p, int64_t n, float rest);
 *     void store_part(float *p, int64_t n, lanes x);
 *             the first n lanes, 0 < n <= LANES; nothing else is touched
 *     lanes load_flags(const uint8_t *p);
 *             LANES bytes of 0 or 1 as floats
 *     FUSES   1 where a product and a sum are one instruction and one rounding
 *     SCALES_AT_ONCE
 *             1 where there is one instruction, as fast for denormals, for
 *     lanes times_power_of_two(lanes x, lanes k);
 *             x * 2^k rounded once, k integers, -150 <= k <= 93; else not used
 *
 * The last vector of a row is padded with what changes nothing, so every
 * element goes through the same operations wherever it stands. */

#include "core/kernels/kernels.h"

#include <math.h>

#define INLINE ISA static inline __attribute__((always_inline))

typedef lanes lanes_at __attribute__((aligned(4), may_alias));
typedef int32_t lanes_bits __attribute__((vector_size(4 * LANES)));

/* Half as many doubles fill a vector of the same size. */
enum { HALF = LANES / 2 };
typedef double doubles __attribute__((vector_size(8 * HALF)));
typedef doubles doubles_at __attribute__((aligned(8), may_alias));
typedef float half __attribute__((vector_size(4 * HALF)));
typedef half half_at __attribute__((aligned(4), may_alias));

INLINE lanes load(const float *p)
{
    return *(const lanes_at *)p;
}

INLINE void store(float *p, lanes x)
{
    *(lanes_at *)p = x;
}

INLINE lanes all(float x)
{
    return x - (lanes){ 0 };
}

INLINE void raise(float *max, lanes top)
{
    float x = lanes_largest(top);

    *max = x > *max ? x : *max;
}

/* x * 0 is 0, or NaN where x is not finite: one multiply-add a vector keeps
 * watch, and one look at the end of the row tells. Four vectors at a time, so
 * that none waits for the one before. */
enum { WATCHES = 4 };

ISA static bool max_row(const float *row, int64_t n, float *max)
{
    lanes top[WATCHES], flaw[WATCHES];
    int64_t j = 0;

    _Pragma("GCC unroll 4")
    for (int i = 0; i < WATCHES; i++) {
        top[i] = all(-INFINITY);
        flaw[i] = all(0);
    }
    for (; j + WATCHES * LANES <= n; j += WATCHES * LANES) {
        _Pragma("GCC unroll 4")
        for (int i = 0; i < WATCHES; i++) {
            lanes x = load(row + j + i * LANES);

            flaw[i] += x * 0;
            top[i] = larger(x, top[i]);
        }
    }
    for (; j < n; j += LANES) {
        lanes x = n - j >= LANES ? load(row + j)
                                 : load_part(row + j, n - j, row[j]);

        flaw[0] += x * 0;
        top[0] = larger(x, top[0]);
    }
    raise(max, larger(larger(top[0], top[1]), larger(top[2], top[3])));
    return !isnan(lanes_total((flaw[0] + flaw[1]) + (flaw[2] + flaw[3])));
}

INLINE lanes size_lanes(lanes x, lanes *flaw)
{
    *flaw += x * 0;
    return (lanes)((lanes_bits)x & 0x7fffffff);
}

ISA static float size_row(const float *row, int64_t n)
{
    lanes top = all(0), flaw = all(0);
    int64_t j = 0;

    for (; j + LANES <= n; j += LANES)
        top = larger(size_lanes(load(row + j), &flaw), top);
    if (j < n)
        top = larger(size_lanes(load_part(row + j, n - j, 0), &flaw), top);
    return isnan(lanes_total(flaw)) ? INFINITY : lanes_largest(top);
}

struct mask_watch {
    lanes flaw, top, top_bias;
};

INLINE lanes mask_lanes(lanes x, lanes bias, struct mask_watch *watch)
{
    lanes hidden = all(-INFINITY), sum = x + bias;

    watch->flaw += select_above(bias, hidden, sum, all(0)) * 0;
    sum = select_above(bias, hidden, sum, hidden);
    watch->top = larger(sum, watch->top);
    watch->top_bias = larger(bias, watch->top_bias);
    return sum;
}

ISA static bool mask_row(float *row, const float *bias, int64_t n, float *max,
                         float *bias_max)
{
    struct mask_watch watch = { all(0), all(-INFINITY), all(-INFINITY) };
    int64_t j = 0;

    for (; j + LANES <= n; j += LANES)
        store(row + j, mask_lanes(load(row + j), load(bias + j), &watch));
    if (j < n) {
        lanes x = load_part(row + j, n - j, 0);
        lanes b = load_part(bias + j, n - j, -INFINITY);

        store_part(row + j, n - j, mask_lanes(x, b, &watch));
    }
    raise(max, watch.top);
    raise(bias_max, watch.top_bias);
    return !isnan(lanes_total(watch.flaw));
}

INLINE lanes hide_lanes(lanes x, lanes hidden, lanes *flaw, lanes *top)
{
    lanes seen = select_above(hidden, all(0), all(0), x + all(0));

    *flaw += seen * 0;
    seen = select_above(hidden, all(0), all(-INFINITY), seen);
    *top = larger(seen, *top);
    return seen;
}

ISA static bool hide_row(float *row, const uint8_t *hidden, int64_t n,
                         float *max)
{
    lanes flaw = all(0), top = all(-INFINITY);
    int64_t j = 0;

    for (; j + LANES <= n; j += LANES)
        store(row + j, hide_lanes(load(row + j), load_flags(hidden + j), &flaw,
                                  &top));
    if (j < n) {
        lanes flags = all(1);

        for (int64_t i = 0; i < n - j; i++)
            flags[i] = (float)hidden[j + i];
        store_part(row + j, n - j, hide_lanes(load_part(row + j, n - j, 0),
                                              flags, &flaw, &top));
    }
    raise(max, top);
    return !isnan(lanes_total(flaw));
}

/* Distances are integers below 2^31, and floats without error below 2^24. */
INLINE lanes alibi_lanes(lanes bias, lanes_bits distance, lanes slope)
{
    lanes size = __builtin_convertvector(distance, lanes);
    lanes sum;

    size = (lanes)((lanes_bits)size & 0x7fffffff);
    sum = bias - slope * size;

    lanes fallen = select_above(bias, all(-INFINITY), all(INFINITY), sum);

    return select_above(sum, all(-INFINITY), sum, fallen);
}

ISA static void alibi_row(float *out, const float *bias, int64_t n,
                          float slope, int64_t distance)
{
    lanes_bits at;
    int64_t j = 0;

    for (int i = 0; i < LANES; i++)
        at[i] = (int32_t)distance - i;
    for (; j < n; j += LANES, at -= LANES) {
        int64_t rest = n - j < LANES ? n - j : LANES;
        lanes b = bias == NULL ? all(0) : load_part(bias + j, rest, 0);

        store_part(out + j, rest, alibi_lanes(b, at, all(slope)));
    }
}

/* exp(x) = 2^k * exp(r) for x <= 64, k = round(x / ln 2), |r| <= ln 2 / 2 and a
 * little.
 *
 * Adding 1.5 * 2^23 and taking it off again rounds to an integer. exp(r) = 1 +
 * r + r^2 q(r), q of degree 4 by interpolation at Chebyshev's points: its error
 * is 0.17 * 2^-24. Below -104, exp is less than half the smallest denormal.
 *
 * Where no instruction scales, k is added to the exponent's bits: it stands in
 * the lowest bits of the sum that rounds it. With 32 more, so that the exponent
 * stays one, which the last product takes off again and rounds a denormal result
 * once. What falls below that is taken out before, for a product that vanishes
 * takes ten times as long. */
INLINE lanes exp_of_rest(lanes r)
{
    lanes q = r * 0x1.6d113cp-10f + 0x1.120ba2p-7f;

    q = q * r + 0x1.55551ap-5f;
    q = q * r + 0x1.5554dcp-3f;
    q = q * r + 0.5f;
    q = q * r + 1;
    return q * r + 1;
}

/* x - k ln 2. As one fused multiply-add it is off by what a float of ln 2 is,
 * 1.9e-9 * k; elsewhere ln 2 goes in two parts, the first of 15 bits, so that
 * its product with k (8 bits) is exact. */
INLINE lanes rest_of(lanes x, lanes k)
{
#if FUSES
    return x - k * 0x1.62e43p-1f;
#else
    return x - k * 0x1.62e4p-1f - k * 0x1.7f7d1cp-20f;
#endif
}

INLINE lanes exp_below(lanes x)
{
    const lanes lowest = all(-104.0f);
#if SCALES_AT_ONCE
    const lanes shift = all(0x1.8p23f);
    lanes seen = larger(x, lowest);
    lanes k = (seen * 0x1.715476p0f + shift) - shift;

    return times_power_of_two(exp_of_rest(rest_of(seen, k)), k);
#else
    const lanes shift = all(0x1.8p23f + 32);
    lanes seen = select_above(x, lowest, x, all(0));
    lanes sum = seen * 0x1.715476p0f + shift;
    lanes size = exp_of_rest(rest_of(seen, sum - shift));

    size = (lanes)((lanes_word)size + ((lanes_word)sum << 23)) * 0x1p-32f;
    return select_above(x, lowest, size, all(0));
#endif
}

/* Lanes are added up in double after 32 vectors: a lane's sum then errs by at
 * most 16 ulps, and by one or two in practice, however long the row is. */
enum { SUM_BLOCK = 32 * LANES };

ISA static double exp_block(float *row, int64_t n, lanes max)
{
    lanes sum = all(0);
    int64_t j = 0;

    for (; j + LANES <= n; j += LANES) {
        lanes e = exp_below(load(row + j) - max);

        sum += e;
        store(row + j, e);
    }
    if (j < n) {
        lanes e = exp_below(load_part(row + j, n - j, -INFINITY) - max);

        sum += e;
        store_part(row + j, n - j, e);
    }
    return (double)lanes_total(sum);
}

ISA static double exp_row(float *row, int64_t n, float max)
{
    double sum = 0;

    for (int64_t j = 0; j < n; j += SUM_BLOCK)
        sum += exp_block(row + j, n - j < SUM_BLOCK ? n - j : SUM_BLOCK,
                         all(max));
    return sum;
}

/* Below 0.625 by x + x^3 p(x^2), p of degree 4 by interpolation at Chebyshev's
 * points (error 0.28 * 2^-24); above, where 1 - 2 / (e^2x + 1) cancels
 * nothing, by that. */
INLINE lanes tanh_lanes(lanes x)
{
    lanes size = (lanes)((lanes_bits)x & 0x7fffffff);
    lanes_bits sign = (lanes_bits)x & ~0x7fffffff;
    lanes big = 1 - 2 / (exp_below(smaller(size + size, all(64))) + 1);
    lanes y = size * size;
    lanes p = y * -0.00609671417f + 0.020997179f;

    p = p * y - 0.0538509096f;
    p = p * y + 0.133327697f;
    p = p * y - 0.333333289f;
    big = select_above(all(0.625f), size, size + size * y * p, big);
    return (lanes)((lanes_bits)big | sign);
}

INLINE lanes cap_lanes(lanes x, lanes cap)
{
    return cap * tanh_lanes(x / cap) + x * 0;
}

ISA static void cap_row(float *row, int64_t n, float cap)
{
    int64_t j = 0;

    for (; j + LANES <= n; j += LANES)
        store(row + j, cap_lanes(load(row + j), all(cap)));
    if (j < n)
        store_part(row + j, n - j,
                   cap_lanes(load_part(row + j, n - j, 0), all(cap)));
}

ISA static void scale_row(float *out, const float *row, int64_t n,
                          float factor)
{
    int64_t j = 0;

    for (; j + LANES <= n; j += LANES)
        store(out + j, load(row + j) * factor);
    for (; j < n; j++)
        out[j] = row[j] * factor;
}

ISA static void add_row(float *sum, const float *row, int64_t n, float factor)
{
    int64_t j = 0;

    for (; j + LANES <= n; j += LANES)
        store(sum + j, load(sum + j) + load(row + j) * factor);
    for (; j < n; j++)
        sum[j] += row[j] * factor;
}

/* ---- a few rows by many ---- */

struct few_rows {
    int64_t n, k;
    const float *a; /* the few, ... */
    int64_t lda;
    const float *b; /* ... the many ... */
    int64_t ldb;
    float *c;       /* ... and what comes of them */
    int64_t ldc;
    float alpha;    /* of dot_rows */
    bool add;       /* of sum_rows */
};

INLINE lanes load_first(const float *p, int64_t n)
{
    return n < LANES ? load_part(p, n, 0) : load(p);
}

/* The many come from memory, and while the processor multiplies it does not fetch
 * them early enough by itself: four rows took them at 14 GB/s, and with this
 * many floats ahead at 31. */
enum { AHEAD = 4096 };

INLINE lanes load_ahead(const float *p, int64_t n, int64_t ahead)
{
    __builtin_prefetch(p + ahead);
    return load_first(p, n);
}

/* In floats, for rows of k. */
static int64_t ahead_of(int64_t k, int64_t ld)
{
    return (k < AHEAD ? AHEAD / k : 1) * ld;
}

/* As many products as a vector has lanes, so that their sums are added up
 * together: of `few` rows, at most FEW of them, with LANES / few, in as many
 * streams from memory. */
enum { FEW = 4 };

/* sum += a[few] . b[streams]^T of n columns from l on. */
INLINE void dot_columns(const struct few_rows *f, const int few,
                        const int streams, const float *const b[FEW],
                        int64_t l, int64_t n, int64_t ahead, lanes *sum)
{
    lanes x[FEW];

    _Pragma("GCC unroll 4")
    for (int i = 0; i < streams; i++)
        x[i] = load_ahead(b[i] + l, n, ahead);
    _Pragma("GCC unroll 4")
    for (int r = 0; r < few; r++) {
        lanes y = load_first(f->a + r * f->lda + l, n);

        _Pragma("GCC unroll 4")
        for (int i = 0; i < streams; i++)
            sum[r * (LANES / few) + i] += x[i] * y;
    }
}

/* Of b's rows n are there, which is LANES / few for all but the last. */
INLINE void dot_block(const struct few_rows *f, const int few, int64_t n)
{
    const int each = LANES / few, streams = few < each ? few : each;
    int64_t ahead = ahead_of(f->k, f->ldb);
    lanes sum[LANES];
    float total[LANES];

    _Pragma("GCC unroll 16")
    for (int i = 0; i < LANES; i++)
        sum[i] = all(0);
    _Pragma("GCC unroll 4")
    for (int j = 0; j < each; j += streams) {
        const float *b[FEW];
        int64_t l = 0;

        _Pragma("GCC unroll 4")
        for (int i = 0; i < streams; i++)
            b[i] = f->b + (j + i < n ? j + i : n - 1) * f->ldb;
        for (; l + LANES <= f->k; l += LANES)
            dot_columns(f, few, streams, b, l, LANES, ahead, sum + j);
        if (l < f->k)
            dot_columns(f, few, streams, b, l, f->k - l, ahead, sum + j);
    }
    store(total, totals(sum) * f->alpha);
    for (int r = 0; r < few; r++)
        for (int i = 0; i < each && i < n; i++)
            f->c[r * f->ldc + i] = total[r * each + i];
}

INLINE void dot_few(struct few_rows *f, const int few)
{
    struct few_rows block = *f;
    const int each = LANES / few;

    for (int64_t left = f->n; left > 0; left -= each) {
        dot_block(&block, few, left < each ? left : each);
        block.b += each * f->ldb;
        block.c += each;
    }
    f->a += few * f->lda;
    f->c += few * f->ldc;
}

/* The few in turn against LANES of the many, that come from memory once. */
ISA static void dot_rows(int64_t m, int64_t n, int64_t k, float alpha,
                         const float *a, int64_t lda, const float *rows,
                         int64_t ld, float *out, int64_t ldo)
{
    for (int64_t j = 0; j < n; j += LANES) {
        struct few_rows f = { .n = n - j < LANES ? n - j : LANES, .k = k,
                              .a = a, .lda = lda, .b = rows + j * ld,
                              .ldb = ld, .c = out + j, .ldc = ldo,
                              .alpha = alpha };
        int64_t i = 0;

        for (; i + 4 <= m; i += 4)
            dot_few(&f, 4);
        for (; i + 2 <= m; i += 2)
            dot_few(&f, 2);
        if (i < m)
            dot_few(&f, 1);
    }
}

/* Columns in strips that stay in registers, the last of them one vector at a
 * time: eight sums cover the latency of a multiply-add. Two of the few at once,
 * which is as fast as memory is. Rows in parts, which strips and the few share
 * while they are in the first cache, and whose sums are added to what was there,
 * so that errors of long sums do not pile up. */
enum { STRIP = 8, STRIP_OF_TWO = LANES < 16 ? 4 : 8, SUM_ROWS = 32 };

/* `last` columns in the last vector. */
INLINE void sum_strip(const struct few_rows *f, const int few,
                      const int vectors, int64_t column, int64_t last)
{
    int64_t ahead = ahead_of(f->n, f->ldb);
    const float *b = f->b + column;
    float *c = f->c + column;
    lanes sum[2][STRIP];

#define EACH                                                                 \
    _Pragma("GCC unroll 2") for (int r = 0; r < few; r++)                    \
        _Pragma("GCC unroll 8") for (int v = 0; v < vectors; v++)
#define COLUMNS (v == vectors - 1 ? last : LANES)
    EACH sum[r][v] = all(0);
    for (int64_t j = 0; j < f->k; j++, b += f->ldb) {
        lanes x[STRIP];

        _Pragma("GCC unroll 8")
        for (int v = 0; v < vectors; v++)
            x[v] = load_ahead(b + v * LANES, COLUMNS, ahead);
        EACH sum[r][v] += f->a[r * f->lda + j] * x[v];
    }
    if (f->add)
        EACH sum[r][v] += load_first(c + r * f->ldc + v * LANES, COLUMNS);
    EACH if (COLUMNS == LANES)
        store(c + r * f->ldc + v * LANES, sum[r][v]);
    else
        store_part(c + r * f->ldc + v * LANES, last, sum[r][v]);
#undef COLUMNS
#undef EACH
}

INLINE void sum_few(struct few_rows *f, const int few)
{
    const int vectors = few == 1 ? STRIP : STRIP_OF_TWO;
    int64_t i = 0;

    for (; i + vectors * LANES <= f->n; i += vectors * LANES)
        sum_strip(f, few, vectors, i, LANES);
    for (; i + vectors / 2 * LANES <= f->n; i += vectors / 2 * LANES)
        sum_strip(f, few, vectors / 2, i, LANES);
    for (; i + LANES <= f->n; i += LANES)
        sum_strip(f, few, 1, i, LANES);
    if (i < f->n)
        sum_strip(f, few, 1, i, f->n - i);
    f->a += few * f->lda;
    f->c += few * f->ldc;
}

ISA static void sum_rows(int64_t m, int64_t n, int64_t k, const float *weights,
                         int64_t ldw, const float *rows, int64_t ld, float beta,
                         float *sum, int64_t lds)
{
    for (int64_t j = 0; j < k; j += SUM_ROWS) {
        struct few_rows f = { .n = n, .k = k - j < SUM_ROWS ? k - j : SUM_ROWS,
                              .a = weights + j, .lda = ldw,
                              .b = rows + j * ld, .ldb = ld, .c = sum,
                              .ldc = lds, .add = j > 0 || beta != 0 };
        int64_t i = 0;

        for (; i + 2 <= m; i += 2)
            sum_few(&f, 2);
        if (i < m)
            sum_few(&f, 1);
    }
}

INLINE doubles load_doubles(const float *p)
{
    return __builtin_convertvector(*(const half_at *)p, doubles);
}

ISA static double dot_row(const float *a, const float *b, int64_t n)
{
    doubles even = { 0 }, odd = { 0 };
    double sum = 0;
    int64_t j = 0;

    for (; j + LANES <= n; j += LANES) {
        even += load_doubles(a + j) * load_doubles(b + j);
        odd += load_doubles(a + j + HALF) * load_doubles(b + j + HALF);
    }
    for (; j < n; j++)
        sum += (double)a[j] * (double)b[j];
    even += odd;
    for (int i = 0; i < HALF; i++)
        sum += even[i];
    return sum;
}

ISA static void add_row_f64(double *sum, const float *row, int64_t n,
                            double weight)
{
    int64_t j = 0;

    for (; j + HALF <= n; j += HALF)
        *(doubles_at *)(sum + j) += load_doubles(row + j) * weight;
    for (; j < n; j++)
        sum[j] += (double)row[j] * weight;
}

static void add_rows(struct kernels *set)
{
    set->dot_rows = dot_rows;
    set->sum_rows = sum_rows;
    set->max_row = max_row;
    set->size_row = size_row;
    set->mask_row = mask_row;
    set->hide_row = hide_row;
    set->alibi_row = alibi_row;
    set->cap_row = cap_row;
    set->exp_row = exp_row;
    set->scale_row = scale_row;
    set->add_row = add_row;
    set->dot_row = dot_row;
    set->add_row_f64 = add_row_f64;
}

#endif
