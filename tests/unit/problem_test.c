#include "api/problem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

static json_t *problem(const struct error *err, const char *request_id)
{
    struct buffer out;
    json_error_t why;

    buffer_init(&out, 1 << 20);
    problem_encode(err, request_id, &out);
    assert_false(out.failed);

    json_t *root = json_loadb((const char *)out.data, out.len,
                              JSON_REJECT_DUPLICATES, &why);

    if (root == NULL)
        fail_msg("%s: %.*s", why.text, (int)out.len, (char *)out.data);
    buffer_free(&out);
    return root;
}

static const char *text(const json_t *root, const char *name)
{
    const char *value = json_string_value(json_object_get(root, name));

    assert_non_null(value);
    return value;
}

static const struct {
    enum error_code code;
    int status;
} statuses[] = {
    { ERR_JSON, 400 },      { ERR_REQUEST, 400 },    { ERR_KEY, 401 },
    { ERR_NOT_FOUND, 404 }, { ERR_METHOD, 405 },     { ERR_TIMEOUT, 408 },
    { ERR_TOO_LARGE, 413 }, { ERR_MEDIA, 415 },      { ERR_UNKNOWN, 422 },
    { ERR_MISSING, 422 },   { ERR_CONFLICT, 422 },   { ERR_TYPE, 422 },
    { ERR_RANGE, 422 },     { ERR_SHAPE, 422 },      { ERR_NOT_FINITE, 422 },
    { ERR_QUOTA, 429 },     { ERR_OVERLOADED, 503 }, { ERR_DRAINING, 503 },
    { ERR_UNKNOWN_METHOD, 501 },
};

static void every_code_has_the_status_of_the_contract(void **state)
{
    (void)state;
    assert_int_equal(sizeof statuses / sizeof *statuses, ERR_COUNT - 1);
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        struct error err = { ERR_NONE };

        assert_int_equal(problem_status(statuses[i].code), statuses[i].status);
        error_set(&err, statuses[i].code, "/key", "key is wrong");

        json_t *root = problem(&err, "id");

        assert_int_equal(json_integer_value(json_object_get(root, "status")),
                         statuses[i].status);
        assert_string_equal(text(root, "code"),
                            error_name(statuses[i].code));
        assert_true(strlen(text(root, "title")) > 0);
        json_decref(root);
    }
}

static void a_problem_has_the_members_of_the_contract(void **state)
{
    struct error err = { ERR_NONE };

    (void)state;
    error_set(&err, ERR_SHAPE, "/state_dict/a~1b",
              "a/b has shape (2, 3), not (3, 3)");

    json_t *root = problem(&err, "req-1.A_b");

    assert_int_equal(json_object_size(root), 8);
    assert_string_equal(text(root, "type"), "about:blank");
    assert_string_equal(text(root, "title"), "Unprocessable Content");
    assert_string_equal(text(root, "detail"),
                        "a/b has shape (2, 3), not (3, 3)");
    assert_string_equal(text(root, "error"), text(root, "detail"));
    assert_string_equal(text(root, "code"), "shape_mismatch");
    assert_string_equal(text(root, "pointer"), "/state_dict/a~1b");
    assert_string_equal(text(root, "request_id"), "req-1.A_b");
    json_decref(root);
}

static void quotes_and_controls_come_back_as_they_were(void **state)
{
    struct error err = { ERR_NONE };

    (void)state;
    for (int c = 1; c < 0x80; c++) {
        err.code = ERR_NONE;
        error_set(&err, ERR_TYPE, "/x", "<%c>", c);

        json_t *root = problem(&err, "");
        char want[] = { '<', (char)c, '>', '\0' };

        assert_string_equal(text(root, "detail"), want);
        json_decref(root);
    }
}

static void bytes_that_are_no_utf8_become_replacement_characters(void **state)
{
    static const char *const cases[][2] = {
        { "\x80", "\uFFFD" },
        { "a\xC0\xAF" "b", "a\uFFFD\uFFFDb" },
        { "\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD" },
        { "\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD" },
        { "\xE2\x82", "\uFFFD\uFFFD" },
        { "\xFF\xFE", "\uFFFD\uFFFD" },
        { "\u00E9\u20AC\U0001F600", "\u00E9\u20AC\U0001F600" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error err = { .code = ERR_TYPE };

        snprintf(err.where, sizeof err.where, "%s", cases[i][0]);
        snprintf(err.text, sizeof err.text, "%s", cases[i][0]);

        json_t *root = problem(&err, cases[i][0]);

        assert_string_equal(text(root, "detail"), cases[i][1]);
        assert_string_equal(text(root, "pointer"), cases[i][1]);
        assert_string_equal(text(root, "request_id"), cases[i][1]);
        json_decref(root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_the_status_of_the_contract),
        cmocka_unit_test(a_problem_has_the_members_of_the_contract),
        cmocka_unit_test(quotes_and_controls_come_back_as_they_were),
        cmocka_unit_test(bytes_that_are_no_utf8_become_replacement_characters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
