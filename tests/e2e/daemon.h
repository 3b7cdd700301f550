#ifndef TESTS_E2E_DAEMON_H
#define TESTS_E2E_DAEMON_H

#include "tests/e2e/proxy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A running attnd under test: $BUILD/attnd, on a free port of 127.0.0.1, with
 * JSON log lines. What a test can't do without fails the test at once. One
 * thread; the daemon is a child and is stopped by its pid.
 *
 * With THROUGH=haproxy in the environment each has an HAProxy of its own in
 * front, and it is asked through that: `make proxy` runs the rows so once more. */
struct daemon {
    pid_t pid;
    uint16_t port;      /* where it is asked */
    uint16_t own_port;  /* the same, or behind the proxy */
    struct proxy proxy; /* pid 0: none */
    int log;            /* what it wrote to standard error */
};

/* Returns when it is ready. `options` ends with NULL, and may be NULL. */
void daemon_start(struct daemon *daemon, const char *const *options);

/* Sends the signal, waits, and closes the log. The exit status, or 128 and the
 * signal that killed it. */
int daemon_stop(struct daemon *daemon, int signal);

/* The same without a signal, for a daemon that ends by itself. */
int daemon_wait(struct daemon *daemon);

/* A run that is expected to end soon: its exit status, and the start of its
 * standard error in `out`. Options as above; nothing is added to them. */
int daemon_run(const char *const *options, char *out, size_t size);

/* The log so far, and whether it has this text within a second. */
char *daemon_log(const struct daemon *daemon); /* free() */
bool daemon_logs(const struct daemon *daemon, const char *text);

/* A socket to it, whose reads and writes give up after 10 s; -1 when nobody
 * listens. */
int daemon_connect(const struct daemon *daemon);

/* All bytes, or false when the daemon hangs up first. */
bool daemon_send(int fd, const void *bytes, size_t len);

/* Reads to the end of the connection, at most size - 1 bytes, and adds a NUL.
 * The length; -1 when 10 s passed without an end. */
ssize_t daemon_read_all(int fd, char *out, size_t size);

/* Reads one response with a Content-Length, or without a body, and leaves the
 * connection open. The status; 0 when the daemon hung up. */
int daemon_read_one(int fd, char *out, size_t size);

/* A connection of its own for `text`, up to its end. The status of the first
 * answer; 0 for none. */
int daemon_exchange(const struct daemon *daemon, const char *text, char *out,
                    size_t size);

/* The value of a series in /metrics, asked for past the proxy; -1 when it is not
 * there. */
double daemon_metric(const struct daemon *daemon, const char *series);

#endif
