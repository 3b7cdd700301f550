/* Any bytes as all that a client says on one connection, before it shuts its
 * side. They go through a pair of sockets to the service, which runs in this
 * process as main starts it, but for a port. Properties:
 *   - nothing is read or written out of place (the sanitizer says);
 *   - a conversation ends, and leaves no connection, job or memory behind;
 *   - each answer is HTTP with a status of the contract, and as JSON when it
 *     says that it is;
 *   - there is one for each request that a strict reader finds, up to one that
 *     closes, and none more: nothing that is hidden in a request is answered;
 *   - a request that ends in doubt is refused, and the connection closed;
 *   - what went before doesn't change the answer to a request. */

#include "tests/fuzz/http_answers.h"
#include "tests/fuzz/http_length.h"
#include "tests/fuzz/http_service.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check_answers(struct plain_reader said, struct plain_reader heard)
{
    struct plain_request request;
    struct plain_answer answer = { 0 };
    bool is_last = false;

    while (plain_next(&said, &request)) {
        bool is_whole = request.is_complete && !request.is_doubtful;

        if (!plain_answer(&heard, request.is_head, &answer)) {
            /* At the end of what it hears, the library forgets who waits to be
             * told to go on. */
            assert(!is_whole || request.expects);
            return;
        }
        assert(is_whole || answer.status >= 400);
        assert(!request.is_doubtful || answer.closes);
        is_last = answer.closes || !is_whole;
        if (is_last)
            break;
    }
    /* A bad Content-Length has the library write its answer's headers twice. */
    assert(heard.at == heard.end || (is_last && !answer.is_ours));
}

/* What the service says, without what changes from one time to the next. */
static size_t keep_steady(const struct buffer *heard, char *out)
{
    struct plain_reader in = { (char *)heard->data,
                               (char *)heard->data + heard->len };
    struct plain_line line;
    size_t len = 0;

    skip_interim(&in);
    while (plain_line(&in, &line)) {
        if (strncmp(line.text, "Date:", 5) == 0 ||
            strncmp(line.text, "Server-Timing:", 14) == 0)
            continue;
        memcpy(out + len, line.text, line.len);
        len += line.len;
    }
    return len;
}

static void check_control(void)
{
    static const char request[] =
        "POST /attention HTTP/1.1\r\nHost: a\r\nX-Request-ID: control\r\n"
        "Content-Type: application/json\r\nContent-Length: 79\r\n"
        "Connection: close\r\n\r\n"
        "{\"query\":[[1,0.25,-3,1e-3],[0,2,1,0],[1,1,0,2]],\"num_heads\":2,"
        "\"is_causal\":true}";
    static char first[4096];
    static size_t first_len;
    char now[4096];
    struct buffer heard;
    size_t len;

    service_converse(request, sizeof request - 1, &heard);
    assert(heard.len < sizeof now);
    len = keep_steady(&heard, now);
    if (first_len == 0) {
        assert(strncmp(now, "HTTP/1.1 200 OK", 15) == 0);
        memcpy(first, now, len);
        first_len = len;
    }
    assert(len == first_len && memcmp(now, first, len) == 0);
    buffer_free(&heard);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    enum { CONTROL_EVERY = 64 };
    static unsigned conversations;
    const char *said = (const char *)data;
    struct buffer heard;

    if (conversations == 0)
        service_start();
    if (conversations++ % CONTROL_EVERY == 0)
        check_control();
    service_converse(said, len, &heard);
    check_answers((struct plain_reader){ said, said + len },
                  (struct plain_reader){ (char *)heard.data,
                                         (char *)heard.data + heard.len });
    buffer_free(&heard);
    return 0;
}
