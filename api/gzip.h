#ifndef API_GZIP_H
#define API_GZIP_H

#include "api/coding.h"

/* gzip (RFC 1952) by zlib, which no other file sees. For coding.c alone. One
 * member is one body: what follows it is told apart by others differently. */

enum { GZIP_MEMORY_BYTES = 64 * 1024 }; /* of a stream that unpacks */

void *gzip_open(void); /* NULL: no memory */
void gzip_close(void *stream);

/* Unpacks from *rest, which moves on, until the room is full, *rest is empty or
 * the member ends: length and checksum were right then. *why says what is bad.
 */
enum coding_state gzip_read(void *stream, struct bytes *rest, uint8_t *out,
                            size_t room, size_t *len, const char **why);

/* What the last bytes say; 0 when that can't be. */
uint64_t gzip_announced(struct bytes body);

/* Returns the bytes written, 0 when the room was not enough. With `numbers` it
 * looks for nothing that comes twice. */
size_t gzip_pack(struct bytes body, bool numbers, uint8_t *out, size_t room);

#endif
