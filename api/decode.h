#ifndef API_DECODE_H
#define API_DECODE_H

#include "api/wire.h"

/* A request body, in `format`, to what it asks; memory and errors as wire.h says
 * of decode(). Between this and its plan, whoever holds models fills mha.model
 * for a request that names one. */
bool decode_request(const struct wire_format *format, struct bytes body,
                    const char *query, struct parallel *parallel,
                    struct arena *arena, struct request *request,
                    struct error *err);

/* A request to a plan that may run: checked, and within the limits. Errors as
 * mha_check() has them, and ERR_TOO_LARGE (where ""): it takes no memory for the
 * result, so that a request whose answer would be too large is refused by its
 * shape. The answer, whose size is bounded, will be in `reply`; what that leaves
 * out is taken from the request. */
bool decode_plan(struct request *request, const struct wire_format *reply,
                 const struct limits *limits, struct mha_plan *plan,
                 struct error *err);

#endif
