#include "api/safetensors.h"

#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    LENGTH_BYTES = 8,
    HEADER_MAX_BYTES = 100 * 1000 * 1000, /* the format's own limit */
    SHOWN_BYTES = 80,                     /* of a name, in an error */
};

/* What the format knows beside the dtypes of core/tensor.h. */
static const struct {
    const char *name;
    unsigned bits;
} sizes_only[] = {
    { "U16", 16 },        { "U32", 32 },         { "U64", 64 },
    { "C64", 64 },        { "F8_E4M3", 8 },      { "F8_E5M2", 8 },
    { "F8_E8M0", 8 },     { "F8_E4M3FNUZ", 8 },  { "F8_E5M2FNUZ", 8 },
    { "F6_E2M3", 6 },     { "F6_E3M2", 6 },      { "F4", 4 },
};

struct reader {
    const uint8_t *file;   /* its first byte: errors count from there */
    const uint8_t *at;     /* the next byte of the header */
    const uint8_t *end;    /* of the header, where the data begins */
    size_t data_bytes;
    char *text;            /* where the next decoded string goes */
    size_t strings;        /* in the header; every capacity follows from it */
    bool has_metadata;
    struct safetensors *out;
    struct error *err;
};

/* A tensor needs its own name, three keys and the dtype's name; a pair of
 * metadata its two. */
enum { STRINGS_PER_TENSOR = 5, STRINGS_PER_PAIR = 2 };

static bool fail_syntax(struct reader *r, const char *what)
{
    return error_set(r->err, ERR_JSON, "",
                     "the safetensors header is not the JSON it should be: %s "
                     "at byte %zu", what, (size_t)(r->at - r->file));
}

static bool fail_memory(struct error *err)
{
    return error_set(err, ERR_OVERLOADED, "",
                     "no memory is left to read the safetensors header");
}

/* For "%.*s": a name whole, or its beginning up to a character's end. */
static int shown(const char *name)
{
    size_t len = strnlen(name, SHOWN_BYTES + 1);

    if (len <= SHOWN_BYTES)
        return (int)len;
    len = SHOWN_BYTES;
    while (len > 0 && ((unsigned char)name[len] & 0xC0) == 0x80)
        len--;
    return (int)len;
}

/* ---- JSON, as much of it as a header may have ---- */

static void skip_space(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' ||
                              *r->at == '\r' || *r->at == '\t'))
        r->at++;
}

static bool next_is(struct reader *r, char c)
{
    skip_space(r);
    if (r->at == r->end || *r->at != (uint8_t)c)
        return false;
    r->at++;
    return true;
}

/* True before each element of the object or array that `close` ends. False
 * after the last, and when the separator is missing: then err is set. */
static bool another(struct reader *r, char close, bool *first)
{
    bool begins = *first;

    *first = false;
    if (next_is(r, close))
        return false;
    if (begins || next_is(r, ','))
        return true;
    return fail_syntax(r, close == '}' ? "no ',' or '}'" : "no ',' or ']'");
}

static bool none_failed(const struct reader *r)
{
    return r->err->code == ERR_NONE;
}

static const char *keep_text(struct reader *r, const void *text, size_t len)
{
    char *kept = r->text;

    memcpy(kept, text, len);
    kept[len] = '\0';
    r->text += len + 1;
    return kept;
}

/* Escapes and UTF-8 are left to jansson; `quoted` has its quotes. What comes
 * out is never longer than what stood there. */
static bool read_escaped(struct reader *r, const uint8_t *quoted, size_t len,
                         const char **out)
{
    json_error_t why;
    json_t *json = json_loadb((const char *)quoted, len, JSON_DECODE_ANY, &why);

    if (json == NULL && json_error_code(&why) == json_error_out_of_memory)
        return fail_memory(r->err);
    if (json == NULL) {
        r->at = quoted;
        return fail_syntax(r, "a string with a control character, a bad escape "
                              "or invalid UTF-8");
    }
    *out = keep_text(r, json_string_value(json), json_string_length(json));
    json_decref(json);
    return true;
}

static bool read_string(struct reader *r, const char **out)
{
    if (!next_is(r, '"'))
        return fail_syntax(r, "no string");

    const uint8_t *first = r->at;
    bool plain = true;

    for (; r->at < r->end && *r->at != '"'; r->at++) {
        plain = plain && *r->at >= 0x20 && *r->at < 0x80 && *r->at != '\\';
        if (*r->at == '\\' && r->end - r->at > 1)
            r->at++;
    }
    if (r->at == r->end)
        return fail_syntax(r, "a string without an end");

    size_t len = (size_t)(r->at - first);

    r->at++;
    if (!plain)
        return read_escaped(r, first - 1, len + 2, out);
    *out = keep_text(r, first, len);
    return true;
}

static bool read_key(struct reader *r, const char **out)
{
    return read_string(r, out) &&
           (next_is(r, ':') || fail_syntax(r, "no ':'"));
}

/* A whole number of 0 to INT64_MAX, as JSON spells it. */
static bool read_integer(struct reader *r, int64_t *out)
{
    int64_t value = 0;

    skip_space(r);

    const uint8_t *first = r->at;

    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *r->at - '0', &value))
            return fail_syntax(r, "a number over 9223372036854775807");
    }
    if (r->at == first)
        return fail_syntax(r, "no whole number");
    if (*first == '0' && r->at - first > 1)
        return fail_syntax(r, "a number with a leading zero");
    *out = value;
    return true;
}

/* ---- one tensor ---- */

enum member { MEMBER_DTYPE, MEMBER_SHAPE, MEMBER_OFFSETS, MEMBERS };

static const char *const member_names[MEMBERS] = {
    [MEMBER_DTYPE] = "dtype",
    [MEMBER_SHAPE] = "shape",
    [MEMBER_OFFSETS] = "data_offsets",
};

struct description {
    struct safetensors_tensor tensor;
    bool given[MEMBERS];
    unsigned bits;       /* of an element */
    uint64_t elements;
    int64_t begin, end;  /* data_offsets */
};

static bool fail_tensor(struct reader *r, const struct description *d,
                        const char *what)
{
    const char *name = d->tensor.name;

    return error_set(r->err, ERR_REQUEST, "", "safetensors tensor \"%.*s\" %s",
                     shown(name), name, what);
}

static bool read_dtype(struct reader *r, struct description *d)
{
    const char *name;

    if (!read_string(r, &name))
        return false;
    d->tensor.dtype_name = name;
    if (dtype_find(name, &d->tensor.dtype)) {
        d->bits = 8 * (unsigned)dtype_size(d->tensor.dtype);
        return true;
    }
    d->tensor.dtype = DTYPE_COUNT;
    for (size_t i = 0; i < sizeof sizes_only / sizeof *sizes_only; i++) {
        if (strcmp(sizes_only[i].name, name) == 0) {
            d->bits = sizes_only[i].bits;
            return true;
        }
    }
    return error_set(r->err, ERR_REQUEST, "",
                     "safetensors tensor \"%.*s\" has dtype \"%.*s\", which the "
                     "format does not know", shown(d->tensor.name),
                     d->tensor.name, shown(name), name);
}

static bool read_shape(struct reader *r, struct description *d)
{
    d->elements = 1;
    if (!next_is(r, '['))
        return fail_syntax(r, "a shape that is no array");
    for (bool first = true; another(r, ']', &first); d->tensor.rank++) {
        int64_t dim;

        if (!read_integer(r, &dim))
            return false;
        if (d->tensor.rank < TENSOR_MAX_RANK)
            d->tensor.dim[d->tensor.rank] = dim;
        if (__builtin_mul_overflow(d->elements, (uint64_t)dim, &d->elements))
            return fail_tensor(r, d, "has a shape whose product overflows");
    }
    return none_failed(r);
}

static bool read_offsets(struct reader *r, struct description *d)
{
    if (!next_is(r, '['))
        return fail_syntax(r, "data_offsets that are no array");
    if (!read_integer(r, &d->begin))
        return false;
    if (!next_is(r, ','))
        return fail_syntax(r, "no second of the data_offsets");
    if (!read_integer(r, &d->end))
        return false;
    return next_is(r, ']') || fail_syntax(r, "no ']' after data_offsets");
}

static bool find_member(struct reader *r, struct description *d,
                        const char *key, enum member *member)
{
    for (int i = 0; i < MEMBERS; i++) {
        if (strcmp(member_names[i], key) != 0)
            continue;
        *member = (enum member)i;
        if (d->given[i])
            return error_set(r->err, ERR_JSON, "",
                             "safetensors tensor \"%.*s\" has its %s twice",
                             shown(d->tensor.name), d->tensor.name, key);
        d->given[i] = true;
        return true;
    }
    return error_set(r->err, ERR_REQUEST, "",
                     "safetensors tensor \"%.*s\" has a member \"%.*s\"; the "
                     "format has dtype, shape and data_offsets",
                     shown(d->tensor.name), d->tensor.name, shown(key), key);
}

static bool read_member(struct reader *r, struct description *d)
{
    enum member member = MEMBERS;
    const char *key;

    if (!read_key(r, &key) || !find_member(r, d, key, &member))
        return false;
    switch (member) {
    case MEMBER_DTYPE: return read_dtype(r, d);
    case MEMBER_SHAPE: return read_shape(r, d);
    default: return read_offsets(r, d);
    }
}

static bool check_complete(struct reader *r, const struct description *d)
{
    for (int i = 0; i < MEMBERS; i++) {
        if (!d->given[i])
            return error_set(r->err, ERR_REQUEST, "",
                             "safetensors tensor \"%.*s\" has no %s",
                             shown(d->tensor.name), d->tensor.name,
                             member_names[i]);
    }
    return true;
}

static bool check_span(struct reader *r, struct description *d)
{
    struct safetensors_tensor *t = &d->tensor;
    uint64_t bits;

    if (d->begin > d->end)
        return fail_tensor(r, d, "ends before it begins");
    if ((uint64_t)d->end > r->data_bytes)
        return error_set(r->err, ERR_REQUEST, "",
                         "safetensors tensor \"%.*s\" ends at byte %lld of the "
                         "data, of which there are %zu", shown(t->name),
                         t->name, (long long)d->end, r->data_bytes);
    if (__builtin_mul_overflow(d->elements, d->bits, &bits))
        return fail_tensor(r, d, "has a size that overflows");
    if (bits % 8 != 0)
        return fail_tensor(r, d, "does not end at the end of a byte");
    if (bits / 8 != (uint64_t)(d->end - d->begin))
        return error_set(r->err, ERR_REQUEST, "",
                         "safetensors tensor \"%.*s\" spans %lld bytes, but its "
                         "shape in %s takes %llu", shown(t->name), t->name,
                         (long long)(d->end - d->begin), t->dtype_name,
                         (unsigned long long)(bits / 8));
    t->data = r->end + d->begin;
    t->bytes = (size_t)(d->end - d->begin);
    return true;
}

static bool read_tensor(struct reader *r, const char *name)
{
    struct description d = { .tensor.name = name };
    struct safetensors *out = r->out;

    if (!next_is(r, '{'))
        return fail_syntax(r, "a tensor that is no object");
    for (bool first = true; another(r, '}', &first);) {
        if (!read_member(r, &d))
            return false;
    }
    if (!none_failed(r) || !check_complete(r, &d) || !check_span(r, &d))
        return false;
    assert(out->count < r->strings / STRINGS_PER_TENSOR);
    out->tensor[out->count++] = d.tensor;
    return true;
}

/* ---- the header ---- */

static bool read_metadata(struct reader *r)
{
    struct safetensors *out = r->out;

    if (r->has_metadata)
        return fail_syntax(r, "__metadata__ a second time");
    r->has_metadata = true;
    if (!next_is(r, '{'))
        return fail_syntax(r, "a __metadata__ that is no object");
    for (bool first = true; another(r, '}', &first);) {
        struct safetensors_pair pair;

        if (!read_key(r, &pair.key) || !read_string(r, &pair.value))
            return false;
        assert(out->metadata_count < r->strings / STRINGS_PER_PAIR);
        out->metadata[out->metadata_count++] = pair;
    }
    return none_failed(r);
}

static bool read_header(struct reader *r)
{
    if (r->at == r->end || *r->at != '{')
        return fail_syntax(r, "no '{'");
    r->at++;
    for (bool first = true; another(r, '}', &first);) {
        const char *name;

        if (!read_key(r, &name))
            return false;
        if (strcmp(name, "__metadata__") == 0 ? !read_metadata(r)
                                              : !read_tensor(r, name))
            return false;
    }
    if (!none_failed(r))
        return false;
    skip_space(r);
    return r->at == r->end || fail_syntax(r, "something after the last '}'");
}

static int compare_names(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static int compare_keys(const void *a, const void *b)
{
    const struct safetensors_pair *x = a, *y = b;

    return strcmp(x->key, y->key);
}

/* Empty tensors come before the one that begins where they are. */
static int compare_places(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;

    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static bool fail_twice(struct error *err, const char *name)
{
    return error_set(err, ERR_JSON, "",
                     "the safetensors header has \"%.*s\" twice", shown(name),
                     name);
}

/* By sorting, whose time no choice of names can raise: a hash would need a
 * seed. */
static bool check_unique(struct safetensors *out, struct error *err)
{
    qsort(out->tensor, out->count, sizeof *out->tensor, compare_names);
    for (size_t i = 1; i < out->count; i++) {
        if (compare_names(&out->tensor[i - 1], &out->tensor[i]) == 0)
            return fail_twice(err, out->tensor[i].name);
    }
    qsort(out->metadata, out->metadata_count, sizeof *out->metadata,
          compare_keys);
    for (size_t i = 1; i < out->metadata_count; i++) {
        if (compare_keys(&out->metadata[i - 1], &out->metadata[i]) == 0)
            return fail_twice(err, out->metadata[i].key);
    }
    return true;
}

/* Each tensor begins where the one before it ends, and the last ends with the
 * file. */
static bool check_tiling(struct safetensors *out, const uint8_t *data,
                         size_t data_bytes, struct error *err)
{
    const uint8_t *next = data;

    qsort(out->tensor, out->count, sizeof *out->tensor, compare_places);
    for (size_t i = 0; i < out->count; i++) {
        const struct safetensors_tensor *t = &out->tensor[i];

        if (t->data != next)
            return error_set(err, ERR_REQUEST, "",
                             "safetensors tensor \"%.*s\" begins at byte %zu of "
                             "the data, which leaves %s", shown(t->name),
                             t->name, (size_t)(t->data - data),
                             t->data < next ? "an overlap" : "a hole");
        next += t->bytes;
    }
    if (next == data + data_bytes)
        return true;
    return error_set(err, ERR_REQUEST, "",
                     "the safetensors data has %zu bytes, of which %zu belong "
                     "to a tensor", data_bytes, (size_t)(next - data));
}

/* No string is longer decoded, and each gives up a quote for its NUL. */
static size_t count_strings(const uint8_t *at, const uint8_t *end)
{
    size_t quotes = 0;
    bool inside = false;

    for (; at < end; at++) {
        if (*at == '"') {
            inside = !inside;
            quotes++;
        } else if (*at == '\\' && inside && end - at > 1) {
            at++;
        }
    }
    return quotes / 2;
}

static bool take_memory(struct reader *r, struct arena *arena)
{
    struct safetensors *out = r->out;

    r->strings = count_strings(r->at, r->end);
    r->text = arena_alloc(arena, (size_t)(r->end - r->at));
    out->tensor = arena_array(arena, r->strings / STRINGS_PER_TENSOR,
                              sizeof *out->tensor);
    out->metadata = arena_array(arena, r->strings / STRINGS_PER_PAIR,
                                sizeof *out->metadata);
    return !arena_failed(arena) || fail_memory(r->err);
}

static bool find_header(struct bytes file, struct reader *r)
{
    uint64_t len = 0;

    if (file.len < LENGTH_BYTES)
        return error_set(r->err, ERR_REQUEST, "",
                         "safetensors begins with 8 bytes of length, here are "
                         "%zu bytes in all", file.len);
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        len = len << 8 | file.data[i];
    if (len > HEADER_MAX_BYTES)
        return error_set(r->err, ERR_REQUEST, "",
                         "a safetensors header of %llu bytes is over the "
                         "format's limit of 100000000",
                         (unsigned long long)len);
    if (len > file.len - LENGTH_BYTES)
        return error_set(r->err, ERR_REQUEST, "",
                         "a safetensors header of %llu bytes does not fit in "
                         "the %zu that follow its length",
                         (unsigned long long)len, file.len - LENGTH_BYTES);
    r->file = file.data;
    r->at = file.data + LENGTH_BYTES;
    r->end = r->at + len;
    r->data_bytes = file.len - LENGTH_BYTES - (size_t)len;
    return true;
}

bool safetensors_decode(struct bytes file, struct arena *arena,
                        struct safetensors *out, struct error *err)
{
    struct reader r = { .out = out, .err = err };

    *out = (struct safetensors){ 0 };
    return find_header(file, &r) && take_memory(&r, arena) &&
           read_header(&r) && check_unique(out, err) &&
           check_tiling(out, r.end, r.data_bytes, err);
}

const char *safetensors_find_metadata(const struct safetensors *file,
                                      const char *key)
{
    for (size_t i = 0; i < file->metadata_count; i++) {
        if (strcmp(file->metadata[i].key, key) == 0)
            return file->metadata[i].value;
    }
    return NULL;
}

bool safetensors_view(const struct safetensors_tensor *tensor,
                      struct tensor *view)
{
    int64_t count;

    if (tensor->dtype == DTYPE_COUNT || tensor->rank < 1 ||
        tensor->rank > TENSOR_MAX_RANK ||
        !tensor_count_dims(tensor->dim, (int)tensor->rank, &count))
        return false;
    /* The view is read-only by agreement; struct tensor has no const. */
    *view = tensor_packed((void *)(uintptr_t)tensor->data, tensor->dtype,
                          (int)tensor->rank, tensor->dim);
    return true;
}
