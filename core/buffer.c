#include "core/buffer.h"

#include "core/pages.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_BYTES = 1024 };

void buffer_init(struct buffer *buffer, size_t cap_bytes)
{
    *buffer = (struct buffer){ .cap_bytes = cap_bytes };
}

void buffer_free(struct buffer *buffer)
{
    free(buffer->data);
    buffer_init(buffer, buffer->cap_bytes);
}

/* By half, not by two: the last step of a large reply wastes less. */
static bool grow(struct buffer *buffer, size_t need)
{
    size_t size = buffer->size + buffer->size / 2;

    if (size < FIRST_BYTES)
        size = FIRST_BYTES;
    if (size < need)
        size = need;

    size = (size + BUFFER_ALIGNMENT - 1) / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT;

    uint8_t *data = buffer->data == NULL
                        ? aligned_alloc(BUFFER_ALIGNMENT, size)
                        : realloc(buffer->data, size);

    if (data == NULL)
        return false;
    pages_mapped(data, size);
    buffer->data = data;
    buffer->size = size;
    return true;
}

void *buffer_room(struct buffer *buffer, size_t bytes)
{
    if (buffer->failed)
        return NULL;
    if (bytes > SIZE_MAX / 2 - buffer->len)
        buffer->failed = true;
    else if (buffer->size - buffer->len < bytes)
        buffer->failed = !grow(buffer, buffer->len + bytes);
    return buffer->failed ? NULL : buffer->data + buffer->len;
}

void buffer_added(struct buffer *buffer, size_t bytes)
{
    buffer->len += bytes;
    if (buffer->len > buffer->cap_bytes) {
        buffer->failed = true;
        buffer->over_cap = true;
    }
}

void buffer_append(struct buffer *buffer, const void *data, size_t len)
{
    void *room = buffer_room(buffer, len);

    if (room == NULL || len == 0)
        return;
    memcpy(room, data, len);
    buffer_added(buffer, len);
}

void buffer_string(struct buffer *buffer, const char *text)
{
    buffer_append(buffer, text, strlen(text));
}

void buffer_format(struct buffer *buffer, const char *format, ...)
{
    va_list args, again;

    va_start(args, format);
    va_copy(again, args);

    int len = vsnprintf(NULL, 0, format, args);
    char *room = len < 0 ? NULL : buffer_room(buffer, (size_t)len + 1);

    if (room != NULL) {
        vsnprintf(room, (size_t)len + 1, format, again);
        buffer_added(buffer, (size_t)len);
    }
    va_end(again);
    va_end(args);
}

void buffer_trim(struct buffer *buffer)
{
    uint8_t *data = buffer->len == 0 ? NULL
                                     : realloc(buffer->data, buffer->len);

    if (data == NULL)
        return;
    buffer->data = data;
    buffer->size = buffer->len;
}

void *buffer_take(struct buffer *buffer, size_t *len)
{
    if (buffer->failed)
        return NULL;

    void *data = buffer->data;

    *len = buffer->len;
    buffer->data = NULL;
    buffer_init(buffer, buffer->cap_bytes);
    return data;
}
