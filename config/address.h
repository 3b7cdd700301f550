#ifndef CONFIG_ADDRESS_H
#define CONFIG_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

/* HOST:PORT and [IPv6]:PORT, taken apart. Syntax only: no name is resolved. */

enum { ADDRESS_HOST_BYTES = 254 }; /* 253 is the longest name DNS has; a NUL */

struct address {
    char host[ADDRESS_HOST_BYTES]; /* without brackets; an IPv6 one may end in
                                      %ZONE, as getaddrinfo() takes it */
    uint16_t port;                 /* 0: any free one */
};

/* False, and `out` unchanged, if `text` is neither form. */
bool address_parse(const char *text, struct address *out);

#endif
