#ifndef SERVER_REFUSAL_H
#define SERVER_REFUSAL_H

#include "core/buffer.h"
#include "core/error.h"

/* A refusal written past the HTTP library, for the two moments at which the
 * library takes no answer: a request that is still arriving and is too slow, or
 * too long. Says that the connection closes; closing is the caller's. */

enum { REFUSAL_BYTES = 16 * 1024 }; /* none is longer */

struct refusal {
    const struct error *error;
    const char *request_id;
    const char *header_name, *header_value; /* one more, or NULL */
};

/* The bytes of the answer; `out` is failed when there is no memory. */
void refusal_write(const struct refusal *refusal, struct buffer *out);

/* To a socket. What it does not take at once is lost. */
void refusal_send(int fd, const struct refusal *refusal);

#endif
