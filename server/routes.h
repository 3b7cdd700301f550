#ifndef SERVER_ROUTES_H
#define SERVER_ROUTES_H

#include "server/server.h"

#include <stdbool.h>

struct job;

/* Which paths there are and what a request for one must look like: decided
 * from the headers alone, before a byte of body is read. Paths match exactly,
 * byte for byte, as the client sent them. */

enum method {
    METHOD_GET = 1,
    METHOD_HEAD = 2,
    METHOD_POST = 4,
    METHOD_OPTIONS = 8,
    METHOD_OTHER = 16,  /* known to HTTP, served nowhere */
    METHOD_UNKNOWN = 32, /* known to nobody */
    METHOD_PUT = 64,
    METHOD_DELETE = 128
};

enum route_name {
#define ROUTE(name, path, methods, key, door, answer) ROUTE_##name,
#include "server/routes.def"
#undef ROUTE
    ROUTE_OTHER, /* no such path, or headers that were not understood */
    ROUTES
};

enum route_key { KEY_ALWAYS, KEY_NEVER, KEY_BY_OPTION };

enum route_door { DOOR_MAIN, DOOR_ADMIN, DOOR_BOTH };

struct route {
    const char *path;
    unsigned methods;
    enum route_key key;
    enum route_door door;
    void (*answer)(struct server *server, struct job *job);
};

extern const struct route routes[ROUTES]; /* the last has no path */

enum method routes_method(const char *name);

/* Those that this server answers. */
unsigned routes_methods(const struct server *server, enum route_name route);

/* Largest body of the job's kind. */
int64_t routes_max_body(const struct server *server, const struct job *job);

/* The NAME of ROUTE_MODEL, as the client sent it. */
const char *routes_model(const struct job *job);

/* "POST, OPTIONS". Returns out. */
char *routes_allow(unsigned methods, char *out, size_t size);

/* Whether the job may go on: its key, path, method, media type, coding, size, and
 * the memory for its body. On false the job's reply says why. */
bool routes_admit(struct server *server, struct job *job);

/* There is no room in line. */
void routes_refuse_full(struct job *job);

#endif
