/* Bodies and replies in other forms than JSON as it is: packed, binary, and what
 * a client says it accepts. */
#include "api/coding.h"
#include "tests/e2e/daemon.h"
#include "tests/faults/witness.h"
#include "tests/load/watch.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { LIMIT = 5 << 20, ANSWER_BYTES = 1 << 20 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { REUSES_MEMORY = 0 }; /* a sanitizer has more, and keeps what is freed */
#else
enum { REUSES_MEMORY = 1 };
#endif

static struct daemon server;

/* ---- an exchange ---- */

static struct answer {
    int status;
    char text[ANSWER_BYTES]; /* headers and body */
    const char *body;
    size_t len; /* of the body */
} answer;

static void ask(const char *head, const void *body, size_t len)
{
    int fd = daemon_connect(&server);
    ssize_t got;

    assert_true(fd >= 0);
    assert_true(daemon_send(fd, head, strlen(head)));
    assert_true(daemon_send(fd, body, len));
    got = daemon_read_all(fd, answer.text, sizeof answer.text);
    close(fd);
    assert_true(got > 0);
    answer.status = (int)strtol(answer.text + strlen("HTTP/1.1 "), NULL, 10);
    answer.body = strstr(answer.text, "\r\n\r\n");
    assert_non_null(answer.body);
    answer.body += 4;
    answer.len = (size_t)(answer.text + got - answer.body);
}

static void get(const char *path, const char *headers)
{
    char head[512];

    snprintf(head, sizeof head,
             "GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n%s\r\n", path,
             headers);
    ask(head, "", 0);
}

static void post(const char *headers, const void *body, size_t len)
{
    char head[512];

    snprintf(head, sizeof head,
             "POST /attention HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
             "Content-Length: %zu\r\n%s\r\n", len, headers);
    ask(head, body, len);
}

#define JSON "Content-Type: application/json\r\n"

/* In the headers. */
static bool says(const char *line)
{
    const char *found = strcasestr(answer.text, line);

    return found != NULL && found < answer.body;
}

static void packed(enum coding coding, const char *text, size_t len,
                   struct buffer *out)
{
    buffer_init(out, SIZE_MAX);
    assert_true(coding_pack(coding, (struct bytes){ (const uint8_t *)text,
                                                    len }, false, out));
}

/* The answer's body, unpacked. */
static char *unpacked(enum coding coding)
{
    struct error err = { ERR_NONE };
    struct unpacking u;
    char *text = calloc(1, ANSWER_BYTES);
    size_t len;

    assert_true(coding_open(&u, coding,
                            (struct bytes){ (const uint8_t *)answer.body,
                                            answer.len }, &err));
    assert_int_equal(coding_read(&u, (uint8_t *)text, ANSWER_BYTES - 1, &len,
                                 &err), CODING_END);
    coding_close(&u);
    return text;
}

static const struct {
    enum coding coding;
    const char *name;
} codings[] = { { CODING_GZIP, "gzip" }, { CODING_ZSTD, "zstd" } };

/* A request whose answer is over 1 KiB of text, and one whose is not. */
static const char large[] =
    "{\"query\": [[0.1],[0.2],[0.3],[0.4],[0.5],[0.6],[0.7],[0.8],[0.9],[1.1],"
    "[1.2],[1.3],[1.4],[1.5],[1.6],[1.7]]}";
static const char small[] = "{\"query\": [[1, 0], [0, 1]]}";

/* ---- requests ---- */

static void a_packed_request_is_the_request(void **state)
{
    (void)state;
    post(JSON, large, strlen(large));

    char *want = strdup(answer.body);

    assert_int_equal(answer.status, 200);
    for (size_t i = 0; i < sizeof codings / sizeof *codings; i++) {
        struct buffer body;
        char headers[128];

        packed(codings[i].coding, large, strlen(large), &body);
        snprintf(headers, sizeof headers, JSON "Content-Encoding: %s\r\n",
                 codings[i].name);
        post(headers, body.data, body.len);
        assert_int_equal(answer.status, 200);
        assert_string_equal(answer.body, want);
        buffer_free(&body);
    }
    post(JSON "Content-Encoding: identity\r\n", large, strlen(large));
    assert_int_equal(answer.status, 200);
    free(want);
}

static void refuses_packed(const char *headers, const void *body, size_t len)
{
    post(headers, body, len);
    if (answer.status != 400 ||
        strstr(answer.body, "\"malformed_request\"") == NULL)
        fail_msg("%zu bytes, %s: %s", len, headers, answer.text);
}

/* Cut at any byte, damaged at either end, with something behind it, twice, and
 * not packed at all. */
static void a_packed_body_that_is_damaged_or_doubled_is_400(void **state)
{
    struct witness witness;
    int refused = 0;

    (void)state;
    witness_begin(&witness, &server);
    for (size_t i = 0; i < sizeof codings / sizeof *codings; i++) {
        struct buffer body;
        char headers[128], changed[2 * sizeof large + 256];

        packed(codings[i].coding, large, strlen(large), &body);
        snprintf(headers, sizeof headers, JSON "Content-Encoding: %s\r\n",
                 codings[i].name);
        assert_true(2 * body.len < sizeof changed);
        for (size_t len = 0; len < body.len; len++, refused++)
            refuses_packed(headers, body.data, len);
        for (size_t at = 0; at < body.len; at += body.len - 1) {
            memcpy(changed, body.data, body.len);
            changed[at] ^= 0x55;
            refuses_packed(headers, changed, body.len);
        }
        memcpy(changed, body.data, body.len);
        memcpy(changed + body.len, body.data, body.len);
        refuses_packed(headers, changed, 2 * body.len);
        refuses_packed(headers, changed, body.len + 1);
        refuses_packed(headers, large, strlen(large));
        buffer_free(&body);
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, refused);
}

static void a_coding_that_is_not_served_is_told_which_are(void **state)
{
    static const char *const rows[] = {
        "Content-Encoding: br\r\n",
        "Content-Encoding: gzip, gzip\r\n",
        "Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n",
        "Content-Encoding: identity\r\nContent-Encoding: gzip\r\n",
    };
    char headers[256];
    struct witness witness;

    (void)state;
    witness_begin(&witness, &server);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(headers, sizeof headers, JSON "%s", rows[i]);
        post(headers, small, strlen(small));
        assert_int_equal(answer.status, 415);
        assert_true(says("\r\nAccept-Encoding: gzip, zstd, identity\r\n"));
        assert_non_null(strstr(answer.body, "it may be gzip, zstd, identity"));
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, 4);
}

/* 1 GiB of zeros, which no memory stands for, in a body under the limit: refused
 * at the limit, within the memory of the limit. */
static void a_bomb_is_refused_at_the_limit_and_within_it(void **state)
{
    enum { BOMB_BYTES = 1 << 30 };
    char *zeros = mmap(NULL, BOMB_BYTES, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct witness witness;

    (void)state;
    witness_begin(&witness, &server);
    assert_true(zeros != MAP_FAILED);
    for (size_t i = 0; i < sizeof codings / sizeof *codings; i++) {
        struct buffer body;
        char headers[128];
        struct watch_sample before;

        packed(codings[i].coding, zeros, BOMB_BYTES, &body);
        assert_true(body.len < LIMIT);
        snprintf(headers, sizeof headers, JSON "Content-Encoding: %s\r\n",
                 codings[i].name);
        assert_true(watch_take_peak(server.pid) > 0);
        assert_true(watch_look(server.pid, &before));
        post(headers, body.data, body.len);
        assert_int_equal(answer.status, 413);
        assert_non_null(strstr(answer.body, "\"too_large\""));
        if (REUSES_MEMORY)
            assert_true(watch_take_peak(server.pid) - before.resident_bytes <
                        3 * LIMIT);
        buffer_free(&body);
    }
    munmap(zeros, BOMB_BYTES);
    witness_end(&witness, WITNESS_HEAP_BYTES, 2);
}

/* ---- replies ---- */

static void long_text_is_packed_as_the_client_prefers(void **state)
{
    (void)state;
    post(JSON, large, strlen(large));

    char *want = strdup(answer.body);

    assert_true(says("\r\nVary: Accept-Encoding\r\n"));
    assert_false(says("\r\nContent-Encoding:"));
    for (size_t i = 0; i < sizeof codings / sizeof *codings; i++) {
        char headers[128], line[64], *text;

        snprintf(headers, sizeof headers, JSON "Accept-Encoding: br, %s\r\n",
                 codings[i].name);
        snprintf(line, sizeof line, "\r\nContent-Encoding: %s\r\n",
                 codings[i].name);
        post(headers, large, strlen(large));
        assert_int_equal(answer.status, 200);
        assert_true(says(line));
        assert_true(says("\r\nVary: Accept-Encoding\r\n"));
        text = unpacked(codings[i].coding);
        assert_string_equal(text, want);
        free(text);
    }
    post(JSON "Accept-Encoding: gzip;q=0, br\r\n", large, strlen(large));
    assert_string_equal(answer.body, want);
    post(JSON "Accept-Encoding: gzip\r\n", small, strlen(small));
    assert_false(says("\r\nContent-Encoding:"));
    assert_non_null(strstr(answer.body, "\"output\":"));
    post(JSON "Accept-Encoding: gzip\r\nAccept: application/x-npy\r\n", large,
         strlen(large));
    assert_false(says("\r\nContent-Encoding:"));
    assert_memory_equal(answer.body, "\x93NUMPY", 6);
    free(want);
}

static void documents_are_packed_too_and_known_by_a_weak_tag(void **state)
{
    char tag[64], header[128], *text;

    (void)state;
    get("/openapi.json", "");
    assert_int_equal(sscanf(strcasestr(answer.text, "\r\nETag: ") + 8, "%63s",
                            tag), 1);
    assert_int_equal(tag[0], '"');

    char *want = strdup(answer.body);

    get("/openapi.json", "Accept-Encoding: gzip\r\n");
    assert_int_equal(answer.status, 200);
    snprintf(header, sizeof header, "\r\nETag: W/%s\r\n", tag);
    assert_true(says(header) && says("\r\nContent-Encoding: gzip\r\n"));
    text = unpacked(CODING_GZIP);
    assert_string_equal(text, want);
    free(text);
    free(want);
    snprintf(header, sizeof header,
             "Accept-Encoding: gzip\r\nIf-None-Match: W/%s\r\n", tag);
    get("/openapi.json", header);
    assert_int_equal(answer.status, 304);
    get("/metrics", "Accept-Encoding: zstd\r\n");
    assert_true(says("\r\nContent-Encoding: zstd\r\n"));
    text = unpacked(CODING_ZSTD);
    assert_non_null(strstr(text, "attnd_"));
    free(text);
    get("/livez", "Accept-Encoding: zstd\r\n");
    assert_false(says("\r\nContent-Encoding:") || says("\r\nVary:"));
}

static void the_reply_is_what_accept_prefers_and_errors_are_problems(
    void **state)
{
    static const struct {
        const char *accept, *type;
    } rows[] = {
        { "Accept: */*\r\n", "application/json" },
        { "Accept: text/html\r\n", "application/json" },
        { "Accept: application/x-safetensors, */*;q=0.1\r\n",
          "application/x-safetensors" },
        { "Accept: application/vnd.safetensors\r\n",
          "application/vnd.safetensors" },
        { "Accept: application/json;q=0.1, application/x-npy\r\n",
          "application/x-npy" },
    };
    char headers[256], line[128];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(headers, sizeof headers, JSON "%s", rows[i].accept);
        snprintf(line, sizeof line, "\r\nContent-Type: %s\r\n", rows[i].type);
        post(headers, small, strlen(small));
        assert_int_equal(answer.status, 200);
        assert_true(says(line));
        post(headers, "{}", 2);
        assert_int_equal(answer.status, 422);
        assert_true(says("\r\nContent-Type: application/problem+json\r\n"));
    }
}

static void a_binary_body_that_breaks_its_format_is_malformed(void **state)
{
    static const struct {
        const char *type, *body;
        size_t len;
    } rows[] = {
        { "Content-Type: application/x-npy\r\n", "\x93NUMPY\1\0", 8 },
        { "Content-Type: application/x-npy\r\n", small, sizeof small - 1 },
        { "Content-Type: application/x-safetensors\r\n", "\1\0\0\0\0\0\0\0x", 9 },
        { "Content-Type: application/vnd.safetensors\r\n", "\1", 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        post(rows[i].type, rows[i].body, rows[i].len);
        assert_int_equal(answer.status, 400);
        assert_non_null(strstr(answer.body, "\"code\":\"malformed_"));
        assert_non_null(strstr(answer.body, "\"pointer\":\"\""));
    }
}

static void an_unknown_media_type_is_told_which_are_known(void **state)
{
    (void)state;
    post("Content-Type: application/msgpack\r\n", small, strlen(small));
    assert_int_equal(answer.status, 415);
    assert_true(says("\r\nAccept-Post: application/json, "
                     "application/x-safetensors, application/vnd.safetensors, "
                     "application/x-npy\r\n"));
    assert_non_null(strstr(answer.body, "\"Content-Type is \\\"application/"
                                        "msgpack\\\"; it may be application/"
                                        "json, "));
    post("", small, strlen(small));
    assert_int_equal(answer.status, 415);
    assert_non_null(strstr(answer.body, "there is no Content-Type; it may be "));
}

/* ---- pages ---- */

static long faulted_pages(void)
{
    char path[64], text[1024];
    long pages = -1;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)server.pid);
    file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_int_equal(sscanf(strrchr(text, ')'), ") %*c %*d %*d %*d %*d %*d %*u "
                            "%ld", &pages), 1);
    return pages;
}

/* 64 by 512 numbers, 720 KB of text or 180 pages, and as much to answer. */
static char *matrix(size_t *len)
{
    enum { L = 64, E = 512 };
    char *text = malloc(L * E * 24 + 64);
    size_t at = (size_t)snprintf(text, 16, "{\"query\": [");

    for (int i = 0; i < L * E; i++)
        at += (size_t)snprintf(text + at, 32, "%s%.17g%s",
                               i % E == 0 ? "[" : "", i / 7777.0,
                               i % E < E - 1 ? ","
                               : i < L * E - 1 ? "],"
                                               : "]");
    *len = at + (size_t)snprintf(text + at, 4, "]}");
    return text;
}

/* On a connection that is kept: a new one has pages of its own. A fresh page
 * costs a microsecond, on some virtual machines five. */
static void requests_of_one_size_touch_no_fresh_pages(void **state)
{
    enum { WARM = 10, REQUESTS = 20, MOST_PAGES = 4 };
    char head[256], *text;
    size_t len;
    long before = 0;
    int fd;

    (void)state;
    if (!REUSES_MEMORY)
        skip();
    text = matrix(&len);
    snprintf(head, sizeof head, "POST /attention HTTP/1.1\r\nHost: a\r\n" JSON
             "Content-Length: %zu\r\n\r\n", len);
    fd = daemon_connect(&server);
    for (int i = 0; i < WARM + REQUESTS; i++) {
        if (i == WARM)
            before = faulted_pages();
        assert_true(daemon_send(fd, head, strlen(head)) &&
                    daemon_send(fd, text, len));
        assert_int_equal(daemon_read_one(fd, answer.text, ANSWER_BYTES), 200);
    }
    assert_in_range(faulted_pages() - before, 0, REQUESTS * MOST_PAGES);
    close(fd);
    free(text);
}

static int start(void **state)
{
    static const char *const options[] = { "--max-body-bytes=4MiB",
                                           "--workers=1", NULL };

    (void)state;
    daemon_start(&server, options);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    return daemon_stop(&server, SIGTERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packed_request_is_the_request),
        cmocka_unit_test(a_packed_body_that_is_damaged_or_doubled_is_400),
        cmocka_unit_test(a_coding_that_is_not_served_is_told_which_are),
        cmocka_unit_test(a_bomb_is_refused_at_the_limit_and_within_it),
        cmocka_unit_test(long_text_is_packed_as_the_client_prefers),
        cmocka_unit_test(documents_are_packed_too_and_known_by_a_weak_tag),
        cmocka_unit_test(
            the_reply_is_what_accept_prefers_and_errors_are_problems),
        cmocka_unit_test(a_binary_body_that_breaks_its_format_is_malformed),
        cmocka_unit_test(an_unknown_media_type_is_told_which_are_known),
        cmocka_unit_test(requests_of_one_size_touch_no_fresh_pages),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
