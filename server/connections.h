#ifndef SERVER_CONNECTIONS_H
#define SERVER_CONNECTIONS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* Every open connection, what it is about to do, and since when.
 *
 * The HTTP library's timeout starts anew with each byte, so a client that sends
 * one byte a second is never late for it. Here a phase has an end, whatever
 * trickles in meanwhile: connections_sweep(), called now and then, cuts what is
 * late. I/O threads move their connections from phase to phase; a lock is
 * needed only to open and to close.
 *
 * Clients that leave are noticed here too: the library reads what a client sent
 * before it left, and then waits for a word from the kernel that it has had
 * already (data and end came as one edge of its epoll). */
enum connection_phase {
    CONNECTION_OPEN,    /* accepted, no request line yet */
    CONNECTION_HEADERS, /* from the request line on      */
    CONNECTION_BODY,
    CONNECTION_BUSY,    /* queued or computed: the deadline is the job's */
    CONNECTION_REPLY,   /* the answer is on its way */
    CONNECTION_IDLE,    /* kept alive */
    CONNECTION_LEAVING, /* answered early: what still comes is thrown away */
    CONNECTION_CUT      /* late: its socket is shut down */
};

enum { CONNECTION_PEER_BYTES = 64 };

struct MHD_Response;
struct job;
struct tls_pair;

struct connection {
    int fd;
    char peer[CONNECTION_PEER_BYTES]; /* 127.0.0.1:40000, [::1]:40000 */
    /* Phase in the low 3 bits, the millisecond it began above them: one word,
     * so that the sweeper never takes a new phase for an old one. */
    _Atomic uint64_t word;
    struct tls_pair *pair; /* its certificate: http.c's, see tls.h */
    bool is_tls;        /* nothing may be written past the library */
    bool is_admin;      /* came by admin_listen */
    bool sends_no_more; /* the client has shut its side; the mutex guards it */
    bool has_requested; /* it sent a request line; the I/O thread's ... */
    struct job *spare;  /* ... as are the last job's remains, or NULL  */
    struct MHD_Response *plain_response; /* http_response.c's, its text too */
    const void *plain_text;
    char id[129];       /* of the request; set before CONNECTION_BODY */
    char told_id[129];  /* of the 408 it got, or ""; the mutex guards it */
    struct connection *before, *after;
};

/* How long each phase may take; of CONNECTION_BUSY, for ever. */
struct connection_limits {
    int64_t header_ms, body_ms, idle_ms;
    int64_t count; /* max_connections */
};

struct connections {
    pthread_mutex_t mutex; /* guards the list, and each fd against its close */
    int hangups;           /* epoll of all of them, for EPOLLRDHUP alone */
    struct connection *first;
    _Atomic int64_t count;
    struct connection_limits limits;
};

/* False when there is no memory or file for it. */
bool connections_init(struct connections *connections,
                      struct connection_limits limits);
void connections_free(struct connections *connections); /* none is open */

/* NULL when there is no memory. */
struct connection *connections_add(struct connections *connections, int fd,
                                   const struct sockaddr *address);

/* Before its fd is closed. Frees it. */
void connections_remove(struct connections *connections,
                        struct connection *connection);

/* False when the sweeper was faster: the connection is dead. */
bool connection_enter(struct connection *connection,
                      enum connection_phase phase);

/* True when the sweeper has sent it a 408; `id` is then that answer's request
 * id, else as it was. */
bool connections_told(struct connections *connections,
                      struct connection *connection, char id[129]);

/* Cuts what is late: with a 408 where a request had begun to arrive, but not in
 * TLS, whose session is the library's. While draining, and when few more
 * connections are possible, those with nothing to say are late soon. And cuts
 * those whose client left before its request was complete. */
void connections_sweep(struct connections *connections, bool draining);

/* Shuts every connection down, but for those a worker has. */
void connections_cut_all(struct connections *connections);

/* Whether it was opened, brought bytes that were no request, and got no answer
 * from anybody. At its end. */
bool connection_was_garbage(const struct connection *connection);

/* Whether the client has closed its connection, as far as the kernel knows;
 * while CONNECTION_BUSY, from any thread. A client that shut down only its
 * sending side looks the same until something is sent to it: with `may_probe`
 * it gets a `100 Continue`, which an HTTP/1.1 client skips. */
bool connection_has_left(struct connection *connection, bool may_probe);

/* True when a job of one of them is queued, computed, or just handed back. */
bool connections_busy(struct connections *connections);

int64_t connections_count(struct connections *connections);

#endif
