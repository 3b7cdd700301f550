#include "tests/e2e/daemon.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* More than the workers can do, and who waits for it. */

enum { WIDTH = 32 };

static char answer[1 << 22];

/* `rows` squared is what it costs: 3000 is a few hundred milliseconds. */
static char *request_of(int rows, const char *connection)
{
    size_t size = (size_t)rows * WIDTH * 2 + 1024, at;
    char *text = malloc(size), *body = malloc(size);

    assert_non_null(text);
    assert_non_null(body);
    at = (size_t)snprintf(body, size,
                          "{\"need_weights\": false, \"precision\": \"float64\","
                          " \"query\": {\"shape\": [1, %d, %d], \"data\": [0",
                          rows, WIDTH);
    for (int i = 1; i < rows * WIDTH; i++, at += 2)
        memcpy(body + at, ",0", 2);
    at += (size_t)snprintf(body + at, size - at, "]}}");
    snprintf(text, size,
             "POST /attention HTTP/1.1\r\nHost: a\r\nConnection: %s\r\n"
             "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             connection, at, body);
    free(body);
    return text;
}

static int send_alone(const struct daemon *daemon, const char *text)
{
    int fd = daemon_connect(daemon);

    assert_true(fd >= 0);
    assert_true(daemon_send(fd, text, strlen(text)));
    return fd;
}

static void small_requests_do_not_wait_for_big_ones(void **state)
{
    enum { BIG = 6, SMALL = 20 };
    char *big = request_of(3000, "close"), *small = request_of(2, "close");
    struct daemon daemon;
    int fds[BIG];
    double done;

    (void)state;
    daemon_start(&daemon, (const char *const[]){
        "--workers", "2", "--queue-wait-ms", "60000", NULL });
    for (int i = 0; i < 4; i++) /* it has seen both kinds */
        assert_int_equal(daemon_exchange(&daemon, i < 2 ? big : small, answer,
                                         sizeof answer), 200);
    for (int i = 0; i < BIG; i++)
        fds[i] = send_alone(&daemon, big);
    for (int i = 0; i < SMALL; i++)
        assert_int_equal(daemon_exchange(&daemon, small, answer, sizeof answer),
                         200);
    done = daemon_metric(&daemon, "attnd_compute_seconds_count") - 4 - SMALL;
    assert_true(done <= BIG / 2);
    for (int i = 0; i < BIG; i++) {
        assert_true(daemon_read_all(fds[i], answer, sizeof answer) > 0);
        assert_memory_equal(answer, "HTTP/1.1 200 ", 13);
        close(fds[i]);
    }
    free(big);
    free(small);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

/* The connection is good for the next request: nobody has to connect anew. */
static void a_request_without_room_is_refused_before_its_body_is_kept(void **state)
{
    enum { WAITING = 3 };
    char *big = request_of(3000, "close"), *next = request_of(3000, "keep-alive");
    struct daemon daemon;
    int fds[WAITING], fd, refused = 0, tries = 0;

    (void)state;
    daemon_start(&daemon, (const char *const[]){
        "--workers", "1", "--queue-wait-ms", "1", NULL });
    assert_int_equal(daemon_exchange(&daemon, big, answer, sizeof answer), 200);
    for (int i = 0; i < WAITING; i++)
        fds[i] = send_alone(&daemon, big);
    while (daemon_metric(&daemon, "attnd_queue_jobs") == 0)
        assert_true(tries++ < 1000);
    fd = daemon_connect(&daemon);
    for (int i = 0; i < 2; i++) {
        assert_true(daemon_send(fd, next, strlen(next)));
        refused += daemon_read_one(fd, answer, sizeof answer) == 503;
        assert_non_null(strstr(answer, "\r\nRetry-After: "));
    }
    assert_int_equal(refused, 2);
    for (int i = 0; i < WAITING; i++) {
        assert_true(daemon_read_all(fds[i], answer, sizeof answer) > 0);
        close(fds[i]);
    }
    close(fd);
    free(big);
    free(next);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

/* As doubles its numbers take 768 KB, which the body does not tell before it is
 * read. */
static void a_body_that_takes_more_than_half_the_memory_is_too_large(
    void **state)
{
    char *big = request_of(3000, "close");
    struct daemon daemon;

    (void)state;
    daemon_start(&daemon, (const char *const[]){ "--memory-bytes", "1MiB",
                                                 NULL });
    assert_int_equal(daemon_exchange(&daemon, big, answer, sizeof answer), 413);
    assert_non_null(strstr(answer, "decoding the body takes more than 524288 "
                                   "bytes of memory"));
    assert_true(daemon_metric(&daemon, "attnd_memory_reserved_bytes") == 0);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
    free(big);
}

static void a_line_that_proves_slow_lets_its_newest_go(void **state)
{
    enum { CLIENTS = 8 };
    char *big = request_of(3000, "close");
    struct daemon daemon;
    int fds[CLIENTS], refused = 0, served = 0;

    (void)state;
    daemon_start(&daemon, (const char *const[]){
        "--workers", "1", "--queue-wait-ms", "10", NULL });
    for (int i = 0; i < CLIENTS; i++)
        fds[i] = send_alone(&daemon, big);
    for (int i = 0; i < CLIENTS; i++) {
        assert_true(daemon_read_all(fds[i], answer, sizeof answer) > 0);
        served += strncmp(answer, "HTTP/1.1 200 ", 13) == 0;
        refused += strncmp(answer, "HTTP/1.1 503 ", 13) == 0;
        close(fds[i]);
    }
    free(big);
    assert_int_equal(served + refused, CLIENTS);
    assert_true(served >= 2); /* one computed, one waited */
    assert_true(refused >= CLIENTS / 2);
    assert_true(daemon_metric(&daemon, "attnd_rejected_total"
                                       "{reason=\"queue_full\"}") == refused);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_requests_do_not_wait_for_big_ones),
        cmocka_unit_test(a_request_without_room_is_refused_before_its_body_is_kept),
        cmocka_unit_test(
            a_body_that_takes_more_than_half_the_memory_is_too_large),
        cmocka_unit_test(a_line_that_proves_slow_lets_its_newest_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
