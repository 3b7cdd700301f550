#include "core/kernels/kernels.h"
#include "core/philox.h"

#include <assert.h>
#include <cblas.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The reference: products by cblas, rows by vectors of four, which any
 * processor has or the compiler takes apart. */

enum { LANES = 4 };
#define FUSES 0
#define SCALES_AT_ONCE 0
#define ISA
typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef uint32_t lanes_word __attribute__((vector_size(4 * LANES)));

typedef int32_t lanes_int __attribute__((vector_size(4 * LANES)));

static inline lanes select_above(lanes a, lanes b, lanes x, lanes y)
{
    lanes_int above = a > b;

    return (lanes)((above & (lanes_int)x) | (~above & (lanes_int)y));
}

static inline lanes larger(lanes a, lanes b)
{
    return select_above(a, b, a, b);
}

static inline lanes smaller(lanes a, lanes b)
{
    return select_above(b, a, a, b);
}

static inline float lanes_largest(lanes x)
{
    float a = x[0] > x[1] ? x[0] : x[1], b = x[2] > x[3] ? x[2] : x[3];

    return a > b ? a : b;
}

static inline float lanes_total(lanes x)
{
    return (x[0] + x[2]) + (x[1] + x[3]);
}

static inline lanes totals(const lanes x[LANES])
{
    lanes a = __builtin_shufflevector(x[0], x[1], 0, 1, 4, 5) +
              __builtin_shufflevector(x[0], x[1], 2, 3, 6, 7);
    lanes b = __builtin_shufflevector(x[2], x[3], 0, 1, 4, 5) +
              __builtin_shufflevector(x[2], x[3], 2, 3, 6, 7);

    return __builtin_shufflevector(a, b, 0, 2, 4, 6) +
           __builtin_shufflevector(a, b, 1, 3, 5, 7);
}

static inline lanes load_part(const float *p, int64_t n, float rest)
{
    lanes x = { rest, rest, rest, rest };

    for (int64_t i = 0; i < n; i++)
        x[i] = p[i];
    return x;
}

static inline void store_part(float *p, int64_t n, lanes x)
{
    for (int64_t i = 0; i < n; i++)
        p[i] = x[i];
}

static inline lanes load_flags(const uint8_t *p)
{
    return (lanes){ p[0], p[1], p[2], p[3] };
}

#include "core/kernels/rows.h"

/* BLAS counts in int. It also insists that a lone row has a sensible leading
 * dimension, which a view of one row need not have. */
static int blas_int(int64_t x)
{
    assert(x >= 0 && x <= INT_MAX);
    return (int)x;
}

static int leading(int64_t rows, int64_t ld, int64_t columns)
{
    return blas_int(rows == 1 ? columns : ld);
}

/* One row is a matrix times a vector, and bound by memory: gemm would write
 * the matrix once more into its own order before reading it. (The other
 * product by a row is sum_rows: gemv's bits depend on the leading dimension.)
 */
static void gemm_nt_f32(int64_t m, int64_t n, int64_t k, float alpha,
                        const float *a, int64_t lda, const float *b,
                        int64_t ldb, float *c, int64_t ldc)
{
    if (m == 1)
        cblas_sgemv(CblasRowMajor, CblasNoTrans, blas_int(n), blas_int(k),
                    alpha, b, leading(n, ldb, k), a, 1, 0, c, 1);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, blas_int(m),
                    blas_int(n), blas_int(k), alpha, a, blas_int(lda), b,
                    leading(n, ldb, k), 0, c, blas_int(ldc));
}

static void gemm_nt_f64(int64_t m, int64_t n, int64_t k, double alpha,
                        const double *a, int64_t lda, const double *b,
                        int64_t ldb, double *c, int64_t ldc)
{
    if (m == 1)
        cblas_dgemv(CblasRowMajor, CblasNoTrans, blas_int(n), blas_int(k),
                    alpha, b, leading(n, ldb, k), a, 1, 0, c, 1);
    else
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, blas_int(m),
                    blas_int(n), blas_int(k), alpha, a, blas_int(lda), b,
                    leading(n, ldb, k), 0, c, blas_int(ldc));
}

static void gemm_nn_f32(int64_t m, int64_t n, int64_t k, const float *a,
                        int64_t lda, const float *b, int64_t ldb, float beta,
                        float *c, int64_t ldc)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, blas_int(m),
                blas_int(n), blas_int(k), 1, a, leading(m, lda, k), b,
                leading(k, ldb, n), beta, c, leading(m, ldc, n));
}

static void gemm_nn_f64(int64_t m, int64_t n, int64_t k, const double *a,
                        int64_t lda, const double *b, int64_t ldb, double beta,
                        double *c, int64_t ldc)
{
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, blas_int(m),
                blas_int(n), blas_int(k), 1, a, leading(m, lda, k), b,
                leading(k, ldb, n), beta, c, leading(m, ldc, n));
}

/* BLAS has an order of its own and tells nobody: what is packed here is only
 * copied, rows as b[n,k] and columns as b[k,n]. */
static int64_t packed_f32(int64_t n, int64_t k)
{
    return n * k;
}

static void copy_rows(int64_t rows, int64_t columns, const float *from,
                      int64_t from_ld, float *to, int64_t to_ld)
{
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * to_ld, from + i * from_ld,
               (size_t)columns * sizeof *to);
}

static void pack_rows_f32(int64_t n, int64_t k, const float *b, int64_t ldb,
                          float *packed)
{
    copy_rows(n, k, b, ldb, packed, k);
}

static void pack_columns_f32(int64_t n, int64_t k, int64_t row, int64_t rows,
                             const float *b, int64_t ldb, float *packed)
{
    (void)k;
    copy_rows(rows, n, b, ldb, packed + row * n, n);
}

static bool are_packed(int64_t n, int64_t ldb)
{
    return ldb == n;
}

static void unpack_rows_f32(int64_t n, int64_t k, const float *packed, float *b,
                            int64_t ldb)
{
    copy_rows(n, k, packed, k, b, ldb);
}

static void gemm_packed_f32(const struct packed_product *p)
{
    if (p->by_columns)
        gemm_nn_f32(p->m, p->columns, p->rows, p->a, p->lda,
                    p->packed + p->row * p->n + p->column, p->n, p->add, p->c,
                    p->ldc);
    else
        gemm_nt_f32(p->m, p->columns, p->rows, p->alpha, p->a, p->lda,
                    p->packed + p->column * p->k + p->row, p->k, p->c, p->ldc);
    for (int64_t i = 0; p->bias != NULL && i < p->m; i++)
        for (int64_t j = 0; j < p->columns; j++)
            p->c[i * p->ldc + j] += p->bias[p->column + j];
}

static void drop_row(float *row, int64_t n, uint64_t seed, uint64_t first,
                     uint32_t last)
{
    enum { PART = 256 };
    uint32_t words[PART];

    for (int64_t part; n > 0; n -= part, row += part, first += PART) {
        part = n < PART ? n : PART;
        philox_words(seed, first, part, words);
        for (int64_t j = 0; j < part; j++)
            row[j] = words[j] <= last ? 0 : row[j];
    }
}

void kernels_add_portable(struct kernels *set)
{
    set->gemm_nt_f32 = gemm_nt_f32;
    set->gemm_nt_f64 = gemm_nt_f64;
    set->gemm_nn_f32 = gemm_nn_f32;
    set->gemm_nn_f64 = gemm_nn_f64;
    set->packed_f32 = packed_f32;
    set->pack_rows_f32 = pack_rows_f32;
    set->pack_columns_f32 = pack_columns_f32;
    set->are_packed = are_packed;
    set->unpack_rows_f32 = unpack_rows_f32;
    set->gemm_packed_f32 = gemm_packed_f32;
    set->drop_row = drop_row;
    add_rows(set);
}

void kernels_single_threaded(void)
{
    openblas_set_num_threads(1);
}

/* Large enough that BLAS does not take a way without buffers. */
enum { WARM = 512 };

void kernels_warm(void)
{
    double *a = calloc(3 * WARM * WARM, sizeof *a);

    if (a == NULL)
        return;

    double *c = a + 2 * WARM * WARM;

    gemm_nt_f64(WARM, WARM, WARM, 1, a, WARM, a + WARM * WARM, WARM, c, WARM);
    gemm_nt_f32(WARM, WARM, WARM, 1, (float *)a, WARM,
                (float *)a + WARM * WARM, WARM, (float *)c, WARM);
    free(a);
}
