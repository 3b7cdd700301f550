#include "api/accept.h"

#include <string.h>
#include <strings.h>

static const char spaces[] = " \t";

static const char *skip_space(const char *at)
{
    return at + strspn(at, spaces);
}

/* "1", "0.25", "0.": up to three digits behind the point. -1 for anything else;
 * *at moves behind it. */
static int read_quality(const char **at)
{
    const char *p = *at;
    int quality;

    if (*p != '0' && *p != '1')
        return -1;
    quality = (*p++ - '0') * 1000;
    if (*p == '.') {
        p++;
        for (int unit = 100; unit > 0 && *p >= '0' && *p <= '9'; unit /= 10)
            quality += (*p++ - '0') * unit;
    }
    *at = p;
    return quality > 1000 ? -1 : quality;
}

static const char *skip_quoted(const char *at)
{
    for (at++; *at != '\0' && *at != '"'; at++)
        if (*at == '\\' && at[1] != '\0')
            at++;
    return *at == '"' ? at + 1 : at;
}

/* Past a parameter's value, a token or a quoted string. */
static const char *skip_value(const char *at)
{
    return *at == '"' ? skip_quoted(at) : at + strcspn(at, " \t;,\"");
}

/* One parameter behind its ';', the q of which goes to *quality. */
static const char *read_parameter(const char *at, int *quality)
{
    at = skip_space(at);

    bool is_quality = (*at == 'q' || *at == 'Q') && at[1] == '=';

    at += strcspn(at, "=;,\"");
    if (*at != '=')
        return at;
    at++;
    if (is_quality)
        *quality = read_quality(&at);
    return skip_space(is_quality ? at : skip_value(at));
}

static int closeness(const char *range, size_t len, const char *name)
{
    size_t type = strcspn(name, "/");

    if (len == strlen(name) && strncasecmp(range, name, len) == 0)
        return 3;
    if (len == type + 2 && strncasecmp(range, name, type + 1) == 0 &&
        range[type + 1] == '*')
        return 2;
    return (len == 1 && *range == '*') ||
           (len == 3 && memcmp(range, "*/*", 3) == 0);
}

struct preference accept_find(const char *header, const char *name)
{
    struct preference best = { 0 };
    const char *at = header == NULL ? "" : header;

    for (size_t place = 0; *at != '\0'; place++) {
        const char *range = skip_space(at);
        size_t len = strcspn(range, " \t;,");
        int quality = 1000, close = closeness(range, len, name);

        at = skip_space(range + len);
        while (*at == ';')
            at = read_parameter(at + 1, &quality);
        if (*at != '\0' && *at != ',') {
            quality = -1;
            at += strcspn(at, ",");
        }
        at += *at == ',';
        if (quality >= 0 && close > best.close)
            best = (struct preference){ quality, close, place };
    }
    return best;
}

bool accept_is_better(struct preference a, struct preference b)
{
    if (a.quality != b.quality)
        return a.quality > b.quality;
    if (a.close != b.close)
        return a.close > b.close;
    return a.place < b.place;
}
