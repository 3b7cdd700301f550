#ifndef SERVER_QUEUE_H
#define SERVER_QUEUE_H

#include "core/parallel.h"
#include "server/cost.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct job;

/* The bounded line of jobs, and the calls for help of those that run.
 *
 * It is two lines, of small jobs and of big ones: while small ones come, big
 * ones never have all workers, so that a request of a millisecond waits for
 * others of a millisecond. Within a line the oldest goes first. Newest first
 * was tried at 2 and 5 times the capacity (requests of 100 ms, 2 workers): the
 * median fell from 0.6 s to 0.3, but the p99 rose from 1 s to 2 to 5 and
 * refusals from 0.04 s to the deadline, 5 s.
 *
 * The line is bounded in jobs, and in the time that the next one would wait.
 * One mutex guards it all, because a worker waits for any of it. What is written
 * before a push is seen after the pop. It never waits for room: it says that
 * there is none. */

/* A computation that other threads may join: pieces [0, pieces) of `piece`.
 * Lives on its caller's stack from queue_call() to queue_uncall(). */
struct call {
    parallel_piece *piece;
    void *arg;
    int64_t pieces;
    int cpu; /* the caller's, when it called */
    size_t scratch_bytes; /* what one piece needs of its thread */
    _Atomic int64_t next; /* the first piece that nobody has begun */
    _Atomic int64_t helped_ns; /* time that others spent on it */
    atomic_bool failed;
    _Atomic int helpers; /* threads inside; written with the mutex held */
    struct call *below;
};

struct queue_line {
    struct job *first, **last;
    int64_t waiting_ns; /* what its jobs will cost, by guess */
};

struct queue_limits {
    int64_t jobs;    /* that may wait */
    int64_t wait_ns; /* that one may expect to wait */
    int64_t workers; /* that pop */
};

enum { QUEUE_SMALL, QUEUE_BIG, QUEUE_LINES };

struct queue {
    pthread_mutex_t mutex;
    pthread_cond_t work; /* a job, a call, or the end   */
    pthread_cond_t left; /* a helper has left its call  */
    struct queue_line line[QUEUE_LINES];
    int64_t length; /* of both */
    struct queue_limits limits;
    struct cost cost;
    int64_t big_running;
    int64_t small_ns; /* when the last small job came or was done */
    struct call *calls;
    _Atomic int idle; /* threads inside queue_pop() with nothing to do;
                         written with the mutex held */
    _Atomic int64_t small_length; /* likewise */
    _Atomic uint64_t news; /* jobs and calls that came, and the end; likewise */
    _Atomic int computing; /* jobs that may call for help, now or soon */
    _Atomic int64_t drain_ns; /* until a line like this one is gone; likewise */
    bool closed;
};

enum queue_item { QUEUE_JOB, QUEUE_CALL, QUEUE_END };

/* False: no memory. */
bool queue_init(struct queue *queue, struct queue_limits limits);
void queue_free(struct queue *queue);

/* Whether a job with this body would be taken now. */
bool queue_has_room(struct queue *queue, size_t body_len);

/* Never waits. False, and the job is still the caller's, when the line is full,
 * too slow, or closed. */
bool queue_push(struct queue *queue, struct job *job);

/* Waits for something to do: a job before a call, so that helping never delays
 * what has not begun. A call was entered and must be left. QUEUE_END once the
 * queue is closed and empty. */
enum queue_item queue_pop(struct queue *queue, struct job **job,
                          struct call **call);

/* The job that was popped is a big one, as its worker has found out. False when
 * enough of them run: it must be put back in line, and is then no longer the
 * caller's. */
bool queue_promote(struct queue *queue, struct job *job);
void queue_put_back(struct queue *queue, struct job *job);

/* A popped job has taken this much time of workers; 0 when it was not begun,
 * which says nothing about others of its length. */
void queue_done(struct queue *queue, const struct job *job, int64_t worker_ns);

/* Takes out the jobs whose deadline is before `now_ns`, with INT64_MAX all of
 * them, and the newest where the line turned out to be far slower than it was
 * thought to be. Linked by `next`; they are the caller's. To be called now and
 * then: it also wakes whoever may take a big job now that no small ones come. */
struct job *queue_expire(struct queue *queue, int64_t now_ns);

/* From now on pushes are refused; what is in line is still popped. */
void queue_close(struct queue *queue);

/* Offers the call to idle threads, without waiting for any. */
void queue_call(struct queue *queue, struct call *call);

/* Nobody enters any more; waits for those who did and have begun a piece. */
void queue_uncall(struct queue *queue, struct call *call);

/* Who leaves stays awake for a moment, while a job is computing: a layer's
 * steps follow each other faster than a thread wakes up. */
void queue_leave(struct queue *queue, struct call *call);

/* Around a computation that may make calls, one after another. */
void queue_begin_calls(struct queue *queue);
void queue_end_calls(struct queue *queue);

/* True when a call would find a thread with nothing to do. */
bool queue_has_idle(struct queue *queue);

/* True when a helper is wanted for a small job instead. */
bool queue_has_small(struct queue *queue);

/* Seconds, 1 to 60, after which a refused client may find room: until what
 * waits now is gone, at the pace of late. */
int queue_retry_s(struct queue *queue);

#endif
