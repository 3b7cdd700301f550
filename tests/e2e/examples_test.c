/* What a newcomer copies: the README's request and refusal, the example
 * programs, and the README's table of options. */

#include "config/config.h"
#include "tests/e2e/daemon.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE 1e-6 /* as in openapi_test.c */

static struct daemon server;
static char *readme;

/* The text up to the end of `in`, of a file or of a program. */
static char *read_all(FILE *in)
{
    char *text = NULL;
    size_t size = 0;

    assert_non_null(in);
    if (getdelim(&text, &size, '\0', in) < 0)
        assert_non_null(text);
    return text;
}

/* Numbers within TOLERANCE, request_id aside; the rest equal. */
static bool same(json_t *a, json_t *b)
{
    const char *name;
    json_t *value;

    if (json_is_number(a) && json_is_number(b))
        return fabs(json_number_value(a) - json_number_value(b)) <= TOLERANCE;
    if (json_is_array(a) && json_is_array(b)) {
        bool equal = json_array_size(a) == json_array_size(b);

        for (size_t i = 0; equal && i < json_array_size(a); i++)
            equal = same(json_array_get(a, i), json_array_get(b, i));
        return equal;
    }
    if (json_is_object(a) && json_is_object(b)) {
        bool equal = json_object_size(a) == json_object_size(b);

        json_object_foreach(a, name, value)
            if (strcmp(name, "request_id") != 0)
                equal = equal && same(value, json_object_get(b, name));
        return equal;
    }
    return json_equal(a, b);
}

static void expect_same(const char *want, const char *got)
{
    json_t *a = json_loads(want, JSON_DISABLE_EOF_CHECK, NULL);
    json_t *b = json_loads(got, JSON_DISABLE_EOF_CHECK, NULL);

    if (a == NULL || b == NULL || !same(a, b))
        fail_msg("%s\n  instead of\n%s", got, want);
    json_decref(a);
    json_decref(b);
}

/* What `command` prints; `url` stands where it says $URL. */
static char *run(const char *command, int *status)
{
    char url[64];

    snprintf(url, sizeof url, "http://127.0.0.1:%d", server.port);
    setenv("URL", url, 1);

    FILE *out = popen(command, "r");
    char *text = read_all(out);

    *status = pclose(out);
    return text;
}

static void skip_without(const char *program)
{
    char command[64];

    snprintf(command, sizeof command, "command -v %s >/dev/null", program);
    if (system(command) == 0)
        return;
    print_message("no %s here: its example is not run\n", program);
    skip();
}

/* The text between `start` and the next `end` after *at, which moves behind
 * it; the caller frees. */
static char *cut(const char **at, const char *start, const char *end)
{
    const char *from = strstr(*at, start);
    const char *to = from == NULL ? NULL : strstr(from + strlen(start), end);

    if (to == NULL)
        fail_msg("no %s in README.md", start);
    *at = to;
    return strndup(from, (size_t)(to - from));
}

/* ---- the README ---- */

static const char place[] = "http://127.0.0.1:8080";

/* The README's curl command, sent to our server instead. */
static char *run_curl(const char *command, int *status)
{
    const char *url = strstr(command, place);
    char line[1024];

    assert_non_null(url);
    snprintf(line, sizeof line, "%.*s\"$URL\"%s", (int)(url - command), command,
             url + strlen(place));
    return run(line, status);
}

static void each_curl_of_the_readme_gets_the_answer_below_it(void **state)
{
    const char *at = readme;
    int curls = 0;

    (void)state;
    skip_without("curl");
    while (strstr(at, "\ncurl ") != NULL) {
        int status;
        char *command = cut(&at, "\ncurl ", "\n```");
        char *want = cut(&at, "```json\n", "\n```");
        char *got = run_curl(command + 1, &status);

        assert_int_equal(status, 0);
        expect_same(want + strlen("```json\n"), got);
        free(command);
        free(want);
        free(got);
        curls++;
    }
    assert_int_equal(curls, 2);
}

/* The answer to the README's first request, which the programs send too. */
static char *first_answer(void)
{
    const char *at = readme;
    char *block = cut(&at, "```json\n", "\n```");

    memmove(block, block + strlen("```json\n"),
            strlen(block) - strlen("```json\n") + 1);
    return block;
}

static void expect_option(const char *field, const char *initial,
                          const char *help)
{
    char row[512];

    snprintf(row, sizeof row, "\n| `%s` | %s | %s |\n", field,
             *initial == '\0' ? "(empty)" : initial, help);
    if (strstr(readme, row) == NULL)
        fail_msg("README.md lacks this row:%s", row);
}

static void the_readme_lists_every_option_with_its_default(void **state)
{
    (void)state;
#define OPTION(field, kind, initial, min, max, unit, help) \
    expect_option(#field, initial, help);
#include "config/options.def"
}

/* ---- the programs ---- */

/* The two lines "output [...]" and "weights [...]" that a program prints. */
static void expect_printed(const char *printed)
{
    char *answer = first_answer();
    json_t *want = json_loads(answer, 0, NULL);
    static const char *const names[] = { "output", "weights" };

    for (size_t i = 0; i < 2; i++) {
        const char *line = strstr(printed, names[i]);
        char *text = json_dumps(json_object_get(want, names[i]), 0);

        assert_non_null(line);
        expect_same(text, line + strlen(names[i]));
        free(text);
    }
    json_decref(want);
    free(answer);
}

static void the_python_example_prints_the_readme_answer(void **state)
{
    int status;

    (void)state;
    skip_without("python3");

    char *printed = run("python3 tests/examples/attention.py \"$URL\"", &status);

    assert_int_equal(status, 0);
    expect_printed(printed);
    free(printed);
}

static void the_javascript_example_prints_the_readme_answer(void **state)
{
    int status;

    (void)state;
    skip_without("node");

    char *printed = run("node tests/examples/attention.mjs \"$URL\"", &status);

    assert_int_equal(status, 0);
    expect_printed(printed);
    free(printed);
}

static void the_c_example_prints_the_readme_answer(void **state)
{
    int status;
    char *want = first_answer();
    char *printed = run("\"${BUILD:-build}\"/tests/examples/attention \"$URL\"",
                        &status);

    (void)state;
    assert_int_equal(status, 0);
    expect_same(want, printed);
    free(printed);
    free(want);
}

static int start(void **state)
{
    FILE *file = fopen("README.md", "r");

    (void)state;
    readme = read_all(file);
    fclose(file);
    daemon_start(&server, NULL);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    free(readme);
    return daemon_stop(&server, SIGTERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_curl_of_the_readme_gets_the_answer_below_it),
        cmocka_unit_test(the_python_example_prints_the_readme_answer),
        cmocka_unit_test(the_javascript_example_prints_the_readme_answer),
        cmocka_unit_test(the_c_example_prints_the_readme_answer),
        cmocka_unit_test(the_readme_lists_every_option_with_its_default),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
