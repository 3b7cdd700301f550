#include "tests/e2e/client.h"
#include "tests/e2e/daemon.h"
#include "tests/load/watch.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* The README's formula for resident memory, under a storm and under many slow
 * clients, its part for a connection, memory that is used again, and what a
 * reply takes. */

enum {
    WORKERS = 2,
    CLIENTS = 48,
    STORM_S = 6,
    MEMORY_MIB = 96,
    CONNECTION_KIB = 80,
    KEPT_KIB = 48, /* of it, between two requests */
    SLOW = 600
};

static const int64_t mib = 1 << 20, kib = 1 << 10;

static int64_t resident_bytes(const struct daemon *daemon)
{
    struct watch_sample sample;

    assert_true(watch_look(daemon->pid, &sample));
    return sample.resident_bytes;
}

/* A body of `rows` queries of `width`, whose answer holds rows x rows weights:
 * from 100 KB to 10 MB in, and as much out. */
static char *body_of(unsigned rows, unsigned width, size_t *len)
{
    size_t size = (size_t)rows * width * 9 + 1024, at;
    char *text = malloc(size);

    if (text == NULL)
        _exit(3);
    at = (size_t)snprintf(text, size,
                          "{\"query\": {\"shape\": [1, %u, %u], \"data\": [",
                          rows, width);
    for (size_t i = 0; i < (size_t)rows * width; i++)
        at += (size_t)snprintf(text + at, size - at, "%s0.%04u",
                               i == 0 ? "" : ",", (unsigned)(i * 7919 % 10000));
    *len = at + (size_t)snprintf(text + at, size - at, "]}}");
    return text;
}

static void read_to_the_end(int fd)
{
    static char bytes[1 << 16];

    while (read(fd, bytes, sizeof bytes) > 0)
        ;
}

/* One client: bodies of its own size, some left in the middle. */
static void storm(const struct daemon *daemon, unsigned number)
{
    struct timespec now, begun;
    unsigned rows = 64 + number * 24, width = 64 << number % 4;
    size_t len;
    char *body = body_of(rows, width, &len), head[256];

    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (unsigned round = 0;; round++) {
        int fd = daemon_connect(daemon);
        bool leaves = (round + number) % 5 == 0;

        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - begun.tv_sec >= STORM_S)
            _exit(0);
        if (fd < 0)
            _exit(1);
        snprintf(head, sizeof head,
                 "POST /attention HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                 "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                 len);
        if (daemon_send(fd, head, strlen(head)) &&
            daemon_send(fd, body, leaves ? len / 2 : len) && !leaves)
            read_to_the_end(fd);
        close(fd);
    }
}

/* As the README has it. A sanitizer's own memory is not in it. */
static int64_t formula(int64_t base, int64_t connections)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    base += 1 << 30;
#endif
    return base + MEMORY_MIB * mib + WORKERS * 64 * mib + 64 * mib +
           connections * CONNECTION_KIB * kib;
}

static void a_storm_of_middle_sized_bodies_stays_within_the_formula(void **state)
{
    struct daemon daemon;
    pid_t clients[CLIENTS];
    int64_t base, most, bound;

    (void)state;
    daemon_start(&daemon, (const char *const[]){
        "--workers", "2", "--memory-bytes", "96MiB", "--log-level", "info",
        "--queue-wait-ms", "60000", NULL });
    base = resident_bytes(&daemon);
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i] = fork();
        assert_true(clients[i] >= 0);
        if (clients[i] == 0)
            storm(&daemon, i);
    }
    for (int i = 0; i < CLIENTS; i++) {
        int status;

        assert_int_equal(waitpid(clients[i], &status, 0), clients[i]);
        assert_int_equal(status, 0);
    }
    most = watch_take_peak(daemon.pid);
    bound = formula(base, CLIENTS);
    print_message("%.1f MiB at the start, %.1f at most, %.1f by the formula; "
                  "%.0f answered, %.0f refused\n", (double)base / (double)mib,
                  (double)most / (double)mib, (double)bound / (double)mib,
                  daemon_metric(&daemon, "attnd_encode_seconds_count"),
                  daemon_metric(&daemon, "attnd_rejected_total"
                                         "{reason=\"memory\"}"));
    assert_true(most > 0 && most <= bound);
    assert_true(daemon_metric(&daemon, "attnd_rejected_total"
                                       "{reason=\"memory\"}") > 0);
    assert_true(daemon_metric(&daemon, "attnd_encode_seconds_count") > 0);
    for (int i = 0; i < 200 &&
         daemon_metric(&daemon, "attnd_memory_reserved_bytes") > 0; i++)
        poll(NULL, 0, 10);
    assert_true(daemon_metric(&daemon, "attnd_memory_reserved_bytes") == 0);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

static void many_slow_clients_stay_within_the_formula(void **state)
{
    static char bytes[128 * 1024];
    struct daemon daemon;
    int fds[SLOW];
    int64_t base, most;

    (void)state;
    memset(bytes, ' ', sizeof bytes);
    daemon_start(&daemon, (const char *const[]){
        "--workers", "2", "--memory-bytes", "96MiB", NULL });
    base = resident_bytes(&daemon);
    for (int i = 0; i < SLOW; i++) {
        static const char head[] =
            "POST /attention HTTP/1.1\r\nHost: a\r\n"
            "Content-Type: application/json\r\nContent-Length: 200000\r\n\r\n";

        fds[i] = daemon_connect(&daemon);
        assert_true(fds[i] >= 0);
        assert_true(daemon_send(fds[i], head, sizeof head - 1));
        assert_true(daemon_send(fds[i], bytes, sizeof bytes));
    }
    assert_true(daemon_metric(&daemon, "attnd_connections") >= SLOW);
    poll(NULL, 0, 200);
    most = watch_take_peak(daemon.pid);
    print_message("%.1f MiB at most, %.1f by the formula\n",
                  (double)most / (double)mib,
                  (double)formula(base, SLOW) / (double)mib);
    assert_true(most > 0 && most <= formula(base, SLOW));
    for (int i = 0; i < SLOW; i++)
        close(fds[i]);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

/* Whatever it asked for, of which a path may be most. */
static void a_connection_that_is_kept_takes_its_share_and_no_more(void **state)
{
    enum { KEPT = 400, LENGTHS = 3, LONGEST = 30000 };
    static const int lengths[LENGTHS] = { 0, 1000, LONGEST };
    static char path[LONGEST + 1], request[LONGEST + 64], answer[LONGEST + 4096];

    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* memory that was freed is kept from use for a while */
#endif
    for (int i = 0; i < LENGTHS; i++) {
        struct daemon daemon;
        int fds[KEPT], len;
        int64_t grown, before;

        memset(path, 'a', (size_t)lengths[i]);
        len = snprintf(request, sizeof request,
                       "GET /livez%s HTTP/1.1\r\nHost: a\r\n\r\n", path);
        daemon_start(&daemon, NULL);
        grown = -resident_bytes(&daemon);
        for (int n = 0; n < KEPT; n++) {
            fds[n] = daemon_connect(&daemon);
            assert_true(daemon_send(fds[n], request, (size_t)len));
            assert_int_equal(daemon_read_one(fds[n], answer, sizeof answer),
                             lengths[i] == 0 ? 200 : 404);
        }
        before = resident_bytes(&daemon);
        grown += before;
        print_message("%.1f KiB each after a path of %d\n",
                      (double)grown / KEPT / (double)kib, lengths[i] + 6);
        assert_true(grown <= KEPT * KEPT_KIB * kib);
        for (int n = 0; n < KEPT; n++) /* the next one stops before its end */
            assert_true(daemon_send(fds[n], request, (size_t)len - 2));
        assert_true(daemon_metric(&daemon, "attnd_connections") >= KEPT);
        grown += resident_bytes(&daemon) - before;
        print_message("%.1f KiB each amid the next request\n",
                      (double)grown / KEPT / (double)kib);
        assert_true(grown <= KEPT * CONNECTION_KIB * kib);
        for (int n = 0; n < KEPT; n++)
            close(fds[n]);
        assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
    }
}

static void post_and_read(int fd, const char *body, size_t len)
{
    static char answer[8 << 20];
    char head[256];

    snprintf(head, sizeof head,
             "POST /attention HTTP/1.1\r\nHost: a\r\n"
             "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
             len);
    assert_true(daemon_send(fd, head, strlen(head)));
    assert_true(daemon_send(fd, body, len));
    assert_int_equal(daemon_read_one(fd, answer, sizeof answer), 200);
}

/* Of all its threads, by the kernel's word: the tenth of the line, the second
 * being "(attnd)". */
static int64_t page_faults(const struct daemon *daemon)
{
    char path[64];
    long long value = -1;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)daemon->pid);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %lld",
                            &value), 1);
    fclose(file);
    return value;
}

/* A body of 0.9 MB, as many tensors, 3 MB of answer: over 1000 pages, if they
 * were fresh each time. */
static void large_requests_one_after_another_need_no_fresh_pages(void **state)
{
    enum { WARM = 20, MANY = 100 };
    struct daemon daemon;
    int64_t before, faults;
    size_t len;
    char *body;
    int fd;

    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* memory that was freed is kept from use for a while */
#endif
    body = body_of(512, 256, &len);
    daemon_start(&daemon, (const char *const[]){ "--workers", "1", NULL });
    fd = daemon_connect(&daemon);
    for (int i = 0; i < WARM; i++)
        post_and_read(fd, body, len);
    before = page_faults(&daemon);
    for (int i = 0; i < MANY; i++)
        post_and_read(fd, body, len);
    faults = page_faults(&daemon) - before;
    print_message("%lld page faults in %d requests\n", (long long)faults, MANY);
    assert_true(faults < 20 * MANY); /* the heap may have been trimmed once */
    close(fd);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
    free(body);
}

/* 12.4 MiB of weights: within the budget where the reply is made, not also where
 * a copy of them would be. */
static void what_a_binary_reply_holds_is_held_once(void **state)
{
    struct daemon daemon;
    struct reply reply;
    size_t len;
    char *body = body_of(1800, 1, &len);

    (void)state;
    daemon_start(&daemon, (const char *const[]){
                     "--workers", "1", "--memory-bytes", "24MiB", NULL });
    client_send(daemon.port, "/attention", "application/json",
                "application/x-safetensors", body, len, &reply);
    if (reply.status != 200)
        fail_msg("status %ld: %.300s", reply.status, reply.body);
    assert_true(reply.len > 1800 * 1800 * sizeof(float));
    free(reply.body);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
    free(body);
}

/* Less than what the C library would keep by itself. */
static void memory_that_was_freed_goes_back_within_seconds(void **state)
{
    enum { BODIES = 5, BODY_BYTES = 10 << 20, WAIT_MS = 20000 };
    static char bytes[BODY_BYTES];
    struct daemon daemon;
    int fds[BODIES];
    int64_t base;

    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* memory that was freed is kept from use for a while */
#endif
    memset(bytes, ' ', sizeof bytes);
    daemon_start(&daemon, NULL);
    base = resident_bytes(&daemon);
    for (int i = 0; i < BODIES; i++) {
        static const char head[] =
            "POST /attention HTTP/1.1\r\nHost: a\r\n"
            "Content-Type: application/json\r\nContent-Length: 10485761\r\n\r\n";

        fds[i] = daemon_connect(&daemon);
        assert_true(daemon_send(fds[i], head, sizeof head - 1));
        assert_true(daemon_send(fds[i], bytes, sizeof bytes));
    }
    while (resident_bytes(&daemon) < base + (BODIES - 1) * BODY_BYTES)
        poll(NULL, 0, 10);
    for (int i = 0; i < BODIES; i++)
        close(fds[i]);
    for (int waited = 0; waited < WAIT_MS &&
         resident_bytes(&daemon) > base + BODY_BYTES; waited += 50)
        poll(NULL, 0, 50);
    assert_true(resident_bytes(&daemon) <= base + BODY_BYTES);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_storm_of_middle_sized_bodies_stays_within_the_formula),
        cmocka_unit_test(many_slow_clients_stay_within_the_formula),
        cmocka_unit_test(a_connection_that_is_kept_takes_its_share_and_no_more),
        cmocka_unit_test(large_requests_one_after_another_need_no_fresh_pages),
        cmocka_unit_test(what_a_binary_reply_holds_is_held_once),
        cmocka_unit_test(memory_that_was_freed_goes_back_within_seconds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
