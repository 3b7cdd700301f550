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

/* Heads in each of the parts that a mean is made in, but for the last: whole
 * groups, or an even part of one. */
int64_t attention_store_part_heads(const struct attention *a);

/* Weights times `factor` (F64: 1), 0 outside the range; or added to the sum of
 * a part of the heads, which its first head begins. Where there is one part,
 * head H - 1 divides. */
void attention_store_weights(const struct attention *a,
                             const struct kernels *kernels,
                             const struct attention_row *row,
                             const void *seen, const void *appended,
                             float factor);

/* The mean of row n * L + i, from the sums of several parts. */
void attention_store_merge(const struct attention *a,
                           const struct kernels *kernels, int64_t row);

void attention_store_lse(const struct attention *a,
                         const struct attention_row *row, double lse);

#endif
