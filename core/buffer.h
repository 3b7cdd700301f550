#ifndef CORE_BUFFER_H
#define CORE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Growing output bytes on the heap: a reply under construction.
 *
 * Appending after a failure does nothing (sticky), so a writer checks once at
 * the end. The cap is the largest reply allowed: passing it is a failure too.
 * Growth is by realloc, which moves pages instead of copying them for large
 * buffers. Memory that did not have to grow begins at a multiple of
 * BUFFER_ALIGNMENT. Not thread safe. */

enum { BUFFER_ALIGNMENT = 64 };

struct buffer {
    uint8_t *data;
    size_t len;
    size_t size; /* bytes at data */
    size_t cap_bytes;
    bool failed;    /* out of memory, or over the cap */
    bool over_cap;  /* which of the two */
};

void buffer_init(struct buffer *buffer, size_t cap_bytes);
void buffer_free(struct buffer *buffer);

/* A place for `bytes` more, not counted yet: write there, then
 * buffer_added(). More may be asked for than is written, or than the cap
 * allows: that binds what is added. NULL after a failure. */
void *buffer_room(struct buffer *buffer, size_t bytes);
void buffer_added(struct buffer *buffer, size_t bytes);

void buffer_append(struct buffer *buffer, const void *data, size_t len);
void buffer_string(struct buffer *buffer, const char *text);
void buffer_format(struct buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Gives back what is behind the end, which someone may have touched. */
void buffer_trim(struct buffer *buffer);

/* Hands data and len to the caller, who frees data with free(); the buffer is
 * empty again. Returns NULL when the buffer has failed. */
void *buffer_take(struct buffer *buffer, size_t *len);

#endif
