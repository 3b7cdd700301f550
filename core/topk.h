#ifndef CORE_TOPK_H
#define CORE_TOPK_H

#include "core/tensor.h"

/* The k largest of a row, largest first, equal ones by index, without scratch
 * and without sorting the rest: a heap of k in the place of the answer. */

/* row: `count` numbers, F32 or F64, none of them NaN; 1 <= k <= count.
 * Writes k indices, k values and in *kept their sum, added in double, rounded to
 * `dtype`, which values and kept are of. */
void topk_row(const void *row, enum dtype dtype, int64_t count, int64_t k,
              int64_t *indices, void *values, void *kept);

#endif
