#include "api/coding.h"

#include "api/accept.h"
#include "api/gzip.h"
#include "api/zstd.h"

#include <string.h>
#include <strings.h>

/* The first is chosen of those that a client wants equally: it packs several
 * times as fast as the second. */
static const struct {
    const char *name;
    enum coding coding;
} names[] = {
    { "zstd", CODING_ZSTD },
    { "gzip", CODING_GZIP },
    { "x-gzip", CODING_GZIP }, /* RFC 9110, 8.4.1.3 */
    { "identity", CODING_IDENTITY },
};

bool coding_find(const char *content_encoding, enum coding *coding)
{
    const char *at = content_encoding == NULL ? "identity" : content_encoding;
    size_t len;

    at += strspn(at, " \t");
    len = strlen(at);
    while (len > 0 && (at[len - 1] == ' ' || at[len - 1] == '\t'))
        len--;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        *coding = names[i].coding;
        if (strlen(names[i].name) == len &&
            strncasecmp(names[i].name, at, len) == 0)
            return true;
    }
    return false;
}

enum coding coding_accept(const char *accept_encoding)
{
    struct preference best = { 0 };
    enum coding coding = CODING_IDENTITY;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct preference p = accept_find(accept_encoding, names[i].name);

        /* The place in the list says nothing: only the qualities do. */
        p.close = 0;
        p.place = 0;
        if (accept_is_better(p, best)) {
            best = p;
            coding = names[i].coding;
        }
    }
    return coding;
}

const char *coding_name(enum coding coding)
{
    static const char *const of[CODINGS] = {
        [CODING_IDENTITY] = "identity",
        [CODING_GZIP] = "gzip",
        [CODING_ZSTD] = "zstd",
    };

    return of[coding];
}

const char *coding_names(void)
{
    return "gzip, zstd, identity";
}

static bool no_memory(struct error *err)
{
    return error_set(err, ERR_OVERLOADED, "",
                     "no memory is left to unpack the body");
}

static enum coding_state fail(const struct unpacking *u, const char *why,
                              struct error *err)
{
    error_set(err, ERR_REQUEST, "", "the body is no sound %s: %s",
              coding_name(u->coding), why);
    return CODING_BAD;
}

bool coding_open(struct unpacking *u, enum coding coding, struct bytes body,
                 struct error *err)
{
    *u = (struct unpacking){ .coding = coding, .rest = body };
    if (coding == CODING_ZSTD && !zstd_begins(body)) {
        fail(u, "it does not begin as one", err);
        return false;
    }
    u->stream = coding == CODING_GZIP ? gzip_open() : zstd_open(body);
    return u->stream != NULL || no_memory(err);
}

void coding_close(struct unpacking *u)
{
    if (u->coding == CODING_GZIP)
        gzip_close(u->stream);
    else
        zstd_close(u->stream);
}

enum coding_state coding_read(struct unpacking *u, uint8_t *out, size_t room,
                              size_t *len, struct error *err)
{
    const char *why = NULL;
    enum coding_state state =
        u->coding == CODING_GZIP
            ? gzip_read(u->stream, &u->rest, out, room, len, &why)
            : zstd_read(u->stream, &u->rest, out, room, len, &why);

    if (state == CODING_NO_MEMORY)
        no_memory(err);
    else if (state == CODING_BAD)
        fail(u, why, err);
    else if (state == CODING_END && u->rest.len > 0)
        state = fail(u, "something follows its end", err);
    else if (state == CODING_MORE && *len < room)
        state = fail(u, "it ends too early", err);
    return state;
}

uint64_t coding_announced(enum coding coding, struct bytes body)
{
    return coding == CODING_GZIP ? gzip_announced(body) : zstd_announced(body);
}

size_t coding_memory(enum coding coding)
{
    return coding == CODING_GZIP ? GZIP_MEMORY_BYTES : ZSTD_MEMORY_BYTES;
}

bool coding_pack(enum coding coding, struct bytes body, bool numbers,
                 struct buffer *out)
{
    size_t len = 0;
    uint8_t *room = buffer_room(out, body.len);

    if (room != NULL)
        len = coding == CODING_GZIP
                  ? gzip_pack(body, numbers, room, body.len)
                  : zstd_pack(body, room, body.len);
    buffer_added(out, len);
    return len > 0;
}
