#ifndef API_RAW_H
#define API_RAW_H

#include "api/fields.h"

/* Elements as little-endian bytes of any dtype, from base64 or a binary body,
 * to what the core computes with. */

/* What elements of `dtype` become in a field of `kind` when numbers are `wide`
 * (F32 or F64): BOOL stays BOOL, where the kind has booleans. False where it
 * has none. */
bool raw_target(enum dtype dtype, enum field_kind kind, enum dtype wide,
                enum dtype *target);

/* Converts `count` elements, unaligned or not, to `target` at `out`. Returns
 * the index of the first that may not stand in the kind, or -1: NaN, infinity
 * (but minus infinity in a FIELD_BIAS), a boolean byte that is not 0 or 1. */
int64_t raw_convert(const void *src, enum dtype dtype, int64_t count,
                    enum field_kind kind, enum dtype target, void *out);

#endif
