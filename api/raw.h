#ifndef API_RAW_H
#define API_RAW_H

#include "api/fields.h"

/* Elements as bytes of any dtype, from base64 or a binary body, to what the
 * core computes with. */

/* What elements of `dtype` become in a field of `kind` when numbers are `wide`
 * (F32 or F64): BOOL stays BOOL, where the kind has booleans. False where it
 * has none. */
bool raw_target(enum dtype dtype, enum field_kind kind, enum dtype wide,
                enum dtype *target);

/* Converts `count` little-endian elements, unaligned or not, to `target` at
 * `out`. Returns the index of the first that may not stand in the kind, or -1:
 * NaN, infinity (but minus infinity in a FIELD_BIAS), a boolean byte that is
 * not 0 or 1. */
int64_t raw_convert(const void *src, enum dtype dtype, int64_t count,
                    enum field_kind kind, enum dtype target, void *out);

/* A whole tensor in a binary body, and the field it is for. */
struct raw {
    const uint8_t *data;
    enum dtype dtype;
    bool big_endian;
    bool fortran_order; /* the first axis is the one without gaps */
    int rank;           /* 1 to TENSOR_MAX_RANK; the dimensions were checked */
    int64_t dim[TENSOR_MAX_RANK];
    enum field_kind kind;
    enum dtype wide;
    const char *where; /* JSON Pointer to the field */
};

/* Reads it into tensor->value: a view of the bytes where they are already what
 * the core computes with, else from `arena`. What is wrong with an element goes
 * to tensor->flaw; tensor->name, which sentences use, is the caller's. False
 * (ERR_OVERLOADED) only for want of memory. */
bool raw_read(const struct raw *raw, struct arena *arena,
              struct named_tensor *tensor, struct error *err);

/* Tells in tensor->flaw what is wrong with a tensor; the sentence goes on behind
 * its name. Only the first counts. False for want of memory. */
bool raw_flaw(const struct raw *raw, struct arena *arena,
              struct named_tensor *tensor, struct error *err,
              enum error_code code, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

#endif
