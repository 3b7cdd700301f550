#ifndef TESTS_FAULTS_WITNESS_H
#define TESTS_FAULTS_WITNESS_H

#include "tests/e2e/daemon.h"
#include "tests/faults/raw.h"

#include <stdbool.h>
#include <stdint.h>

/* What must be as before after any fault: the witness looks at a daemon before
 * and after, and fails the running test when something has changed.
 *
 *   - the process runs, and /livez answers within a second
 *   - a request like any other gets the same bytes as before
 *   - as many files are open as before, within two seconds
 *   - resident memory has grown by no more than the slack
 *   - nothing is reserved of the memory budget and nothing waits in the queue
 *   - there are as many request lines in the log, with those it owns to have
 *     dropped, as ticks of requests_total; each line is JSON without control
 *     characters
 *
 * Where HAProxy stands in front, it may keep some connections open, and the
 * daemon's figures are asked for behind it. One thread. */
struct witness {
    const struct daemon *daemon;
    const char *key; /* a header with its CR LF, or "" */
    char *control;   /* the control request's answer */
    int files;
    int64_t resident_bytes;
    long lines, dropped, ticks; /* about requests */
};

enum {
    /* Freed memory stays with the C library: up to 64 MiB at the top of the
     * heap (the daemon's M_TRIM_THRESHOLD), and what each thread's arena has
     * grown to. WITNESS_SLACK_BYTES is for rows whose bodies are small,
     * WITNESS_HEAP_BYTES for those that move megabytes. */
    WITNESS_SLACK_BYTES = 8 << 20,
    WITNESS_HEAP_BYTES = 160 << 20
};

void witness_begin(struct witness *witness, const struct daemon *daemon);

/* For a daemon that asks for a key: the header that has one, with its CR LF. */
void witness_begin_with(struct witness *witness, const struct daemon *daemon,
                        const char *key);

/* Frees what it holds. Between the two the daemon must have finished at least
 * `requests` requests. */
void witness_end(struct witness *witness, int64_t slack_bytes, int requests);

/* Fails unless this is problem+json for its status, as the README has it,
 * with this code (NULL: any), and tells nothing of the machine: no path, no
 * address in memory, no text of errno. */
void witness_problem(const struct raw_reply *reply, const char *code);

#endif
