#ifndef CORE_KERNELS_KERNELS_H
#define CORE_KERNELS_KERNELS_H

#include "core/cpu.h"

#include <stdbool.h>
#include <stdint.h>

/* The inner loops, chosen once for the machine we run on.
 *
 * A set starts as a copy of the portable one and overrides what it does
 * better, so a missing fast version is slow, never absent. Matrices are
 * row-major; ld* is elements from one row to the next, and below 2^31 as every
 * dimension is (mha_check() sees to it). Pointers need no alignment; inputs and
 * outputs do not overlap. No kernel allocates from an arena, waits, or fails. The
 * same call gives the same bits, on any thread, whatever other rows or columns
 * hold. */

/* Sums of products are made in parts of so many terms. With 128 or 512 attention
 * of 12 x 512 x 512 x 64 is faster by 1 % at most. */
enum { KERNELS_DEPTH = 256 };

/* From .. to - 1. */
struct packed_span {
    int64_t from, to;
};

/* c[m, columns] = alpha * a[m, rows] . b + bias, where b is a part of a matrix
 * of n columns and k rows that a pack function left. */
struct packed_product {
    int64_t m;
    const float *a;
    int64_t lda;
    const float *packed;
    bool by_columns;         /* by pack_columns_f32(); alpha is then 1 */
    int64_t n, k;            /* as it was packed */
    int64_t column, columns; /* of it; the first is a multiple of 16 */
    int64_t row, rows;
    float alpha;
    bool add;                /* c += ...; by columns only */
    const float *bias;       /* n of them; NULL: zeros */
    float *c;
    int64_t ldc;
    /* For each row of a the columns of b that it needs, or by columns the rows;
     * NULL: all, and else no bias. They are numbered from `origin`, where b as it
     * was packed begins. Elsewhere c may be written or not; by columns, a is 0
     * there and may stay unread. */
    const struct packed_span *needs;
    int64_t origin;
};

struct kernels {
    const char *name; /* "portable", "avx2", "avx512", "amx" */

    /* c[m,n] = alpha * a[m,k] . b[n,k]^T : projections, and q . k^T. The sum
     * is taken before alpha. */
    void (*gemm_nt_f32)(int64_t m, int64_t n, int64_t k, float alpha,
                        const float *a, int64_t lda, const float *b,
                        int64_t ldb, float *c, int64_t ldc);
    void (*gemm_nt_f64)(int64_t m, int64_t n, int64_t k, double alpha,
                        const double *a, int64_t lda, const double *b,
                        int64_t ldb, double *c, int64_t ldc);

    /* c[m,n] = beta * c + a[m,k] . b[k,n] : weights . v. beta is 1, or 0 and
     * then c is not read. Its bits do not depend on ldb. */
    void (*gemm_nn_f32)(int64_t m, int64_t n, int64_t k, const float *a,
                        int64_t lda, const float *b, int64_t ldb, float beta,
                        float *c, int64_t ldc);
    void (*gemm_nn_f64)(int64_t m, int64_t n, int64_t k, const double *a,
                        int64_t lda, const double *b, int64_t ldb, double beta,
                        double *c, int64_t ldc);

    /* The floats that a packed matrix of n columns and k rows takes: k for each
     * column, of which there may be more, up to a multiple of 16. Columns that
     * begin at a multiple of 64 may be packed by themselves, to their place. */
    int64_t (*packed_f32)(int64_t n, int64_t k);

    /* Packs b[n,k], whose rows become columns; and back. */
    void (*pack_rows_f32)(int64_t n, int64_t k, const float *b, int64_t ldb,
                          float *packed);
    /* Packs rows row .. row + rows - 1 of a matrix of k of them, b[rows,n]. */
    void (*pack_columns_f32)(int64_t n, int64_t k, int64_t row, int64_t rows,
                             const float *b, int64_t ldb, float *packed);
    /* Whether pack_columns_f32() of n columns, whose rows are ldb apart, would
     * but copy them: then they may be multiplied where they are. */
    bool (*are_packed)(int64_t n, int64_t ldb);
    void (*unpack_rows_f32)(int64_t n, int64_t k, const float *packed,
                            float *b, int64_t ldb);

    /* Of all of b, and without a bias, the bits that gemm_nt_f32 gives. Of a
     * part of its rows, a sum begins at every multiple of KERNELS_DEPTH. */
    void (*gemm_packed_f32)(const struct packed_product *product);

    /* Products of bfloat16, two at once. NULL where the processor has none:
     * numbers that were rounded are then floats like others. A pair fills the
     * room of a float, the first of two numbers in its lower half; it is moved,
     * packed and cut as a float is, and read by products alone.
     *
     * m packed rows of k numbers, rounded as tensor_round_bf16() does, become
     * rows of (k + 1) / 2 pairs; where k is odd the last number is 0. */
    void (*round_pairs)(int64_t m, int64_t k, const float *rows, float *pairs);
    /* gemm_nt_f32 of k pairs in each row. What is denormal, a sum on the way
     * included, counts as 0. */
    void (*gemm_nt_pairs)(int64_t m, int64_t n, int64_t k, float alpha,
                          const float *a, int64_t lda, const float *b,
                          int64_t ldb, float *c, int64_t ldc);
    /* The same, to the bit, of b as pack_rows_f32() left it. lda, k and rows
     * count pairs; all of its rows, for whole rows of a. */
    void (*gemm_packed_pairs)(const struct packed_product *product);

    /* Products of floats out of products of bfloat16, where that is faster and
     * no less exact; NULL elsewhere. A float is the sum of three bfloat16, each
     * the nearest to what those before it leave.
     *
     * m packed rows of k floats become rows of kernels_pieces(k) pairs: those of
     * the first bfloat16 of each, of the second, of the third. A row is marked
     * that holds what this is not exact for. */
    void (*split_rows)(int64_t m, int64_t k, const float *rows, float *pieces);
    /* gemm_packed_f32, its bits apart, of all rows of b, for whole rows of a.
     * `a` is the product's a split, its rows packed; `b` what pack_rows_f32()
     * left of the split rows that became b's columns. For what is marked the
     * floats themselves are multiplied. */
    void (*gemm_packed_pieces)(const struct packed_product *product,
                               const float *a, const float *b);

    /* out[m,n] = alpha * a[m,k] . rows[n,k]^T : the first product for a few
     * rows, where rows[n,k] is read once and in order, and not packed. The bits
     * of a row of `out` do not depend on m. */
    void (*dot_rows)(int64_t m, int64_t n, int64_t k, float alpha,
                     const float *a, int64_t lda, const float *rows,
                     int64_t ld, float *out, int64_t ldo);

    /* sum[m,n] = beta * sum + weights[m,k] . rows[k,n] : the second, likewise.
     * beta is 1, or 0 and then sum is not read. Its bits do not depend on ld
     * either. */
    void (*sum_rows)(int64_t m, int64_t n, int64_t k, const float *weights,
                     int64_t ldw, const float *rows, int64_t ld, float beta,
                     float *sum, int64_t lds);

    /* Raises *max to the largest of row[0..n). False when one of them is not
     * finite; *max is then without meaning. */
    bool (*max_row)(const float *row, int64_t n, float *max);

    /* The largest |x| of row[0..n); INFINITY when one is not finite. */
    float (*size_row)(const float *row, int64_t n);

    /* row += bias; where bias is -INFINITY the row becomes -INFINITY whatever
     * it held. Raises *max to the largest result and *bias_max to the largest
     * bias. False when a result is not finite where the bias is no -INFINITY;
     * both are then without meaning. */
    bool (*mask_row)(float *row, const float *bias, int64_t n, float *max,
                     float *bias_max);

    /* The same for a bias of 0 or, where hidden[j] is 1, of -INFINITY. */
    bool (*hide_row)(float *row, const uint8_t *hidden, int64_t n, float *max);

    /* out[j] = bias[j] - slope * |distance - j|; where that overflows below
     * float32 though the bias is no -INFINITY, +INFINITY, which mask_row
     * reports. bias may be NULL: zeros. */
    void (*alibi_row)(float *out, const float *bias, int64_t n, float slope,
                      int64_t distance);

    /* row = cap * tanh(row / cap); what is not finite becomes NaN. */
    void (*cap_row)(float *row, int64_t n, float cap);

    /* row = exp(row - max), within 2 ulp and one more for each 16 that it is
     * below max, to 0 for -INFINITY; returns the sum. No element is NaN, nor
     * more than 64 above max. */
    double (*exp_row)(float *row, int64_t n, float max);

    /* row[i] = 0 where word first + i of Philox's sequence of `seed`
     * (core/philox.h) is `last` or below. */
    void (*drop_row)(float *row, int64_t n, uint64_t seed, uint64_t first,
                     uint32_t last);

    /* out = factor * row;  sum += factor * row. */
    void (*scale_row)(float *out, const float *row, int64_t n, float factor);
    void (*add_row)(float *sum, const float *row, int64_t n, float factor);

    /* For rows computed in double: a . b, and sum += weight * row. */
    double (*dot_row)(const float *a, const float *b, int64_t n);
    void (*add_row_f64)(double *sum, const float *row, int64_t n,
                        double weight);
};

/* The best set for `features` (cpu_features()) whose name is not above
 * `ceiling`: "portable", "avx2", "avx512" or "amx"; NULL for no ceiling. False
 * only when `ceiling` is none of these. */
bool kernels_select(uint32_t features, const char *ceiling,
                    struct kernels *out);

/* Tells BLAS that our threads are all there are. Once, before any other call
 * and before threads start. */
void kernels_single_threaded(void);

/* Makes BLAS take its buffers for the calling thread: one product of each
 * type, about 20 ms. Every worker calls it at the same time as the others, for
 * a buffer not there when it is first needed would be waited for for ever. */
void kernels_warm(void);

/* The pairs of a row of k floats that was split. */
static inline int64_t kernels_pieces(int64_t k)
{
    return 3 * ((k + 1) / 2);
}

/* In rising order, each in the file of that name; ..._bf16 in avx512.c. */
void kernels_add_portable(struct kernels *set);
void kernels_add_avx2(struct kernels *set);
void kernels_add_avx512(struct kernels *set);
void kernels_add_avx512_bf16(struct kernels *set);
void kernels_add_amx(struct kernels *set);

#endif
