#include "server/refusal.h"

#include "api/problem.h"

#include <sys/socket.h>

enum { ANSWER_BYTES = 16 * 1024 };

static const char *reason(int status)
{
    return status == 408   ? "Request Timeout"
           : status == 413 ? "Content Too Large"
           : status == 503 ? "Service Unavailable"
                           : "Bad Request";
}

void refusal_send(int fd, const struct error *err, const char *request_id)
{
    int status = problem_status(err->code);
    struct buffer body, answer;

    buffer_init(&body, ANSWER_BYTES / 2);
    buffer_init(&answer, ANSWER_BYTES);
    problem_encode(err, request_id, &body);
    buffer_format(&answer,
                  "HTTP/1.1 %d %s\r\n"
                  "Content-Type: application/problem+json\r\n"
                  "Content-Length: %zu\r\n"
                  "X-Request-ID: %s\r\n"
                  "Server-Timing: queue;dur=0.000, decode;dur=0.000, "
                  "compute;dur=0.000, encode;dur=0.000\r\n"
                  "%sConnection: close\r\n\r\n",
                  status, reason(status), body.len, request_id,
                  status == 503 ? "Retry-After: 1\r\n" : "");
    buffer_append(&answer, body.data, body.len);
    if (!body.failed && !answer.failed)
        (void)!send(fd, answer.data, answer.len, MSG_DONTWAIT | MSG_NOSIGNAL);
    buffer_free(&body);
    buffer_free(&answer);
}
