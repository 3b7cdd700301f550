#include "api/safetensors.h"

#include "api/cursor.h"
#include "api/number.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    LENGTH_BYTES = 8,
    HEADER_MAX_BYTES = 100 * 1000 * 1000, /* the format's own limit */
    SHOWN_BYTES = 80,                     /* of a name, in an error */
    DTYPE_BYTES = 16,                     /* more than any dtype's name */
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
    struct cursor json;  /* its errors are `syntax` */
    struct error syntax;
    const uint8_t *data; /* behind the header */
    size_t data_bytes;
    char *text;          /* where the next string goes */
    size_t strings;      /* in the header; every capacity follows from it */
    struct safetensors *out;
    struct error *err;
};

/* A tensor needs its own name, three keys and the dtype's name; a pair of
 * metadata its two. */
enum { STRINGS_PER_TENSOR = 5, STRINGS_PER_PAIR = 2 };

/* For "%.*s": a name whole, or its beginning up to a character's end. */
static int shown(const char *name)
{
    return (int)error_cut(name, strnlen(name, SHOWN_BYTES));
}

static bool fail_syntax(struct reader *r, const char *wanted)
{
    return cursor_ok(&r->json) &&
           cursor_fail(&r->json, r->json.at, "%s should stand here", wanted);
}

/* A NUL would make two names of one, and one of two. */
static bool keep_text(struct reader *r, struct json_text text, const char **out)
{
    const char *at = text.at;

    for (uint32_t c = 1; text.escaped && c != JSON_TEXT_END;) {
        c = json_text_next(&at);
        if (c == 0)
            return cursor_fail(&r->json, text.at, "a string holds a NUL");
    }
    *out = json_text_copy(text, r->text, text.len + 1);
    r->text += text.len + 1;
    return true;
}

/* A whole number of 0 to INT64_MAX, in digits alone. */
static bool read_integer(struct reader *r, int64_t *out)
{
    const char *at = r->json.at;
    char c = cursor_peek(&r->json);

    if (c < '0' || c > '9')
        return fail_syntax(r, "a whole number");
    if (!cursor_skip(&r->json))
        return false;
    for (const char *p = at; p < r->json.at; p++) {
        if (*p < '0' || *p > '9')
            return cursor_fail(&r->json, p, "a whole number has digits alone");
    }
    return number_read_i64(at, (size_t)(r->json.at - at), out) ==
               NUMBER_INT_OK ||
           cursor_fail(&r->json, at, "a number is over 9223372036854775807");
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
    int64_t offset[2];   /* where the data begins and ends */
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
    struct json_text text;
    char name[DTYPE_BYTES];

    if (!cursor_string(&r->json, &text))
        return false;
    json_text_copy(text, name, sizeof name);
    if (dtype_find(name, &d->tensor.dtype)) {
        d->tensor.dtype_name = dtype_name(d->tensor.dtype);
        d->bits = 8 * (unsigned)dtype_size(d->tensor.dtype);
        return true;
    }
    d->tensor.dtype = DTYPE_COUNT;
    for (size_t i = 0; i < sizeof sizes_only / sizeof *sizes_only; i++) {
        if (strcmp(sizes_only[i].name, name) != 0)
            continue;
        d->tensor.dtype_name = sizes_only[i].name;
        d->bits = sizes_only[i].bits;
        return true;
    }
    return error_set(r->err, ERR_REQUEST, "",
                     "safetensors tensor \"%.*s\" has dtype \"%s\", which the "
                     "format does not know", shown(d->tensor.name),
                     d->tensor.name, name);
}

static bool open_array(struct reader *r)
{
    if (cursor_peek(&r->json) != '[')
        return fail_syntax(r, "an array");
    return cursor_open(&r->json);
}

static bool read_shape(struct reader *r, struct description *d)
{
    size_t n = 0;
    int64_t dim;

    d->elements = 1;
    for (bool go = open_array(r); go && cursor_element(&r->json, &n);) {
        if (!read_integer(r, &dim))
            return false;
        if (n <= TENSOR_MAX_RANK)
            d->tensor.dim[n - 1] = dim;
        if (__builtin_mul_overflow(d->elements, (uint64_t)dim, &d->elements))
            return fail_tensor(r, d, "has a shape whose product overflows");
    }
    d->tensor.rank = n;
    return cursor_ok(&r->json);
}

static bool read_offsets(struct reader *r, struct description *d)
{
    size_t n = 0;

    for (bool go = open_array(r); go && cursor_element(&r->json, &n);) {
        if (n > 2)
            return fail_tensor(r, d, "has more than two data_offsets");
        if (!read_integer(r, &d->offset[n - 1]))
            return false;
    }
    return cursor_ok(&r->json) &&
           (n == 2 || fail_tensor(r, d, "has fewer than two data_offsets"));
}

static bool fail_member(struct reader *r, const struct description *d,
                        struct json_text key)
{
    char name[SHOWN_BYTES];

    return error_set(r->err, ERR_REQUEST, "",
                     "safetensors tensor \"%.*s\" has a member \"%s\"; the "
                     "format has dtype, shape and data_offsets",
                     shown(d->tensor.name), d->tensor.name,
                     json_text_copy(key, name, sizeof name));
}

static bool read_member(struct reader *r, struct description *d,
                        struct json_text key)
{
    int member = 0;

    while (member < MEMBERS && !json_text_is(key, member_names[member]))
        member++;
    if (member == MEMBERS)
        return fail_member(r, d, key);
    d->given[member] = true;
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
    int64_t begin = d->offset[0], end = d->offset[1];
    uint64_t bits;

    if (begin > end)
        return fail_tensor(r, d, "ends before it begins");
    if ((uint64_t)end > r->data_bytes)
        return error_set(r->err, ERR_REQUEST, "",
                         "safetensors tensor \"%.*s\" ends at byte %lld of the "
                         "data, of which there are %zu", shown(t->name),
                         t->name, (long long)end, r->data_bytes);
    if (__builtin_mul_overflow(d->elements, d->bits, &bits))
        return fail_tensor(r, d, "has a size that overflows");
    if (bits % 8 != 0)
        return fail_tensor(r, d, "does not end at the end of a byte");
    if (bits / 8 != (uint64_t)(end - begin))
        return error_set(r->err, ERR_REQUEST, "",
                         "safetensors tensor \"%.*s\" spans %lld bytes, but its "
                         "shape in %s takes %llu", shown(t->name), t->name,
                         (long long)(end - begin), t->dtype_name,
                         (unsigned long long)(bits / 8));
    t->data = r->data + begin;
    t->bytes = (size_t)(end - begin);
    return true;
}

static bool open_object(struct reader *r, struct cursor_object *object)
{
    if (cursor_peek(&r->json) != '{')
        return fail_syntax(r, "an object");
    return cursor_open_object(&r->json, object);
}

static bool read_tensor(struct reader *r, struct json_text name)
{
    struct description d = { .elements = 0 };
    struct safetensors *out = r->out;
    struct cursor_object object;
    struct json_text key;

    if (!keep_text(r, name, &d.tensor.name))
        return false;
    for (bool go = open_object(r, &object);
         go && cursor_member(&r->json, &object, &key);) {
        if (!read_member(r, &d, key))
            return false;
    }
    if (!cursor_ok(&r->json) || !check_complete(r, &d) || !check_span(r, &d))
        return false;
    assert(out->count < r->strings / STRINGS_PER_TENSOR);
    out->tensor[out->count++] = d.tensor;
    return true;
}

/* ---- the header ---- */

static bool read_metadata(struct reader *r)
{
    struct safetensors *out = r->out;
    struct cursor_object object;
    struct json_text key, value;

    for (bool go = open_object(r, &object);
         go && cursor_member(&r->json, &object, &key);) {
        struct safetensors_pair pair;

        if (!cursor_string(&r->json, &value) ||
            !keep_text(r, key, &pair.key) || !keep_text(r, value, &pair.value))
            return false;
        assert(out->metadata_count < r->strings / STRINGS_PER_PAIR);
        out->metadata[out->metadata_count++] = pair;
    }
    return cursor_ok(&r->json);
}

static bool read_header(struct reader *r)
{
    struct cursor_object object;
    struct json_text name;

    for (bool go = open_object(r, &object);
         go && cursor_member(&r->json, &object, &name);) {
        if (json_text_is(name, "__metadata__") ? !read_metadata(r)
                                               : !read_tensor(r, name))
            return false;
    }
    return cursor_end(&r->json);
}

/* Empty tensors come before the one that begins where they are. */
static int compare_places(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;

    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Each tensor begins where the one before it ends, and the last ends with the
 * file. */
static bool check_tiling(struct reader *r)
{
    struct safetensors *out = r->out;
    const uint8_t *next = r->data;

    qsort(out->tensor, out->count, sizeof *out->tensor, compare_places);
    for (size_t i = 0; i < out->count; i++) {
        const struct safetensors_tensor *t = &out->tensor[i];

        if (t->data != next)
            return error_set(r->err, ERR_REQUEST, "",
                             "safetensors tensor \"%.*s\" begins at byte %zu of "
                             "the data, which leaves %s", shown(t->name),
                             t->name, (size_t)(t->data - r->data),
                             t->data < next ? "an overlap" : "a hole");
        next += t->bytes;
    }
    if (next == r->data + r->data_bytes)
        return true;
    return error_set(r->err, ERR_REQUEST, "",
                     "the safetensors data has %zu bytes, of which %zu belong "
                     "to a tensor", r->data_bytes, (size_t)(next - r->data));
}

/* No string is longer decoded, and each gives up a quote for its NUL. */
static size_t count_strings(const char *at, const char *end)
{
    size_t quotes = 0;
    bool inside = false;

    for (; at < end; at++) {
        if (*at == '"') {
            inside = !inside;
            quotes++;
        } else if (*at == '\\' && inside) {
            at++;
        }
    }
    return quotes / 2;
}

static bool take_memory(struct reader *r, struct arena *arena)
{
    const struct cursor *json = &r->json;
    struct safetensors *out = r->out;

    r->strings = count_strings(json->at, json->end);
    r->text = arena_alloc(arena, (size_t)(json->end - json->at));
    out->tensor = arena_array(arena, r->strings / STRINGS_PER_TENSOR,
                              sizeof *out->tensor);
    out->metadata = arena_array(arena, r->strings / STRINGS_PER_PAIR,
                                sizeof *out->metadata);
    return !arena_failed(arena) ||
           error_set(r->err, ERR_OVERLOADED, "",
                     "no memory is left to read the safetensors header");
}

/* Of at least LENGTH_BYTES. */
static uint64_t read_length(struct bytes file)
{
    uint64_t len = 0;

    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        len = len << 8 | file.data[i];
    return len;
}

size_t safetensors_header_bytes(struct bytes file)
{
    uint64_t len = file.len < LENGTH_BYTES ? 0 : read_length(file);

    return len > HEADER_MAX_BYTES || len > file.len ? 0 : (size_t)len;
}

static bool find_header(struct bytes file, struct arena *arena,
                        struct reader *r)
{
    uint64_t len;

    if (file.len < LENGTH_BYTES)
        return error_set(r->err, ERR_REQUEST, "",
                         "safetensors begins with 8 bytes of length, here are "
                         "%zu bytes in all", file.len);
    len = read_length(file);
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
    cursor_init(&r->json, file.data + LENGTH_BYTES, (size_t)len, arena,
                &r->syntax);
    r->data = file.data + LENGTH_BYTES + len;
    r->data_bytes = file.len - LENGTH_BYTES - (size_t)len;
    return true;
}

static bool read_whole_header(struct reader *r)
{
    return read_header(r) ||
           error_set(r->err, r->syntax.code, "", "safetensors header, %s",
                     r->syntax.text);
}

bool safetensors_decode(struct bytes file, struct arena *arena,
                        struct safetensors *out, struct error *err)
{
    struct reader r = { .out = out, .err = err };

    *out = (struct safetensors){ 0 };
    return find_header(file, arena, &r) && take_memory(&r, arena) &&
           read_whole_header(&r) && check_tiling(&r);
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
