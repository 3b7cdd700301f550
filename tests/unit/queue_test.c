#include "server/queue.h"

#include "server/clock.h"
#include "server/job.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static struct job *new_job(int64_t deadline_ns)
{
    struct job *job = job_new("/attention", NULL);

    assert_non_null(job);
    job->deadline_ns = deadline_ns;
    return job;
}

/* Waits are bounded by a second. */
static void start(struct queue *queue, int64_t jobs, int64_t workers)
{
    assert_true(queue_init(queue, (struct queue_limits){ jobs, CLOCK_NS_PER_S,
                                                         workers }));
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
    start(&queue, 3, 4);
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
    start(&queue, 1, 4);
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
    start(&queue, 2, 4);
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
    start(&queue, 8, 4);
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
    start(&queue, 64, 4);
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
    start(&queue, 1, 4);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&helpers[i], NULL, assist, &queue), 0);
    for (int round = 0; round < ROUNDS; round++) {
        _Atomic int64_t sum = 0;
        struct call call = { .piece = count_piece, .arg = &sum,
                             .pieces = PIECES };

        if (round % 20 == 10) /* from now on, helpers stay awake in between */
            queue_begin_calls(&queue);
        queue_call(&queue, &call);
        run_pieces(&call);
        queue_uncall(&queue, &call);
        assert_int_equal(sum, PIECES * (PIECES + 1) / 2);
        if (round % 20 == 19)
            queue_end_calls(&queue);
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
    start(&queue, 1, 4);
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

/* Bodies of this many bytes have cost so much. */
static void teach(struct queue *queue, size_t body_len, int64_t ns)
{
    struct job *job = new_job(0);

    job->body_len = job->sent_len = body_len;
    queue_done(queue, job, ns);
    free(job);
}

static struct job *push(struct queue *queue, size_t body_len)
{
    struct job *job = new_job(0);

    job->body_len = body_len;
    job->queued_ns = clock_ns();
    assert_true(queue_push(queue, job));
    return job;
}

enum { SMALL = 100, BIG = 100000 }; /* bytes */

static void start_with_both(struct queue *queue, int64_t workers)
{
    start(queue, 100, workers);
    teach(queue, SMALL, CLOCK_NS_PER_MS);
    teach(queue, BIG, 100 * CLOCK_NS_PER_MS);
}

static void big_jobs_leave_a_worker_to_small_ones(void **state)
{
    struct queue queue;
    struct job *big[2], *small;

    (void)state;
    start_with_both(&queue, 2);
    big[0] = push(&queue, BIG);
    big[1] = push(&queue, BIG);
    small = push(&queue, SMALL);
    assert_ptr_equal(pop(&queue), big[0]);
    assert_ptr_equal(pop(&queue), small);
    queue_done(&queue, big[0], 100 * CLOCK_NS_PER_MS);
    assert_ptr_equal(pop(&queue), big[1]);
    free(big[0]);
    free(big[1]);
    free(small);
    queue_free(&queue);
}

static void *pop_one(void *arg)
{
    return pop(arg);
}

static void a_big_job_is_woken_for_when_small_ones_come_no_more(void **state)
{
    struct queue queue;
    struct job *big[2], *small;
    pthread_t thread;
    void *popped;

    (void)state;
    start_with_both(&queue, 2);
    big[0] = push(&queue, BIG);
    small = push(&queue, SMALL);
    assert_ptr_equal(pop(&queue), big[0]);
    assert_ptr_equal(pop(&queue), small);
    big[1] = push(&queue, BIG);
    assert_int_equal(pthread_create(&thread, NULL, pop_one, &queue), 0);
    while (!queue_has_idle(&queue))
        sched_yield();
    pthread_mutex_lock(&queue.mutex); /* so it waits by now */
    queue.small_ns -= 2 * CLOCK_NS_PER_S;
    big[1]->deadline_ns = INT64_MAX;
    pthread_mutex_unlock(&queue.mutex);
    assert_null(queue_expire(&queue, 0));
    assert_int_equal(pthread_join(thread, &popped), 0);
    assert_ptr_equal(popped, big[1]);
    free(big[0]);
    free(big[1]);
    free(small);
    queue_free(&queue);
}

static void expect_in_turn(int64_t workers)
{
    struct queue queue;
    struct job *small, *big;

    start_with_both(&queue, workers);
    big = push(&queue, BIG);
    small = push(&queue, SMALL);
    assert_ptr_equal(pop(&queue), big);
    assert_ptr_equal(pop(&queue), small);
    free(big);
    free(small);
    queue_free(&queue);
}

static void the_oldest_goes_first_while_big_jobs_are_few(void **state)
{
    (void)state;
    expect_in_turn(4);
}

static void big_jobs_have_all_workers_when_no_small_one_was_seen(void **state)
{
    struct queue queue;
    struct job *big[2];

    (void)state;
    start(&queue, 100, 2);
    teach(&queue, BIG, 100 * CLOCK_NS_PER_MS);
    for (int i = 0; i < 2; i++)
        big[i] = push(&queue, BIG);
    for (int i = 0; i < 2; i++)
        assert_ptr_equal(pop(&queue), big[i]);
    for (int i = 0; i < 2; i++)
        free(big[i]);
    queue_free(&queue);
}

static void one_worker_takes_both_in_turn(void **state)
{
    (void)state;
    expect_in_turn(1);
}

static void a_job_found_to_be_big_waits_for_those_that_run(void **state)
{
    struct queue queue;
    struct job *first, *second;

    (void)state;
    start_with_both(&queue, 2);
    first = push(&queue, 5); /* of a length never seen */
    second = push(&queue, 6);
    assert_ptr_equal(pop(&queue), first);
    assert_ptr_equal(pop(&queue), second);
    assert_true(queue_promote(&queue, first));
    assert_false(queue_promote(&queue, second));
    queue_put_back(&queue, second);
    queue_done(&queue, first, 100 * CLOCK_NS_PER_MS);
    assert_ptr_equal(pop(&queue), second);
    assert_true(second->is_big);
    free(first);
    free(second);
    queue_free(&queue);
}

static void a_closed_queue_gives_big_jobs_to_every_worker(void **state)
{
    struct queue queue;
    struct job *big[2];

    (void)state;
    start_with_both(&queue, 2);
    for (int i = 0; i < 2; i++)
        big[i] = push(&queue, BIG);
    queue_close(&queue);
    for (int i = 0; i < 2; i++)
        assert_ptr_equal(pop(&queue), big[i]);
    for (int i = 0; i < 2; i++)
        free(big[i]);
    queue_free(&queue);
}

static void a_line_that_would_take_too_long_refuses(void **state)
{
    struct queue queue;
    struct job *jobs[20], *more = new_job(0);

    (void)state;
    start_with_both(&queue, 2);
    for (int i = 0; i < 20; i++) /* 2 s of work, 1 s each */
        jobs[i] = push(&queue, BIG);
    more->body_len = BIG;
    assert_false(queue_has_room(&queue, BIG));
    assert_false(queue_push(&queue, more));
    assert_true(queue_has_room(&queue, SMALL)); /* that line is short */
    assert_int_equal(queue_retry_s(&queue), 1);
    assert_ptr_equal(queue_expire(&queue, INT64_MAX), jobs[0]);
    assert_true(queue_has_room(&queue, BIG));
    for (int i = 0; i < 20; i++)
        free(jobs[i]);
    free(more);
    queue_free(&queue);
}

/* A line whose clients leave would otherwise look as if it were a fast one. */
static void jobs_that_were_not_begun_teach_nothing(void **state)
{
    struct queue queue;
    struct job *job;

    (void)state;
    start_with_both(&queue, 2);
    for (int i = 0; i < 50; i++)
        teach(&queue, BIG, 0);
    job = push(&queue, BIG);
    assert_int_equal(job->guess_ns, 100 * CLOCK_NS_PER_MS);
    free(job);
    queue_free(&queue);
}

static void one_job_may_wait_however_long_it_takes(void **state)
{
    struct queue queue;
    struct job *job;

    (void)state;
    start(&queue, 100, 2);
    teach(&queue, BIG, 100 * (int64_t)CLOCK_NS_PER_S);
    job = push(&queue, BIG);
    assert_false(queue_has_room(&queue, BIG));
    assert_int_equal(queue_retry_s(&queue), 50);
    free(job);
    queue_free(&queue);
}

/* Otherwise who is refused would hang on how fast a thread wakes up. */
static void what_an_idle_worker_is_about_to_take_does_not_wait(void **state)
{
    struct queue queue;
    struct job *taken, *waits;

    (void)state;
    start(&queue, 100, 1);
    teach(&queue, BIG, 100 * (int64_t)CLOCK_NS_PER_S);
    atomic_store(&queue.idle, 1); /* as if a worker were waking up */
    taken = push(&queue, BIG);
    waits = push(&queue, BIG);
    assert_false(queue_has_room(&queue, BIG));
    free(taken);
    free(waits);
    queue_free(&queue);
}

static void the_newest_are_taken_out_when_the_line_proves_slow(void **state)
{
    struct queue queue;
    struct job *jobs[5];

    (void)state;
    start(&queue, 100, 1);
    for (int i = 0; i < 5; i++) {
        jobs[i] = push(&queue, BIG); /* nothing is known of them */
        jobs[i]->deadline_ns = INT64_MAX;
    }
    teach(&queue, BIG, CLOCK_NS_PER_S);
    assert_ptr_equal(queue_expire(&queue, 0), jobs[3]); /* after 3 s */
    assert_ptr_equal(jobs[3]->next, jobs[4]);
    for (int i = 0; i < 3; i++)
        assert_ptr_equal(pop(&queue), jobs[i]);
    for (int i = 0; i < 5; i++)
        free(jobs[i]);
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
        cmocka_unit_test(big_jobs_leave_a_worker_to_small_ones),
        cmocka_unit_test(a_big_job_is_woken_for_when_small_ones_come_no_more),
        cmocka_unit_test(the_oldest_goes_first_while_big_jobs_are_few),
        cmocka_unit_test(big_jobs_have_all_workers_when_no_small_one_was_seen),
        cmocka_unit_test(one_worker_takes_both_in_turn),
        cmocka_unit_test(a_job_found_to_be_big_waits_for_those_that_run),
        cmocka_unit_test(a_closed_queue_gives_big_jobs_to_every_worker),
        cmocka_unit_test(a_line_that_would_take_too_long_refuses),
        cmocka_unit_test(jobs_that_were_not_begun_teach_nothing),
        cmocka_unit_test(one_job_may_wait_however_long_it_takes),
        cmocka_unit_test(what_an_idle_worker_is_about_to_take_does_not_wait),
        cmocka_unit_test(the_newest_are_taken_out_when_the_line_proves_slow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
