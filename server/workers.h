#ifndef SERVER_WORKERS_H
#define SERVER_WORKERS_H

#include "core/error.h"
#include "server/server.h"

#include <pthread.h>

/* The threads that compute: each takes a job, decodes, computes and encodes it,
 * and hands it back. One with nothing to do helps with pieces of another's job.
 * They are all the threads there are for computing; BLAS has none of its own. */
struct workers;

/* Returns once all are warm, so that no request pays for a first time. NULL
 * with an error when a thread can't be had. */
struct workers *workers_start(struct server *server, struct error *err);

/* Refuses, for lateness, what has waited past its deadline at `now_ns`; with
 * INT64_MAX, for draining, all that waits. Any thread. */
void workers_drop_late(struct server *server, int64_t now_ns);

/* Whether a worker has finished no step of its job since `since_ns`; `thread` is
 * then it. */
bool workers_stuck(struct workers *workers, int64_t since_ns,
                   pthread_t *thread);

/* After queue_close(): returns when the last job has been handed back. */
void workers_stop(struct workers *workers);

#endif
