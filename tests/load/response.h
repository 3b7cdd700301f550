#ifndef TESTS_LOAD_RESPONSE_H
#define TESTS_LOAD_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where an HTTP/1.1 response ends, found as its bytes come in, in any pieces.
 *
 * Keeps the status, whether the connection closes, and the length of head and
 * body; the bytes stay with the caller. Knows what attnd and a proxy before it
 * send: bodies with a Content-Length, none after HEAD, 204 and 304, interim
 * 1xx responses (skipped), and a body up to the end of a connection that
 * announced its closing. Chunked bodies count as malformed. */
enum response_state {
    RESPONSE_HEAD,
    RESPONSE_BODY,
    RESPONSE_COMPLETE,
    RESPONSE_MALFORMED
};

struct response {
    enum response_state state;
    int status;
    bool closes;        /* the connection can't be used again */
    bool has_length;
    bool after_head;    /* answers a HEAD request */
    int interim;        /* 1xx responses before this one */
    int64_t length;     /* Content-Length */
    int64_t head_bytes, body_bytes; /* taken so far, 1xx included in the head */
    bool has_status;
    size_t line_len;    /* may exceed the size: the rest of a line is dropped */
    char line[256];     /* the head's current line */
};

void response_begin(struct response *response, bool after_head);

/* Takes bytes up to the end of this response; how many it took. */
size_t response_take(struct response *response, const char *bytes, size_t len);

/* The connection has ended. True when that completes the response. */
bool response_end(struct response *response);

#endif
