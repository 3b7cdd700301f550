#ifndef API_ZSTD_H
#define API_ZSTD_H

#include "api/coding.h"

/* Zstandard (RFC 8878) by libzstd, which no other file sees. For coding.c alone.
 * One frame is one body, and its window is at most the 8 MiB that RFC 9659
 * allows in HTTP. */

enum { ZSTD_MEMORY_BYTES = 9 * 1024 * 1024 }; /* of a stream that unpacks */

/* libzstd also reads formats that nobody else calls zstd, and frames without
 * content. */
bool zstd_begins(struct bytes body);

void *zstd_open(struct bytes body); /* NULL: no memory */
void zstd_close(void *stream);

/* Unpacks from *rest, which moves on, until the room is full, *rest is empty or
 * the frame ends: length and checksum, where it has them, were right then. *why
 * says what is bad. */
enum coding_state zstd_read(void *stream, struct bytes *rest, uint8_t *out,
                            size_t room, size_t *len, const char **why);

/* What the frame says of itself; 0 when it does not. */
uint64_t zstd_announced(struct bytes body);

/* Returns the bytes written, 0 when the room was not enough. */
size_t zstd_pack(struct bytes body, uint8_t *out, size_t room);

#endif
