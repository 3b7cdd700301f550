#include "api/encode.h"
#include "api/query.h"
#include "api/reply.h"
#include "api/walk.h"
#include "api/wire.h"

#include <string.h>

static bool open_body(struct cursor *json, struct cursor_object *object)
{
    static const char mark[] = "\xEF\xBB\xBF";

    if (cursor_take(json, mark))
        return cursor_fail(json, json->start,
                           "the body begins with a byte-order mark");
    json->at = cursor_skip_space(json->at, json->end);
    if (cursor_peek(json) == '{')
        return cursor_open_object(json, object);
    if (json->at == json->end)
        return cursor_fail(json, json->at, "the body has no JSON object");
    return cursor_fail(json, json->at, "a request is a JSON object, {...}");
}

static bool read_body(struct walk *w, struct bytes body, enum dtype wide,
                      struct parallel *parallel, struct arena *arena,
                      struct request *request, struct error *err)
{
    struct cursor_object object;
    struct json_text key;

    walk_begin(w, body.data, body.len, wide, arena, request, err);
    w->parallel = parallel;
    for (bool go = open_body(&w->json, &object);
         go && cursor_member(&w->json, &object, &key);)
        walk_member(w, key);
    return cursor_end(&w->json);
}

/* Which numbers are wanted may be said behind them. The word is looked for
 * where the options mostly are, at both ends of the body, since to look through
 * all of it takes a fifth as long as to read it; where it was elsewhere, or
 * escaped, or meant something else, the body is walked again. */
enum { OPTION_BYTES = 4096 };

static enum dtype guess_wide(struct bytes body)
{
    static const char word[] = "\"float64\"";
    const size_t len = strlen(word);
    size_t end = body.len < OPTION_BYTES ? body.len : OPTION_BYTES;

    if (body.len == 0)
        return DTYPE_F32;
    return memmem(body.data, end, word, len) != NULL ||
                   memmem(body.data + body.len - end, end, word, len) != NULL
               ? DTYPE_F64
               : DTYPE_F32;
}

static bool decode(struct bytes body, const char *query,
                   struct parallel *parallel, struct arena *arena,
                   struct request *request, struct error *err)
{
    enum dtype wide = guess_wide(body);
    struct arena_mark mark = arena_mark(arena);
    struct walk w;

    if (!read_body(&w, body, wide, parallel, arena, request, err))
        return false;
    if ((wide == DTYPE_F64) != (fields_precision(&w.fields) == PRECISION_F64)) {
        arena_release(arena, mark);
        wide = wide == DTYPE_F64 ? DTYPE_F32 : DTYPE_F64;
        if (!read_body(&w, body, wide, parallel, arena, request, err))
            return false;
    }
    return query_check_none(query, err) && walk_end(&w);
}

/* "1," is two bytes and, in float64, becomes eight; the rest is for options and
 * names, and for a body that is walked again. */
static int64_t need(struct bytes body, const char *query)
{
    (void)query;
    return reply_bound(8 * (double)body.len);
}

const struct wire_format wire_json = {
    .media_type = "application/json",
    .decode = decode,
    .need = need,
    .encode = encode_json,
    .bound = encode_json_bound,
};
