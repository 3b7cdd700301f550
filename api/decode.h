#ifndef API_DECODE_H
#define API_DECODE_H

#include "api/wire.h"

/* A request body to a plan that may run: decoded, checked, and within the
 * limits. Takes nothing for the result, so that a request whose answer would
 * be too large is refused by its shape (ERR_TOO_LARGE, where ""). The body is
 * in `format`; the answer, whose size is bounded, will be in `reply`. */
bool decode_request(const struct wire_format *format,
                    const struct wire_format *reply, struct bytes body,
                    const char *query, const struct limits *limits,
                    struct arena *arena, struct request *request,
                    struct mha_plan *plan, struct error *err);

/* Its second half, for who has a model to find between the two: what
 * format->decode() made of the body, checked and within the limits. */
bool decode_check(const struct wire_format *reply,
                  const struct limits *limits, const struct request *request,
                  struct mha_plan *plan, struct error *err);

#endif
