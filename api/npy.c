#include "api/npy.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    MAGIC_BYTES = 6,
    VERSION_BYTES = 2,
    DATA_ALIGNMENT = 64, /* of a file that is written */
    MAX_DEPTH = 16       /* of a structure's brackets */
};

static const char magic[MAGIC_BYTES + 1] = "\x93NUMPY";

/* What stands behind the byte order. */
static const struct {
    const char *name;
    enum dtype dtype;
} types[] = {
    { "f2", DTYPE_F16 }, { "f4", DTYPE_F32 }, { "f8", DTYPE_F64 },
    { "b1", DTYPE_BOOL }, { "u1", DTYPE_U8 }, { "i1", DTYPE_I8 },
    { "i2", DTYPE_I16 }, { "i4", DTYPE_I32 }, { "i8", DTYPE_I64 },
};

struct reader {
    const char *start, *at, *end; /* the header */
    struct npy *out;
    struct error *err;
};

static bool fail(struct reader *r, const char *format, ...)
{
    char why[160];
    va_list args;

    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return error_set(r->err, ERR_REQUEST, "", "npy header, byte %zu: %s",
                     (size_t)(r->at - r->start), why);
}

static void skip_space(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t'))
        r->at++;
}

/* Behind `c` and the space before it, when it comes next. */
static bool take(struct reader *r, char c)
{
    skip_space(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static bool expect(struct reader *r, char c)
{
    return take(r, c) || fail(r, "'%c' should stand here", c);
}

static bool take_word(struct reader *r, const char *word)
{
    size_t len = strlen(word);

    skip_space(r);
    if ((size_t)(r->end - r->at) < len || memcmp(r->at, word, len) != 0)
        return false;
    r->at += len;
    return true;
}

/* A string of printable ASCII in quotes of either kind, without escapes. */
static bool read_string(struct reader *r, char *out, size_t size)
{
    size_t len = 0;
    char quote;

    skip_space(r);
    if (r->at == r->end || (*r->at != '\'' && *r->at != '"'))
        return fail(r, "a string in quotes should stand here");
    quote = *r->at++;
    for (; r->at < r->end && *r->at != quote; r->at++) {
        if (*r->at < ' ' || *r->at > '~' || *r->at == '\\')
            return fail(r, "a character that no type's name has");
        if (len + 1 < size)
            out[len++] = *r->at;
    }
    out[len] = '\0';
    if (r->at == r->end)
        return fail(r, "the string has no end");
    r->at++;
    return true;
}

/* Past the description of a structure: brackets that match, and strings. */
static bool skip_structure(struct reader *r)
{
    char closing[MAX_DEPTH];
    int depth = 0;

    do {
        if (r->at == r->end)
            return fail(r, "the structure has no end");

        char c = *r->at;

        if (c == '\'' || c == '"') {
            const char *end = memchr(r->at + 1, c,
                                     (size_t)(r->end - r->at - 1));

            if (end == NULL)
                return fail(r, "the string has no end");
            r->at = end;
        } else if (c == '[' || c == '(') {
            if (depth == MAX_DEPTH)
                return fail(r, "nested deeper than %d", MAX_DEPTH);
            closing[depth++] = c == '[' ? ']' : ')';
        } else if (c == ']' || c == ')') {
            if (closing[--depth] != c)
                return fail(r, "brackets that do not match");
        }
        r->at++;
    } while (depth > 0);
    return true;
}

static void find_type(struct npy *out)
{
    char order = out->descr[0];

    out->big_endian = order == '>';
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        bool bytes = dtype_size(types[i].dtype) == 1;

        if (order != '\0' && strcmp(out->descr + 1, types[i].name) == 0 &&
            (order == '<' || order == '>' || (order == '|' && bytes)))
            out->dtype = types[i].dtype;
    }
}

static bool read_descr(struct reader *r)
{
    skip_space(r);
    if (r->at < r->end && (*r->at == '[' || *r->at == '(')) {
        snprintf(r->out->descr, sizeof r->out->descr, "[...]");
        return skip_structure(r);
    }
    if (!read_string(r, r->out->descr, sizeof r->out->descr))
        return false;
    find_type(r->out);
    return true;
}

static bool read_order(struct reader *r)
{
    r->out->fortran_order = take_word(r, "True");
    return r->out->fortran_order || take_word(r, "False") ||
           fail(r, "True or False should stand here");
}

/* Digits, as Python takes them: no sign, no leading zero. */
static bool read_dimension(struct reader *r, int64_t *dim)
{
    const char *first = r->at;

    *dim = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
        if (__builtin_mul_overflow(*dim, 10, dim) ||
            __builtin_add_overflow(*dim, *r->at - '0', dim))
            return fail(r, "a dimension is over 9223372036854775807");
    if (r->at == first)
        return fail(r, "a dimension, in digits, should stand here");
    if (*first == '0' && r->at - first > 1)
        return fail(r, "a number may not begin with 0");
    return true;
}

/* "()", "(2,)", "(2, 3)", "(2, 3,)" */
static bool read_shape(struct reader *r)
{
    struct npy *out = r->out;
    bool comma = true;
    int64_t dim;

    if (!expect(r, '('))
        return false;
    while (!take(r, ')')) {
        if (!comma)
            return fail(r, "',' or ')' should stand here");
        if (!read_dimension(r, &dim))
            return false;
        if (out->rank < TENSOR_MAX_RANK)
            out->dim[out->rank] = dim;
        out->rank++;
        comma = take(r, ',');
    }
    return out->rank != 1 || comma ||
           fail(r, "one number in brackets is no tuple: (3,) is");
}

static const struct {
    const char *key;
    bool (*read)(struct reader *r);
} members[] = {
    { "descr", read_descr },
    { "fortran_order", read_order },
    { "shape", read_shape },
};

enum { MEMBERS = sizeof members / sizeof *members };

static bool read_member(struct reader *r, bool given[MEMBERS])
{
    char key[NPY_DESCR_BYTES];
    int i = 0;

    if (!read_string(r, key, sizeof key))
        return false;
    while (i < MEMBERS && strcmp(key, members[i].key) != 0)
        i++;
    if (i == MEMBERS)
        return fail(r, "'%s' is none of descr, fortran_order and shape", key);
    if (given[i])
        return fail(r, "'%s' comes twice", key);
    given[i] = true;
    return expect(r, ':') && members[i].read(r);
}

static bool read_header(struct reader *r)
{
    bool given[MEMBERS] = { false }, comma = true;

    if (!expect(r, '{'))
        return false;
    while (!take(r, '}')) {
        if (!comma)
            return fail(r, "',' or '}' should stand here");
        if (!read_member(r, given))
            return false;
        comma = take(r, ',');
    }
    for (int i = 0; i < MEMBERS; i++)
        if (!given[i])
            return fail(r, "%s is missing", members[i].key);
    if (!take(r, '\n'))
        return fail(r, "a newline should end the header");
    return r->at == r->end || fail(r, "something follows the newline");
}

static bool find_header(struct bytes file, struct reader *r)
{
    const uint8_t *version = file.data;
    size_t length_bytes, len = 0, start;

    if (file.len < MAGIC_BYTES + VERSION_BYTES ||
        memcmp(file.data, magic, MAGIC_BYTES) != 0)
        return error_set(r->err, ERR_REQUEST, "",
                         "the body does not begin with npy's \\x93NUMPY and a "
                         "version");
    version += MAGIC_BYTES;
    if (version[0] < 1 || version[0] > 3 || version[1] != 0)
        return error_set(r->err, ERR_REQUEST, "",
                         "npy version %d.%d is none of 1.0, 2.0 and 3.0",
                         version[0], version[1]);
    length_bytes = version[0] == 1 ? 2 : 4;
    start = MAGIC_BYTES + VERSION_BYTES + length_bytes;
    for (size_t i = start; file.len >= start && i-- > start - length_bytes;)
        len = len << 8 | file.data[i];
    if (file.len < start || len > file.len - start)
        return error_set(r->err, ERR_REQUEST, "",
                         "an npy header of %zu bytes does not fit in a body of "
                         "%zu", len, file.len);
    r->start = r->at = (const char *)file.data + start;
    r->end = r->start + len;
    r->out->data = file.data + start + len;
    return true;
}

/* With an axis of 0 there is nothing, however large the others are. */
static bool count_bytes(const struct npy *array, uint64_t *bytes)
{
    bool fits = true, empty = false;

    *bytes = dtype_size(array->dtype);
    for (uint64_t i = 0; i < array->rank; i++) {
        fits = fits && !__builtin_mul_overflow(*bytes, (uint64_t)array->dim[i],
                                               bytes);
        empty = empty || array->dim[i] == 0;
    }
    if (empty)
        *bytes = 0;
    return fits || empty;
}

static bool check_size(struct bytes file, struct reader *r)
{
    const struct npy *array = r->out;
    size_t have = (size_t)(file.data + file.len - array->data);
    uint64_t bytes;

    if (array->dtype == DTYPE_COUNT || array->rank > TENSOR_MAX_RANK)
        return true; /* refused for that */
    if (count_bytes(array, &bytes) && bytes == have)
        return true;
    return error_set(r->err, ERR_REQUEST, "",
                     "%zu bytes follow the npy header, which is not what its "
                     "shape takes in %s", have, array->descr);
}

bool npy_decode(struct bytes file, struct npy *out, struct error *err)
{
    struct reader r = { .out = out, .err = err };

    *out = (struct npy){ .dtype = DTYPE_COUNT };
    return find_header(file, &r) && read_header(&r) && check_size(file, &r);
}

size_t npy_write_header(const struct tensor *t, char out[NPY_HEADER_BYTES])
{
    const size_t start = MAGIC_BYTES + VERSION_BYTES + 2;
    char shape[TENSOR_SHAPE_BYTES];
    size_t len, total;

    len = (size_t)snprintf(out + start, NPY_HEADER_BYTES - start,
                           "{'descr': '<f%zu', 'fortran_order': False, "
                           "'shape': %s, }", dtype_size(t->dtype),
                           tensor_shape(t, shape, sizeof shape));
    total = (start + len + DATA_ALIGNMENT) / DATA_ALIGNMENT * DATA_ALIGNMENT;
    memset(out + start + len, ' ', total - start - len - 1);
    out[total - 1] = '\n';
    memcpy(out, magic, MAGIC_BYTES);
    memcpy(out + MAGIC_BYTES, "\1\0", VERSION_BYTES);
    out[start - 2] = (char)((total - start) & 0xFF);
    out[start - 1] = (char)((total - start) >> 8);
    return total;
}
