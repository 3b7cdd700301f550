#include "api/encode.h"
#include "api/json_tensor.h"
#include "api/wire.h"

#include <stdio.h>
#include <string.h>

/* No module has as many tensors. A longer state_dict holds names that none
 * has, and this many of them are enough to refuse it for that. */
enum { MOST_TENSORS = 64 };

/* One walk over a body. */
struct walk {
    struct cursor json;
    struct request *request;
    struct fields fields;
    enum dtype wide; /* what numbers become */
    enum encoding query_encoding;
};

static bool read_tensor(struct walk *w, enum field_kind kind,
                        const char *where, struct named_tensor *tensor)
{
    const struct json_tensor how = { kind, w->wide, where };
    enum encoding encoding = ENCODING_NESTED;
    bool ok = json_tensor_read(&w->json, &how, tensor, &encoding);

    if (tensor == &w->request->mha.query)
        w->query_encoding = encoding;
    return ok;
}

static bool no_memory(struct walk *w)
{
    return error_set(w->json.err, ERR_OVERLOADED, "",
                     "no memory is left for this request");
}

/* A flaw in the arena, NULL when that is full. */
static const struct error *new_flaw(struct walk *w, enum error_code code,
                                    const char *where, const char *text)
{
    struct error *flaw = arena_alloc(w->json.arena, sizeof *flaw);

    if (flaw == NULL) {
        no_memory(w);
        return NULL;
    }
    flaw->code = ERR_NONE;
    error_set(flaw, code, where, "%s", text);
    return flaw;
}

/* Past a value that should be an object; `flaw` says so. */
static bool skip_no_object(struct walk *w, const struct field *field,
                           const struct error **flaw)
{
    const char *start = w->json.at;
    char where[64], shown[CURSOR_EXCERPT_BYTES], text[160];

    if (!cursor_skip(&w->json))
        return false;
    snprintf(text, sizeof text, "%s is %s, not %s", field->name,
             cursor_excerpt(start, w->json.at, shown), field->wanted);
    *flaw = new_flaw(w, ERR_TYPE,
                     error_pointer(where, sizeof where, "", field->name),
                     text);
    return cursor_ok(&w->json);
}

static bool read_named(struct walk *w, struct json_text key,
                       struct tensor_list *list)
{
    char where[sizeof w->json.err->where];
    char *name = arena_alloc(w->json.arena, key.len + 1);
    struct named_tensor *tensor = &list->item[list->count];

    if (name == NULL)
        return no_memory(w);
    *tensor = (struct named_tensor){
        .name = json_text_copy(key, name, key.len + 1),
    };
    error_pointer(where, sizeof where, "/state_dict", name);
    if (!read_tensor(w, FIELD_TENSOR, where, tensor))
        return false;
    list->count++;
    return true;
}

static bool read_tensors(struct walk *w, const struct field *field)
{
    struct mha_request *mha = &w->request->mha;
    struct tensor_list *list = &mha->state_dict;
    struct cursor_object object;
    struct json_text key;

    if (cursor_peek(&w->json) != '{')
        return skip_no_object(w, field, &mha->state_dict_flaw);
    list->item = arena_array(w->json.arena, MOST_TENSORS, sizeof *list->item);
    if (list->item == NULL)
        return no_memory(w);
    for (bool go = cursor_open_object(&w->json, &object);
         go && cursor_member(&w->json, &object, &key);) {
        if (list->count < MOST_TENSORS)
            read_named(w, key, list);
        else
            cursor_skip(&w->json);
    }
    return cursor_ok(&w->json);
}

static bool skip_unknown_expected(struct walk *w, struct json_text key)
{
    struct mha_request *mha = &w->request->mha;
    char where[sizeof w->json.err->where], name[160], text[256];

    if (mha->compare_flaw != NULL)
        return cursor_skip(&w->json);
    json_text_copy(key, name, sizeof name);
    snprintf(text, sizeof text,
             "compare_to takes output and weights, not \"%s\"", name);
    mha->compare_flaw =
        new_flaw(w, ERR_UNKNOWN,
                 error_pointer(where, sizeof where, "/compare_to", name),
                 text);
    return cursor_skip(&w->json);
}

static bool read_expected(struct walk *w, struct json_text key)
{
    struct mha_request *mha = &w->request->mha;

    if (json_text_is(key, "output"))
        return read_tensor(w, FIELD_TENSOR, "/compare_to/output",
                           &mha->compare_output);
    if (json_text_is(key, "weights"))
        return read_tensor(w, FIELD_TENSOR, "/compare_to/weights",
                           &mha->compare_weights);
    return skip_unknown_expected(w, key);
}

static bool read_compare(struct walk *w, const struct field *field)
{
    struct mha_request *mha = &w->request->mha;
    struct cursor_object object;
    struct json_text key;

    if (cursor_peek(&w->json) != '{')
        return skip_no_object(w, field, &mha->compare_flaw);
    mha->compare_output.name = "compare_to.output";
    mha->compare_weights.name = "compare_to.weights";
    for (bool go = cursor_open_object(&w->json, &object);
         go && cursor_member(&w->json, &object, &key);)
        read_expected(w, key);
    if (cursor_ok(&w->json) && object.members == 0)
        mha->compare_flaw =
            new_flaw(w, ERR_MISSING, "/compare_to",
                     "compare_to has neither output nor weights");
    return cursor_ok(&w->json);
}

static bool read_option(struct walk *w, enum field_id id)
{
    struct json_span *text = &w->fields.option[id];

    text->at = w->json.at;
    if (fields_table[id].kind != FIELD_FILTER ||
        !cursor_take(&w->json, "-Infinity"))
        cursor_skip(&w->json);
    text->end = w->json.at;
    return cursor_ok(&w->json);
}

static bool read_field(struct walk *w, enum field_id id)
{
    const struct field *field = &fields_table[id];
    struct named_tensor *tensor = fields_destination(w->request, field);
    char where[FIELD_NAME_BYTES + 1];

    w->fields.given[id] = true;
    switch (field->kind) {
    case FIELD_TENSOR:
    case FIELD_PADDING:
    case FIELD_BIAS:
        tensor->name = field->name;
        return read_tensor(w, field->kind,
                           error_pointer(where, sizeof where, "", field->name),
                           tensor);
    case FIELD_TENSORS:
        return read_tensors(w, field);
    case FIELD_COMPARE:
        return read_compare(w, field);
    default:
        return read_option(w, id);
    }
}

static bool skip_unknown(struct walk *w, struct json_text key)
{
    struct fields *fields = &w->fields;

    if (!fields->has_unknown)
        json_text_copy(key, fields->unknown, sizeof fields->unknown);
    fields->has_unknown = true;
    return cursor_skip(&w->json);
}

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

static bool walk(struct walk *w, struct bytes body, enum dtype wide,
                 struct arena *arena, struct request *request,
                 struct error *err)
{
    struct cursor_object object;
    struct json_text key;

    cursor_init(&w->json, body.data, body.len, arena, err);
    w->request = request;
    w->fields = (struct fields){ 0 };
    w->wide = wide;
    w->query_encoding = ENCODING_NESTED;
    *request = (struct request){ 0 };
    mha_request_init(&request->mha);

    for (bool go = open_body(&w->json, &object);
         go && cursor_member(&w->json, &object, &key);) {
        enum field_id id = fields_find(key);

        if (id == FIELD_COUNT)
            skip_unknown(w, key);
        else
            read_field(w, id);
    }
    return cursor_end(&w->json);
}

/* The fields of a JSON request are in its body. A name in the URL may be any
 * bytes; it is told up to the first that is not printable. */
static bool check_query_string(const char *query, struct error *err)
{
    char name[64], where[sizeof name + 16];
    size_t len = 0;

    if (query == NULL || *query == '\0')
        return true;
    while (len < sizeof name - 1 && query[len] > ' ' && query[len] < 0x7F &&
           query[len] != '=' && query[len] != '&')
        len++;
    snprintf(name, sizeof name, "%.*s", (int)len, query);
    return error_set(err, ERR_UNKNOWN,
                     error_pointer(where, sizeof where, "", name),
                     "\"%s\" is in the URL, but the fields of a JSON request "
                     "are members of its body", name);
}

/* Which numbers are wanted may be said behind them. The word is looked for in
 * the bytes first, from quote to quote, which costs little beside reading a
 * number twice (memmem() took half as long as reading them all); when it was
 * escaped, or meant something else, the body is walked again. */
static enum dtype guess_wide(struct bytes body)
{
    static const char word[] = "\"float64\"";
    const size_t len = strlen(word);
    const uint8_t *p = body.data, *end = p + body.len;

    while (p < end && (p = memchr(p, '"', (size_t)(end - p))) != NULL) {
        if ((size_t)(end - p) >= len && memcmp(p, word, len) == 0)
            return DTYPE_F64;
        p++;
    }
    return DTYPE_F32;
}

static bool decode(struct bytes body, const char *query, struct arena *arena,
                   struct request *request, struct error *err)
{
    enum dtype wide = guess_wide(body);
    struct arena_mark mark = arena_mark(arena);
    struct walk w;

    if (!walk(&w, body, wide, arena, request, err))
        return false;
    if ((wide == DTYPE_F64) != (fields_precision(&w.fields) == PRECISION_F64)) {
        arena_release(arena, mark);
        wide = wide == DTYPE_F64 ? DTYPE_F32 : DTYPE_F64;
        if (!walk(&w, body, wide, arena, request, err))
            return false;
    }
    request->response_format = w.query_encoding;
    return check_query_string(query, err) &&
           fields_apply(&w.fields, request, err);
}

const struct wire_format wire_json = {
    .media_type = "application/json",
    .decode = decode,
    .encode = encode_json,
    .bound = encode_json_bound,
};
