#ifndef API_ENCODE_H
#define API_ENCODE_H

#include "api/message.h"
#include "core/buffer.h"

/* A response as JSON text, straight into the reply's buffer: one allocation
 * when the buffer is new. No number in it is anything but JSON: what is not
 * finite (minus infinity in scores and lse) is null, in base64 its bits. */
void encode_json(const struct request *request, const struct mha_plan *plan,
                 const struct response *response, struct buffer *out);

/* The most bytes that encode_json() can append; saturated. */
int64_t encode_json_bound(const struct request *request,
                          const struct mha_plan *plan);

#endif
