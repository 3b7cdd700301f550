#include "api/query.h"

#include "api/json_text.h"

#include <string.h>

static int digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *found = c == '\0' ? NULL : strchr(digits, c | 0x20);

    return found == NULL || (c < '0') ? -1 : (int)(found - digits);
}

static bool check_utf8(const char *text, struct error *err)
{
    const char *end = text + strlen(text);

    while (text < end) {
        size_t len = json_text_character(text, end);

        if (len == 0)
            return error_set(err, ERR_REQUEST, "",
                             "the URL's query string is not UTF-8");
        text += len;
    }
    return true;
}

/* The escaped text up to any of `ends`, or NULL. *out moves behind its NUL. */
static const char *decode_text(const char *at, const char *ends, char **out,
                               struct error *err)
{
    char *start = *out, *to = start;

    for (; *at != '\0' && strchr(ends, *at) == NULL; at++) {
        char c = *at == '+' ? ' ' : *at;

        if (c == '%') {
            int high = digit(at[1]), low = high < 0 ? -1 : digit(at[2]);

            if (low < 0 || (high == 0 && low == 0)) {
                error_set(err, ERR_REQUEST, "",
                          "the URL's query string has a '%%' without the two "
                          "digits of a byte, or the byte is 0");
                return NULL;
            }
            c = (char)(high << 4 | low);
            at += 2;
        }
        *to++ = c;
    }
    *to++ = '\0';
    *out = to;
    return check_utf8(start, err) ? at : NULL;
}

static const char *decode_pair(const char *at, char **to,
                               struct query_pair *pair, struct error *err)
{
    pair->name = *to;
    at = decode_text(at, "=&", to, err);
    if (at == NULL)
        return NULL;
    if (*at == '=')
        at++;
    pair->value = *to;
    return decode_text(at, "&", to, err);
}

bool query_decode(const char *text, struct arena *arena, struct query *out,
                  struct error *err)
{
    size_t most = 1;
    char *to;

    *out = (struct query){ 0 };
    if (text == NULL || *text == '\0')
        return true;
    for (const char *p = text; *p != '\0'; p++)
        most += *p == '&';
    out->pair = arena_array(arena, most, sizeof *out->pair);
    to = arena_alloc(arena, strlen(text) + most + 1);
    if (arena_failed(arena))
        return error_set(err, ERR_OVERLOADED, "",
                         "no memory is left to read the URL");
    while (*text != '\0') {
        if (*text == '&') {
            text++;
            continue;
        }
        text = decode_pair(text, &to, &out->pair[out->count++], err);
        if (text == NULL)
            return false;
    }
    return true;
}

bool query_check_none(const char *text, struct error *err)
{
    char name[64], where[sizeof name + 16];
    size_t len = 0;

    if (text == NULL || *text == '\0')
        return true;
    while (len < sizeof name - 1 && text[len] > ' ' && text[len] < 0x7F &&
           text[len] != '=' && text[len] != '&')
        len++;
    memcpy(name, text, len);
    name[len] = '\0';
    return error_set(err, ERR_UNKNOWN,
                     error_pointer(where, sizeof where, "", name),
                     "\"%s\" is in the URL, but the fields of this request "
                     "belong into its body", name);
}
