#include "server/connections.h"

#include "server/clock.h"
#include "server/job.h"
#include "server/metrics.h"
#include "server/refusal.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/sockios.h>
#include <linux/tcp.h>

enum {
    ALERT_BYTES = 16, /* all that TLS says to what is none */
    PHASE_BITS = 3,
    PHASE_MASK = 7,
    /* A client of a keep-alive connection may just be sending its next
     * request: while draining it gets this long to have it refused properly. */
    DRAIN_IDLE_MS = 300,
    /* From 7/8 of the connections there may be, so that new clients are served:
     * at the limit the library leaves them waiting unseen. */
    CROWDED_IDLE_MS = 1000,
    /* An I/O thread has this long to read what a client sent before it left. */
    LAST_READ_MS = 100
};

static uint64_t word_of(enum connection_phase phase)
{
    return (uint64_t)clock_about_ms() << PHASE_BITS | phase;
}

bool connections_init(struct connections *connections,
                      struct connection_limits limits)
{
    *connections = (struct connections){ .limits = limits };
    connections->hangups = epoll_create1(EPOLL_CLOEXEC);
    return connections->hangups >= 0 &&
           pthread_mutex_init(&connections->mutex, NULL) == 0;
}

void connections_free(struct connections *connections)
{
    pthread_mutex_destroy(&connections->mutex);
    close(connections->hangups);
}

static void write_peer(const struct sockaddr *address,
                       char out[CONNECTION_PEER_BYTES])
{
    char host[INET6_ADDRSTRLEN] = "";

    if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)address;

        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        snprintf(out, CONNECTION_PEER_BYTES, "[%s]:%d", host,
                 ntohs(v6->sin6_port));
    } else {
        const struct sockaddr_in *v4 = (const void *)address;

        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        snprintf(out, CONNECTION_PEER_BYTES, "%s:%d", host,
                 ntohs(v4->sin_port));
    }
}

static void count(struct connections *connections, int64_t n)
{
    int64_t before = atomic_fetch_add_explicit(&connections->count, n,
                                               memory_order_relaxed);

    metrics_set(METRIC_connections, before + n);
}

/* Without memory for it, a client that leaves is noticed when it is late. */
static void watch(struct connections *connections,
                  struct connection *connection)
{
    struct epoll_event event = { .events = EPOLLRDHUP | EPOLLONESHOT,
                                 .data.ptr = connection };

    epoll_ctl(connections->hangups, EPOLL_CTL_ADD, connection->fd, &event);
}

struct connection *connections_add(struct connections *connections, int fd,
                                   const struct sockaddr *address)
{
    struct connection *connection = calloc(1, sizeof *connection);

    if (connection == NULL)
        return NULL;
    connection->fd = fd;
    write_peer(address, connection->peer);
    atomic_init(&connection->word, word_of(CONNECTION_OPEN));

    pthread_mutex_lock(&connections->mutex);
    connection->after = connections->first;
    if (connection->after != NULL)
        connection->after->before = connection;
    connections->first = connection;
    count(connections, 1);
    watch(connections, connection);
    pthread_mutex_unlock(&connections->mutex);
    return connection;
}

void connections_remove(struct connections *connections,
                        struct connection *connection)
{
    pthread_mutex_lock(&connections->mutex);
    if (connection->after != NULL)
        connection->after->before = connection->before;
    if (connection->before != NULL)
        connection->before->after = connection->after;
    else
        connections->first = connection->after;
    count(connections, -1);
    epoll_ctl(connections->hangups, EPOLL_CTL_DEL, connection->fd, NULL);
    pthread_mutex_unlock(&connections->mutex);
    free(connection->spare);
    free(connection);
}

/* Release: the id written before is seen by the sweeper, which acquires. And
 * acquire, for what the sweeper wrote before it cut. */
bool connection_enter(struct connection *connection,
                      enum connection_phase phase)
{
    uint64_t old = atomic_load_explicit(&connection->word,
                                        memory_order_acquire);

    do {
        if ((old & PHASE_MASK) == CONNECTION_CUT)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(
        &connection->word, &old, word_of(phase), memory_order_acq_rel,
        memory_order_acquire));
    return true;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* `patience_ms` is for those with nothing to say. */
static int64_t limit_ms(const struct connections *connections,
                        enum connection_phase phase, int64_t patience_ms)
{
    switch (phase) {
    case CONNECTION_OPEN:
        return least(patience_ms, connections->limits.header_ms);
    case CONNECTION_HEADERS: return connections->limits.header_ms;
    case CONNECTION_BODY:
    case CONNECTION_REPLY:   /* a reply goes over the link that the body came by */
    case CONNECTION_LEAVING: /* and a client may read it after its last byte */
        return connections->limits.body_ms;
    case CONNECTION_IDLE:
        return least(patience_ms, connections->limits.idle_ms);
    case CONNECTION_BUSY:
    case CONNECTION_CUT: break;
    }
    return INT64_MAX;
}

static void say_late(struct connection *connection,
                     enum connection_phase phase)
{
    struct error err = { 0 };

    error_set(&err, ERR_TIMEOUT, "", "the request's %s did not arrive in time",
              phase == CONNECTION_BODY ? "body" : "headers");
    metrics_count_rejected(REASON_timeout);
    if (connection->is_tls)
        return;
    /* While headers arrive, `id` is the I/O thread's to write. */
    if (phase == CONNECTION_BODY)
        memcpy(connection->told_id, connection->id, sizeof connection->id);
    else
        job_fresh_id(connection->told_id);
    refusal_send(connection->fd,
                 &(struct refusal){ .error = &err,
                                    .request_id = connection->told_id });
}

bool connections_told(struct connections *connections,
                      struct connection *connection, char id[129])
{
    uint64_t word = atomic_load_explicit(&connection->word,
                                         memory_order_acquire);

    if ((word & PHASE_MASK) != CONNECTION_CUT)
        return false;
    pthread_mutex_lock(&connections->mutex); /* the sweeper may be at it */
    bool told = connection->told_id[0] != '\0';

    if (told)
        memcpy(id, connection->told_id, sizeof connection->told_id);
    pthread_mutex_unlock(&connections->mutex);
    return told;
}

/* The exchange makes the connection the sweeper's: from then on the I/O thread
 * only closes it, and that waits for the mutex. */
static void cut(struct connection *connection, uint64_t seen, bool is_late)
{
    enum connection_phase phase = (enum connection_phase)(seen & PHASE_MASK);

    if (!atomic_compare_exchange_strong_explicit(
            &connection->word, &seen, word_of(CONNECTION_CUT),
            memory_order_acq_rel, memory_order_relaxed))
        return;
    if (is_late && (phase == CONNECTION_HEADERS || phase == CONNECTION_BODY))
        say_late(connection, phase);
    shutdown(connection->fd, SHUT_RDWR);
}

/* With the mutex held, so that no event is of a connection that is gone. */
static void note_hangups(struct connections *connections)
{
    struct epoll_event events[64];
    int n;

    do {
        n = epoll_wait(connections->hangups, events, 64, 0);
        for (int i = 0; i < n; i++) {
            struct connection *connection = events[i].data.ptr;

            connection->sends_no_more = true;
        }
    } while (n == 64);
}

/* Whether the client left in the middle: all that it sent has been read, and it
 * is not enough for an answer. */
static bool has_given_up(const struct connection *connection,
                         enum connection_phase phase, int64_t age_ms)
{
    int unread = 0;

    return connection->sends_no_more && age_ms > LAST_READ_MS &&
           (phase == CONNECTION_OPEN || phase == CONNECTION_HEADERS ||
            phase == CONNECTION_BODY || phase == CONNECTION_IDLE ||
            phase == CONNECTION_LEAVING) &&
           ioctl(connection->fd, FIONREAD, &unread) == 0 && unread == 0;
}

void connections_sweep(struct connections *connections, bool draining)
{
    int64_t now = clock_about_ms();
    int64_t few = connections->limits.count - connections->limits.count / 8;
    int64_t patience_ms = draining                                ? DRAIN_IDLE_MS
                          : connections_count(connections) >= few ? CROWDED_IDLE_MS
                                                                  : INT64_MAX;

    pthread_mutex_lock(&connections->mutex);
    note_hangups(connections);
    for (struct connection *c = connections->first; c != NULL; c = c->after) {
        uint64_t word = atomic_load_explicit(&c->word, memory_order_acquire);
        enum connection_phase phase = (enum connection_phase)(word & PHASE_MASK);

        int64_t age_ms = now - (int64_t)(word >> PHASE_BITS);

        if (has_given_up(c, phase, age_ms))
            cut(c, word, false);
        else if (age_ms > limit_ms(connections, phase, patience_ms))
            cut(c, word, true);
    }
    pthread_mutex_unlock(&connections->mutex);
}

void connections_cut_all(struct connections *connections)
{
    pthread_mutex_lock(&connections->mutex);
    for (struct connection *c = connections->first; c != NULL; c = c->after) {
        uint64_t word = atomic_load_explicit(&c->word, memory_order_acquire);

        if ((word & PHASE_MASK) != CONNECTION_BUSY)
            cut(c, word, true);
    }
    pthread_mutex_unlock(&connections->mutex);
}

bool connection_was_garbage(const struct connection *connection)
{
    struct tcp_info tcp = { 0 };
    socklen_t len = sizeof tcp;

    return !connection->has_requested &&
           getsockopt(connection->fd, IPPROTO_TCP, TCP_INFO, &tcp, &len) == 0 &&
           tcp.tcpi_bytes_received > 0 &&
           tcp.tcpi_bytes_sent <= (connection->is_tls ? ALERT_BYTES : 0);
}

bool connection_has_left(struct connection *connection, bool may_probe)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct pollfd state = { .fd = connection->fd, .events = POLLRDHUP };
    int unsent = 0;

    if (poll(&state, 1, 0) <= 0)
        return false;
    if ((state.revents & (POLLERR | POLLHUP)) != 0)
        return true;
    /* Into an empty buffer, so that it goes whole or not at all. */
    if (!may_probe || connection->is_tls ||
        ioctl(connection->fd, SIOCOUTQ, &unsent) != 0 || unsent > 0)
        return false;
    if (send(connection->fd, interim, sizeof interim - 1,
             MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        return true;
    /* On this host the reset is back by now; from afar it comes later, and the
     * job is computed in vain. */
    return poll(&state, 1, 0) > 0 &&
           (state.revents & (POLLERR | POLLHUP)) != 0;
}

bool connections_busy(struct connections *connections)
{
    bool busy = false;

    pthread_mutex_lock(&connections->mutex);
    for (struct connection *c = connections->first; c != NULL; c = c->after)
        busy = busy || (atomic_load_explicit(&c->word, memory_order_relaxed) &
                        PHASE_MASK) == CONNECTION_BUSY;
    pthread_mutex_unlock(&connections->mutex);
    return busy;
}

int64_t connections_count(struct connections *connections)
{
    return atomic_load_explicit(&connections->count, memory_order_relaxed);
}
