#ifndef API_BASE64_H
#define API_BASE64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* RFC 4648's standard alphabet with padding, and nothing else: no white space,
 * no other alphabet, no bits behind the end. Neither allocates; any thread once
 * base64_select() has returned. */

/* Chooses a level that the processor has: number_selected(). Before the first
 * call all is portable. Once, at the start. False when there is no such level. */
bool base64_select(const char *level);

/* Characters that `bytes` take; `bytes` < 2^62. */
static inline size_t base64_length(size_t bytes)
{
    return (bytes + 2) / 3 * 4;
}

/* Exactly `bytes` bytes from base64_length(bytes) characters; NULL when they
 * are sound, else the first character that can't stand where it does. */
const char *base64_decode(const char *text, size_t bytes, uint8_t *out);

/* Returns the characters written. */
size_t base64_encode(const uint8_t *data, size_t bytes, char *out);

#endif
