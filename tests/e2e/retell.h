#ifndef TESTS_E2E_RETELL_H
#define TESTS_E2E_RETELL_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

/* Tensors of a JSON request or reply, read in any encoding and told again in
 * another: the same request, three ways. */

enum told { TOLD_NESTED, TOLD_FLAT, TOLD_BASE64, TOLD_COUNT };

enum { TOLD_MAX_RANK = 8 };

struct told_tensor {
    int rank;
    size_t dim[TOLD_MAX_RANK]; /* 0 behind the rank */
    size_t count;
    double *data; /* null and "-Infinity" read as -INFINITY, true as 1 */
    bool booleans;
};

/* False when it is no tensor: ragged, empty, mixed, of strings. */
bool told_read(const json_t *value, struct told_tensor *t);
void told_free(struct told_tensor *t);

/* Rewrites every well-formed tensor of a request in place. Anything else stays
 * as it was, so that a bad request stays bad in the same way. Base64 is F32,
 * F64 when the request's precision is float64, BOOL for booleans. */
void retell_request(json_t *request, enum told told);

#endif
