#ifndef SERVER_LISTENER_H
#define SERVER_LISTENER_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>

/* The socket that the service listens on, made before anything else runs, so
 * that a port in use is one clear line. */

/* HOST:PORT or [IPv6]:PORT, whose host may be a name, as `option` gave it. The
 * socket does not block and is closed by exec; -1 with an error. [::] takes IPv4
 * as well. */
int listener_open(const char *option, const char *address, struct error *err);

/* What it was bound to, port 0 resolved: "127.0.0.1:40123". Returns out. */
char *listener_name(int listener, char *out, size_t size);

/* Asks the server at `address` whether it is ready, as --healthcheck does, in
 * TLS or not; an address that means every interface is asked on the loopback
 * one. */
bool listener_ask(const char *option, const char *address, bool in_tls,
                  struct error *err);

#endif
