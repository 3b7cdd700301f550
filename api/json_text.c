#include "api/json_text.h"

#include <string.h>

/* Signed, so that what is not ASCII is below what is. */
typedef int8_t i8x16 __attribute__((vector_size(16)));
typedef uint64_t u64x2 __attribute__((vector_size(16)));

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

static i8x16 not_plain(const char *p)
{
    i8x16 x;

    memcpy(&x, p, sizeof x);
    return (x < ' ') | (x == '"') | (x == '\\');
}

/* Past the bytes that need no look: printable ASCII but '"' and '\\'. Sixty-four
 * at a time, because a base64 tensor is one long run of them. */
static const char *skip_plain(const char *p, const char *end)
{
    while (end - p >= 64) {
        u64x2 found = (u64x2)(not_plain(p) | not_plain(p + 16) |
                              not_plain(p + 32) | not_plain(p + 48));

        if ((found[0] | found[1]) != 0)
            break;
        p += 64;
    }
    while (end - p >= 16) {
        u64x2 found = (u64x2)not_plain(p);

        if ((found[0] | found[1]) != 0)
            break;
        p += 16;
    }
    while (p < end && is_plain((unsigned char)*p))
        p++;
    return p;
}

size_t json_text_character(const char *at, const char *end)
{
    const unsigned char *p = (const unsigned char *)at;
    size_t room = (size_t)(end - at);

    if (room == 0)
        return 0;
    if (p[0] < 0x80)
        return 1;

    /* RFC 3629's table: what the lead says about the second byte. */
    size_t len = p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3
                 : p[0] < 0xF5 ? 4 : 0;
    unsigned char low = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
    unsigned char high = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;

    if (len == 0 || room < len || p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    }
    return len;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The 16 bits of "\uXXXX" at `p`; -1 when it is none. */
static int32_t code_unit(const char *p, const char *end)
{
    int32_t unit = 0;

    if (end - p < 6 || p[0] != '\\' || p[1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        int digit = hex_digit(p[i]);

        if (digit < 0)
            return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

/* Bytes of the escape at `p`, 0 when it is none. */
static size_t escape_length(const char *p, const char *end)
{
    if (end - p < 2)
        return 0;
    if (p[1] != 'u')
        return p[1] != '\0' && strchr("\"\\/bfnrt", p[1]) != NULL ? 2 : 0;

    int32_t unit = code_unit(p, end);

    if (unit < 0 || (unit & 0xFC00) == 0xDC00)
        return 0;
    if ((unit & 0xFC00) != 0xD800)
        return 6;
    return (code_unit(p + 6, end) & 0x1FFC00) == 0xDC00 ? 12 : 0;
}

const char *json_text_read(const char *start, const char *end,
                           struct json_text *text)
{
    const char *p = start;

    *text = (struct json_text){ .at = start };
    for (;;) {
        p = skip_plain(p, end);
        text->len = (size_t)(p - start);
        if (p == end)
            return "the string does not end";
        if (*p == '"')
            return NULL;
        if ((unsigned char)*p < 0x20)
            return "a control character in a string must be escaped";

        bool escape = *p == '\\';
        size_t len = escape ? escape_length(p, end)
                            : json_text_character(p, end);

        if (len == 0)
            return escape ? "this is no escape that JSON knows, or half of a "
                            "surrogate pair"
                          : "this is not valid UTF-8";
        text->escaped |= escape;
        p += len;
    }
}

static uint32_t next_escaped(const char **at)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    const char *p = *at;
    const char *end = p + 12; /* sound: as long as it says */

    if (p[1] != 'u') {
        const char *letter = strchr(from, p[1]);

        *at += 2;
        return (uint32_t)(letter == NULL ? p[1] : to[letter - from]);
    }

    uint32_t unit = (uint32_t)code_unit(p, p + 6);

    *at += 6;
    if ((unit & 0xFC00) != 0xD800)
        return unit;
    *at += 6;
    return 0x10000 + ((unit & 0x3FF) << 10) +
           ((uint32_t)code_unit(p + 6, end) & 0x3FF);
}

uint32_t json_text_next(const char **at)
{
    const unsigned char *p = (const unsigned char *)*at;

    if (*p == '"')
        return JSON_TEXT_END;
    if (*p == '\\')
        return next_escaped(at);

    int more = *p < 0x80 ? 0 : *p < 0xE0 ? 1 : *p < 0xF0 ? 2 : 3;
    uint32_t character = more == 0 ? *p : *p & (0x3Fu >> more);

    for (int i = 1; i <= more; i++)
        character = character << 6 | (p[i] & 0x3Fu);
    *at += 1 + more;
    return character;
}

static size_t put_utf8(uint32_t c, char *out)
{
    size_t len = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = { 0, 0, 0xC0, 0xE0, 0xF0 };

    for (size_t i = len - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    out[0] = (char)(lead[len] | c);
    return len;
}

char *json_text_copy(struct json_text text, char *out, size_t size)
{
    const char *at = text.at;
    size_t used = 0;

    for (;;) {
        uint32_t c = json_text_next(&at);
        char bytes[4];

        if (c == JSON_TEXT_END)
            break;

        size_t len = put_utf8(c == 0 ? 0xFFFD : c, bytes);

        if (used + len >= size)
            break;
        memcpy(out + used, bytes, len);
        used += len;
    }
    out[used] = '\0';
    return out;
}

bool json_text_is(struct json_text text, const char *word)
{
    const char *at = text.at;

    if (!text.escaped)
        return text.len == strlen(word) && memcmp(text.at, word, text.len) == 0;
    for (; *word != '\0'; word++)
        if (json_text_next(&at) != (unsigned char)*word)
            return false;
    return json_text_next(&at) == JSON_TEXT_END;
}

void json_text_write(const char *text, struct buffer *out)
{
    const char *end = text + strlen(text);

    buffer_append(out, "\"", 1);
    while (text < end) {
        size_t len = json_text_character(text, end);
        unsigned char c = (unsigned char)*text;

        if (len == 0)
            buffer_string(out, "\\ufffd");
        else if (c == '"' || c == '\\')
            buffer_format(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7F)
            buffer_format(out, "\\u%04x", c);
        else
            buffer_append(out, text, len);
        text += len == 0 ? 1 : len;
    }
    buffer_append(out, "\"", 1);
}
