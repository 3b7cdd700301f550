#include "core/kernels/kernels.h"
#include "core/philox.h"
#include "core/tensor.h"
#include "tests/kernels/guarded.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Every kernel of every level this processor has, against naive loops in
 * double, at every size around a vector and a block of vectors, in buffers that
 * end at a guard page. */

/* A dot product of k floats in any order errs by at most k ulps of the sum of
 * the sizes of its terms; the constants leave room for alpha and beta. */
static const double ULP_F32 = 0x1p-23, ULP_F64 = 0x1p-52;

enum { LARGEST_VECTOR = 16, SIZES = 2 * LARGEST_VECTOR + 2 };

static const char *const ceilings[] = { "portable", "avx2", "avx512", "amx" };

static const char *level; /* the set being checked */

static double *random_doubles(int which, int64_t n)
{
    double *p = ending_at_guard(which, (size_t)n * sizeof *p);

    for (int64_t i = 0; i < n; i++)
        p[i] = random_number();
    return p;
}

static void expect_near(const char *what, int64_t i, int64_t n, double got,
                        double want, double allowed)
{
    if (!(fabs(got - want) <= allowed))
        fail_msg("%s, %s of %ld: [%ld] is %.17g, not %.17g (allowed %g)", level,
                 what, (long)n, (long)i, got, want, allowed);
}

static void at_each_level(void (*check)(const struct kernels *))
{
    level = "";
    for (size_t i = 0; i < sizeof ceilings / sizeof *ceilings; i++) {
        struct kernels kernels;

        assert_true(kernels_select(cpu_features(), ceilings[i], &kernels));
        if (strcmp(kernels.name, level) == 0)
            continue; /* the processor has no more */
        level = kernels.name;
        random_state = 1;
        check(&kernels);
    }
}

/* Skipped where the processor lacks it: then the tests below do without it. */
static void expect_level(const char *name, uint32_t needs)
{
    struct kernels k;

    if ((cpu_features() & needs) != needs)
        skip();
    assert_true(kernels_select(cpu_features(), name, &k));
    assert_string_equal(k.name, name);
}

static void avx2_is_chosen_where_it_is_there(void **state)
{
    (void)state;
    expect_level("avx2", CPU_AVX2);
}

static void avx512_is_chosen_where_it_is_there(void **state)
{
    (void)state;
    expect_level("avx512", CPU_AVX2 | CPU_AVX512);
}

static void amx_is_chosen_where_it_is_there(void **state)
{
    (void)state;
    expect_level("amx", CPU_AVX512_BF16 | CPU_AMX);
}

static void a_ceiling_keeps_what_is_above_it_out(void **state)
{
    struct kernels k;

    (void)state;
    assert_true(kernels_select(CPU_AVX2 | CPU_AVX512, "portable", &k));
    assert_string_equal(k.name, "portable");
    assert_true(kernels_select(0, NULL, &k));
    assert_string_equal(k.name, "portable");
    assert_true(kernels_select(0, "avx512", &k));
    assert_string_equal(k.name, "portable");
#if defined(__x86_64__)
    assert_true(kernels_select(CPU_AVX2 | CPU_AVX512, "avx2", &k));
    assert_string_equal(k.name, "avx2");
    assert_true(kernels_select(CPU_AVX2 | CPU_AVX512, "amx", &k));
    assert_string_equal(k.name, "avx512");
    assert_true(kernels_select(CPU_AVX512, NULL, &k));
    assert_string_equal(k.name, "portable");
#endif
}

static void pairs_belong_to_avx512_where_the_processor_has_them(void **state)
{
    static const struct {
        uint32_t features;
        const char *ceiling;
        bool there;
    } rows[] = {
#if defined(__x86_64__)
        { CPU_AVX2 | CPU_AVX512 | CPU_AVX512_BF16, NULL, true },
        { CPU_AVX2 | CPU_AVX512 | CPU_AVX512_BF16, "amx", true },
        { CPU_AVX2 | CPU_AVX512 | CPU_AVX512_BF16, "avx512", true },
#endif
        { CPU_AVX2 | CPU_AVX512 | CPU_AVX512_BF16, "avx2", false },
        { CPU_AVX2 | CPU_AVX512 | CPU_AVX512_BF16, "portable", false },
        { CPU_AVX2 | CPU_AVX512, NULL, false },
        { CPU_AVX2 | CPU_AVX512_BF16, NULL, false },
    };
    struct kernels k;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(kernels_select(rows[i].features, rows[i].ceiling, &k));
        assert_int_equal(k.round_pairs != NULL, rows[i].there);
        assert_int_equal(k.gemm_nt_pairs != NULL, rows[i].there);
        if (rows[i].there)
            assert_string_equal(k.name, "avx512");
    }
}

static void a_misspelt_ceiling_is_refused(void **state)
{
    struct kernels k;

    (void)state;
    assert_false(kernels_select(0, "axv2", &k));
    assert_false(kernels_select(0, "", &k));
    assert_false(kernels_select(0, "AVX2", &k));
}

static void check_nt_f32(const struct kernels *kernels, int64_t m, int64_t n,
                         int64_t k)
{
    float *a = random_floats(0, m * k), *b = random_floats(1, n * k);
    float *c = random_floats(2, m * n);

    kernels->gemm_nt_f32(m, n, k, 0.375f, a, k, b, k, c, n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0, size = 0;

            for (int64_t l = 0; l < k; l++) {
                double term = 0.375 * (double)a[i * k + l] * (double)b[j * k + l];

                sum += term;
                size += fabs(term);
            }
            expect_near("gemm_nt_f32", i * n + j, m * n, (double)c[i * n + j],
                        sum, (double)(k + 2) * ULP_F32 * size);
        }
}

static void check_nt_f64(const struct kernels *kernels, int64_t m, int64_t n,
                         int64_t k)
{
    double *a = random_doubles(0, m * k), *b = random_doubles(1, n * k);
    double *c = random_doubles(2, m * n);

    kernels->gemm_nt_f64(m, n, k, 0.375, a, k, b, k, c, n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0, size = 0;

            for (int64_t l = 0; l < k; l++) {
                double term = 0.375 * a[i * k + l] * b[j * k + l];

                sum += term;
                size += fabs(term);
            }
            expect_near("gemm_nt_f64", i * n + j, m * n, c[i * n + j], sum,
                        2 * (double)(k + 2) * ULP_F64 * size);
        }
}

static void check_nn_f32(const struct kernels *kernels, int64_t m, int64_t n,
                         int64_t k, int beta)
{
    float *a = random_floats(0, m * k), *b = random_floats(1, k * n);
    float *c = random_floats(2, m * n);
    float *before = random_floats(3, m * n);

    for (int64_t i = 0; i < m * n; i++)
        c[i] = beta == 0 ? NAN : before[i];
    kernels->gemm_nn_f32(m, n, k, a, k, b, n, (float)beta, c, n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = beta == 0 ? 0 : (double)before[i * n + j];
            double size = fabs(sum);

            for (int64_t l = 0; l < k; l++) {
                double term = (double)a[i * k + l] * (double)b[l * n + j];

                sum += term;
                size += fabs(term);
            }
            expect_near("gemm_nn_f32", i * n + j, m * n, (double)c[i * n + j],
                        sum, (double)(k + 2) * ULP_F32 * size);
        }
}

static void check_nn_f64(const struct kernels *kernels, int64_t m, int64_t n,
                         int64_t k, int beta)
{
    double *a = random_doubles(0, m * k), *b = random_doubles(1, k * n);
    double *c = random_doubles(2, m * n);
    double *before = random_doubles(3, m * n);

    for (int64_t i = 0; i < m * n; i++)
        c[i] = beta == 0 ? (double)NAN : before[i];
    kernels->gemm_nn_f64(m, n, k, a, k, b, n, beta, c, n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = beta == 0 ? 0 : before[i * n + j], size = fabs(sum);

            for (int64_t l = 0; l < k; l++) {
                double term = a[i * k + l] * b[l * n + j];

                sum += term;
                size += fabs(term);
            }
            expect_near("gemm_nn_f64", i * n + j, m * n, c[i * n + j], sum,
                        2 * (double)(k + 2) * ULP_F64 * size);
        }
}

static void check_products(const struct kernels *kernels)
{
    static const int64_t sizes[] = { 1, 2, 3, 5, 7, 8, 12, 15, 16, 17, 24,
                                     31, 32, 33, 48, 63, 64, 65, 97 };
    static const int64_t depths[] = { 255, 256, 257, 511, 512, 513 };
    enum { COUNT = sizeof sizes / sizeof *sizes };

    for (int i = 0; i < COUNT; i++)
        for (int j = 0; j < COUNT; j++)
            for (int l = 0; l < COUNT; l += 1 + (i + j) % 3) {
                check_nt_f32(kernels, sizes[i], sizes[j], sizes[l]);
                check_nt_f64(kernels, sizes[i], sizes[j], sizes[l]);
                check_nn_f32(kernels, sizes[i], sizes[j], sizes[l], l % 2);
                check_nn_f64(kernels, sizes[i], sizes[j], sizes[l], l % 2);
            }
    for (int i = 0; i < 6; i++)
        for (int64_t m = 1; m <= 14; m++) {
            check_nt_f32(kernels, m, 60 + m, depths[i]);
            check_nn_f32(kernels, m, 60 + m, depths[i], (int)(m % 2));
        }
    check_nt_f32(kernels, 130, 200, 700);
    check_nn_f32(kernels, 130, 200, 700, 1);
}

static void products_are_right_at_every_size(void **state)
{
    (void)state;
    at_each_level(check_products);
}

/* A matrix of n columns, packed at the end of its pages. */
static float *packed(const struct kernels *kernels, bool by_columns, int64_t n,
                     int64_t k, const float *b)
{
    float *p = random_floats(3, kernels->packed_f32(n, k));

    if (by_columns) {
        for (int64_t row = 0; row < k; row += 1 + k / 2) {
            int64_t rows = k - row < 1 + k / 2 ? k - row : 1 + k / 2;

            kernels->pack_columns_f32(n, k, row, rows, b + row * n, n, p);
        }
    } else {
        kernels->pack_rows_f32(n, k, b, k, p);
    }
    return p;
}

static void check_packed_already(const struct kernels *kernels)
{
    enum { K = 7 };
    int found = 0;

    for (int64_t n = 1; n <= 130; n++) {
        float *b = random_floats(0, n * K);

        assert_false(kernels->are_packed(n, n + 1));
        if (!kernels->are_packed(n, n))
            continue;
        found++;
        assert_memory_equal(packed(kernels, true, n, K, b), b,
                            (size_t)(n * K) * sizeof *b);
    }
    assert_true(found > 0);
}

static void what_is_packed_already_is_a_copy(void **state)
{
    (void)state;
    at_each_level(check_packed_already);
}

static void check_packed_whole(const struct kernels *kernels, int64_t m,
                               int64_t n, int64_t k)
{
    float *a = random_floats(0, m * k), *b = random_floats(1, n * k);
    float *want = random_floats(2, m * n), *bias = random_floats(4, n);
    float *c = random_floats(5, m * n), *back = random_floats(6, n * k);
    struct packed_product p = { .m = m, .a = a, .lda = k, .n = n, .k = k,
                                .columns = n, .rows = k, .alpha = 0.375f,
                                .c = c, .ldc = n };

    p.packed = packed(kernels, false, n, k, b);
    kernels->gemm_nt_f32(m, n, k, 0.375f, a, k, b, k, want, n);
    kernels->gemm_packed_f32(&p);
    assert_memory_equal(c, want, (size_t)(m * n) * sizeof *c);
    p.bias = bias;
    kernels->gemm_packed_f32(&p);
    for (int64_t i = 0; i < m * n; i++)
        expect_near("bias", i, m * n, (double)c[i],
                    (double)want[i] + (double)bias[i % n],
                    0x1p-22 * (1 + fabs((double)c[i]) + fabs((double)want[i])));
    kernels->unpack_rows_f32(n, k, p.packed, back, k);
    assert_memory_equal(back, b, (size_t)(n * k) * sizeof *b);
}

/* Columns from `column` on and rows from `row` on, but for the last ones. */
static void check_packed_part(const struct kernels *kernels, int64_t m,
                              int64_t n, int64_t k, int64_t column,
                              int64_t row, bool by_columns)
{
    int64_t columns = n - column - (n > column + 3 ? 2 : 0);
    int64_t rows = k - row - (k > row + 3 ? 2 : 0);
    float *a = random_floats(0, m * rows), *b = random_floats(1, n * k);
    float *c = random_floats(2, m * columns);
    float *was = random_floats(5, m * columns);
    struct packed_product p = {
        .m = m, .a = a, .lda = rows, .by_columns = by_columns,
        .n = n, .k = k, .column = column, .columns = columns, .row = row,
        .rows = rows, .alpha = 1, .add = by_columns, .c = c, .ldc = columns,
    };

    memcpy(was, c, (size_t)(m * columns) * sizeof *c);
    p.packed = packed(kernels, by_columns, n, k, b);
    kernels->gemm_packed_f32(&p);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < columns; j++) {
            double sum = by_columns ? (double)was[i * columns + j] : 0;
            double size = fabs(sum);

            for (int64_t l = 0; l < rows; l++) {
                int64_t at = by_columns ? (row + l) * n + column + j
                                        : (column + j) * k + row + l;
                double term = (double)a[i * rows + l] * (double)b[at];

                sum += term;
                size += fabs(term);
            }
            expect_near("gemm_packed_f32", i * columns + j, m * columns,
                        (double)c[i * columns + j], sum,
                        (double)(rows + 2) * ULP_F32 * size);
        }
}

static void check_packed(const struct kernels *kernels)
{
    static const int64_t widths[] = { 1, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65,
                                      80, 127, 128, 129 };
    static const int64_t depths[] = { 1, 3, 8, 16, 17, 64, 255, 256, 257, 520 };

    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (size_t l = 0; l < sizeof depths / sizeof *depths; l++) {
            int64_t n = widths[i], k = depths[l];

            check_packed_whole(kernels, 1 + (int64_t)(i + l) % 14, n, k);
            for (int64_t column = 0; column < n; column += 16)
                for (int64_t row = 0; row < k; row += 1 + k / 3)
                    check_packed_part(kernels, 1 + (column + row) % 8, n, k,
                                      column, row, (column + row) % 2 == 0);
        }
}

static int64_t random_below(int64_t n)
{
    return (int64_t)((random_number() + 2) / 4 * (double)n);
}

/* A product by spans is the whole one, bit for bit, wherever a row needs it;
 * between products of one row and of many, sums may differ. */
static void check_needs(const struct kernels *kernels, int64_t m, int64_t n,
                        int64_t k, bool by_columns)
{
    enum { ORIGIN = 1000 };
    float *a = random_floats(0, m * k), *b = random_floats(1, n * k);
    float *c = random_floats(2, m * n), *want = random_floats(5, m * n);
    int64_t all = by_columns ? k : n;
    struct packed_span needs[20];
    struct packed_product p = {
        .m = m, .a = a, .lda = k, .by_columns = by_columns, .n = n, .k = k,
        .columns = n, .rows = k, .alpha = 1, .c = want, .ldc = n,
    };

    assert_true(m <= 20);
    for (int64_t i = 0; i < m; i++) {
        int64_t from = random_below(all + 1), more = random_below(all + 1);

        needs[i].from = from + ORIGIN;
        needs[i].to = ORIGIN + (from + more < all ? from + more : all);
        for (int64_t l = 0; by_columns && l < k; l++)
            if (l < from || l >= needs[i].to - ORIGIN)
                a[i * k + l] = 0;
    }
    p.packed = packed(kernels, by_columns, n, k, b);
    kernels->gemm_packed_f32(&p);
    p.c = c;
    p.needs = needs;
    p.origin = ORIGIN;
    kernels->gemm_packed_f32(&p);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            if (by_columns || (j >= needs[i].from - ORIGIN &&
                               j < needs[i].to - ORIGIN))
                assert_memory_equal(&c[i * n + j], &want[i * n + j], sizeof *c);
}

static void check_all_needs(const struct kernels *kernels)
{
    static const int64_t sizes[] = { 1, 15, 16, 17, 63, 64, 65, 129, 255, 256,
                                     257, 520 };
    const size_t count = sizeof sizes / sizeof *sizes;

    for (int64_t m = 2; m <= 20; m += 3)
        for (size_t i = 0; i < count; i++)
            for (size_t l = 0; l < count; l++)
                check_needs(kernels, m, sizes[i] % 200, sizes[l],
                            (i + l) % 2 == 0);
}

static void what_a_row_needs_is_all_that_is_multiplied(void **state)
{
    (void)state;
    at_each_level(check_all_needs);
}

static void what_is_packed_is_multiplied_as_it_was(void **state)
{
    (void)state;
    at_each_level(check_packed);
}

/* Number i of packed pairs, or 0 behind an odd row. */
static float number_of_pair(const float *pairs, int64_t i)
{
    uint32_t bits;
    float x;

    memcpy(&bits, pairs + i / 2, sizeof bits);
    bits = i % 2 == 0 ? bits << 16 : bits & 0xFFFF0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void check_rounding(const struct kernels *kernels)
{
    static const float hard[] = { 0x1.01p0f, 0x1.03p0f, 0x1.010002p0f, -0.0f,
                                  FLT_MAX, -FLT_MAX, 0x1.fefffep127f, 1e-40f,
                                  0x1p-149f, -0x1.ffp-127f };
    const int64_t m = 3;

    for (int64_t k = 1; kernels->round_pairs != NULL && k <= 4 * SIZES; k++) {
        float *rows = random_floats(0, m * k);
        float *pairs = random_floats(1, m * ((k + 1) / 2));
        float *want = random_floats(2, m * k);

        for (int64_t i = 0; i < m * k; i += 1 + i % 3)
            rows[i] = hard[(i + k) % 10];
        memcpy(want, rows, (size_t)(m * k) * sizeof *rows);
        tensor_round_bf16(want, m * k);
        kernels->round_pairs(m, k, rows, pairs);
        for (int64_t i = 0; i < m; i++, pairs += (k + 1) / 2) {
            float rest = number_of_pair(pairs, k + k % 2 - 1);

            for (int64_t l = 0; l < k; l++) {
                float got = number_of_pair(pairs, l);

                assert_memory_equal(&got, &want[i * k + l], sizeof got);
            }
            assert_true(k % 2 == 0 || (rest == 0 && !signbit(rest)));
        }
    }
}

static void pairs_are_rounded_as_floats_are(void **state)
{
    (void)state;
    at_each_level(check_rounding);
}

static float *random_pairs(const struct kernels *kernels, int which, int64_t n)
{
    float *numbers = random_floats(7, 2 * n);
    float *pairs = ending_at_guard(which, (size_t)n * sizeof *pairs);

    kernels->round_pairs(1, 2 * n, numbers, pairs);
    return pairs;
}

/* The product of sent pairs by naive loops; of packed pairs, and of some of
 * their columns, the same bits. */
static void check_pairs(const struct kernels *kernels, int64_t m, int64_t n,
                        int64_t k)
{
    float *a = random_pairs(kernels, 0, m * k);
    float *b = random_pairs(kernels, 1, n * k);
    float *c = random_floats(2, m * n), *again = random_floats(4, m * n);
    struct packed_product p = {
        .m = m, .a = a, .lda = k, .n = n, .k = k, .columns = n,
        .rows = k, .alpha = 0.375f, .c = again, .ldc = n,
    };

    kernels->gemm_nt_pairs(m, n, k, 0.375f, a, k, b, k, c, n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0, size = 0;

            for (int64_t l = 0; l < 2 * k; l++) {
                double term = 0.375 *
                              (double)number_of_pair(a, 2 * i * k + l) *
                              (double)number_of_pair(b, 2 * j * k + l);

                sum += term;
                size += fabs(term);
            }
            expect_near("gemm_nt_pairs", i * n + j, m * n,
                        (double)c[i * n + j], sum,
                        (double)(2 * k + 2) * ULP_F32 * size);
        }
    p.packed = packed(kernels, false, n, k, b);
    kernels->gemm_packed_pairs(&p);
    assert_memory_equal(again, c, (size_t)(m * n) * sizeof *c);
    p.column = n / 32 * 16;
    p.columns = n - p.column;
    p.c = ending_at_guard(4, (size_t)(m * p.columns) * sizeof *c);
    p.ldc = p.columns;
    kernels->gemm_packed_pairs(&p);
    for (int64_t i = 0; i < m; i++)
        assert_memory_equal(p.c + i * p.columns, c + i * n + p.column,
                            (size_t)p.columns * sizeof *c);
}

static void check_all_pairs(const struct kernels *kernels)
{
    static const int64_t widths[] = { 1, 2, 15, 16, 17, 31, 33, 48, 63, 64, 65,
                                      127, 128, 129, 200 };
    static const int64_t depths[] = { 1, 2, 3, 15, 16, 17, 33, 64, 255, 256,
                                      257, 520 };

    if (kernels->round_pairs == NULL)
        return;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (size_t l = 0; l < sizeof depths / sizeof *depths; l++) {
            check_pairs(kernels, 1, widths[i], depths[l]);
            check_pairs(kernels, 2 + (int64_t)(i + l) % 13, widths[i],
                        depths[l]);
        }
}

static void pairs_are_multiplied_as_the_numbers_they_hold(void **state)
{
    (void)state;
    at_each_level(check_all_pairs);
}

static void check_small_pairs(const struct kernels *kernels)
{
    const float rows[] = { 0x1p-130f, 1, 0x1p-70f, 1 }, by[] = { 1, 0 };
    const float by_small[] = { 0x1p-70f, 0 };
    float a[2], b, c[2];

    if (kernels->round_pairs == NULL)
        return;
    kernels->round_pairs(2, 2, rows, a);
    kernels->round_pairs(1, 2, by, &b);
    kernels->gemm_nt_pairs(2, 1, 1, 1, a, 1, &b, 1, c, 1);
    assert_true(c[0] == 0 && c[1] == 0x1p-70f);
    kernels->round_pairs(1, 2, by_small, &b);
    kernels->gemm_nt_pairs(2, 1, 1, 1, a, 1, &b, 1, c, 1);
    assert_true(c[0] == 0 && c[1] == 0);
}

static void what_is_denormal_in_pairs_counts_as_nothing(void **state)
{
    (void)state;
    at_each_level(check_small_pairs);
}

enum { FEW_ROWS = 9 }; /* twice as many at once as there are, and one */

static void dot(const struct kernels *kernels, int64_t m, int64_t n, int64_t k)
{
    float *a = random_floats(0, m * k), *rows = random_floats(1, n * k);
    float *out = random_floats(2, m * n), *alone = random_floats(3, n);

    kernels->dot_rows(m, n, k, 0.375f, a, k, rows, k, out, n);
    for (int64_t i = 0; i < m; i++) {
        kernels->dot_rows(1, n, k, 0.375f, a + i * k, 0, rows, k, alone, 0);
        for (int64_t j = 0; j < n; j++) {
            double want = 0;

            for (int64_t l = 0; l < k; l++)
                want += 0.375 * (double)a[i * k + l] * (double)rows[j * k + l];
            expect_near("dot_rows", j, n, (double)out[i * n + j], want,
                        ULP_F32 * 2 * (double)(k + 2));
            expect_near("one row of dot_rows", j, n, (double)alone[j],
                        (double)out[i * n + j], 0);
        }
    }
}

static void check_dot_rows(const struct kernels *kernels)
{
    for (int64_t k = 1; k <= 5 * LARGEST_VECTOR + 1; k++)
        for (int64_t n = 1; n <= LARGEST_VECTOR + 2; n++)
            dot(kernels, 1 + (k + n) % FEW_ROWS, n, k);
    for (int64_t m = 1; m <= FEW_ROWS; m++)
        for (int64_t n = 1; n <= 2 * LARGEST_VECTOR + 1; n++)
            dot(kernels, m, n, 64 + n % 2);
}

static void a_few_rows_are_multiplied_by_many(void **state)
{
    (void)state;
    at_each_level(check_dot_rows);
}

static void sum(const struct kernels *kernels, int64_t m, int64_t n, int64_t k)
{
    float *w = random_floats(0, m * k), *rows = random_floats(1, k * n);
    float *out = random_floats(2, m * n), *before = random_floats(3, m * n);
    float *alone = random_floats(4, n);
    int beta = (int)(n % 2);

    for (int64_t j = 0; j < m * n; j++)
        out[j] = beta == 0 ? NAN : before[j];
    kernels->sum_rows(m, n, k, w, k, rows, n, (float)beta, out, n);
    for (int64_t i = 0; i < m; i++) {
        memcpy(alone, before + i * n, (size_t)n * sizeof *alone);
        kernels->sum_rows(1, n, k, w + i * k, 0, rows, n, (float)beta, alone,
                          0);
        for (int64_t j = 0; j < n; j++) {
            double want = beta == 0 ? 0 : (double)before[i * n + j];

            for (int64_t l = 0; l < k; l++)
                want += (double)w[i * k + l] * (double)rows[l * n + j];
            expect_near("sum_rows", j, n, (double)out[i * n + j], want,
                        (double)(k + 2) * ULP_F32 * 4 * (double)k);
            expect_near("one row of sum_rows", j, n, (double)alone[j],
                        (double)out[i * n + j], 0);
        }
    }
}

static void check_sum_rows(const struct kernels *kernels)
{
    for (int64_t n = 1; n <= 9 * LARGEST_VECTOR + 1; n++)
        for (int64_t k = 1; k <= 9; k += 4)
            sum(kernels, 1 + (n + k) % FEW_ROWS, n, k);
    for (int64_t m = 1; m <= FEW_ROWS; m++)
        for (int64_t k = 31; k <= 97; k += 11) /* around a part, or three */
            sum(kernels, m, 70 + m, k);
}

static void rows_are_summed_by_a_few_rows_of_weights(void **state)
{
    (void)state;
    at_each_level(check_sum_rows);
}

/* Rows of a wider matrix: what stands between the rows is neither read as part
 * of them nor written. */
static void check_leading_dimensions(const struct kernels *kernels)
{
    enum { M = 5, N = 19, K = 13, WIDE = 32 };
    float *a = random_floats(0, M * WIDE), *b = random_floats(1, N * WIDE);
    float *c = random_floats(2, M * WIDE), *packed = random_floats(3, M * N);

    for (int j = K; j < WIDE; j++)
        for (int i = 0; i < N; i++)
            b[i * WIDE + j] = NAN;
    for (int i = 0; i < M * WIDE; i++)
        c[i] = 7;
    kernels->gemm_nt_f32(M, N, K, 1, a, WIDE, b, WIDE, c, WIDE);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < WIDE; j++) {
            double sum = 0;

            for (int l = 0; l < K; l++)
                sum += (double)a[i * WIDE + l] * (double)b[j % N * WIDE + l];
            expect_near("wide c", i, M, (double)c[i * WIDE + j],
                        j < N ? sum : 7, j < N ? 1e-4 : 0);
        }
    /* a lone row's step is nobody's business */
    kernels->gemm_nt_f32(1, 1, K, 1, a, 0, b, 1, packed, 0);
    expect_near("one by one", 0, 1, (double)packed[0], (double)c[0], 1e-5);
}

static void only_the_matrix_is_touched(void **state)
{
    (void)state;
    at_each_level(check_leading_dimensions);
}

static void check_max(const struct kernels *kernels)
{
    for (int64_t n = 0; n <= 3 * SIZES; n++) {
        float *row = random_floats(0, n), want = -INFINITY, got = -INFINITY;

        for (int64_t j = 0; j < n; j++)
            want = fmaxf(want, row[j]);
        assert_true(kernels->max_row(row, n, &got));
        assert_true(got == want);
        got = 3;
        assert_true(kernels->max_row(row, n, &got));
        assert_true(got == 3);
        for (int64_t j = 0; j < n; j++) {
            static const float flaws[] = { INFINITY, -INFINITY, NAN };
            float was = row[j];

            row[j] = flaws[j % 3];
            assert_false(kernels->max_row(row, n, &got));
            row[j] = was;
        }
    }
}

static void check_size(const struct kernels *kernels)
{
    static const float bad[] = { INFINITY, -INFINITY, NAN };

    for (int64_t n = 0; n <= SIZES; n++) {
        float *row = random_floats(0, n), size = 0;

        for (int64_t j = 0; j < n; j++)
            size = fabsf(row[j]) > size ? fabsf(row[j]) : size;
        assert_true(kernels->size_row(row, n) == size);
        for (int64_t j = 0; j < n; j++) {
            float was = row[j];

            row[j] = bad[j % 3];
            assert_true(kernels->size_row(row, n) == INFINITY);
            row[j] = was;
        }
    }
}

static void the_farthest_from_zero_is_found(void **state)
{
    (void)state;
    at_each_level(check_size);
}

static void the_largest_is_found_and_what_is_not_finite_told(void **state)
{
    (void)state;
    at_each_level(check_max);
}

static void check_mask(const struct kernels *kernels)
{
    static const float junk[] = { INFINITY, -INFINITY, NAN, 3e38f };

    for (int64_t n = 0; n <= SIZES; n++) {
        float *row = random_floats(0, n), *bias = random_floats(1, n);
        float *was = random_floats(2, n);
        float max = -INFINITY, bias_max = -INFINITY;
        float want_max = -INFINITY, want_bias = -INFINITY;

        for (int64_t j = 0; j < n; j++) {
            if (j % 3 == 1) {
                bias[j] = -INFINITY;
                row[j] = junk[j / 3 % 4];
            } else {
                want_max = fmaxf(want_max, row[j] + bias[j]);
                want_bias = fmaxf(want_bias, bias[j]);
            }
            was[j] = row[j];
        }
        assert_true(kernels->mask_row(row, bias, n, &max, &bias_max));
        assert_true(max == want_max && bias_max == want_bias);
        for (int64_t j = 0; j < n; j++)
            assert_true(row[j] ==
                        (j % 3 == 1 ? -INFINITY : was[j] + bias[j]));
        for (int64_t j = 0; j < n; j += j % 3 == 0 ? 2 : 1) {
            memcpy(row, was, (size_t)n * sizeof *row);
            row[j] = j % 2 ? NAN : -INFINITY;
            assert_false(kernels->mask_row(row, bias, n, &max, &bias_max));
        }
    }
}

static void check_hide(const struct kernels *kernels)
{
    static const float hidden_values[] = { INFINITY, -INFINITY, NAN, 3e38f };

    for (int64_t n = 0; n <= 2 * SIZES; n++) {
        float *row = random_floats(0, n), *was = random_floats(1, n);
        uint8_t *hidden = ending_at_guard(2, (size_t)n);
        float max = -INFINITY, want = -INFINITY;

        for (int64_t j = 0; j < n; j++) {
            hidden[j] = j % 3 == 1;
            was[j] = row[j] = hidden[j] ? hidden_values[j / 3 % 4] : row[j];
            want = hidden[j] ? want : fmaxf(want, row[j]);
        }
        assert_true(kernels->hide_row(row, hidden, n, &max));
        assert_true(max == want);
        for (int64_t j = 0; j < n; j++)
            assert_true(row[j] == (hidden[j] ? -INFINITY : was[j]));
        for (int64_t j = 0; j < n; j += j % 3 == 0 ? 2 : 1) {
            memcpy(row, was, (size_t)n * sizeof *row);
            row[j] = j % 2 ? NAN : -INFINITY;
            assert_false(kernels->hide_row(row, hidden, n, &max));
        }
    }
}

static void a_flag_hides_whatever_stands_behind_it(void **state)
{
    (void)state;
    at_each_level(check_hide);
}

static void a_mask_hides_whatever_stands_behind_it(void **state)
{
    (void)state;
    at_each_level(check_mask);
}

static void check_alibi(const struct kernels *kernels)
{
    for (int64_t n = 0; n <= SIZES; n++) {
        float *bias = random_floats(0, n), *out = random_floats(1, n);
        int64_t distance = n * 2 / 3 - 3;

        if (n > 2)
            bias[n - 2] = -INFINITY;
        kernels->alibi_row(out, bias, n, 0.3f, distance);
        for (int64_t j = 0; j < n; j++) {
            double size = fabs((double)(distance - j));

            if (bias[j] == -INFINITY)
                assert_true(out[j] == -INFINITY);
            else
                expect_near("alibi_row", j, n, (double)out[j],
                            (double)bias[j] - (double)0.3f * size,
                            ULP_F32 * (2 + size));
        }
        kernels->alibi_row(out, NULL, n, 0.5f, distance);
        for (int64_t j = 0; j < n; j++)
            assert_true(out[j] ==
                        -0.5f * (float)(distance > j ? distance - j
                                                     : j - distance));
        kernels->alibi_row(out, bias, n, 3e38f, -2);
        for (int64_t j = 0; j < n; j++) /* fallen, not forbidden */
            assert_true(out[j] == (bias[j] == -INFINITY ? -INFINITY
                                                        : INFINITY));
    }
}

static void alibi_falls_off_from_the_query_s_place(void **state)
{
    (void)state;
    at_each_level(check_alibi);
}

/* In units of the last place of the float nearest to `want`. */
static double ulps(float got, double want)
{
    double ulp;

    if (want > (double)FLT_MAX)
        return isinf(got) || got == FLT_MAX ? 0 : INFINITY;
    ulp = fabs(want) < (double)FLT_MIN ? 0x1p-149
                                       : ldexp(1, ilogb(want) - 23);
    return fabs((double)got - want) / ulp;
}

enum { EXP_POINTS = 1 << 12 };

static void expect_exp(const struct kernels *kernels, const float *x,
                       float *row, int64_t n)
{
    double sum = 0, got;

    memcpy(row, x, (size_t)n * sizeof *x);
    got = kernels->exp_row(row, n, 0);
    for (int64_t j = 0; j < n; j++) {
        double want = exp((double)x[j]);

        sum += (double)row[j];
        if (!(ulps(row[j], want) <= 2 + fabs((double)x[j]) / 16))
            fail_msg("%s: exp(%a) is %a, not %a: %g ulp", level, (double)x[j],
                     (double)row[j], want, ulps(row[j], want));
    }
    if (sum < (double)FLT_MAX) /* as it is below any maximum */
        expect_near("sum of exp", 0, n, got, sum, 1e-6 * sum);
}

static void check_exp(const struct kernels *kernels)
{
    float *x = random_floats(0, EXP_POINTS), *row = random_floats(1, EXP_POINTS);
    const uint32_t step = 1021; /* 4.2 million points over all patterns */
    uint64_t bits = 0;

    while (bits < (uint64_t)1 << 32) {
        int64_t n = 0;

        for (; n < EXP_POINTS && bits < (uint64_t)1 << 32; bits += step) {
            uint32_t pattern = (uint32_t)bits;

            memcpy(&x[n], &pattern, sizeof *x);
            n += !isnan(x[n]) && !(x[n] > 64);
        }
        expect_exp(kernels, x, row, n);
    }
    for (int64_t n = 0; n < EXP_POINTS; n++) /* where results are denormal */
        x[n] = -87 - 18 * (float)n / EXP_POINTS;
    expect_exp(kernels, x, row, EXP_POINTS);
    for (int64_t n = 0; n < EXP_POINTS; n++) /* and where they are ordinary */
        x[n] = 1 - 20 * (float)n / EXP_POINTS;
    expect_exp(kernels, x, row, EXP_POINTS);
}

static void exp_is_within_two_ulps_from_denormals_to_large_results(void **state)
{
    (void)state;
    at_each_level(check_exp);
}

static void check_exp_ends(const struct kernels *kernels)
{
    for (int64_t n = 0; n <= SIZES; n++) {
        float *row = random_floats(0, n), *was = random_floats(1, n);
        double sum = 0, got;

        for (int64_t j = 0; j < n; j++)
            was[j] = row[j] = j % 4 == 3 ? -INFINITY : row[j];
        got = kernels->exp_row(row, n, 2);
        for (int64_t j = 0; j < n; j++) {
            if (j % 4 == 3)
                assert_true(row[j] == 0 && !signbit(row[j]));
            expect_near("exp", j, n, (double)row[j], exp((double)was[j] - 2),
                        4 * ULP_F32);
            sum += (double)row[j];
        }
        expect_near("sum", 0, n, got, sum, 1e-6);
    }
}

static void exp_of_minus_infinity_is_zero_at_every_place(void **state)
{
    (void)state;
    at_each_level(check_exp_ends);
}

static void check_long_sum(const struct kernels *kernels)
{
    enum { N = 250000 };
    float *row = ending_at_guard(0, N * sizeof *row);
    double sum = 0, got;

    for (int64_t j = 0; j < N; j++)
        row[j] = (float)(j % 7) * -0.1f;
    got = kernels->exp_row(row, N, 0);
    for (int64_t j = 0; j < N; j++)
        sum += (double)row[j];
    expect_near("long sum", 0, N, got, sum, 5e-7 * sum);
}

static void a_long_row_is_summed_as_well_as_a_short_one(void **state)
{
    (void)state;
    at_each_level(check_long_sum);
}

static void check_cap(const struct kernels *kernels)
{
    static const float caps[] = { 0.25f, 1, 30, 50, 1e4f };

    for (int64_t n = 1; n <= 8 * SIZES; n++) {
        float *row = random_floats(0, n), *was = random_floats(1, n);
        float cap = caps[n % 5];

        for (int64_t j = 0; j < n; j++)
            was[j] = row[j] = row[j] * (j % 2 ? 2 * cap : 1e-3f) *
                              (j % 11 == 3 ? 1e30f : 1);
        was[0] = row[0] = -0.0f;
        kernels->cap_row(row, n, cap);
        for (int64_t j = 0; j < n; j++) {
            double want = (double)cap * tanh((double)was[j] / (double)cap);

            expect_near("cap", j, n, (double)row[j], want,
                        4 * ULP_F32 * fabs(want));
            assert_true(!!signbit(row[j]) == !!signbit(was[j]));
        }
        row[n - 1] = INFINITY;
        row[0] = n > 1 ? NAN : row[0];
        kernels->cap_row(row, n, cap);
        assert_true(isnan(row[n - 1]) && isnan(row[0]));
    }
}

static void a_cap_is_a_tanh_and_hides_nothing_that_is_not_finite(void **state)
{
    (void)state;
    at_each_level(check_cap);
}

static void check_drop(const struct kernels *kernels)
{
    static const uint64_t firsts[] = { 0, 1, 2, 3, 4, 77, (1ull << 34) - 40,
                                       (1ull << 34) - 3, (1ull << 63) + 5 };
    const uint64_t seed = 0x0123456789abcdef;

    for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++)
        for (int64_t n = 0; n <= 600; n += n < 150 ? 1 : 29) {
            float *row = random_floats(0, n), *was = random_floats(1, n);
            bool hit[600];

            memcpy(was, row, (size_t)n * sizeof *row);
            philox_hits(seed, firsts[i], n, 0.3, hit);
            kernels->drop_row(row, n, seed, firsts[i], philox_last_hit(0.3));
            for (int64_t j = 0; j < n; j++)
                assert_true(hit[j] ? row[j] == 0 && !signbit(row[j])
                                   : row[j] == was[j]);
        }
}

static void what_the_generator_hits_is_dropped_and_nothing_else(void **state)
{
    (void)state;
    at_each_level(check_drop);
}

static void check_linear(const struct kernels *kernels)
{
    for (int64_t n = 0; n <= 2 * SIZES; n++) {
        float *row = random_floats(0, n), *out = random_floats(1, n);
        float *sum = random_floats(2, n), *was = random_floats(3, n);
        double *total = random_doubles(4, n), *total_was = random_doubles(5, n);

        memcpy(was, sum, (size_t)n * sizeof *was);
        memcpy(total_was, total, (size_t)n * sizeof *total);
        kernels->scale_row(out, row, n, 0.7f);
        kernels->add_row(sum, row, n, 0.7f);
        kernels->add_row_f64(total, row, n, 0.7);

        double dot = 0;

        for (int64_t j = 0; j < n; j++) {
            assert_true(out[j] == row[j] * 0.7f);
            expect_near("add_row", j, n, (double)sum[j],
                        (double)was[j] + (double)row[j] * (double)0.7f,
                        4 * ULP_F32);
            expect_near("add_row_f64", j, n, total[j],
                        total_was[j] + (double)row[j] * 0.7, 4 * ULP_F64);
            dot += (double)row[j] * (double)was[j];
        }
        expect_near("dot_row", 0, n, kernels->dot_row(row, was, n), dot,
                    4 * (double)(n + 1) * ULP_F64);
    }
}

static void rows_are_scaled_and_added_to_the_last_element(void **state)
{
    (void)state;
    at_each_level(check_linear);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(avx2_is_chosen_where_it_is_there),
        cmocka_unit_test(avx512_is_chosen_where_it_is_there),
        cmocka_unit_test(amx_is_chosen_where_it_is_there),
        cmocka_unit_test(a_ceiling_keeps_what_is_above_it_out),
        cmocka_unit_test(pairs_belong_to_avx512_where_the_processor_has_them),
        cmocka_unit_test(a_misspelt_ceiling_is_refused),
        cmocka_unit_test(products_are_right_at_every_size),
        cmocka_unit_test(what_is_packed_already_is_a_copy),
        cmocka_unit_test(what_is_packed_is_multiplied_as_it_was),
        cmocka_unit_test(what_a_row_needs_is_all_that_is_multiplied),
        cmocka_unit_test(pairs_are_rounded_as_floats_are),
        cmocka_unit_test(pairs_are_multiplied_as_the_numbers_they_hold),
        cmocka_unit_test(what_is_denormal_in_pairs_counts_as_nothing),
        cmocka_unit_test(a_few_rows_are_multiplied_by_many),
        cmocka_unit_test(rows_are_summed_by_a_few_rows_of_weights),
        cmocka_unit_test(only_the_matrix_is_touched),
        cmocka_unit_test(the_largest_is_found_and_what_is_not_finite_told),
        cmocka_unit_test(the_farthest_from_zero_is_found),
        cmocka_unit_test(a_flag_hides_whatever_stands_behind_it),
        cmocka_unit_test(a_mask_hides_whatever_stands_behind_it),
        cmocka_unit_test(alibi_falls_off_from_the_query_s_place),
        cmocka_unit_test(exp_is_within_two_ulps_from_denormals_to_large_results),
        cmocka_unit_test(exp_of_minus_infinity_is_zero_at_every_place),
        cmocka_unit_test(a_long_row_is_summed_as_well_as_a_short_one),
        cmocka_unit_test(a_cap_is_a_tanh_and_hides_nothing_that_is_not_finite),
        cmocka_unit_test(what_the_generator_hits_is_dropped_and_nothing_else),
        cmocka_unit_test(rows_are_scaled_and_added_to_the_last_element),
    };

    kernels_single_threaded();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
