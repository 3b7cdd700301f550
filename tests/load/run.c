#include "tests/load/run.h"

#include "tests/load/response.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    EVENTS = 256,
    READ_BYTES = 1 << 18,
    /* Linux gives out 28 000 ports for one pair of addresses. */
    CLIENTS_AN_ADDRESS = 20000,
    OPENINGS_A_TURN = 256 /* idle connections, so that load goes on meanwhile */
};

static const int64_t SECOND_NS = 1000000000;
static const size_t LEAVE_AT_ANSWER = SIZE_MAX - 1, STAY = SIZE_MAX;

/* A request as it goes out: whole, or with its body cut short. */
struct message {
    char head[OPTIONS_HEAD_BYTES + 2048];
    size_t head_len;
    const char *body;
    size_t body_len;
    int number;
    bool is_bad;
};

/* Of an answer's body, whatever the pieces it comes in. */
struct digest {
    uint64_t hash, word;
    size_t bytes;
};

struct client {
    int fd;            /* -1: closed */
    bool is_busy;
    int64_t intended_ns, begun_ns;
    const struct message *message;
    size_t sent, leave_at;
    struct response response;
    struct digest digest;
    struct client *before, *after; /* busy ones, oldest first */
    struct client *next_free;
};

struct run {
    const struct options *options;
    struct result *result;
    uint64_t *digest;
    uint64_t random;
    int epoll, timer;
    struct message *good, *bad;
    struct client *client; /* the idle ones come after the others */
    int clients, idle, idle_opened;
    struct client *free; /* the last used first: few connections stay warm */
    struct client oldest; /* ring of busy clients */
    double rate;
    int64_t start_ns, count_from_ns, end_ns;
    int64_t next;   /* request ... */
    int64_t due_ns; /* ... and when it is to be sent */
    int64_t watched_ns;
    char *buffer;
};

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SECOND_NS + t.tv_nsec;
}

static double next_share(struct run *run)
{
    run->random = run->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(run->random >> 11) * 0x1p-53;
}

static void digest_add(struct digest *digest, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len;) {
        if (digest->bytes % 8 == 0 && len - i >= 8) {
            memcpy(&digest->word, bytes + i, 8);
            digest->word = htobe64(digest->word);
            digest->bytes += 8, i += 8;
        } else {
            digest->word = digest->word << 8 | (unsigned char)bytes[i];
            digest->bytes++, i++;
        }
        if (digest->bytes % 8 == 0)
            digest->hash = ((digest->hash ^ digest->word) +
                            0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    }
}

/* Never 0. */
static uint64_t digest_end(const struct digest *digest)
{
    uint64_t hash = (digest->hash ^ digest->word) * 0xbf58476d1ce4e5b9u;

    return (hash ^ hash >> 29 ^ digest->bytes) | 1;
}

int64_t result_good(const struct result *result)
{
    int64_t good = 0;

    for (int i = 0; i < result->outcomes; i++)
        if (result->outcome[i].status / 100 == 2)
            good += result->outcome[i].in_time;
    return good;
}

double result_goodput(const struct result *result)
{
    return (double)result_good(result) / result->counted_s;
}

const struct outcome *result_find(const struct result *result, int status)
{
    for (int i = 0; i < result->outcomes; i++)
        if (result->outcome[i].status == status)
            return &result->outcome[i];
    return NULL;
}

/* More statuses than there is room for share the last place. */
static struct outcome *outcome_of(struct result *result, int status)
{
    int i = 0;

    while (i < result->outcomes && result->outcome[i].status != status)
        i++;
    if (i == RUN_OUTCOMES)
        return &result->outcome[i - 1];
    if (i == result->outcomes)
        result->outcome[result->outcomes++].status = status;
    return &result->outcome[i];
}

static bool counts(const struct run *run, const struct client *client)
{
    return client->intended_ns >= run->count_from_ns;
}

static void forget(struct run *run, struct client *client)
{
    client->before->after = client->after;
    client->after->before = client->before;
    client->is_busy = false;
    client->next_free = run->free;
    run->free = client;
}

/* With a reset or an orderly end, as clients leave. */
static void hang_up(struct client *client, bool resets)
{
    const struct linger now = { .l_onoff = 1 };

    if (resets)
        setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(client->fd); /* leaves epoll as well */
    client->fd = -1;
}

static void fail(struct run *run, struct client *client, enum failure why)
{
    run->result->failed[why] += counts(run, client);
    hang_up(client, true);
    forget(run, client);
}

static void leave(struct run *run, struct client *client)
{
    run->result->left += counts(run, client);
    hang_up(client, next_share(run) < 0.5);
    forget(run, client);
}

static void compare(struct run *run, const struct client *client)
{
    uint64_t *first = &run->digest[client->message->number];
    uint64_t digest = digest_end(&client->digest);

    if (client->response.status != 200 || client->message->is_bad)
        return;
    if (*first == 0)
        *first = digest;
    run->result->different += *first != digest;
}

static void complete(struct run *run, struct client *client)
{
    int64_t now = now_ns();

    if (counts(run, client)) {
        struct outcome *outcome =
            outcome_of(run->result, client->response.status);

        histogram_add(&outcome->latency, now - client->intended_ns);
        histogram_add(&outcome->service, now - client->begun_ns);
        outcome->in_time += now <= run->end_ns;
        compare(run, client);
    }
    if (client->response.closes)
        hang_up(client, false);
    forget(run, client);
}

/* All that is left, up to where the client means to leave. */
static ssize_t send_rest(const struct client *client, size_t limit)
{
    const struct message *message = client->message;
    size_t head = client->sent < message->head_len
                      ? message->head_len - client->sent : 0;
    size_t from = client->sent - (message->head_len - head);
    struct iovec part[2] = {
        { (char *)(uintptr_t)message->head + client->sent, head },
        { (char *)(uintptr_t)message->body + from, 0 },
    };
    struct msghdr all = { .msg_iov = part, .msg_iovlen = 2 };

    if (limit < client->sent + head)
        part[0].iov_len = limit - client->sent;
    else
        part[1].iov_len = limit - client->sent - head;
    if (head == 0)
        all.msg_iov++, all.msg_iovlen--;
    return sendmsg(client->fd, &all, MSG_NOSIGNAL);
}

static void go_on_sending(struct run *run, struct client *client)
{
    size_t total = client->message->head_len + client->message->body_len;
    size_t limit = client->leave_at < total ? client->leave_at : total;

    while (client->sent < limit) {
        ssize_t n = send_rest(client, limit);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0) { /* an answer may be there all the same */
            if (errno != EPIPE && errno != ECONNRESET)
                fail(run, client, FAILED_CONNECT);
            return;
        }
        client->sent += (size_t)n;
        run->result->sent_bytes += n;
    }
    if (client->leave_at == client->sent)
        leave(run, client);
}

static int new_socket(const struct run *run, int number)
{
    const struct options *options = run->options;
    int yes = 1, fd = socket(options->address.ss_family,
                             SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in from = { .sin_family = AF_INET };

    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (number < CLIENTS_AN_ADDRESS || options->address.ss_family != AF_INET)
        return fd;
    from.sin_addr.s_addr =
        htonl(INADDR_LOOPBACK + (uint32_t)(number / CLIENTS_AN_ADDRESS));
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes);
    bind(fd, (const struct sockaddr *)&from, sizeof from);
    return fd;
}

static bool open_client(struct run *run, struct client *client)
{
    const struct options *options = run->options;
    struct epoll_event event = {
        .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
        .data.ptr = client,
    };

    client->fd = new_socket(run, (int)(client - run->client));
    if (client->fd < 0)
        return false;
    if ((connect(client->fd, (const struct sockaddr *)&options->address,
                 options->address_len) == 0 || errno == EINPROGRESS) &&
        epoll_ctl(run->epoll, EPOLL_CTL_ADD, client->fd, &event) == 0) {
        run->result->opened++;
        return true;
    }
    hang_up(client, false);
    return false;
}

/* Most leave in the middle of the request, some before, some after an answer
 * has begun. */
static size_t choose_leaving(struct run *run, const struct message *message)
{
    double share = next_share(run);
    size_t total = message->head_len + message->body_len;

    if (share < 0.25)
        return (size_t)(share * 4 * (double)message->head_len) + 1;
    if (share < 0.5)
        return total;
    if (share < 0.75)
        return LEAVE_AT_ANSWER;
    return (size_t)((share - 0.75) * 4 * (double)total) + 1;
}

static void choose_message(struct run *run, struct client *client)
{
    int number = (int)(run->next % run->options->bodies);
    double share = next_share(run);

    client->leave_at = STAY;
    client->message = &run->good[number];
    if (share < run->options->bad)
        client->message = &run->bad[number];
    else if (share < run->options->bad + run->options->aborting)
        client->leave_at = choose_leaving(run, client->message);
}

/* To the next request. Gaps are all the same, or as of clients that know nothing
 * of each other. */
static void advance(struct run *run)
{
    const double second = (double)SECOND_NS;

    run->next++;
    if (run->rate <= 0)
        return;
    if (run->options->is_random)
        run->due_ns += (int64_t)(-log1p(-next_share(run)) / run->rate * second);
    else
        run->due_ns =
            run->start_ns + (int64_t)((double)run->next / run->rate * second);
}

static void begin(struct run *run, int64_t intended_ns, int64_t now)
{
    struct client *client = run->free;

    run->free = client->next_free;
    client->intended_ns = intended_ns;
    client->begun_ns = now;
    client->sent = 0;
    client->is_busy = true;
    client->digest = (struct digest){ 0 };
    client->before = run->oldest.before;
    client->after = &run->oldest;
    client->before->after = client;
    client->after->before = client;
    choose_message(run, client);
    response_begin(&client->response,
                   strcmp(run->options->method, "HEAD") == 0);
    advance(run);
    run->result->begun += counts(run, client);
    if (client->fd < 0 && !open_client(run, client)) {
        run->result->failed[FAILED_CONNECT] += counts(run, client);
        forget(run, client);
        return;
    }
    go_on_sending(run, client);
}

static void take(struct run *run, struct client *client, const char *bytes,
                 size_t len)
{
    struct response *response = &client->response;
    int64_t before = response->body_bytes;
    size_t taken = response_take(response, bytes, len);
    size_t body = (size_t)(response->body_bytes - before);

    digest_add(&client->digest, bytes + taken - body, body);
    if (response->state == RESPONSE_MALFORMED ||
        (response->state == RESPONSE_COMPLETE && taken < len))
        fail(run, client, FAILED_MALFORMED);
    else if (client->leave_at == LEAVE_AT_ANSWER)
        leave(run, client);
    else if (response->state == RESPONSE_COMPLETE)
        complete(run, client);
}

/* The server ended the connection, perhaps to tell that the answer ends. */
static void end(struct run *run, struct client *client, bool refused)
{
    if (!client->is_busy) {
        run->result->reaped++;
        hang_up(client, false);
    } else if (response_end(&client->response)) {
        client->response.closes = true;
        complete(run, client);
    } else {
        fail(run, client, refused ? FAILED_CONNECT : FAILED_CLOSED);
    }
}

/* Until the socket has nothing more, or the request is over. */
static void receive(struct run *run, struct client *client, bool to_the_end)
{
    ssize_t n = READ_BYTES;

    while (client->fd >= 0 && (n == READ_BYTES || to_the_end)) {
        n = recv(client->fd, run->buffer, READ_BYTES, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            end(run, client, n < 0 && errno == ECONNREFUSED);
            return;
        }
        run->result->received_bytes += n;
        if (client->is_busy)
            take(run, client, run->buffer, (size_t)n);
        else
            hang_up(client, true); /* an answer nobody asked for */
    }
}

static void handle(struct run *run, const struct epoll_event *event)
{
    struct client *client = event->data.ptr;

    if (client == NULL) /* the timer; set anew before each wait */
        return;
    if (client->fd >= 0 && client->is_busy && (event->events & EPOLLOUT) != 0)
        go_on_sending(run, client);
    if (client->fd >= 0 &&
        (event->events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0)
        receive(run, client,
                (event->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
}

/* Each is due at its time, however late it is now. */
static void begin_due(struct run *run, int64_t now)
{
    while (run->next < run->options->count) {
        int64_t due = run->due_ns;

        if (due > now || due >= run->end_ns)
            return;
        if (run->free != NULL) {
            begin(run, due, now);
        } else if (now - due > run->options->timeout_ns) {
            run->result->failed[FAILED_UNSENT] += due >= run->count_from_ns;
            run->result->begun += due >= run->count_from_ns;
            advance(run);
        } else {
            return;
        }
    }
}

/* At most one for each client: whoever fails at once, fails once a turn. */
static void begin_free(struct run *run, int64_t now)
{
    for (int i = run->clients; i > 0 && run->free != NULL; i--)
        if (now < run->end_ns && run->next < run->options->count)
            begin(run, now, now);
}

static void open_idle(struct run *run)
{
    for (int turn = 0; turn < OPENINGS_A_TURN && run->idle_opened < run->idle;
         turn++, run->idle_opened++)
        open_client(run, &run->client[run->clients + run->idle_opened]);
}

static void give_up_late(struct run *run, int64_t now)
{
    while (run->oldest.after != &run->oldest &&
           now - run->oldest.after->begun_ns > run->options->timeout_ns)
        fail(run, run->oldest.after, FAILED_TIMEOUT);
}

/* True while anything may still happen. */
static bool is_on(const struct run *run, int64_t now)
{
    bool to_come = run->next < run->options->count &&
                   (run->rate > 0 ? run->due_ns : now) < run->end_ns;

    return to_come || run->oldest.after != &run->oldest;
}

/* When something has to be done though no byte came: the next request, or a
 * timeout; a hundred times a second in any case. */
static void set_timer(struct run *run, int64_t now)
{
    int64_t at = now + SECOND_NS / 100;
    struct itimerspec timer = { 0 };

    if (run->rate > 0 && run->free != NULL && run->due_ns < at)
        at = run->due_ns;
    if (at <= now)
        at = now + 1;
    timer.it_value.tv_sec = at / SECOND_NS;
    timer.it_value.tv_nsec = at % SECOND_NS;
    timerfd_settime(run->timer, TFD_TIMER_ABSTIME, &timer, NULL);
}

static void watch(struct run *run, int64_t now)
{
    if (run->options->watched == 0 || now - run->watched_ns < SECOND_NS / 2)
        return;
    run->watched_ns = now;
    watch_add(&run->result->watch,
              run->result->counted_s +
                  (double)(now - run->start_ns) / (double)SECOND_NS);
}

static void loop(struct run *run)
{
    struct epoll_event event[EVENTS];
    int64_t now = now_ns();

    run->start_ns = run->due_ns = now;
    run->count_from_ns =
        now + (int64_t)(run->options->warmup_s * (double)SECOND_NS);
    run->end_ns = now + (int64_t)(run->options->duration_s /
                                  run->options->rounds * (double)SECOND_NS);
    while (is_on(run, now)) {
        int n;

        if (run->rate > 0)
            begin_due(run, now);
        else
            begin_free(run, now);
        open_idle(run);
        give_up_late(run, now);
        watch(run, now);
        set_timer(run, now);
        n = epoll_wait(run->epoll, event, EVENTS, -1);
        for (int i = 0; i < n; i++)
            handle(run, &event[i]);
        now = now_ns();
    }
    if (run->next >= run->options->count && now < run->end_ns)
        run->end_ns = now;
    run->result->counted_s +=
        (double)(run->end_ns - run->count_from_ns) / (double)SECOND_NS;
}

static void write_message(const struct options *options, int number, bool bad,
                          struct message *message)
{
    const struct body *body = &options->body[number];
    char length[64] = "";

    message->number = number;
    message->is_bad = bad;
    message->body = body->bytes;
    message->body_len = bad ? body->len / 2 : body->len;
    if (body->bytes != NULL)
        snprintf(length, sizeof length, "Content-Length: %zu\r\n",
                 message->body_len);
    message->head_len = (size_t)snprintf(
        message->head, sizeof message->head,
        "%s %s HTTP/1.1\r\nHost: %s\r\n%s%s%s\r\n", options->method,
        options->path, options->host, options->headers,
        options->reconnects ? "Connection: close\r\n" : "", length);
}

static bool prepare(struct run *run)
{
    const struct options *options = run->options;
    struct epoll_event event = { .events = EPOLLIN };
    int all = run->clients + run->idle;

    run->good = calloc((size_t)options->bodies, sizeof *run->good);
    run->bad = calloc((size_t)options->bodies, sizeof *run->bad);
    run->client = calloc((size_t)all, sizeof *run->client);
    run->buffer = malloc(READ_BYTES);
    run->epoll = epoll_create1(EPOLL_CLOEXEC);
    run->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (run->good == NULL || run->bad == NULL || run->client == NULL ||
        run->buffer == NULL || run->epoll < 0 || run->timer < 0)
        return false;
    for (int i = 0; i < options->bodies; i++) {
        write_message(options, i, false, &run->good[i]);
        write_message(options, i, true, &run->bad[i]);
    }
    for (int i = all - 1; i >= 0; i--)
        run->client[i].fd = -1;
    for (int i = run->clients - 1; i >= 0; i--) {
        run->client[i].next_free = run->free;
        run->free = &run->client[i];
    }
    run->oldest.before = run->oldest.after = &run->oldest;
    return epoll_ctl(run->epoll, EPOLL_CTL_ADD, run->timer, &event) == 0;
}

static void finish(struct run *run)
{
    for (int i = 0; run->client != NULL && i < run->clients + run->idle; i++)
        if (run->client[i].fd >= 0)
            close(run->client[i].fd);
    free(run->client);
    free(run->good);
    free(run->bad);
    free(run->buffer);
    if (run->epoll >= 0)
        close(run->epoll);
    if (run->timer >= 0)
        close(run->timer);
}

bool run_load(const struct options *options, double rate, int connections,
              uint64_t *digest, struct result *result)
{
    struct run run = { .options = options, .rate = rate, .digest = digest,
                       .random = options->seed + (uint64_t)result->rounds,
                       .clients = connections, .idle = options->idle,
                       .result = result };
    bool good;

    result->rounds++;
    result->wanted_rate += (rate - result->wanted_rate) / result->rounds;
    result->watch.pid = options->watched;
    good = prepare(&run);
    if (good)
        loop(&run);
    finish(&run);
    return good;
}
