#include "api/base64.h"

#include "api/base64_levels.h"

#include <string.h>

static const char alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

enum { NONE = 0x80 }; /* a bit that no value has, so that four can be or'ed */

/* By character; built from ranges so that it can be read. */
static const uint8_t values[256] = {
#define NO(first, last) [first ... last] = NONE
    NO(0, '*'), ['+'] = 62, NO(',', '.'), ['/'] = 63,
    ['0'] = 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, NO(':', '@'),
    ['A'] = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18,
    19, 20, 21, 22, 23, 24, 25, NO('[', '`'),
    ['a'] = 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42,
    43, 44, 45, 46, 47, 48, 49, 50, 51, NO('{', 255),
#undef NO
};

static uint8_t value(char c)
{
    return values[(uint8_t)c];
}

static const char *first_wrong(const char *text, int characters)
{
    for (int i = 0; i < characters; i++) {
        if (value(text[i]) == NONE)
            return text + i;
    }
    return NULL;
}

/* The last four characters, of which one or two are padding. */
static const char *decode_rest(const char *text, size_t bytes, uint8_t *out)
{
    int characters = (int)bytes + 1;
    const char *wrong = first_wrong(text, characters);

    if (wrong != NULL)
        return wrong;

    uint32_t bits = (uint32_t)value(text[0]) << 18 |
                    (uint32_t)value(text[1]) << 12 |
                    (bytes == 2 ? (uint32_t)value(text[2]) << 6 : 0);

    out[0] = (uint8_t)(bits >> 16);
    if (bytes == 2)
        out[1] = (uint8_t)(bits >> 8);
    if ((bits & (bytes == 2 ? 0xFFu : 0xFFFFu)) != 0)
        return text + characters - 1;
    for (int i = characters; i < 4; i++) {
        if (text[i] != '=')
            return text + i;
    }
    return NULL;
}

static size_t do_nothing_decode(const char *text, size_t bytes, uint8_t *out)
{
    (void)text;
    (void)bytes;
    (void)out;
    return 0;
}

static size_t do_nothing_encode(const uint8_t *data, size_t bytes, char *out)
{
    (void)data;
    (void)bytes;
    (void)out;
    return 0;
}

static const struct level {
    const char *name;
    size_t (*decode)(const char *text, size_t bytes, uint8_t *out);
    size_t (*encode)(const uint8_t *data, size_t bytes, char *out);
} levels[] = {
    { "portable", do_nothing_decode, do_nothing_encode },
#if defined(__x86_64__)
    { "avx2", base64_decode_avx2, base64_encode_avx2 },
    { "avx512", base64_decode_avx512, base64_encode_avx512 },
#endif
};

static const struct level *chosen = levels;

bool base64_select(const char *level)
{
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (strcmp(levels[i].name, level) == 0) {
            chosen = &levels[i];
            return true;
        }
    return false;
}

const char *base64_decode(const char *text, size_t bytes, uint8_t *out)
{
    size_t done = chosen->decode(text, bytes, out);

    bytes -= done;
    text += done / 3 * 4;
    out += done;
    for (; bytes >= 3; bytes -= 3, text += 4, out += 3) {
        uint8_t a = value(text[0]), b = value(text[1]);
        uint8_t c = value(text[2]), d = value(text[3]);

        if (((a | b | c | d) & NONE) != 0)
            return first_wrong(text, 4);
        out[0] = (uint8_t)(a << 2 | b >> 4);
        out[1] = (uint8_t)(b << 4 | c >> 2);
        out[2] = (uint8_t)(c << 6 | d);
    }
    return bytes == 0 ? NULL : decode_rest(text, bytes, out);
}

size_t base64_encode(const uint8_t *data, size_t bytes, char *out)
{
    char *const start = out;
    size_t done = chosen->encode(data, bytes, out);

    bytes -= done;
    data += done;
    out += done / 3 * 4;
    for (; bytes >= 3; bytes -= 3, data += 3, out += 4) {
        uint32_t bits = (uint32_t)data[0] << 16 | (uint32_t)data[1] << 8 |
                        data[2];

        out[0] = alphabet[bits >> 18];
        out[1] = alphabet[bits >> 12 & 63];
        out[2] = alphabet[bits >> 6 & 63];
        out[3] = alphabet[bits & 63];
    }
    if (bytes > 0) {
        uint32_t bits = (uint32_t)data[0] << 16 |
                        (bytes == 2 ? (uint32_t)data[1] << 8 : 0);

        out[0] = alphabet[bits >> 18];
        out[1] = alphabet[bits >> 12 & 63];
        out[2] = bytes == 2 ? alphabet[bits >> 6 & 63] : '=';
        out[3] = '=';
        out += 4;
    }
    return (size_t)(out - start);
}
