#ifndef API_PROBLEM_H
#define API_PROBLEM_H

#include "core/buffer.h"
#include "core/error.h"

/* An error as a client reads it: an HTTP status and RFC 9457's problem+json
 * with our members code, pointer, error and request_id. */

int problem_status(enum error_code code); /* 422 for ERR_SHAPE, ... */
const char *problem_title(enum error_code code); /* the same in words */

void problem_encode(const struct error *err, const char *request_id,
                    struct buffer *out);

#endif
