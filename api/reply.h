#ifndef API_REPLY_H
#define API_REPLY_H

#include "api/message.h"
#include "core/buffer.h"

/* What a reply is made of, whatever format it is in: its tensors by name, how
 * large they can be, and the members that are none, as JSON text. */

/* Of one reply: output, three of the largest weights, and six to return. */
enum { REPLY_MOST_TENSORS = 10 };

struct reply_tensor {
    const char *name; /* "output", "weights.indices" */
    struct tensor value;
};

/* Those that are there, indices first: where they follow one another, all are
 * aligned. Returns how many. */
int reply_tensors(const struct mha_response *mha,
                  struct reply_tensor out[REPLY_MOST_TENSORS]);

/* The memory of those tensors becomes what is at `at`, one after another. */
void reply_place(struct mha_response *mha, uint8_t *at);

/* Appends a tensor's bytes, which are there already if it was placed there. */
void reply_append(struct buffer *out, const struct tensor *t);

/* A tensor that a plan may make: its dimensions are at most these. Bytes are
 * counted as doubles: exact where they matter, and nothing overflows. */
struct reply_shape {
    enum dtype dtype;
    int rank;
    double dim[TENSOR_MAX_RANK];
};

int reply_shapes(const struct request *request, const struct mha_plan *plan,
                 struct reply_shape out[REPLY_MOST_TENSORS]);

double reply_count(const struct reply_shape *shape); /* elements */
int64_t reply_bound(double bytes);                   /* saturated */

/* The members that are objects, as JSON text. Encoding began at `began_ns` of
 * the stopwatch: a profile tells how long ago that is. */
bool reply_is_compared(const struct mha_response *mha);
void reply_comparison(const struct mha_response *mha, struct buffer *out);
void reply_profile(const struct mha_plan *plan,
                   const struct response *response, int64_t began_ns,
                   struct buffer *out);

enum { REPLY_REST_BYTES = 4096 }; /* of all of them, and what is around */

#endif
