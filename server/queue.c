#include "server/queue.h"

#include "server/job.h"
#include "server/metrics.h"

bool queue_init(struct queue *queue, int64_t capacity)
{
    *queue = (struct queue){ .capacity = capacity };
    queue->last = &queue->first;
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

/* With the mutex held. */
static void set_length(struct queue *queue, int64_t length)
{
    queue->length = length;
    metrics_set(METRIC_queue_jobs, length);
}

bool queue_push(struct queue *queue, struct job *job)
{
    bool accepted;

    pthread_mutex_lock(&queue->mutex);
    /* A job that an idle thread is waking up for does not wait. */
    accepted = !queue->closed &&
               queue->length < queue->capacity +
                                   atomic_load_explicit(&queue->idle,
                                                        memory_order_relaxed);
    if (accepted) {
        job->state = JOB_QUEUED;
        job->next = NULL;
        *queue->last = job;
        queue->last = &job->next;
        set_length(queue, queue->length + 1);
        pthread_cond_signal(&queue->work);
    }
    pthread_mutex_unlock(&queue->mutex);
    return accepted;
}

static struct job *take_first(struct queue *queue)
{
    struct job *job = queue->first;

    queue->first = job->next;
    if (queue->first == NULL)
        queue->last = &queue->first;
    set_length(queue, queue->length - 1);
    job->state = JOB_RUNNING;
    return job;
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
        if (queue->first != NULL) {
            *job = take_first(queue);
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

struct job *queue_expire(struct queue *queue, int64_t now_ns)
{
    struct job *expired = NULL, **end = &expired;

    pthread_mutex_lock(&queue->mutex);
    for (struct job **link = &queue->first; *link != NULL;) {
        struct job *job = *link;

        if (job->deadline_ns >= now_ns) {
            link = &job->next;
            continue;
        }
        *link = job->next;
        job->next = NULL;
        job->state = JOB_RUNNING;
        *end = job;
        end = &job->next;
        set_length(queue, queue->length - 1);
    }
    queue->last = &queue->first;
    while (*queue->last != NULL)
        queue->last = &(*queue->last)->next;
    pthread_mutex_unlock(&queue->mutex);
    return expired;
}

void queue_close(struct queue *queue)
{
    pthread_mutex_lock(&queue->mutex);
    queue->closed = true;
    pthread_cond_broadcast(&queue->work);
    pthread_mutex_unlock(&queue->mutex);
}

void queue_call(struct queue *queue, struct call *call)
{
    int64_t wanted = call->pieces - 1; /* the caller runs one itself */

    pthread_mutex_lock(&queue->mutex);
    call->below = queue->calls;
    queue->calls = call;
    for (int64_t i = 0;
         i < wanted && i < atomic_load_explicit(&queue->idle,
                                                memory_order_relaxed);
         i++)
        pthread_cond_signal(&queue->work);
    pthread_mutex_unlock(&queue->mutex);
}

void queue_uncall(struct queue *queue, struct call *call)
{
    struct call **link = &queue->calls;

    pthread_mutex_lock(&queue->mutex);
    while (*link != call)
        link = &(*link)->below;
    *link = call->below;
    while (call->helpers > 0)
        pthread_cond_wait(&queue->left, &queue->mutex);
    pthread_mutex_unlock(&queue->mutex);
}

void queue_leave(struct queue *queue, struct call *call)
{
    pthread_mutex_lock(&queue->mutex);
    call->helpers--;
    if (call->helpers == 0)
        pthread_cond_broadcast(&queue->left);
    pthread_mutex_unlock(&queue->mutex);
}

/* A hint, read without the mutex: wrong at worst means an offer that nobody
 * takes, or none where one thread just fell idle. */
bool queue_has_idle(struct queue *queue)
{
    return atomic_load_explicit(&queue->idle, memory_order_relaxed) > 0;
}
