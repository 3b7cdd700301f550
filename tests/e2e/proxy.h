#ifndef TESTS_E2E_PROXY_H
#define TESTS_E2E_PROXY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* HAProxy as config/deploy/haproxy.cfg sets it up, in front of two ports of
 * 127.0.0.1, which may be the same. One thread; what a test can't do without
 * fails it. */
struct proxy {
    pid_t pid; /* 0: none */
    uint16_t port;
};

bool proxy_is_installed(void);

/* Returns when an instance answers through it. */
void proxy_start(struct proxy *proxy, uint16_t one, uint16_t two);

void proxy_stop(struct proxy *proxy);

#endif
