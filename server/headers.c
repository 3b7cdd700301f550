#include "server/headers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* RFC 9110's tchar. A name with anything else in it, a space before the colon
 * for one, is read as this header by some and as another by others. */
static bool is_token(const char *name)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    size_t n = 0;

    for (; name[n] != '\0'; n++) {
        char c = name[n];
        bool alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                     (c >= 'A' && c <= 'Z');

        if (!alnum && strchr(others, c) == NULL)
            return false;
    }
    return n > 0;
}

static bool parse_length(const char *text, int64_t *length)
{
    size_t digits = strspn(text, "0123456789");

    *length = 0;
    for (size_t i = 0; i < digits; i++)
        if (__builtin_mul_overflow(*length, 10, length) ||
            __builtin_add_overflow(*length, text[i] - '0', length)) {
            *length = INT64_MAX;
            break;
        }
    return digits > 0 && text[digits] == '\0';
}

static void add_length(struct headers *headers, const char *value)
{
    headers->lengths++;
    headers->bad_length = !parse_length(value, &headers->length);
}

static void add_encoding(struct headers *headers, const char *value)
{
    headers->encodings++;
    headers->is_chunked = strcasecmp(value, "chunked") == 0;
    headers->bad_encoding = headers->bad_encoding || !headers->is_chunked;
}

/* Two headers are one list, of one coding within another. */
static void add_coding(struct headers *headers, const char *value)
{
    headers->content_encoding =
        headers->content_encoding == NULL ? value : ",";
}

/* Lines of one list are one list (RFC 9110, 5.3). For want of memory it ends
 * before this one: it tells of preferences. */
static void join(const char **list, char **joined, const char *value)
{
    char *longer;

    if (asprintf(&longer, "%s, %s", *list, value) < 0)
        return;
    free(*joined);
    *list = *joined = longer;
}

void headers_add(struct headers *headers, const char *name, const char *value)
{
    const struct {
        const char *name;
        const char **place;
    } kept[] = { /* lists first, HEADERS_LISTS of them */
        { "accept", &headers->accept },
        { "accept-encoding", &headers->accept_encoding },
        { "if-none-match", &headers->if_none_match },
        { "content-type", &headers->content_type },
        { "x-request-id", &headers->request_id },
        { "authorization", &headers->authorization },
        { "x-api-key", &headers->api_key },
    };

    if (value == NULL)
        value = "";
    if (headers->bad_name == NULL && !is_token(name))
        headers->bad_name = name;
    /* RFC 9110, 5.5: the end of a line to some readers */
    headers->bad_value |= strchr(value, '\r') != NULL;
    headers->authorizations += strcasecmp(name, "authorization") == 0;
    headers->api_keys += strcasecmp(name, "x-api-key") == 0;
    if (strcasecmp(name, "host") == 0)
        headers->hosts++;
    else if (strcasecmp(name, "content-length") == 0)
        add_length(headers, value);
    else if (strcasecmp(name, "transfer-encoding") == 0)
        add_encoding(headers, value);
    else if (strcasecmp(name, "content-encoding") == 0)
        add_coding(headers, value);
    else if (strcasecmp(name, "expect") == 0)
        headers->expects_continue = strcasecmp(value, "100-continue") == 0;
    else
        for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
            if (strcasecmp(name, kept[i].name) != 0)
                continue;
            if (*kept[i].place == NULL)
                *kept[i].place = value;
            else if (i < HEADERS_LISTS)
                join(kept[i].place, &headers->joined[i], value);
        }
}

void headers_free(struct headers *headers)
{
    for (int i = 0; i < HEADERS_LISTS; i++)
        free(headers->joined[i]);
}

static bool is_target(const char *target)
{
    while ((unsigned char)*target > ' ' && *target != 0x7f)
        target++;
    return *target == '\0';
}

bool headers_check(const struct headers *headers, const char *method,
                   const char *version, const char *target, struct error *err)
{
    bool old = strcmp(version, "HTTP/1.0") == 0;
    const struct {
        bool found;
        const char *why;
    } flaws[] = {
        { !is_token(method), "the method has characters that no method may have" },
        { !is_target(target),
          "the request target has characters that must be encoded" },
        { headers->bad_name != NULL,
          "a header's name has characters that no name may have" },
        { headers->bad_value, "a header's value has a carriage return" },
        { headers->lengths > 0 && headers->encodings > 0,
          "Content-Length together with Transfer-Encoding" },
        { headers->lengths > 1, "more than one Content-Length" },
        { headers->bad_length, "Content-Length is not a number" },
        { headers->encodings > 1 || headers->bad_encoding,
          "Transfer-Encoding is not `chunked`, once" },
        { headers->encodings > 0 && old,
          "Transfer-Encoding in an HTTP/1.0 request" },
        { headers->hosts > 1, "more than one Host" },
        { headers->hosts == 0 && !old, "no Host" },
        { headers->authorizations > 1, "more than one Authorization" },
        { headers->api_keys > 1, "more than one X-API-Key" },
        { strstr(target, "%00") != NULL, "%00 in the request target" },
    };

    for (size_t i = 0; i < sizeof flaws / sizeof *flaws; i++)
        if (flaws[i].found)
            return error_set(err, ERR_REQUEST, "", "%s", flaws[i].why);
    return true;
}

bool headers_announce_body(const struct headers *headers)
{
    return headers->is_chunked || headers->length > 0;
}
