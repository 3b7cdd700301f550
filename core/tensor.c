#include "core/tensor.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[DTYPE_COUNT] = {
    [DTYPE_F64] = { "F64", 8 },  [DTYPE_F32] = { "F32", 4 },
    [DTYPE_F16] = { "F16", 2 },  [DTYPE_BF16] = { "BF16", 2 },
    [DTYPE_I64] = { "I64", 8 },  [DTYPE_I32] = { "I32", 4 },
    [DTYPE_I16] = { "I16", 2 },  [DTYPE_I8] = { "I8", 1 },
    [DTYPE_U8] = { "U8", 1 },    [DTYPE_BOOL] = { "BOOL", 1 },
};

size_t dtype_size(enum dtype dtype)
{
    return dtypes[dtype].bytes;
}

const char *dtype_name(enum dtype dtype)
{
    return dtypes[dtype].name;
}

bool dtype_find(const char *name, enum dtype *dtype)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            *dtype = (enum dtype)i;
            return true;
        }
    }
    return false;
}

bool tensor_count_dims(const int64_t *dim, int rank, int64_t *count)
{
    int64_t product = 1;

    for (int i = 0; i < rank; i++) {
        if (dim[i] < 1 || product > INT64_MAX / 8 / dim[i])
            return false;
        product *= dim[i];
    }
    *count = product;
    return true;
}

int64_t tensor_count(const struct tensor *t)
{
    int64_t product = t->rank == 0 ? 0 : 1;

    for (int i = 0; i < t->rank; i++)
        product *= t->dim[i];
    return product;
}

size_t tensor_bytes(const struct tensor *t)
{
    return (size_t)tensor_count(t) * dtype_size(t->dtype);
}

struct tensor tensor_packed(void *data, enum dtype dtype, int rank,
                            const int64_t *dim)
{
    struct tensor t = { .data = data, .dtype = dtype, .rank = rank };
    int64_t step = 1;

    for (int i = rank - 1; i >= 0; i--) {
        t.dim[i] = dim[i];
        t.step[i] = step;
        step *= dim[i];
    }
    return t;
}

bool tensor_is_packed(const struct tensor *t)
{
    struct tensor packed = tensor_packed(t->data, t->dtype, t->rank, t->dim);

    return memcmp(packed.step, t->step, sizeof packed.step) == 0;
}

char *tensor_shape(const struct tensor *t, char *out, size_t size)
{
    size_t at = (size_t)snprintf(out, size, "(");

    for (int i = 0; i < t->rank && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%lld",
                               i == 0 ? "" : ", ", (long long)t->dim[i]);
    if (at < size)
        snprintf(out + at, size - at, "%s)", t->rank == 1 ? "," : "");
    return out;
}

static uint16_t load_u16(const unsigned char *p)
{
    uint16_t bits;

    memcpy(&bits, p, sizeof bits);
    return bits;
}

static float bf16_value(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 mantissa bits. Every
 * one is a float32 exactly. */
static float f16_value(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 31u, mantissa = half & 1023u;
    uint32_t bits;
    float value;

    if (exponent == 0) {
        value = (float)mantissa * 0x1p-24f; /* zero or denormal */
        return sign != 0 ? -value : value;
    }
    bits = sign | (exponent == 31 ? 255u : exponent + 112u) << 23 |
           mantissa << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- four at a time, by whatever vectors the processor has ---- */

enum { LANES = 4 };
typedef uint16_t halves __attribute__((vector_size(2 * LANES)));
typedef uint32_t words __attribute__((vector_size(4 * LANES)));
typedef float floats __attribute__((vector_size(4 * LANES)));
typedef double doubles __attribute__((vector_size(8 * LANES)));

/* A float of the same mantissa and 2^112 times too small: so denormals become
 * what they stand for. What is not finite keeps its bits. */
static inline floats f16_floats(words half)
{
    words size = (half & 0x7fffu) << 13, sign = (half & 0x8000u) << 16;
    words endless = (words)(size >= 0x0f800000u) & 0x7f800000u;
    words value = (words)((floats)size * 0x1p112f);

    return (floats)(value | endless | sign);
}

static inline floats load_halves(const unsigned char *from, enum dtype dtype)
{
    halves half;

    memcpy(&half, from, sizeof half);

    words wide = __builtin_convertvector(half, words);

    return dtype == DTYPE_F16 ? f16_floats(wide) : (floats)(wide << 16);
}

/* As many as fill vectors; returns how many. */
static int64_t halves_to_f32(const unsigned char *from, enum dtype dtype,
                             int64_t count, float *dst)
{
    int64_t i = 0;

    for (; i + LANES <= count; i += LANES) {
        floats x = load_halves(from + 2 * i, dtype);

        memcpy(dst + i, &x, sizeof x);
    }
    return i;
}

static int64_t halves_to_f64(const unsigned char *from, enum dtype dtype,
                             int64_t count, double *dst)
{
    int64_t i = 0;

    for (; i + LANES <= count; i += LANES) {
        doubles x = __builtin_convertvector(load_halves(from + 2 * i, dtype),
                                            doubles);

        memcpy(dst + i, &x, sizeof x);
    }
    return i;
}

#define HALVES(dst)                                                            \
    _Generic(*(dst), float: halves_to_f32, double: halves_to_f64)

/* Both conversions below are this loop: TYPE is the element in memory, and
 * memcpy because a wire body promises no alignment. */
#define CONVERT(TYPE)                                                          \
    for (int64_t i = 0; i < count; i++) {                                      \
        TYPE x;                                                                \
        memcpy(&x, from + (size_t)i * sizeof x, sizeof x);                     \
        dst[i] = (__typeof__(*dst))x;                                          \
    }                                                                          \
    break

#define CONVERT_ALL                                                            \
    switch (dtype) {                                                           \
    case DTYPE_F64: CONVERT(double);                                           \
    case DTYPE_F32: CONVERT(float);                                            \
    case DTYPE_I64: CONVERT(int64_t);                                          \
    case DTYPE_I32: CONVERT(int32_t);                                          \
    case DTYPE_I16: CONVERT(int16_t);                                          \
    case DTYPE_I8: CONVERT(int8_t);                                            \
    case DTYPE_U8:                                                             \
    case DTYPE_BOOL: CONVERT(uint8_t);                                         \
    case DTYPE_F16:                                                            \
        for (int64_t i = HALVES(dst)(from, dtype, count, dst); i < count; i++) \
            dst[i] = f16_value(load_u16(from + 2 * i));                        \
        break;                                                                 \
    case DTYPE_BF16:                                                           \
        for (int64_t i = HALVES(dst)(from, dtype, count, dst); i < count; i++) \
            dst[i] = bf16_value(load_u16(from + 2 * i));                       \
        break;                                                                 \
    case DTYPE_COUNT: break;                                                   \
    }

static void to_f32(const void *src, enum dtype dtype, int64_t count, float *dst)
{
    const unsigned char *from = src;

    CONVERT_ALL
}

static void to_f64(const void *src, enum dtype dtype, int64_t count, double *dst)
{
    const unsigned char *from = src;

    CONVERT_ALL
}

void tensor_convert(const void *src, enum dtype dtype, int64_t count,
                    enum dtype wanted, void *dst)
{
    if (wanted == DTYPE_F64)
        to_f64(src, dtype, count, dst);
    else
        to_f32(src, dtype, count, dst);
}

/* To nearest, ties to even; cut instead of rounded up to infinity. */
static inline words round_words(words bits)
{
    words rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
    words over = (words)((rounded & 0x7F800000u) == 0x7F800000u);

    return ((over & bits) | (~over & rounded)) & 0xFFFF0000u;
}

void tensor_round_bf16(float *values, int64_t count)
{
    int64_t i = 0;

    for (; i < count; i += LANES) {
        size_t bytes = (size_t)(count - i < LANES ? count - i : LANES) *
                       sizeof *values;
        words bits = { 0 };

        if (bytes == sizeof bits)
            memcpy(&bits, values + i, sizeof bits);
        else
            memcpy(&bits, values + i, bytes);
        bits = round_words(bits);
        if (bytes == sizeof bits)
            memcpy(values + i, &bits, sizeof bits);
        else
            memcpy(values + i, &bits, bytes);
    }
}
