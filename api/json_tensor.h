#ifndef API_JSON_TENSOR_H
#define API_JSON_TENSOR_H

#include "api/fields.h"

/* Tensors as JSON spells them: nested arrays, {"shape", "data"}, or {"shape",
 * "dtype", "base64"}, from text straight into the arena. */
struct json_tensor {
    enum field_kind kind; /* FIELD_TENSOR, _PADDING or _BIAS */
    enum dtype wide;      /* what numbers become: F32 or F64 */
    const char *where;    /* JSON Pointer to it */
    struct parallel *parallel; /* helps with long arrays; NULL: nobody does */
    size_t part_bytes;         /* from twice as many on one is long */
};

/* Reads the value at the cursor into tensor->value (packed; F32, F64 or BOOL),
 * or tells in tensor->flaw what is wrong with it; tensor->name, which sentences
 * use, is the caller's. False only when the body is no JSON or the arena is
 * full: json->err. The arena gets the elements, at most 4 bytes (8 when `wide`
 * is F64) for each comma of the text and one, the flaw, a copy of base64 that
 * has escapes in it, and for a long array its parts. */
bool json_tensor_read(struct cursor *json, const struct json_tensor *how,
                      struct named_tensor *tensor, enum encoding *encoding);

#endif
