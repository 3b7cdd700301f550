#include "server/job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct budget budget;

static struct job *new_job(const char *target)
{
    struct job *job = job_new(target, NULL);

    assert_non_null(job);
    return job;
}

static int setup(void **state)
{
    (void)state;
    budget_init(&budget, 1 << 20);
    return 0;
}

static void a_target_is_cut_at_the_question_mark(void **state)
{
    struct job *job = new_job("/attention?num_heads=2&x");

    (void)state;
    assert_string_equal(job->target, "/attention");
    assert_string_equal(job->query, "num_heads=2&x");
    job_free(job, &budget);
    job = new_job("/attention");
    assert_null(job->query);
    job_free(job, &budget);
}

static void an_absolute_target_asks_for_its_path(void **state)
{
    const struct {
        const char *target, *path;
    } rows[] = {
        { "http://host:80/attention", "/attention" },
        { "HTTPS://host/livez?a=/b", "/livez" },
        { "http://host", "/" },
        { "http://host?x", "" },
        { "/http://host/livez", "/http://host/livez" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct job *job = new_job(rows[i].target);

        assert_string_equal(job->target, rows[i].path);
        job_free(job, &budget);
    }
}

static void a_clients_request_id_is_kept_when_it_is_harmless(void **state)
{
    char longest[130];
    struct job *job = new_job("/");
    char own[JOB_ID_BYTES];

    (void)state;
    memset(longest, 'x', 129);
    longest[129] = '\0';
    memcpy(own, job->id, sizeof own);
    assert_true(strlen(own) > 16);

    const char *const refused[] = { NULL,      "",       "a b",   "a\r\nX: y",
                                    "a/b",     "\xc3\xa4", "a;b", longest };

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        job_identify(job, refused[i]);
        assert_string_equal(job->id, own);
    }
    job_identify(job, longest + 1);
    assert_string_equal(job->id, longest + 1);
    job_identify(job, "Az0._- \t"); /* blanks at an end are not the value's */
    assert_string_equal(job->id, "Az0._-");
    job_free(job, &budget);
}

static void no_two_fresh_ids_are_equal(void **state)
{
    char a[JOB_ID_BYTES], b[JOB_ID_BYTES];

    (void)state;
    job_fresh_id(a);
    job_fresh_id(b);
    assert_string_not_equal(a, b);
}

static void a_body_of_known_length_is_reserved_before_it_comes(void **state)
{
    struct job *job = new_job("/attention");

    (void)state;
    job->headers = (struct headers){ .length = 1000 };
    assert_true(job_expect_body(job, &budget, 2000));
    assert_int_equal(budget_reserved(&budget), 1000);
    assert_true(job_take_body(job, "abc", 3, &budget, 2000));
    assert_int_equal(job->body_len, 3);
    job_drop_body(job, &budget);
    assert_int_equal(budget_reserved(&budget), 0);
    job_free(job, &budget);
}

static void a_body_over_the_limit_is_refused_by_its_length(void **state)
{
    struct job *job = new_job("/attention");

    (void)state;
    job->headers = (struct headers){ .length = 2001 };
    assert_false(job_expect_body(job, &budget, 2000));
    assert_int_equal(job->error.code, ERR_TOO_LARGE);
    assert_int_equal(budget_reserved(&budget), 0);
    job_free(job, &budget);
}

static void a_body_of_unknown_length_is_refused_at_the_limit(void **state)
{
    struct job *job = new_job("/attention");
    static char bytes[200000];

    (void)state;
    job->headers = (struct headers){ .is_chunked = true };
    assert_true(job_expect_body(job, &budget, 150000));
    assert_true(job_take_body(job, bytes, 100000, &budget, 150000));
    assert_true(job_take_body(job, bytes, 50000, &budget, 150000));
    assert_int_equal(budget_reserved(&budget), 150000);
    assert_false(job_take_body(job, bytes, 1, &budget, 150000));
    assert_int_equal(job->error.code, ERR_TOO_LARGE);
    job_free(job, &budget);
    assert_int_equal(budget_reserved(&budget), 0);
}

static void a_body_the_budget_has_no_room_for_is_refused(void **state)
{
    struct job *job = new_job("/attention");
    struct error err = { 0 };

    (void)state;
    assert_true(budget_take(&budget, (1 << 20) - 100, &err));
    job->headers = (struct headers){ .length = 101 };
    assert_false(job_expect_body(job, &budget, 2000));
    assert_int_equal(job->error.code, ERR_OVERLOADED);
    job_free(job, &budget);
    assert_int_equal(budget_reserved(&budget), (1 << 20) - 100);
}

static void what_could_never_fit_is_too_large_and_not_overloaded(void **state)
{
    struct error err = { 0 };

    (void)state;
    assert_false(budget_take(&budget, (1 << 20) + 1, &err));
    assert_int_equal(err.code, ERR_TOO_LARGE);
}

static void a_refusal_is_a_problem_with_the_requests_id(void **state)
{
    struct job *job = new_job("/attention");

    (void)state;
    job_identify(job, "the-id");
    error_set(&job->error, ERR_OVERLOADED, "", "no room");
    job_refuse(job);
    assert_int_equal(job->reply.status, 503);
    assert_string_equal(job->reply.media_type, "application/problem+json");
    assert_non_null(memmem(job->reply.data, job->reply.len, "\"the-id\"", 8));
    assert_non_null(memmem(job->reply.data, job->reply.len, "overloaded", 10));
    job_free(job, &budget);
}

static void a_reply_keeps_its_part_of_what_was_reserved(void **state)
{
    struct job *job = new_job("/attention"), *other = new_job("/attention");

    (void)state;
    assert_true(job_reserve(other, &budget, (1 << 20) - 100));
    job->headers = (struct headers){ .length = 100 };
    assert_true(job_expect_body(job, &budget, 2000));
    job_answer_static(job, "text/plain", "abc", 3);
    job_keep_reply(job, &budget);
    assert_null(job->body);
    assert_int_equal(job->reserved_bytes, 3);
    assert_true(job_reserve(other, &budget, (1 << 20) - 3));
    job_answer_static(job, "text/plain", "abcd", 4);
    job_keep_reply(job, &budget);
    assert_int_equal(job->reserved_bytes, 3);
    assert_int_equal(job->error.code, ERR_NONE);
    job_free(job, &budget);
    job_free(other, &budget);
    assert_int_equal(budget_reserved(&budget), 0);
}

/* A connection that is kept holds it: a path of 30 KB must not stay there. */
static void a_job_that_has_ended_is_used_again_unless_its_target_was_long(
    void **state)
{
    char target[30000];
    struct job *job = new_job("/attention?num_heads=2"), *spare;

    (void)state;
    memset(target, '/', sizeof target - 1);
    target[sizeof target - 1] = '\0';
    job_identify(job, "first");
    error_set(&job->error, ERR_OVERLOADED, "", "no room");
    job_refuse(job);
    spare = job_end(job, &budget);
    assert_ptr_equal(spare, job);
    job = job_new("/livez", spare);
    assert_ptr_equal(job, spare);
    assert_string_equal(job->target, "/livez");
    assert_null(job->query);
    assert_null(job->reply.data);
    assert_int_equal(job->error.code, ERR_NONE);
    assert_string_not_equal(job->id, "first");
    job = job_new(target, job_end(job, &budget));
    assert_non_null(job);
    assert_string_equal(job->target, target);
    assert_null(job_end(job, &budget));
}

static void timings_are_milliseconds_in_the_order_of_the_work(void **state)
{
    struct job *job = new_job("/");
    char text[JOB_TIMING_BYTES];

    (void)state;
    job->queue_ns = 1500;
    job->decode_ns = 2000000;
    job->compute_ns = 3000000000;
    assert_string_equal(job_timing(job, text),
                        "queue;dur=0.002, decode;dur=2.000, "
                        "compute;dur=3000.000, encode;dur=0.000");
    job->queue_ns = job->decode_ns = job->compute_ns = job->encode_ns =
        INT64_MAX;
    assert_true(strlen(job_timing(job, text)) < sizeof text);
    job_free(job, &budget);
}

#define WITH_BUDGET(test) cmocka_unit_test_setup(test, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_BUDGET(a_target_is_cut_at_the_question_mark),
        WITH_BUDGET(an_absolute_target_asks_for_its_path),
        WITH_BUDGET(a_clients_request_id_is_kept_when_it_is_harmless),
        WITH_BUDGET(no_two_fresh_ids_are_equal),
        WITH_BUDGET(a_body_of_known_length_is_reserved_before_it_comes),
        WITH_BUDGET(a_body_over_the_limit_is_refused_by_its_length),
        WITH_BUDGET(a_body_of_unknown_length_is_refused_at_the_limit),
        WITH_BUDGET(a_body_the_budget_has_no_room_for_is_refused),
        WITH_BUDGET(what_could_never_fit_is_too_large_and_not_overloaded),
        WITH_BUDGET(a_refusal_is_a_problem_with_the_requests_id),
        WITH_BUDGET(a_reply_keeps_its_part_of_what_was_reserved),
        WITH_BUDGET(
            a_job_that_has_ended_is_used_again_unless_its_target_was_long),
        WITH_BUDGET(timings_are_milliseconds_in_the_order_of_the_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
