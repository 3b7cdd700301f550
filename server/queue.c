#include "server/queue.h"

#include "server/clock.h"
#include "server/job.h"
#include "server/metrics.h"

#include <sched.h>

enum {
    /* From here on a job is a big one: ten of its kind make a wait that a
     * person notices. */
    BIG_NS = 10 * CLOCK_NS_PER_MS,
    /* Of workers, what big jobs leave to small ones; one at least. */
    RESERVED_SHARE = 4,
    LONGEST_RETRY_S = 60,
    /* Times the wait that a job may expect when it comes. */
    HOPELESS = 2
};

/* For so long a thread that is waited for, or that others may need, is looked
 * out for before sleeping: twice what it takes to wake one up. */
#define AWAKE_NS (CLOCK_NS_PER_MS / 10)

/* For so long after a small job more are expected. */
#define RESERVED_NS CLOCK_NS_PER_S

bool queue_init(struct queue *queue, struct queue_limits limits)
{
    *queue = (struct queue){ .limits = limits, .small_ns = -RESERVED_NS };
    for (int i = 0; i < QUEUE_LINES; i++)
        queue->line[i].last = &queue->line[i].first;
    if (pthread_mutex_init(&queue->mutex, NULL) != 0)
        return false;
    if (pthread_cond_init(&queue->work, NULL) == 0) {
        if (pthread_cond_init(&queue->left, NULL) == 0)
            return true;
        pthread_cond_destroy(&queue->work);
    }
    pthread_mutex_destroy(&queue->mutex);
    return false;
}

void queue_free(struct queue *queue)
{
    pthread_cond_destroy(&queue->left);
    pthread_cond_destroy(&queue->work);
    pthread_mutex_destroy(&queue->mutex);
}

/* ---- with the mutex held ---- */

static void tell(struct queue *queue)
{
    atomic_fetch_add_explicit(&queue->news, 1, memory_order_relaxed);
}

/* Jobs that enter or leave a line, and what they will cost. */
static void count(struct queue *queue, bool is_big, int64_t jobs, int64_t ns)
{
    struct queue_line *line = &queue->line[is_big];
    int64_t all;

    queue->length += jobs;
    line->waiting_ns += ns;
    if (!is_big)
        atomic_fetch_add_explicit(&queue->small_length, jobs,
                                  memory_order_relaxed);
    all = queue->line[QUEUE_SMALL].waiting_ns +
          queue->line[QUEUE_BIG].waiting_ns;
    atomic_store_explicit(&queue->drain_ns, all / queue->limits.workers,
                          memory_order_relaxed);
    metrics_set(METRIC_queue_jobs, queue->length);
}

static void append(struct queue *queue, struct job *job)
{
    struct queue_line *line = &queue->line[job->is_big];

    job->state = JOB_QUEUED;
    job->next = NULL;
    *line->last = job;
    line->last = &job->next;
    count(queue, job->is_big, 1, job->guess_ns);
    tell(queue);
    pthread_cond_signal(&queue->work);
}

static struct job *take_first(struct queue *queue, bool is_big)
{
    struct queue_line *line = &queue->line[is_big];
    struct job *job = line->first;

    line->first = job->next;
    if (line->first == NULL)
        line->last = &line->first;
    count(queue, is_big, -1, -job->guess_ns);
    queue->big_running += is_big;
    job->state = JOB_RUNNING;
    return job;
}

/* How many big jobs may run at once. Without small ones about, any number: one
 * alone with helpers wastes what can't be shared. */
static int64_t big_limit(const struct queue *queue)
{
    int64_t workers = queue->limits.workers, kept = workers / RESERVED_SHARE;

    if (workers == 1 || queue->closed ||
        clock_ns() - queue->small_ns > RESERVED_NS)
        return workers;
    return workers - (kept > 0 ? kept : 1);
}

/* The older of the two firsts, unless big ones have their share. */
static struct job *take_next(struct queue *queue)
{
    const struct job *small = queue->line[QUEUE_SMALL].first;
    const struct job *big = queue->line[QUEUE_BIG].first;

    if (big != NULL && queue->big_running >= big_limit(queue))
        big = NULL;
    if (big == NULL && small == NULL)
        return NULL;
    return take_first(queue, small == NULL ||
                                 (big != NULL &&
                                  big->queued_ns < small->queued_ns));
}

/* How long what costs so much takes to leave this line. */
static int64_t wait_ns(const struct queue *queue, bool is_big, int64_t cost_ns)
{
    int64_t workers = queue->limits.workers;

    if (!is_big)
        workers -= queue->big_running;
    return workers > 1 ? cost_ns / workers : cost_ns;
}

/* Jobs that idle threads are waking up for don't wait; and one may always wait,
 * however long it takes. */
static bool has_room(struct queue *queue, int64_t guess_ns)
{
    bool is_big = guess_ns >= BIG_NS;
    const struct queue_line *line = &queue->line[is_big];
    int64_t idle = atomic_load_explicit(&queue->idle, memory_order_relaxed);

    if (queue->closed || queue->length >= queue->limits.jobs + idle)
        return false;
    return line->first == NULL || queue->length <= idle ||
           wait_ns(queue, is_big, line->waiting_ns) < queue->limits.wait_ns;
}

/* ---- for everybody ---- */

bool queue_has_room(struct queue *queue, size_t body_len)
{
    bool room;

    pthread_mutex_lock(&queue->mutex);
    room = has_room(queue, cost_guess(&queue->cost, body_len));
    pthread_mutex_unlock(&queue->mutex);
    return room;
}

bool queue_push(struct queue *queue, struct job *job)
{
    bool accepted;

    pthread_mutex_lock(&queue->mutex);
    job->sent_len = job->body_len;
    job->guess_ns = cost_guess(&queue->cost, job->sent_len);
    accepted = has_room(queue, job->guess_ns);
    if (accepted) {
        job->is_big = job->guess_ns >= BIG_NS;
        if (!job->is_big && job->guess_ns > 0)
            queue->small_ns = job->queued_ns;
        append(queue, job);
    }
    pthread_mutex_unlock(&queue->mutex);
    return accepted;
}

bool queue_promote(struct queue *queue, struct job *job)
{
    bool runs;

    pthread_mutex_lock(&queue->mutex);
    runs = queue->big_running < big_limit(queue);
    queue->big_running += runs;
    job->is_big = runs;
    pthread_mutex_unlock(&queue->mutex);
    return runs;
}

void queue_put_back(struct queue *queue, struct job *job)
{
    pthread_mutex_lock(&queue->mutex);
    job->is_big = true;
    append(queue, job);
    pthread_mutex_unlock(&queue->mutex);
}

void queue_done(struct queue *queue, const struct job *job, int64_t worker_ns)
{
    pthread_mutex_lock(&queue->mutex);
    if (worker_ns > 0)
        cost_learn(&queue->cost, job->sent_len, worker_ns);
    if (job->is_big) {
        queue->big_running--;
        if (queue->line[QUEUE_BIG].first != NULL)
            pthread_cond_signal(&queue->work);
    } else if (worker_ns > 0 && worker_ns < BIG_NS) {
        queue->small_ns = clock_ns();
    }
    pthread_mutex_unlock(&queue->mutex);
}

/* `next` is read while others add to it: it only grows, so a call that looks
 * finished is, and one that only looked unfinished costs its helper a glance. */
static struct call *enter_call(struct queue *queue)
{
    for (struct call *call = queue->calls; call != NULL; call = call->below)
        if (atomic_load_explicit(&call->next, memory_order_relaxed) <
            call->pieces) {
            call->helpers++;
            return call;
        }
    return NULL;
}

/* Spinning before the wait was tried and lost: on 2 CPUs the median of a tiny
 * request went from 46 us to 50 with 300 pauses and to 110 with 3000, for the
 * spinner takes its CPU from the I/O thread and the client. */
enum queue_item queue_pop(struct queue *queue, struct job **job,
                          struct call **call)
{
    enum queue_item item;

    pthread_mutex_lock(&queue->mutex);
    for (;;) {
        *job = take_next(queue);
        if (*job != NULL) {
            item = QUEUE_JOB;
            break;
        }
        *call = enter_call(queue);
        if (*call != NULL) {
            item = QUEUE_CALL;
            break;
        }
        if (queue->closed) {
            item = QUEUE_END;
            break;
        }
        atomic_fetch_add_explicit(&queue->idle, 1, memory_order_relaxed);
        pthread_cond_wait(&queue->work, &queue->mutex);
        atomic_fetch_sub_explicit(&queue->idle, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&queue->mutex);
    return item;
}

/* Takes out of a line the late ones, and the newest that can't be in time: what
 * the first of a kind costs is known only after others were let in. Into the
 * list that ends at `end`; returns its new end. */
static struct job **take_late(struct queue *queue, bool is_big, int64_t now_ns,
                              struct job **end)
{
    struct queue_line *line = &queue->line[is_big];
    int64_t ahead_ns = 0;

    for (struct job **link = &line->first; *link != NULL;) {
        struct job *job = *link;
        int64_t before_ns = job->guess_ns;
        bool hopeless = wait_ns(queue, is_big, ahead_ns) >
                        HOPELESS * queue->limits.wait_ns;

        job->guess_ns = cost_guess(&queue->cost, job->sent_len);
        count(queue, is_big, 0, job->guess_ns - before_ns);
        if (job->deadline_ns >= now_ns && !hopeless) {
            ahead_ns += job->guess_ns;
            link = &job->next;
            continue;
        }
        *link = job->next;
        job->next = NULL;
        job->state = JOB_RUNNING;
        *end = job;
        end = &job->next;
        count(queue, is_big, -1, -job->guess_ns);
    }
    line->last = &line->first;
    while (*line->last != NULL)
        line->last = &(*line->last)->next;
    return end;
}

struct job *queue_expire(struct queue *queue, int64_t now_ns)
{
    struct job *expired = NULL, **end = &expired;

    pthread_mutex_lock(&queue->mutex);
    for (int i = 0; i < QUEUE_LINES; i++)
        end = take_late(queue, i, now_ns, end);
    /* What small jobs had kept from it may have become free by time alone. */
    if (queue->line[QUEUE_BIG].first != NULL &&
        queue->big_running < big_limit(queue))
        pthread_cond_signal(&queue->work);
    pthread_mutex_unlock(&queue->mutex);
    return expired;
}

void queue_close(struct queue *queue)
{
    pthread_mutex_lock(&queue->mutex);
    queue->closed = true;
    tell(queue);
    pthread_cond_broadcast(&queue->work);
    pthread_mutex_unlock(&queue->mutex);
}

void queue_call(struct queue *queue, struct call *call)
{
    int64_t wanted = call->pieces - 1; /* the caller runs one itself */

    pthread_mutex_lock(&queue->mutex);
    call->below = queue->calls;
    queue->calls = call;
    tell(queue);
    for (int64_t i = 0;
         i < wanted && i < atomic_load_explicit(&queue->idle,
                                                memory_order_relaxed);
         i++)
        pthread_cond_signal(&queue->work);
    pthread_mutex_unlock(&queue->mutex);
}

/* Others go first where there are more threads than CPUs. */
static void wait_awake_for_helpers(const struct call *call)
{
    int64_t end = clock_ns() + AWAKE_NS;

    while (atomic_load_explicit(&call->helpers, memory_order_relaxed) > 0 &&
           clock_ns() < end)
        sched_yield();
}

void queue_uncall(struct queue *queue, struct call *call)
{
    struct call **link = &queue->calls;

    pthread_mutex_lock(&queue->mutex);
    while (*link != call)
        link = &(*link)->below;
    *link = call->below;
    if (call->helpers > 0) {
        pthread_mutex_unlock(&queue->mutex);
        wait_awake_for_helpers(call);
        pthread_mutex_lock(&queue->mutex);
    }
    while (call->helpers > 0)
        pthread_cond_wait(&queue->left, &queue->mutex);
    pthread_mutex_unlock(&queue->mutex);
}

/* Gives the mutex away until there is news, or no use in waiting. On two CPUs a
 * layer of L 128, E 768 went from 1.53 ms to 1.42. */
static void stay_awake(struct queue *queue)
{
    uint64_t news = atomic_load_explicit(&queue->news, memory_order_relaxed);
    int64_t end = clock_ns() + AWAKE_NS;

    atomic_fetch_add_explicit(&queue->idle, 1, memory_order_relaxed);
    pthread_mutex_unlock(&queue->mutex);
    while (atomic_load_explicit(&queue->news, memory_order_relaxed) == news &&
           atomic_load_explicit(&queue->computing, memory_order_relaxed) > 0 &&
           clock_ns() < end)
        sched_yield();
    pthread_mutex_lock(&queue->mutex);
    atomic_fetch_sub_explicit(&queue->idle, 1, memory_order_relaxed);
}

void queue_leave(struct queue *queue, struct call *call)
{
    pthread_mutex_lock(&queue->mutex);
    call->helpers--;
    if (call->helpers == 0)
        pthread_cond_broadcast(&queue->left);
    stay_awake(queue);
    pthread_mutex_unlock(&queue->mutex);
}

void queue_begin_calls(struct queue *queue)
{
    atomic_fetch_add_explicit(&queue->computing, 1, memory_order_relaxed);
}

void queue_end_calls(struct queue *queue)
{
    atomic_fetch_sub_explicit(&queue->computing, 1, memory_order_relaxed);
}

/* A hint, read without the mutex: wrong at worst means an offer that nobody
 * takes, or none where one thread just fell idle. */
bool queue_has_idle(struct queue *queue)
{
    return atomic_load_explicit(&queue->idle, memory_order_relaxed) > 0;
}

/* The same kind of hint: a helper that misses one looks again after its next
 * piece. */
bool queue_has_small(struct queue *queue)
{
    return atomic_load_explicit(&queue->small_length, memory_order_relaxed) > 0;
}

int queue_retry_s(struct queue *queue)
{
    int64_t ns = atomic_load_explicit(&queue->drain_ns, memory_order_relaxed);
    int64_t s = (ns + CLOCK_NS_PER_S - 1) / CLOCK_NS_PER_S;

    return s < 1 ? 1 : s > LONGEST_RETRY_S ? LONGEST_RETRY_S : (int)s;
}
