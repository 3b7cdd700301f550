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
#include <sys/ioctl.h>

#include <linux/sockios.h>

enum {
    PHASE_BITS = 3,
    PHASE_MASK = 7,
    /* A client of a keep-alive connection may just be sending its next
     * request: while draining it gets this long to have it refused properly. */
    DRAIN_IDLE_MS = 300,
    LEAVING_MS = 2000
};

static uint64_t now_ms(void)
{
    return (uint64_t)(clock_ns() / CLOCK_NS_PER_MS);
}

static uint64_t word_of(enum connection_phase phase)
{
    return now_ms() << PHASE_BITS | phase;
}

void connections_init(struct connections *connections,
                      struct connection_limits limits)
{
    *connections = (struct connections){ .limits = limits };
    pthread_mutex_init(&connections->mutex, NULL);
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
    pthread_mutex_unlock(&connections->mutex);
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

static int64_t limit_ms(const struct connections *connections,
                        enum connection_phase phase, bool draining)
{
    switch (phase) {
    case CONNECTION_OPEN:
        return draining ? DRAIN_IDLE_MS : connections->limits.header_ms;
    case CONNECTION_HEADERS: return connections->limits.header_ms;
    case CONNECTION_BODY:
    case CONNECTION_REPLY: /* a reply goes over the link that the body came by */
        return connections->limits.body_ms;
    case CONNECTION_IDLE:
        return draining ? DRAIN_IDLE_MS : connections->limits.idle_ms;
    case CONNECTION_LEAVING: return LEAVING_MS;
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
    /* While headers arrive, `id` is the I/O thread's to write. */
    if (phase == CONNECTION_BODY)
        memcpy(connection->told_id, connection->id, sizeof connection->id);
    else
        job_fresh_id(connection->told_id);
    metrics_count_rejected(REASON_timeout);
    refusal_send(connection->fd, &err, connection->told_id);
}

bool connections_told(struct connections *connections,
                      struct connection *connection, char id[129])
{
    uint64_t word = atomic_load_explicit(&connection->word,
                                         memory_order_acquire);

    if ((word & PHASE_MASK) != CONNECTION_CUT)
        return false;
    pthread_mutex_lock(&connections->mutex); /* the sweeper may be at it */
    memcpy(id, connection->told_id, sizeof connection->told_id);
    pthread_mutex_unlock(&connections->mutex);
    return id[0] != '\0';
}

/* The exchange makes the connection the sweeper's: from then on the I/O thread
 * only closes it, and that waits for the mutex. */
static void cut(struct connection *connection, uint64_t seen)
{
    enum connection_phase phase = (enum connection_phase)(seen & PHASE_MASK);

    if (!atomic_compare_exchange_strong_explicit(
            &connection->word, &seen, word_of(CONNECTION_CUT),
            memory_order_acq_rel, memory_order_relaxed))
        return;
    if (phase == CONNECTION_HEADERS || phase == CONNECTION_BODY)
        say_late(connection, phase);
    shutdown(connection->fd, SHUT_RDWR);
}

void connections_sweep(struct connections *connections, bool draining)
{
    int64_t now = (int64_t)now_ms();

    pthread_mutex_lock(&connections->mutex);
    for (struct connection *c = connections->first; c != NULL; c = c->after) {
        uint64_t word = atomic_load_explicit(&c->word, memory_order_acquire);
        enum connection_phase phase = (enum connection_phase)(word & PHASE_MASK);

        if (now - (int64_t)(word >> PHASE_BITS) >
            limit_ms(connections, phase, draining))
            cut(c, word);
    }
    pthread_mutex_unlock(&connections->mutex);
}

void connections_cut_all(struct connections *connections)
{
    pthread_mutex_lock(&connections->mutex);
    for (struct connection *c = connections->first; c != NULL; c = c->after) {
        uint64_t word = atomic_load_explicit(&c->word, memory_order_acquire);

        if ((word & PHASE_MASK) != CONNECTION_BUSY)
            cut(c, word);
    }
    pthread_mutex_unlock(&connections->mutex);
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
    if (!may_probe || ioctl(connection->fd, SIOCOUTQ, &unsent) != 0 ||
        unsent > 0)
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
