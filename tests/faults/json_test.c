/* The rows of JSON text, shapes and options, as a client meets them: through
 * HTTP, beside a witness. tests/unit has the same rules case by case. */
#include "tests/e2e/daemon.h"
#include "tests/faults/post.h"
#include "tests/faults/raw.h"
#include "tests/faults/witness.h"
#include "tests/load/watch.h"

#include <limits.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    defined(GCOV)
enum { SLOWNESS = 20, SHARE = 10 };
#else
enum { SLOWNESS = 1, SHARE = 1 };
#endif

#define BYTES(text) text, sizeof text - 1

static const int64_t SECOND_MS = 1000;

static struct daemon served;

static int start(void **state)
{
    (void)state;
    daemon_start(&served, (const char *const[]){ "--workers", "2", NULL });
    return 0;
}

static int stop(void **state)
{
    (void)state;
    return daemon_stop(&served, SIGTERM);
}

/* The caller frees the answer. */
static int post_bytes(const char *body, size_t len, struct raw_answer *answer)
{
    size_t total;
    char *text = post_text("Connection: close\r\n", body, len, &total);

    raw_run(served.port, &(struct raw_script){ text, .len = total,
                                               .deadline_ms = 30000 }, answer);
    free(text);
    return raw_status(answer);
}

static void show(const char *body, const struct raw_answer *answer, int want)
{
    fail_msg("%.200s: want %d, got %.600s", body, want, answer->bytes);
}

/* A refusal with this status and code (NULL: any of that status). */
static void refuses(const char *body, size_t len, int want, const char *code)
{
    struct raw_answer answer;

    if (post_bytes(body, len, &answer) != want)
        show(body, &answer, want);
    witness_problem(&answer.reply[0], code);
    raw_free(&answer);
}

/* The same within a second of the daemon's CPU. */
static void refuses_soon(const char *body, size_t len, int want,
                         const char *code)
{
    int64_t before = watch_cpu_ms(served.pid), took;

    refuses(body, len, want, code);
    took = watch_cpu_ms(served.pid) - before;
    if (took > SECOND_MS * SLOWNESS)
        fail_msg("%.60s: took %lld ms", body, (long long)took);
}

/* The parsed answer; json_decref(). */
static json_t *accepts(const char *body, size_t len)
{
    struct raw_answer answer;
    json_t *object;

    if (post_bytes(body, len, &answer) != 200)
        show(body, &answer, 200);
    object = json_loadb(answer.reply[0].body, answer.reply[0].body_len,
                        JSON_REJECT_DUPLICATES, NULL);
    if (object == NULL)
        show(body, &answer, 200);
    raw_free(&answer);
    return object;
}

/* `before`, `middle` so many times, `after`. */
static char *repeat(const char *before, const char *middle, size_t times,
                    const char *after, size_t *len)
{
    size_t unit = strlen(middle), at = strlen(before);
    char *text = malloc(at + unit * times + strlen(after) + 1);

    assert_non_null(text);
    memcpy(text, before, at);
    for (size_t i = 0; i < times; i++, at += unit)
        memcpy(text + at, middle, unit);
    memcpy(text + at, after, strlen(after) + 1);
    *len = at + strlen(after);
    return text;
}

/* A body with something of everything. */
static const char everything[] =
    "{\"query\": [[1, -0.5e1, 2.25], [0, 1e-3, 7]],\n \"num_heads\": 1, "
    "\"attn_mask\": {\"shape\": [2, 2], \"data\": [0, \"-Infinity\", null, -1]},"
    "\"is_causal\": false, \"layout\": \"L\\u0045\", \"return\": [\"q\"], "
    "\"window\": [-1, 1]}";

/* ---- JSON text ---- */

static void a_body_cut_at_any_byte_is_400_with_the_position(void **state)
{
    struct witness witness;

    (void)state;
    json_decref(accepts(everything, sizeof everything - 1));
    witness_begin(&witness, &served);
    for (size_t len = 0; len < sizeof everything - 1; len++) {
        struct raw_answer answer;
        const char *place;

        if (post_bytes(everything, len, &answer) != 400)
            show(everything, &answer, 400);
        witness_problem(&answer.reply[0], "malformed_json");
        /* A token that was cut is reported where it begins or ends. */
        place = strstr(answer.bytes, "(byte ");
        if (place == NULL || strtoul(place + 6, NULL, 10) > len)
            show("the position", &answer, 400);
        raw_free(&answer);
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, sizeof everything - 1);
}

static void a_client_that_closes_within_the_body_is_counted_as_aborted(
    void **state)
{
    size_t len, head;
    char *text = post_text("", everything, sizeof everything - 1, &len);
    double before = daemon_metric(&served, "attnd_aborted_total");
    /* HAProxy may see the end before it has passed anything on. */
    double cuts = served.proxy.pid > 0 ? 0 : (sizeof everything - 2) / 13 + 1;
    struct witness witness;

    (void)state;
    head = len - (sizeof everything - 1);
    witness_begin(&witness, &served);
    for (size_t cut = head; cut < len; cut += 13) {
        struct raw_answer answer;

        raw_run(served.port, &(struct raw_script){
            text, .len = cut, .end = RAW_HALF_CLOSE, .deadline_ms = 3000 },
            &answer);
        assert_int_equal(answer.len, 0);
        assert_true(answer.closed);
        raw_free(&answer);
    }
    for (int n = 0; n < 100 && daemon_metric(&served, "attnd_aborted_total") <
                                   before + cuts; n++)
        poll(NULL, 0, 20);
    assert_true(daemon_metric(&served, "attnd_aborted_total") >= before + cuts);
    free(text);
    witness_end(&witness, WITNESS_SLACK_BYTES, 1);
}

static void what_opens_a_hundred_thousand_times_is_400_at_the_depth_cap(
    void **state)
{
    static const struct {
        const char *before, *middle;
    } rows[] = {
        { "", "[" }, { "", "{\"a\":" }, { "", "[{\"\":" },
        { "{\"query\":", "[" }, { "{\"query\":", "{\"shape\":" },
        { "{\"attn_mask\":", "[{\"\":" }, { "{\"state_dict\":", "{\"a\":" },
        { "{\"compare_to\":", "{\"output\":" }, { "{\"x\":", "[" },
    };
    struct witness witness;

    (void)state;
    witness_begin(&witness, &served);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t len;
        char *body = repeat(rows[i].before, rows[i].middle, 100000, "", &len);

        refuses_soon(body, len, 400, "malformed_json");
        free(body);
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, sizeof rows / sizeof *rows);
}

static void a_key_given_twice_is_400_however_it_is_written(void **state)
{
    static const char *const rows[] = {
        "{\"query\": [[1]], \"query\": [[1]]}",
        "{\"query\": [[1]], \"\\u0071uery\": [[1]]}",
        "{\"\\u0071uery\": [[1]], \"quer\\u0079\": [[1]]}",
        "{\"query\": {\"shape\": [1, 1], \"data\": [1], \"data\": [1]}}",
        "{\"query\": {\"shape\": [1, 1], \"data\": [1], \"d\\u0061ta\": [1]}}",
        "{\"query\": [[1]], \"state_dict\": {\"a\": [[1]], \"a\": [[1]]}}",
        "{\"query\": [[1]], \"x\": 1, \"x\": 1}",
        "{\"query\": [[1]], \"x\": {\"y\": {\"z\": 1, \"z\": 1}}}",
        "{\"query\": [[1]], \"\": 1, \"\": 1}",
    };
    struct witness witness;

    (void)state;
    witness_begin(&witness, &served);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refuses(rows[i], strlen(rows[i]), 400, "malformed_json");
    witness_end(&witness, WITNESS_SLACK_BYTES, sizeof rows / sizeof *rows);
}

/* Tables of bodies that get one status. */
struct row {
    const char *body;
    int status;
    const char *code;
};

static void check_rows(const struct row *rows, size_t count)
{
    struct witness witness;

    witness_begin(&witness, &served);
    for (size_t i = 0; i < count; i++)
        refuses(rows[i].body, strlen(rows[i].body), rows[i].status,
                rows[i].code);
    witness_end(&witness, WITNESS_SLACK_BYTES, (int)count);
}

#define CHECK(rows) check_rows(rows, sizeof(rows) / sizeof *(rows))

static void what_is_not_finite_is_never_taken_silently(void **state)
{
    static const struct row rows[] = {
        { "{\"query\": [[NaN]]}", 400, "malformed_json" },
        { "{\"query\": [[Infinity]]}", 400, "malformed_json" },
        { "{\"query\": [[-Infinity]]}", 400, "malformed_json" },
        { "{\"query\": [[nan]]}", 400, "malformed_json" },
        { "{\"query\": [[-NaN]]}", 400, "malformed_json" },
        { "{\"query\": [[inf]]}", 400, "malformed_json" },
        { "{\"query\": [[1e999]]}", 422, "not_finite" },
        { "{\"query\": [[-1e999]]}", 422, "not_finite" },
        { "{\"query\": [[\"NaN\"]]}", 422, "wrong_type" },
        { "{\"query\": [[\"-Infinity\"]]}", 422, "wrong_type" },
        { "{\"query\": [[1]], \"scale\": NaN}", 400, "malformed_json" },
        { "{\"query\": [[1]], \"scale\": 1e999}", 422, "out_of_range" },
        { "{\"query\": [[1]], \"scale\": -Infinity}", 400, "malformed_json" },
        { "{\"query\": [[1]], \"softcap\": Infinity}", 400, "malformed_json" },
        { "{\"query\": [[1]], \"sinks\": [1e39]}", 422, "not_finite" },
        { "{\"query\": [[1]], \"attn_mask\": [[NaN]]}", 400, "malformed_json" },
        { "{\"query\": [[1]], \"attn_mask\": [[Infinity]]}", 400,
          "malformed_json" },
        { "{\"query\": [[1]], \"attn_mask\": [[\"Infinity\"]]}", 422,
          "wrong_type" },
        { "{\"query\": [[1]], \"attn_mask\": [[1e999]]}", 422, "not_finite" },
        { "{\"query\": [[1]], \"key_padding_mask\": [-Infinity]}", 400,
          "malformed_json" },
        /* 2^128, and what rounds to it */
        { "{\"query\": [[1e39]]}", 422, "not_finite" },
        { "{\"query\": [[3.4028236e38]]}", 422, "not_finite" },
        { "{\"query\": [[-3.4028236e38]]}", 422, "not_finite" },
        { "{\"query\": [[3.4028235677973367e38]]}", 422, "not_finite" },
        { "{\"query\": {\"shape\": [1, 1], \"dtype\": \"F32\", \"base64\": "
          "\"AADAfw==\"}}", 422, "not_finite" },
        { "{\"query\": {\"shape\": [1, 1], \"dtype\": \"F64\", \"base64\": "
          "\"AAAAAAAA8H8=\"}}", 422, "not_finite" },
    };

    (void)state;
    CHECK(rows);
}

/* The value alone in a row, as `return: ["v"]` gives it back untouched. */
static double value_of(const char *number, size_t zeros, const char *rest)
{
    static const char before[] = "{\"need_weights\": false, \"return\": [\"v\"], "
                                 "\"query\": [[";
    char start[256], end[256];
    size_t len;
    char *body;
    json_t *answer;
    const json_t *v;
    double value;
    int64_t began = watch_cpu_ms(served.pid);

    snprintf(start, sizeof start, "%s%s", before, number);
    snprintf(end, sizeof end, "%s]]}", rest);
    body = repeat(start, "0", zeros, end, &len);
    answer = accepts(body, len);
    assert_true(watch_cpu_ms(served.pid) - began < SECOND_MS * SLOWNESS);
    free(body);
    v = json_object_get(answer, "v");
    while (json_is_array(v))
        v = json_array_get(v, 0);
    assert_true(json_is_number(v));
    value = json_number_value(v);
    json_decref(answer);
    return value;
}

static void zeros_denormals_and_endless_digits_keep_value_and_sign(void **state)
{
    static const struct {
        const char *number;
        size_t zeros;
        const char *rest;
        double value;
    } rows[] = {
        { "-0", 0, "", -0.0 },
        { "-0.0", 0, "", -0.0 },
        { "-0e99", 0, "", -0.0 },
        { "0", 0, "", 0.0 },
        { "1e-999", 0, "", 0.0 },
        { "-1e-999", 0, "", -0.0 },
        { "1e-45", 0, "", 0x1p-149 },
        { "-1e-45", 0, "", -0x1p-149 },
        { "7e-46", 0, "", 0.0 },
        { "1.1754942e-38", 0, "", 0x1.fffffcp-127 },
        { "3.4028235e38", 0, "", 0x1.fffffep127 },
        { "3.4028235677973366e38", 0, "", 0x1.fffffep127 },
        { "1", 1000000, "e-1000000", 1.0 },
        { "0.", 1000000, "1e1000001", 1.0 },
        { "1.", 1000000, "", 1.0 },
        { "1.", 1000000, "1", 1.0 },
        { "16777217.", 1000000, "", 16777216.0 },
        { "16777217.", 1000000, "1", 16777218.0 },
        { "1e+", 100000, "1", 10.0 },
        { "1e-", 100000, "1", 0x1.99999ap-4 },
        { "-1e-1", 100000, "", -0.0 },
        { "0e1", 100000, "", 0.0 },
    };
    struct witness witness;

    (void)state;
    witness_begin(&witness, &served);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double value = value_of(rows[i].number, rows[i].zeros, rows[i].rest);

        if ((float)value != (float)rows[i].value ||
            signbit(value) != signbit(rows[i].value))
            fail_msg("%s, %zu zeros, %s: %.9g", rows[i].number, rows[i].zeros,
                     rows[i].rest, value);
    }
    witness_end(&witness, WITNESS_HEAP_BYTES, sizeof rows / sizeof *rows);
}

static void an_exponent_without_end_that_overflows_is_422(void **state)
{
    size_t len;
    char *body = repeat("{\"query\": [[1e1", "0", 100000, "]]}", &len);

    (void)state;
    refuses_soon(body, len, 422, "not_finite");
    free(body);
}

static void what_looks_like_json_and_is_not_is_400(void **state)
{
    static const char *const numbers[] = {
        "01", "+1", "1.", ".5", "0x10", "1e", "1e+", "--1", "1_000", "- 1",
        "1.e5", "1.5.2", "1e5e5", "00", "-", "-01", "1,", ",1", "1 2", "1f",
        "1d", "0b1", "1e1.5", "\xef\xbc\x91", "True", "tru", "nulll", "undefined",
        "'1'", "1;", "/*1*/1", "1//\n", "#1", "[1", "{1}", "\"", "\"\\x\"",
        "\"\\u12\"", "\"\t\"", "\"\n\"",
    };
    static const char *const bodies[] = {
        "{\"query\": [[1]],}", "{\"query\": [[1,]]}", "{\"query\": [[1]],,}",
        "{,\"query\": [[1]]}", "{\"query\" [[1]]}", "{\"query\": }",
        "{query: [[1]]}", "{'query': [[1]]}", "{\"query\": [[1]]",
        "{\"query\": [[1]}", "{\"query\": [[1]]]", "{\"query\": [[1]]}}",
        "{\"query\": [[1]]}{\"query\": [[1]]}", "{\"query\": [[1]]} x",
        "{\"query\": [[1]]}\n{}", "{\"query\": [[1]]} // x",
        "/* x */ {\"query\": [[1]]}", "{\"query\": [[1]], \"scale\": 1 // x\n}",
        "{\"query\": [[1]];}", "({\"query\": [[1]]})", "\\{}", "{]", "[}",
        "{\"query\": [[1]], 1: 2}", "{\"query\": [[1]], null: 2}",
        "{\"query\": [[1]]\v}", "{\"query\": [[1]]\f}",
        "{\"query\":\xc2\xa0[[1]]}", "{\"query\": [[1]]}\x1a",
        "query=1&num_heads=2", "<query>1</query>", "--boundary\r\n", "x",
    };
    struct witness witness;

    (void)state;
    witness_begin(&witness, &served);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char body[128];

        snprintf(body, sizeof body, "{\"query\": [[%s]]}", numbers[i]);
        refuses(body, strlen(body), 400, "malformed_json");
    }
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        refuses(bodies[i], strlen(bodies[i]), 400, "malformed_json");
    witness_end(&witness, WITNESS_SLACK_BYTES, sizeof bodies / sizeof *bodies);
}

static void what_is_not_utf_8_is_400_and_its_error_is(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
    } rows[] = {
#define IN_STRING(text) BYTES("{\"query\": [[1]], \"layout\": \"" text "\"}")
        { IN_STRING("\xff") }, { IN_STRING("\x80") }, { IN_STRING("\xc3") },
        { IN_STRING("\xe2\x82") }, { IN_STRING("\xf0\x9f\x98") },
        { IN_STRING("\xc0\x80") }, { IN_STRING("\xc1\xbf") },
        { IN_STRING("\xe0\x80\xaf") }, { IN_STRING("\xf0\x80\x80\xaf") },
        { IN_STRING("\xed\xa0\x80") }, { IN_STRING("\xed\xbf\xbf") },
        { IN_STRING("\xf4\x90\x80\x80") }, { IN_STRING("\xf8\x88\x80\x80\x80") },
        { IN_STRING("\\ud800") }, { IN_STRING("\\udc00") },
        { IN_STRING("\\ud800\\ud800") }, { IN_STRING("\\ud800x") },
        { IN_STRING("a\0b") },
        { BYTES("{\"\xff\": [[1]]}") }, { BYTES("{\"query\xc0\x80\": [[1]]}") },
        { BYTES("{\"x\\ud800\": [[1]]}") },
        { BYTES("\xef\xbb\xbf{\"query\": [[1]]}") },
        { BYTES("\xff\xfe{\0\"\0q\0\"\0:\0" "1\0}\0") },
        { BYTES("\xfe\xff\0{\0\"\0q\0\"\0:\0" "1\0}") },
        { BYTES("{\0\"\0q\0\"\0:\0" "1\0}\0") },
        { BYTES("\0{\0\"\0q\0\"\0:\0" "1\0}") },
        { BYTES("{\"query\": [[1\0]]}") },
        { BYTES("{\"query\": [[1]]}\0") },
        { BYTES("{\"query\": [[1]]}\0\0\0\0") },
        { BYTES("\0") }, { BYTES("{\0}") }, { BYTES("{\"query\"\xff: [[1]]}") },
#undef IN_STRING
    };
    struct witness witness;

    (void)state;
    witness_begin(&witness, &served);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refuses(rows[i].bytes, rows[i].len, 400, "malformed_json");
    witness_end(&witness, WITNESS_SLACK_BYTES, sizeof rows / sizeof *rows);
}

static void a_body_that_is_no_object_is_400(void **state)
{
    static const struct row rows[] = {
        { "", 400, "malformed_json" },      { " \t\r\n", 400, "malformed_json" },
        { "1", 400, "malformed_json" },     { "null", 400, "malformed_json" },
        { "true", 400, "malformed_json" },  { "\"query\"", 400, "malformed_json" },
        { "[]", 400, "malformed_json" },    { "[[1]]", 400, "malformed_json" },
        { "[{\"query\": [[1]]}]", 400, "malformed_json" },
    };
    struct witness witness;
    size_t len;
    char *spaces;

    (void)state;
    CHECK(rows);
    witness_begin(&witness, &served);
    spaces = repeat("", "                ", 4000000, "", &len);
    refuses_soon(spaces, len, 400, "malformed_json");
    free(spaces);
    witness_end(&witness, WITNESS_HEAP_BYTES, 1);
}

/* Keys that hash alike where a string's hash is a sum of 31^i: "Aa" and "BB". */
static char *colliding_keys(size_t *len)
{
    enum { PAIRS = 17, KEYS = 100000, KEY_BYTES = 2 * PAIRS + 5 };
    char *body = malloc((size_t)KEYS * KEY_BYTES + 2);
    size_t at = 0;

    assert_non_null(body);
    for (int i = 0; i < KEYS; i++) {
        body[at++] = i == 0 ? '{' : ',';
        body[at++] = '"';
        for (int bit = 0; bit < PAIRS; bit++, at += 2)
            memcpy(body + at, (i >> bit & 1) != 0 ? "Aa" : "BB", 2);
        memcpy(body + at, "\":1", 3);
        at += 3;
    }
    body[at++] = '}';
    *len = at;
    return body;
}

static char *distinct_keys(const char *before, const char *after, size_t *len)
{
    enum { KEYS = 1000000 };
    char *body = malloc((size_t)KEYS * 16 + 256);
    size_t at;

    assert_non_null(body);
    at = (size_t)snprintf(body, 128, "%s", before);
    for (int i = 0; i < KEYS; i++)
        at += (size_t)snprintf(body + at, 32, "%s\"k%d\":1",
                               i == 0 ? "" : ",", i);
    at += (size_t)snprintf(body + at, 128, "%s", after);
    *len = at;
    return body;
}

static void keys_without_end_cost_linear_time(void **state)
{
    struct witness witness;
    size_t len;
    char *body;

    (void)state;
    witness_begin(&witness, &served);
    body = repeat("{\"", "kkkkkkkkkk", 1000000, "\": 1}", &len);
    refuses_soon(body, len, 422, "unknown_field");
    free(body);
    body = distinct_keys("{", "}", &len);
    refuses_soon(body, len, 422, "unknown_field");
    free(body);
    body = distinct_keys("{\"query\": [[1]], \"state_dict\": {", "}}", &len);
    refuses_soon(body, len, 422, NULL);
    free(body);
    body = colliding_keys(&len);
    refuses_soon(body, len, 422, "unknown_field");
    free(body);
    witness_end(&witness, WITNESS_HEAP_BYTES, 4);
}

/* Within 8 times the body. */
static void check_peak(int64_t before, size_t len)
{
    int64_t grown = watch_take_peak(served.pid) - before;

    if (SHARE == 1 && grown > 8 * (int64_t)len)
        fail_msg("%lld bytes for a body of %zu", (long long)grown, len);
}

static void a_million_of_the_wrong_kind_are_refused_at_the_first(void **state)
{
    static const char *const kinds[] = { "{}", "[]", "\"\"", "true", "null",
                                         "[[]]", "{\"a\":1}" };
    static const struct {
        const char *before, *after;
    } fields[] = {
        { "{\"query\": [", "1]}" },
        { "{\"query\": [[", "1]]}" },
        { "{\"query\": {\"shape\": [1, 1000001], \"data\": [", "1]}}" },
        { "{\"query\": [[1]], \"sinks\": [", "1]}" },
    };
    struct witness witness;

    (void)state;
    witness_begin(&witness, &served);
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            char one[16];
            size_t len;
            char *body;
            struct watch_sample now;

            snprintf(one, sizeof one, "%s,", kinds[k]);
            body = repeat(fields[f].before, one, 1000000 / SHARE,
                          fields[f].after, &len);
            assert_true(watch_take_peak(served.pid) > 0);
            assert_true(watch_look(served.pid, &now));
            refuses_soon(body, len, 422, NULL);
            check_peak(now.resident_bytes, len);
            free(body);
        }
    witness_end(&witness, WITNESS_HEAP_BYTES, 28);
}

/* ---- Shapes and options ---- */

static void an_element_out_of_place_is_422_with_its_place(void **state)
{
    static const struct {
        const char *query, *place;
    } rows[] = {
        { "[[1, 2], [3]]", "query[1]" },
        { "[[1, 2], [3, 4, 5]]", "query[1]" },
        { "[[1, 2], 3]", "query[1]" },
        { "[1, [2]]", "query[1]" },
        { "[[[1, 2]], [[1], [2]]]", "query[1][0]" },
        { "[[1, 2], [\"3\", 4]]", "query[1][0]" },
        { "[[1, 2], [true, 4]]", "query[1][0]" },
        { "[[1, 2], [3, null]]", "query[1][1]" },
        { "[[1, 2], [3, {}]]", "query[1][1]" },
        { "[[1, 2], [3, [4]]]", "query[1][1]" },
        { "[[1, 2], []]", "query[1]" },
        { "[[], [1, 2]]", "query[0]" },
        { "[[[[1]], [[2]]], [[[1]], [[2, 3]]]]", "query[1][1][0]" },
        { "{\"shape\": [1, 2], \"data\": [1, \"2\"]}", "query.data[1]" },
        { "{\"shape\": [1, 2], \"data\": [[1, 2]]}", "query.data[0]" },
        { "{\"shape\": [1, \"2\"], \"data\": [1, 2]}", "query.shape[1]" },
    };
    struct witness witness;

    (void)state;
    witness_begin(&witness, &served);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char body[256];
        struct raw_answer answer;

        snprintf(body, sizeof body, "{\"query\": %s}", rows[i].query);
        if (post_bytes(body, strlen(body), &answer) != 422)
            show(body, &answer, 422);
        witness_problem(&answer.reply[0], NULL);
        if (strstr(answer.bytes, rows[i].place) == NULL ||
            strstr(answer.bytes, "\"pointer\":\"/query\"") == NULL)
            show(rows[i].place, &answer, 422);
        raw_free(&answer);
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, sizeof rows / sizeof *rows);
}

#define SHAPE(shape, data)                                                     \
    "{\"query\": {\"shape\": " shape ", \"data\": " data "}}"

static void data_that_does_not_fill_its_shape_is_422(void **state)
{
    static const struct row rows[] = {
        { SHAPE("[1, 2]", "[1]"), 422, "shape_mismatch" },
        { SHAPE("[1, 2]", "[1, 2, 3]"), 422, "shape_mismatch" },
        { SHAPE("[1, 2]", "[]"), 422, "shape_mismatch" },
        { SHAPE("[2, 3]", "[1, 2, 3, 4, 5]"), 422, "shape_mismatch" },
        { SHAPE("[2, 3]", "[1, 2, 3, 4, 5, 6, 7]"), 422, "shape_mismatch" },
        { SHAPE("[1000, 1000]", "[1]"), 422, "shape_mismatch" },
        { "{\"query\": {\"shape\": [1, 1], \"dtype\": \"F32\", \"base64\": "
          "\"AACAPwAAgD8=\"}}", 422, NULL },
        { "{\"query\": {\"shape\": [1, 2], \"dtype\": \"F32\", \"base64\": "
          "\"AACAPw==\"}}", 422, NULL },
    };

    (void)state;
    CHECK(rows);
}

static void a_shape_that_overflows_is_refused_before_any_allocation(
    void **state)
{
    static const struct row rows[] = {
        { SHAPE("[65536, 65536]", "[1]"), 422, NULL },
        { SHAPE("[2147483648, 2]", "[1]"), 422, NULL },
        { SHAPE("[4294967296, 4294967296]", "[1]"), 422, NULL },
        { SHAPE("[3037000500, 3037000500]", "[1]"), 422, NULL },
        { SHAPE("[9223372036854775807, 1]", "[1]"), 422, NULL },
        { SHAPE("[4611686018427387904, 4]", "[1]"), 422, NULL },
        { SHAPE("[4294967296, 4294967296, 4294967296, 4294967296]", "[1]"), 422,
          NULL },
        { SHAPE("[9223372036854775808, 1]", "[1]"), 422, NULL },
        { SHAPE("[18446744073709551617, 1]", "[1]"), 422, NULL },
        { SHAPE("[1e300, 1]", "[1]"), 422, NULL },
        { SHAPE("[]", "[]"), 422, NULL },
        { SHAPE("[1]", "[1]"), 422, NULL },
        { SHAPE("[1, 1, 1, 1, 1]", "[1]"), 422, NULL },
        { SHAPE("\"1,1\"", "[1]"), 422, NULL },
        { SHAPE("1", "[1]"), 422, NULL },
        { SHAPE("null", "[1]"), 422, NULL },
        { SHAPE("{}", "[1]"), 422, NULL },
        { "{\"query\": {\"data\": [1]}}", 422, NULL },
        { "{\"query\": {\"shape\": [1, 1]}}", 422, NULL },
        { "{\"query\": {}}", 422, NULL },
        { "{\"query\": []}", 422, NULL },
        { "{\"query\": [[]]}", 422, NULL },
    };
    struct witness witness;
    size_t len;
    char *body;

    (void)state;
    CHECK(rows);
    witness_begin(&witness, &served);
    body = repeat("{\"query\": {\"shape\": [1", ", 1", 1000000,
                  "], \"data\": [1]}}", &len);
    refuses_soon(body, len, 422, NULL);
    free(body);
    witness_end(&witness, WITNESS_HEAP_BYTES, 1);
}

static void a_dimension_that_is_no_positive_integer_is_422(void **state)
{
    static const struct row rows[] = {
        { SHAPE("[0, 1]", "[]"), 422, NULL },
        { SHAPE("[1, 0]", "[]"), 422, NULL },
        { SHAPE("[-1, -1]", "[1]"), 422, NULL },
        { SHAPE("[-9223372036854775808, 1]", "[1]"), 422, NULL },
        { SHAPE("[1.5, 2]", "[1, 2, 3]"), 422, NULL },
        { SHAPE("[\"1\", 1]", "[1]"), 422, NULL },
        { SHAPE("[null, 1]", "[1]"), 422, NULL },
        { SHAPE("[true, 1]", "[1]"), 422, NULL },
        { SHAPE("[[1], 1]", "[1]"), 422, NULL },
    };

    (void)state;
    CHECK(rows);
}

/* Right where the value happens to be one that is allowed. */
static void an_integer_out_of_its_range_is_422_or_right(void **state)
{
    static const char *const values[] = {
        "-1", "0", "2147483648", "4294967296", "9223372036854775807",
        "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
        "1.5", "\"1\"", "true", "null", "[]", "{}", "1e300", "0.1e1",
    };
    static const struct {
        const char *field, *right; /* indices above, as letters */
    } rows[] = {
        { "\"num_heads\": %s", "p" },
        { "\"num_kv_heads\": %s", "p" },
        { "\"weights_top_k\": %s", "p" },
        { "\"layer\": %s", "" },
        { "\"seed\": %s", "bcdep" },
        { "\"window\": [%s, 0]", "abcdep" },
        { "\"window\": [0, %s]", "abcdep" },
    };
    struct witness witness;

    (void)state;
    witness_begin(&witness, &served);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            char body[256], field[128];

            snprintf(field, sizeof field, rows[r].field, values[v]);
            snprintf(body, sizeof body, "{\"query\": [[1, 2]], %s}", field);
            if (strchr(rows[r].right, (int)('a' + v)) != NULL)
                json_decref(accepts(body, strlen(body)));
            else
                refuses(body, strlen(body), 422, NULL);
        }
    witness_end(&witness, WITNESS_SLACK_BYTES, 100);
}

static void a_huge_answer_to_a_small_input_is_413_from_its_shape(void **state)
{
    static const char *const members[] = {
        "", "\"average_attn_weights\": false, ",
        "\"need_weights\": false, \"return\": [\"scores\"], ",
        "\"response_format\": \"flat\", ", "\"response_format\": \"base64\", ",
        "\"precision\": \"float64\", ",
    };
    struct witness witness;

    (void)state;
    witness_begin(&witness, &served);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        char *body = post_body(100000, 1, members[i]);

        refuses_soon(body, strlen(body), 413, "too_large");
        free(body);
    }
    witness_end(&witness, WITNESS_HEAP_BYTES, sizeof members / sizeof *members);
}

/* N 1, L 2, S 3, H 2. */
#define WITH(mask)                                                             \
    "{\"query\": [[[1, 2], [3, 4]]], \"key\": [[[1, 2], [3, 4], [5, 6]]], "    \
    "\"num_heads\": 2, " mask "}"

static void a_mask_of_a_wrong_rank_axis_or_type_is_422(void **state)
{
    static const struct row rows[] = {
        { WITH("\"key_padding_mask\": [0, 0, 0]"), 422, NULL },
        { WITH("\"key_padding_mask\": [[0, 0]]"), 422, NULL },
        { WITH("\"key_padding_mask\": [[0, 0, 0, 0]]"), 422, NULL },
        { WITH("\"key_padding_mask\": [[0, 0, 0], [0, 0, 0]]"), 422, NULL },
        { WITH("\"key_padding_mask\": [[[0, 0, 0]]]"), 422, NULL },
        { WITH("\"key_padding_mask\": [[0, 0, 2]]"), 422, NULL },
        { WITH("\"key_padding_mask\": [[0, 0, true]]"), 422, NULL },
        { WITH("\"key_padding_mask\": [[\"a\", 0, 0]]"), 422, NULL },
        { WITH("\"key_padding_mask\": true"), 422, NULL },
        { WITH("\"key_padding_mask\": \"000\""), 422, NULL },
        { WITH("\"key_padding_mask\": {}"), 422, NULL },
        { WITH("\"attention_mask\": [[1, 1]]"), 422, NULL },
        { WITH("\"attention_mask\": [1, 1, 1]"), 422, NULL },
        { WITH("\"attention_mask\": [[1, 1, 0.5]]"), 422, NULL },
        { WITH("\"attention_mask\": [[1, 1, null]]"), 422, NULL },
        { WITH("\"attn_mask\": [0, 0, 0]"), 422, NULL },
        { WITH("\"attn_mask\": [[0, 0, 0]]"), 422, NULL },
        { WITH("\"attn_mask\": [[0, 0], [0, 0]]"), 422, NULL },
        { WITH("\"attn_mask\": [[0, 0], [0, 0], [0, 0]]"), 422, NULL },
        { WITH("\"attn_mask\": [[[0, 0, 0], [0, 0, 0]], [[0, 0, 0], "
               "[0, 0, 0]], [[0, 0, 0], [0, 0, 0]]]"), 422, NULL },
        { WITH("\"attn_mask\": [[[[[0]]]]]"), 422, NULL },
        { WITH("\"attn_mask\": [[[[0, 0]]]]"), 422, NULL },
        { WITH("\"attn_mask\": [[0, 0, true], [0, 0, 0]]"), 422, NULL },
        { WITH("\"attn_mask\": [[0, 0, \"x\"], [0, 0, 0]]"), 422, NULL },
        { WITH("\"attn_mask\": null"), 422, NULL },
        { WITH("\"is_causal\": 1"), 422, NULL },
        { WITH("\"is_causal\": \"true\""), 422, NULL },
        { WITH("\"is_causal\": null"), 422, NULL },
        { WITH("\"window\": [1]"), 422, NULL },
        { WITH("\"window\": [1, 1, 1]"), 422, NULL },
        { WITH("\"window\": 1"), 422, NULL },
        { WITH("\"conventions\": \"torch\""), 422, NULL },
        { WITH("\"conventions\": 1"), 422, NULL },
        { WITH("\"causal_alignment\": \"bottom\""), 422, NULL },
        { WITH("\"mask_filter_value\": \"x\""), 422, NULL },
    };

    (void)state;
    CHECK(rows);
}

/* All numbers in an array, however deep, are `value`. */
static bool all_are(const json_t *array, double value)
{
    size_t i;
    json_t *item;

    if (json_is_number(array))
        return json_number_value(array) == value;
    json_array_foreach(array, i, item)
        if (!all_are(item, value))
            return false;
    return json_is_array(array);
}

static void rows_masked_in_full_are_zeros_whatever_masks_them(void **state)
{
    static const char *const rows[] = {
        WITH("\"key_padding_mask\": [[1, 1, 1]]"),
        WITH("\"key_padding_mask\": [[true, true, true]]"),
        WITH("\"attention_mask\": [[0, 0, 0]]"),
        WITH("\"attn_mask\": [[true, true, true], [true, true, true]]"),
        WITH("\"attn_mask\": [[null, null, null], [null, null, null]]"),
        WITH("\"attn_mask\": [[-Infinity, \"-Infinity\", -1e999], [null, null, "
             "-1e39]]"),
        WITH("\"conventions\": \"torch_sdpa\", \"attn_mask\": "
             "[[false, false, false], [false, false, false]]"),
        WITH("\"key_padding_mask\": [[1, 0, 1]], \"attention_mask\": [[1, 0, 1]]"),
        WITH("\"key_padding_mask\": [[1, 1, 0]], \"window\": [0, 0], "
             "\"is_causal\": true"),
        WITH("\"attention_mask\": [[0, 0, 1]], \"is_causal\": true"),
        WITH("\"attn_mask\": [[null, 0, null], [null, 0, null]], "
             "\"key_padding_mask\": [[0, 1, 0]]"),
        WITH("\"softcap\": 5, \"key_padding_mask\": [[1, 1, 1]]"),
        WITH("\"sinks\": [0, 0], \"key_padding_mask\": [[1, 1, 1]]"),
    };
    struct witness witness;

    (void)state;
    witness_begin(&witness, &served);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *answer = accepts(rows[i], strlen(rows[i]));

        if (!all_are(json_object_get(answer, "output"), 0) ||
            !all_are(json_object_get(answer, "weights"), 0) ||
            json_integer_value(json_object_get(answer,
                                               "fully_masked_queries")) != 4)
            fail_msg("%s: %s", rows[i], json_dumps(answer, 0));
        json_decref(answer);
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, sizeof rows / sizeof *rows);
}

static bool all_finite(const json_t *value)
{
    size_t i;
    json_t *item;

    if (json_is_number(value))
        return isfinite(json_number_value(value));
    json_array_foreach(value, i, item)
        if (!all_finite(item))
            return false;
    return json_is_array(value);
}

static void an_additive_mask_however_large_gives_finite_numbers(void **state)
{
    static const char *const rows[] = {
        WITH("\"attn_mask\": [[1e30, 0, 0], [0, 1e30, 0]]"),
        WITH("\"attn_mask\": [[-1e30, 0, 0], [0, -1e30, 0]]"),
        WITH("\"attn_mask\": [[-1e30, -1e30, -1e30], [1e30, 1e30, 1e30]]"),
        WITH("\"attn_mask\": [[3.4e38, 3.4e38, -3.4e38], [-3.4e38, 0, 0]]"),
        WITH("\"attn_mask\": [[-3.4e38, -3.4e38, -3.4e38], [3.4e38, 3.4e38, 0]]"),
        WITH("\"attn_mask\": [[-3.4e38, null, 3.4e38], [null, 3.4e38, null]]"),
        WITH("\"attention_mask\": [[0, 1, 0]], \"mask_filter_value\": -3.4e38, "
             "\"attn_mask\": [[-3.4e38, -3.4e38, -3.4e38], [0, 0, 0]]"),
    };
    struct witness witness;

    (void)state;
    witness_begin(&witness, &served);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *answer = accepts(rows[i], strlen(rows[i]));

        if (!all_finite(json_object_get(answer, "output")) ||
            !all_finite(json_object_get(answer, "weights")))
            fail_msg("%s: %s", rows[i], json_dumps(answer, 0));
        json_decref(answer);
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, sizeof rows / sizeof *rows);
}

/* Right or refused; never a number that is no JSON. */
static void scores_that_overflow_are_right_or_refused(void **state)
{
    static const char *const rows[] = {
        "{\"query\": [[1e19, 1e19], [1, 2]], \"scale\": 1e-38}",
        "{\"query\": [[1e38, 1e38], [1, 2]]}",
        "{\"query\": [[3.4e38, -3.4e38], [-3.4e38, 3.4e38]]}",
        "{\"query\": [[3.4e38, 3.4e38], [3.4e38, 3.4e38]], \"scale\": 1e-45}",
        "{\"query\": [[1, 1]], \"scale\": 3.4e38}",
        "{\"query\": [[1e30, 1e30]], \"scale\": 3.4e38}",
        "{\"query\": [[1e38, 0]], \"value\": [[3.4e38, 3.4e38]]}",
        "{\"query\": [[1, 0], [0, 1]], \"value\": [[3.4e38, 3.4e38], "
        "[3.4e38, 3.4e38]]}",
        "{\"query\": [[1e20, 0], [0, 1e20]], \"softcap\": 1e-30}",
        "{\"query\": [[1e20, 0], [0, 1e20]], \"softcap\": 3.4e38}",
        "{\"query\": [[1e30, 0], [0, 1e30]], \"alibi_slopes\": [3.4e38]}",
        "{\"query\": [[1e30, 0], [0, 1e30]], \"sinks\": [3.4e38]}",
        "{\"query\": [[1e30, 0], [0, 1e30]], \"sinks\": [-3.4e38]}",
        "{\"query\": [[3.4e38, 0]], \"state_dict\": {\"in_proj_weight\": "
        "[[2, 0], [0, 2], [2, 0], [0, 2], [2, 0], [0, 2]]}}",
        "{\"query\": [[1e20, 1e20]], \"return\": [\"scores\", \"lse\"]}",
        "{\"query\": [[1e20, 1e20]], \"precision\": \"float64\"}",
        "{\"query\": [[1e200, 1e200]], \"precision\": \"float64\"}",
        "{\"query\": [[3.4e38, 3.4e38]], \"precision\": \"bfloat16\"}",
    };
    struct witness witness;

    (void)state;
    witness_begin(&witness, &served);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct raw_answer answer;
        int status = post_bytes(rows[i], strlen(rows[i]), &answer);
        json_t *object;

        if (status != 200 && status != 422)
            show(rows[i], &answer, 200);
        object = json_loadb(answer.reply[0].body, answer.reply[0].body_len,
                            0, NULL);
        if (object == NULL)
            show(rows[i], &answer, status);
        if (status == 422)
            witness_problem(&answer.reply[0], "not_finite");
        else if (!all_finite(json_object_get(object, "output")))
            show(rows[i], &answer, 200);
        json_decref(object);
        raw_free(&answer);
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, sizeof rows / sizeof *rows);
}

/* A client that goes on until told to stop; asserts nothing, since it is
 * another thread. */
struct neighbour {
    pthread_t thread;
    char *text;
    size_t len;
    _Atomic bool stops;
    _Atomic int answers;
};

static void *disturb(void *arg)
{
    static const size_t room = 4 << 20;
    struct neighbour *neighbour = arg;
    char *answer = malloc(room);

    while (answer != NULL && !neighbour->stops) {
        int fd = daemon_connect(&served);

        if (fd < 0)
            break;
        if (daemon_send(fd, neighbour->text, neighbour->len) &&
            daemon_read_all(fd, answer, room) > 0)
            neighbour->answers++;
        close(fd);
    }
    free(answer);
    return NULL;
}

static void one_input_gets_one_answer_whatever_else_goes_on(void **state)
{
    enum { NEIGHBOURS = 3, TIMES = 1000 / SHARE };
    static const char *const members[NEIGHBOURS] = {
        "\"scale\": 1e30, ", "\"precision\": \"float64\", \"scale\": -1e18, ",
        "\"num_heads\": 4, \"is_causal\": true, ",
    };
    struct neighbour neighbour[NEIGHBOURS] = { 0 };
    struct witness witness;
    char *body = post_body(24, 16, "\"num_heads\": 4, "), *first = NULL;
    int answers = 0;

    (void)state;
    witness_begin(&witness, &served);
    for (int i = 0; i < NEIGHBOURS; i++) {
        char *other = post_body(300, 16, members[i]);

        neighbour[i].text = post_text("Connection: close\r\n", other,
                                      strlen(other), &neighbour[i].len);
        free(other);
        assert_int_equal(pthread_create(&neighbour[i].thread, NULL, disturb,
                                        &neighbour[i]), 0);
    }
    for (int n = 0; n < TIMES; n++) {
        struct raw_answer answer;

        if (post_bytes(body, strlen(body), &answer) != 200)
            show(body, &answer, 200);
        if (first == NULL)
            first = strdup(answer.reply[0].body);
        assert_string_equal(answer.reply[0].body, first);
        raw_free(&answer);
    }
    for (int i = 0; i < NEIGHBOURS; i++)
        neighbour[i].stops = true;
    for (int i = 0; i < NEIGHBOURS; i++) {
        pthread_join(neighbour[i].thread, NULL);
        answers += neighbour[i].answers;
        free(neighbour[i].text);
    }
    assert_true(answers >= NEIGHBOURS);
    free(first);
    free(body);
    witness_end(&witness, WITNESS_HEAP_BYTES, TIMES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_body_cut_at_any_byte_is_400_with_the_position),
        cmocka_unit_test(
            a_client_that_closes_within_the_body_is_counted_as_aborted),
        cmocka_unit_test(
            what_opens_a_hundred_thousand_times_is_400_at_the_depth_cap),
        cmocka_unit_test(a_key_given_twice_is_400_however_it_is_written),
        cmocka_unit_test(what_is_not_finite_is_never_taken_silently),
        cmocka_unit_test(
            zeros_denormals_and_endless_digits_keep_value_and_sign),
        cmocka_unit_test(an_exponent_without_end_that_overflows_is_422),
        cmocka_unit_test(what_looks_like_json_and_is_not_is_400),
        cmocka_unit_test(what_is_not_utf_8_is_400_and_its_error_is),
        cmocka_unit_test(a_body_that_is_no_object_is_400),
        cmocka_unit_test(keys_without_end_cost_linear_time),
        cmocka_unit_test(a_million_of_the_wrong_kind_are_refused_at_the_first),
        cmocka_unit_test(an_element_out_of_place_is_422_with_its_place),
        cmocka_unit_test(data_that_does_not_fill_its_shape_is_422),
        cmocka_unit_test(
            a_shape_that_overflows_is_refused_before_any_allocation),
        cmocka_unit_test(a_dimension_that_is_no_positive_integer_is_422),
        cmocka_unit_test(an_integer_out_of_its_range_is_422_or_right),
        cmocka_unit_test(a_huge_answer_to_a_small_input_is_413_from_its_shape),
        cmocka_unit_test(a_mask_of_a_wrong_rank_axis_or_type_is_422),
        cmocka_unit_test(rows_masked_in_full_are_zeros_whatever_masks_them),
        cmocka_unit_test(an_additive_mask_however_large_gives_finite_numbers),
        cmocka_unit_test(scores_that_overflow_are_right_or_refused),
        cmocka_unit_test(one_input_gets_one_answer_whatever_else_goes_on),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
