#include "server/body.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BUDGET = 64 * 1024 * 1024 };

static struct budget budget;

static int setup(void **state)
{
    (void)state;
    budget_init(&budget, BUDGET);
    return 0;
}

/* A job whose body is `len` spaces, packed. */
static struct job *new_job(enum coding coding, size_t len)
{
    struct job *job = job_new("/attention", NULL);
    uint8_t *text = malloc(len);
    struct buffer packed;

    assert_true(job != NULL && text != NULL);
    memset(text, ' ', len);
    buffer_init(&packed, SIZE_MAX);
    assert_true(coding_pack(coding, (struct bytes){ text, len }, false,
                            &packed));
    free(text);
    job->coding = coding;
    job->method = METHOD_POST;
    job->headers.length = (int64_t)packed.len;
    assert_true(job_expect_body(job, &budget, INT64_MAX));
    assert_true(job_take_body(job, packed.data, packed.len, &budget,
                              INT64_MAX));
    buffer_free(&packed);
    return job;
}

static const enum coding codings[] = { CODING_GZIP, CODING_ZSTD };

#define FOR_EACH_CODING(i) \
    for (size_t i = 0; i < sizeof codings / sizeof *codings; i++)

static void a_body_is_unpacked_up_to_the_limit_and_not_beyond(void **state)
{
    static const size_t lens[] = { 1000, 70000, 131072, 1000000 };

    (void)state;
    FOR_EACH_CODING(i)
        for (size_t j = 0; j < sizeof lens / sizeof *lens; j++)
            for (size_t limit = lens[j] - 1; limit <= lens[j] + 1; limit++) {
                struct job *job = new_job(codings[i], lens[j]);
                bool fits = limit >= lens[j];

                assert_int_equal(body_unpack(job, &budget, (int64_t)limit),
                                 fits);
                assert_int_equal(job->error.code,
                                 fits ? ERR_NONE : ERR_TOO_LARGE);
                if (fits) {
                    assert_int_equal(job->body_len, lens[j]);
                    assert_true(job->body_size <= limit + 1);
                    assert_int_equal(job->body[lens[j] - 1], ' ');
                    assert_int_equal(budget_reserved(&budget),
                                     job->body_size);
                    /* A job that is put back in line is unpacked already. */
                    assert_true(body_unpack(job, &budget, 1));
                    assert_int_equal(job->body_len, lens[j]);
                }
                job_free(job, &budget);
                assert_int_equal(budget_reserved(&budget), 0);
            }
}

/* As one that was put back in line is, once it was found to be a big one. */
static void a_body_is_unpacked_once_however_often_it_is_decoded(void **state)
{
    (void)state;
    FOR_EACH_CODING(i) {
        struct job *job = new_job(codings[i], 100000);
        const uint8_t *body;

        assert_true(body_unpack(job, &budget, 100000));
        body = job->body;
        assert_true(body_unpack(job, &budget, 100000));
        assert_ptr_equal(job->body, body);
        assert_int_equal(job->body_len, 100000);
        assert_int_equal(budget_reserved(&budget), job->body_size);
        job_free(job, &budget);
    }
}

static void what_the_budget_has_no_room_for_is_refused(void **state)
{
    (void)state;
    FOR_EACH_CODING(i) {
        struct job *job = new_job(codings[i], 10000000);

        budget.limit_bytes = 8 * 1024 * 1024;
        assert_false(body_unpack(job, &budget, INT64_MAX / 4));
        assert_true(job->error.code == ERR_TOO_LARGE ||
                    job->error.code == ERR_OVERLOADED);
        budget.limit_bytes = BUDGET;
        job_free(job, &budget);
        assert_int_equal(budget_reserved(&budget), 0);
    }
}

static void a_damaged_body_leaves_nothing_behind(void **state)
{
    (void)state;
    FOR_EACH_CODING(i) {
        struct job *job = new_job(codings[i], 100000);

        job->body_len--;
        assert_false(body_unpack(job, &budget, 1000000));
        assert_int_equal(job->error.code, ERR_REQUEST);
        job_free(job, &budget);
        assert_int_equal(budget_reserved(&budget), 0);
    }
}

static void a_body_that_is_not_packed_stays_where_it_is(void **state)
{
    struct job *job = new_job(CODING_GZIP, 1000);
    const uint8_t *body = job->body;

    (void)state;
    job->coding = CODING_IDENTITY;
    assert_true(body_unpack(job, &budget, 1));
    assert_ptr_equal(job->body, body);
    job_free(job, &budget);
}

/* ---- replies ---- */

static struct job *answered(const char *media_type, size_t len,
                            const char *accept_encoding)
{
    struct job *job = job_new("/attention", NULL);
    struct buffer text;

    assert_non_null(job);
    job->headers.accept_encoding = accept_encoding;
    buffer_init(&text, SIZE_MAX);
    for (size_t i = 0; i < len; i++)
        buffer_append(&text, "0.25,0.125,"+ i % 11, 1);
    job_answer(job, media_type, &text);
    body_pack_reply(job);
    return job;
}

static void long_text_is_packed_for_who_wants_it(void **state)
{
    static const struct {
        const char *media_type;
        size_t len;
        const char *accept, *coding;
        bool varies;
    } rows[] = {
        { "application/json", 1025, "gzip", "gzip", true },
        { "application/json", 1025, "zstd, gzip", "zstd", true },
        { "application/problem+json", 1025, "gzip", "gzip", true },
        { "text/plain; version=0.0.4; charset=utf-8", 1025, "gzip", "gzip",
          true },
        { "application/json", 1025, NULL, NULL, true },
        { "application/json", 1025, "br", NULL, true },
        { "application/json", 1024, "gzip", NULL, false },
        { "application/x-npy", 5000, "gzip", NULL, false },
        { "application/x-safetensors", 5000, "gzip", NULL, false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct job *job = answered(rows[i].media_type, rows[i].len,
                                   rows[i].accept);
        const struct reply *reply = &job->reply;

        if (rows[i].coding == NULL) {
            assert_null(reply->coding);
            assert_int_equal(reply->len, rows[i].len);
        } else {
            assert_string_equal(reply->coding, rows[i].coding);
            assert_true(reply->len < rows[i].len);
        }
        assert_int_equal(reply->varies, rows[i].varies);
        assert_string_equal(reply->media_type, rows[i].media_type);
        assert_int_equal(reply->status, 200);
        job_free(job, &budget);
    }
}

static struct job *answered_with(const char *text, size_t len)
{
    struct job *job = job_new("/openapi.json", NULL);

    assert_non_null(job);
    job->headers.accept_encoding = "gzip";
    job_set_header(job, "ETag", "\"tag\"");
    job_answer_static(job, "application/json", text, len);
    body_pack_reply(job);
    return job;
}

static void static_text_is_packed_once_and_its_tag_grows_weak(void **state)
{
    static char text[5000];
    struct job *first, *second;

    (void)state;
    memset(text, ' ', sizeof text);
    first = answered_with(text, sizeof text);
    second = answered_with(text, sizeof text);
    assert_string_equal(first->reply.coding, "gzip");
    assert_string_equal(first->reply.header_value, "W/\"tag\"");
    assert_true(first->reply.len > 0 && first->reply.len < sizeof text);
    assert_null(first->reply.data);
    assert_ptr_equal(first->reply.static_data, second->reply.static_data);
    job_free(first, &budget);
    job_free(second, &budget);
}

#define WITH_BUDGET(test) cmocka_unit_test_setup(test, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_BUDGET(a_body_is_unpacked_up_to_the_limit_and_not_beyond),
        WITH_BUDGET(a_body_is_unpacked_once_however_often_it_is_decoded),
        WITH_BUDGET(what_the_budget_has_no_room_for_is_refused),
        WITH_BUDGET(a_damaged_body_leaves_nothing_behind),
        WITH_BUDGET(a_body_that_is_not_packed_stays_where_it_is),
        WITH_BUDGET(long_text_is_packed_for_who_wants_it),
        WITH_BUDGET(static_text_is_packed_once_and_its_tag_grows_weak),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
