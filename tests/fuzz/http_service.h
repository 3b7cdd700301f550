#ifndef TESTS_FUZZ_HTTP_SERVICE_H
#define TESTS_FUZZ_HTTP_SERVICE_H

#include "api/base64.h"
#include "api/number_array.h"
#include "core/buffer.h"
#include "core/cpu.h"
#include "core/kernels/kernels.h"
#include "server/clock.h"
#include "server/http.h"
#include "server/log.h"
#include "server/models.h"
#include "server/workers.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/un.h>
#include <unistd.h>

#include <linux/sockios.h>

/* The service in this process, small, and one conversation with it at a time. */

enum {
    SERVICE_TICK_MS = 20,
    SERVICE_TICKS = 100,   /* in which a conversation ends: counted, not timed,
                              for the process may be stopped meanwhile */
    SERVICE_YIELDS = 200,  /* a thread that is at work is done by then */
    SERVICE_ANSWER_BYTES = 1 << 28
};

static struct server service;

/* Nobody connects to it. */
static inline int service_listener(void)
{
    struct sockaddr_un any = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    assert(fd >= 0 && bind(fd, (void *)&any, sizeof any.sun_family) == 0 &&
           listen(fd, 1) == 0);
    return fd;
}

static inline void service_stop(void)
{
    queue_close(&service.queue);
    workers_stop(service.workers);
    http_stop(service.http);
    models_stop(service.models);
    queue_free(&service.queue);
    connections_free(&service.connections);
    log_stop();
}

/* As main does it, with less room. */
static inline void service_start(void)
{
    static struct config config;
    static struct kernels kernels;
    uint32_t features = cpu_features();
    struct listeners on = { .main = service_listener(), .admin = -1 };
    struct error err = { 0 };

    config_init(&config);
    config.max_body_bytes = 64 * 1024;
    assert(kernels_select(features, NULL, &kernels) &&
           number_select(features, NULL) && base64_select(number_selected()));
    kernels_single_threaded();
    service.config = &config;
    service.kernels = &kernels;
    service.worker_count = 1;
    service.max_connections = 16;
    service.limits = (struct limits){ .response_bytes = 1 << 20,
                                      .request_flops = 1e7 };
    budget_init(&service.budget, 1 << 24);
    assert(log_start(CONFIG_LEVEL_DEBUG, CONFIG_FORMAT_JSON,
                     open("/dev/null", O_WRONLY | O_CLOEXEC)));
    service.models = models_start("", &kernels, 0, &err);
    assert(service.models != NULL &&
           connections_init(&service.connections,
                            (struct connection_limits){
                                .header_ms = config.header_timeout_ms,
                                .body_ms = config.body_timeout_ms,
                                .idle_ms = config.idle_timeout_ms,
                                .count = service.max_connections }) &&
           queue_init(&service.queue,
                      (struct queue_limits){
                          .jobs = 4, .workers = service.worker_count,
                          .wait_ns = config.queue_wait_ms * CLOCK_NS_PER_MS }));
    service.http = http_start(&service, &on, &err);
    assert(service.http != NULL);
    service.workers = workers_start(&service, &err);
    assert(service.workers != NULL);
    atomic_store(&service.ready, true);
    atexit(service_stop);
}

/* Something is still to happen: lets it. Main's tick is here too, when nothing
 * does. `fd` is -1, or what the next bytes are to come by. */
static inline void service_wait(int fd, int *waits)
{
    struct pollfd state = { .fd = fd, .events = POLLIN };

    if (++*waits < SERVICE_YIELDS) {
        sched_yield();
        return;
    }
    assert(*waits < SERVICE_YIELDS + SERVICE_TICKS);
    if (poll(&state, 1, SERVICE_TICK_MS) > 0)
        return;
    connections_sweep(&service.connections, false);
    workers_drop_late(&service, clock_ns());
}

static inline int64_t service_held(void)
{
    int64_t jobs;

    pthread_mutex_lock(&service.queue.mutex);
    jobs = service.queue.length + service.queue.big_running;
    pthread_mutex_unlock(&service.queue.mutex);
    return jobs + connections_count(&service.connections) +
           budget_reserved(&service.budget);
}

/* Says what is left, then shuts our side; only once all has been read, since
 * the library misses an end that comes together with the last bytes. */
static inline void service_say(int fd, struct bytes *rest, bool *is_shut)
{
    int unread = 0;
    ssize_t sent = send(fd, rest->data, rest->len, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (sent < 0 && errno != EAGAIN)
        sent = (ssize_t)rest->len; /* nobody listens any more */
    if (sent > 0) {
        rest->data += sent;
        rest->len -= (size_t)sent;
    }
    if (rest->len == 0 && ioctl(fd, SIOCOUTQ, &unread) == 0 && unread == 0)
        *is_shut = shutdown(fd, SHUT_WR) == 0 || errno == ENOTCONN;
}

/* What comes back is the caller's to free. */
static inline void service_converse(const char *text, size_t len,
                                    struct buffer *heard)
{
    enum { ROOM = 64 * 1024 };
    static const struct sockaddr_in client = { .sin_family = AF_INET };
    struct bytes rest = { (const uint8_t *)text, len };
    bool is_shut = false;
    int ends[2], waits = 0;
    ssize_t got;

    buffer_init(heard, SERVICE_ANSWER_BYTES);
    assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    http_add(service.http, ends[1], (const void *)&client, sizeof client);
    do {
        if (!is_shut)
            service_say(ends[0], &rest, &is_shut);
        got = recv(ends[0], buffer_room(heard, ROOM), ROOM, MSG_DONTWAIT);
        if (got > 0) {
            buffer_added(heard, (size_t)got);
            waits = 0;
        } else if (got < 0 && errno == EAGAIN) {
            service_wait(is_shut ? ends[0] : -1, &waits);
            got = 1;
        }
    } while (got > 0);
    close(ends[0]);
    for (waits = 0; service_held() != 0;)
        service_wait(-1, &waits);
}

#endif
