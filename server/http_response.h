#ifndef SERVER_HTTP_RESPONSE_H
#define SERVER_HTTP_RESPONSE_H

#include <stdbool.h>

/* A job's reply as the library takes it. Each response carries its request's ID,
 * so none is shared; but a connection keeps its last one where only the ID will
 * be another, which spares a /livez 8 % of its time.
 *
 * On the connection's I/O thread. */
struct MHD_Response;
struct connection;
struct job;

/* Of the job's reply, whose memory it takes over; `closes`: the connection ends
 * with it. NULL when there is no memory. */
struct MHD_Response *http_response_make(struct job *job, bool closes);

/* The library has it now; ours is kept for the connection's next, or dropped. */
void http_response_sent(struct job *job, struct MHD_Response *response,
                        bool closes);

/* When the connection ends. */
void http_response_forget(struct connection *connection);

/* A 503 that is made beforehand, for want of memory for any other. NULL when
 * there is none for it either. */
struct MHD_Response *http_response_last_words(void);

#endif
