#ifndef CORE_ATTENTION_ROW_H
#define CORE_ATTENTION_ROW_H

#include "core/attention.h"

/* One row of attention in double: the contract read aloud.
 *
 * For every row of an F64 request, and for an F32 row where float32 ends. A
 * score is scale times a sum in double, then capped, ALiBi'd and masked;
 * maximum, exp and sum are double; a result is rounded once. A V row of weight
 * 0 is never multiplied. It knows neither tiles nor threads.
 *
 * A row is held in two parts: `seen`, its visible columns lo .. hi - 1, and
 * `appended`, columns S .. T - 1. */
struct attention_row {
    int64_t n, h, i;
    int64_t lo, hi; /* by mask_range() */
};

/* Row (n, h, i) of a tensor of rank 4, its last step 1; of K and V, (n, g, j).
 */
void *attention_row_at(const struct tensor *t, int64_t n, int64_t h,
                       int64_t i);

/* Of an F64 row, scale * q . k with keys from .. from + count - 1: what is not
 * finite because the product overflowed before or after it was scaled becomes
 * what it should be, if that fits double. */
void attention_row_mend(const struct attention *a,
                        const struct attention_row *row, int64_t from,
                        int64_t count, double *scores);

/* From scale * q . k to what enters the softmax, -INFINITY where a mask
 * forbids. False when that is everywhere and no key is appended. */
bool attention_row_scores(const struct attention *a,
                          const struct attention_row *row, double *seen,
                          double *appended);

/* From scores, some of them visible, to weights after dropout; returns the
 * denominator's logarithm. */
double attention_row_weights(const struct attention *a,
                             const struct attention_row *row, double *seen,
                             double *appended);

/* A whole F32 row: stores its output, scores and lse where asked, and leaves
 * its weights, rounded, in `seen` and `appended`. `work` is room for
 * hi - lo + T - S doubles. False when no key is visible: nothing is then
 * stored. */
bool attention_row_run(const struct attention *a,
                       const struct kernels *kernels,
                       const struct attention_row *row, double *work,
                       float *seen, float *appended);

/* The logit of head h that joins the denominator; -INFINITY for none. */
double attention_row_sink(const struct attention *a, int64_t h);

/* What ALiBi subtracts for each key of distance; 0 for none. */
double attention_row_slope(const struct attention *a, int64_t h);

#endif
