#include "api/json_text.h"
#include "api/query.h"
#include "api/raw.h"
#include "api/reply.h"
#include "api/safetensors.h"
#include "api/walk.h"
#include "api/wire.h"
#include "core/stopwatch.h"

#include <stdio.h>
#include <string.h>

/* Tensors under the names of their fields, a dot for each step inside; every
 * other field in `__metadata__`, as its JSON text. */

/* ---- a request ---- */

static const char state_dict[] = "state_dict.", compare_to[] = "compare_to.";

/* What a tensor is to a field that takes none: in JSON it would be an array.
 * Long enough that errors do not quote it. */
static const char an_array[] =
    "[[                                                            ]]";

static bool fail_view(struct walk *w, const struct safetensors_tensor *t,
                      const struct raw *raw, struct named_tensor *tensor)
{
    struct arena *arena = w->json.arena;

    if (t->dtype == DTYPE_COUNT)
        return raw_flaw(raw, arena, tensor, w->json.err, ERR_RANGE,
                        " is %s, not one of F64, F32, F16, BF16, I64, I32, I16, "
                        "I8, U8 and BOOL", t->dtype_name);
    if (t->rank < 1 || t->rank > TENSOR_MAX_RANK)
        return raw_flaw(raw, arena, tensor, w->json.err, ERR_SHAPE,
                        " has %llu dimensions, not 1 to %d",
                        (unsigned long long)t->rank, TENSOR_MAX_RANK);
    return raw_flaw(raw, arena, tensor, w->json.err, ERR_SHAPE,
                    " has a dimension of 0");
}

static bool read_tensor(struct walk *w, const struct safetensors_tensor *t,
                        enum field_kind kind, const char *where,
                        struct named_tensor *tensor)
{
    struct raw raw = { .data = t->data, .dtype = t->dtype, .kind = kind,
                       .wide = w->wide, .where = where };
    struct tensor view;

    if (!safetensors_view(t, &view))
        return fail_view(w, t, &raw, tensor);
    raw.rank = view.rank;
    memcpy(raw.dim, view.dim, sizeof raw.dim);
    return raw_read(&raw, w->json.arena, tensor, w->json.err);
}

static bool read_state(struct walk *w, const struct safetensors_tensor *t)
{
    const char *name = t->name + strlen(state_dict);
    struct named_tensor *tensor = walk_state(w, name);
    char where[sizeof w->json.err->where];

    error_pointer(where, sizeof where, "/state_dict", name);
    return tensor != NULL && read_tensor(w, t, FIELD_TENSOR, where, tensor);
}

static bool read_expected(struct walk *w, const struct safetensors_tensor *t)
{
    struct mha_request *mha = &w->request->mha;
    const char *name = t->name + strlen(compare_to);
    bool is_output = strcmp(name, "output") == 0;
    struct named_tensor *tensor = is_output ? &mha->compare_output
                                            : &mha->compare_weights;

    w->fields.given[FIELD_ID_compare_to] = true;
    if (!is_output && strcmp(name, "weights") != 0) {
        walk_unknown_expected(w, name);
        return cursor_ok(&w->json);
    }
    tensor->name = t->name;
    return read_tensor(w, t, FIELD_TENSOR,
                       is_output ? "/compare_to/output" : "/compare_to/weights",
                       tensor);
}

static bool read_field(struct walk *w, const struct safetensors_tensor *t)
{
    enum field_id id = fields_find_name(t->name);
    const struct field *field = &fields_table[id];
    struct named_tensor *tensor;
    char where[FIELD_NAME_BYTES + 1];

    if (id == FIELD_COUNT || (field->kind != FIELD_TENSOR &&
                              field->kind != FIELD_PADDING &&
                              field->kind != FIELD_BIAS))
        return walk_text(w, t->name, an_array);
    w->fields.given[id] = true;
    tensor = fields_destination(w->request, field);
    tensor->name = field->name;
    return read_tensor(w, t, field->kind,
                       error_pointer(where, sizeof where, "", field->name),
                       tensor);
}

static bool has_prefix(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool fail_twice(struct walk *w, const char *name)
{
    return error_set(w->json.err, ERR_REQUEST, "",
                     "%s is in the file twice: as a tensor and in "
                     "__metadata__", name);
}

/* The field whose tensor, or part of it, has this name. */
static enum field_id field_of(const char *name)
{
    return has_prefix(name, state_dict)   ? FIELD_ID_state_dict
           : has_prefix(name, compare_to) ? FIELD_ID_compare_to
                                          : fields_find_name(name);
}

/* `given` says which fields were in the metadata: the name of each is there
 * once, so that whatever else is twice is in both. */
static bool read_named(struct walk *w, const bool given[FIELD_COUNT],
                       const struct safetensors_tensor *t)
{
    enum field_id id = field_of(t->name);

    if (id != FIELD_COUNT && given[id])
        return fail_twice(w, fields_table[id].name);
    if (has_prefix(t->name, state_dict))
        return read_state(w, t);
    if (has_prefix(t->name, compare_to))
        return read_expected(w, t);
    return read_field(w, t);
}

/* What numbers become is known before any is read. */
static bool read_metadata(struct walk *w, const struct safetensors *file)
{
    const char *precision = fields_table[FIELD_ID_precision].name;
    const char *text = safetensors_find_metadata(file, precision);

    if (text != NULL && !walk_text(w, precision, text))
        return false;
    if (fields_precision(&w->fields) == PRECISION_F64)
        w->wide = DTYPE_F64;
    for (size_t i = 0; i < file->metadata_count; i++) {
        const struct safetensors_pair *pair = &file->metadata[i];

        if (strcmp(pair->key, precision) != 0 &&
            !walk_text(w, pair->key, pair->value))
            return false;
    }
    return true;
}

static bool read_tensors(struct walk *w, const struct safetensors *file)
{
    bool given[FIELD_COUNT];

    memcpy(given, w->fields.given, sizeof given);
    for (size_t i = 0; i < file->count; i++)
        if (!read_named(w, given, &file->tensor[i]))
            return false;
    return true;
}

static bool decode(struct bytes body, const char *query,
                   struct parallel *parallel, struct arena *arena,
                   struct request *request, struct error *err)
{
    struct safetensors file;
    struct walk w;

    (void)parallel;
    walk_begin(&w, "", 0, DTYPE_F32, arena, request, err);
    return safetensors_decode(body, arena, &file, err) &&
           query_check_none(query, err) && read_metadata(&w, &file) &&
           read_tensors(&w, &file) && walk_end(&w);
}

/* Bytes become doubles at most; a header takes 24 times its memory, and the
 * tensors in its metadata 8 times more. */
static int64_t need(struct bytes body, const char *query)
{
    size_t header = safetensors_header_bytes(body);

    (void)query;
    return reply_bound(8 * (double)body.len + 24 * (double)header);
}

/* ---- a reply ---- */

/* The header has a place of this size before the data, and spaces where it is
 * shorter: the data begins at a multiple of 64, known before it is computed, and
 * the profile, which stands in the header, is written last. */
enum { ENTRY_BYTES = 192, EMPTY_BYTES = 248, LENGTH_BYTES = 8 };

static size_t header_bytes(int tensors, bool has_rest)
{
    return (size_t)(EMPTY_BYTES + tensors * ENTRY_BYTES) +
           (has_rest ? REPLY_REST_BYTES : 0);
}

static bool has_rest(const struct request *request)
{
    return request->profile || request->mha.compare_output.value.rank != 0 ||
           request->mha.compare_weights.value.rank != 0;
}

static void put_entry(struct buffer *out, const struct reply_tensor *t,
                      size_t offset)
{
    buffer_format(out, "\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name,
                  dtype_name(t->value.dtype));
    for (int i = 0; i < t->value.rank; i++)
        buffer_format(out, i == 0 ? "%lld" : ",%lld",
                      (long long)t->value.dim[i]);
    buffer_format(out, "],\"data_offsets\":[%zu,%zu]}", offset,
                  offset + tensor_bytes(&t->value));
}

/* `"name":` and the JSON text in `value`, as a string, which is then empty. */
static void put_text(struct buffer *out, const char *name, struct buffer *value,
                     bool *some)
{
    buffer_append(value, "", 1);
    buffer_format(out, "%s\"%s\":", *some ? "," : "\"__metadata__\":{", name);
    if (!value->failed)
        json_text_write((const char *)value->data, out);
    out->failed = out->failed || value->failed;
    value->len = 0;
    *some = true;
}

static void put_metadata(struct buffer *out, const struct request *request,
                         const struct mha_plan *plan,
                         const struct response *response, int64_t began_ns)
{
    const struct mha_response *mha = response->mha;
    struct buffer value;
    bool some = false;

    buffer_init(&value, REPLY_REST_BYTES);
    if (mha->fully_masked_queries > 0) {
        buffer_format(&value, "%lld", (long long)mha->fully_masked_queries);
        put_text(out, "fully_masked_queries", &value, &some);
    }
    if (reply_is_compared(mha)) {
        reply_comparison(mha, &value);
        put_text(out, "comparison", &value, &some);
    }
    if (request->profile) {
        reply_profile(plan, response, began_ns, &value);
        put_text(out, "profile", &value, &some);
    }
    if (some)
        buffer_string(out, "},");
    buffer_free(&value);
}

static void put_header(struct buffer *header, const struct reply_tensor *tensor,
                       int count)
{
    size_t offset = 0;

    for (int i = 0; i < count; i++) {
        put_entry(header, &tensor[i], offset);
        buffer_string(header, i + 1 < count ? "," : "}");
        offset += tensor_bytes(&tensor[i].value);
    }
}

static void write_header(const struct buffer *header, uint8_t *out)
{
    uint64_t len = header->cap_bytes;

    memcpy(out, &len, LENGTH_BYTES);
    memcpy(out + LENGTH_BYTES, header->data, header->len);
    memset(out + LENGTH_BYTES + header->len, ' ', len - header->len);
}

/* Room for the whole reply, and what of it is before the data. */
static uint8_t *take_room(const struct request *request,
                          const struct mha_response *mha, struct buffer *out,
                          size_t *before)
{
    struct reply_tensor tensor[REPLY_MOST_TENSORS];
    int count = reply_tensors(mha, tensor);
    size_t bytes = 0;

    for (int i = 0; i < count; i++)
        bytes += tensor_bytes(&tensor[i].value);
    *before = LENGTH_BYTES + header_bytes(count, has_rest(request));
    return buffer_room(out, *before + bytes);
}

static void place(const struct request *request, struct mha_response *mha,
                  struct buffer *out)
{
    size_t before;
    uint8_t *room = take_room(request, mha, out, &before);

    if (room != NULL)
        reply_place(mha, room + before);
}

static void encode(const struct request *request, const struct mha_plan *plan,
                   const struct response *response, struct buffer *out)
{
    struct reply_tensor tensor[REPLY_MOST_TENSORS];
    int count = reply_tensors(response->mha, tensor);
    int64_t began_ns = stopwatch_ns();
    size_t before, start = out->len;
    struct buffer header;

    if (take_room(request, response->mha, out, &before) == NULL)
        return;
    buffer_added(out, before);
    for (int i = 0; i < count; i++)
        reply_append(out, &tensor[i].value);
    buffer_init(&header, before - LENGTH_BYTES);
    buffer_string(&header, "{");
    put_metadata(&header, request, plan, response, began_ns);
    put_header(&header, tensor, count);
    if (header.failed)
        out->failed = true;
    if (!out->failed)
        write_header(&header, out->data + start);
    buffer_free(&header);
}

static int64_t bound(const struct request *request,
                     const struct mha_plan *plan)
{
    struct reply_shape shape[REPLY_MOST_TENSORS];
    int count = reply_shapes(request, plan, shape);
    double bytes = LENGTH_BYTES + (double)header_bytes(count, true);

    for (int i = 0; i < count; i++)
        bytes += reply_count(&shape[i]) * (double)dtype_size(shape[i].dtype);
    return reply_bound(bytes);
}

const struct wire_format wire_safetensors = {
    .media_type = "application/x-safetensors",
    .decode = decode,
    .need = need,
    .place = place,
    .encode = encode,
    .bound = bound,
};

const struct wire_format wire_vnd_safetensors = {
    .media_type = "application/vnd.safetensors",
    .decode = decode,
    .need = need,
    .place = place,
    .encode = encode,
    .bound = bound,
};
