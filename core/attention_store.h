#ifndef CORE_ATTENTION_STORE_H
#define CORE_ATTENTION_STORE_H

#include "core/attention_row.h"

struct kernels;

/* Where a row's results go: from the parts of a row, in the request's dtype,
 * to the whole rows of T columns that were asked for. What was not asked for
 * is not stored; the caller need not look. */

/* Columns outside the range become -INFINITY. */
void attention_store_scores(const struct attention *a,
                            const struct attention_row *row, const void *seen,
                            const void *appended);

/* Weights times `factor` (F64: 1), 0 outside the range; or added to the mean
 * over heads, which head 0 begins and head H - 1 divides. */
void attention_store_weights(const struct attention *a,
                             const struct kernels *kernels,
                             const struct attention_row *row,
                             const void *seen, const void *appended,
                             float factor);

void attention_store_lse(const struct attention *a,
                         const struct attention_row *row, double lse);

#endif
