#ifndef API_BASE64_LEVELS_H
#define API_BASE64_LEVELS_H

#include <stddef.h>
#include <stdint.h>

/* What base64.c chooses from. Each does as many whole groups, of 3 bytes and 4
 * characters, as pay, stops before one that has a character of no value, and
 * returns the bytes that it did; the rest is for one group at a time. Neither
 * reads nor writes past what it is given. */
size_t base64_decode_avx2(const char *text, size_t bytes, uint8_t *out);
size_t base64_decode_avx512(const char *text, size_t bytes, uint8_t *out);
size_t base64_encode_avx2(const uint8_t *data, size_t bytes, char *out);
size_t base64_encode_avx512(const uint8_t *data, size_t bytes, char *out);

#endif
