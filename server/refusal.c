#include "server/refusal.h"

#include "api/problem.h"

#include <sys/socket.h>

void refusal_write(const struct refusal *refusal, struct buffer *out)
{
    enum error_code code = refusal->error->code;
    struct buffer body;

    buffer_init(&body, REFUSAL_BYTES / 2);
    problem_encode(refusal->error, refusal->request_id, &body);
    buffer_format(out,
                  "HTTP/1.1 %d %s\r\n"
                  "Content-Type: application/problem+json\r\n"
                  "Content-Length: %zu\r\n"
                  "X-Request-ID: %s\r\n"
                  "Server-Timing: queue;dur=0.000, decode;dur=0.000, "
                  "compute;dur=0.000, encode;dur=0.000\r\n"
                  "Connection: close\r\n",
                  problem_status(code), problem_title(code), body.len,
                  refusal->request_id);
    if (refusal->header_name != NULL)
        buffer_format(out, "%s: %s\r\n", refusal->header_name,
                      refusal->header_value);
    buffer_string(out, "\r\n");
    buffer_append(out, body.data, body.len);
    out->failed = out->failed || body.failed;
    buffer_free(&body);
}

void refusal_send(int fd, const struct refusal *refusal)
{
    struct buffer answer;

    buffer_init(&answer, REFUSAL_BYTES);
    refusal_write(refusal, &answer);
    if (!answer.failed)
        (void)!send(fd, answer.data, answer.len, MSG_DONTWAIT | MSG_NOSIGNAL);
    buffer_free(&answer);
}
