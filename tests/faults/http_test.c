/* The rows of bad HTTP: each gets its answer, and costs nobody else anything.
 * tests/e2e/http_test.c shows that HTTP works; this shows what is refused.
 * The same rows go through HAProxy with THROUGH=haproxy: `make proxy`. */
#include "tests/e2e/daemon.h"
#include "tests/faults/post.h"
#include "tests/faults/raw.h"
#include "tests/faults/witness.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SHARE = 20 };
#else
enum { SHARE = 1 };
#endif

#define HOST "Host: a\r\n"
#define CLOSE "Connection: close\r\n"
#define GET(path) "GET " path " HTTP/1.1\r\n" HOST CLOSE "\r\n"
#define BYTES(text) text, sizeof text - 1
#define CHUNKED POST_JSON "Transfer-Encoding: chunked\r\n\r\n"
#define SMALL_CHUNKS "5\r\n{\"que\r\nE\r\nry\": [[1, 2]]}\r\n0\r\n\r\n"

enum {
    MAX_BODY_BYTES = 1 << 20,
    SLOW_MS = 500,
    PROXY_MS = 10000 /* haproxy.cfg's timeout http-request */
};

/* Most tests share a daemon; those about time share one that is impatient. */
static struct daemon plain, quick;

static int start_both(void **state)
{
    struct raw_answer answer;

    (void)state;
    daemon_start(&plain, (const char *const[]){ "--max-body-bytes", "1MiB",
                                                NULL });
    daemon_start(&quick, (const char *const[]){
        "--header-timeout-ms", "500", "--body-timeout-ms", "500",
        "--idle-timeout-ms", "500", "--max-connections", "60",
        "--workers", "2", NULL });
    raw_say(plain.port, GET("/openapi.json"), &answer);
    raw_free(&answer);
    return 0;
}

static int stop_both(void **state)
{
    int plain_status = daemon_stop(&plain, SIGTERM);

    (void)state;
    return daemon_stop(&quick, SIGTERM) | plain_status;
}

static int metric(const char *name)
{
    return (int)daemon_metric(&quick, name);
}

static bool is_proxied(void)
{
    return plain.proxy.pid > 0;
}

/* What a row gets: directly, and through HAProxy where that is not the same.
 * HTML comes from a parser that refuses by itself and passes no code of ours:
 * libmicrohttpd's, sometimes with its headers twice, or HAProxy's. HAProxy reads
 * some rows in one way, and passes on what it has read: a status below 400. It
 * may leave the connection open, and take what follows for the next request. */
struct verdict {
    int status;
    enum { PROBLEM, HTML, OPEN, NEXT } how;
};

#define BOTH(status, how) { { status, how } }
#define EACH(direct, how, through, its_how)                                    \
    { { direct, how }, { through, its_how } }

static const struct verdict *find_verdict(const struct verdict want[2])
{
    return &want[is_proxied() && want[1].status != 0 ? 1 : 0];
}

static void check_verdict(const char *what, const struct raw_answer *answer,
                          const struct verdict *want, const char *code)
{
    bool closes = want->how == PROBLEM || want->how == HTML;

    if (raw_status(answer) != want->status || (closes && !answer->closed))
        fail_msg("%s: want %d, got %s%s", what, want->status, answer->bytes,
                 answer->closed ? "" : " and no close");
    if (want->how == HTML && strstr(answer->bytes, "<html>") == NULL)
        fail_msg("%s: no HTML: %s", what, answer->bytes);
    if (want->how == HTML || want->status < 400)
        return;
    witness_problem(&answer->reply[0], is_proxied() ? NULL : code);
    if (is_proxied())
        return;
    if (answer->replies != 1 || answer->malformed)
        fail_msg("%s: got %s", what, answer->bytes);
    assert_true(answer->reply[0].closes);
}

/* Says it, and waits for the end where one is to come. */
static void check_row(const char *what, const struct raw_script *script,
                      const struct verdict want[2], const char *code)
{
    const struct verdict *verdict = find_verdict(want);
    struct raw_script said = *script;
    struct raw_answer answer;

    said.replies = verdict->how == OPEN ? 1 : 0;
    raw_run(plain.port, &said, &answer);
    check_verdict(what, &answer, verdict, code);
    raw_free(&answer);
}

/* Requests for /hidden so far: lines of the log, which is written behind. */
static int hidden_requests(void)
{
    char *log = daemon_log(&plain);
    int lines = 0;

    for (const char *at = log; (at = strstr(at, "/hidden")) != NULL; at++)
        lines++;
    free(log);
    return lines;
}

static void a_request_hidden_behind_a_malformed_one_is_never_executed(
    void **state)
{
    static const struct {
        const char *headers;
        size_t len;
        struct verdict want[2];
    } rows[] = {
        { BYTES("Content-Length: 19\r\nTransfer-Encoding: chunked"),
          EACH(400, PROBLEM, 200, PROBLEM) },
        { BYTES("Transfer-Encoding: chunked\r\nContent-Length: 19"),
          EACH(400, PROBLEM, 200, PROBLEM) },
        { BYTES("Content-Length: 0\r\ntransfer-encoding: Chunked"),
          EACH(400, PROBLEM, 200, PROBLEM) },
        { BYTES("Content-Length: 19\r\nContent-Length: 19"),
          BOTH(400, PROBLEM) },
        { BYTES("Content-Length: 19\r\ncontent-length: 0"),
          EACH(400, PROBLEM, 400, HTML) },
        { BYTES("Content-Length: 0\r\nCONTENT-LENGTH: 19"),
          EACH(400, PROBLEM, 400, HTML) },
        { BYTES("Content-Length : 19"), EACH(400, PROBLEM, 400, HTML) },
        { BYTES("Content-Length\t: 19"), EACH(400, PROBLEM, 400, HTML) },
        { BYTES("Transfer-Encoding : chunked"), EACH(400, PROBLEM, 400, HTML) },
        { BYTES(" Content-Length: 19"), BOTH(400, PROBLEM) },
        { BYTES("X: y\r\n Content-Length: 19"), BOTH(400, PROBLEM) },
        { BYTES("Content-Length:\r\n 19"), BOTH(400, PROBLEM) },
        { BYTES("Transfer-Encoding:\r\n chunked"),
          EACH(400, PROBLEM, 200, NEXT) },
        { BYTES("Transfer-Encoding: x\r\n chunked"),
          EACH(400, PROBLEM, 400, HTML) },
        { BYTES("Content: 19\r\n -Length"), EACH(400, PROBLEM, 400, HTML) },
        { BYTES("Transfer: chunked\r\n\t-\r\n Encoding"),
          EACH(400, PROBLEM, 400, HTML) },
        { BYTES("X: y\r\n z"), EACH(400, PROBLEM, 400, HTML) },
        { BYTES("Transfer-Encoding: "), EACH(400, PROBLEM, 400, HTML) },
        { BYTES("Transfer-Encoding: gzip"), EACH(400, PROBLEM, 400, HTML) },
        { BYTES("Transfer-Encoding: identity"), EACH(400, PROBLEM, 400, HTML) },
        { BYTES("Transfer-Encoding: gzip, chunked"),
          EACH(400, PROBLEM, 422, HTML) },
        { BYTES("Transfer-Encoding: chunked, gzip"),
          EACH(400, PROBLEM, 400, HTML) },
        { BYTES("Transfer-Encoding: chunked, chunked"),
          EACH(400, PROBLEM, 400, HTML) },
        { BYTES("Transfer-Encoding: chunked,"), BOTH(400, PROBLEM) },
        { BYTES("Transfer-Encoding: ,chunked"),
          EACH(400, PROBLEM, 422, HTML) },
        { BYTES("Transfer-Encoding: \"chunked\""),
          EACH(400, PROBLEM, 400, HTML) },
        { BYTES("Transfer-Encoding: chunked;q=1"),
          EACH(400, PROBLEM, 400, HTML) },
        { BYTES("Transfer-Encoding: xchunked"), EACH(400, PROBLEM, 400, HTML) },
        { BYTES("Transfer-Encoding: \x0b""chunked"),
          EACH(400, PROBLEM, 400, HTML) },
        { BYTES("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
          EACH(400, PROBLEM, 400, HTML) },
        { BYTES("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"),
          EACH(400, PROBLEM, 400, HTML) },
        { BYTES("Transfer\xc2\xad" "Encoding: chunked"),
          EACH(400, PROBLEM, 400, HTML) },
        { BYTES("X: y\rContent-Length: 19"), EACH(400, PROBLEM, 400, HTML) },
        { BYTES("X(y): z"), EACH(400, PROBLEM, 400, HTML) },
        { BYTES("X\x01: y"), EACH(400, PROBLEM, 400, HTML) },
        { BYTES("Content-Length\0: 19"), BOTH(400, HTML) },
        { BYTES("X: y\0z\r\nTransfer-Encoding: chunked"),
          EACH(200, NEXT, 400, PROBLEM) },
        { BYTES("Content-Length: +19"), BOTH(400, HTML) },
        { BYTES("Content-Length: -1"), BOTH(400, HTML) },
        { BYTES("Content-Length: 0x13"), BOTH(400, HTML) },
        { BYTES("Content-Length: 19,19"), EACH(400, HTML, 400, PROBLEM) },
        { BYTES("Content-Length: 19 19"), BOTH(400, HTML) },
        { BYTES("Content-Length: 1e1"), BOTH(400, HTML) },
        { BYTES("Content-Length: "), BOTH(400, HTML) },
        { BYTES("no colon"), BOTH(400, HTML) },
    };
    struct witness witness;
    int next = 0, before = hidden_requests();

    (void)state;
    witness_begin(&witness, &plain);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512];
        size_t at = (size_t)snprintf(text, sizeof text, "%s", POST_JSON);

        memcpy(text + at, rows[i].headers, rows[i].len);
        at += rows[i].len;
        at += (size_t)snprintf(text + at, sizeof text - at, "\r\n\r\n%s%s",
                               SMALL_CHUNKS, GET("/hidden"));
        check_row(rows[i].headers, &(struct raw_script){ text, .len = at },
                  rows[i].want, "malformed_request");
        next += find_verdict(rows[i].want)->how == NEXT;
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, sizeof rows / sizeof *rows);
    assert_int_equal(hidden_requests(), before + next);
}

static void a_transfer_coding_on_http_1_0_is_refused(void **state)
{
    static const struct raw_script script = {
        .bytes = "POST /attention HTTP/1.0\r\n" HOST
        "Content-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\n" SMALL_CHUNKS GET("/hidden")
    };
    static const struct verdict want[2] = BOTH(400, PROBLEM);
    struct witness witness;
    int before = hidden_requests();

    (void)state;
    witness_begin(&witness, &plain);
    check_row("HTTP/1.0", &script, want, "malformed_request");
    witness_end(&witness, WITNESS_SLACK_BYTES, 1);
    assert_int_equal(hidden_requests(), before);
}

/* Sizes as only some servers read them, and chunks longer than they say. */
static void a_chunk_that_is_read_in_two_ways_is_refused(void **state)
{
    static const struct {
        const char *chunk;
        struct verdict want[2];
    } rows[] = {
        { "0x5\r\n{\"que\r\n0\r\n\r\n", BOTH(400, HTML) },
        { "-5\r\n{\"que\r\n0\r\n\r\n", BOTH(400, HTML) },
        { "+5\r\n{\"que\r\n0\r\n\r\n", BOTH(400, HTML) },
        { " 5\r\n{\"que\r\n0\r\n\r\n", BOTH(400, HTML) },
        { "5 \r\n{\"que\r\n0\r\n\r\n", EACH(400, HTML, 400, NEXT) },
        { "\r\n{\"que\r\n0\r\n\r\n", BOTH(400, HTML) },
        { "G\r\n{\"que\r\n0\r\n\r\n", BOTH(400, HTML) },
        { "5\r\n{\"query\r\n0\r\n\r\n", BOTH(400, HTML) },
        { "5\r\n{\"queE\r\n0\r\n\r\n", BOTH(400, HTML) },
        { "FFFFFFFFFFFFFFFFF\r\n{", EACH(413, HTML, 400, HTML) },
    };
    struct witness witness;
    int next = 0, before = hidden_requests();

    (void)state;
    witness_begin(&witness, &plain);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512];

        snprintf(text, sizeof text, "%s%s%s", CHUNKED, rows[i].chunk,
                 GET("/hidden"));
        check_row(rows[i].chunk, &(struct raw_script){ .bytes = text },
                  rows[i].want, NULL);
        next += find_verdict(rows[i].want)->how == NEXT;
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, sizeof rows / sizeof *rows);
    assert_int_equal(hidden_requests(), before + next);
}

static void a_request_has_one_host_and_a_sound_request_line(void **state)
{
    static const struct {
        const char *request;
        struct verdict want[2];
    } rows[] = {
        { "GET /livez HTTP/1.1\r\n\r\n", BOTH(400, PROBLEM) },
        { "GET /livez HTTP/1.1\r\n" HOST HOST "\r\n",
          EACH(400, PROBLEM, 200, OPEN) },
        { "GET /livez HTTP/1.1\r\n" HOST "hOST: b\r\n\r\n",
          EACH(400, PROBLEM, 400, HTML) },
        { "GET /livez%00 HTTP/1.1\r\n" HOST "\r\n", BOTH(400, PROBLEM) },
        { "GET /%00livez HTTP/1.1\r\n" HOST "\r\n", BOTH(400, PROBLEM) },
        { "GET /livez%00/../attention HTTP/1.1\r\n" HOST "\r\n",
          BOTH(400, PROBLEM) },
        { "GET /livez  HTTP/1.1\r\n" HOST "\r\n",
          EACH(400, PROBLEM, 200, OPEN) },
        { "GET http://a b/livez HTTP/1.1\r\n" HOST "\r\n",
          EACH(400, PROBLEM, 400, HTML) },
        { "{\"query\":[[1]]}GET /livez HTTP/1.1\r\n" HOST "\r\n",
          EACH(400, PROBLEM, 400, HTML) },
    };
    struct witness witness;

    (void)state;
    witness_begin(&witness, &plain);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_row(rows[i].request,
                  &(struct raw_script){ .bytes = rows[i].request },
                  rows[i].want, "malformed_request");
    witness_end(&witness, WITNESS_SLACK_BYTES, sizeof rows / sizeof *rows);
}

static void a_target_in_absolute_form_is_served(void **state)
{
    struct raw_answer answer;

    (void)state;
    raw_say(plain.port, GET("http://a/livez"), &answer);
    assert_int_equal(raw_status(&answer), 200);
    raw_free(&answer);
    raw_say(plain.port,
            "POST http://a:80/attention HTTP/1.1\r\n" HOST CLOSE
            "Content-Type: application/json\r\nContent-Length: 19\r\n\r\n"
            POST_SMALL, &answer);
    assert_int_equal(raw_status(&answer), 200);
    raw_free(&answer);
}

/* Not a byte of body is sent, and none is waited for. */
static void a_length_over_the_limit_is_refused_at_the_headers(void **state)
{
    static const struct {
        const char *length;
        struct verdict want[2];
    } rows[] = {
        { "1048577", EACH(413, PROBLEM, 413, OPEN) },
        { "67108864", EACH(413, PROBLEM, 413, OPEN) },
        { "67108865", EACH(413, PROBLEM, 413, OPEN) },
        { "1099511627776", EACH(413, PROBLEM, 413, OPEN) },
        { "9223372036854775807", BOTH(413, PROBLEM) },
        { "9223372036854775808", EACH(413, PROBLEM, 400, HTML) },
        { "18446744073709551615", BOTH(413, PROBLEM) },
        { "18446744073709551616", EACH(413, HTML, 413, PROBLEM) },
        { "99999999999999999999999999999999", EACH(413, HTML, 400, HTML) },
    };
    struct witness witness;

    (void)state;
    witness_begin(&witness, &plain);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[256];

        snprintf(text, sizeof text, POST_JSON "Content-Length: %s\r\n\r\n",
                 rows[i].length);
        check_row(rows[i].length, &(struct raw_script){
            text, .deadline_ms = 5000 }, rows[i].want, "too_large");
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, sizeof rows / sizeof *rows);
}

/* One byte a chunk costs six on the wire, and what it costs the daemon grows
 * with the number of chunks and no faster. */
static void chunks_without_end_are_refused_at_the_limit(void **state)
{
    static char large[8 + 65536 + 2] = "010000\r\n";
    const struct raw_script rows[] = {
        { CHUNKED, .tail = "1\r\n \r\n", .tails = 1200000, .deadline_ms = 20000,
          .replies = 1 },
        { CHUNKED, .tail = large, .tail_len = sizeof large, .tails = 100000,
          .deadline_ms = 20000, .replies = 1 },
        { CHUNKED, .tail = "1;name=value\r\n \r\n", .tails = 1200000,
          .deadline_ms = 20000, .replies = 1 },
    };
    struct witness witness;

    (void)state;
    memset(large + 8, ' ', 65536);
    memcpy(large + 8 + 65536, "\r\n", 2);
    witness_begin(&witness, &plain);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct raw_answer answer;

        raw_run(plain.port, &rows[i], &answer);
        if (raw_status(&answer) != 413)
            fail_msg("row %zu: got %s after %lld bytes", i, answer.bytes,
                     (long long)answer.sent);
        assert_true(answer.reply[0].closes || is_proxied());
        witness_problem(&answer.reply[0], "too_large");
        raw_free(&answer);
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, sizeof rows / sizeof *rows);
}

/* A million chunks that end in time are a body. */
static void a_body_in_as_many_chunks_as_bytes_is_served(void **state)
{
    enum { SPACES = 900000 };
    const struct raw_script spaces = {
        CHUNKED "1\r\n{\r\n", .tail = "1\r\n \r\n", .tails = SPACES,
        .deadline_ms = 20000, .replies = 1
    };
    struct raw_answer answer;
    size_t len = strlen(spaces.bytes) + SPACES * 6;
    char *text = malloc(len + 64);

    (void)state;
    assert_non_null(text);
    memcpy(text, spaces.bytes, strlen(spaces.bytes));
    for (size_t at = strlen(spaces.bytes); at < len; at += 6)
        memcpy(text + at, spaces.tail, 6);
    snprintf(text + len, 64, "12\r\n%s\r\n0\r\n\r\n", POST_SMALL + 1);
    raw_run(plain.port, &(struct raw_script){ text, .deadline_ms = 20000,
                                              .replies = 1 }, &answer);
    assert_int_equal(raw_status(&answer), 200);
    raw_free(&answer);
    free(text);
}

static void expect_is_answered_with_100_only_when_the_body_is_wanted(
    void **state)
{
    static const struct {
        const char *headers;
        int status, interim;
    } rows[] = {
        { POST_JSON "Content-Length: 19\r\nExpect: 100-continue\r\n", 200, 1 },
        { POST_JSON "Content-Length: 19\r\nExpect: 100-Continue\r\n", 200, 1 },
        { POST_JSON "Content-Length: 1048577\r\nExpect: 100-continue\r\n", 413,
          0 },
        { POST_JSON "Content-Length: 19\r\nExpect: 100-continue\r\n"
                    "Content-Encoding: br\r\n", 415, 0 },
        { "POST /attention HTTP/1.1\r\n" HOST "Content-Type: text/plain\r\n"
          "Content-Length: 19\r\nExpect: 100-continue\r\n", 415, 0 },
        { "POST /nope HTTP/1.1\r\n" HOST "Content-Length: 19\r\n"
          "Expect: 100-continue\r\n", 404, 0 },
        { "POST /livez HTTP/1.1\r\n" HOST "Content-Length: 19\r\n"
          "Expect: 100-continue\r\n", 405, 0 },
        { POST_JSON "Content-Length: 19\r\nContent-Length: 20\r\n"
                    "Expect: 100-continue\r\n", 400, 0 },
    };
    struct witness witness;

    (void)state;
    witness_begin(&witness, &plain);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512];
        struct raw_answer answer;
        struct raw_script script = { text, .replies = 1 };

        snprintf(text, sizeof text, "%s\r\n", rows[i].headers);
        if (rows[i].status == 200) { /* the body, whether or not 100 came */
            script.tail = POST_SMALL;
            script.tails = 1;
            script.piece = 4096;
            script.pause_ms = 1000;
        }
        raw_run(plain.port, &script, &answer);
        if (raw_status(&answer) != rows[i].status ||
            answer.reply[0].interim != rows[i].interim)
            fail_msg("%s: got %s", rows[i].headers, answer.bytes);
        if (rows[i].interim > 0)
            assert_true(answer.first_ns < 950000000); /* before the body */
        else if (rows[i].status != 400 || !is_proxied()) /* there it is HTML */
            witness_problem(&answer.reply[0], NULL);
        raw_free(&answer);
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, sizeof rows / sizeof *rows);
}

/* curl reads while it sends; Python reads when all is sent; Node stops sending
 * when an answer comes. */
static void a_client_that_sends_too_much_reads_the_413(void **state)
{
    static const int64_t sizes[] = { MAX_BODY_BYTES + 1, 3 << 20, 40 << 20,
                                     100 << 20 };
    static char block[1 << 16];
    struct witness witness;

    (void)state;
    memset(block, ' ', sizeof block);
    witness_begin(&witness, &plain);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int way = 0; way < 3; way++) {
            char head[256];
            struct raw_answer answer;

            snprintf(head, sizeof head,
                     POST_JSON "Content-Length: %lld\r\n\r\n%*s",
                     (long long)sizes[i], (int)(sizes[i] % (int)sizeof block), "");
            raw_run(plain.port, &(struct raw_script){
                head, .tail = block, .tail_len = sizeof block,
                .tails = sizes[i] / (int64_t)sizeof block,
                .reads_last = way == 0,
                .replies = way == 2 || is_proxied() ? 1 : 0 }, &answer);
            if (raw_status(&answer) != 413)
                fail_msg("%lld bytes, way %d: %lld sent, got %s",
                         (long long)sizes[i], way, (long long)answer.sent,
                         answer.bytes);
            witness_problem(&answer.reply[0], "too_large");
            raw_free(&answer);
        }
    witness_end(&witness, WITNESS_SLACK_BYTES, 12);
}

/* Each sends a byte every 20 ms for ever; meanwhile others are served. HAProxy
 * waits for headers as long as its configuration says, and answers for itself;
 * bodies it passes on. */
static void slow_headers_and_bodies_are_cut_and_others_never_notice(
    void **state)
{
    static const struct {
        struct raw_script script;
        bool is_body;
    } rows[] = {
        { { "GET /livez HTTP/1.1\r\nX: ", .tail = "a", .tails = 1000,
            .piece = 1, .pause_ms = 20 }, false },
        { { "GET /livez HTTP/1.1\r\n", .tail = "X: y\r\n", .tails = 1000,
            .piece = 6, .pause_ms = 20 }, false },
        { { POST_JSON "Content-Length: 900\r\n\r\n", .tail = " ",
            .tails = 900, .piece = 1, .pause_ms = 20 }, true },
        { { CHUNKED, .tail = "1\r\n \r\n", .tails = 900, .piece = 1,
            .pause_ms = 20 }, true },
        { { "GET /li", .tail = "v", .tails = 900, .piece = 1,
            .pause_ms = 20 }, false },
    };
    struct witness witness;

    (void)state;
    witness_begin(&witness, &quick);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct raw_script script = rows[i].script;
        bool by_proxy = is_proxied() && !rows[i].is_body;
        int idle = raw_connect(quick.port); /* as slow as can be */
        struct raw_answer answer;

        script.deadline_ms = by_proxy ? 2 * PROXY_MS : 12 * SLOW_MS;
        script.replies = is_proxied() ? 1 : 0;
        raw_run(quick.port, &script, &answer);
        if ((!answer.closed && !is_proxied()) || answer.sent_all ||
            (is_proxied() && answer.replies == 0))
            fail_msg("row %zu: %lld bytes in %lld ms, got %s", i,
                     (long long)answer.sent,
                     (long long)(answer.end_ns / 1000000), answer.bytes);
        if (answer.len > 0)
            assert_int_equal(raw_status(&answer), 408);
        if (answer.len > 0 && !by_proxy)
            witness_problem(&answer.reply[0], "timeout");
        raw_free(&answer);
        close(idle);
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, 4);
}

static int slow_reader(const char *text, size_t len)
{
    int fd = raw_connect(quick.port), small = 4096;

    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    assert_int_equal(send(fd, text, len, MSG_NOSIGNAL), len);
    return fd;
}

/* 20 MB of weights, of which the reader takes 50 bytes a second. In front of
 * attnd the system's buffers may take them all for HAProxy; then nothing is cut. */
static void a_reader_that_takes_no_answer_is_cut_at_the_deadline(void **state)
{
    enum { ROWS = 1500, READERS = 4 };
    char *body = post_body(ROWS, 2, ""), byte;
    size_t len;
    char *text = post_text("", body, strlen(body), &len);
    struct witness witness;
    int fds[READERS], aborted = metric("attnd_aborted_total"), waited = 0;

    (void)state;
    witness_begin(&witness, &quick);
    for (int i = 0; i < READERS; i++)
        fds[i] = slow_reader(text, len);
    while ((is_proxied() ? metric("attnd_memory_reserved_bytes") > 0
                         : metric("attnd_aborted_total") < aborted + READERS) &&
           waited++ < 500)
        for (int i = 0; i < READERS; i++) {
            (void)!recv(fds[i], &byte, 1, MSG_DONTWAIT);
            poll(NULL, 0, 5);
        }
    assert_true(waited < 500);
    for (int i = 0; i < READERS; i++)
        close(fds[i]);
    free(text);
    free(body);
    witness_end(&witness, WITNESS_HEAP_BYTES, READERS);
}

static void idle_connections_up_to_the_limit_are_reaped_for_new_clients(
    void **state)
{
    enum { LIMIT = 60 };
    int fds[LIMIT + 10];
    struct witness witness;
    struct raw_answer answer;

    (void)state;
    witness_begin(&witness, &quick);
    for (int i = 0; i < LIMIT + 10; i++)
        fds[i] = raw_connect(quick.port);
    raw_say(quick.port, GET("/livez"), &answer);
    assert_int_equal(raw_status(&answer), 200);
    assert_true(answer.end_ns < 12LL * SLOW_MS * 1000000);
    raw_free(&answer);
    for (int i = 0; i < LIMIT + 10; i++)
        close(fds[i]);
    witness_end(&witness, WITNESS_SLACK_BYTES, 1);
}

/* 10^4 times in all. HAProxy keeps to itself who left before it had passed
 * anything on, and lets be computed what it has. */
static void a_client_that_goes_away_anywhere_is_forgotten(void **state)
{
    enum { PLACES = 6, TIMES = 10000 / PLACES / SHARE, ROWS = 200 };
    char *body = post_body(ROWS, 8, ""), *text;
    size_t len, head;
    struct witness witness;
    double aborted = daemon_metric(&plain, "attnd_aborted_total");
    int places[PLACES];

    (void)state;
    text = post_text("", body, strlen(body), &len);
    head = len - strlen(body);
    places[0] = 9, places[1] = (int)head - 1, places[2] = (int)head;
    places[3] = (int)(head + len) / 2, places[4] = (int)len - 1;
    places[5] = (int)len;
    witness_begin(&witness, &plain);
    for (int i = 0; i < PLACES; i++)
        for (int n = 0; n < TIMES; n++) {
            struct raw_answer answer;

            raw_run(plain.port, &(struct raw_script){
                text, .len = (size_t)places[i],
                .end = n % 2 == 0 ? RAW_CLOSE : RAW_RESET }, &answer);
            raw_free(&answer);
        }
    free(body);
    free(text);
    /* A reset may come before the headers were read: then nobody asked. */
    witness_end(&witness, WITNESS_HEAP_BYTES, 4 * TIMES / 2);
    if (!is_proxied())
        assert_true(daemon_metric(&plain, "attnd_aborted_total") >=
                    aborted + 3 * TIMES / 2);
}

/* Weights of 600 x 600: 3 MB, of which the client reads the first bytes. */
static void a_client_that_leaves_in_the_middle_of_its_answer_is_forgotten(
    void **state)
{
    enum { TIMES = 60 };
    char *body = post_body(600, 4, ""), *text, start[100];
    size_t len;
    struct witness witness;

    (void)state;
    text = post_text("", body, strlen(body), &len);
    witness_begin(&witness, &plain);
    for (int n = 0; n < TIMES; n++) {
        const struct linger now = { .l_onoff = 1 };
        int fd = raw_connect(plain.port);

        assert_int_equal(send(fd, text, len, MSG_NOSIGNAL), len);
        assert_true(recv(fd, start, sizeof start, MSG_WAITALL) > 0);
        if (n % 2 == 0)
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        close(fd);
    }
    free(body);
    free(text);
    witness_end(&witness, WITNESS_HEAP_BYTES, TIMES);
}

static void pipelined_requests_are_answered_in_order_up_to_the_bad_one(
    void **state)
{
    static const char text[] =
        POST_JSON "Content-Length: 19\r\n\r\n" POST_SMALL
        "GET /nope HTTP/1.1\r\n" HOST "\r\n"
        POST_JSON "Content-Length: 2\r\n\r\n{}"
        "DELETE /livez HTTP/1.1\r\n" HOST "\r\n"
        POST_JSON "Transfer-Encoding: chunked\r\n\r\n" SMALL_CHUNKS
        POST_JSON "Content-Length: 3\r\n\r\n{]}"
        "OPTIONS /livez HTTP/1.0\r\n" HOST "Connection: keep-alive\r\n\r\n"
        "GET /livez%00 HTTP/1.1\r\n" HOST "\r\n"
        GET("/hidden");
    static const int order[] = { 200, 404, 422, 405, 200, 400, 204, 400 };
    static const size_t pieces[] = { 0, 1, 7, 64 };
    struct witness witness;
    int before = hidden_requests();

    (void)state;
    witness_begin(&witness, &plain);
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        struct raw_answer answer;

        raw_run(plain.port, &(struct raw_script){ text, .piece = pieces[p] },
                &answer);
        assert_true(answer.closed && !answer.malformed);
        assert_int_equal(answer.replies, sizeof order / sizeof *order);
        for (size_t i = 0; i < sizeof order / sizeof *order; i++)
            assert_int_equal(answer.reply[i].status, order[i]);
        raw_free(&answer);
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, 24);
    assert_int_equal(hidden_requests(), before);
}

static void a_half_closed_client_gets_its_whole_answer(void **state)
{
    char *body = post_body(400, 4, ""), *text;
    size_t len;
    struct witness witness;
    struct raw_answer answer;

    (void)state;
    text = post_text("", body, strlen(body), &len);
    witness_begin(&witness, &plain);
    raw_run(plain.port, &(struct raw_script){ text, .len = len,
                                              .end = RAW_HALF_CLOSE }, &answer);
    assert_int_equal(raw_status(&answer), 200);
    assert_false(answer.malformed);
    assert_true(answer.reply[0].body_len > 400 * 400);
    raw_free(&answer);
    free(text);
    free(body);
    witness_end(&witness, WITNESS_HEAP_BYTES, 1);
}

/* So many at once that some are done while the daemon still reads others: to
 * libmicrohttpd the end of what they sent may then look like a hang-up. */
static void clients_that_ended_before_they_were_read_get_their_answers(
    void **state)
{
    enum { CLIENTS = 64 };
    static const char request[] =
        POST_JSON CLOSE "Content-Length: 19\r\n\r\n" POST_SMALL;
    char answer[2048];
    struct witness witness;
    int fds[CLIENTS];

    (void)state;
    witness_begin(&witness, &plain);
    kill(plain.pid, SIGSTOP);
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = daemon_connect(&plain);
        assert_true(daemon_send(fds[i], request, sizeof request - 1));
        shutdown(fds[i], SHUT_WR);
    }
    kill(plain.pid, SIGCONT);
    for (int i = 0; i < CLIENTS; i++) {
        if (daemon_read_all(fds[i], answer, sizeof answer) <= 0 ||
            strstr(answer, "HTTP/1.1 200 OK\r\n") == NULL ||
            strstr(answer, "\"output\"") == NULL)
            fail_msg("client %d got %s", i, answer);
        close(fds[i]);
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, CLIENTS);
}

static void check_method(const char *method, const char *path, bool is_post)
{
    static const char *const known[] = { "GET", "HEAD", "POST", "OPTIONS",
                                         "PUT", "DELETE", "PATCH", "TRACE",
                                         "CONNECT" };
    const char *allowed = is_post ? " POST OPTIONS " : " GET HEAD OPTIONS ";
    char text[256], word[32], allow[64] = "";
    struct raw_answer answer;
    bool is_refused = is_proxied() && strcmp(method, "CONNECT") == 0;
    size_t k = 0;
    int want = 501;

    snprintf(text, sizeof text, "%s %s HTTP/1.1\r\n" HOST CLOSE
             "Content-Type: application/json\r\nContent-Length: 0\r\n\r\n",
             method, path);
    snprintf(word, sizeof word, " %s ", method);
    while (k < sizeof known / sizeof *known && strcmp(known[k], method) != 0)
        k++;
    if (strstr(allowed, word) != NULL)
        want = strcmp(method, "OPTIONS") == 0 ? 204 : is_post ? 400 : 200;
    else if (k < sizeof known / sizeof *known)
        want = 405;
    if (is_refused) /* by HAProxy's parser: its target is no authority */
        want = 400;
    raw_run(plain.port, &(struct raw_script){
        text, .is_head = strcmp(method, "HEAD") == 0 }, &answer);
    if (raw_status(&answer) != want || answer.malformed || !answer.closed)
        fail_msg("%s %s: want %d, got %s", method, path, want, answer.bytes);
    if (want == 405 || want == 204)
        assert_string_equal(raw_header(&answer.reply[0], "Allow", allow,
                                       sizeof allow),
                            is_post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS");
    if (want >= 400 && strcmp(method, "HEAD") != 0 && !is_refused)
        witness_problem(&answer.reply[0],
                        want == 400 ? "malformed_json" : "method_not_allowed");
    snprintf(text, sizeof text, "\"this path takes %s, not %s\"", allow, method);
    if (want == 405 && strcmp(method, "HEAD") != 0 &&
        strstr(answer.bytes, text) == NULL)
        fail_msg("%s: got %s", text, answer.bytes);
    raw_free(&answer);
}

static void each_method_on_each_path_is_served_or_refused_by_name(void **state)
{
    static const char *const paths[] = { "/attention", "/livez", "/readyz",
                                         "/metrics", "/openapi.json",
                                         "/version", "/models" };
    static const char *const methods[] = {
        "GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE",
        "CONNECT", "PROPFIND", "get", "Get", "POSTX", "X", "QUERY", "M-SEARCH"
    };
    struct witness witness;

    (void)state;
    witness_begin(&witness, &plain);
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++)
        for (size_t m = 0; m < sizeof methods / sizeof *methods; m++)
            check_method(methods[m], paths[p], p == 0);
    witness_end(&witness, WITNESS_SLACK_BYTES, 100);
}

/* The first bytes of a TLS 1.3 client and of an HTTP/2 one, and others. */
static void what_is_not_http_1_is_closed(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
    } rows[] = {
        { BYTES("\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" "0123456789abcdef"
                "0123456789abcdef\x00\x00\x04\x13\x01\x13\x02\x01\x00") },
        { BYTES("\x16\x03\x01\x00\xa5\x01\x00\n\xa1\x03\x03\r\n\x13\x02\r\n") },
        { BYTES("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") },
        { BYTES("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                "\x00\x00\x00\x04\x00\x00\x00\x00\x00") },
        { BYTES("GET /livez HTTP/2.0\r\n" HOST "\r\n") },
        { BYTES("GET /livez HTTP/0.9\r\n" HOST "\r\n") },
        { BYTES("GET /livez\r\n") },
        { BYTES("GET /livez HTTP/1.1 x\r\n" HOST "\r\n") },
        { BYTES("GET /livez FTP/1.1\r\n" HOST "\r\n") },
        { BYTES("SSH-2.0-client\r\n") },
        { BYTES("EHLO a\r\n") },
        { BYTES("\0\0\0\0\0\0\0\0\n\n\n\n") },
        { BYTES(" GET /livez HTTP/1.1\r\n" HOST "\r\n") },
    };
    struct witness witness;

    (void)state;
    witness_begin(&witness, &quick);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct raw_answer answer;

        raw_run(quick.port, &(struct raw_script){ rows[i].bytes,
                                                  .len = rows[i].len }, &answer);
        if (!answer.closed || (answer.len > 0 && raw_status(&answer) < 400))
            fail_msg("row %zu: got %s", i, answer.bytes);
        raw_free(&answer);
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, 0);
}

static void a_path_matches_byte_for_byte(void **state)
{
    static const struct {
        const char *target;
        struct verdict want[2];
    } rows[] = {
        { "//attention", BOTH(404, PROBLEM) },
        { "/attention/", BOTH(404, PROBLEM) },
        { "/Attention", BOTH(404, PROBLEM) },
        { "/attention%20", BOTH(404, PROBLEM) },
        { "/%61ttention", BOTH(404, PROBLEM) },
        { "/./attention", BOTH(404, PROBLEM) },
        { "/x/../attention", BOTH(404, PROBLEM) },
        { "/attention;x=1", BOTH(404, PROBLEM) },
        { "/attention#x", EACH(404, PROBLEM, 400, HTML) },
        { "/attentio", BOTH(404, PROBLEM) },
        { "/attentionn", BOTH(404, PROBLEM) },
        { "attention", EACH(404, PROBLEM, 400, HTML) },
        { "/attention?x=1", BOTH(422, PROBLEM) },
        { "/attention?num_heads=1", BOTH(422, PROBLEM) },
        { "/attention?", BOTH(200, PROBLEM) },
        { "/attention", BOTH(200, PROBLEM) },
    };
    struct witness witness;

    (void)state;
    witness_begin(&witness, &plain);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[256];

        snprintf(text, sizeof text,
                 "POST %s HTTP/1.1\r\n" HOST CLOSE
                 "Content-Type: application/json\r\n"
                 "Content-Length: 19\r\n\r\n" POST_SMALL, rows[i].target);
        check_row(rows[i].target, &(struct raw_script){ .bytes = text },
                  rows[i].want, NULL);
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, sizeof rows / sizeof *rows);
}

static void a_harmful_request_id_is_replaced_and_never_reflected(void **state)
{
    static const char *const rows[] = {
        "evil evil", "evil\x01", "evil\xc3\xa9", "evil\"", "evil<b>", "evil\tx",
        "evil;x", "evil/x", "", "evil\r\n X: y",
    };
    char text[1024], id[512], long_id[301];
    struct witness witness;
    struct raw_answer answer;

    (void)state;
    memset(long_id, 'e', 300);
    long_id[300] = '\0';
    witness_begin(&witness, &plain);
    for (size_t i = 0; i <= sizeof rows / sizeof *rows; i++) {
        bool last = i == sizeof rows / sizeof *rows;

        snprintf(text, sizeof text, "GET /nope HTTP/1.1\r\n" HOST CLOSE
                 "X-Request-ID: %s\r\n\r\n", last ? long_id : rows[i]);
        raw_say(plain.port, text, &answer);
        assert_true(raw_status(&answer) >= 400);
        assert_null(strstr(answer.bytes, "evil"));
        assert_null(strstr(answer.bytes, "eeee"));
        assert_non_null(raw_header(&answer.reply[0], "X-Request-ID", id,
                                   sizeof id));
        assert_in_range(strlen(id), 8, 128);
        raw_free(&answer);
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, sizeof rows / sizeof *rows);
}

/* CR LF ends the header, so what follows is a header of its own. */
static void a_request_id_with_a_line_end_splits_no_answer(void **state)
{
    char id[256];
    struct raw_answer answer;

    (void)state;
    raw_say(plain.port, "GET /livez HTTP/1.1\r\n" HOST CLOSE
                        "X-Request-ID: a\r\nSet-Cookie: evil=1\r\n\r\n",
            &answer);
    assert_int_equal(raw_status(&answer), 200);
    assert_string_equal(raw_header(&answer.reply[0], "X-Request-ID", id,
                                   sizeof id), "a");
    assert_null(strcasestr(answer.bytes, "evil"));
    raw_free(&answer);
}

static void headers_over_their_bound_are_refused(void **state)
{
    static const struct raw_script rows[] = {
        { "GET /livez HTTP/1.1\r\n" HOST "X: ", .tail = "aaaaaaaaaaaaaaaa",
          .tails = 100000 },
        { "GET /livez HTTP/1.1\r\n" HOST, .tail = "X: y\r\n", .tails = 100000 },
        { "GET /", .tail = "aaaaaaaaaaaaaaaa", .tails = 100000 },
        { "GET /livez?", .tail = "a=b&", .tails = 100000 },
        { "aaaaaaaa", .tail = "aaaaaaaaaaaaaaaa", .tails = 100000 },
    };
    struct witness witness;

    (void)state;
    witness_begin(&witness, &plain);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct raw_answer answer;

        raw_run(plain.port, &rows[i], &answer);
        if (!answer.closed || (answer.len > 0 && raw_status(&answer) / 100 != 4))
            fail_msg("row %zu: got %s", i, answer.bytes);
        raw_free(&answer);
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, 0);
}

/* 10^6 by `make crowd`. */
static void a_connection_takes_any_number_of_requests(void **state)
{
    enum { REQUESTS = 20000, AT_A_TIME = 50 };
    static const char text[] = "GET /livez HTTP/1.1\r\n" HOST "\r\n";
    static char all[AT_A_TIME * sizeof text], answer[1 << 16];
    int fd = raw_connect(plain.port), answers = 0;
    struct witness witness;

    (void)state;
    for (int i = 0; i < AT_A_TIME; i++)
        memcpy(all + (size_t)i * (sizeof text - 1), text, sizeof text - 1);
    witness_begin(&witness, &plain);
    for (int sent = 0; sent < REQUESTS; sent += AT_A_TIME) {
        size_t got = 0;

        assert_int_equal(send(fd, all, AT_A_TIME * (sizeof text - 1),
                              MSG_NOSIGNAL),
                         AT_A_TIME * (sizeof text - 1));
        for (int wanted = AT_A_TIME; wanted > 0;) {
            ssize_t n = recv(fd, answer + got, sizeof answer - 1 - got, 0);

            assert_true(n > 0);
            answer[got + (size_t)n] = '\0';
            for (const char *at = answer + got;
                 (at = strstr(at, "alive")) != NULL; at++)
                wanted--, answers++;
            got += (size_t)n;
            if (got > 8) { /* a word may be cut in two */
                memmove(answer, answer + got - 4, 5);
                got = 4;
            }
        }
    }
    assert_int_equal(answers, REQUESTS);
    witness_end(&witness, WITNESS_SLACK_BYTES, REQUESTS);
    close(fd);
}

/* One after another, a hundred at a time. A reset leaves no port behind, of
 * which 10^5 would be too many. At once as many as files allow: `make crowd`. */
static void a_hundred_thousand_connections_come_and_go_without_a_trace(
    void **state)
{
    enum { AT_A_TIME = 100, ROUNDS = 1000 / SHARE };
    const struct linger now = { .l_onoff = 1 };
    int fds[AT_A_TIME];
    struct witness witness;
    struct raw_answer answer;

    (void)state;
    witness_begin(&witness, &plain);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < AT_A_TIME; i++)
            fds[i] = raw_connect(plain.port);
        raw_say(plain.port, GET("/livez"), &answer);
        assert_int_equal(raw_status(&answer), 200);
        raw_free(&answer);
        for (int i = 0; i < AT_A_TIME; i++) {
            if (round > 0)
                setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &now, sizeof now);
            close(fds[i]);
        }
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, ROUNDS);
}

static void a_thousand_connections_at_once_leave_no_trace(void **state)
{
    enum { CONNECTIONS = 1000 };
    static int fds[CONNECTIONS];
    struct witness witness;
    struct raw_answer answer;

    (void)state;
    witness_begin(&witness, &plain);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < CONNECTIONS; i++)
            fds[i] = raw_connect(plain.port);
        raw_say(plain.port, GET("/livez"), &answer);
        assert_int_equal(raw_status(&answer), 200);
        raw_free(&answer);
        for (int i = 0; i < CONNECTIONS; i++)
            close(fds[i]);
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_request_hidden_behind_a_malformed_one_is_never_executed),
        cmocka_unit_test(a_transfer_coding_on_http_1_0_is_refused),
        cmocka_unit_test(a_chunk_that_is_read_in_two_ways_is_refused),
        cmocka_unit_test(a_request_has_one_host_and_a_sound_request_line),
        cmocka_unit_test(a_target_in_absolute_form_is_served),
        cmocka_unit_test(a_length_over_the_limit_is_refused_at_the_headers),
        cmocka_unit_test(chunks_without_end_are_refused_at_the_limit),
        cmocka_unit_test(a_body_in_as_many_chunks_as_bytes_is_served),
        cmocka_unit_test(
            expect_is_answered_with_100_only_when_the_body_is_wanted),
        cmocka_unit_test(a_client_that_sends_too_much_reads_the_413),
        cmocka_unit_test(
            slow_headers_and_bodies_are_cut_and_others_never_notice),
        cmocka_unit_test(a_reader_that_takes_no_answer_is_cut_at_the_deadline),
        cmocka_unit_test(
            idle_connections_up_to_the_limit_are_reaped_for_new_clients),
        cmocka_unit_test(a_client_that_goes_away_anywhere_is_forgotten),
        cmocka_unit_test(
            a_client_that_leaves_in_the_middle_of_its_answer_is_forgotten),
        cmocka_unit_test(
            pipelined_requests_are_answered_in_order_up_to_the_bad_one),
        cmocka_unit_test(a_half_closed_client_gets_its_whole_answer),
        cmocka_unit_test(clients_that_ended_before_they_were_read_get_their_answers),
        cmocka_unit_test(each_method_on_each_path_is_served_or_refused_by_name),
        cmocka_unit_test(what_is_not_http_1_is_closed),
        cmocka_unit_test(a_path_matches_byte_for_byte),
        cmocka_unit_test(a_harmful_request_id_is_replaced_and_never_reflected),
        cmocka_unit_test(a_request_id_with_a_line_end_splits_no_answer),
        cmocka_unit_test(headers_over_their_bound_are_refused),
        cmocka_unit_test(a_connection_takes_any_number_of_requests),
        cmocka_unit_test(
            a_hundred_thousand_connections_come_and_go_without_a_trace),
        cmocka_unit_test(a_thousand_connections_at_once_leave_no_trace),
    };

    return cmocka_run_group_tests(tests, start_both, stop_both);
}
