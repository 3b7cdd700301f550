#ifndef SERVER_HEADERS_H
#define SERVER_HEADERS_H

#include "core/error.h"

#include <stdbool.h>
#include <stdint.h>

enum { HEADERS_LISTS = 3 };

/* The headers of one request: those the service uses, and whether the request
 * may be trusted to end where it seems to.
 *
 * The HTTP library accepts requests that hide another one from whoever reads
 * them differently (a proxy): here they are refused. Strings are the library's
 * and live as long as the request; but a list that came in several lines is
 * joined, and ours: headers_free(). */
struct headers {
    const char *accept;
    const char *accept_encoding;
    const char *if_none_match;
    const char *content_type;
    const char *content_encoding;
    const char *request_id;
    const char *authorization; /* never to be logged, nor the next */
    const char *api_key;
    bool expects_continue;
    int64_t length; /* 0 without one; INT64_MAX stands for more */
    bool is_chunked;

    /* How many there were. */
    int hosts, lengths, encodings, authorizations, api_keys;
    const char *bad_name; /* one that is no token, or glued */
    bool bad_length, bad_encoding, bad_value;
    char *joined[HEADERS_LISTS]; /* of the first three, or NULL */
};

/* One header as it came; `value` may be NULL. In any order. */
void headers_add(struct headers *headers, const char *name, const char *value);

void headers_free(struct headers *headers);

/* After the last. ERR_REQUEST, where "", when the request is malformed or
 * could be read in two ways; the connection must then be closed. `method`,
 * `version` and `target` are those of the request line. */
bool headers_check(const struct headers *headers, const char *method,
                   const char *version, const char *target, struct error *err);

/* True when a body follows the headers. */
bool headers_announce_body(const struct headers *headers);

#endif
