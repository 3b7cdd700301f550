/* What attnd does with HTTP itself, whatever it computes. */
#include "tests/e2e/daemon.h"

#include <curl/curl.h>
#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define HOST "Host: a\r\n"
#define CLOSE "Connection: close\r\n"
#define JSON "Content-Type: application/json\r\n"
#define GET(path) "GET " path " HTTP/1.1\r\n" HOST CLOSE "\r\n"
#define SMALL "{\"query\": [[1, 2]]}" /* 19 bytes, a request */
#define POST_SMALL                                                             \
    "POST /attention HTTP/1.1\r\n" HOST JSON "Content-Length: 19\r\n\r\n" SMALL

enum { ANSWER_BYTES = 1 << 16 };

static char answer[ANSWER_BYTES];

/* The daemon of most tests; those that need options of their own start one. */
static struct daemon shared;

static int start_shared(void **state)
{
    (void)state;
    daemon_start(&shared, (const char *const[]){ "--max-body-bytes", "1MiB",
                                                 NULL });
    return 0;
}

static int stop_shared(void **state)
{
    (void)state;
    return daemon_stop(&shared, SIGTERM);
}

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int exchange(const char *text)
{
    return daemon_exchange(&shared, text, answer, sizeof answer);
}

static bool says(const char *text)
{
    return strcasestr(answer, text) != NULL;
}

static int answers_in(const char *text)
{
    int count = 0;

    for (const char *at = text; (at = strstr(at, "HTTP/1.1 ")) != NULL; at++)
        count++;
    return count;
}

/* A request that keeps a worker busy for some tenths of a second: `rows`
 * queries and keys of zeros, in double. The caller frees it. */
static char *slow_request(int rows)
{
    enum { WIDTH = 32 };
    static const char head[] = "{\"need_weights\": false, \"precision\": "
                               "\"float64\", \"query\": {\"shape\": [1, %d, %d]"
                               ", \"data\": [0";
    size_t size = (size_t)rows * WIDTH * 2 + 1024, at;
    char *text = malloc(size), *body = malloc(size);

    assert_non_null(text);
    assert_non_null(body);
    at = (size_t)snprintf(body, size, head, rows, WIDTH);
    for (int i = 1; i < rows * WIDTH; i++, at += 2)
        memcpy(body + at, ",0", 2);
    at += (size_t)snprintf(body + at, size - at, "]}}");
    snprintf(text, size, "POST /attention HTTP/1.1\r\n" HOST JSON CLOSE
                         "Content-Length: %zu\r\n\r\n%s", at, body);
    free(body);
    return text;
}

static void every_method_on_every_path_gets_its_status(void **state)
{
    static const struct {
        const char *method, *path;
        int status;
        const char *allow;
    } rows[] = {
        { "GET", "/livez", 200, NULL },
        { "GET", "/readyz", 200, NULL },
        { "GET", "/metrics", 200, NULL },
        { "GET", "/version", 200, NULL },
        { "GET", "/openapi.json", 200, NULL },
        { "GET", "http://a/livez", 200, NULL },
        { "GET", "/livez?x=1", 200, NULL },
        { "HEAD", "/livez", 200, NULL },
        { "HEAD", "/openapi.json", 200, NULL },
        { "OPTIONS", "/livez", 204, "Allow: GET, HEAD, OPTIONS\r\n" },
        { "OPTIONS", "/attention", 204, "Allow: POST, OPTIONS\r\n" },
        { "OPTIONS", "*", 204, "Allow: GET, HEAD, POST, OPTIONS\r\n" },
        { "GET", "/attention", 405, "Allow: POST, OPTIONS\r\n" },
        { "HEAD", "/attention", 405, "Allow: POST, OPTIONS\r\n" },
        { "DELETE", "/livez", 405, "Allow: GET, HEAD, OPTIONS\r\n" },
        { "PUT", "/attention", 405, "Allow: POST, OPTIONS\r\n" },
        { "TRACE", "/version", 405, "Allow: GET, HEAD, OPTIONS\r\n" },
        { "BREW", "/attention", 501, NULL },
        { "get", "/livez", 501, NULL },
        { "GET", "/", 404, NULL },
        { "GET", "//livez", 404, NULL },
        { "GET", "/livez/", 404, NULL },
        { "GET", "/Livez", 404, NULL },
        { "GET", "/%6Civez", 404, NULL },
        { "OPTIONS", "/nowhere", 404, NULL },
    };
    char text[256];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text, "%s %s HTTP/1.1\r\n" HOST CLOSE "\r\n",
                 rows[i].method, rows[i].path);
        assert_int_equal(exchange(text), rows[i].status);
        assert_true(says("\r\nX-Request-ID: "));
        assert_true(says("\r\nServer-Timing: queue;dur=0.000, decode;dur="));
        if (rows[i].allow != NULL)
            assert_true(says(rows[i].allow));
        if (rows[i].status >= 400)
            assert_true(says("\r\nContent-Type: application/problem+json\r\n"));
    }
}

static void head_has_the_headers_of_get_and_no_body(void **state)
{
    char *length;

    (void)state;
    assert_int_equal(exchange(GET("/openapi.json")), 200);
    length = strcasestr(answer, "\r\nContent-Length: ");
    assert_non_null(length);

    unsigned long bytes = strtoul(length + 18, NULL, 10);

    assert_int_equal(exchange("HEAD /openapi.json HTTP/1.1\r\n" HOST CLOSE "\r\n"),
                     200);
    length = strcasestr(answer, "\r\nContent-Length: ");
    assert_int_equal(strtoul(length + 18, NULL, 10), bytes);
    assert_string_equal(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
}

static void a_current_etag_is_answered_with_not_modified(void **state)
{
    char text[256], length[64], *tag, *line;

    (void)state;
    assert_int_equal(exchange(GET("/openapi.json")), 200);
    tag = strcasestr(answer, "\r\nETag: ");
    assert_non_null(tag);
    line = strcasestr(answer, "\r\nContent-Length: ");
    assert_non_null(line);
    snprintf(length, sizeof length, "%.*s", (int)strcspn(line + 2, "\n") + 3,
             line);
    snprintf(text, sizeof text, "GET /openapi.json HTTP/1.1\r\n" HOST CLOSE
             "If-None-Match: \"x\", W/%.18s\r\n\r\n", tag + 8);
    assert_int_equal(exchange(text), 304);
    assert_true(says("\r\nETag: ") && says(length));
    assert_string_equal(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
    assert_int_equal(exchange("GET /openapi.json HTTP/1.1\r\n" HOST CLOSE
                              "If-None-Match: \"x\"\r\n\r\n"), 200);
    assert_int_equal(exchange("GET /openapi.json HTTP/1.1\r\n" HOST CLOSE
                              "If-None-Match: * \t\r\n\r\n"), 304);
}

static void a_harmless_request_id_comes_back_and_another_does_not(void **state)
{
    char text[700], id[301];

    (void)state;
    assert_int_equal(exchange("GET /livez HTTP/1.1\r\n" HOST CLOSE
                              "X-Request-ID: Abc.1_2-3\r\n\r\n"), 200);
    assert_true(says("\r\nX-Request-ID: Abc.1_2-3\r\n"));
    memset(id, 'x', 300);
    id[300] = '\0';
    snprintf(text, sizeof text, "GET /livez HTTP/1.1\r\n" HOST CLOSE
             "X-Request-ID: %s\r\n\r\n", id);
    assert_int_equal(exchange(text), 200);
    assert_false(says("xxxx"));
    assert_true(says("\r\nX-Request-ID: "));
    assert_int_equal(exchange("GET /nope HTTP/1.1\r\n" HOST CLOSE
                              "X-Request-ID: a b\r\n\r\n"), 404);
    assert_false(says("a b"));
}

/* Behind each request stands another; if it ran, the log would name it. */
static void a_request_that_hides_another_is_refused_and_closes(void **state)
{
    static const struct {
        const char *headers;
        int status;
    } rows[] = {
        { "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n" HOST, 400 },
        { "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n" HOST, 400 },
        { "Content-Length: 0\r\nContent-Length: 0\r\n" HOST, 400 },
        { "Content-Length: 0\r\nContent-Length: 60\r\n" HOST, 400 },
        { "Content-Length : 60\r\n" HOST, 400 },
        { "Transfer-Encoding: gzip\r\n" HOST, 400 },
        { "Transfer-Encoding: gzip, chunked\r\n" HOST, 400 },
        { "Transfer-Encoding: identity\r\n" HOST, 400 },
        { "Transfer-Encoding: xchunked\r\n" HOST, 400 },
        { "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n" HOST,
          400 },
        { "Transfer-Encoding:\r\n chunked\r\n" HOST, 400 },
        { "X: y\r\n Transfer-Encoding: chunked\r\n" HOST, 400 },
        { "Content-Length: -1\r\n" HOST, 400 },
        { "Content-Length: 5, 5\r\n" HOST, 400 },
        { "Content-Length: 9223372036854775807\r\n" HOST, 413 },
        { "Content-Length: 18446744073709551615\r\n" HOST, 413 },
        { "Content-Length: 18446744073709551616\r\n" HOST, 413 },
        { "", 400 },
        { HOST HOST, 400 },
        { HOST "no colon\r\n", 400 },
    };
    char text[512];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text,
                 "POST /attention HTTP/1.1\r\n" JSON "%s\r\n0\r\n\r\n%s",
                 rows[i].headers, GET("/hidden"));
        assert_int_equal(exchange(text), rows[i].status);
    }
    assert_int_equal(exchange("POST /attention HTTP/1.0\r\n"
                              "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
                              GET("/hidden")), 400);
    assert_int_equal(exchange("GET /live%00z HTTP/1.1\r\n" HOST "\r\n"
                              GET("/hidden")), 400);
    assert_int_equal(exchange(GET("/last")), 404);
    assert_true(daemon_logs(&shared, "\"/last\""));

    char *log = daemon_log(&shared);

    assert_null(strstr(log, "hidden"));
    free(log);
}

static void what_is_no_http_is_closed(void **state)
{
    static const char *const rows[] = {
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x02\n\n",
        "hello\r\n\r\n", "GET / HTTP/1.1 x y\r\n\r\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_not_equal(exchange(rows[i]), 200);
}

static void a_media_type_or_coding_that_is_not_served_is_named(void **state)
{
    (void)state;
    assert_int_equal(exchange("POST /attention HTTP/1.1\r\n" HOST CLOSE
                              "Content-Type: text/plain\r\n"
                              "Content-Length: 19\r\n\r\n" SMALL), 415);
    assert_true(says("\r\nAccept-Post: application/json"));
    assert_int_equal(exchange("POST /attention HTTP/1.1\r\n" HOST CLOSE
                              "Content-Length: 19\r\n\r\n" SMALL), 415);
    assert_int_equal(exchange("POST /attention HTTP/1.1\r\n" HOST CLOSE JSON
                              "Content-Encoding: br\r\n"
                              "Content-Length: 19\r\n\r\n" SMALL), 415);
    assert_true(says("\r\nAccept-Encoding: "));
}

static void pipelined_requests_are_answered_in_order(void **state)
{
    (void)state;
    assert_int_equal(exchange(POST_SMALL
                              "GET /nope HTTP/1.1\r\n" HOST "\r\n"
                              POST_SMALL
                              "GET /livez HTTP/1.1\r\n" HOST "\r\n"
                              "GET /livez HTTP/1.1\r\n" HOST HOST "\r\n"
                              GET("/livez")), 200);
    assert_int_equal(answers_in(answer), 5);

    char *at = answer;
    static const char *const order[] = { "HTTP/1.1 200", "HTTP/1.1 404",
                                         "HTTP/1.1 200", "HTTP/1.1 200",
                                         "HTTP/1.1 400" };

    for (size_t i = 0; i < 5; i++) {
        at = strstr(at, "HTTP/1.1 ");
        assert_memory_equal(at, order[i], strlen(order[i]));
        at++;
    }
}

static void a_connection_serves_many_requests(void **state)
{
    int fd = daemon_connect(&shared);

    (void)state;
    for (int i = 0; i < 500; i++) {
        assert_true(daemon_send(fd, POST_SMALL, sizeof POST_SMALL - 1));
        assert_int_equal(daemon_read_one(fd, answer, sizeof answer), 200);
        assert_true(says("{\"output\""));
    }
    close(fd);
}

/* Answers that are the same text are made once a connection. */
static void each_answer_on_a_connection_has_the_id_of_its_request(void **state)
{
    static const struct {
        const char *request, *id, *text;
    } rows[] = {
        { "GET /livez HTTP/1.1\r\n" HOST "X-Request-ID: one\r\n\r\n", "one",
          "alive" },
        { "GET /livez HTTP/1.1\r\n" HOST "\r\n", NULL, "alive" },
        { "GET /livez HTTP/1.1\r\n" HOST "X-Request-ID: three\r\n\r\n",
          "three", "alive" },
        { "GET /readyz HTTP/1.1\r\n" HOST "X-Request-ID: four\r\n\r\n", "four",
          "ready" },
        { POST_SMALL, NULL, "output" },
        { "GET /readyz HTTP/1.1\r\n" HOST "X-Request-ID: six\r\n\r\n", "six",
          "ready" },
        { "GET /nope HTTP/1.1\r\n" HOST "X-Request-ID: seven\r\n\r\n", "seven",
          "not_found" },
        { "GET /livez HTTP/1.1\r\n" HOST "\r\n", NULL, "alive" },
        { "GET /livez HTTP/1.1\r\n" HOST CLOSE "X-Request-ID: nine\r\n\r\n",
          "nine", "alive" },
    };
    int fd = daemon_connect(&shared);
    char before[130] = "", id[130];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *header;

        assert_true(daemon_send(fd, rows[i].request, strlen(rows[i].request)));
        assert_true(daemon_read_one(fd, answer, sizeof answer) >= 200);
        assert_true(says(rows[i].text));
        assert_true(says("\r\nServer-Timing: queue;dur="));
        assert_int_equal(says("\r\nConnection: close"),
                         strstr(rows[i].request, CLOSE) != NULL);
        header = strcasestr(answer, "\r\nX-Request-ID: ");
        assert_non_null(header);
        assert_int_equal(sscanf(header + 16, "%129s", id), 1);
        assert_null(strcasestr(header + 16, "\r\nX-Request-ID: "));
        if (rows[i].id != NULL)
            assert_string_equal(id, rows[i].id);
        assert_string_not_equal(id, before);
        memcpy(before, id, sizeof id);
    }
    close(fd);
}

/* What the kernel says of a thread; 0 before Linux 6.12, which has no such. */
static uint64_t slice_ns(pid_t thread)
{
    uint64_t attr[6]; /* the kernel's sched_attr: the fourth is its runtime */

    assert_int_equal(syscall(SYS_sched_getattr, thread, attr, sizeof attr, 0), 0);
    return attr[3];
}

static void the_io_thread_asks_for_short_slices_and_workers_do_not(void **state)
{
    char path[64], name[32];
    int threads = 0;
    struct dirent *entry;
    DIR *tasks;

    (void)state;
    if (slice_ns(0) == 0)
        skip();
    assert_int_equal(exchange(GET("/livez")), 200);
    snprintf(path, sizeof path, "/proc/%d/task", (int)shared.pid);
    tasks = opendir(path);
    assert_non_null(tasks);
    while ((entry = readdir(tasks)) != NULL) {
        pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
        FILE *file;

        snprintf(path, sizeof path, "/proc/%d/task/%.20s/comm", (int)shared.pid,
                 entry->d_name);
        file = fopen(path, "r");
        if (file == NULL)
            continue;
        assert_int_equal(fscanf(file, "%31s", name), 1);
        fclose(file);
        threads += strncmp(name, "MHD-", 4) == 0;
        assert_int_equal(slice_ns(thread) == 100000,
                         strncmp(name, "MHD-", 4) == 0);
    }
    closedir(tasks);
    assert_int_equal(threads, 1);
}

static void a_client_that_has_shut_its_side_gets_its_answer(void **state)
{
    int fd = daemon_connect(&shared);

    (void)state;
    assert_true(daemon_send(fd, POST_SMALL, sizeof POST_SMALL - 1));
    shutdown(fd, SHUT_WR);
    assert_int_equal(daemon_read_one(fd, answer, sizeof answer), 200);
    close(fd);
}

static void a_chunked_body_is_a_body(void **state)
{
    (void)state;
    assert_int_equal(exchange("POST /attention HTTP/1.1\r\n" HOST CLOSE JSON
                              "Transfer-Encoding: chunked\r\n\r\n"
                              "5\r\n{\"que\r\n1\r\nr\r\nd;x=y\r\ny\": [[1, 2]]}"
                              "\r\n0\r\n\r\n"), 200);
}

static void expect_100_is_answered_before_the_body(void **state)
{
    static const char good[] = "POST /attention HTTP/1.1\r\n" HOST JSON
                               "Expect: 100-continue\r\n"
                               "Content-Length: 19\r\n\r\n";
    int fd = daemon_connect(&shared);

    (void)state;
    assert_true(daemon_send(fd, good, sizeof good - 1));
    assert_int_equal(daemon_read_one(fd, answer, sizeof answer), 100);
    assert_true(daemon_send(fd, SMALL, 19));
    assert_int_equal(daemon_read_one(fd, answer, sizeof answer), 200);
    close(fd);
    assert_int_equal(exchange("POST /attention HTTP/1.1\r\n" HOST JSON
                              "Expect: 100-continue\r\n"
                              "Content-Length: 99999999\r\n\r\n"), 413);
    assert_int_equal(answers_in(answer), 1);
}

/* libcurl with `bytes` of body and these headers; the status. */
static long upload(size_t bytes, const char *header)
{
    CURL *curl = curl_easy_init();
    struct curl_slist *headers = curl_slist_append(NULL, header);
    char *body = calloc(1, bytes), url[64];
    FILE *sink = fopen("/dev/null", "we");
    long status = 0;

    assert_non_null(sink);
    assert_non_null(body);
    headers = curl_slist_append(headers, "Content-Type: application/json");
    headers = curl_slist_append(headers, "Expect:");
    snprintf(url, sizeof url, "http://127.0.0.1:%d/attention", shared.port);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)bytes);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, sink);
    curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(curl);
    curl_slist_free_all(headers);
    fclose(sink);
    free(body);
    return status;
}

static void a_client_that_sends_too_much_reads_why(void **state)
{
    (void)state;
    assert_int_equal(upload((1 << 20) + 1, "X: y"), 413);
    assert_int_equal(upload(20 << 20, "X: y"), 413);
    assert_int_equal(upload(3 << 20, "Transfer-Encoding: chunked"), 413);
    assert_true(daemon_metric(&shared, "attnd_rejected_total"
                                       "{reason=\"too_large\"}") >= 3);
}

/* Whatever the request would have got: one that is refused for something else
 * says that, and one that has no use for a body gets its fill of it. */
static void a_chunked_body_without_end_is_cut(void **state)
{
    static const struct {
        const char *line, *said;
    } rows[] = {
        { "POST /attention", "\"path\":\"/attention\",\"status\":413" },
        { "POST /nowhere", "\"path\":\"/nowhere\",\"status\":404" },
        { "GET /livez", "\"path\":\"/livez\",\"status\":413" },
    };
    static char chunk[8 + 65536 + 2] = "010000\r\n";

    (void)state;
    memcpy(chunk + 8 + 65536, "\r\n", 2);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int fd = daemon_connect(&shared), chunks = 0;
        char head[128];

        snprintf(head, sizeof head, "%s HTTP/1.1\r\n" HOST JSON
                 "Transfer-Encoding: chunked\r\n\r\n", rows[i].line);
        assert_true(daemon_send(fd, head, strlen(head)));
        while (chunks < 100000 && daemon_send(fd, chunk, sizeof chunk))
            chunks++;
        assert_true(chunks < 100000);
        close(fd);
        if (!daemon_logs(&shared, rows[i].said))
            fail_msg("%s", rows[i].line);
    }
}

static void nothing_stays_reserved(void **state)
{
    (void)state;
    assert_int_equal(exchange(POST_SMALL GET("/livez")), 200);
    assert_true(daemon_metric(&shared, "attnd_memory_reserved_bytes") == 0);
    assert_true(daemon_metric(&shared, "attnd_queue_jobs") == 0);
}

static void metrics_tell_what_happened(void **state)
{
    double before = daemon_metric(&shared, "attnd_requests_total{route="
                                           "\"/attention\",code=\"200\"}");

    (void)state;
    assert_int_equal(exchange(POST_SMALL GET("/livez")), 200);
    assert_true(daemon_metric(&shared, "attnd_requests_total{route="
                                       "\"/attention\",code=\"200\"}") ==
                before + 1);
    assert_true(daemon_metric(&shared, "attnd_encode_seconds_count") > 0);
    assert_true(daemon_metric(&shared, "attnd_workers") >= 1);
    assert_true(daemon_metric(&shared, "attnd_connections") >= 1);
}

static void slow_clients_are_cut_whatever_trickles_in(void **state)
{
    static const struct {
        const char *start;
        bool trickles;
        const char *end; /* of what it gets */
    } rows[] = {
        { "GET /livez HTTP/1.1\r\nX", true, "HTTP/1.1 408 " },
        { "POST /attention HTTP/1.1\r\n" HOST JSON "Content-Length: 999\r\n\r\n{",
          true, "HTTP/1.1 408 " },
        { "GET /li", true, "" },
        { "", false, "" },
        { "GET /livez HTTP/1.1\r\n" HOST "\r\n", false, "HTTP/1.1 200 " },
    };
    struct daemon daemon;
    int64_t before = now_ms();
    int fds[5];

    (void)state;
    daemon_start(&daemon, (const char *const[]){
        "--header-timeout-ms", "400", "--body-timeout-ms", "400",
        "--idle-timeout-ms", "400", NULL });
    for (size_t i = 0; i < 5; i++) {
        fds[i] = daemon_connect(&daemon);
        daemon_send(fds[i], rows[i].start, strlen(rows[i].start));
    }
    for (int n = 0; n < 8; n++) {
        poll(NULL, 0, 100);
        for (size_t i = 0; i < 5; i++)
            if (rows[i].trickles)
                send(fds[i], "a", 1, MSG_NOSIGNAL);
    }
    for (size_t i = 0; i < 5; i++) {
        assert_true(daemon_read_all(fds[i], answer, sizeof answer) >= 0);
        assert_memory_equal(answer, rows[i].end, strlen(rows[i].end));
        close(fds[i]);
    }
    assert_true(now_ms() - before < 10000);
    assert_true(daemon_metric(&daemon, "attnd_rejected_total"
                                       "{reason=\"timeout\"}") == 2);
    assert_true(daemon_logs(&daemon, "\"status\":408,\"code\":\"timeout\""));
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

static void a_full_queue_says_so_at_once_and_when_to_come_back(void **state)
{
    enum { CLIENTS = 8 };
    char *slow = slow_request(3000);
    struct daemon daemon;
    int fds[CLIENTS], served = 0, refused = 0;

    (void)state;
    daemon_start(&daemon, (const char *const[]){
        "--workers", "1", "--queue-length", "1", NULL });
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = daemon_connect(&daemon);
        assert_true(daemon_send(fds[i], slow, strlen(slow)));
    }
    for (int i = 0; i < CLIENTS; i++) {
        assert_true(daemon_read_all(fds[i], answer, sizeof answer) > 0);
        if (strncmp(answer, "HTTP/1.1 503 ", 13) == 0) {
            assert_true(says("\r\nRetry-After: "));
            assert_true(says("\"overloaded\""));
            refused++;
        } else {
            assert_memory_equal(answer, "HTTP/1.1 200 ", 13);
            served++;
        }
        close(fds[i]);
    }
    free(slow);
    assert_true(served >= 2); /* one computed, one waited */
    assert_true(refused >= 1);
    assert_true(daemon_metric(&daemon, "attnd_rejected_total"
                                       "{reason=\"queue_full\"}") == refused);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

/* While it waits, or as its turn comes when the wait was shorter than the
 * time between two looks at the line. */
static void what_waits_past_its_deadline_is_refused(void **state)
{
    static const struct {
        const char *deadline_ms;
        int rows, clients, most;
    } rows[] = { { "100", 4000, 6, 5 }, { "1", 400, 12, 12 } };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *slow = slow_request(rows[i].rows);
        struct daemon daemon;
        int fds[12], refused = 0;

        daemon_start(&daemon, (const char *const[]){
            "--workers", "1", "--request-deadline-ms", rows[i].deadline_ms,
            "--queue-wait-ms", "60000", NULL });
        for (int j = 0; j < rows[i].clients; j++) {
            fds[j] = daemon_connect(&daemon);
            assert_true(daemon_send(fds[j], slow, strlen(slow)));
        }
        for (int j = 0; j < rows[i].clients; j++) {
            assert_true(daemon_read_all(fds[j], answer, sizeof answer) > 0);
            refused += strncmp(answer, "HTTP/1.1 503 ", 13) == 0;
            close(fds[j]);
        }
        free(slow);
        assert_in_range(refused, 1, rows[i].most);
        assert_true(daemon_metric(&daemon, "attnd_rejected_total"
                                           "{reason=\"deadline\"}") ==
                    refused);
        assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
    }
}

static void a_job_whose_client_has_left_is_not_computed(void **state)
{
    enum { CLIENTS = 20 };
    const struct linger hard = { .l_onoff = 1, .l_linger = 0 };
    char *slow = slow_request(3000);
    struct daemon daemon;
    int first, fds[CLIENTS];

    (void)state;
    daemon_start(&daemon, (const char *const[]){
        "--workers", "1", "--queue-wait-ms", "60000", NULL });
    first = daemon_connect(&daemon);
    assert_true(daemon_send(first, slow, strlen(slow)));
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = daemon_connect(&daemon);
        assert_true(daemon_send(fds[i], slow, strlen(slow)));
    }
    while (daemon_metric(&daemon, "attnd_queue_jobs") < CLIENTS - 5)
        poll(NULL, 0, 10);
    for (int i = 0; i < CLIENTS; i++) {
        setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
        close(fds[i]);
    }
    assert_true(daemon_read_all(first, answer, sizeof answer) > 0);
    assert_memory_equal(answer, "HTTP/1.1 200 ", 13);
    close(first);
    free(slow);
    for (int n = 0; n < 500 && daemon_metric(&daemon, "attnd_aborted_total") <
                                   CLIENTS - 5; n++)
        poll(NULL, 0, 10);
    assert_true(daemon_metric(&daemon, "attnd_aborted_total") >= CLIENTS - 5);
    assert_true(daemon_metric(&daemon, "attnd_compute_seconds_count") < 10);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

/* 2.6 s of a worker, of which it has begun some when the client closes. */
static void a_computation_whose_client_leaves_ends(void **state)
{
    enum { L = 25000, SIZE = 2 * L + 200 };
    char *body = malloc(SIZE), head[256];
    struct daemon daemon;
    size_t at;
    int fd;

    (void)state;
    assert_non_null(body);
    at = (size_t)snprintf(body, SIZE,
                          "{\"precision\": \"float64\", \"need_weights\": false,"
                          " \"query\": {\"shape\": [%d, 1], \"data\": [1", L);
    for (int i = 1; i < L; i++, at += 2)
        memcpy(body + at, ",1", 2);
    at += (size_t)snprintf(body + at, SIZE - at, "]}}");
    snprintf(head, sizeof head,
             "POST /attention HTTP/1.1\r\nHost: a\r\n"
             "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
             at);
    daemon_start(&daemon, (const char *const[]){ "--workers", "1", NULL });
    fd = daemon_connect(&daemon);
    assert_true(daemon_send(fd, head, strlen(head)));
    assert_true(daemon_send(fd, body, at));
    while (daemon_metric(&daemon, "attnd_workers_busy") < 1)
        poll(NULL, 0, 5);
    close(fd);
    free(body);
    while (daemon_metric(&daemon, "attnd_workers_busy") > 0)
        poll(NULL, 0, 10);
    assert_true(daemon_metric(&daemon, "attnd_flops_total") == 0);
    assert_true(daemon_metric(&daemon, "attnd_rejected_total"
                                       "{reason=\"memory\"}") == 0);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

static void sigterm_under_load_answers_all_that_was_accepted(void **state)
{
    enum { CLIENTS = 12 };
    char *slow = slow_request(2000);
    struct daemon daemon;
    int fds[CLIENTS];

    (void)state;
    daemon_start(&daemon, (const char *const[]){
        "--drain-grace-ms", "60000", "--queue-wait-ms", "60000", NULL });
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = daemon_connect(&daemon);
        assert_true(daemon_send(fds[i], slow, strlen(slow)));
    }
    free(slow);
    while (daemon_metric(&daemon, "attnd_received_bytes_total") < 0)
        poll(NULL, 0, 10);
    kill(daemon.pid, SIGTERM);
    for (int i = 0; i < CLIENTS; i++) {
        assert_true(daemon_read_all(fds[i], answer, sizeof answer) > 0);
        assert_memory_equal(answer, "HTTP/1.1 ", 9);
        assert_true(strncmp(answer + 9, "200", 3) == 0 ||
                    says("\"draining\""));
        assert_true(says("\r\nConnection: close\r\n"));
        close(fds[i]);
    }
    assert_int_equal(daemon_wait(&daemon), 0);
}

static void draining_is_announced_before_listening_ends(void **state)
{
    struct daemon daemon;
    int idle;

    (void)state;
    daemon_start(&daemon, (const char *const[]){ "--drain-delay-ms", "500",
                                                 NULL });
    idle = daemon_connect(&daemon);
    kill(daemon.pid, SIGTERM);
    assert_true(daemon_logs(&daemon, "\"msg\":\"draining\""));
    assert_int_equal(daemon_exchange(&daemon, GET("/readyz"), answer,
                                     sizeof answer), 503);
    assert_true(says("\"draining\""));
    assert_int_equal(daemon_exchange(&daemon, GET("/livez"), answer,
                                     sizeof answer), 200);
    assert_int_equal(daemon_exchange(&daemon, POST_SMALL GET("/livez"), answer,
                                     sizeof answer), 200);
    assert_true(daemon_read_all(idle, answer, sizeof answer) == 0);
    assert_int_equal(daemon_connect(&daemon), -1);
    close(idle);
    assert_int_equal(daemon_wait(&daemon), 0);
}

static void a_second_signal_ends_it_at_once(void **state)
{
    struct daemon daemon;
    int64_t before;

    (void)state;
    daemon_start(&daemon, (const char *const[]){ "--drain-delay-ms", "60000",
                                                 NULL });
    kill(daemon.pid, SIGTERM);
    assert_true(daemon_logs(&daemon, "\"msg\":\"draining\""));
    before = now_ms();
    assert_int_not_equal(daemon_stop(&daemon, SIGTERM), 0);
    assert_true(now_ms() - before < 10000); /* not 60 s */
}

static void the_grace_period_is_an_end(void **state)
{
    struct daemon daemon;
    int64_t before;
    int fd;

    (void)state;
    daemon_start(&daemon, (const char *const[]){ "--drain-grace-ms", "300",
                                                 NULL });
    fd = daemon_connect(&daemon);
    assert_true(daemon_send(fd, POST_SMALL, sizeof POST_SMALL - 5));
    while (daemon_metric(&daemon, "attnd_connections") < 2)
        poll(NULL, 0, 10);
    before = now_ms();
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
    assert_true(now_ms() - before < 8000); /* not the body's 30 s */
    close(fd);
}

/* Who waited is told, who was computed can't be. */
static void what_is_still_computed_when_the_grace_ends_is_cut_off(void **state)
{
    enum { CLIENTS = 3 };
    char *slow = slow_request(12000);
    struct daemon daemon;
    int fds[CLIENTS], draining = 0, cut = 0;

    (void)state;
    daemon_start(&daemon, (const char *const[]){
        "--workers", "1", "--drain-grace-ms", "100", "--queue-wait-ms", "60000",
        NULL });
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = daemon_connect(&daemon);
        assert_true(daemon_send(fds[i], slow, strlen(slow)));
    }
    free(slow);
    while (daemon_metric(&daemon, "attnd_queue_jobs") < CLIENTS - 1)
        poll(NULL, 0, 10);
    kill(daemon.pid, SIGTERM);
    for (int i = 0; i < CLIENTS; i++) {
        cut += daemon_read_all(fds[i], answer, sizeof answer) == 0;
        draining += strncmp(answer, "HTTP/1.1 503 ", 13) == 0 &&
                    says("\"draining\"");
        close(fds[i]);
    }
    assert_int_equal(cut, 1);
    assert_int_equal(draining, CLIENTS - 1);
    assert_true(daemon_logs(&daemon, "\"msg\":\"cut off\""));
    assert_int_equal(daemon_wait(&daemon), 1);
}

static void bad_options_end_it_with_2_and_one_line(void **state)
{
    static const struct {
        const char *option, *value, *named;
    } rows[] = {
        { "--no-such-option", "1", "no-such-option" },
        { "--workers", "many", "workers" },
        { "--listen", "nonsense", "listen" },
        { "--kernels", "axv2", "kernels" },
        { "--config", "/nonexistent/attnd.conf", "/nonexistent/attnd.conf" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *options[] = { rows[i].option, rows[i].value, NULL };

        assert_int_equal(daemon_run(options, answer, sizeof answer), 2);
        assert_true(says(rows[i].named));
        assert_ptr_equal(strchr(answer, '\n'), answer + strlen(answer) - 1);
    }
}

static void a_port_in_use_ends_it_with_1_and_one_line(void **state)
{
    char address[32];
    int64_t before = now_ms();

    (void)state;
    snprintf(address, sizeof address, "127.0.0.1:%d", shared.port);
    assert_int_equal(daemon_run((const char *const[]){ "--listen", address,
                                                       NULL },
                                answer, sizeof answer), 1);
    assert_true(says(address));
    assert_ptr_equal(strchr(answer, '\n'), answer + strlen(answer) - 1);
    assert_true(now_ms() - before < 5000);
}

/* The exit status of the daemon with arguments for a shell; `answer` is what it
 * prints. */
static int run_in_shell(const char *arguments)
{
    const char *build = getenv("BUILD");
    char command[256];
    FILE *out;
    int status;

    snprintf(command, sizeof command, "exec %s/attnd %s",
             build == NULL ? "build" : build, arguments);
    out = popen(command, "r");
    assert_non_null(out);
    answer[fread(answer, 1, sizeof answer - 1, out)] = '\0';
    status = pclose(out);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void what_it_prints_instead_of_serving_is_whole_or_it_ends_with_1(
    void **state)
{
    static const struct {
        const char *option, *said;
    } rows[] = {
        { "--help", "usage: attnd [FLAG...]\n" },
        { "--version", "attnd " },
        { "--print-config --workers 3", "\nworkers = 3\n" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char to_full_disk[64];

        assert_int_equal(run_in_shell(rows[i].option), 0);
        assert_true(says(rows[i].said));
        snprintf(to_full_disk, sizeof to_full_disk, "%s >/dev/full",
                 rows[i].option);
        assert_int_equal(run_in_shell(to_full_disk), 1);
    }
}

static bool has_ipv6(void)
{
    struct sockaddr_in6 loopback = { .sin6_family = AF_INET6,
                                     .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool can = fd >= 0 &&
               bind(fd, (struct sockaddr *)&loopback, sizeof loopback) == 0;

    if (fd >= 0)
        close(fd);
    return can;
}

static void ipv6_is_listened_on_asked_and_logged_in_brackets(void **state)
{
    static const char at[] = "metrics and health are at [::1]:";
    static const char *const hosts[] = { "[::1]", "[::]" };
    struct daemon daemon;
    char *log, *port;

    (void)state;
    if (!has_ipv6())
        skip();
    daemon_start(&daemon, (const char *const[]){ "--admin-listen", "[::1]:0",
                                                 NULL });
    log = daemon_log(&daemon);
    port = strstr(log, at);
    assert_non_null(port);
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        char address[32];

        snprintf(address, sizeof address, "%s:%lu", hosts[i],
                 strtoul(port + strlen(at), NULL, 10));
        assert_int_equal(
            daemon_run((const char *const[]){ "--healthcheck", "--admin-listen",
                                              address, NULL },
                       answer, sizeof answer), 0);
    }
    free(log);
    assert_true(daemon_logs(&daemon, "\"path\":\"/readyz\",\"status\":200"));
    assert_true(daemon_logs(&daemon, "\"peer\":\"[::1]:"));
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

/* An address with the zone of no interface: it is in the right form, and stands
 * for nothing. */
static void an_address_that_nobody_has_ends_it_with_1_and_one_line(void **state)
{
    static const char address[] = "[fe80::1%none]:1";

    (void)state;
    for (int asks = 0; asks < 2; asks++) {
        assert_int_equal(
            daemon_run((const char *const[]){ "--listen", address,
                                              asks ? "--healthcheck" : NULL,
                                              NULL },
                       answer, sizeof answer), 1);
        assert_true(says(address));
        assert_ptr_equal(strchr(answer, '\n'), answer + strlen(answer) - 1);
    }
}

static void the_health_check_asks_the_running_server(void **state)
{
    char address[32];

    (void)state;
    snprintf(address, sizeof address, "127.0.0.1:%d", shared.port);
    assert_int_equal(daemon_run((const char *const[]){ "--healthcheck",
                                                       "--listen", address,
                                                       NULL },
                                answer, sizeof answer), 0);
    snprintf(address, sizeof address, "0.0.0.0:%d", shared.port);
    assert_int_equal(daemon_run((const char *const[]){ "--healthcheck",
                                                       "--listen", address,
                                                       NULL },
                                answer, sizeof answer), 0);
    assert_int_equal(daemon_run((const char *const[]){ "--healthcheck",
                                                       "--listen",
                                                       "127.0.0.1:1", NULL },
                                answer, sizeof answer), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_method_on_every_path_gets_its_status),
        cmocka_unit_test(head_has_the_headers_of_get_and_no_body),
        cmocka_unit_test(a_current_etag_is_answered_with_not_modified),
        cmocka_unit_test(a_harmless_request_id_comes_back_and_another_does_not),
        cmocka_unit_test(a_request_that_hides_another_is_refused_and_closes),
        cmocka_unit_test(what_is_no_http_is_closed),
        cmocka_unit_test(a_media_type_or_coding_that_is_not_served_is_named),
        cmocka_unit_test(pipelined_requests_are_answered_in_order),
        cmocka_unit_test(a_connection_serves_many_requests),
        cmocka_unit_test(each_answer_on_a_connection_has_the_id_of_its_request),
        cmocka_unit_test(the_io_thread_asks_for_short_slices_and_workers_do_not),
        cmocka_unit_test(a_client_that_has_shut_its_side_gets_its_answer),
        cmocka_unit_test(a_chunked_body_is_a_body),
        cmocka_unit_test(expect_100_is_answered_before_the_body),
        cmocka_unit_test(a_client_that_sends_too_much_reads_why),
        cmocka_unit_test(a_chunked_body_without_end_is_cut),
        cmocka_unit_test(nothing_stays_reserved),
        cmocka_unit_test(metrics_tell_what_happened),
        cmocka_unit_test(slow_clients_are_cut_whatever_trickles_in),
        cmocka_unit_test(a_full_queue_says_so_at_once_and_when_to_come_back),
        cmocka_unit_test(what_waits_past_its_deadline_is_refused),
        cmocka_unit_test(a_job_whose_client_has_left_is_not_computed),
        cmocka_unit_test(a_computation_whose_client_leaves_ends),
        cmocka_unit_test(sigterm_under_load_answers_all_that_was_accepted),
        cmocka_unit_test(draining_is_announced_before_listening_ends),
        cmocka_unit_test(a_second_signal_ends_it_at_once),
        cmocka_unit_test(the_grace_period_is_an_end),
        cmocka_unit_test(
            what_is_still_computed_when_the_grace_ends_is_cut_off),
        cmocka_unit_test(bad_options_end_it_with_2_and_one_line),
        cmocka_unit_test(a_port_in_use_ends_it_with_1_and_one_line),
        cmocka_unit_test(an_address_that_nobody_has_ends_it_with_1_and_one_line),
        cmocka_unit_test(
            what_it_prints_instead_of_serving_is_whole_or_it_ends_with_1),
        cmocka_unit_test(the_health_check_asks_the_running_server),
        cmocka_unit_test(ipv6_is_listened_on_asked_and_logged_in_brackets),
    };

    signal(SIGPIPE, SIG_IGN);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    return cmocka_run_group_tests(tests, start_shared, stop_shared);
}
