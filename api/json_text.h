#ifndef API_JSON_TEXT_H
#define API_JSON_TEXT_H

#include "core/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A JSON string where it stands in the body: the bytes between its quotes,
 * found valid (UTF-8, escapes, no control character) and still escaped. The
 * byte behind it is its closing quote. Reading allocates nothing. */
struct json_text {
    const char *at;
    size_t len;
    bool escaped; /* there is a backslash in it */
};

/* Reads the string whose first byte, after the opening quote, is `start`.
 * NULL when it is sound; else what is wrong at text->at + text->len. */
const char *json_text_read(const char *start, const char *end,
                           struct json_text *text);

/* The next character of a sound string, which moves `at` behind it; the
 * closing quote gives JSON_TEXT_END. */
enum { JSON_TEXT_END = 0x110000 };
uint32_t json_text_next(const char **at);

/* Unescaped, NUL-terminated, cut between two characters to fit `size`; a NUL
 * of the client's becomes U+FFFD. text.len + 1 bytes are always enough.
 * Returns out. */
char *json_text_copy(struct json_text text, char *out, size_t size);

/* Equal to `word`, which is ASCII. */
bool json_text_is(struct json_text text, const char *word);

/* Bytes of the UTF-8 character at `at`, 0 when it is none: overlong, a
 * surrogate, past U+10FFFF, cut off. */
size_t json_text_character(const char *at, const char *end);

/* Any NUL-terminated bytes as a JSON string in its quotes; what is not UTF-8
 * becomes U+FFFD. */
void json_text_write(const char *text, struct buffer *out);

#endif
