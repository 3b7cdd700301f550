#ifndef TESTS_LOAD_RUN_H
#define TESTS_LOAD_RUN_H

#include "tests/load/histogram.h"
#include "tests/load/options.h"
#include "tests/load/watch.h"

#include <stdint.h>

/* One run: requests at one rate, and what became of them.
 *
 * An open-loop run fixes beforehand when each request is to be sent, whatever
 * becomes of the others, and takes the first free connection for it, opening
 * another while it may. A request that has to wait, since all connections are busy or the
 * generator itself is late, has waited: its latency counts from the moment it
 * was meant for, so that a stall shows in as many requests as it delayed. A
 * closed-loop run sends when an answer has come; its latency hides such
 * stalls, but it finds the most that the server can do.
 *
 * One thread and one epoll instance. */

enum { RUN_OUTCOMES = 16 };

/* Answers of one status to requests meant for the counted time. */
struct outcome {
    int status;
    struct histogram latency; /* from when it was meant to be sent */
    struct histogram service; /* from when its sending began       */
    int64_t in_time;          /* answered before the sending time was over */
};

enum failure {
    FAILED_CONNECT,
    FAILED_CLOSED,    /* the connection ended before the answer did */
    FAILED_TIMEOUT,
    FAILED_MALFORMED, /* the answer is no HTTP/1.1 response        */
    FAILED_UNSENT,    /* no connection came free within the timeout */
    FAILURES
};

struct result {
    int rounds;          /* runs that it is of */
    double wanted_rate;  /* requests a second, as the mean of them; 0: closed */
    double counted_s;    /* the part of them that counts */
    int64_t begun;       /* requests meant for that part    */
    int64_t failed[FAILURES];
    int64_t left;        /* by us, on purpose                        */
    int64_t different;   /* 200s whose bytes differ from the first's */
    int64_t opened;      /* connections */
    int64_t reaped;      /* idle ones the server closed */
    int64_t sent_bytes, received_bytes;
    int outcomes;
    struct outcome outcome[RUN_OUTCOMES];
    struct watch watch;
};

/* 2xx answers in time, and of them a second. */
int64_t result_good(const struct result *result);
double result_goodput(const struct result *result);

const struct outcome *result_find(const struct result *result, int status);

/* Adds to `result`, which is all zeros before the first run. False with errno
 * when there is no memory, epoll or timer. `rate` is requests a second, or 0 for
 * a closed-loop run; at most `connections` are open at a time. Answers are
 * compared with those kept in `digest`, one for each body, 0 where there is none
 * yet. */
bool run_load(const struct options *options, double rate, int connections,
              uint64_t *digest, struct result *result);

#endif
