#include "api/cursor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void cursor_init(struct cursor *json, const void *body, size_t len,
                 struct arena *arena, struct error *err)
{
    static const char nothing[1];

    json->start = json->at = len == 0 ? nothing : body;
    json->end = json->start + len;
    json->arena = arena;
    json->err = err;
    json->depth = 0;
    keys_init(&json->keys, json->start, arena);
}

bool cursor_ok(const struct cursor *json)
{
    return json->err->code == ERR_NONE;
}

/* Columns count characters: the bytes that continue one are skipped. */
bool cursor_fail(struct cursor *json, const char *at, const char *format, ...)
{
    size_t line = 1, column = 1;
    char why[256];
    va_list args;

    for (const char *p = json->start; p < at; p++) {
        if (*p == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)*p & 0xC0) != 0x80) {
            column++;
        }
    }
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return error_set(json->err, ERR_JSON, "",
                     "line %zu, column %zu (byte %zu): %s", line, column,
                     (size_t)(at - json->start), why);
}

char cursor_peek(const struct cursor *json)
{
    return json->at < json->end ? *json->at : '\0';
}

static bool unexpected(struct cursor *json, const char *at, const char *wanted)
{
    if (at >= json->end)
        return cursor_fail(json, json->end, "the body ends where %s should be",
                           wanted);

    unsigned char c = (unsigned char)*at;

    if (c > 0x20 && c < 0x7F)
        return cursor_fail(json, at, "'%c' stands where %s should be", c,
                           wanted);
    return cursor_fail(json, at, "byte 0x%02X stands where %s should be", c,
                       wanted);
}

static void move_to_token(struct cursor *json)
{
    json->at = cursor_skip_space(json->at, json->end);
}

bool cursor_take(struct cursor *json, const char *word)
{
    size_t len = strlen(word);

    if (!cursor_ok(json) || (size_t)(json->end - json->at) < len ||
        memcmp(json->at, word, len) != 0)
        return false;
    json->at += len;
    return true;
}

static bool read_text(struct cursor *json, const char *wanted,
                      struct json_text *text)
{
    if (cursor_peek(json) != '"')
        return unexpected(json, json->at, wanted);

    const char *wrong = json_text_read(json->at + 1, json->end, text);

    if (wrong != NULL)
        return cursor_fail(json, text->at + text->len, "%s", wrong);
    json->at = text->at + text->len + 1;
    return true;
}

bool cursor_string(struct cursor *json, struct json_text *text)
{
    return cursor_ok(json) && read_text(json, "a string", text);
}

static const char *skip_digits(const char *p, const char *end)
{
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p;
}

static bool skip_number(struct cursor *json)
{
    const char *end = json->end, *p = json->at + (*json->at == '-');
    const char *digits = p;

    p = skip_digits(p, end);
    if (p == digits)
        return unexpected(json, p, "a digit");
    if (*digits == '0' && p - digits > 1)
        return cursor_fail(json, digits, "a number may not begin with 0");
    if (p < end && *p == '.') {
        digits = ++p;
        p = skip_digits(p, end);
        if (p == digits)
            return unexpected(json, p, "a digit after the point");
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        p += p < end && (*p == '+' || *p == '-');
        digits = p;
        p = skip_digits(p, end);
        if (p == digits)
            return unexpected(json, p, "a digit of the exponent");
    }
    json->at = p;
    return true;
}

static bool skip_word(struct cursor *json)
{
    if (cursor_take(json, "true") || cursor_take(json, "false") ||
        cursor_take(json, "null"))
        return true;

    const char *start = json->at;

    if (cursor_take(json, "NaN") || cursor_take(json, "Infinity"))
        return cursor_fail(json, start, "NaN and Infinity are not JSON");
    return unexpected(json, json->at, "a value");
}

static bool skip_array(struct cursor *json)
{
    size_t n = 0;

    for (bool go = cursor_open(json); go && cursor_element(json, &n);)
        cursor_skip(json);
    return cursor_ok(json);
}

static bool skip_object(struct cursor *json)
{
    struct cursor_object object;
    struct json_text key;

    for (bool go = cursor_open_object(json, &object);
         go && cursor_member(json, &object, &key);)
        cursor_skip(json);
    return cursor_ok(json);
}

/* Recursion ends at CURSOR_MAX_DEPTH. */
bool cursor_skip(struct cursor *json)
{
    struct json_text text;
    char c = cursor_peek(json);

    if (!cursor_ok(json))
        return false;
    if (c == '"')
        return cursor_string(json, &text);
    if (c == '[')
        return skip_array(json);
    if (c == '{')
        return skip_object(json);

    const char *start = json->at;

    if (cursor_take(json, "-Infinity"))
        return cursor_fail(json, start,
                           "-Infinity may stand in attn_mask and "
                           "mask_filter_value only");
    if (c == '-' || (c >= '0' && c <= '9'))
        return skip_number(json);
    return skip_word(json);
}

bool cursor_open(struct cursor *json)
{
    if (!cursor_ok(json))
        return false;
    if (json->depth == CURSOR_MAX_DEPTH)
        return cursor_fail(json, json->at, "nested deeper than %d",
                           CURSOR_MAX_DEPTH);
    json->depth++;
    json->at++;
    return true;
}

/* Behind the comma before the next element or member, or false behind
 * `close`. */
static bool move_to_next(struct cursor *json, size_t done, char close,
                         const char *wanted)
{
    if (!cursor_ok(json))
        return false;
    move_to_token(json);
    if (cursor_peek(json) == close) {
        json->at++;
        json->depth--;
        return false;
    }
    if (done == 0)
        return true;
    if (cursor_peek(json) != ',')
        return unexpected(json, json->at, wanted);
    json->at++;
    move_to_token(json);
    return true;
}

bool cursor_element(struct cursor *json, size_t *n)
{
    if (!move_to_next(json, *n, ']', "',' or ']'"))
        return false;
    ++*n;
    return true;
}

bool cursor_open_object(struct cursor *json, struct cursor_object *object)
{
    *object = (struct cursor_object){ .keys = json->keys.count };
    return cursor_open(json);
}

static bool add_key(struct cursor *json, size_t object, struct json_text key)
{
    char name[CURSOR_EXCERPT_BYTES];

    switch (keys_add(&json->keys, object, key)) {
    case KEYS_NEW:
        return true;
    case KEYS_TWICE:
        cursor_excerpt(key.at - 1, key.at + key.len + 1, name);
        return cursor_fail(json, key.at - 1, "the key %s comes twice", name);
    case KEYS_TOO_MANY:
        return error_set(json->err, ERR_TOO_LARGE, "",
                         "an object has more members than can be checked for "
                         "duplicates");
    case KEYS_NO_MEMORY:
        break;
    }
    return error_set(json->err, ERR_OVERLOADED, "",
                     "no memory is left for the keys of this body");
}

bool cursor_member(struct cursor *json, struct cursor_object *object,
                   struct json_text *key)
{
    if (!move_to_next(json, object->members, '}', "',' or '}'")) {
        if (cursor_ok(json))
            keys_close(&json->keys, object->keys);
        return false;
    }
    if (!read_text(json, "a key in quotes", key) ||
        !add_key(json, object->keys, *key))
        return false;
    object->members++;
    move_to_token(json);
    if (cursor_peek(json) != ':')
        return unexpected(json, json->at, "':'");
    json->at++;
    move_to_token(json);
    return true;
}

bool cursor_end(struct cursor *json)
{
    if (!cursor_ok(json))
        return false;
    move_to_token(json);
    if (json->at < json->end)
        return unexpected(json, json->at, "the end of the body");
    return true;
}

char *cursor_excerpt(const char *at, const char *end,
                     char out[CURSOR_EXCERPT_BYTES])
{
    size_t len = (size_t)(end - at);
    const char *dots = "";

    if ((*at == '[' || *at == '{') && (len == 0 || len > 40)) {
        at = *at == '[' ? "an array" : "an object";
        len = strlen(at);
    } else if (len > 40) {
        len = error_cut(at, 36);
        dots = "...";
    }
    snprintf(out, CURSOR_EXCERPT_BYTES, "%.*s%s", (int)len, at, dots);
    return out;
}
