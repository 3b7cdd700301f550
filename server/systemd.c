#include "server/systemd.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_FD = 3, BEATS = 2 /* for each interval */ };

/* A variable that is a number; 0 when it isn't there, or isn't one. */
static int64_t number(const char *name)
{
    const char *text = getenv(name);
    char *end;
    long long value;

    if (text == NULL || *text == '\0')
        return 0;
    errno = 0;
    value = strtoll(text, &end, 10);
    return *end == '\0' && errno == 0 && value > 0 ? value : 0;
}

/* Variables may be left over from a parent's start: the process they are for is
 * named, and stays the same over exec. */
static bool is_for_us(const char *name)
{
    return number(name) == getpid();
}

static bool is_listening(int fd)
{
    int type = 0, listens = 0;
    socklen_t len = sizeof type;

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
           type == SOCK_STREAM &&
           getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == 0 &&
           listens != 0;
}

static bool take_over(int fd, struct error *err)
{
    if (!is_listening(fd))
        return error_set(err, ERR_RANGE, "",
                         "LISTEN_FDS: descriptor %d is no listening stream "
                         "socket (the unit needs ListenStream=, Accept=no)",
                         fd);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    return true;
}

int systemd_listeners(int fds[SYSTEMD_LISTENERS], struct error *err)
{
    int64_t count = is_for_us("LISTEN_PID") ? number("LISTEN_FDS") : 0;

    if (count > SYSTEMD_LISTENERS) {
        error_set(err, ERR_RANGE, "",
                  "LISTEN_FDS: %lld sockets; one is for listen, a second for "
                  "admin_listen", (long long)count);
        return -1;
    }
    for (int i = 0; i < count; i++) {
        fds[i] = FIRST_FD + i;
        if (!take_over(fds[i], err))
            return -1;
    }
    return (int)count;
}

/* The length of the address; 0 when there is none that fits. A name that begins
 * with '@' is in Linux's abstract namespace, which has a NUL there. */
static socklen_t find_socket(struct sockaddr_un *address)
{
    const char *path = getenv("NOTIFY_SOCKET");
    size_t len = path == NULL ? 0 : strlen(path);

    *address = (struct sockaddr_un){ .sun_family = AF_UNIX };
    if (len < 2 || len >= sizeof address->sun_path ||
        (path[0] != '/' && path[0] != '@'))
        return 0;
    memcpy(address->sun_path, path, len);
    if (path[0] == '@')
        address->sun_path[0] = '\0';
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
}

void systemd_tell(const char *words)
{
    struct sockaddr_un address;
    socklen_t len = find_socket(&address);
    int fd;

    if (len == 0)
        return;
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    (void)!sendto(fd, words, strlen(words), MSG_NOSIGNAL,
                  (struct sockaddr *)&address, len);
    close(fd);
}

void systemd_beat(int64_t now_ns)
{
    static int64_t next_ns;
    static int64_t every_ns = -1;

    if (every_ns < 0)
        every_ns = getenv("WATCHDOG_PID") == NULL || is_for_us("WATCHDOG_PID")
                       ? number("WATCHDOG_USEC") * 1000 / BEATS
                       : 0;
    if (every_ns == 0 || now_ns < next_ns)
        return;
    next_ns = now_ns + every_ns;
    systemd_tell("WATCHDOG=1");
}
