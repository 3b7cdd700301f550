#include "core/kernels/kernels.h"
#include "tests/kernels/guarded.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Products of floats out of products of bfloat16, where the processor has
 * tiles: exact in their domain, at least as exact as sgemm all in all, and the
 * level below's wherever a number is outside. */

static struct kernels kernels, below, blas;

static int select_levels(void **state)
{
    (void)state;
    kernels_single_threaded();
    return kernels_select(cpu_features(), NULL, &kernels) &&
                   kernels_select(cpu_features(), "avx512", &below) &&
                   kernels_select(cpu_features(), "portable", &blas)
               ? 0
               : -1;
}

static void skip_without_tiles(void)
{
    if (kernels.split_rows == NULL)
        skip();
    random_state = 1;
}

static void tiles_are_used_where_the_processor_has_them(void **state)
{
    (void)state;
    assert_int_equal(kernels.split_rows != NULL,
                     (cpu_features() & CPU_AMX) != 0);
    assert_string_equal(kernels.split_rows != NULL ? kernels.name : "amx", "amx");
    assert_null(below.split_rows);
}

/* Number l of piece p of a row of k. */
static double piece_of(const float *row, int64_t k, int p, int64_t l)
{
    uint32_t bits;
    float x;

    memcpy(&bits, row + p * ((k + 1) / 2) + l / 2, sizeof bits);
    bits = l % 2 == 0 ? bits << 16 : bits & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

static bool is_marked(const float *row)
{
    return isnan(piece_of(row, 1, 0, 0));
}

static void three_pieces_are_the_float(void **state)
{
    static const float hard[] = { 0, -0.0f, 0x1p-51f, -0x1.fffffep60f, 1,
                                  0x1.fffffep-51f, 0x1.010101p0f, -0x1.feff01p7f,
                                  0x1.008080p3f, 0x1.7f7f7ep-40f };
    const int64_t m = 3;

    (void)state;
    skip_without_tiles();
    for (int64_t k = 1; k <= 70; k++) {
        int64_t width = kernels_pieces(k);
        float *rows = random_floats(0, m * k);
        float *pieces = random_floats(1, m * width);

        for (int64_t i = 0; i < m * k; i += 1 + i % 3)
            rows[i] = hard[(i + k) % 10];
        kernels.split_rows(m, k, rows, pieces);
        for (int64_t i = 0; i < m * k; i++) {
            const float *row = pieces + i / k * width;
            double sum = 0;

            for (int p = 0; p < 3; p++)
                sum += piece_of(row, k, p, i % k);
            assert_true(sum == (double)rows[i]);
        }
        for (int p = 0; p < 3; p++) /* what makes an odd row even is 0 */
            assert_true(k % 2 == 0 || piece_of(pieces, k, p, k) == 0);
    }
}

static void a_row_is_marked_for_one_number_outside(void **state)
{
    static const float outside[] = { 0x1.fffffep-52f, -0x1p61f, 0x1p-149f,
                                     FLT_MAX, INFINITY, -INFINITY, NAN };
    enum { K = 67 };

    (void)state;
    skip_without_tiles();
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        for (int64_t l = 0; l < K; l++) {
            float *rows = random_floats(0, 3 * K);
            float *pieces = random_floats(1, 3 * kernels_pieces(K));

            rows[K + l] = outside[i];
            kernels.split_rows(3, K, rows, pieces);
            assert_false(is_marked(pieces));
            assert_true(is_marked(pieces + kernels_pieces(K)));
            assert_false(is_marked(pieces + 2 * kernels_pieces(K)));
        }
}

/* c = a . b^T of floats in buffers 0 and 1, and what the product needs. */
struct task {
    struct packed_product product;
    const float *a, *b; /* split */
    const float *rows;  /* b, unpacked */
};

static struct task task_of(int64_t m, int64_t n, int64_t k, float *a, float *b)
{
    int64_t width = kernels_pieces(k);
    float *split = ending_at_guard(2, (size_t)(n * width) * sizeof *split);
    float *b_pieces = ending_at_guard(
        3, (size_t)kernels.packed_f32(n, width) * sizeof *b_pieces);
    float *packed = ending_at_guard(
        4, (size_t)kernels.packed_f32(n, k) * sizeof *packed);

    kernels.split_rows(n, k, b, split);
    kernels.pack_rows_f32(n, width, split, width, b_pieces);
    kernels.pack_rows_f32(n, k, b, k, packed);
    split = ending_at_guard(2, (size_t)(m * width) * sizeof *split);
    kernels.split_rows(m, k, a, split);
    return (struct task){
        .product = { .m = m, .a = a, .lda = k, .packed = packed, .n = n, .k = k,
                     .columns = n, .rows = k, .alpha = 1,
                     .c = random_floats(5, m * n), .ldc = n },
        .a = split, .b = b_pieces, .rows = b,
    };
}

static void run(const struct task *task)
{
    kernels.gemm_packed_pieces(&task->product, task->a, task->b);
}

static void expect_sums(const struct task *task, const float *bias)
{
    const struct packed_product *p = &task->product;

    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = bias == NULL ? 0 : (double)bias[j];
            double size = fabs(sum), got = (double)p->c[i * p->ldc + j];

            for (int64_t l = 0; l < p->k; l++) {
                double term = (double)p->alpha * (double)p->a[i * p->k + l] *
                              (double)task->rows[j * p->k + l];

                sum += term;
                size += fabs(term);
            }
            if (!(fabs(got - sum) <= 0x1p-22 * size))
                fail_msg("%ld x %ld x %ld: [%ld, %ld] is %.9g, not %.9g",
                         (long)p->m, (long)p->n, (long)p->k, (long)i, (long)j,
                         got, sum);
        }
}

/* Columns n/32*16 and on, and the last row alone, come out to the bit as they
 * do among the others. */
static void expect_parts(const struct task *task)
{
    const struct packed_product *p = &task->product;
    int64_t from = p->n / 32 * 16, n = p->n - from, last = p->m - 1;
    struct task part = *task;

    part.product.column = from;
    part.product.columns = part.product.ldc = n;
    part.product.c = ending_at_guard(6, (size_t)(p->m * n) * sizeof(float));
    run(&part);
    for (int64_t i = 0; i < p->m; i++)
        assert_memory_equal(part.product.c + i * n, p->c + i * p->n + from,
                            (size_t)n * sizeof(float));
    part.product.m = 1;
    part.product.a += last * p->k;
    part.a += last * kernels_pieces(p->k);
    run(&part);
    assert_memory_equal(part.product.c, p->c + last * p->n + from,
                        (size_t)n * sizeof(float));
}

static void check_product(int64_t m, int64_t n, int64_t k)
{
    struct task task = task_of(m, n, k, random_floats(0, m * k),
                               random_floats(1, n * k));
    float *bias;

    run(&task);
    expect_sums(&task, NULL);
    expect_parts(&task);
    bias = random_floats(6, n);
    task.product.bias = bias;
    task.product.alpha = 0.375f;
    run(&task);
    expect_sums(&task, bias);
}

static void products_are_right_at_every_size(void **state)
{
    static const int64_t columns[] = { 1, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65,
                                       96, 127, 130 };
    static const int64_t depths[] = { 1, 2, 3, 31, 32, 33, 64, 95, 130 };

    (void)state;
    skip_without_tiles();
    for (int64_t m = 1; m <= 66; m++)
        check_product(m, columns[m % 14], depths[m % 9]);
    for (int i = 0; i < 14; i++)
        for (int l = 0; l < 9; l++)
            check_product(1 + (i + 5 * l) % 35, columns[i], depths[l]);
    check_product(5, 40, 1023);
    check_product(33, 20, 1025);
    check_product(2, 70, 2100);
}

/* One number outside: its row of a, or its column's panel, is the level below's
 * to the bit, and everything else what it is without. */
static void what_is_marked_is_computed_from_the_floats(void **state)
{
    enum { M = 37, N = 150, K = 40 };
    static const float outside[] = { 0x1p-140f, FLT_MAX / 4, 0x1p-60f };

    (void)state;
    skip_without_tiles();
    for (int i = 0; i < 3; i++) {
        float *a = random_floats(0, M * K), *b = random_floats(1, N * K);
        float inside[M * N], plain[M * N];
        struct task task = task_of(M, N, K, a, b);

        run(&task);
        memcpy(inside, task.product.c, sizeof inside);
        a[5 * K + 7] = a[6 * K] = a[36 * K + 39] = outside[i];
        b[70 * K + 3] = outside[i];
        task = task_of(M, N, K, a, b);
        run(&task);

        float *c = task.product.c;

        task.product.c = plain;
        below.gemm_packed_f32(&task.product);
        for (int r = 0; r < M; r++)
            for (int j = 0; j < N; j++) {
                bool marked = r == 5 || r == 6 || r == 36 || j / 64 == 1;

                assert_memory_equal(&c[r * N + j],
                                    marked ? &plain[r * N + j]
                                           : &inside[r * N + j], sizeof *c);
            }
    }
}

/* ---- how exact ---- */

enum { NORMAL, LOGNORMAL, CANCELLING, KINDS };

static void shape(float *x, int64_t n, int kind, bool second)
{
    for (int64_t i = 0; i < n; i++) {
        if (kind == LOGNORMAL)
            x[i] = copysignf(expf(4 * x[i]), x[i]);
        else if (kind == CANCELLING && i % 2 == 1)
            x[i] = second ? -x[i - 1] * (1 + 1e-4f * x[i]) : x[i - 1];
    }
}

struct errors {
    double norm, largest;
};

static struct errors errors_of(const float *c, const double *want, int64_t n)
{
    double error = 0, size = 0, largest = 0, top = 0;

    for (int64_t i = 0; i < n; i++) {
        double e = fabs((double)c[i] - want[i]);

        error += e * e;
        size += want[i] * want[i];
        largest = fmax(largest, e);
        top = fmax(top, fabs(want[i]));
    }
    return (struct errors){ sqrt(error / size), largest / top };
}

static void pieces_are_at_least_as_exact_as_sgemm(void **state)
{
    enum { M = 24, N = 40 };
    static const int64_t depths[] = { 64, 768, 1024, 3072 };

    (void)state;
    skip_without_tiles();
    for (int kind = 0; kind < KINDS; kind++)
        for (int d = 0; d < 4; d++) {
            int64_t k = depths[d];
            float *a = random_floats(0, M * k), *b = random_floats(1, N * k);
            double want[M * N] = { 0 };
            float sgemm[M * N];

            shape(a, M * k, kind, false);
            shape(b, N * k, kind, true);

            struct task task = task_of(M, N, k, a, b);

            run(&task);
            blas.gemm_nt_f32(M, N, k, 1, a, k, b, k, sgemm, N);
            for (int64_t i = 0; i < M * N; i++)
                for (int64_t l = 0; l < k; l++)
                    want[i] += (double)a[i / N * k + l] *
                               (double)b[i % N * k + l];

            struct errors own = errors_of(task.product.c, want, M * N);
            struct errors its = errors_of(sgemm, want, M * N);

            if (own.norm > its.norm || own.largest > its.largest)
                fail_msg("kind %d, k %ld: errors of %.2g and %.2g, sgemm's are "
                         "%.2g and %.2g", kind, (long)k, own.norm, own.largest,
                         its.norm, its.largest);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_are_used_where_the_processor_has_them),
        cmocka_unit_test(three_pieces_are_the_float),
        cmocka_unit_test(a_row_is_marked_for_one_number_outside),
        cmocka_unit_test(products_are_right_at_every_size),
        cmocka_unit_test(what_is_marked_is_computed_from_the_floats),
        cmocka_unit_test(pieces_are_at_least_as_exact_as_sgemm),
    };

    return cmocka_run_group_tests(tests, select_levels, NULL);
}
