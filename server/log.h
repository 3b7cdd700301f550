#ifndef SERVER_LOG_H
#define SERVER_LOG_H

#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Lines on standard error: JSON objects, or text for people.
 *
 * Saying something never waits for whoever reads it. Lines go into a ring that
 * a thread of its own empties; when a full disk or a stopped pager lets nothing
 * through, they are counted in attnd_log_dropped_total and forgotten. Whatever
 * a client may have chosen is escaped, and no line is longer than a pipe takes
 * in one piece. There is one log a process; any thread may write. */

/* The end of a request. Strings may be any bytes; durations in ns. */
struct log_request {
    const char *id, *method, *path, *peer;
    const char *key;  /* the name of the client's key, or NULL */
    const char *code; /* why it was refused, or NULL */
    int status;       /* 0: no answer */
    bool aborted;     /* the client left first */
    int64_t received_bytes, sent_bytes;
    int64_t queue_ns, decode_ns, compute_ns, encode_ns, total_ns;
};

/* Starts the thread; `fd` stays the caller's. False: no thread or memory. */
bool log_start(enum config_log_level level, enum config_log_format format,
               int fd);

/* Writes out what is in the ring, for at most a second. */
void log_stop(void);

/* An event in one word, a key of its own or NULL, and a sentence. */
void log_event(enum config_log_level level, const char *event, const char *key,
               const char *value, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

void log_request(const struct log_request *request);

#endif
