/* The rows of resources and life: starting, stopping, and running out of
 * things. What takes minutes is in tests/load: overload, soak, crowd. */
#include "tests/e2e/daemon.h"
#include "tests/faults/post.h"
#include "tests/faults/raw.h"
#include "tests/faults/witness.h"
#include "tests/load/options.h"
#include "tests/load/run.h"
#include "tests/load/watch.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define HOST "Host: a\r\n"
#define GET(path) "GET " path " HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n"

/* A sanitized process starts slowly, and sleeps at its end; any stalls on a busy
 * machine. What goes wrong takes the grace of 10 s, or for ever. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWNESS = 10 };
#else
enum { SLOWNESS = 3 };
#endif

static const int64_t MS = 1000000;

static char said[4096];

static int64_t since_ms(int64_t start_ns)
{
    return (raw_now_ns() - start_ns) / MS;
}

/* A request that keeps one worker busy: with 3000 rows for some tenths of a
 * second, and for longer by the square of them. */
static char *slow_post(int rows, size_t *len)
{
    char *body = post_body(rows, 8, "\"need_weights\": false, "
                                    "\"precision\": \"float64\", ");
    char *text = post_text("Connection: close\r\n", body, strlen(body), len);

    free(body);
    return text;
}

static int send_all(uint16_t port, const char *text, size_t len)
{
    const struct timeval patience = { .tv_sec = 30 };
    int fd = raw_connect(port);

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(send(fd, text, len, MSG_NOSIGNAL), len);
    return fd;
}

/* Reads to the end and closes; the status. */
static int status_of(int fd)
{
    static char answer[1 << 20];
    ssize_t len = daemon_read_all(fd, answer, sizeof answer);

    close(fd);
    return len < 12 ? 0 : (int)strtol(answer + 9, NULL, 10);
}

/* ---- stopping ---- */

static void sigterm_when_idle_ends_it_with_0(void **state)
{
    struct daemon daemon;
    struct raw_answer answer;
    int64_t start;
    int idle[5];

    (void)state;
    daemon_start(&daemon, NULL);
    for (int i = 0; i < 5; i++)
        idle[i] = raw_connect(daemon.port);
    raw_say(daemon.port, GET("/readyz"), &answer);
    assert_int_equal(raw_status(&answer), 200);
    raw_free(&answer);
    start = raw_now_ns();
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
    assert_true(since_ms(start) < 2000 * SLOWNESS);
    for (int i = 0; i < 5; i++)
        close(idle[i]);
}

static void *stop_soon(void *pid)
{
    poll(NULL, 0, 400);
    kill(*(const pid_t *)pid, SIGTERM);
    return NULL;
}

/* Connections that are never idle: each request that was sent is answered, and
 * only then nobody listens any more. */
static void sigterm_under_load_leaves_no_request_unanswered(void **state)
{
    char url[64], why[256];
    char *words[] = { "load", "--connections", "16", "--duration", "2",
                      "--attention", "64x32x4", url, NULL };
    uint64_t digest[OPTIONS_BODIES] = { 0 };
    static struct options options;
    struct daemon daemon;
    struct result *result;
    pthread_t stopper;

    (void)state;
    daemon_start(&daemon, NULL);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/attention", daemon.port);
    assert_true(options_read(&options, 8, words, why, sizeof why));
    assert_int_equal(pthread_create(&stopper, NULL, stop_soon, &daemon.pid), 0);
    result = calloc(1, sizeof *result);
    assert_non_null(result);
    assert_true(run_load(&options, 0, 16, digest, result));
    pthread_join(stopper, NULL);
    assert_int_equal(daemon_wait(&daemon), 0);
    assert_non_null(result_find(result, 200));
    assert_true(result->failed[FAILED_CONNECT] > 0);
    assert_int_equal(result->failed[FAILED_CLOSED], 0);
    assert_int_equal(result->failed[FAILED_MALFORMED], 0);
    assert_int_equal(result->failed[FAILED_TIMEOUT], 0);
    for (int i = 0; i < result->outcomes; i++)
        assert_true(result->outcome[i].status == 200 ||
                    result->outcome[i].status == 503);
    options_free(&options);
    free(result);
}

static void a_second_sigterm_ends_it_now(void **state)
{
    size_t len;
    char *slow = slow_post(12000, &len);
    struct daemon daemon;
    int fds[8];
    int64_t start;

    (void)state;
    daemon_start(&daemon, (const char *const[]){ "--workers", "1", NULL });
    for (int i = 0; i < 8; i++)
        fds[i] = send_all(daemon.port, slow, len);
    while (daemon_metric(&daemon, "attnd_queue_jobs") < 5)
        poll(NULL, 0, 5);
    kill(daemon.pid, SIGTERM);
    assert_true(daemon_logs(&daemon, "\"draining\""));
    start = raw_now_ns();
    assert_int_not_equal(daemon_stop(&daemon, SIGTERM), 0);
    assert_true(since_ms(start) < 2000 * SLOWNESS);
    for (int i = 0; i < 8; i++)
        close(fds[i]);
    free(slow);
}

/* Weights of 1500 x 1500 in text: far more than sockets hold. */
static void sigterm_waits_for_slow_readers_no_longer_than_the_grace(
    void **state)
{
    char *body = post_body(1500, 2, "");
    size_t len;
    char *text = post_text("", body, strlen(body), &len);
    struct daemon daemon;
    int fds[4], small = 4096;
    int64_t start;

    (void)state;
    daemon_start(&daemon, (const char *const[]){ "--drain-grace-ms", "800",
                                                 NULL });
    for (int i = 0; i < 4; i++) {
        char first;

        fds[i] = send_all(daemon.port, text, len);
        setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        assert_int_equal(recv(fds[i], &first, 1, 0), 1);
    }
    start = raw_now_ns();
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
    assert_in_range(since_ms(start), 0, 2000 * SLOWNESS);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    free(text);
    free(body);
}

/* A daemon that no function of daemon.h would start: `prepare` runs in the
 * child. Its log goes nowhere unless that sends it somewhere. */
static void spawn(struct daemon *daemon, void (*prepare)(void),
                  const char *const *options)
{
    char address[32], path[512];
    const char *argv[16] = { "attnd", "--listen", address }, *build;
    struct sockaddr_in any = { .sin_family = AF_INET };
    socklen_t size = sizeof any;
    int fd = socket(AF_INET, SOCK_STREAM, 0), argc = 3;

    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_return_code(bind(fd, (struct sockaddr *)&any, size), errno);
    getsockname(fd, (struct sockaddr *)&any, &size);
    close(fd); /* free, and nobody else's for a moment */
    *daemon = (struct daemon){ .port = ntohs(any.sin_port), .log = -1 };
    snprintf(address, sizeof address, "127.0.0.1:%d", daemon->port);
    build = getenv("BUILD");
    snprintf(path, sizeof path, "%s/attnd", build == NULL ? "build" : build);
    while (options != NULL && *options != NULL)
        argv[argc++] = *options++;
    daemon->pid = fork();
    assert_true(daemon->pid >= 0);
    if (daemon->pid > 0)
        return;
    prepare();
    execv(path, (char **)(uintptr_t)argv);
    _exit(127);
}

static void wait_ready(const struct daemon *daemon)
{
    int fd = -1;

    for (int n = 0; n < 400 && fd < 0; n++) {
        poll(NULL, 0, 50);
        fd = daemon_connect(daemon);
    }
    assert_true(fd >= 0);
    close(fd);
    for (int n = 0; n < 400; n++) {
        struct raw_answer answer;
        int status;

        raw_say(daemon->port, GET("/readyz"), &answer);
        status = raw_status(&answer);
        raw_free(&answer);
        if (status == 200)
            return;
        poll(NULL, 0, 50);
    }
    fail_msg("never ready");
}

static void say_nothing(void)
{
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
}

/* Whenever it comes, the end is in order. */
static void sigterm_during_start_up_ends_it_with_0(void **state)
{
    (void)state;
    for (int delay_ms = 1; delay_ms < 400; delay_ms += 1 + delay_ms / 3) {
        struct daemon daemon;
        int64_t start;
        int status;

        spawn(&daemon, say_nothing, NULL);
        poll(NULL, 0, delay_ms);
        start = raw_now_ns();
        status = daemon_stop(&daemon, SIGTERM);
        /* Before main the kernel's default holds. */
        if (status != 0 && status != 128 + SIGTERM)
            fail_msg("after %d ms: status %d", delay_ms, status);
        assert_true(since_ms(start) < 2000 * SLOWNESS);
    }
}

/* ---- starting ---- */

enum { TRIES = 3 }; /* a machine that others use may be slow once */

/* Exits within a second, with one line that has these words. */
static void refuses_to_start(const char *const *options, int want,
                             const char *const *words)
{
    const char *end;
    int64_t took_ms = INT64_MAX;

    for (int n = 0; n < TRIES && took_ms >= 1000 * SLOWNESS; n++) {
        int64_t start = raw_now_ns();
        int status = daemon_run(options, said, sizeof said);

        took_ms = since_ms(start);
        if (status != want)
            fail_msg("status %d, want %d: %s", status, want, said);
    }
    if (took_ms >= 1000 * SLOWNESS)
        fail_msg("%lld ms: %s", (long long)took_ms, said);
    end = strchr(said, '\n');
    if (end == NULL || end[1] != '\0' || strlen(said) > 1000)
        fail_msg("not one line: %s", said);
    for (const char *at = said; at < end; at++)
        assert_true(isprint((unsigned char)*at) || (*at & 0x80) != 0);
    for (; *words != NULL; words++)
        if (strstr(said, *words) == NULL)
            fail_msg("no %s in: %s", *words, said);
}

struct option_row {
    const char *name, *kind;
};

static const struct option_row option_rows[] = {
#define OPTION(field, kind, initial, min, max, unit, help) { #field, #kind },
#include "config/options.def"
};

enum { OPTION_ROWS = sizeof option_rows / sizeof *option_rows };

static void write_flag(const char *name, char *out, size_t size)
{
    snprintf(out, size, "--%s", name);
    for (; *out != '\0'; out++)
        *out = *out == '_' ? '-' : *out;
}

static void write_variable(const char *name, char *out, size_t size)
{
    snprintf(out, size, "ATTND_%s", name);
    for (; *out != '\0'; out++)
        *out = (char)toupper((unsigned char)*out);
}

static void check_bad_values(const struct option_row *row)
{
    static const char *const values[] = { "", "x y", "-1", "1e3", "0x10",
                                          "99999999999999999999", "1;2",
                                          "\xff\x1b[31m" };

    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char flag[64];
        const char *options[] = { flag, values[i], NULL };

        write_flag(row->name, flag, sizeof flag);
        refuses_to_start(options, 2, (const char *const[]){ flag, NULL });
    }
}

static void each_option_refuses_a_bad_value_by_name(void **state)
{
    (void)state;
    for (int i = 0; i < OPTION_ROWS; i++)
        if (strcmp(option_rows[i].kind, "TEXT") != 0)
            check_bad_values(&option_rows[i]);
}

/* No variable outlives a test that failed in the middle. */
static int forget_variables(void **state)
{
    (void)state;
    for (int i = 0; i < OPTION_ROWS; i++) {
        char name[64];

        write_variable(option_rows[i].name, name, sizeof name);
        unsetenv(name);
    }
    return 0;
}

static void each_variable_refuses_a_bad_value_by_name(void **state)
{
    (void)state;
    for (int i = 0; i < OPTION_ROWS; i++) {
        char name[64];

        if (strcmp(option_rows[i].kind, "TEXT") == 0)
            continue;
        write_variable(option_rows[i].name, name, sizeof name);
        setenv(name, "x y", 1);
        refuses_to_start(NULL, 2, (const char *const[]){ name, "x y", NULL });
        unsetenv(name);
    }
}

static void an_unknown_option_is_named(void **state)
{
    static const char *const rows[][3] = {
        { "--no-such-option", "1", "no-such-option" },
        { "--worker", "1", "worker" },   { "--", NULL, "--" },
        { "-w", "1", "-w" },             { "workers", "1", "workers" },
        { "--workers", NULL, "workers" }, { "---workers", "1", "---workers" },
        { "--workers=1=2", NULL, "1=2" }, { "--\x1b[31m", "1", "--" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *options[] = { rows[i][0], rows[i][1], NULL };

        refuses_to_start(options, 2, (const char *const[]){ rows[i][2], NULL });
    }
}

static void a_bad_address_is_named(void **state)
{
    static const struct {
        const char *address;
        int status;
    } rows[] = {
        { "nonsense", 2 },      { "127.0.0.1", 2 },
        { "127.0.0.1:", 2 },    { "127.0.0.1:65536", 2 },
        { "127.0.0.1:-1", 2 },  { "127.0.0.1:80x", 2 },
        { ":8080", 2 },         { "[::1:80", 2 },
        { "::1:80", 2 },        { "[]:80", 2 },
        { "http://127.0.0.1:80", 2 }, { "127.0.0.1:80:80", 2 },
        { "192.0.2.1:8080", 1 }, { "[2001:db8::1]:8080", 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *options[] = { "--listen", rows[i].address, NULL };

        refuses_to_start(options, rows[i].status,
                         (const char *const[]){ rows[i].address, NULL });
    }
}

static void a_port_in_use_is_named(void **state)
{
    struct daemon daemon;
    char address[32];
    const char *options[] = { "--listen", address, NULL };
    struct witness witness;

    (void)state;
    daemon_start(&daemon, NULL);
    witness_begin(&witness, &daemon);
    snprintf(address, sizeof address, "127.0.0.1:%d", daemon.port);
    refuses_to_start(options, 1, (const char *const[]){ address, NULL });
    witness_end(&witness, WITNESS_SLACK_BYTES, 0);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

/* The file's name and the line, as editors read them. */
static void a_malformed_configuration_file_is_named_with_its_line(void **state)
{
    static const struct {
        const char *text;
        size_t len;
        int line;
        const char *named;
    } rows[] = {
#define TEXT(text) text, sizeof text - 1
        { TEXT("workers = 1\nnonsense\n"), 2, "nonsense" },
        { TEXT("\n\n# comment\nwrokers = 1\n"), 4, "wrokers" },
        { TEXT("workers = 1\nworkers = 2\n"), 2, "workers" },
        { TEXT("workers = many"), 1, "many" },
        { TEXT("workers =\n"), 1, "workers" },
        { TEXT("= 1\n"), 1, "= 1" },
        { TEXT("listen = nowhere\n"), 1, "listen" },
        { TEXT("workers = 1\0\n"), 1, "workers" },
        { TEXT("workers = 1\n\x7f" "ELF\x02\x01\x01\n"), 2, "ELF" },
        { TEXT("[server]\nworkers = 1\n"), 1, "[server]" },
        { TEXT("workers: 1\n"), 1, "workers: 1" },
        { TEXT("{\"workers\": 1}\n"), 1, "workers" },
        { TEXT("workers = 1 = 2\n"), 1, "1 = 2" },
        { TEXT("config = other.conf\n"), 1, "config" },
#undef TEXT
    };
    char name[] = "/tmp/attnd_conf_XXXXXX";
    int fd = mkstemp(name);

    (void)state;
    assert_true(fd >= 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *options[] = { "--config", name, NULL };
        char place[64];

        assert_return_code(ftruncate(fd, 0), errno);
        assert_int_equal(pwrite(fd, rows[i].text, rows[i].len, 0), rows[i].len);
        snprintf(place, sizeof place, "%s:%d", name, rows[i].line);
        refuses_to_start(options, 2,
                         (const char *const[]){ place, rows[i].named, NULL });
    }
    close(fd);
    unlink(name);
}

static void a_configuration_file_that_cannot_be_read_is_named(void **state)
{
    static const char *const rows[] = { "/nonexistent/attnd.conf", "/tmp",
                                        "/dev/null/x", "" };
    char name[] = "/tmp/attnd_conf_XXXXXX";
    int fd = mkstemp(name);

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *options[] = { "--config", rows[i], NULL };

        refuses_to_start(options, 2,
                         (const char *const[]){ "config", rows[i], NULL });
    }
    assert_true(fd >= 0);
    fchmod(fd, 0);
    if (access(name, R_OK) != 0) /* root may read anything */
        refuses_to_start((const char *const[]){ "--config", name, NULL }, 2,
                         (const char *const[]){ name, NULL });
    close(fd);
    unlink(name);
}

/* ---- running out of things ---- */

static void close_standard_error(void)
{
    close(STDERR_FILENO);
}

static void close_standard_files(void)
{
    for (int fd = 0; fd < 3; fd++)
        close(fd);
}

static void log_to_a_full_disk(void)
{
    dup2(open("/dev/full", O_WRONLY), STDERR_FILENO);
}

static void log_to_nobody(void) /* a pipe whose reader is gone */
{
    int ends[2];

    if (pipe(ends) == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
    }
}

static int unread_pipe[2];

static void log_to_who_does_not_read(void)
{
    dup2(unread_pipe[1], STDERR_FILENO);
}

/* More lines than a pipe holds; each request is answered, and soon. */
static void it_serves_on_when_its_log_goes_nowhere(void **state)
{
    static void (*const rows[])(void) = {
        close_standard_error, close_standard_files, log_to_a_full_disk,
        log_to_nobody, log_to_who_does_not_read,
    };
    enum { REQUESTS = 2000 };
    static const char *const json[] = { "--log-format", "json", NULL };

    (void)state;
    assert_return_code(pipe(unread_pipe), errno);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct daemon daemon;
        int64_t start;
        int fd;

        spawn(&daemon, rows[i], json);
        wait_ready(&daemon);
        fd = raw_connect(daemon.port);
        start = raw_now_ns();
        for (int n = 0; n < REQUESTS; n++) {
            static const char text[] = "GET /livez HTTP/1.1\r\n" HOST "\r\n";

            assert_int_equal(send(fd, text, sizeof text - 1, MSG_NOSIGNAL),
                             sizeof text - 1);
            assert_int_equal(daemon_read_one(fd, said, sizeof said), 200);
        }
        assert_true(since_ms(start) < 5000 * SLOWNESS);
        close(fd);
        assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
    }
    close(unread_pipe[0]);
    close(unread_pipe[1]);
}

/* Room for ten more files than it has open, and fifty clients. */
static void out_of_files_it_waits_without_spinning_and_recovers(void **state)
{
    enum { CLIENTS = 50, ROOM = 10, LOOK_MS = 1000 };
    struct rlimit limit;
    struct daemon daemon;
    struct witness witness;
    struct raw_answer answer;
    int fds[CLIENTS];
    int64_t cpu;

    (void)state;
    daemon_start(&daemon, NULL);
    witness_begin(&witness, &daemon);
    limit.rlim_cur = limit.rlim_max = (rlim_t)(witness.files + ROOM);
    assert_return_code(prlimit(daemon.pid, RLIMIT_NOFILE, &limit, NULL), errno);
    for (int i = 0; i < CLIENTS; i++)
        fds[i] = raw_connect(daemon.port);
    poll(NULL, 0, 200);
    cpu = watch_cpu_ms(daemon.pid);
    poll(NULL, 0, LOOK_MS);
    cpu = watch_cpu_ms(daemon.pid) - cpu;
    if (cpu > LOOK_MS / 4)
        fail_msg("%lld ms of CPU in %d ms", (long long)cpu, LOOK_MS);
    for (int i = 0; i < CLIENTS; i++)
        close(fds[i]);
    raw_say(daemon.port, GET("/livez"), &answer);
    assert_int_equal(raw_status(&answer), 200);
    assert_true(answer.end_ns < 3000 * MS * SLOWNESS);
    raw_free(&answer);
    witness_end(&witness, WITNESS_SLACK_BYTES, 1);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

/* One worker and one place, both taken; whoever comes then is told at once. The
 * fastest counts: a daemon that waits is never fast, a busy machine often slow. */
static void a_full_queue_refuses_within_10_ms_and_serves_what_it_took(
    void **state)
{
    enum { REFUSED = 31 };
    static const char later[] =
        POST_JSON "Connection: close\r\nContent-Length: 19\r\n\r\n" POST_SMALL;
    size_t len;
    char *slow = slow_post(3000, &len);
    struct daemon daemon;
    struct witness witness;
    int64_t least_ns = INT64_MAX;
    int first, second, refused = 0;

    (void)state;
    daemon_start(&daemon, (const char *const[]){
        "--workers", "1", "--queue-length", "1", NULL });
    witness_begin(&witness, &daemon);
    first = send_all(daemon.port, slow, len);
    while (daemon_metric(&daemon, "attnd_workers_busy") < 1)
        poll(NULL, 0, 1);
    second = send_all(daemon.port, slow, len);
    while (daemon_metric(&daemon, "attnd_queue_jobs") < 1)
        poll(NULL, 0, 1);
    while (refused < REFUSED) {
        struct raw_answer answer;
        char after[16];

        raw_say(daemon.port, later, &answer);
        if (raw_status(&answer) == 200) /* the first is done already */
            break;
        assert_int_equal(raw_status(&answer), 503);
        witness_problem(&answer.reply[0], "overloaded");
        assert_non_null(raw_header(&answer.reply[0], "Retry-After", after,
                                   sizeof after));
        assert_true(strtol(after, NULL, 10) >= 1);
        refused++;
        if (answer.end_ns < least_ns)
            least_ns = answer.end_ns;
        raw_free(&answer);
    }
    assert_true(refused >= 5);
    assert_true(least_ns < 10 * MS);
    assert_int_equal(status_of(first), 200);
    assert_int_equal(status_of(second), 200);
    free(slow);
    witness_end(&witness, WITNESS_HEAP_BYTES, refused);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

/* Eight bodies of 1 MiB fit, 64 clients announce one and send half of it. */
static void bodies_that_do_not_fit_are_refused_before_they_are_read(
    void **state)
{
    enum { CLIENTS = 64, FIT = 8, HALF = 1 << 19 };
    static const char head[] = POST_JSON "Content-Length: 1048576\r\n\r\n";
    static char half[HALF];
    struct daemon daemon;
    struct witness witness;
    int fds[CLIENTS], refused = 0;

    (void)state;
    memset(half, ' ', sizeof half);
    daemon_start(&daemon, (const char *const[]){ "--memory-bytes", "8MiB",
                                                 NULL });
    witness_begin(&witness, &daemon);
    for (int i = 0; i < CLIENTS; i++)
        fds[i] = send_all(daemon.port, head, sizeof head - 1);
    poll(NULL, 0, 200);
    for (int i = 0; i < CLIENTS; i++) {
        ssize_t len = recv(fds[i], said, sizeof said - 1, MSG_DONTWAIT);

        if (len > 0) {
            said[len] = '\0';
            assert_memory_equal(said, "HTTP/1.1 503 ", 13);
            assert_non_null(strcasestr(said, "\r\nRetry-After: "));
            refused++;
        }
        send(fds[i], half, sizeof half, MSG_NOSIGNAL);
    }
    assert_int_equal(refused, CLIENTS - FIT);
    assert_true(daemon_metric(&daemon, "attnd_rejected_total"
                                       "{reason=\"memory\"}") == refused);
    for (int i = 0; i < CLIENTS; i++)
        close(fds[i]);
    witness_end(&witness, (8 << 20) + WITNESS_SLACK_BYTES, CLIENTS);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

/* Stopped for longer than its header deadline, with requests on the way. */
static void a_stop_and_a_continuation_lose_nothing(void **state)
{
    enum { CLIENTS = 10 };
    static const char text[] =
        POST_JSON "Connection: close\r\nContent-Length: 19\r\n\r\n" POST_SMALL;
    struct daemon daemon;
    struct witness witness;
    int fds[CLIENTS];

    (void)state;
    daemon_start(&daemon, (const char *const[]){
        "--request-deadline-ms", "60000", NULL });
    witness_begin(&witness, &daemon);
    kill(daemon.pid, SIGSTOP);
    for (int i = 0; i < CLIENTS; i++)
        fds[i] = send_all(daemon.port, text, sizeof text - 1);
    poll(NULL, 0, 700);
    kill(daemon.pid, SIGCONT);
    for (int i = 0; i < CLIENTS; i++)
        assert_int_equal(status_of(fds[i]), 200);
    witness_end(&witness, WITNESS_SLACK_BYTES, CLIENTS);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sigterm_when_idle_ends_it_with_0),
        cmocka_unit_test(sigterm_under_load_leaves_no_request_unanswered),
        cmocka_unit_test(a_second_sigterm_ends_it_now),
        cmocka_unit_test(
            sigterm_waits_for_slow_readers_no_longer_than_the_grace),
        cmocka_unit_test(sigterm_during_start_up_ends_it_with_0),
        cmocka_unit_test(each_option_refuses_a_bad_value_by_name),
        cmocka_unit_test_teardown(each_variable_refuses_a_bad_value_by_name,
                                  forget_variables),
        cmocka_unit_test(an_unknown_option_is_named),
        cmocka_unit_test(a_bad_address_is_named),
        cmocka_unit_test(a_port_in_use_is_named),
        cmocka_unit_test(a_malformed_configuration_file_is_named_with_its_line),
        cmocka_unit_test(a_configuration_file_that_cannot_be_read_is_named),
        cmocka_unit_test(it_serves_on_when_its_log_goes_nowhere),
        cmocka_unit_test(out_of_files_it_waits_without_spinning_and_recovers),
        cmocka_unit_test(
            a_full_queue_refuses_within_10_ms_and_serves_what_it_took),
        cmocka_unit_test(
            bodies_that_do_not_fit_are_refused_before_they_are_read),
        cmocka_unit_test(a_stop_and_a_continuation_lose_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
