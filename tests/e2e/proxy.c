#include "tests/e2e/proxy.h"

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
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { START_MS = 20000 };

bool proxy_is_installed(void)
{
    return system("command -v haproxy >/dev/null") == 0;
}

/* Nobody else's for a moment. */
static uint16_t free_port(void)
{
    struct sockaddr_in any = { .sin_family = AF_INET };
    socklen_t size = sizeof any;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_return_code(bind(fd, (struct sockaddr *)&any, size), errno);
    getsockname(fd, (struct sockaddr *)&any, &size);
    close(fd);
    return ntohs(any.sin_port);
}

static void set_address(const char *variable, uint16_t port)
{
    char text[32];

    snprintf(text, sizeof text, "127.0.0.1:%u", port);
    setenv(variable, text, 1);
}

static bool is_ready(const struct proxy *proxy)
{
    static const char question[] = "GET /readyz HTTP/1.1\r\nHost: a\r\n"
                                   "Connection: close\r\n\r\n";
    const struct daemon there = { .port = proxy->port };
    char answer[4096];
    int fd = daemon_connect(&there);

    if (fd < 0)
        return false;
    close(fd);
    return daemon_exchange(&there, question, answer, sizeof answer) == 200;
}

/* The addresses are set in the child alone: a daemon would take them for
 * options. */
void proxy_start(struct proxy *proxy, uint16_t one, uint16_t two)
{
    proxy->port = free_port();
    proxy->pid = fork();
    assert_true(proxy->pid >= 0);
    if (proxy->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        set_address("ATTND_BIND", proxy->port);
        set_address("ATTND_ONE", one);
        set_address("ATTND_TWO", two);
        dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        execlp("haproxy", "haproxy", "-db", "-f", "config/deploy/haproxy.cfg",
               (char *)NULL);
        _exit(127);
    }
    for (int waited = 0; !is_ready(proxy); waited += 20) {
        if (waited > START_MS || waitpid(proxy->pid, NULL, WNOHANG) != 0)
            fail_msg("haproxy did not start");
        poll(NULL, 0, 20);
    }
}

void proxy_stop(struct proxy *proxy)
{
    kill(proxy->pid, SIGTERM);
    waitpid(proxy->pid, NULL, 0);
    proxy->pid = 0;
}
