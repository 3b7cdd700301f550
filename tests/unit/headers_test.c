#include "server/headers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 4 };

struct header {
    const char *name, *value;
};

/* Adds headers up to the first without a name, and a Host unless told. */
static struct headers read_headers(const struct header *header, bool with_host)
{
    struct headers headers = { 0 };

    if (with_host)
        headers_add(&headers, "Host", "a");
    for (int i = 0; i < MOST && header[i].name != NULL; i++)
        headers_add(&headers, header[i].name, header[i].value);
    return headers;
}

static void what_could_be_read_in_two_ways_is_refused(void **state)
{
    static const struct {
        struct header headers[MOST];
        const char *said;
    } rows[] = {
        { { { "Content-Length", "5" }, { "Transfer-Encoding", "chunked" } },
          "together" },
        { { { "transfer-encoding", "chunked" }, { "CONTENT-LENGTH", "5" } },
          "together" },
        { { { "Content-Length", "5" }, { "Content-Length", "5" } },
          "more than one Content-Length" },
        { { { "Content-Length", "" } }, "not a number" },
        { { { "Content-Length", "+5" } }, "not a number" },
        { { { "Content-Length", "5 " } }, "not a number" },
        { { { "Content-Length", "0x5" } }, "not a number" },
        { { { "Content-Length", "5, 5" } }, "not a number" },
        { { { "Transfer-Encoding", "gzip" } }, "chunked" },
        { { { "Transfer-Encoding", "" } }, "chunked" },
        { { { "Transfer-Encoding", "chunked, chunked" } }, "chunked" },
        { { { "Transfer-Encoding", "chunked" }, { "Transfer-Encoding", "x" } },
          "chunked" },
        { { { "Transfer-Encoding", "x" }, { "Transfer-Encoding", "chunked" } },
          "chunked" },
        { { { "Content-Length ", "5" } }, "name" },
        { { { "X\x01", "5" } }, "name" },
        { { { "", "5" } }, "name" },
        { { { "XTransfer-Encoding: chunked", "y" } }, "name" },
        { { { "X", "a\rContent-Length: 5" } }, "carriage return" },
        { { { "Content-Type", "\r" } }, "carriage return" },
        { { { "Host", "b" } }, "more than one Host" },
        { { { "Authorization", "a" }, { "authorization", "a" } },
          "more than one Authorization" },
        { { { "X-API-Key", "a" }, { "x-api-key", "b" } },
          "more than one X-API-Key" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct headers headers = read_headers(rows[i].headers, true);
        struct error err = { 0 };

        assert_false(headers_check(&headers, "GET", "HTTP/1.1", "/", &err));
        assert_int_equal(err.code, ERR_REQUEST);
        assert_non_null(strstr(err.text, rows[i].said));
    }
}

static void what_can_be_read_in_one_way_is_taken(void **state)
{
    static const struct {
        struct header headers[MOST];
        int64_t length;
        bool announces;
    } rows[] = {
        { { { NULL, NULL } }, 0, false },
        { { { "Content-Length", "0" } }, 0, false },
        { { { "Content-Length", "007" } }, 7, true },
        { { { "Content-Length", "9223372036854775807" } }, INT64_MAX, true },
        { { { "Content-Length", "99999999999999999999" } }, INT64_MAX, true },
        { { { "Transfer-Encoding", "Chunked" } }, 0, true },
        { { { "Host-Id", "x" }, { "Content-Length-Hint", "5" } }, 0, false },
        { { { "Host_Id", "x" }, { "Authorization", "a" }, { "X-API-Key", "b" } },
          0, false },
        { { { "X-!#$%&'*+.^_`|~9", "x" } }, 0, false },
        { { { "Accept", NULL } }, 0, false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct headers headers = read_headers(rows[i].headers, true);
        struct error err = { 0 };

        assert_true(headers_check(&headers, "GET", "HTTP/1.1", "/", &err));
        assert_true(headers.length == rows[i].length);
        assert_int_equal(headers_announce_body(&headers), rows[i].announces);
    }
}

static void only_http_1_0_may_leave_out_the_host(void **state)
{
    static const struct header none[MOST] = { { NULL, NULL } };
    static const struct header chunked[MOST] = { { "Transfer-Encoding",
                                                   "chunked" } };
    struct headers headers = read_headers(none, false);
    struct error err = { 0 };

    (void)state;
    assert_true(headers_check(&headers, "GET", "HTTP/1.0", "/", &err));
    assert_false(headers_check(&headers, "GET", "HTTP/1.1", "/", &err));
    err = (struct error){ 0 };
    headers = read_headers(chunked, true);
    assert_true(headers_check(&headers, "GET", "HTTP/1.1", "/", &err));
    assert_false(headers_check(&headers, "GET", "HTTP/1.0", "/", &err));
}

static void a_nul_in_the_target_is_refused(void **state)
{
    static const struct header none[MOST] = { { NULL, NULL } };
    struct headers headers = read_headers(none, true);
    struct error err = { 0 };

    (void)state;
    assert_true(headers_check(&headers, "GET", "HTTP/1.1", "/a%20b", &err));
    assert_false(headers_check(&headers, "GET", "HTTP/1.1", "/a%00b", &err));
}

static void a_request_line_that_is_none_is_refused(void **state)
{
    static const struct {
        const char *method, *target;
    } rows[] = {
        { "{\"query\":[[1]]}GET", "/" }, { "G\tT", "/" }, { "", "/" },
        { "GET", "/livez " }, { "GET", "/a\tb" }, { "GET", "/a\x7f" },
        { "GET", "/\r" },
    };
    static const struct header none[MOST] = { { NULL, NULL } };
    struct headers headers = read_headers(none, true);

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error err = { 0 };

        assert_false(headers_check(&headers, rows[i].method, "HTTP/1.1",
                                   rows[i].target, &err));
        assert_int_equal(err.code, ERR_REQUEST);
    }
}

static void the_first_of_the_headers_in_use_is_kept(void **state)
{
    static const struct header given[MOST] = {
        { "CONTENT-TYPE", "application/json" }, { "content-type", "text/html" },
        { "X-Request-Id", "1" }, { "Expect", "100-Continue" },
    };
    struct headers headers = read_headers(given, true);

    (void)state;
    assert_string_equal(headers.content_type, "application/json");
    assert_string_equal(headers.request_id, "1");
    assert_true(headers.expects_continue);
    assert_null(headers.accept);
}

static void a_list_in_several_lines_is_one_list(void **state)
{
    static const struct header given[MOST] = {
        { "Accept", "text/html" }, { "accept", "application/x-npy;q=0.5" },
        { "ACCEPT", NULL }, { "Accept-Encoding", "zstd" },
    };
    struct headers headers = read_headers(given, true);

    (void)state;
    assert_string_equal(headers.accept, "text/html, application/x-npy;q=0.5, ");
    assert_string_equal(headers.accept_encoding, "zstd");
    headers_add(&headers, "If-None-Match", "\"a\"");
    headers_add(&headers, "If-None-Match", "\"b\"");
    assert_string_equal(headers.if_none_match, "\"a\", \"b\"");
    headers_free(&headers);
}

static void two_content_encodings_are_a_list(void **state)
{
    static const struct header given[MOST] = { { "Content-Encoding", "gzip" },
                                               { "content-encoding", "gzip" } };
    static const struct header one[MOST] = { { "Content-Encoding", "zstd" } };
    struct headers headers = read_headers(one, true);

    (void)state;
    assert_string_equal(headers.content_encoding, "zstd");
    headers_free(&headers);
    headers = read_headers(given, true);
    assert_non_null(strchr(headers.content_encoding, ','));
    headers_free(&headers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_could_be_read_in_two_ways_is_refused),
        cmocka_unit_test(what_can_be_read_in_one_way_is_taken),
        cmocka_unit_test(only_http_1_0_may_leave_out_the_host),
        cmocka_unit_test(a_nul_in_the_target_is_refused),
        cmocka_unit_test(a_request_line_that_is_none_is_refused),
        cmocka_unit_test(the_first_of_the_headers_in_use_is_kept),
        cmocka_unit_test(a_list_in_several_lines_is_one_list),
        cmocka_unit_test(two_content_encodings_are_a_list),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
