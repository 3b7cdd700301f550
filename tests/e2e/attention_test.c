/* What POST /attention promises beyond the cases: numbers that come back bit
 * for bit, one answer in three encodings, comparison, profile, dropout, top-k
 * shapes, and the memory that a large request may take. */
#include "tests/e2e/client.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/retell.h"
#include "tests/load/watch.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

static struct daemon attnd;

static json_t *post(const char *body, long status)
{
    struct reply reply;

    client_post(attnd.port, "/attention", body, strlen(body), &reply);
    if (reply.status != status)
        fail_msg("status %ld: %.300s", reply.status, reply.body);

    json_t *answer = json_loadb(reply.body, reply.len, 0, NULL);

    assert_non_null(answer);
    free(reply.body);
    return answer;
}

static json_t *ask(const char *body)
{
    return post(body, 200);
}

/* One key has weight 1, so the output is the value: text to float and back. */
static void every_float32_exponent_comes_back_bit_for_bit(void **state)
{
    enum { EXPONENTS = 255, EACH = 8, COUNT = EXPONENTS * EACH };
    static float values[COUNT];
    static char body[COUNT * 32 + 100];
    size_t at = (size_t)snprintf(body, sizeof body,
                                 "{\"query\":[[0]],\"value\":[[");

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t bits = i / EACH << 23 | (i * 2654435761u & 0x7FFFFF) |
                        (i & 1) << 31;

        memcpy(&values[i], &bits, sizeof bits);
        at += (size_t)snprintf(body + at, sizeof body - at, "%s%.9g",
                               i == 0 ? "" : ",", values[i]);
    }
    snprintf(body + at, sizeof body - at, "]]}");

    json_t *answer = ask(body);
    struct told_tensor out;

    assert_true(told_read(json_object_get(answer, "output"), &out));
    assert_int_equal(out.count, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        float back = (float)out.data[i];

        if (memcmp(&back, &values[i], sizeof back) != 0)
            fail_msg("%zu: %a became %a", i, values[i], back);
    }
    told_free(&out);
    json_decref(answer);
}

static void the_answer_is_in_the_querys_encoding_unless_told(void **state)
{
    static const struct {
        const char *body, *member;
    } rows[] = {
        { "{\"query\":[[1,2]]}", NULL },
        { "{\"query\":{\"shape\":[1,2],\"data\":[1,2]}}", "data" },
        { "{\"query\":{\"shape\":[1,1],\"dtype\":\"F32\","
          "\"base64\":\"AACAPw==\"}}", "base64" },
        { "{\"query\":[[1,2]],\"response_format\":\"base64\"}", "base64" },
        { "{\"response_format\":\"nested\","
          "\"query\":{\"shape\":[1,2],\"data\":[1,2]}}", NULL },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *answer = ask(rows[i].body);
        json_t *output = json_object_get(answer, "output");

        if (rows[i].member == NULL)
            assert_true(json_is_array(output));
        else
            assert_non_null(json_object_get(output, rows[i].member));
        json_decref(answer);
    }
}

static void a_comparison_names_the_worst_element(void **state)
{
    json_t *answer = ask("{\"query\":[[0,0]],\"value\":[[1,-2]],"
                         "\"need_weights\":false,"
                         "\"compare_to\":{\"output\":[[1,-4]],"
                         "\"weights\":[[0.5]]}}");
    double max_abs, max_rel, rms, got, expected;
    int i, j;

    (void)state;
    assert_null(json_object_get(answer, "weights"));
    assert_int_equal(json_unpack(answer,
                                 "{s:{s:{s:F,s:F,s:F,s:{s:[i,i],s:F,s:F}}}}",
                                 "comparison", "output", "max_abs", &max_abs,
                                 "max_rel", &max_rel, "rms", &rms, "worst",
                                 "index", &i, &j, "got", &got, "expected",
                                 &expected), 0);
    assert_true(max_abs == 2 && max_rel == 0.5 && fabs(rms - sqrt(2)) < 1e-6);
    assert_true(i == 0 && j == 1 && got == -2 && expected == -4);
    assert_int_equal(json_unpack(answer, "{s:{s:{s:F}}}", "comparison",
                                 "weights", "max_abs", &max_abs), 0);
    assert_true(max_abs == 0.5);
    json_decref(answer);
}

static void a_profile_counts_by_formula(void **state)
{
    static const char *const names[] = {
        "decode", "projections", "similarity", "softmax",
        "weighted sum", "output projection", "encode",
    };
    /* N 1, L 2, S 3, E 4: 2*N*L*S*E = 48 for each of the two products. */
    json_t *answer = ask("{\"query\":[[[1,2,3,4],[5,6,7,8]]],"
                         "\"key\":[[[1,2,3,4],[5,6,7,8],[1,1,1,1]]],"
                         "\"num_heads\":2,\"profile\":true}");
    json_t *profile = json_object_get(answer, "profile");
    json_t *steps = json_object_get(profile, "steps");

    (void)state;
    assert_true(json_string_length(json_object_get(profile, "kernels")) > 0);
    assert_int_equal(json_array_size(steps), 7);
    for (size_t i = 0; i < 7; i++) {
        json_t *step = json_array_get(steps, i);

        assert_string_equal(json_string_value(json_object_get(step, "name")),
                            names[i]);
        assert_true(json_number_value(json_object_get(step, "us")) >= 0);
        if (i == 2 || i == 4)
            assert_true(json_number_value(json_object_get(step, "flops")) ==
                        48);
    }
    json_decref(answer);
}

static void dropout_is_a_function_of_the_seed(void **state)
{
    static const char body[] =
        "{\"query\":[[[1,2],[3,4],[5,6],[7,8],[1,2],[3,4],[5,6],[7,8]]],"
        "\"scale\":0,\"dropout_p\":0.5,\"seed\":%d}";
    char text[3][300];
    json_t *answer[3];
    struct told_tensor weights;
    size_t dropped = 0;

    (void)state;
    for (int i = 0; i < 3; i++) {
        snprintf(text[i], sizeof text[i], body, i == 2 ? 9 : 7);
        answer[i] = ask(text[i]);
    }
    assert_true(json_equal(answer[0], answer[1]));
    assert_false(json_equal(answer[0], answer[2]));
    assert_true(told_read(json_object_get(answer[0], "weights"), &weights));
    for (size_t i = 0; i < weights.count; i++) {
        dropped += weights.data[i] == 0;
        assert_true(weights.data[i] == 0 || weights.data[i] == 0.25);
    }
    assert_in_range(dropped, 16, 48); /* of 64; outside: 5 in 10^5 */
    told_free(&weights);
    for (int i = 0; i < 3; i++)
        json_decref(answer[i]);
}

static void a_result_that_is_not_finite_is_refused(void **state)
{
    json_t *answer = post("{\"query\":[[3e38]],\"scale\":3e38,"
                          "\"return\":[\"scores\"]}", 422);

    (void)state;
    assert_string_equal(json_string_value(json_object_get(answer, "code")),
                        "not_finite");
    assert_string_equal(json_string_value(json_object_get(answer, "pointer")),
                        "");
    json_decref(answer);
}

static void an_answer_too_large_is_refused_by_its_shape(void **state)
{
    enum { ROWS = 60000, SIZE = ROWS * 4 + 100 };
    char *body = malloc(SIZE);
    size_t at = (size_t)snprintf(body, SIZE, "{\"query\":[[[0]");

    (void)state;
    for (int i = 1; i < ROWS; i++, at += 4)
        memcpy(body + at, ",[0]", 4);
    snprintf(body + at, SIZE - at, "]]}");

    json_t *answer = post(body, 413);

    assert_string_equal(json_string_value(json_object_get(answer, "code")),
                        "too_large");
    json_decref(answer);
    free(body);
}

/* Ten million numbers in one row: decoded, answered, and never held in more
 * than four times the body plus the answer. */
static void ten_million_numbers_fit_in_four_times_their_text(void **state)
{
    enum { PAIR = 5000000, SIZE = PAIR * 14 + 200 };
    struct watch_sample before;
    char *body = malloc(SIZE);
    size_t at = (size_t)snprintf(body, SIZE, "{\"need_weights\":false,"
                                 "\"query\":{\"shape\":[1,1,2,%d],"
                                 "\"data\":[0.5", PAIR);

    (void)state;
    for (int i = 1; i < 2 * PAIR; i++)
        at += (size_t)snprintf(body + at, 8, ",%d.%d", i & 7, i % 97);
    at += (size_t)snprintf(body + at, SIZE - at, "]}}");

    struct reply reply;
    int64_t most;

    assert_true(watch_take_peak(attnd.pid) > 0);
    assert_true(watch_look(attnd.pid, &before));
    client_post(attnd.port, "/attention", body, at, &reply);
    if (reply.status != 200)
        fail_msg("status %ld: %.200s", reply.status, reply.body);
    most = watch_take_peak(attnd.pid) - before.resident_bytes;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (most > (int64_t)(4 * at + reply.len))
        fail_msg("%" PRId64 " bytes for a body of %zu and an answer of %zu",
                 most, at, reply.len);
#endif
    (void)most;
    free(reply.body);
    free(body);
}

/* 1.5 MB, which is read in parts where a worker is idle. */
static void a_long_body_gets_one_answer_from_any_number_of_workers(void **state)
{
    enum { ROWS = 200, COLUMNS = 700, SIZE = ROWS * COLUMNS * 12 };
    static const char *const counts[] = { "1", "2", "5" };
    char *body = malloc(SIZE);
    size_t at = (size_t)snprintf(body, SIZE, "{\"query\":[");
    struct reply first;

    (void)state;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        at += (size_t)snprintf(body + at, SIZE - at, "%s0.%d%s",
                               i % COLUMNS == 0 ? "[" : "", i * 7919 % 1000003,
                               i % COLUMNS < COLUMNS - 1 ? ", " : "],");
    at += (size_t)snprintf(body + at - 1, SIZE - at, "]}") - 1;
    client_post(attnd.port, "/attention", body, at, &first);
    assert_int_equal(first.status, 200);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct daemon other;
        struct reply reply;

        daemon_start(&other,
                     (const char *const[]){ "--workers", counts[i], NULL });
        client_post(other.port, "/attention", body, at, &reply);
        assert_int_equal(reply.len, first.len);
        assert_memory_equal(reply.body, first.body, first.len);
        free(reply.body);
        assert_int_equal(daemon_stop(&other, SIGTERM), 0);
    }
    free(first.body);
    free(body);
}

static int start(void **state)
{
    (void)state;
    daemon_start(&attnd, NULL);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    return daemon_stop(&attnd, SIGTERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_float32_exponent_comes_back_bit_for_bit),
        cmocka_unit_test(the_answer_is_in_the_querys_encoding_unless_told),
        cmocka_unit_test(a_comparison_names_the_worst_element),
        cmocka_unit_test(a_profile_counts_by_formula),
        cmocka_unit_test(dropout_is_a_function_of_the_seed),
        cmocka_unit_test(a_result_that_is_not_finite_is_refused),
        cmocka_unit_test(an_answer_too_large_is_refused_by_its_shape),
        cmocka_unit_test(a_long_body_gets_one_answer_from_any_number_of_workers),
        cmocka_unit_test(ten_million_numbers_fit_in_four_times_their_text),
    };

    return cmocka_run_group_tests_name("attention", tests, start, stop);
}
