#ifndef TESTS_FUZZ_HTTP_REQUESTS_H
#define TESTS_FUZZ_HTTP_REQUESTS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

/* Where one request ends and the next begins, as a strict reader sees it: what a
 * proxy in front would do. It knows framing and nothing else. In two things it
 * reads as libmicrohttpd does, which lets nobody see them: a NUL ends a line's
 * text, and a header without a name, but for the first, the headers. */

struct plain_request {
    bool is_head;
    bool is_old; /* HTTP/1.0 */
    bool is_doubtful; /* two readers may disagree about where it ends */
    bool is_complete;
    bool expects; /* a 100 Continue */
};

struct plain_reader {
    const char *at, *end;
};

struct plain_line {
    const char *text;
    size_t len; /* without its end, which is LF or CR LF */
};

struct plain_framing {
    int lengths, encodings, hosts, expects;
    uint64_t length;
};

static inline bool plain_line(struct plain_reader *in, struct plain_line *line)
{
    const char *lf = memchr(in->at, '\n', (size_t)(in->end - in->at));

    if (lf == NULL)
        return false;
    line->text = in->at;
    line->len = (size_t)(lf - in->at);
    if (line->len > 0 && line->text[line->len - 1] == '\r')
        line->len--;
    in->at = lf + 1;
    return true;
}

static inline bool plain_is_token(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (memchr("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                   "ABCDEFGHIJKLMNOPQRSTUVWXYZ", text[i], 77) == NULL)
            return false;
    return len > 0;
}

/* Digits of a base up to 16; the most there may be of anything when it is more
 * than that. False when there is anything else among them. */
static inline bool plain_number(const char *text, size_t len, unsigned base,
                                uint64_t *value)
{
    static const char digits[] = "0123456789abcdef";

    *value = 0;
    for (size_t i = 0; i < len; i++) {
        int lower = text[i] >= 'A' && text[i] <= 'F' ? text[i] + 32 : text[i];
        const char *digit = memchr(digits, lower, base);

        if (digit == NULL)
            return false;
        *value = *value > UINT64_MAX / 32
                     ? UINT64_MAX / 2
                     : *value * base + (uint64_t)(digit - digits);
    }
    return len > 0;
}

static inline bool plain_is(const char *text, size_t len, const char *word)
{
    return len == strlen(word) && strncasecmp(text, word, len) == 0;
}

/* False when the line is no header, or one that two readers may read in two
 * ways. */
static inline bool plain_header(struct plain_line line,
                                struct plain_framing *framing)
{
    const char *colon = memchr(line.text, ':', line.len);
    size_t name = colon == NULL ? 0 : (size_t)(colon - line.text);
    const char *value = line.text + name + 1;
    size_t len = colon == NULL ? 0 : line.len - name - 1;

    if (!plain_is_token(line.text, name))
        return false;
    for (; len > 0 && (*value == ' ' || *value == '\t'); len--)
        value++;
    while (len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t'))
        len--;
    framing->hosts += plain_is(line.text, name, "host");
    framing->expects += plain_is(line.text, name, "expect");
    if (plain_is(line.text, name, "content-length")) {
        framing->lengths++;
        return plain_number(value, len, 10, &framing->length);
    }
    if (plain_is(line.text, name, "transfer-encoding")) {
        framing->encodings++;
        return plain_is(value, len, "chunked");
    }
    return true;
}

/* Header lines up to the empty one. False when that is not there. */
static inline bool plain_headers(struct plain_reader *in,
                                 struct plain_framing *framing, bool *doubtful)
{
    struct plain_line line;

    for (bool first = true; plain_line(in, &line); first = false) {
        line.len = strnlen(line.text, line.len);
        if (line.len == 0 || (line.text[0] == ':' && !first))
            return true;
        if (!plain_header(line, framing))
            *doubtful = true;
    }
    return false;
}

static inline bool plain_skip(struct plain_reader *in, uint64_t bytes)
{
    if (bytes > (uint64_t)(in->end - in->at))
        return false;
    in->at += bytes;
    return true;
}

/* Chunks and trailer, of which nothing is read. False when the last line is not
 * there, or something before it in doubt. */
static inline bool plain_chunks(struct plain_reader *in, bool *doubtful)
{
    struct plain_line line;
    struct plain_framing trailer = { 0 };
    bool ignored;

    while (!*doubtful && plain_line(in, &line)) {
        const char *more = memchr(line.text, ';', line.len);
        size_t digits = more == NULL ? line.len : (size_t)(more - line.text);
        uint64_t bytes;

        *doubtful = !plain_number(line.text, digits, 16, &bytes);
        if (!*doubtful && bytes == 0)
            return plain_headers(in, &trailer, &ignored);
        if (*doubtful || !plain_skip(in, bytes) || !plain_line(in, &line))
            return false;
        *doubtful = line.len != 0;
    }
    return false;
}

/* METHOD TARGET HTTP/1.x, with spaces between. What stands behind a '?' is for
 * those who read it. */
static inline bool plain_request_line(struct plain_line line,
                                      struct plain_request *request)
{
    const char *space = memchr(line.text, ' ', line.len);
    size_t method = space == NULL ? line.len : (size_t)(space - line.text);
    const char *version = line.text + line.len - 8;

    *request = (struct plain_request){
        .is_head = method == 4 && memcmp(line.text, "HEAD", 4) == 0,
    };
    if (!plain_is_token(line.text, strnlen(line.text, method)) || line.len < method + 11 ||
        memcmp(version - 1, " HTTP/1.", 8) != 0 ||
        memchr("0123456789", version[7], 10) == NULL)
        return false;
    request->is_old = version[7] == '0';
    while (space[1] == ' ')
        space++;
    for (const char *c = space + 1; c < version - 1 && *c != '?' && *c != '\0'; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f)
            return false;
    return true;
}

/* The next request, whole or not. False when nothing more has begun. After one
 * that is in doubt or incomplete, there is no next. */
static inline bool plain_next(struct plain_reader *in,
                              struct plain_request *request)
{
    struct plain_framing framing = { 0 };
    struct plain_line line;

    do {
        if (in->at == in->end)
            return false;
        if (!plain_line(in, &line)) {
            line = (struct plain_line){ in->at, (size_t)(in->end - in->at) };
            plain_request_line(line, request);
            return true;
        }
    } while (strnlen(line.text, line.len) == 0);
    request->is_doubtful = !plain_request_line(line, request);
    if (!plain_headers(in, &framing, &request->is_doubtful))
        return true;
    request->expects = framing.expects > 0;
    request->is_doubtful =
        request->is_doubtful || framing.lengths + framing.encodings > 1 ||
        framing.hosts > 1 || (framing.hosts == 0 && !request->is_old) ||
        (framing.encodings > 0 && request->is_old);
    if (request->is_doubtful)
        return true;
    request->is_complete = framing.encodings > 0
                               ? plain_chunks(in, &request->is_doubtful)
                               : plain_skip(in, framing.length);
    return true;
}

#endif
