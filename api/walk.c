#include "api/walk.h"

#include "api/ahead.h"
#include "api/json_tensor.h"

#include <stdio.h>
#include <string.h>

/* No module has as many tensors. A longer state_dict holds names that none
 * has, and this many of them are enough to refuse it for that. */
enum { MOST_TENSORS = 64 };

static bool read_tensor(struct walk *w, enum field_kind kind,
                        const char *where, struct named_tensor *tensor)
{
    const struct json_tensor how = { kind, w->wide, where, w->parallel,
                                     w->part_bytes };
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

struct named_tensor *walk_state(struct walk *w, const char *name)
{
    struct tensor_list *list = &w->request->mha.state_dict;

    if (list->item == NULL)
        list->item = arena_array(w->json.arena, MOST_TENSORS,
                                 sizeof *list->item);
    if (list->item == NULL) {
        no_memory(w);
        return NULL;
    }
    if (list->count < MOST_TENSORS)
        list->count++;
    w->fields.given[FIELD_ID_state_dict] = true;

    struct named_tensor *tensor = &list->item[list->count - 1];

    *tensor = (struct named_tensor){ .name = name };
    return tensor;
}

static bool read_state(struct walk *w, struct json_text key)
{
    char where[sizeof w->json.err->where];
    char *name = arena_alloc(w->json.arena, key.len + 1);
    struct named_tensor *tensor;

    if (name == NULL)
        return no_memory(w);
    json_text_copy(key, name, key.len + 1);
    tensor = walk_state(w, name);
    return tensor != NULL &&
           read_tensor(w, FIELD_TENSOR,
                       error_pointer(where, sizeof where, "/state_dict", name),
                       tensor);
}

static bool read_states(struct walk *w, const struct field *field)
{
    struct mha_request *mha = &w->request->mha;
    struct cursor_object object;
    struct json_text key;

    if (cursor_peek(&w->json) != '{')
        return skip_no_object(w, field, &mha->state_dict_flaw);
    for (bool go = cursor_open_object(&w->json, &object);
         go && cursor_member(&w->json, &object, &key);) {
        if (mha->state_dict.count < MOST_TENSORS)
            read_state(w, key);
        else
            cursor_skip(&w->json);
    }
    return cursor_ok(&w->json);
}

void walk_unknown_expected(struct walk *w, const char *name)
{
    struct mha_request *mha = &w->request->mha;
    char where[sizeof w->json.err->where], text[256];

    if (mha->compare_flaw != NULL)
        return;
    snprintf(text, sizeof text,
             "compare_to takes output and weights, not \"%s\"", name);
    mha->compare_flaw =
        new_flaw(w, ERR_UNKNOWN,
                 error_pointer(where, sizeof where, "/compare_to", name),
                 text);
}

static bool read_expected(struct walk *w, struct json_text key)
{
    struct mha_request *mha = &w->request->mha;
    char name[160];

    if (json_text_is(key, "output"))
        return read_tensor(w, FIELD_TENSOR, "/compare_to/output",
                           &mha->compare_output);
    if (json_text_is(key, "weights"))
        return read_tensor(w, FIELD_TENSOR, "/compare_to/weights",
                           &mha->compare_weights);
    walk_unknown_expected(w, json_text_copy(key, name, sizeof name));
    return cursor_skip(&w->json);
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

static bool skip_option(struct walk *w, enum field_id id)
{
    if (fields_table[id].kind != FIELD_FILTER ||
        !cursor_take(&w->json, "-Infinity"))
        cursor_skip(&w->json);
    return cursor_ok(&w->json);
}

static bool read_option(struct walk *w, enum field_id id)
{
    struct json_span *text = &w->fields.option[id];

    text->at = w->json.at;
    skip_option(w, id);
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
        return read_states(w, field);
    case FIELD_COMPARE:
        return read_compare(w, field);
    default:
        return read_option(w, id);
    }
}

void walk_begin(struct walk *w, const void *text, size_t len, enum dtype wide,
                struct arena *arena, struct request *request,
                struct error *err)
{
    cursor_init(&w->json, text, len, arena, err);
    w->request = request;
    w->fields = (struct fields){ 0 };
    w->wide = wide;
    w->query_encoding = ENCODING_NESTED;
    w->parallel = NULL;
    w->part_bytes = AHEAD_PART_BYTES;
    *request = (struct request){ 0 };
    mha_request_init(&request->mha);
}

bool walk_member(struct walk *w, struct json_text name)
{
    enum field_id id = fields_find(name);
    char text[FIELDS_UNKNOWN_BYTES];

    if (id != FIELD_COUNT)
        return read_field(w, id);
    fields_add_unknown(&w->fields, json_text_copy(name, text, sizeof text));
    return cursor_skip(&w->json);
}

/* Whether a text is one valid value of the field. Only a mask has to be read to
 * know: a bare -Infinity may stand in it. */
static bool is_value(struct walk *w, enum field_id id, const char *text)
{
    struct arena_mark mark = arena_mark(w->json.arena);
    struct error *err = w->json.err, why = { 0 };
    struct named_tensor ignored = { .name = "" };
    bool valid;

    cursor_init(&w->json, text, strlen(text), w->json.arena, &why);
    w->json.at = cursor_skip_space(w->json.at, w->json.end);
    valid = (fields_table[id].kind == FIELD_BIAS
                 ? read_tensor(w, FIELD_BIAS, "", &ignored)
                 : skip_option(w, id)) &&
            cursor_end(&w->json);
    arena_release(w->json.arena, mark);
    w->json.err = err;
    if (why.code != ERR_NONE && why.code != ERR_JSON)
        error_set(err, why.code, why.where, "%s", why.text);
    return valid;
}

/* `text` as a JSON string. */
static const char *quote(struct walk *w, const char *text)
{
    static const char digits[] = "0123456789abcdef";
    size_t len = strlen(text);
    char *quoted = arena_alloc(w->json.arena, 6 * len + 3), *to = quoted;

    if (quoted == NULL) {
        no_memory(w);
        return NULL;
    }
    *to++ = '"';
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c < ' ') {
            memcpy(to, "\\u00", 4);
            to[4] = digits[c >> 4];
            to[5] = digits[c & 15];
            to += 6;
            continue;
        }
        if (c == '"' || c == '\\')
            *to++ = '\\';
        *to++ = (char)c;
    }
    memcpy(to, "\"", 2);
    return quoted;
}

bool walk_text(struct walk *w, const char *name, const char *text)
{
    enum field_id id = fields_find_name(name);

    if (id == FIELD_COUNT) {
        fields_add_unknown(&w->fields, name);
        return true;
    }
    if (!is_value(w, id, text) && cursor_ok(&w->json))
        text = quote(w, text);
    if (text == NULL || !cursor_ok(&w->json))
        return false;
    cursor_init(&w->json, text, strlen(text), w->json.arena, w->json.err);
    w->json.at = cursor_skip_space(w->json.at, w->json.end);
    return read_field(w, id);
}

bool walk_end(struct walk *w)
{
    w->request->response_format = w->query_encoding;
    return fields_apply(&w->fields, w->request, w->json.err);
}
