#ifndef CORE_COMPARE_H
#define CORE_COMPARE_H

#include "core/tensor.h"

#include <stdbool.h>

/* How far a result is from what its client expected. It judges nothing: what
 * is near enough is the client's to say. */
struct comparison {
    bool present;
    double max_abs, max_rel, rms; /* max_rel over expected != 0 */
    int rank;
    int64_t index[TENSOR_MAX_RANK]; /* of the largest absolute difference,
                                       the first in row-major order */
    double got, expected;
};

/* Both packed, of one shape, F32 or F64, finite. False when a difference or a
 * ratio is beyond double. */
bool compare_tensors(const struct tensor *got, const struct tensor *expected,
                     struct comparison *comparison);

#endif
