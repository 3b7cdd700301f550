#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include "core/error.h"
#include "server/server.h"

#include <stdbool.h>
#include <sys/socket.h>

struct job;

/* HTTP/1.1 by libmicrohttpd, which only http.c and http_response.c see:
 * connections, parsing, and the bytes of answers. What a request means is decided
 * elsewhere.
 *
 * Runs its own I/O threads. The library is handed a listening socket, so that
 * whoever opened it can say what was wrong. */
struct http;

struct listeners {
    int main;
    bool in_tls; /* with the certificate of tls.h */
    int admin;   /* -1: none. Never in TLS */
};

/* NULL with an error when the library does not start. */
struct http *http_start(struct server *server, const struct listeners *on,
                        struct error *err);

/* Hands a job back, with its reply, to the I/O thread of its connection. The
 * worker's last touch: the job may be gone when this returns. */
void http_resume(struct job *job);

/* A connection to `listen` that was accepted elsewhere; from here on `fd` is the
 * library's, which closes it when it does not want it. Any thread. */
void http_add(struct http *http, int fd, const struct sockaddr *address,
              socklen_t len);

/* Stops listening, but takes over clients whose connection the kernel has
 * already accepted. Closes the listening socket. The admin's stays, so that
 * the end can be watched. */
void http_quiesce(struct http *http);

/* No connection may have a job in the queue or with a worker. */
void http_stop(struct http *http);

#endif
