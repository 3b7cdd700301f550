#include "tests/faults/raw.h"

#include "tests/load/response.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { DEADLINE_MS = 10000, READ_BYTES = 1 << 16, BLOCK_BYTES = 1 << 16 };

static const int64_t MS_NS = 1000000;

struct conversation {
    const struct raw_script *script;
    struct raw_answer *answer;
    int fd;
    size_t size;          /* of the answer's bytes */
    size_t len, tail_len; /* of the script */
    char *block;          /* the tail, many times: few sends */
    size_t block_len;
    int64_t total, start_ns, next_ns, deadline_ns;
    bool broken;          /* sending */
};

int64_t raw_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int raw_connect(uint16_t port)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons(port) };
    int yes = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        fail_msg("connect to port %d: %s", port, strerror(errno));
    return fd;
}

static size_t least(int64_t a, int64_t b)
{
    return (size_t)(a < b ? a : b);
}

/* What comes next: a part of the bytes, or of some rounds of the tail. */
static size_t next_part(const struct conversation *c, const char **part)
{
    const struct raw_script *script = c->script;
    int64_t sent = c->answer->sent, limit = (int64_t)script->piece;
    size_t at, len;

    if (sent < (int64_t)c->len) {
        *part = script->bytes + sent;
        len = c->len - (size_t)sent;
    } else {
        at = (size_t)(sent - (int64_t)c->len) % c->tail_len;
        *part = c->block + at;
        len = least((int64_t)(c->block_len - at), c->total - sent);
    }
    return limit == 0 ? len : least((int64_t)len, limit);
}

static void end_sending(struct conversation *c)
{
    const struct linger now = { .l_onoff = 1 };

    c->answer->sent_all = true;
    if (c->script->end == RAW_RESET)
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    else if (c->script->end == RAW_HALF_CLOSE)
        shutdown(c->fd, SHUT_WR);
}

static void send_more(struct conversation *c)
{
    const char *part;
    size_t len = next_part(c, &part);
    ssize_t n = send(c->fd, part, len, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n < 0 && errno != EAGAIN && errno != EINTR)
        c->broken = true;
    if (n > 0)
        c->answer->sent += n;
    if (n > 0 && c->script->pause_ms > 0)
        c->next_ns = raw_now_ns() + c->script->pause_ms * MS_NS;
    if (c->answer->sent == c->total)
        end_sending(c);
}

static void receive(struct conversation *c)
{
    struct raw_answer *answer = c->answer;
    ssize_t n;

    if (c->size - answer->len <= READ_BYTES) {
        c->size = c->size * 2 + 2 * READ_BYTES;
        answer->bytes = realloc(answer->bytes, c->size);
        assert_non_null(answer->bytes);
    }
    n = recv(c->fd, answer->bytes + answer->len, READ_BYTES, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    answer->closed = n <= 0;
    answer->was_reset = n < 0;
    if (n > 0 && answer->len == 0)
        answer->first_ns = raw_now_ns() - c->start_ns;
    answer->len += n > 0 ? (size_t)n : 0;
}

/* Cuts the bytes so far into replies; cheap enough to do it anew each time
 * for the few scripts that wait for some. */
static void parse(struct raw_answer *answer, bool is_head)
{
    size_t at = 0;

    answer->replies = 0;
    answer->malformed = false;
    while (at < answer->len && answer->replies < RAW_REPLIES) {
        struct raw_reply *reply = &answer->reply[answer->replies];
        struct response response;
        const char *start = answer->bytes + at;

        response_begin(&response, is_head);
        at += response_take(&response, start, answer->len - at);
        if (answer->closed)
            response_end(&response);
        if (response.state != RESPONSE_COMPLETE) {
            answer->malformed = true;
            return;
        }
        *reply = (struct raw_reply){
            .status = response.status, .interim = response.interim,
            .closes = response.closes, .head = start,
            .head_len = (size_t)response.head_bytes,
            .body = start + response.head_bytes,
            .body_len = (size_t)response.body_bytes,
        };
        answer->replies++;
    }
}

static bool is_over(struct conversation *c)
{
    const struct raw_script *script = c->script;

    if (c->answer->closed)
        return true;
    if (c->answer->sent_all && script->end >= RAW_CLOSE)
        return true;
    if (script->replies == 0)
        return false;
    parse(c->answer, script->is_head);
    return c->answer->replies >= script->replies;
}

static void repeat_tail(struct conversation *c)
{
    const struct raw_script *script = c->script;

    if (script->tail == NULL)
        return;
    c->tail_len = script->tail_len > 0 ? script->tail_len
                                       : strlen(script->tail);
    c->block = malloc(c->tail_len + BLOCK_BYTES);
    assert_non_null(c->block);
    while (c->block_len < BLOCK_BYTES) {
        memcpy(c->block + c->block_len, script->tail, c->tail_len);
        c->block_len += c->tail_len;
    }
}

static void step(struct conversation *c)
{
    const struct raw_script *script = c->script;
    bool sends = !c->answer->sent_all && !c->broken;
    bool due = c->next_ns <= raw_now_ns();
    int64_t until = sends && !due ? c->next_ns : c->deadline_ns;
    struct pollfd ready = { .fd = c->fd };

    if (sends && due)
        ready.events |= POLLOUT;
    if (!sends || !script->reads_last)
        ready.events |= POLLIN;
    poll(&ready, 1, (int)((until - raw_now_ns()) / MS_NS) + 1);
    if ((ready.revents & (POLLOUT | POLLERR)) != 0 && sends && due)
        send_more(c);
    if ((ready.revents & (POLLIN | POLLHUP | POLLERR)) != 0 &&
        (ready.events & POLLIN) != 0)
        receive(c);
}

void raw_run(uint16_t port, const struct raw_script *script,
             struct raw_answer *answer)
{
    struct conversation c = {
        .script = script, .answer = answer, .fd = raw_connect(port),
        .len = script->len > 0 ? script->len : strlen(script->bytes),
        .start_ns = raw_now_ns(),
    };

    repeat_tail(&c);
    c.total = (int64_t)c.len + (int64_t)c.tail_len * script->tails;
    c.deadline_ns = c.start_ns + MS_NS * (script->deadline_ms > 0
                                              ? script->deadline_ms
                                              : DEADLINE_MS);
    *answer = (struct raw_answer){ 0 };
    if (c.total == 0)
        end_sending(&c);
    while (!is_over(&c) && raw_now_ns() < c.deadline_ns)
        step(&c);
    answer->end_ns = raw_now_ns() - c.start_ns;
    close(c.fd);
    free(c.block);
    if (answer->bytes == NULL)
        answer->bytes = calloc(1, 1);
    assert_non_null(answer->bytes);
    answer->bytes[answer->len] = '\0';
    parse(answer, script->is_head);
}

void raw_say(uint16_t port, const char *text, struct raw_answer *answer)
{
    raw_run(port, &(struct raw_script){ .bytes = text }, answer);
}

void raw_free(struct raw_answer *answer)
{
    free(answer->bytes);
    answer->bytes = NULL;
}

int raw_status(const struct raw_answer *answer)
{
    return answer->replies > 0 ? answer->reply[0].status : 0;
}

char *raw_header(const struct raw_reply *reply, const char *name, char *out,
                 size_t size)
{
    const char *at = reply->head, *end = reply->head + reply->head_len;
    size_t len = strlen(name);

    for (; (at = memchr(at, '\n', (size_t)(end - at))) != NULL;) {
        at++;
        if ((size_t)(end - at) <= len || strncasecmp(at, name, len) != 0 ||
            at[len] != ':')
            continue;
        at += len + 1;
        at += strspn(at, " \t");
        snprintf(out, size, "%.*s", (int)strcspn(at, "\r\n"), at);
        return out;
    }
    return NULL;
}
