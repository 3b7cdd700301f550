#ifndef SERVER_QUEUE_H
#define SERVER_QUEUE_H

#include "core/parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct job;

/* The bounded line of jobs, and the calls for help of those that run.
 *
 * One mutex guards both, because a worker waits for either. What is written
 * before a push is seen after the pop. It never waits for room: it says that
 * there is none. */

/* A computation that other threads may join: pieces [0, pieces) of `piece`.
 * Lives on its caller's stack from queue_call() to queue_uncall(). */
struct call {
    parallel_piece *piece;
    void *arg;
    int64_t pieces;
    size_t scratch_bytes; /* what one piece needs of its thread */
    _Atomic int64_t next; /* the first piece that nobody has begun */
    atomic_bool failed;
    int helpers; /* threads inside; the queue's mutex guards it */
    struct call *below;
};

struct queue {
    pthread_mutex_t mutex;
    pthread_cond_t work; /* a job, a call, or the end   */
    pthread_cond_t left; /* a helper has left its call  */
    struct job *first, **last;
    int64_t length, capacity; /* capacity is of jobs that have to wait */
    struct call *calls;
    _Atomic int idle; /* threads inside queue_pop() with nothing to do;
                         written with the mutex held */
    bool closed;
};

enum queue_item { QUEUE_JOB, QUEUE_CALL, QUEUE_END };

bool queue_init(struct queue *queue, int64_t capacity); /* false: no memory */
void queue_free(struct queue *queue);

/* Never waits. False, and the job is still the caller's, when the line is full
 * or closed. */
bool queue_push(struct queue *queue, struct job *job);

/* Waits for something to do: a job before a call, so that helping never delays
 * what has not begun. A call was entered and must be left. QUEUE_END once the
 * queue is closed and empty. */
enum queue_item queue_pop(struct queue *queue, struct job **job,
                          struct call **call);

/* Takes out the jobs whose deadline is before `now_ns`, linked by `next`; with
 * INT64_MAX all of them. They are the caller's. */
struct job *queue_expire(struct queue *queue, int64_t now_ns);

/* From now on pushes are refused; what is in line is still popped. */
void queue_close(struct queue *queue);

/* Offers the call to idle threads, without waiting for any. */
void queue_call(struct queue *queue, struct call *call);

/* Nobody enters any more; waits for those who did and have begun a piece. */
void queue_uncall(struct queue *queue, struct call *call);
void queue_leave(struct queue *queue, struct call *call);

/* True when a call would find a thread with nothing to do. */
bool queue_has_idle(struct queue *queue);

#endif
