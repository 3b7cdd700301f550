#ifndef CORE_FINITE_H
#define CORE_FINITE_H

#include "core/tensor.h"

/* The last look at a result: an answer holds no infinity and no NaN. */

/* False (ERR_NOT_FINITE, where "") with the first element of the packed F32 or
 * F64 tensor that is not finite; with `minus_infinity` that one may be.
 * A tensor of rank 0 is fine. */
bool finite_check(const struct tensor *t, const char *name,
                  bool minus_infinity, struct error *err);

#endif
