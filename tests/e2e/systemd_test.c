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
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

/* A supervisor that speaks systemd's protocol: this test. */

enum { FIRST_FD = 3 };

#define LIVEZ                                                                  \
    "GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

static char answer[1 << 16];

/* ---- what the daemon says ---- */

/* A datagram socket that gives up after 10 s; its name is in NOTIFY_SOCKET. */
static int listen_to_words(const char *name)
{
    const struct timeval patience = { .tv_sec = 10 };
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    size_t len = strlen(name);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    memcpy(address.sun_path, name, len);
    if (name[0] == '@')
        address.sun_path[0] = '\0';
    assert_return_code(bind(fd, (struct sockaddr *)&address,
                            (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
                                        len)), errno);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setenv("NOTIFY_SOCKET", name, 1);
    return fd;
}

static void expect_words(int fd, const char *words)
{
    char said[64] = "";
    ssize_t n = recv(fd, said, sizeof said - 1, 0);

    assert_true(n > 0);
    assert_string_equal(said, words);
}

/* Skips the beats that come meanwhile; their number. */
static int await_words(int fd, const char *words)
{
    for (int beats = 0;; beats++) {
        char said[64] = "";

        assert_true(recv(fd, said, sizeof said - 1, 0) > 0);
        if (strcmp(said, words) == 0)
            return beats;
        assert_string_equal(said, "WATCHDOG=1");
    }
}

static void it_says_when_it_is_ready_and_when_it_stops(void **state)
{
    char name[64];
    struct daemon daemon;
    int fd;

    (void)state;
    snprintf(name, sizeof name, "/tmp/attnd_notify_%d", (int)getpid());
    fd = listen_to_words(name);
    daemon_start(&daemon, NULL);
    expect_words(fd, "READY=1");
    kill(daemon.pid, SIGTERM);
    expect_words(fd, "STOPPING=1");
    assert_int_equal(daemon_wait(&daemon), 0);
    unsetenv("NOTIFY_SOCKET");
    close(fd);
    unlink(name);
}

static void it_says_that_it_is_well_as_often_as_it_was_asked_to(void **state)
{
    char name[64];
    struct daemon daemon;
    int fd;

    (void)state;
    snprintf(name, sizeof name, "@attnd_notify_%d", (int)getpid());
    fd = listen_to_words(name);
    setenv("WATCHDOG_USEC", "300000", 1);
    daemon_start(&daemon, NULL);
    await_words(fd, "READY=1");
    for (int i = 0; i < 3; i++)
        expect_words(fd, "WATCHDOG=1");
    kill(daemon.pid, SIGTERM);
    await_words(fd, "STOPPING=1");
    assert_int_equal(daemon_wait(&daemon), 0);

    setenv("WATCHDOG_PID", "1", 1); /* another process was asked */
    daemon_start(&daemon, NULL);
    assert_int_equal(await_words(fd, "READY=1"), 0);
    poll(NULL, 0, 500); /* some of its ticks */
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
    assert_int_equal(await_words(fd, "STOPPING=1"), 0);
    unsetenv("WATCHDOG_PID");
    unsetenv("WATCHDOG_USEC");
    unsetenv("NOTIFY_SOCKET");
    close(fd);
}

static void a_supervisor_that_does_not_listen_is_no_matter(void **state)
{
    static const char *const names[] = { "/nowhere/socket", "relative", "@",
                                         "", "/tmp" };

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct daemon daemon;

        setenv("NOTIFY_SOCKET", names[i], 1);
        setenv("WATCHDOG_USEC", "soon", 1);
        daemon_start(&daemon, NULL);
        assert_int_equal(daemon_exchange(&daemon, LIVEZ, answer, sizeof answer),
                         200);
        assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
    }
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
}

/* ---- what the daemon is given ---- */

static int open_socket(int type, uint16_t *port)
{
    struct sockaddr_in any = { .sin_family = AF_INET };
    socklen_t len = sizeof any;
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);

    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd > FIRST_FD + 2);
    assert_return_code(bind(fd, (struct sockaddr *)&any, len), errno);
    if (type == SOCK_STREAM)
        assert_return_code(listen(fd, 64), errno);
    getsockname(fd, (struct sockaddr *)&any, &len);
    *port = ntohs(any.sin_port);
    return fd;
}

/* With these sockets from 3 on; `listen_pid` 0: the daemon's own. */
static void start_with(struct daemon *daemon, const int *fds, int count,
                       int listen_pid)
{
    const char *build = getenv("BUILD");
    char path[512], number[16];

    snprintf(path, sizeof path, "%s/attnd", build == NULL ? "build" : build);
    daemon->log = memfd_create("log", MFD_CLOEXEC);
    daemon->pid = fork();
    assert_true(daemon->pid >= 0);
    if (daemon->pid > 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(daemon->log, STDERR_FILENO);
    for (int i = 0; i < count; i++)
        dup2(fds[i], FIRST_FD + i);
    snprintf(number, sizeof number, "%d", listen_pid == 0 ? getpid()
                                                          : listen_pid);
    setenv("LISTEN_PID", number, 1);
    snprintf(number, sizeof number, "%d", count);
    setenv("LISTEN_FDS", number, 1);
    execl(path, "attnd", "--listen", "127.0.0.1:0", "--log-format", "json",
          (char *)NULL);
    _exit(127);
}

static void occupy_low_files(void)
{
    while (open("/dev/null", O_RDONLY | O_CLOEXEC) < 2 * FIRST_FD)
        ;
}

static void what_came_before_the_start_is_served_on_the_socket_given(void **state)
{
    struct daemon daemon = { 0 };
    int listener = open_socket(SOCK_STREAM, &daemon.port), early;

    (void)state;
    early = daemon_connect(&daemon); /* nobody accepts it yet */
    assert_true(daemon_send(early, LIVEZ, sizeof LIVEZ - 1));
    start_with(&daemon, &listener, 1, 0);
    assert_true(daemon_read_all(early, answer, sizeof answer) > 0);
    assert_memory_equal(answer, "HTTP/1.1 200 ", 13);
    close(early);
    assert_int_equal(daemon_exchange(&daemon, LIVEZ, answer, sizeof answer),
                     200);
    close(listener);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

static void a_second_socket_is_the_admin_one(void **state)
{
    static const char metrics[] = "GET /metrics HTTP/1.1\r\nHost: a\r\n"
                                  "Connection: close\r\n\r\n";
    struct daemon daemon = { 0 }, admin = { 0 };
    int fds[2] = { open_socket(SOCK_STREAM, &daemon.port),
                   open_socket(SOCK_STREAM, &admin.port) };

    (void)state;
    start_with(&daemon, fds, 2, 0);
    assert_int_equal(daemon_exchange(&admin, metrics, answer, sizeof answer),
                     200);
    assert_int_equal(daemon_exchange(&daemon, LIVEZ, answer, sizeof answer),
                     200);
    close(fds[0]);
    close(fds[1]);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

static void expect_refusal(struct daemon *daemon)
{
    char *text;

    assert_true(daemon_logs(daemon, "LISTEN_FDS: "));
    text = daemon_log(daemon);
    assert_memory_equal(text, "attnd: ", 7);
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    free(text);
    assert_int_equal(daemon_wait(daemon), 1);
}

static void sockets_of_another_kind_are_refused_in_one_line(void **state)
{
    struct daemon daemon = { 0 };
    uint16_t port;
    int fds[3] = { open_socket(SOCK_DGRAM, &port),
                   open_socket(SOCK_STREAM, &port),
                   open_socket(SOCK_STREAM, &port) };

    (void)state;
    start_with(&daemon, fds, 1, 0);
    expect_refusal(&daemon);
    start_with(&daemon, fds, 3, 0); /* one more than there are uses for */
    expect_refusal(&daemon);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
}

static void sockets_that_are_meant_for_another_process_are_left_alone(void **state)
{
    struct daemon daemon = { 0 };
    uint16_t port;
    int fd = open_socket(SOCK_DGRAM, &port);

    (void)state;
    start_with(&daemon, &fd, 1, 1);
    assert_true(daemon_logs(&daemon, "listening on 127.0.0.1:"));
    close(fd);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_says_when_it_is_ready_and_when_it_stops),
        cmocka_unit_test(it_says_that_it_is_well_as_often_as_it_was_asked_to),
        cmocka_unit_test(a_supervisor_that_does_not_listen_is_no_matter),
        cmocka_unit_test(what_came_before_the_start_is_served_on_the_socket_given),
        cmocka_unit_test(a_second_socket_is_the_admin_one),
        cmocka_unit_test(sockets_of_another_kind_are_refused_in_one_line),
        cmocka_unit_test(sockets_that_are_meant_for_another_process_are_left_alone),
    };

    occupy_low_files();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
