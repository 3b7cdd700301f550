#include "server/queue.h"

#include "server/clock.h"
#include "server/job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static struct job *new_job(int64_t deadline_ns)
{
    struct job *job = job_new("/attention");

    assert_non_null(job);
    job->deadline_ns = deadline_ns;
    return job;
}

static struct job *pop(struct queue *queue)
{
    struct job *job = NULL;
    struct call *call = NULL;

    assert_int_equal(queue_pop(queue, &job, &call), QUEUE_JOB);
    return job;
}

static void jobs_leave_in_the_order_in_which_they_came(void **state)
{
    struct queue queue;
    struct job *jobs[3];

    (void)state;
    assert_true(queue_init(&queue, 3));
    for (int i = 0; i < 3; i++) {
        jobs[i] = new_job(0);
        assert_true(queue_push(&queue, jobs[i]));
        assert_int_equal(jobs[i]->state, JOB_QUEUED);
    }
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(pop(&queue), jobs[i]);
        assert_int_equal(jobs[i]->state, JOB_RUNNING);
        free(jobs[i]);
    }
    queue_free(&queue);
}

static void full_queue_refuses_and_leaves_the_job_with_the_caller(void **state)
{
    struct queue queue;
    struct job *first = new_job(0), *second = new_job(0);

    (void)state;
    assert_true(queue_init(&queue, 1));
    assert_true(queue_push(&queue, first));
    assert_false(queue_push(&queue, second));
    assert_int_equal(second->state, JOB_OPENED);
    assert_ptr_equal(pop(&queue), first);
    assert_true(queue_push(&queue, second));
    assert_ptr_equal(pop(&queue), second);
    free(first);
    free(second);
    queue_free(&queue);
}

static void a_closed_queue_refuses_but_gives_what_it_has(void **state)
{
    struct queue queue;
    struct job *first = new_job(0), *second = new_job(0), *none = NULL;
    struct call *call = NULL;

    (void)state;
    assert_true(queue_init(&queue, 2));
    assert_true(queue_push(&queue, first));
    queue_close(&queue);
    assert_false(queue_push(&queue, second));
    assert_ptr_equal(pop(&queue), first);
    assert_int_equal(queue_pop(&queue, &none, &call), QUEUE_END);
    free(first);
    free(second);
    queue_free(&queue);
}

static void jobs_past_their_deadline_are_taken_out_wherever_they_stand(void **state)
{
    struct queue queue;
    struct job *jobs[5];

    (void)state;
    assert_true(queue_init(&queue, 8));
    for (int i = 0; i < 5; i++) {
        jobs[i] = new_job(i % 2 == 0 ? 10 : 1000);
        assert_true(queue_push(&queue, jobs[i]));
    }

    struct job *expired = queue_expire(&queue, 500);

    assert_ptr_equal(expired, jobs[0]);
    assert_ptr_equal(expired->next, jobs[2]);
    assert_ptr_equal(expired->next->next, jobs[4]);
    assert_null(jobs[4]->next);
    assert_null(queue_expire(&queue, 500));
    assert_true(queue_push(&queue, jobs[4])); /* the end of the line is sound */
    assert_ptr_equal(pop(&queue), jobs[1]);
    assert_ptr_equal(pop(&queue), jobs[3]);
    assert_ptr_equal(pop(&queue), jobs[4]);
    for (int i = 0; i < 5; i++)
        free(jobs[i]);
    queue_free(&queue);
}

struct consumer {
    struct queue *queue;
    int popped;
};

static void *consume(void *arg)
{
    struct consumer *consumer = arg;
    struct job *job;
    struct call *call;

    while (queue_pop(consumer->queue, &job, &call) == QUEUE_JOB) {
        free(job);
        consumer->popped++;
    }
    return NULL;
}

static void every_job_is_popped_once_by_many_threads(void **state)
{
    enum { THREADS = 4, JOBS = 20000 };
    struct queue queue;
    struct consumer consumers[THREADS];
    pthread_t threads[THREADS];
    int pushed = 0, popped = 0;

    (void)state;
    assert_true(queue_init(&queue, 64));
    for (int i = 0; i < THREADS; i++) {
        consumers[i] = (struct consumer){ .queue = &queue };
        assert_int_equal(pthread_create(&threads[i], NULL, consume,
                                        &consumers[i]), 0);
    }
    while (pushed < JOBS) {
        struct job *job = new_job(0);

        while (!queue_push(&queue, job))
            clock_sleep_ns(1000);
        pushed++;
    }
    queue_close(&queue);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        popped += consumers[i].popped;
    }
    assert_int_equal(popped, JOBS);
    queue_free(&queue);
}

static bool count_piece(void *arg, int64_t piece, struct arena *scratch)
{
    (void)scratch;
    atomic_fetch_add((_Atomic int64_t *)arg, piece + 1);
    return true;
}

static void run_pieces(struct call *call)
{
    int64_t i;

    while ((i = atomic_fetch_add(&call->next, 1)) < call->pieces)
        call->piece(call->arg, i, NULL);
}

static void *assist(void *arg)
{
    struct queue *queue = arg;
    struct job *job;
    struct call *call;

    while (queue_pop(queue, &job, &call) == QUEUE_CALL) {
        run_pieces(call);
        queue_leave(queue, call);
    }
    return NULL;
}

static void a_call_for_help_is_over_when_every_piece_has_run_once(void **state)
{
    enum { ROUNDS = 2000, PIECES = 7 };
    struct queue queue;
    pthread_t helpers[2];

    (void)state;
    assert_true(queue_init(&queue, 1));
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&helpers[i], NULL, assist, &queue), 0);
    for (int round = 0; round < ROUNDS; round++) {
        _Atomic int64_t sum = 0;
        struct call call = { .piece = count_piece, .arg = &sum,
                             .pieces = PIECES };

        queue_call(&queue, &call);
        run_pieces(&call);
        queue_uncall(&queue, &call);
        assert_int_equal(sum, PIECES * (PIECES + 1) / 2);
    }
    queue_close(&queue);
    for (int i = 0; i < 2; i++)
        pthread_join(helpers[i], NULL);
    queue_free(&queue);
}

static void a_waiting_job_goes_before_a_call_for_help(void **state)
{
    struct queue queue;
    struct job *job = new_job(0), *popped = NULL;
    struct call call = { .pieces = 2 }, *entered = NULL;

    (void)state;
    assert_true(queue_init(&queue, 1));
    queue_call(&queue, &call);
    assert_true(queue_push(&queue, job));
    assert_int_equal(queue_pop(&queue, &popped, &entered), QUEUE_JOB);
    assert_int_equal(queue_pop(&queue, &popped, &entered), QUEUE_CALL);
    assert_ptr_equal(entered, &call);
    queue_leave(&queue, entered);
    queue_uncall(&queue, &call);
    free(job);
    queue_free(&queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_leave_in_the_order_in_which_they_came),
        cmocka_unit_test(full_queue_refuses_and_leaves_the_job_with_the_caller),
        cmocka_unit_test(a_closed_queue_refuses_but_gives_what_it_has),
        cmocka_unit_test(jobs_past_their_deadline_are_taken_out_wherever_they_stand),
        cmocka_unit_test(every_job_is_popped_once_by_many_threads),
        cmocka_unit_test(a_call_for_help_is_over_when_every_piece_has_run_once),
        cmocka_unit_test(a_waiting_job_goes_before_a_call_for_help),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
