#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "api/message.h"
#include "config/config.h"
#include "server/budget.h"
#include "server/connections.h"
#include "server/queue.h"

#include <stdatomic.h>

struct auth;
struct http;
struct kernels;
struct models;
struct workers;

/* Everything that the threads share, built by main before there are any and
 * taken apart after the last has ended. What is not atomic, and not a part
 * with a lock of its own, is only read meanwhile. */
struct server {
    const struct config *config;
    const struct kernels *kernels;
    struct limits limits;
    int64_t worker_count;
    int64_t max_connections; /* fewer than configured where memory is little */
    struct budget budget;
    struct queue queue;
    struct connections connections;
    struct workers *workers;
    struct models *models;
    struct auth *auth; /* NULL: anybody may ask */
    struct http *http;
    char address[80]; /* 127.0.0.1:8080, as it was bound */

    /* Read by I/O threads with relaxed loads: each stands alone, and a request
     * that sees the change a moment late is one that came a moment earlier. */
    atomic_bool ready;    /* warm, and not stopping: what /readyz says */
    atomic_bool stopping; /* SIGTERM came; still serving               */
    atomic_bool draining; /* requests that begin now are refused       */
};

#endif
