#include "api/json_tensor.h"

#include "api/base64.h"
#include "api/elements.h"
#include "api/number.h"
#include "api/raw.h"

#include <string.h>

/* A tensor while it is read: its elements, and the members of an object. */
struct reader {
    struct elements e;
    bool has_shape, has_data, has_dtype, has_base64;
    int shape_rank;
    int64_t shape[TENSOR_MAX_RANK];
    enum dtype raw; /* of the bytes in base64 */
    struct json_text base64;
};

static bool read_dimension(struct reader *r, size_t n)
{
    static const char wanted[] = "an integer of at least 1";
    const char *start = r->e.json->at;
    char c = cursor_peek(r->e.json), shown[CURSOR_EXCERPT_BYTES];
    int64_t dim = 0;

    if (c != '-' && (c < '0' || c > '9'))
        return elements_skip(&r->e, 1, wanted);
    if (!cursor_skip(r->e.json))
        return false;

    enum number_int kind =
        number_read_i64(start, (size_t)(r->e.json->at - start), &dim);

    if (kind != NUMBER_INT_OK || dim < 1)
        elements_flaw(&r->e, 1,
                      kind == NUMBER_INT_FRACTION ? ERR_TYPE : ERR_RANGE,
                      "is %s, not %s",
                      cursor_excerpt(start, r->e.json->at, shown), wanted);
    if (n < TENSOR_MAX_RANK)
        r->shape[n] = dim;
    return cursor_ok(r->e.json);
}

static bool read_shape(struct reader *r)
{
    struct cursor *json = r->e.json;
    size_t n = 0;

    r->has_shape = true;
    if (cursor_peek(json) != '[')
        return elements_skip(&r->e, 0, "an array of integers");
    for (bool go = cursor_open(json); go && cursor_element(json, &n);) {
        r->e.n[0] = n;
        read_dimension(r, n - 1);
    }
    if (!cursor_ok(json))
        return false;
    if (n == 0 || n > TENSOR_MAX_RANK)
        elements_flaw(&r->e, 0, ERR_SHAPE, "has %zu dimensions, not 1 to %d", n,
                      TENSOR_MAX_RANK);
    else
        r->shape_rank = (int)n;
    return cursor_ok(json);
}

static bool read_data(struct reader *r)
{
    r->has_data = true;
    if (cursor_peek(r->e.json) != '[')
        return elements_skip(&r->e, 0, "an array of numbers");
    return elements_read(&r->e, 1);
}

static bool read_dtype(struct reader *r)
{
    struct json_text text;
    enum dtype target;
    char name[16];

    r->has_dtype = true;
    if (cursor_peek(r->e.json) != '"')
        return elements_skip(&r->e, 0, "the name of a dtype");
    if (!cursor_string(r->e.json, &text))
        return false;
    json_text_copy(text, name, sizeof name);
    if (!dtype_find(name, &r->raw))
        elements_flaw(&r->e, 0, ERR_RANGE,
                      "is \"%s\", not one of F64, F32, F16, BF16, I64, "
                      "I32, I16, I8, U8 and BOOL",
                      name);
    else if (!raw_target(r->raw, r->e.how->kind, r->e.how->wide, &target))
        elements_flaw(&r->e, 0, ERR_TYPE, "is BOOL, which only masks have");
    return cursor_ok(r->e.json);
}

static bool read_base64(struct reader *r)
{
    r->has_base64 = true;
    if (cursor_peek(r->e.json) != '"')
        return elements_skip(&r->e, 0, "a string");
    return cursor_string(r->e.json, &r->base64);
}

static const char object_form[] =
    "a tensor object has shape and data, or shape, dtype and base64";

enum member { SHAPE, DATA, DTYPE, BASE64, MEMBERS };

static bool read_known(struct reader *r, int member)
{
    switch (member) {
    case SHAPE: return read_shape(r);
    case DATA: return read_data(r);
    case DTYPE: return read_dtype(r);
    default: return read_base64(r);
    }
}

static bool read_member(struct reader *r, struct json_text key)
{
    static const char *const members[MEMBERS] = { ".shape", ".data", ".dtype",
                                                  ".base64" };
    char name[CURSOR_EXCERPT_BYTES];

    for (int i = 0; i < MEMBERS; i++) {
        if (!json_text_is(key, members[i] + 1))
            continue;
        r->e.member = members[i];

        bool ok = read_known(r, i);

        r->e.member = "";
        return ok;
    }
    elements_flaw(&r->e, 0, ERR_UNKNOWN, "has a member \"%s\"; %s",
                  json_text_copy(key, name, sizeof name), object_form);
    return cursor_skip(r->e.json);
}

static void check_members(struct reader *r, int64_t *elements)
{
    bool flat = r->has_data && !r->has_dtype && !r->has_base64;
    bool raw = r->has_base64 && r->has_dtype && !r->has_data;
    struct tensor t = { .rank = r->shape_rank };
    char shape[TENSOR_SHAPE_BYTES];

    if (!r->has_shape || (!flat && !raw)) {
        bool both = r->has_data && (r->has_base64 || r->has_dtype);

        elements_flaw(&r->e, 0, both ? ERR_CONFLICT : ERR_MISSING, "has %s; %s",
                      !r->has_shape ? "no shape"
                      : both        ? "too many members"
                                    : "too few members",
                      object_form);
        return;
    }
    memcpy(t.dim, r->shape, sizeof t.dim);
    tensor_shape(&t, shape, sizeof shape);
    if (!tensor_count_dims(r->shape, r->shape_rank, elements))
        elements_flaw(&r->e, 0, ERR_RANGE,
                      "has shape %s, which no memory holds", shape);
    else if (flat && (int64_t)r->e.count != *elements)
        elements_flaw(&r->e, 0, ERR_SHAPE,
                      "has %zu elements in data, where its shape %s takes %lld",
                      r->e.count, shape, (long long)*elements);
}

/* The characters of the string, which JSON may have escaped ("\/"). NULL when
 * the arena is full. */
static const char *base64_text(struct reader *r, size_t *len)
{
    *len = r->base64.len;
    if (!r->base64.escaped)
        return r->base64.at;

    char *copy = arena_alloc(r->e.json->arena, r->base64.len + 1);

    if (copy == NULL)
        return NULL;
    *len = strlen(json_text_copy(r->base64, copy, r->base64.len + 1));
    return copy;
}

/* Where the element `i` of the packed tensor is, as subscripts. */
static void set_index(struct reader *r, int64_t i)
{
    for (int axis = r->shape_rank - 1; axis >= 0; axis--) {
        r->e.n[axis] = (size_t)(i % r->shape[axis]) + 1;
        i /= r->shape[axis];
    }
}

/* A piece that base64 and every dtype divide, small enough for L1. */
enum { PIECE_BYTES = 3 * 8 * 256 };

static void decode_pieces(struct reader *r, const char *text, int64_t elements)
{
    const char *const start = text;
    uint8_t piece[PIECE_BYTES];
    size_t size = dtype_size(r->raw), wide = dtype_size(r->e.dtype);
    int64_t most = (int64_t)(PIECE_BYTES / size);
    bool is_bool = r->e.dtype == DTYPE_BOOL;

    for (int64_t i = 0; i < elements; i += most) {
        int64_t n = elements - i < most ? elements - i : most;
        const char *wrong = base64_decode(text, (size_t)n * size, piece);

        if (wrong != NULL) {
            r->e.member = ".base64";
            elements_flaw(&r->e, 0, ERR_TYPE,
                          "is no base64 (standard alphabet, padding, nothing "
                          "else) at character %lld",
                          (long long)(wrong - start));
            return;
        }

        int64_t bad = raw_convert(piece, r->raw, n, r->e.how->kind, r->e.dtype,
                                  (char *)r->e.data + (size_t)i * wide);

        if (bad >= 0) {
            set_index(r, i + bad);
            elements_flaw(&r->e, r->shape_rank,
                          is_bool ? ERR_RANGE : ERR_NOT_FINITE, "is %s",
                          is_bool ? "a boolean that is not 0 or 1"
                                  : "not finite");
            return;
        }
        text += base64_length(PIECE_BYTES);
    }
}

static bool end_base64(struct reader *r, int64_t elements)
{
    size_t len, bytes = (size_t)elements * dtype_size(r->raw);
    const char *text = base64_text(r, &len);

    if (text != NULL && len != base64_length(bytes)) {
        elements_flaw(&r->e, 0, ERR_SHAPE,
                      "has %zu characters of base64, where %lld elements of %s "
                      "take %zu",
                      len, (long long)elements, dtype_name(r->raw),
                      base64_length(bytes));
        return cursor_ok(r->e.json);
    }
    raw_target(r->raw, r->e.how->kind, r->e.how->wide, &r->e.dtype);
    if (text != NULL)
        r->e.data = arena_array(r->e.json->arena, (size_t)elements,
                                dtype_size(r->e.dtype));
    if (r->e.data == NULL)
        return error_set(r->e.json->err, ERR_OVERLOADED, "",
                         "no memory is left for %s", r->e.name);
    decode_pieces(r, text, elements);
    return cursor_ok(r->e.json);
}

static bool read_object(struct reader *r, enum encoding *encoding)
{
    struct cursor *json = r->e.json;
    struct cursor_object object;
    struct json_text key;
    int64_t elements = 0;

    for (bool go = cursor_open_object(json, &object);
         go && cursor_member(json, &object, &key);)
        read_member(r, key);
    if (!cursor_ok(json))
        return false;
    *encoding = r->has_base64 ? ENCODING_BASE64 : ENCODING_FLAT;
    if (r->e.flaw == NULL)
        check_members(r, &elements);
    r->e.rank = r->shape_rank;
    memcpy(r->e.dim, r->shape, sizeof r->e.dim);
    if (r->e.flaw == NULL && r->has_base64)
        return end_base64(r, elements);
    return cursor_ok(json);
}

bool json_tensor_read(struct cursor *json, const struct json_tensor *how,
                      struct named_tensor *tensor, enum encoding *encoding)
{
    struct reader r = {
        .e = { .json = json, .how = how, .name = tensor->name, .member = "" },
    };
    char c = cursor_peek(json);
    bool ok = c == '['   ? elements_read(&r.e, TENSOR_MAX_RANK)
              : c == '{' ? read_object(&r, encoding)
                         : elements_skip(&r.e, 0, "a tensor");

    if (!ok)
        return false;
    tensor->flaw = r.e.flaw;
    tensor->value = (struct tensor){ 0 };
    if (r.e.flaw == NULL)
        tensor->value = tensor_packed(r.e.data, r.e.dtype, r.e.rank, r.e.dim);
    return true;
}
