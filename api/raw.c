#include "api/raw.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool raw_target(enum dtype dtype, enum field_kind kind, enum dtype wide,
                enum dtype *target)
{
    *target = dtype == DTYPE_BOOL ? DTYPE_BOOL : wide;
    return dtype != DTYPE_BOOL || kind == FIELD_PADDING || kind == FIELD_BIAS;
}

/* ---- the first element that may not stand ---- */

/* Sixteen bytes at a time: gcc 12 makes no vectors of such loops at -O2, and one
 * element at a time a look costs more than a copy. */
typedef uint32_t u32x4 __attribute__((vector_size(16)));

enum { BLOCK = 1024 };

/* Of each word: the bits that count, what is added to them, and what is then
 * set if it may not stand. The exponent of an infinity or a NaN is all ones, to
 * which a one more carries into the sign; that of a double is in its odd word. */
static const struct {
    u32x4 bits, more, bad;
} tests[] = {
    [DTYPE_F64] = { { 0, 0x7FF00000, 0, 0x7FF00000 },
                    { 0, 0x00100000, 0, 0x00100000 },
                    { 0, 0x80000000, 0, 0x80000000 } },
    [DTYPE_F32] = { { 0x7F800000, 0x7F800000, 0x7F800000, 0x7F800000 },
                    { 0x00800000, 0x00800000, 0x00800000, 0x00800000 },
                    { 0x80000000, 0x80000000, 0x80000000, 0x80000000 } },
    [DTYPE_BOOL] = { { 0xFEFEFEFE, 0xFEFEFEFE, 0xFEFEFEFE, 0xFEFEFEFE },
                     { 0, 0, 0, 0 },
                     { 0xFEFEFEFE, 0xFEFEFEFE, 0xFEFEFEFE, 0xFEFEFEFE } },
};

/* Whether one of them may not stand; `bytes` is a multiple of 64. */
static bool is_suspect(const uint8_t *at, size_t bytes, enum dtype dtype)
{
    const uint8_t *end = at + bytes;
    u32x4 bits = tests[dtype].bits, more = tests[dtype].more;
    u32x4 found = { 0 }, v[4];

    for (; at < end; at += sizeof v) {
        memcpy(v, at, sizeof v);
        found |= ((v[0] & bits) + more) | ((v[1] & bits) + more) |
                 ((v[2] & bits) + more) | ((v[3] & bits) + more);
    }
    found &= tests[dtype].bad;
    return (found[0] | found[1] | found[2] | found[3]) != 0;
}

static bool may_stand(const uint8_t *at, enum dtype dtype, enum field_kind kind)
{
    double value;
    float narrow;

    if (dtype == DTYPE_BOOL)
        return *at <= 1;
    memcpy(&narrow, at, sizeof narrow);
    if (dtype == DTYPE_F64)
        memcpy(&value, at, sizeof value);
    else
        value = (double)narrow;
    return isfinite(value) || (kind == FIELD_BIAS && value < 0);
}

static int64_t first_bad(const void *values, enum dtype dtype, int64_t count,
                         enum field_kind kind)
{
    size_t size = dtype_size(dtype);

    for (int64_t i = 0; i < count; i += BLOCK) {
        const uint8_t *at = (const uint8_t *)values + (size_t)i * size;
        int64_t n = count - i < BLOCK ? count - i : BLOCK;
        size_t whole = (size_t)n * size / 64 * 64;
        bool suspect = is_suspect(at, whole, dtype);

        for (int64_t j = suspect ? 0 : (int64_t)(whole / size); j < n; j++)
            if (!may_stand(at + (size_t)j * size, dtype, kind))
                return i + j;
    }
    return -1;
}

int64_t raw_convert(const void *src, enum dtype dtype, int64_t count,
                    enum field_kind kind, enum dtype target, void *out)
{
    if (dtype == target)
        memcpy(out, src, (size_t)count * dtype_size(dtype));
    else
        tensor_convert(src, dtype, count, target, out);
    return first_bad(out, target, count, kind);
}

/* ---- a tensor ---- */

static bool no_memory(const struct named_tensor *tensor, struct error *err)
{
    return error_set(err, ERR_OVERLOADED, "", "no memory is left for %s",
                     tensor->name);
}

bool raw_flaw(const struct raw *raw, struct arena *arena,
              struct named_tensor *tensor, struct error *err,
              enum error_code code, const char *format, ...)
{
    struct error *flaw;
    char why[256];
    va_list args;

    if (tensor->flaw != NULL)
        return true;
    flaw = arena_alloc(arena, sizeof *flaw);
    if (flaw == NULL)
        return no_memory(tensor, err);
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    flaw->code = ERR_NONE;
    error_set(flaw, code, raw->where, "%s%s", tensor->name, why);
    tensor->flaw = flaw;
    tensor->value = (struct tensor){ 0 };
    return true;
}

/* "[0][3]": the element `i` in C order. */
static void write_place(const struct raw *raw, int64_t i, char *out,
                        size_t size)
{
    int64_t index[TENSOR_MAX_RANK];
    size_t at = 0;

    for (int axis = raw->rank - 1; axis >= 0; axis--) {
        index[axis] = i % raw->dim[axis];
        i /= raw->dim[axis];
    }
    for (int axis = 0; axis < raw->rank && at < size; axis++)
        at += (size_t)snprintf(out + at, size - at, "[%lld]",
                               (long long)index[axis]);
}

static bool bad_element(const struct raw *raw, enum dtype target, int64_t i,
                        struct arena *arena, struct named_tensor *tensor,
                        struct error *err)
{
    bool is_bool = target == DTYPE_BOOL;
    char place[TENSOR_MAX_RANK * 22 + 1];

    write_place(raw, i, place, sizeof place);
    return raw_flaw(raw, arena, tensor, err,
                    is_bool ? ERR_RANGE : ERR_NOT_FINITE, "%s is %s", place,
                    is_bool ? "a boolean that is not 0 or 1" : "not finite");
}

/* The steps between elements of the source, in bytes, for each axis. */
struct path {
    size_t step[TENSOR_MAX_RANK];
    int64_t index[TENSOR_MAX_RANK];
    const uint8_t *at;
};

static void begin_path(const struct raw *raw, struct path *path)
{
    size_t step = dtype_size(raw->dtype);

    *path = (struct path){ .at = raw->data };
    for (int i = 0; i < raw->rank; i++) {
        int axis = raw->fortran_order ? i : raw->rank - 1 - i;

        path->step[axis] = step;
        step *= (size_t)raw->dim[axis];
    }
}

/* On by `n` elements of the last axis, at most to its end. */
static void follow_path(const struct raw *raw, struct path *path, int64_t n)
{
    for (int axis = raw->rank - 1; axis >= 0; axis--, n = 1) {
        path->at += path->step[axis] * (size_t)n;
        path->index[axis] += n;
        if (path->index[axis] < raw->dim[axis])
            return;
        path->at -= path->step[axis] * (size_t)raw->dim[axis];
        path->index[axis] = 0;
    }
}

/* `n` elements of `size` bytes, `step` apart, to a row of them. */
static void copy_strided(const uint8_t *from, size_t step, int64_t n,
                         size_t size, uint8_t *to)
{
#define COPY(bytes)                                                            \
    for (int64_t i = 0; i < n; i++)                                            \
        memcpy(to + (size_t)i * (bytes), from + (size_t)i * step, bytes);      \
    break

    switch (size) {
    case 1: COPY(1);
    case 2: COPY(2);
    case 4: COPY(4);
    default: COPY(8);
    }
#undef COPY
}

static void reverse_bytes(uint8_t *piece, int64_t n, size_t size)
{
#define REVERSE(TYPE, swap)                                                    \
    for (int64_t i = 0; i < n; i++) {                                          \
        TYPE x;                                                                \
        memcpy(&x, piece + (size_t)i * sizeof x, sizeof x);                    \
        x = swap(x);                                                           \
        memcpy(piece + (size_t)i * sizeof x, &x, sizeof x);                    \
    }                                                                          \
    break

    switch (size) {
    case 2: REVERSE(uint16_t, __builtin_bswap16);
    case 4: REVERSE(uint32_t, __builtin_bswap32);
    case 8: REVERSE(uint64_t, __builtin_bswap64);
    default: break;
    }
#undef REVERSE
}

/* The next `n` elements in C order, little-endian. */
static void gather(const struct raw *raw, struct path *path, int64_t n,
                   uint8_t *piece)
{
    size_t size = dtype_size(raw->dtype);
    int last = raw->rank - 1;

    for (int64_t i = 0, run; i < n; i += run) {
        run = raw->dim[last] - path->index[last];
        if (run > n - i)
            run = n - i;
        copy_strided(path->at, path->step[last], run, size,
                     piece + (size_t)i * size);
        follow_path(raw, path, run);
    }
    if (raw->big_endian)
        reverse_bytes(piece, n, size);
}

/* In pieces that stay in L1. The source of a transposed tensor is read with a
 * stride, and each of its lines again while it is still in a cache. */
static int64_t convert_pieces(const struct raw *raw, int64_t count,
                              enum dtype target, void *out)
{
    uint8_t piece[BLOCK * sizeof(double)];
    struct path path;

    begin_path(raw, &path);
    for (int64_t i = 0; i < count; i += BLOCK) {
        int64_t n = count - i < BLOCK ? count - i : BLOCK;

        gather(raw, &path, n, piece);

        int64_t bad = raw_convert(piece, raw->dtype, n, raw->kind, target,
                                  (uint8_t *)out +
                                      (size_t)i * dtype_size(target));

        if (bad >= 0)
            return i + bad;
    }
    return -1;
}

/* A row or a column is in order either way. */
static bool is_in_order(const struct raw *raw)
{
    int longer = 0;

    for (int i = 0; i < raw->rank; i++)
        longer += raw->dim[i] > 1;
    return (!raw->fortran_order || longer <= 1) &&
           (!raw->big_endian || dtype_size(raw->dtype) == 1);
}

static bool is_aligned(const struct raw *raw)
{
    return (uintptr_t)raw->data % dtype_size(raw->dtype) == 0;
}

bool raw_read(const struct raw *raw, struct arena *arena,
              struct named_tensor *tensor, struct error *err)
{
    bool in_order = is_in_order(raw);
    /* Read-only by agreement; struct tensor has no const. */
    void *data = (void *)(uintptr_t)raw->data;
    enum dtype target;
    int64_t count, bad;

    if (!raw_target(raw->dtype, raw->kind, raw->wide, &target))
        return raw_flaw(raw, arena, tensor, err, ERR_TYPE,
                        " is BOOL, which only masks have");
    tensor_count_dims(raw->dim, raw->rank, &count);
    if (in_order && target == raw->dtype && is_aligned(raw)) {
        bad = first_bad(data, target, count, raw->kind);
    } else {
        data = arena_array(arena, (size_t)count, dtype_size(target));
        if (data == NULL)
            return no_memory(tensor, err);
        bad = in_order ? raw_convert(raw->data, raw->dtype, count, raw->kind,
                                     target, data)
                       : convert_pieces(raw, count, target, data);
    }
    if (bad >= 0)
        return bad_element(raw, target, bad, arena, tensor, err);
    tensor->value = tensor_packed(data, target, raw->rank, raw->dim);
    return true;
}
