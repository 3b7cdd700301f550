/* The n-th call for memory, a file, a thread or a lock fails, once and from
 * then on: while attnd starts, while it reads its models again, and in one
 * request of each kind. A clock that jumps, a worker that hangs.
 * BREAK_EVERY=1 tries every n of the start, which takes minutes; without it a
 * sample of them. */
#include "tests/e2e/daemon.h"
#include "tests/faults/broken/broken.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MODEL "tests/vectors/models/tiny-bert"
#define FOLDER "tests/vectors/models"

enum { ANSWER_BYTES = 1 << 20, PATIENCE_MS = 20000, SETTLE_MS = 20 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { BREAKS_MEMORY = 0 }; /* of the libraries: see broken.c */
#else
enum { BREAKS_MEMORY = 1 };
#endif

static struct broken *broken;
static char page_path[] = "/tmp/attnd_broken_XXXXXX";
static char folder[] = "/tmp/attnd_models_XXXXXX";
static char answer[ANSWER_BYTES], wanted[ANSWER_BYTES];

/* ---- what is asked ---- */

#define POST(body)                                                             \
    BINARY("application/json", body)
#define BINARY(type, body)                                                     \
    { "POST", "/attention", type, body, sizeof body - 1 }
#define GET(path)                                                              \
    { "GET", path, NULL, "", 0 }

static const struct request {
    const char *method, *path, *type, *body;
    size_t len;
} requests[] = {
    POST("{\"query\": [[1, 2], [3, 4]]}"),
    POST("{\"query\": {\"shape\": [1, 2, 2], \"data\": [1, 2, 3, 4]}, "
         "\"num_heads\": 2, \"average_attn_weights\": false}"),
    POST("{\"query\": {\"shape\": [1, 2], \"dtype\": \"F32\", "
         "\"base64\": \"AACAPwAAAEA=\"}, \"precision\": \"float64\"}"),
    POST("{\"query\": [[[1, 2], [3, 4]]], \"key_padding_mask\": [[false, true]], "
         "\"attn_mask\": [[0, \"-Infinity\"], [0, 0]], \"is_causal\": true}"),
    POST("{\"query\": [[1, 2]], \"state_dict\": {\"in_proj_weight\": "
         "[[1,0],[0,1],[1,0],[0,1],[1,0],[0,1]], \"out_proj.weight\": "
         "[[1,2],[3,4]]}, \"return\": [\"q\", \"scores\", \"lse\"]}"),
    POST("{\"query\": [[1, 2], [3, 4]], \"weights_top_k\": 1, "
         "\"dropout_p\": 0.5, \"compare_to\": {\"output\": [[1, 2], [3, 4]]}}"),
    POST("{\"query\": [[1, 2], [3, 4]], \"precision\": \"bfloat16\", "
         "\"response_format\": \"base64\"}"),
    POST("{\"query\": [[1, 2]], \"no_such_field\": 1}"),
    POST("{\"query\": [[1, 2]"),
    BINARY("application/x-npy",
     "\x93NUMPY\x01\x00\x3c\x00"
     "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }\n"
     "\x00\x00\x80\x3f\x00\x00\x00\x40"),
    BINARY("application/x-safetensors",
     "\x3c\x00\x00\x00\x00\x00\x00\x00"
     "{\"query\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]}}"
     "\x00\x00\x80\x3f\x00\x00\x00\x40"),
    BINARY("application/json\r\nContent-Encoding: gzip",
     "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\x2a\x2c\x4d\x2d\xaa"
     "\x54\xb2\x52\x88\x8e\x36\xd4\x51\x30\x8a\xd5\x51\x88\x36\xd6\x51\x30"
     "\x89\x8d\xad\x05\x00\x76\x7e\xc4\xcc\x1b\x00\x00\x00"),
    BINARY("application/json\r\nContent-Encoding: zstd",
     "\x28\xb5\x2f\xfd\x00\x58\xd9\x00\x00\x7b\x22\x71\x75\x65\x72\x79\x22"
     "\x3a\x20\x5b\x5b\x31\x2c\x20\x32\x5d\x2c\x20\x5b\x33\x2c\x20\x34\x5d"
     "\x5d\x7d"),
    GET("/livez"), GET("/readyz"), GET("/metrics"), GET("/version"),
    GET("/models"), GET("/models/tiny-bert"), GET("/openapi.json"),
    GET("/nowhere"),
};

enum { REQUESTS = sizeof requests / sizeof *requests };

/* The status of the answer; 0 for none. */
static int exchange(const struct daemon *daemon, const struct request *request)
{
    char head[512];
    int fd = daemon_connect(daemon), status = 0;
    int len = snprintf(head, sizeof head,
                       "%s %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                       "X-Request-ID: same\r\n%s%s%sContent-Length: %zu\r\n\r\n",
                       request->method, request->path,
                       request->type == NULL ? "" : "Content-Type: ",
                       request->type == NULL ? "" : request->type,
                       request->type == NULL ? "" : "\r\n", request->len);

    assert_true(fd >= 0 && len > 0 && (size_t)len < sizeof head);
    answer[0] = '\0';
    if (daemon_send(fd, head, (size_t)len))
        daemon_send(fd, request->body, request->len);
    assert_true(daemon_read_all(fd, answer, sizeof answer) >= 0);
    close(fd);
    sscanf(answer, "HTTP/1.1 %d", &status);
    return status;
}

static const char *body_of(const char *text)
{
    const char *end = strstr(text, "\r\n\r\n");

    return end == NULL ? "" : end + 4;
}

/* ---- what is broken ---- */

static void break_at(int64_t call, bool on)
{
    atomic_store(&broken->fails_on, on);
    atomic_store(&broken->failed, 0);
    broken->first[0] = '\0';
    atomic_store(&broken->calls, 0);
    atomic_store(&broken->fails_at, call);
}

/* True when the call that was to fail has come and failed. */
static bool mend(void)
{
    atomic_store(&broken->fails_at, 0);
    return atomic_load(&broken->failed) > 0;
}

static int count_files(const struct daemon *daemon)
{
    char path[64];
    int files = 0;

    for (int fd = 0; fd < 256; fd++) {
        struct stat st;

        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)daemon->pid, fd);
        files += lstat(path, &st) == 0;
    }
    return files;
}

static bool has_settled(const struct daemon *daemon, int files)
{
    for (int waited = 0; waited < PATIENCE_MS; waited += SETTLE_MS) {
        if (count_files(daemon) <= files)
            return true;
        poll(NULL, 0, SETTLE_MS);
    }
    return false;
}

/* ---- requests ---- */

/* Refused for want of something, cut off before it could be, or none the
 * worse for it. Text that changes by itself is not compared. */
static void judge(const struct request *request, int status, int wanted_status,
                  int64_t call, bool on)
{
    bool changes = strcmp(request->path, "/metrics") == 0;
    bool good = status == 503 || status == 0 ||
                (status == wanted_status &&
                 (changes || strcmp(body_of(answer), body_of(wanted)) == 0));

    if (status == 503 && strstr(answer, "overloaded") == NULL)
        good = false;
    if (!good)
        print_error("%s %s %.60s: call %ld (%s) failed%s: %d instead of %d\n%s\n",
                    request->method, request->path, request->body, (long)call,
                    broken->first, on ? " and all after it" : "", status,
                    wanted_status, answer);
    assert_true(good);
}

static void break_request(const struct daemon *daemon,
                          const struct request *request, bool on, int files)
{
    int wanted_status = exchange(daemon, request);

    assert_true(wanted_status != 0 && wanted_status != 503);
    memcpy(wanted, answer, sizeof wanted);
    for (int64_t call = 1;; call++) {
        int status;
        bool failed;

        break_at(call, on);
        status = exchange(daemon, request);
        failed = mend();
        judge(request, status, wanted_status, call, on);
        if (!failed)
            break;
    }
    assert_int_equal(exchange(daemon, request), wanted_status);
    assert_true(has_settled(daemon, files));
}

static void break_requests(bool on)
{
    struct daemon daemon;
    int files;

    break_at(0, false);
    daemon_start(&daemon, (const char *const[]){
        "--workers", "2", "--log-level", "info", "--models", FOLDER, NULL });
    exchange(&daemon, &requests[0]);
    files = count_files(&daemon);
    for (int i = 0; i < REQUESTS; i++)
        break_request(&daemon, &requests[i], on, files);
    assert_true(daemon_metric(&daemon, "attnd_memory_reserved_bytes") == 0);
    assert_true(daemon_metric(&daemon, "attnd_queue_jobs") == 0);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

static void one_failure_costs_one_request(void **state)
{
    (void)state;
    break_requests(false);
}

static void failures_without_end_cost_the_requests_meanwhile(void **state)
{
    (void)state;
    break_requests(true);
}

/* Until nothing has been asked for during a while. */
static void await_quiet(void)
{
    int64_t calls;

    poll(NULL, 0, 2 * SETTLE_MS);
    do {
        calls = atomic_load(&broken->calls);
        poll(NULL, 0, SETTLE_MS);
    } while (calls != atomic_load(&broken->calls));
}

/* ---- what a request asks for ---- */

/* On a connection that is kept, once everything is warm: so many calls for
 * memory, of the daemon and of libmicrohttpd. */
static int64_t count_memory(const struct daemon *daemon,
                            const struct request *request)
{
    static char small[64 * 1024];
    int64_t count = 0;
    char head[256];
    int fd = daemon_connect(daemon);
    int len = snprintf(head, sizeof head,
                       "%s %s HTTP/1.1\r\nHost: a\r\nContent-Type: %s\r\n"
                       "Content-Length: %zu\r\n\r\n", request->method,
                       request->path, request->type, request->len);

    assert_true(fd >= 0);
    for (int i = 0; i < 4; i++) {
        await_quiet();
        atomic_store(&broken->memory, 0);
        assert_true(daemon_send(fd, head, (size_t)len) &&
                    daemon_send(fd, request->body, request->len));
        assert_int_equal(daemon_read_one(fd, small, sizeof small), 200);
        await_quiet();
        count = atomic_load(&broken->memory);
    }
    close(fd);
    return count;
}

static void a_small_request_asks_for_memory_a_dozen_times_at_most(void **state)
{
    struct daemon daemon;

    (void)state;
    if (BREAKS_MEMORY == 0)
        skip();
    break_at(0, false);
    daemon_start(&daemon, (const char *const[]){ "--workers", "1", NULL });
    for (int i = 0; i < REQUESTS; i++) {
        int64_t count;

        if (strcmp(requests[i].path, "/attention") != 0 ||
            exchange(&daemon, &requests[i]) != 200)
            continue;
        count = count_memory(&daemon, &requests[i]);
        if (count < 1 || count > 12)
            fail_msg("%.60s: %ld", requests[i].body, (long)count);
    }
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

/* ---- the start ---- */

/* Every call, or the first ones and then every seventh. */
static int64_t next_call(int64_t call)
{
    return getenv("BREAK_EVERY") != NULL || call < 12 ? call + 1 : call + 7;
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static bool says_ready(const struct daemon *daemon)
{
    char *text = daemon_log(daemon);
    char *at = strstr(text, "listening on 127.0.0.1:");
    bool ready = at != NULL;

    free(text);
    return ready;
}

/* Whether the daemon that is to end has ended, or is ready: the status or -1. */
static int await_start(struct daemon *daemon, int64_t call)
{
    double begun = now_s();

    for (;;) {
        int status;

        if (says_ready(daemon))
            return -1;
        if (waitpid(daemon->pid, &status, WNOHANG) != 0)
            return WIFEXITED(status) ? WEXITSTATUS(status)
                                     : 128 + WTERMSIG(status);
        if (now_s() - begun > PATIENCE_MS / 1e3) {
            kill(daemon->pid, SIGABRT);
            print_error("start hangs when call %ld (%s) fails\n", (long)call,
                        broken->first);
            fail();
        }
        poll(NULL, 0, 2);
    }
}

static pid_t spawn(int log)
{
    char path[512];
    pid_t pid;

    snprintf(path, sizeof path, "%s/attnd", getenv("BUILD"));
    pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    dup2(log, STDERR_FILENO);
    execl(path, "attnd", "--listen", "127.0.0.1:0", "--log-format", "json",
          "--workers", "2", "--models", MODEL "/..", (char *)NULL);
    _exit(127);
}

/* One line, whatever other threads still log. */
static bool complains_once(const char *text)
{
    int lines = 0;

    for (const char *at = text; (at = strstr(at, "attnd: ")) != NULL; at++)
        lines += at == text || at[-1] == '\n';
    return lines == 1;
}

/* One line that says why, or an answer; false when no call failed. */
static bool break_start(int64_t call, bool on)
{
    struct daemon daemon = { .log = memfd_create("log", MFD_CLOEXEC) };
    int status;
    bool failed;
    char *text;

    assert_true(daemon.log >= 0);
    /* A memfd's writes by two threads may share an offset otherwise. */
    assert_int_equal(fcntl(daemon.log, F_SETFL, O_APPEND), 0);
    break_at(call, on);
    daemon.pid = spawn(daemon.log);
    status = await_start(&daemon, call);
    failed = mend();
    text = daemon_log(&daemon);
    if (status < 0) {
        daemon.port = (uint16_t)strtol(strstr(text, "127.0.0.1:") + 10, NULL, 10);
        assert_int_equal(exchange(&daemon, &requests[0]), 200);
        kill(daemon.pid, SIGTERM);
        assert_int_equal(waitpid(daemon.pid, &status, 0), daemon.pid);
        if (status != 0)
            print_error("call %ld (%s) failed, and it ended with %x\n%s\n",
                        (long)call, broken->first, status, text);
        assert_int_equal(status, 0);
    } else {
        bool told = complains_once(text);

        if (!failed || status == 0 || status > 2 || !told)
            print_error("call %ld (%s) failed: exit %d\n%s\n", (long)call,
                        broken->first, status, text);
        assert_true(failed && status > 0 && status <= 2 && told);
    }
    free(text);
    close(daemon.log);
    return failed;
}

static void a_failure_at_the_start_ends_it_with_one_line_or_does_no_harm(void **state)
{
    (void)state;
    for (int64_t call = 1; break_start(call, false);)
        call = next_call(call);
}

static void failures_without_end_at_the_start_end_it_with_one_line(void **state)
{
    (void)state;
    for (int64_t call = 1; break_start(call, true);)
        call = next_call(call);
}

/* ---- reading the models again ---- */

static void copy_model(void)
{
    char command[256];

    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "cp -r %s %s/a", MODEL, folder);
    assert_int_equal(system(command), 0);
}

static void remove_model(void)
{
    char command[256];

    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void touch_model(void)
{
    char path[256];

    snprintf(path, sizeof path, "%s/a/config.json", folder);
    assert_int_equal(utimensat(AT_FDCWD, path, NULL, 0), 0);
}

static void reload_while_broken(bool on)
{
    static const struct request list = GET("/models/a");
    struct daemon daemon;
    int files;

    copy_model();
    break_at(0, false);
    daemon_start(&daemon, (const char *const[]){ "--workers", "1", "--models",
                                                 folder, NULL });
    assert_int_equal(exchange(&daemon, &list), 200);
    files = count_files(&daemon);
    for (int64_t call = 1;; call = next_call(call)) {
        bool failed;

        touch_model();
        break_at(call, on);
        kill(daemon.pid, SIGHUP);
        await_quiet();
        failed = mend();
        assert_int_equal(exchange(&daemon, &list), 200);
        assert_true(has_settled(&daemon, files));
        if (!failed)
            break;
    }
    remove_model();
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
    memcpy(strrchr(folder, '_') + 1, "XXXXXX", 6);
}

static void a_failure_while_models_are_read_keeps_the_old_ones(void **state)
{
    (void)state;
    reload_while_broken(false);
}

static void failures_without_end_while_models_are_read_keep_the_old_ones(void **state)
{
    (void)state;
    reload_while_broken(true);
}

/* ---- a clock that jumps ---- */

#define HEAD "POST /attention HTTP/1.1\r\nHost: a\r\n"                         \
             "Content-Type: application/json\r\nX-Request-ID: same\r\n"
#define BODY "{\"query\": [[1, 2], [3, 4]]}"

/* No duration that is said is one of a jump. */
static void check_durations(const struct daemon *daemon)
{
    char *log = daemon_log(daemon);

    for (const char *at = log; (at = strstr(at, "_ms\":")) != NULL; at++) {
        double ms = strtod(at + 5, NULL);

        if (ms < 0 || ms > 60000)
            fail_msg("%.60s", at - 10);
    }
    free(log);
}

static void say(int fd, const char *text)
{
    assert_true(daemon_send(fd, text, strlen(text)));
}

/* Begun before the jump: a request whose body is on its way, a connection that
 * is kept, and headers that never end. */
static void jump(const struct daemon *daemon, int64_t to_s)
{
    int half = daemon_connect(daemon), kept = daemon_connect(daemon),
        late = daemon_connect(daemon);

    assert_true(half >= 0 && kept >= 0 && late >= 0);
    say(half, HEAD "Content-Length: 27\r\n\r\n{\"query\": ");
    say(kept, HEAD "Content-Length: 27\r\n\r\n" BODY);
    assert_int_equal(daemon_read_one(kept, answer, sizeof answer), 200);
    say(late, "GET /livez HTTP/1.1\r\nX: ");
    poll(NULL, 0, 50);
    atomic_store(&broken->jump_s, to_s);
    poll(NULL, 0, 300); /* whoever looks at clocks has looked */
    say(kept, HEAD "Content-Length: 27\r\n\r\n" BODY);
    assert_int_equal(daemon_read_one(kept, answer, sizeof answer), 200);
    assert_string_equal(body_of(answer), body_of(wanted));
    say(half, "[[1, 2], [3, 4]]}");
    assert_int_equal(daemon_read_one(half, answer, sizeof answer), 200);
    assert_string_equal(body_of(answer), body_of(wanted));
    assert_true(daemon_read_all(late, answer, sizeof answer) >= 0);
    close(half);
    close(kept);
    close(late);
}

static void a_clock_that_jumps_has_no_effect(void **state)
{
    static const int64_t day_s = 86400, jumps_s[] = { day_s, -day_s, 3650 * day_s,
                                                      -3650 * day_s, 0 };
    struct daemon daemon;

    (void)state;
    break_at(0, false);
    daemon_start(&daemon, (const char *const[]){
        "--workers", "2", "--header-timeout-ms", "2000", NULL });
    assert_int_equal(exchange(&daemon, &requests[0]), 200);
    memcpy(wanted, answer, sizeof wanted);
    for (size_t i = 0; i < sizeof jumps_s / sizeof *jumps_s; i++)
        jump(&daemon, jumps_s[i]);
    check_durations(&daemon);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

/* ---- a worker that is stuck ---- */

static void a_stuck_worker_ends_the_process_and_leaves_its_stack(void **state)
{
    static const char post[] =
        "POST /attention HTTP/1.1\r\nHost: a\r\n"
        "Content-Type: application/json\r\nContent-Length: 17\r\n\r\n"
        "{\"query\": [[1]]} ";
    static const struct request livez = GET("/livez");
    struct daemon daemon;
    int fd;

    (void)state;
    break_at(0, false);
    daemon_start(&daemon, (const char *const[]){
        "--workers", "2", "--watchdog-ms", "300", NULL });
    poll(NULL, 0, 500); /* idle workers are well */
    assert_int_equal(exchange(&daemon, &livez), 200);
    snprintf(broken->hangs_in, sizeof broken->hangs_in, "aligned_alloc");
    fd = daemon_connect(&daemon);
    assert_true(daemon_send(fd, post, sizeof post - 1));
    assert_true(daemon_logs(&daemon, "a worker has done nothing for 300 ms"));
    assert_true(daemon_logs(&daemon, "attnd(+0x"));
    assert_int_equal(daemon_wait(&daemon), 128 + SIGABRT);
    broken->hangs_in[0] = '\0';
    close(fd);
}

/* ---- */

static int share_page(void **state)
{
    const char *build = getenv("BUILD");
    char path[512];
    int fd = mkstemp(page_path);

    (void)state;
    if (fd < 0 || ftruncate(fd, sizeof *broken) != 0)
        return -1;
    broken = mmap(NULL, sizeof *broken, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                  0);
    close(fd);
    snprintf(path, sizeof path, "%s/tests/faults/broken",
             build == NULL ? "build" : build);
    setenv("BUILD", path, 1);
    setenv("BREAK_FILE", page_path, 1);
    setenv("OPENBLAS_NUM_THREADS", "1", 1); /* or it starts twice */
    return broken == MAP_FAILED ? -1 : 0;
}

static int drop_page(void **state)
{
    (void)state;
    return unlink(page_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_failure_costs_one_request),
        cmocka_unit_test(failures_without_end_cost_the_requests_meanwhile),
        cmocka_unit_test(a_small_request_asks_for_memory_a_dozen_times_at_most),
        cmocka_unit_test(a_failure_while_models_are_read_keeps_the_old_ones),
        cmocka_unit_test(failures_without_end_while_models_are_read_keep_the_old_ones),
        cmocka_unit_test(a_failure_at_the_start_ends_it_with_one_line_or_does_no_harm),
        cmocka_unit_test(failures_without_end_at_the_start_end_it_with_one_line),
        cmocka_unit_test(a_clock_that_jumps_has_no_effect),
        cmocka_unit_test(a_stuck_worker_ends_the_process_and_leaves_its_stack),
    };

    return cmocka_run_group_tests(tests, share_page, drop_page);
}
