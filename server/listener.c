#include "server/listener.h"

#include "config/address.h"
#include "server/tls.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    BACKLOG = 4096, /* the kernel cuts it to somaxconn */
    ASK_TIMEOUT_S = 5
};

static struct addrinfo *resolve(const char *option, const char *address,
                                int flags, struct error *err)
{
    const struct addrinfo hints = { .ai_flags = flags | AI_NUMERICSERV,
                                    .ai_socktype = SOCK_STREAM };
    struct addrinfo *found = NULL;
    struct address parts;
    char port[8];
    int why;

    if (!address_parse(address, &parts)) {
        error_set(err, ERR_RANGE, "", "%s %s: not HOST:PORT", option,
                  address);
        return NULL;
    }
    snprintf(port, sizeof port, "%d", parts.port);
    why = getaddrinfo(parts.host, port, &hints, &found);
    if (why == 0)
        return found;
    error_set(err, ERR_RANGE, "", "%s %s: %s", option, address,
              gai_strerror(why));
    return NULL;
}

/* -1 with errno. */
static int bound_socket(const struct addrinfo *to)
{
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
                    0);
    int yes = 1, no = 0;

    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (to->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (bind(fd, to->ai_addr, to->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;

    int why = errno;

    close(fd);
    errno = why;
    return -1;
}

int listener_open(const char *option, const char *address, struct error *err)
{
    struct addrinfo *found = resolve(option, address, AI_PASSIVE, err);
    int fd;

    if (found == NULL)
        return -1;
    fd = bound_socket(found);
    if (fd < 0)
        error_set(err, ERR_RANGE, "", "%s %s: %s", option, address,
                  strerror(errno));
    freeaddrinfo(found);
    return fd;
}

char *listener_name(int listener, char *out, size_t size)
{
    struct sockaddr_storage bound;
    socklen_t len = sizeof bound;
    char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";

    if (getsockname(listener, (struct sockaddr *)&bound, &len) == 0)
        getnameinfo((struct sockaddr *)&bound, len, host, sizeof host, port,
                    sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(out, size, strchr(host, ':') == NULL ? "%s:%s" : "[%s]:%s", host,
             port);
    return out;
}

static void replace_any(struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        struct sockaddr_in *v4 = (void *)address;

        if (v4->sin_addr.s_addr == htonl(INADDR_ANY))
            v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 *v6 = (void *)address;

        if (IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr))
            v6->sin6_addr = in6addr_loopback;
    }
}

static bool exchange(int fd, const char *question, size_t len, char *answer,
                     size_t size)
{
    return send(fd, question, len, MSG_NOSIGNAL) == (ssize_t)len &&
           recv(fd, answer, size, MSG_WAITALL) == (ssize_t)size;
}

/* The status line is all that matters: "HTTP/1.1 200". */
static bool ask(const struct addrinfo *to, bool in_tls)
{
    static const char question[] = "GET /readyz HTTP/1.1\r\nHost: attnd\r\n"
                                   "Connection: close\r\n\r\n";
    const struct timeval timeout = { .tv_sec = ASK_TIMEOUT_S };
    char answer[13] = "";
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good;

    if (fd < 0)
        return false;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    good = connect(fd, to->ai_addr, to->ai_addrlen) == 0 &&
           (in_tls ? tls_ask(fd, question, sizeof question - 1, answer,
                             sizeof answer - 1)
                   : exchange(fd, question, sizeof question - 1, answer,
                              sizeof answer - 1)) &&
           strcmp(answer, "HTTP/1.1 200") == 0;
    close(fd);
    return good;
}

bool listener_ask(const char *option, const char *address, bool in_tls,
                  struct error *err)
{
    struct addrinfo *found = resolve(option, address, 0, err);
    bool good;

    if (found == NULL)
        return false;
    replace_any(found->ai_addr);
    good = ask(found, in_tls);
    freeaddrinfo(found);
    return good || error_set(err, ERR_NOT_FOUND, "",
                             "nothing at %s says that it is ready", address);
}
