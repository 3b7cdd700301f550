/* The load generator against a server of which everything is known. */
#include "tests/load/histogram.h"
#include "tests/load/options.h"
#include "tests/load/report.h"
#include "tests/load/response.h"
#include "tests/load/run.h"
#include "tests/load/watch.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

enum {
    PLACES = 128, /* more than a run may open */
    STALL_MS = 400
};

static const int64_t MS = 1000000;

/* The stand-in: one thread, which answers each GET by its path. */
static struct {
    pthread_t thread;
    int listener;
    uint16_t port;
    _Atomic bool stops;
    _Atomic int requests;
    int stall_after; /* requests; then it sleeps once, with everybody waiting */
} server;

static const struct {
    const char *path, *answer;
    bool closes;
} answers[] = {
    { "GET /ok ", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false },
    { "GET /busy ", "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", false },
    { "GET /last ", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
                    "Connection: close\r\n\r\nok", true },
    { "GET /cut ", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", true },
    { "GET /gone ", "", true },
    { "GET /else ", "SSH-2.0-other\r\n\r\n", false },
    { "GET /silent ", "", false },
    { "POST /", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false },
};

/* Every request of these tests fits one segment. True: closes. */
static bool answer(int fd)
{
    char text[8192];
    ssize_t n = recv(fd, text, sizeof text - 1, 0);
    int count;

    if (n <= 0)
        return true;
    text[n] = '\0';
    count = atomic_fetch_add(&server.requests, 1) + 1;
    if (count == server.stall_after)
        poll(NULL, 0, STALL_MS);
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        if (strncmp(text, answers[i].path, strlen(answers[i].path)) == 0) {
            send(fd, answers[i].answer, strlen(answers[i].answer),
                 MSG_NOSIGNAL);
            return answers[i].closes;
        }
    return true;
}

static void *serve(void *unused)
{
    struct pollfd place[PLACES] = { { server.listener, POLLIN, 0 } };
    nfds_t places = 1;

    while (!server.stops) {
        poll(place, places, 10);
        for (nfds_t i = 1; i < places; i++)
            if (place[i].revents != 0 && answer(place[i].fd)) {
                close(place[i].fd);
                place[i--] = place[--places];
            }
        if (place[0].revents != 0 && places < PLACES)
            place[places++] = (struct pollfd){
                accept(server.listener, NULL, NULL), POLLIN, 0
            };
    }
    while (places > 1)
        close(place[--places].fd);
    return unused;
}

static void start_server(int stall_after)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    socklen_t len = sizeof address;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_return_code(bind(server.listener, (struct sockaddr *)&address, len),
                       errno);
    assert_return_code(listen(server.listener, PLACES), errno);
    getsockname(server.listener, (struct sockaddr *)&address, &len);
    server.port = ntohs(address.sin_port);
    server.stops = false;
    server.requests = 0;
    server.stall_after = stall_after;
    assert_int_equal(pthread_create(&server.thread, NULL, serve, NULL), 0);
}

static void stop_server(void)
{
    server.stops = true;
    pthread_join(server.thread, NULL);
    close(server.listener);
}

static bool read_options(struct options *options, char *why, size_t size,
                         const char *const *words)
{
    char *argv[32] = { "load" };
    int argc = 1;

    for (; *words != NULL; words++)
        argv[argc++] = (char *)(uintptr_t)*words;
    return options_read(options, argc, argv, why, size);
}

/* A run against the stand-in; up to eight more words before the path. */
static struct result *run(const char *path, double rate,
                          const char *const *words)
{
    static struct options options;
    char url[128], why[512] = "";
    const char *all[16] = { NULL };
    uint64_t digest[OPTIONS_BODIES] = { 0 };
    struct result *result = calloc(1, sizeof *result);
    int n = 0;

    assert_non_null(result);
    while (*words != NULL)
        all[n++] = *words++;
    snprintf(url, sizeof url, "http://127.0.0.1:%u%s", (unsigned)server.port,
             path);
    all[n] = url;
    if (!read_options(&options, why, sizeof why, all))
        fail_msg("%s", why);
    for (int round = 0; round < options.rounds; round++)
        assert_true(run_load(&options, rate, options.connections, digest,
                             result));
    options_free(&options);
    return result;
}

static void quantiles_are_right_to_within_a_part(void **state)
{
    struct histogram *histogram = calloc(1, sizeof *histogram);

    (void)state;
    assert_non_null(histogram);
    assert_int_equal(histogram_quantile(histogram, 0.99), 0);
    for (int64_t ns = 1; ns <= 1000000; ns++)
        histogram_add(histogram, ns);
    for (int i = 1; i < 1000; i++) {
        double exact = i * 1000;
        double got = (double)histogram_quantile(histogram, i / 1000.0);

        if (got < exact || got > exact * (1 + 1 / 128.0))
            fail_msg("p%g: %.0f, exactly %.0f", i / 10.0, got, exact);
    }
    assert_int_equal(histogram_quantile(histogram, 1), 1000000);
    assert_int_equal(histogram_quantile(histogram, 0), 1);
    assert_true(histogram_mean_ns(histogram) == 500000.5);
    free(histogram);
}

static void every_duration_is_in_the_bucket_that_ends_after_it(void **state)
{
    (void)state;
    for (int64_t ns = 1; ns < (int64_t)1 << 44; ns += 1 + ns / 97) {
        struct histogram *histogram = calloc(1, sizeof *histogram);

        assert_non_null(histogram);
        histogram_add(histogram, ns);
        histogram_add(histogram, INT64_MAX); /* so that max does not cap */
        int64_t end = histogram_quantile(histogram, 0.5);
        int64_t held = ns < (int64_t)1 << 43 ? ns : ((int64_t)1 << 43) - 1;

        assert_in_range(end, held, held + held / 127);
        free(histogram);
    }
}

static void the_end_of_a_response_is_found_in_any_pieces(void **state)
{
    static const struct {
        const char *text;
        bool head;
        enum response_state state;
        int status, body_bytes, interim;
        bool closes;
        int spare; /* bytes after the response */
    } rows[] = {
        { "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", false,
          RESPONSE_COMPLETE, 200, 3, 0, false, 0 },
        { "HTTP/1.1 200 OK\r\ncontent-length:3\r\n\r\nabcHTTP/1.1", false,
          RESPONSE_COMPLETE, 200, 3, 0, false, 8 },
        { "HTTP/1.1 204 No\r\n\r\n", false, RESPONSE_COMPLETE, 204, 0, 0,
          false, 0 },
        { "HTTP/1.1 304 No\r\nContent-Length: 5\r\n\r\n", false,
          RESPONSE_COMPLETE, 304, 0, 0, false, 0 },
        { "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true,
          RESPONSE_COMPLETE, 200, 0, 0, false, 0 },
        { "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 413 X\r\n"
          "Connection: close\r\nContent-Length: 1\r\n\r\nx", false,
          RESPONSE_COMPLETE, 413, 1, 1, true, 0 },
        { "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", false,
          RESPONSE_COMPLETE, 200, 0, 0, true, 0 },
        { "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc", false,
          RESPONSE_BODY, 200, 3, 0, true, 0 },
        { "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", false,
          RESPONSE_BODY, 200, 3, 0, false, 0 },
        { "HTTP/1.1 200 OK\r\n\r\n", false, RESPONSE_MALFORMED, 200, 0, 0,
          false, 0 },
        { "HTTP/2 200\r\n\r\n", false, RESPONSE_MALFORMED, 0, 0, 0, false, 2 },
        { "HTTP/1.1 200 OK\r\nContent-Length: 3x\r\n\r\n", false,
          RESPONSE_MALFORMED, 200, 0, 0, false, 2 },
        { "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
          false, RESPONSE_MALFORMED, 200, 0, 0, false, 2 },
        { "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false,
          RESPONSE_MALFORMED, 200, 0, 0, false, 2 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t piece = 1; piece <= 64; piece += piece < 8 ? 1 : 56) {
            struct response response;
            size_t len = strlen(rows[i].text), at = 0, taken = 1;

            response_begin(&response, rows[i].head);
            while (at < len && taken > 0) {
                size_t n = len - at < piece ? len - at : piece;

                taken = response_take(&response, rows[i].text + at, n);
                at += taken;
            }
            if (response.state != rows[i].state)
                fail_msg("in pieces of %zu: %s", piece, rows[i].text);
            assert_int_equal(response.status, rows[i].status);
            assert_int_equal(response.body_bytes, rows[i].body_bytes);
            assert_int_equal(response.interim, rows[i].interim);
            assert_int_equal(response.closes, rows[i].closes);
            assert_int_equal(len - at, rows[i].spare);
        }
}

static void a_body_without_a_length_ends_with_the_connection(void **state)
{
    static const char text[] = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nab";
    struct response response;

    (void)state;
    response_begin(&response, false);
    assert_false(response_end(&response));
    response_take(&response, text, sizeof text - 1);
    assert_true(response_end(&response));
    assert_int_equal(response.body_bytes, 2);
}

static void no_load_is_sent_to_another_machine(void **state)
{
    static const struct {
        const char *url;
        bool good;
    } rows[] = {
        { "http://127.0.0.1:8080/attention", true },
        { "http://127.1.2.3:8080", true },
        { "http://localhost:8080/livez", true },
        { "http://[::1]:8080/livez?x=1", true },
        { "http://10.0.0.1:8080/", false },
        { "http://128.0.0.1:8080/", false },
        { "http://0.0.0.0:8080/", false },
        { "http://[::]:8080/", false },
        { "http://[::ffff:127.0.0.1]:8080/", false },
        { "http://example.com:8080/", false },
        { "http://localhost.example.com:8080/", false },
        { "http://127.0.0.1@10.0.0.1:8080/", false },
        { "http://127.0.0.1:8080@10.0.0.1/", false },
        { "http://127.0.0.1.example.com/", false },
        { "https://127.0.0.1:8080/", false },
        { "http://127.0.0.1:0/", false },
        { "http://127.0.0.1:65536/", false },
        { "127.0.0.1:8080", false },
        { "", false },
    };
    static struct options options;
    char why[512];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *words[] = { rows[i].url, NULL };

        if (read_options(&options, why, sizeof why, words) != rows[i].good)
            fail_msg("%s", rows[i].url);
        if (rows[i].good)
            options_free(&options);
    }
}

static void what_is_not_understood_is_refused_by_name(void **state)
{
    static const char *const rows[][4] = {
        { "--rate", "fast", "http://127.0.0.1:1/", "fast" },
        { "--rate", "50%", "http://127.0.0.1:1/", "closed run" },
        { "--rate", "", "http://127.0.0.1:1/", "--rate" },
        { "--rate", "-1", "http://127.0.0.1:1/", "--rate -1" },
        { "--duration", "1e9", "http://127.0.0.1:1/", "--duration" },
        { "--connections", "0", "http://127.0.0.1:1/", "--connections" },
        { "--header", "no colon", "http://127.0.0.1:1/", "no colon" },
        { "--header", "a: b\r\nc: d", "http://127.0.0.1:1/", "--header" },
        { "--body", "/no/such/file", "http://127.0.0.1:1/", "/no/such/file" },
        { "--attention", "4x3x2", "http://127.0.0.1:1/", "4x3x2" },
        { "--attention", "99999x99999x1", "http://127.0.0.1:1/", "64 MB" },
        { "--bad", "5", "http://127.0.0.1:1/", "--bad" },
        { "--warmup", "10", "http://127.0.0.1:1/", "--warmup" },
        { "--speed", "1", "http://127.0.0.1:1/", "--speed" },
        { "--judge", "maybe", "http://127.0.0.1:1/", "maybe" },
        { "--rate", "closed:0", "http://127.0.0.1:1/", "closed:0" },
        { "--flat", "1", "http://127.0.0.1:1/", "--watch" },
        { "--json", "a", "--json", "--json" },
        { "--json", "a", "127.0.0.1:1", "http://" },
    };
    static struct options options;
    char why[512];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *words[] = { rows[i][0], rows[i][1], rows[i][2], NULL };

        assert_false(read_options(&options, why, sizeof why, words));
        if (strstr(why, rows[i][3]) == NULL || strchr(why, '\n') != NULL)
            fail_msg("%s %s: %s", rows[i][0], rows[i][1], why);
    }
}

/* 400 requests a second, one connection, and a server that is away for 400 ms:
 * a generator that waits for it would see one slow request. */
static void a_stall_shows_in_every_request_it_delayed(void **state)
{
    static const char *const words[] = { "--connections", "1", "--duration",
                                         "1", NULL };
    struct result *result;
    const struct outcome *outcome;

    (void)state;
    start_server(100);
    result = run("/ok", 400, words);
    stop_server();
    assert_int_equal(result->begun, 400);
    assert_int_equal(result->outcomes, 1);
    outcome = result_find(result, 200);
    assert_non_null(outcome);
    assert_int_equal(outcome->latency.count, 400);
    /* 160 were due meanwhile; half of them for longer than 200 ms. */
    assert_true(histogram_quantile(&outcome->latency, 0.85) > 190 * MS);
    assert_true(histogram_quantile(&outcome->service, 0.85) < 190 * MS);
    assert_true(outcome->service.max_ns > 390 * MS);
    free(result);
}

static void requests_are_sent_at_their_times(void **state)
{
    static const char *const words[] = { "--duration", "0.5", NULL };
    struct result *result;

    (void)state;
    start_server(0);
    result = run("/ok", 1000, words);
    assert_int_equal(result->begun, 500);
    assert_int_equal(server.requests, 500);
    assert_true(result->counted_s > 0.49 && result->counted_s < 0.51);
    assert_int_equal(result_find(result, 200)->latency.count, 500);
    assert_true(result_goodput(result) > 0 && result_goodput(result) < 1001);
    assert_true(result->opened < PLACES);
    free(result);
    stop_server();
}

static void rounds_add_up_to_one_result(void **state)
{
    static const char *const words[] = { "--duration", "0.4", "--rounds", "2",
                                         NULL };
    struct result *result;

    (void)state;
    start_server(0);
    result = run("/ok", 500, words);
    assert_int_equal(result->begun, 200);
    assert_int_equal(result->outcomes, 1);
    assert_int_equal(result_find(result, 200)->latency.count, 200);
    assert_true(result->counted_s > 0.39 && result->counted_s < 0.41);
    assert_true(result->wanted_rate == 500);
    free(result);
    stop_server();
}

/* The standard deviation of such a count is its square root, 22. */
static void random_requests_keep_their_rate_and_not_their_distance(void **state)
{
    static const char *const words[] = { "--duration", "0.5", "--random", "yes",
                                         NULL };
    struct result *result;

    (void)state;
    start_server(0);
    result = run("/ok", 1000, words);
    assert_in_range(result->begun, 400, 600);
    assert_int_not_equal(result->begun, 500);
    assert_int_equal(result_find(result, 200)->latency.count, result->begun);
    free(result);
    stop_server();
}

static void what_became_of_a_request_is_told_apart(void **state)
{
    static const struct {
        const char *path;
        int status;
        enum failure failure; /* when status is 0 */
        int opened;
    } rows[] = {
        { "/ok", 200, 0, 4 },
        { "/busy", 503, 0, 4 },
        { "/last", 200, 0, 20 },
        { "/cut", 0, FAILED_CLOSED, 20 },
        { "/gone", 0, FAILED_CLOSED, 20 },
        { "/else", 0, FAILED_MALFORMED, 20 },
        { "/silent", 0, FAILED_TIMEOUT, 20 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *words[] = {
            "--count", "20", "--duration", "30", "--connections", "4",
            "--timeout",
            rows[i].failure == FAILED_TIMEOUT ? "100" : "20000", NULL
        };
        struct result *result;

        start_server(0);
        result = run(rows[i].path, 0, words);
        stop_server();
        if (rows[i].status != 0) {
            const struct outcome *outcome = result_find(result, rows[i].status);

            assert_non_null(outcome);
            assert_int_equal(outcome->latency.count, 20);
        } else {
            assert_int_equal(result->outcomes, 0);
            assert_int_equal(result->failed[rows[i].failure], 20);
        }
        assert_int_equal(result->begun, 20);
        assert_int_equal(result->opened, rows[i].opened);
        free(result);
    }
}

static void nobody_listening_is_a_failure_to_connect(void **state)
{
    static const char *const words[] = { "--count", "5", "--duration", "5",
                                         NULL };
    struct result *result;

    (void)state;
    start_server(0);
    stop_server();
    result = run("/ok", 100, words);
    assert_int_equal(result->failed[FAILED_CONNECT], 5);
    free(result);
}

static void a_request_without_a_free_connection_is_not_sent(void **state)
{
    static const char *const words[] = { "--count", "9", "--duration", "2",
                                         "--timeout", "200", "--connections",
                                         "1", NULL };
    struct result *result;

    (void)state;
    start_server(0);
    result = run("/silent", 100, words);
    stop_server();
    assert_int_equal(result->begun, 9);
    assert_true(result->failed[FAILED_UNSENT] > 0);
    assert_int_equal(result->failed[FAILED_UNSENT] +
                         result->failed[FAILED_TIMEOUT], 9);
    free(result);
}

static void bad_and_leaving_clients_have_their_share(void **state)
{
    static const char *const words[] = { "--count", "400", "--duration", "5",
                                         "--attention", "2x4x2", "--bad",
                                         "10", "--abort", "25", NULL };
    struct result *result;

    (void)state;
    start_server(0);
    result = run("/", 0, words);
    stop_server();
    assert_in_range(result->left, 60, 140);
    assert_non_null(result_find(result, 200));
    assert_int_equal(result_find(result, 200)->latency.count + (uint64_t)result->left,
                     400);
    free(result);
}

static void a_report_is_json(void **state)
{
    static const char *const words[] = {
        "--count", "50", "--duration", "5", "--rate", "closed,200%",
        "http://127.0.0.1:1/a\"\\?b", NULL
    };
    static const char *const run_words[] = { "--count", "50", NULL };
    static struct options options;
    struct result *result[2];
    char why[512], *text = NULL;
    size_t len;
    json_t *report, *answer200;
    FILE *out;

    (void)state;
    start_server(0);
    result[0] = run("/ok", 0, run_words);
    result[1] = run("/busy", 1000, run_words);
    stop_server();
    assert_true(read_options(&options, why, sizeof why, words));
    out = open_memstream(&text, &len);
    assert_true(report_json(&options, result, 2, out));
    fclose(out);
    report = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (report == NULL)
        fail_msg("%s", text);
    assert_string_equal(json_string_value(json_object_get(report, "url")),
                        options.url);
    answer200 = json_array_get(json_object_get(json_array_get(json_object_get(
        report, "runs"), 0), "answers"), 0);
    assert_int_equal(json_integer_value(json_object_get(answer200, "count")), 50);
    json_decref(report);
    free(text);
    free(result[0]);
    free(result[1]);
    options_free(&options);
}

/* Two runs of which the second is overloaded. */
static void overload_is_judged_by_what_it_costs(void **state)
{
    static const char *const words[] = { "--rate", "closed,100%,500%",
                                         "http://127.0.0.1:1/", NULL };
    static const struct {
        int64_t good, good_ns, refused_ns;
        enum failure failure;
        int failed;
        bool passes;
    } rows[] = {
        { 960, 19 * 1000000, 5 * 1000000, 0, 0, true },
        { 900, 19 * 1000000, 5 * 1000000, 0, 0, false },
        { 960, 21 * 1000000, 5 * 1000000, 0, 0, false },
        { 960, 19 * 1000000, 11 * 1000000, 0, 0, false },
        { 960, 19 * 1000000, 5 * 1000000, FAILED_CLOSED, 1, false },
    };
    static struct options options;
    char why[512];
    FILE *null = fopen("/dev/null", "w");

    (void)state;
    assert_non_null(null);
    assert_true(read_options(&options, why, sizeof why, words));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct result *result[3];

        for (int r = 0; r < 3; r++) {
            struct outcome *outcome;

            result[r] = calloc(1, sizeof **result);
            assert_non_null(result[r]);
            result[r]->counted_s = 1;
            result[r]->outcomes = 2;
            outcome = result[r]->outcome;
            outcome[0].status = 200;
            outcome[0].in_time = r == 2 ? rows[i].good : 1000;
            histogram_add(&outcome[0].latency,
                          r == 2 ? rows[i].good_ns : 10 * MS);
            outcome[1].status = 503;
            histogram_add(&outcome[1].service, rows[i].refused_ns);
        }
        result[2]->failed[rows[i].failure] = rows[i].failed;
        if (report_judge(&options, result, 3, null) != rows[i].passes)
            fail_msg("row %zu", i);
        for (int r = 0; r < 3; r++)
            free(result[r]);
    }
    fclose(null);
    options_free(&options);
}

static void a_watch_sees_growth_and_forgets_evenly(void **state)
{
    struct watch *watch = calloc(1, sizeof *watch);
    struct watch_sample sample;
    double step;

    (void)state;
    assert_non_null(watch);
    watch->pid = getpid();
    for (int i = 0; i < 2 * WATCH_SAMPLES; i++)
        watch_add(watch, i);
    assert_in_range(watch->count, WATCH_SAMPLES / 2, WATCH_SAMPLES);
    step = watch->sample[1].at_s - watch->sample[0].at_s;
    for (int i = 1; i < watch->count; i++) {
        assert_true(watch->sample[i].at_s - watch->sample[i - 1].at_s == step);
        watch->sample[i].resident_bytes = 1000 + 7 * i;
        watch->sample[i].files = 9;
    }
    watch->sample[0].resident_bytes = 1000;
    watch->sample[0].files = 9;
    assert_true(watch_grows(watch, 0, 1));
    assert_false(watch_grows(watch, 0, 7 * 3600 / step));
    assert_true(watch_slope(watch, 10) > 7 * 3600 / step * 0.999);
    assert_true(watch_slope(watch, 10) < 7 * 3600 / step * 1.001);
    watch->sample[watch->count - 1].files++;
    assert_true(watch_grows(watch, 0, 1e9));
    assert_true(watch_look(getpid(), &sample));
    assert_true(sample.resident_bytes > 0 && sample.files > 2);
    assert_false(watch_look(-1, &sample));
    assert_in_range(watch_cpu_ms(getpid()), 0, 600000);
    assert_int_equal(watch_cpu_ms(-1), -1);
    free(watch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_right_to_within_a_part),
        cmocka_unit_test(every_duration_is_in_the_bucket_that_ends_after_it),
        cmocka_unit_test(the_end_of_a_response_is_found_in_any_pieces),
        cmocka_unit_test(a_body_without_a_length_ends_with_the_connection),
        cmocka_unit_test(no_load_is_sent_to_another_machine),
        cmocka_unit_test(what_is_not_understood_is_refused_by_name),
        cmocka_unit_test(a_stall_shows_in_every_request_it_delayed),
        cmocka_unit_test(requests_are_sent_at_their_times),
        cmocka_unit_test(rounds_add_up_to_one_result),
        cmocka_unit_test(random_requests_keep_their_rate_and_not_their_distance),
        cmocka_unit_test(what_became_of_a_request_is_told_apart),
        cmocka_unit_test(nobody_listening_is_a_failure_to_connect),
        cmocka_unit_test(a_request_without_a_free_connection_is_not_sent),
        cmocka_unit_test(bad_and_leaving_clients_have_their_share),
        cmocka_unit_test(a_report_is_json),
        cmocka_unit_test(overload_is_judged_by_what_it_costs),
        cmocka_unit_test(a_watch_sees_growth_and_forgets_evenly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
