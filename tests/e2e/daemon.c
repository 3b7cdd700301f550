#include "tests/e2e/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    MAX_OPTIONS = 40,
    START_MS = 20000, /* under a sanitizer on a busy machine */
    PATIENCE_S = 10
};

static void sleep_ms(int ms)
{
    poll(NULL, 0, ms);
}

static int exit_status(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static pid_t spawn(const char *const *argv, int log)
{
    const char *build = getenv("BUILD");
    char path[512];
    pid_t pid;

    snprintf(path, sizeof path, "%s/attnd", build == NULL ? "build" : build);
    pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* no daemon outlives a failed test */
    dup2(log, STDERR_FILENO);
    execv(path, (char **)(uintptr_t)argv);
    _exit(127);
}

/* Appended to: two threads' writes to a memfd may share an offset otherwise. */
static int open_log(void)
{
    int log = memfd_create("log", MFD_CLOEXEC);

    assert_true(log >= 0);
    assert_int_equal(fcntl(log, F_SETFL, O_APPEND), 0);
    return log;
}

static void add_options(const char **argv, size_t n, const char *const *options)
{
    for (; options != NULL && *options != NULL; options++) {
        assert_true(n + 1 < MAX_OPTIONS);
        argv[n++] = *options;
    }
    argv[n] = NULL;
}

static bool find_port(struct daemon *daemon)
{
    static const char ready[] = "listening on 127.0.0.1:";
    char *text = daemon_log(daemon), *at = strstr(text, ready);

    if (at != NULL)
        daemon->port = (uint16_t)strtoul(at + sizeof ready - 1, NULL, 10);
    free(text);
    return at != NULL;
}

/* One instance stands for both of the proxy's. */
static void put_proxy_before(struct daemon *daemon)
{
    const char *through = getenv("THROUGH");

    daemon->own_port = daemon->port;
    if (through == NULL || strcmp(through, "haproxy") != 0)
        return;
    proxy_start(&daemon->proxy, daemon->own_port, daemon->own_port);
    daemon->port = daemon->proxy.port;
}

void daemon_start(struct daemon *daemon, const char *const *options)
{
    const char *argv[MAX_OPTIONS] = { "attnd", "--listen", "127.0.0.1:0",
                                      "--log-format", "json" };

    add_options(argv, 5, options);
    *daemon = (struct daemon){ .log = open_log() };
    daemon->pid = spawn(argv, daemon->log);
    for (int waited = 0; !find_port(daemon); waited += 5) {
        int status;

        if (waited > START_MS || waitpid(daemon->pid, &status, WNOHANG) != 0) {
            char *text = daemon_log(daemon);

            print_error("attnd did not start: %s\n", text);
            free(text);
            fail();
        }
        sleep_ms(5);
    }
    put_proxy_before(daemon);
}

int daemon_wait(struct daemon *daemon)
{
    int status;

    assert_int_equal(waitpid(daemon->pid, &status, 0), daemon->pid);
    close(daemon->log);
    if (daemon->proxy.pid > 0)
        proxy_stop(&daemon->proxy);
    return exit_status(status);
}

int daemon_stop(struct daemon *daemon, int signal)
{
    kill(daemon->pid, signal);
    return daemon_wait(daemon);
}

int daemon_run(const char *const *options, char *out, size_t size)
{
    const char *argv[MAX_OPTIONS] = { "attnd" };
    int log = open_log(), status;
    pid_t pid;
    ssize_t n;

    add_options(argv, 1, options);
    pid = spawn(argv, log);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    n = pread(log, out, size - 1, 0);
    out[n < 0 ? 0 : n] = '\0';
    close(log);
    return exit_status(status);
}

/* By offset, since the daemon writes through the same open file. */
char *daemon_log(const struct daemon *daemon)
{
    size_t size = 1 << 16, len = 0;
    char *text = malloc(size);
    ssize_t n;

    assert_non_null(text);
    while ((n = pread(daemon->log, text + len, size - 1 - len,
                      (off_t)len)) > 0) {
        len += (size_t)n;
        if (len == size - 1) {
            text = realloc(text, size *= 2);
            assert_non_null(text);
        }
    }
    text[len] = '\0';
    return text;
}

bool daemon_logs(const struct daemon *daemon, const char *text)
{
    bool found = false;

    for (int waited = 0; !found && waited < 1000; waited += 10) {
        char *log = daemon_log(daemon);

        found = strstr(log, text) != NULL;
        free(log);
        if (!found)
            sleep_ms(10);
    }
    return found;
}

int daemon_connect(const struct daemon *daemon)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons(daemon->port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    const struct timeval patience = { .tv_sec = PATIENCE_S };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

bool daemon_send(int fd, const void *bytes, size_t len)
{
    const char *at = bytes;

    while (len > 0) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);

        if (n <= 0)
            return false;
        at += n;
        len -= (size_t)n;
    }
    return true;
}

ssize_t daemon_read_all(int fd, char *out, size_t size)
{
    size_t len = 0;
    ssize_t n = 1;

    while (n > 0 && len < size - 1) {
        n = recv(fd, out + len, size - 1 - len, 0);
        len += n > 0 ? (size_t)n : 0;
    }
    out[len] = '\0';
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? -1
                                                              : (ssize_t)len;
}

static int status_of(const char *answer)
{
    return strncmp(answer, "HTTP/1.1 ", 9) == 0
               ? (int)strtol(answer + 9, NULL, 10)
               : 0;
}

/* Byte by byte up to the empty line, so that nothing of a pipelined answer is
 * taken away. */
static size_t read_head(int fd, char *out, size_t size)
{
    size_t len = 0;

    out[0] = '\0';
    while (len < size - 1 && recv(fd, out + len, 1, 0) == 1) {
        out[++len] = '\0';
        if (len >= 4 && strcmp(out + len - 4, "\r\n\r\n") == 0)
            break;
    }
    return len;
}

int daemon_read_one(int fd, char *out, size_t size)
{
    size_t len = read_head(fd, out, size), body = 0;
    const char *length = strcasestr(out, "\r\nContent-Length: ");

    if (length != NULL)
        body = strtoul(length + 18, NULL, 10);
    assert_true(body < size - len);
    while (body > 0) {
        ssize_t n = recv(fd, out + len, body, 0);

        if (n <= 0)
            return 0;
        len += (size_t)n;
        body -= (size_t)n;
    }
    out[len] = '\0';
    return status_of(out);
}

int daemon_exchange(const struct daemon *daemon, const char *text, char *out,
                    size_t size)
{
    int fd = daemon_connect(daemon);
    ssize_t n;

    assert_true(fd >= 0);
    daemon_send(fd, text, strlen(text));
    n = daemon_read_all(fd, out, size);
    close(fd);
    if (n < 0)
        print_error("no end within %d s after: %s\n", PATIENCE_S, text);
    assert_true(n >= 0);
    return status_of(out);
}

double daemon_metric(const struct daemon *daemon, const char *series)
{
    enum { SIZE = 1 << 18 };
    static const char question[] = "GET /metrics HTTP/1.1\r\nHost: a\r\n"
                                   "Connection: close\r\n\r\n";
    struct daemon itself = *daemon;
    char *text = malloc(SIZE), line[256];
    const char *at;
    double value = -1;

    if (daemon->proxy.pid > 0)
        itself.port = daemon->own_port;
    assert_non_null(text);
    assert_int_equal(daemon_exchange(&itself, question, text, SIZE), 200);
    snprintf(line, sizeof line, "\n%s ", series);
    at = strstr(text, line);
    if (at != NULL)
        value = strtod(at + strlen(line), NULL);
    free(text);
    return value;
}
