#include "core/attention.h"
#include "tests/bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How far from double each level and precision is, on five kinds of input: the
 * norm of the error by the norm of the result, and the largest error by the
 * largest result. The product of a projection (96 rows, 768 wide), and
 * attention (4 heads, 128 rows of 64). "portable" multiplies by OpenBLAS. */

enum { ROWS = 96, WIDE = 768, H = 4, L = 128, D = 64 };

enum { NORMAL, LOGNORMAL, CANCELLING, DENORMAL, OVERFLOWING, KINDS };
static const char *const kind_names[KINDS] = {
    "normal", "lognormal", "cancelling", "denormal", "near overflow"
};

/* Sigma of the logarithm: eight decades, or what leaves a softmax more than
 * one key. */
static const float WIDE_RANGE = 4, SOME_RANGE = 0.7f;

/* A product's terms by kind; `large` is what makes their sum come near to the
 * largest float. */
static void shape_numbers(float *x, int64_t count, int kind, bool second,
                          float sigma)
{
    static const float large = 0x1p60f, small = 0x1p-70f;

    for (int64_t i = 0; i < count; i++) {
        if (kind == LOGNORMAL)
            x[i] = copysignf(expf(sigma * x[i]), x[i]);
        else if (kind == CANCELLING && i % 2 == 1)
            x[i] = second ? -x[i - 1] * (1 + 1e-4f * x[i]) : x[i - 1];
        else if (kind == DENORMAL)
            x[i] *= small;
        else if (kind == OVERFLOWING)
            x[i] *= large;
    }
}

static float *numbers(int64_t count, int kind, bool second, float sigma)
{
    float *x = bench_numbers(count);

    shape_numbers(x, count, kind, second, sigma);
    return x;
}

struct error_sum {
    double norm, largest;
};

static struct error_sum compare(const float *got, const double *want,
                                int64_t count)
{
    double error = 0, size = 0, worst = 0, top = 0;

    for (int64_t i = 0; i < count; i++) {
        double e = (double)got[i] - want[i];

        error += e * e;
        size += want[i] * want[i];
        worst = fabs(e) > worst ? fabs(e) : worst;
        top = fabs(want[i]) > top ? fabs(want[i]) : top;
    }
    return (struct error_sum){ sqrt(error / size), worst / top };
}

static double *doubles(const float *x, int64_t count)
{
    double *to = bench_memory(count * (int64_t)sizeof *to);

    for (int64_t i = 0; i < count; i++)
        to[i] = (double)x[i];
    return to;
}

static float *rounded(const float *x, int64_t count, bool round)
{
    float *to = bench_memory(count * (int64_t)sizeof *to);

    memcpy(to, x, (size_t)count * sizeof *to);
    if (round)
        tensor_round_bf16(to, count);
    return to;
}

/* c = a . b^T as projections of held weights are made: by pieces or pairs of
 * bfloat16 where the level multiplies those. */
static void project(const struct kernels *kernels, bool round, const float *a,
                    const float *b, float *c)
{
    bool pairs = round && kernels->round_pairs != NULL;
    bool pieces = !round && kernels->split_rows != NULL;
    int64_t k = pairs ? WIDE / 2 : pieces ? kernels_pieces(WIDE) : WIDE;
    float *rows = bench_memory(ROWS * k * (int64_t)sizeof *rows);
    float *columns = bench_memory(WIDE * k * (int64_t)sizeof *columns);
    float *packed = bench_memory(WIDE * k * (int64_t)sizeof *packed);
    float *floats = bench_memory(WIDE * WIDE * (int64_t)sizeof *floats);
    struct packed_product p = {
        .m = ROWS, .a = a, .lda = WIDE, .packed = floats, .n = WIDE, .k = WIDE,
        .columns = WIDE, .rows = WIDE, .alpha = 1, .c = c, .ldc = WIDE,
    };

    kernels->pack_rows_f32(WIDE, WIDE, b, WIDE, floats);
    if (pieces) {
        kernels->split_rows(ROWS, WIDE, a, rows);
        kernels->split_rows(WIDE, WIDE, b, columns);
        kernels->pack_rows_f32(WIDE, k, columns, k, packed);
        kernels->gemm_packed_pieces(&p, rows, packed);
    } else if (pairs) {
        kernels->round_pairs(ROWS, WIDE, a, rows);
        kernels->round_pairs(WIDE, WIDE, b, columns);
        kernels->pack_rows_f32(WIDE, k, columns, k, packed);
        p.a = rows;
        p.packed = packed;
        p.lda = p.k = p.rows = k;
        kernels->gemm_packed_pairs(&p);
    } else {
        kernels->gemm_packed_f32(&p);
    }
}

static struct error_sum product(const struct kernels *kernels, int kind,
                                bool round)
{
    float *a = numbers(ROWS * WIDE, kind, false, WIDE_RANGE);
    float *b = numbers(WIDE * WIDE, kind, true, WIDE_RANGE);
    float *c = bench_numbers(ROWS * WIDE);
    double *want = doubles(c, ROWS * WIDE);

    kernels->gemm_nt_f64(ROWS, WIDE, WIDE, 1, doubles(a, ROWS * WIDE), WIDE,
                         doubles(b, WIDE * WIDE), WIDE, want, WIDE);
    project(kernels, round, rounded(a, ROWS * WIDE, round),
            rounded(b, WIDE * WIDE, round), c);
    return compare(c, want, ROWS * WIDE);
}

static struct tensor heads(void *data, enum dtype dtype)
{
    return tensor_packed(data, dtype, 4, (int64_t[]){ 1, H, L, D });
}

static struct error_sum attention(const struct kernels *kernels, int kind,
                                  bool round)
{
    enum { COUNT = H * L * D };
    float *q = numbers(COUNT, kind, false, SOME_RANGE);
    float *k = numbers(COUNT, kind, true, SOME_RANGE);
    float *v = numbers(COUNT, kind, false, WIDE_RANGE);
    float *out = bench_numbers(COUNT);
    struct attention a = {
        .dtype = DTYPE_F32, .N = 1, .H = H, .G = H, .L = L, .S = L, .T = L,
        .D = D, .Dv = D, .scale = 0.125,
        .q = heads(rounded(q, COUNT, round), DTYPE_F32),
        .k = heads(rounded(k, COUNT, round), DTYPE_F32),
        .v = heads(rounded(v, COUNT, round), DTYPE_F32),
        .out = heads(out, DTYPE_F32),
        .mask = { .S = L, .left = INT64_MAX, .right = INT64_MAX },
    };
    struct attention wide = a;
    double *want = doubles(out, COUNT);

    wide.dtype = DTYPE_F64;
    wide.q = heads(doubles(q, COUNT), DTYPE_F64);
    wide.k = heads(doubles(k, COUNT), DTYPE_F64);
    wide.v = heads(doubles(v, COUNT), DTYPE_F64);
    wide.out = heads(want, DTYPE_F64);
    if (!attention_run(&a, kernels, bench_alone()) ||
        !attention_run(&wide, kernels, bench_alone()))
        exit(1);
    return compare(out, want, COUNT);
}

static void measure(const struct kernels *kernels, const char *what,
                    bool round,
                    struct error_sum (*run)(const struct kernels *, int, bool))
{
    const char *precision = round ? "bfloat16" : "float32";

    printf("%-10s %-9s %-9s", what, kernels->name, precision);
    for (int kind = 0; kind < KINDS; kind++) {
        struct error_sum e = run(kernels, kind, round);

        printf("  %7.1e %7.1e", e.norm, e.largest);
        bench_json_begin();
        bench_json_text("what", what);
        bench_json_text("kernels", kernels->name);
        bench_json_text("precision", precision);
        bench_json_text("input", kind_names[kind]);
        bench_json_number("relative_frobenius", e.norm);
        bench_json_number("largest", e.largest);
        bench_json_end();
        bench_forget();
    }
    putchar('\n');
}

int main(void)
{
    struct kernels set[BENCH_LEVELS_MAX];
    int levels;

    kernels_single_threaded();
    kernels_warm();
    levels = bench_levels(set);
    printf("error against double: norm, and largest\n%-30s", "");
    for (int kind = 0; kind < KINDS; kind++)
        printf("  %-15s", kind_names[kind]);
    putchar('\n');
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < levels; i++) {
            measure(&set[i], "projection", round, product);
            measure(&set[i], "attention", round, attention);
        }
    return 0;
}
