#ifndef API_CODING_H
#define API_CODING_H

#include "api/wire.h"

/* Content codings: how a body is packed on its way. Bodies are unpacked into
 * whatever room their reader has, so that it can stop at any size; a body is
 * packed once, and one stream fills it to the last byte. */
enum coding { CODING_IDENTITY, CODING_GZIP, CODING_ZSTD, CODINGS };

/* By a request's Content-Encoding (NULL: none came). False when it is not
 * served: unknown, or one within another. */
bool coding_find(const char *content_encoding, enum coding *coding);

/* The one that Accept-Encoding prefers; identity unless it asks for another. */
enum coding coding_accept(const char *accept_encoding);

const char *coding_name(enum coding coding); /* "gzip" */
const char *coding_names(void); /* "gzip, zstd": what Accept-Encoding says */

enum coding_state {
    CODING_MORE, /* as much as was asked for, or as there was; go on */
    CODING_END,  /* that was all, and it was sound */
    CODING_BAD,  /* not what the coding allows */
    CODING_NO_MEMORY
};

struct unpacking {
    enum coding coding; /* not identity */
    void *stream;       /* the library's */
    struct bytes rest;  /* of the body, not read yet */
};

/* ERR_OVERLOADED, or ERR_REQUEST as below. The body outlives it. */
bool coding_open(struct unpacking *u, enum coding coding, struct bytes body,
                 struct error *err);
void coding_close(struct unpacking *u);

/* The next bytes, at most `room`; *len of them. CODING_MORE: the room is full.
 * CODING_BAD is ERR_REQUEST, where "": cut, damaged, something behind the end;
 * CODING_NO_MEMORY is ERR_OVERLOADED. */
enum coding_state coding_read(struct unpacking *u, uint8_t *out, size_t room,
                              size_t *len, struct error *err);

/* How long a body says it is when unpacked, which it may be wrong about; 0 when
 * it does not say. */
uint64_t coding_announced(enum coding coding, struct bytes body);

/* What unpacking takes beside its result. */
size_t coding_memory(enum coding coding);

/* Appends `body`, packed. `numbers` says that it is mostly numbers, in which
 * hardly anything comes twice. False when that would not be shorter, `out` being
 * as it was, or for want of memory, which makes `out` a failed one: the body
 * then goes as it is. */
bool coding_pack(enum coding coding, struct bytes body, bool numbers,
                 struct buffer *out);

#endif
