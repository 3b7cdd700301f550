#ifndef SERVER_REFUSAL_H
#define SERVER_REFUSAL_H

#include "core/error.h"

/* A refusal written to a socket past the HTTP library, for the two moments at
 * which the library takes no answer: a request that is still arriving and is
 * too slow, or too long. Says that the connection closes; closing is the
 * caller's. What the socket does not take at once is lost. */
void refusal_send(int fd, const struct error *err, const char *request_id);

#endif
