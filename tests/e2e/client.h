#ifndef TESTS_E2E_CLIENT_H
#define TESTS_E2E_CLIENT_H

#include <stddef.h>
#include <stdint.h>

/* One HTTP request by libcurl, for tests. Fails the running test when the
 * transfer itself fails. */
struct reply {
    long status;
    char *body; /* NUL-terminated; free() */
    size_t len, size;
    char content_type[128];
};

/* POSTs `len` bytes of `content_type` to a path of 127.0.0.1:port; the answer
 * should be of type `accept`, unless that is NULL. */
void client_send(uint16_t port, const char *path, const char *content_type,
                 const char *accept, const void *body, size_t len,
                 struct reply *reply);

/* POSTs `len` bytes of JSON to a path of 127.0.0.1:port. */
void client_post(uint16_t port, const char *path, const char *body, size_t len,
                 struct reply *reply);

void client_get(uint16_t port, const char *path, struct reply *reply);

#endif
