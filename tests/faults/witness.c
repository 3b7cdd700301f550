#include "tests/faults/witness.h"

#include "tests/load/watch.h"

#include <ctype.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>

#include <cmocka.h>
#include <jansson.h>

#define CONTROL_BODY                                                           \
    "{\"query\": [[1, 0, 0.5, 2], [0, 2, -1, 0], [1, 1, 3, 2]], "              \
    "\"num_heads\": 2, \"is_causal\": true}"

enum {
    PATIENCE_MS = 2000, LIVE_MS = 1000, TRIES = 3,
    POOLED = 2 * 32 + 4 /* idle ones that HAProxy keeps, and its own questions */
};

/* A sanitizer keeps freed memory back, as much as it likes. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { WATCHES_MEMORY = 0 };
#else
enum { WATCHES_MEMORY = 1 };
#endif

static bool is_proxied(const struct daemon *daemon)
{
    return daemon->proxy.pid > 0;
}

static char *control_answer(const struct witness *witness)
{
    char text[512], *body;
    struct raw_answer answer;

    snprintf(text, sizeof text,
             "POST /attention HTTP/1.1\r\nHost: a\r\nConnection: close\r\n%s"
             "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             witness->key, sizeof CONTROL_BODY - 1, CONTROL_BODY);
    raw_say(witness->daemon->port, text, &answer);
    if (raw_status(&answer) != 200)
        fail_msg("the control request got: %s", answer.bytes);
    body = strndup(answer.reply[0].body, answer.reply[0].body_len);
    assert_non_null(body);
    raw_free(&answer);
    return body;
}

/* Once more when it took longer: that may have been the machine's doing. */
static void check_life(const struct daemon *daemon)
{
    int64_t took_ns = INT64_MAX;

    for (int i = 0; i < TRIES && took_ns > LIVE_MS * 1000000LL; i++) {
        int64_t before = raw_now_ns();
        struct raw_answer answer;

        if (waitpid(daemon->pid, NULL, WNOHANG) != 0)
            fail_msg("the process has ended");
        raw_say(daemon->port, "GET /livez HTTP/1.1\r\nHost: a\r\n"
                              "Connection: close\r\n\r\n", &answer);
        assert_int_equal(raw_status(&answer), 200);
        raw_free(&answer);
        took_ns = raw_now_ns() - before;
    }
    assert_true(took_ns <= LIVE_MS * 1000000LL);
}

static void check_line(const char *line, size_t len)
{
    json_t *object = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);

    if (!json_is_object(object))
        fail_msg("log line: %.*s", (int)len, line);
    json_decref(object);
    for (size_t i = 0; i < len; i++)
        if (!isprint((unsigned char)line[i]) && (line[i] & 0x80) == 0)
            fail_msg("log line: %.*s", (int)len, line);
}

/* Lines about requests; the last one may not be whole yet. Those after the
 * first `known` are looked at. */
static long count_lines(const struct daemon *daemon, long known)
{
    char *log = daemon_log(daemon), *end;
    long lines = 0;

    for (char *at = log; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        const char *found = memmem(at, (size_t)(end - at),
                                   "\"msg\":\"request\"", 15);

        lines += found != NULL;
        if (lines > known)
            check_line(at, (size_t)(end - at));
    }
    free(log);
    return lines;
}

static double sum_of(const char *metrics, const char *name)
{
    double sum = 0;
    size_t len = strlen(name);

    for (const char *at = metrics; (at = strstr(at, name)) != NULL; at += len)
        if (at[-1] == '\n' && (at[len] == '{' || at[len] == ' ')) {
            const char *value = at + strcspn(at, "\n");

            while (value[-1] != ' ')
                value--;
            sum += strtod(value, NULL);
        }
    return sum;
}

struct figures {
    long ticks, dropped;
    double reserved, waiting;
};

/* The request that asks is counted after it is answered: not yet. */
static struct figures look(const struct witness *witness)
{
    char text[256];
    struct raw_answer answer;
    struct figures figures;

    snprintf(text, sizeof text, "GET /metrics HTTP/1.1\r\nHost: a\r\n%s"
                                "Connection: close\r\n\r\n", witness->key);
    raw_say(witness->daemon->own_port, text, &answer);
    assert_int_equal(raw_status(&answer), 200);
    figures.ticks = (long)sum_of(answer.bytes, "attnd_requests_total");
    figures.dropped = (long)sum_of(answer.bytes, "attnd_log_dropped_total");
    figures.reserved = sum_of(answer.bytes, "attnd_memory_reserved_bytes");
    figures.waiting = sum_of(answer.bytes, "attnd_queue_jobs");
    raw_free(&answer);
    return figures;
}

/* Log lines are written behind, and each look is itself a request: a pair
 * counts when nothing came between. */
static void count_both(struct witness *witness)
{
    for (int waited = 0; waited < PATIENCE_MS; waited += 20) {
        long lines = count_lines(witness->daemon, LONG_MAX);
        struct figures figures = look(witness);

        witness->lines = lines;
        witness->dropped = figures.dropped;
        witness->ticks = figures.ticks;
        if (lines + figures.dropped == figures.ticks)
            return;
        poll(NULL, 0, 20);
    }
}

void witness_begin(struct witness *witness, const struct daemon *daemon)
{
    witness_begin_with(witness, daemon, "");
}

void witness_begin_with(struct witness *witness, const struct daemon *daemon,
                        const char *key)
{
    struct watch_sample sample;

    *witness = (struct witness){ .daemon = daemon, .key = key };
    witness->control = control_answer(witness);
    count_both(witness);
    assert_true(watch_look(daemon->pid, &sample));
    witness->files = sample.files;
    witness->resident_bytes = sample.resident_bytes;
}

static void check_resources(const struct witness *witness, int64_t slack_bytes)
{
    int most = witness->files + (is_proxied(witness->daemon) ? POOLED : 0);
    struct watch_sample sample = { 0 };
    int64_t grown = 0;

    for (int waited = 0; waited < PATIENCE_MS; waited += 10) {
        assert_true(watch_look(witness->daemon->pid, &sample));
        grown = sample.resident_bytes - witness->resident_bytes;
        if (sample.files <= most &&
            (!WATCHES_MEMORY || grown <= slack_bytes))
            return;
        poll(NULL, 0, 10);
    }
    if (sample.files > most)
        fail_msg("%d open files, before %d", sample.files, witness->files);
    fail_msg("resident memory grew by %lld bytes, slack %lld",
             (long long)grown, (long long)slack_bytes);
}

static void check_budget(const struct witness *witness)
{
    struct figures figures = { 0 };

    for (int waited = 0; waited < PATIENCE_MS; waited += 20) {
        figures = look(witness);
        if (figures.reserved == 0 && figures.waiting == 0)
            return;
        poll(NULL, 0, 20);
    }
    fail_msg("%g bytes reserved, %g jobs waiting", figures.reserved,
             figures.waiting);
}

void witness_end(struct witness *witness, int64_t slack_bytes, int requests)
{
    long lines = witness->lines, ticks = witness->ticks;
    char *control;

    check_life(witness->daemon);
    check_resources(witness, slack_bytes);
    check_budget(witness);
    control = control_answer(witness);
    assert_string_equal(control, witness->control);
    free(control);
    free(witness->control);
    count_both(witness);
    assert_int_equal(witness->lines + witness->dropped, witness->ticks);
    if (!is_proxied(witness->daemon)) /* which answers some by itself */
        assert_true(witness->ticks - ticks >= requests);
    count_lines(witness->daemon, lines);
}

/* Texts an error must not have: the machine's side of it. */
static void check_discretion(const char *text)
{
    static const char *const words[] = { "/proc", "/home", "/usr", "/tmp",
                                         "/etc", ".c:", "errno", "(nil)",
                                         "nan(" };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(text, words[i]) != NULL)
            fail_msg("%s in: %s", words[i], text);
    for (const char *at = text; (at = strstr(at, "0x")) != NULL; at++)
        if (strspn(at + 2, "0123456789abcdefABCDEF") >= 6)
            fail_msg("an address in: %s", text);
    for (int i = 1; i < 134; i++)
        if (strcasestr(text, strerror(i)) != NULL)
            fail_msg("%s in: %s", strerror(i), text);
}

static const char *member(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    if (text == NULL)
        fail_msg("no %s", name);
    return text;
}

void witness_problem(const struct raw_reply *reply, const char *code)
{
    static const char *const codes[] = {
        "malformed_json", "malformed_request", "unauthorized", "not_found",
        "method_not_allowed", "timeout", "too_large", "unsupported_media_type",
        "unknown_field", "missing_field", "conflicting_fields", "wrong_type",
        "out_of_range", "shape_mismatch", "not_finite", "overloaded",
        "draining", "quota",
    };
    char type[128], id[160];
    json_t *object = json_loadb(reply->body, reply->body_len,
                                JSON_REJECT_DUPLICATES, NULL);
    size_t i = 0;

    if (!json_is_object(object))
        fail_msg("no problem+json: %.*s", (int)reply->body_len, reply->body);
    if (raw_header(reply, "Content-Type", type, sizeof type) == NULL)
        fail_msg("no Content-Type: %.*s", (int)reply->head_len, reply->head);
    assert_string_equal(type, "application/problem+json");
    assert_int_equal(json_integer_value(json_object_get(object, "status")),
                     reply->status);
    while (i < sizeof codes / sizeof *codes &&
           strcmp(member(object, "code"), codes[i]) != 0)
        i++;
    assert_true(i < sizeof codes / sizeof *codes);
    if (code != NULL)
        assert_string_equal(member(object, "code"), code);
    assert_true(strlen(member(object, "detail")) > 0);
    assert_string_equal(member(object, "error"), member(object, "detail"));
    assert_true(strlen(member(object, "type")) > 0 &&
                strlen(member(object, "title")) > 0);
    check_discretion(member(object, "pointer"));
    check_discretion(member(object, "detail"));
    if (raw_header(reply, "X-Request-ID", id, sizeof id) != NULL)
        assert_string_equal(member(object, "request_id"), id);
    json_decref(object);
}
