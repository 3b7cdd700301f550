#ifndef TESTS_E2E_RETELL_BINARY_H
#define TESTS_E2E_RETELL_BINARY_H

#include "tests/e2e/retell.h"

#include <stdint.h>

/* JSON requests told as safetensors and npy, and binary replies read back as
 * the JSON they would have been. */

struct told_body {
    uint8_t *bytes; /* free() */
    size_t len;
    char *path; /* with its query string; free() */
};

/* Well-formed tensors become tensors (F32, F64 when the request's precision is
 * float64, BOOL), whatever else there is stands in the metadata as JSON, so that
 * a bad request stays bad in the same way. */
void retell_safetensors(const json_t *request, struct told_body *body);

/* The query as an array, the rest in the URL. `variant` chooses the version, the
 * byte order and the order of axes. False where it does not fit: no query that
 * is a tensor of numbers, or too long for a URL. */
bool retell_npy(const json_t *request, unsigned variant,
                struct told_body *body);

/* A reply in the other direction: tensors flat, -infinity as null. NULL when it
 * breaks the format. */
json_t *retell_safetensors_reply(const void *bytes, size_t len);
json_t *retell_npy_reply(const void *bytes, size_t len);

#endif
