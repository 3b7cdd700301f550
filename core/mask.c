#include "core/mask.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static void window(const struct mask *mask, int64_t i, int64_t *lo, int64_t *hi)
{
    int64_t at = i + mask->shift, S = mask->S;

    *lo = at > mask->left ? at - mask->left : 0;
    *hi = mask->right >= S - 1 - at ? S : at + mask->right + 1;
    if (*hi < 0)
        *hi = 0;
    if (*lo > *hi)
        *lo = *hi;
}

/* memchr looks at 32 bytes a cycle, so this costs nothing beside a row. */
static void trim(const uint8_t *hidden, int64_t *lo, int64_t *hi)
{
    const uint8_t *last = *hi > *lo
        ? memrchr(hidden + *lo, 0, (size_t)(*hi - *lo)) : NULL;

    if (last == NULL) {
        *hi = *lo;
        return;
    }
    *hi = last - hidden + 1;

    const uint8_t *first = memchr(hidden + *lo, 0, (size_t)(*hi - *lo));

    *lo = first - hidden;
}

void mask_range(const struct mask *mask, int64_t n, int64_t i, int64_t *lo,
                int64_t *hi)
{
    window(mask, i, lo, hi);
    if (mask->key_hidden != NULL)
        trim(mask->key_hidden + n * mask->S, lo, hi);
}

static bool hides_keys(const struct mask *mask, int64_t n, int64_t lo,
                       int64_t hi)
{
    return mask->key_hidden != NULL && hi > lo &&
           memchr(mask->key_hidden + n * mask->S + lo, 1,
                  (size_t)(hi - lo)) != NULL;
}

bool mask_is_plain(const struct mask *mask, int64_t n, int64_t lo, int64_t hi)
{
    return mask->hidden.rank == 0 && mask->bias.rank == 0 &&
           mask->key_bias == NULL && !hides_keys(mask, n, lo, hi);
}

static int64_t offset(const struct tensor *t, int64_t n, int64_t h, int64_t i,
                      int64_t j)
{
    return n * t->step[0] + h * t->step[1] + i * t->step[2] + j * t->step[3];
}

/* out |= row ^ flip, eight bytes of 0 or 1 at a time. */
static void forbid_packed(const uint8_t *row, uint8_t flip, int64_t count,
                          uint8_t *out)
{
    const uint64_t flips = flip * 0x0101010101010101u;
    int64_t j = 0;

    for (; j + 8 <= count; j += 8) {
        uint64_t x, y;

        memcpy(&x, row + j, sizeof x);
        memcpy(&y, out + j, sizeof y);
        y |= x ^ flips;
        memcpy(out + j, &y, sizeof y);
    }
    for (; j < count; j++)
        out[j] |= row[j] ^ flip;
}

bool mask_is_boolean(const struct mask *mask)
{
    return mask->bias.rank == 0 && mask->key_bias == NULL;
}

const uint8_t *mask_row_flags(const struct mask *mask, int64_t n, int64_t h,
                              int64_t i, int64_t lo, int64_t hi, uint8_t *out)
{
    bool keys = hides_keys(mask, n, lo, hi);
    const uint8_t *key_row = keys ? mask->key_hidden + n * mask->S + lo : NULL;
    const uint8_t *row = mask->hidden.data;
    int64_t count = hi - lo, step = mask->hidden.step[3];
    uint8_t flip = mask->hides_when ^ 1;

    assert(count <= MASK_COLUMNS);
    if (mask->hidden.rank == 0 && keys)
        return key_row;
    if (keys)
        memcpy(out, key_row, (size_t)count);
    else
        memset(out, 0, (size_t)count);
    if (mask->hidden.rank == 0)
        return out;
    row += offset(&mask->hidden, n, h, i, lo);
    if (step == 1 && flip == 0 && !keys)
        return row;
    if (step == 1)
        forbid_packed(row, flip, count, out);
    else
        for (int64_t j = 0; j < count; j++)
            out[j] |= row[j * step] ^ flip;
    return out;
}

static void add(const void *values, enum dtype dtype, int64_t step,
                int64_t count, double *sum)
{
    const float *f32 = values;
    const double *f64 = values;

    if (dtype == DTYPE_F32)
        for (int64_t j = 0; j < count; j++)
            sum[j] += (double)f32[j * step];
    else
        for (int64_t j = 0; j < count; j++)
            sum[j] += f64[j * step];
}

static const void *element(const void *data, enum dtype dtype, int64_t at)
{
    return (const char *)data + at * (int64_t)dtype_size(dtype);
}

void mask_row_f64(const struct mask *mask, enum dtype dtype, int64_t n,
                  int64_t h, int64_t i, int64_t lo, int64_t hi, double *out)
{
    uint8_t room[MASK_COLUMNS];
    const uint8_t *forbidden = mask_row_flags(mask, n, h, i, lo, hi, room);
    int64_t count = hi - lo;

    memset(out, 0, (size_t)count * sizeof *out);
    if (mask->key_bias != NULL)
        add(element(mask->key_bias, dtype, n * mask->S + lo), dtype, 1, count,
            out);
    if (mask->bias.rank != 0)
        add(element(mask->bias.data, dtype, offset(&mask->bias, n, h, i, lo)),
            dtype, mask->bias.step[3], count, out);
    for (int64_t j = 0; j < count; j++)
        if (forbidden[j] ||
            (dtype == DTYPE_F32 && (float)out[j] == -INFINITY))
            out[j] = -INFINITY;
}

static void round_row(const struct mask *mask, int64_t n, int64_t h, int64_t i,
                      int64_t lo, int64_t hi, double shift, float *out)
{
    double sum[MASK_COLUMNS];

    mask_row_f64(mask, DTYPE_F32, n, h, i, lo, hi, sum);
    for (int64_t j = 0; j < hi - lo; j++)
        out[j] = (float)(sum[j] - shift);
}

static void hide_row(const struct mask *mask, int64_t n, int64_t h, int64_t i,
                     int64_t lo, int64_t hi, float *out)
{
    uint8_t room[MASK_COLUMNS];
    const uint8_t *forbidden = mask_row_flags(mask, n, h, i, lo, hi, room);

    for (int64_t j = 0; j < hi - lo; j++)
        out[j] = forbidden[j] ? -INFINITY : 0;
}

/* The client's own numbers, where one mask says it all and hides nothing. */
static const float *lone_row(const struct mask *mask, int64_t n, int64_t h,
                             int64_t i, int64_t lo, int64_t hi)
{
    bool biased = mask->bias.rank != 0;

    if (mask->hidden.rank != 0 || hides_keys(mask, n, lo, hi))
        return NULL;
    if (!biased && mask->key_bias != NULL)
        return element(mask->key_bias, DTYPE_F32, n * mask->S + lo);
    if (biased && mask->key_bias == NULL && mask->bias.step[3] == 1)
        return element(mask->bias.data, DTYPE_F32,
                       offset(&mask->bias, n, h, i, lo));
    return NULL;
}

typedef float floats __attribute__((vector_size(16)));

/* Whether all of sixteen numbers swallow. */
static bool swallows(const float *bias)
{
    floats x[4];
    uint64_t all[2];

    memcpy(x, bias, sizeof x);

    typeof(x[0] <= x[1]) below = x[0] <= -MASK_SWALLOWING;

    for (int i = 1; i < 4; i++)
        below &= x[i] <= -MASK_SWALLOWING;
    memcpy(all, &below, sizeof all);
    return (all[0] & all[1]) == UINT64_MAX;
}

void mask_narrow(const struct mask *mask, int64_t n, int64_t h, int64_t i,
                 int64_t *lo, int64_t *hi)
{
    const float *bias = lone_row(mask, n, h, i, *lo, *hi);
    const float leaving = -MASK_SWALLOWING / 2;
    int64_t from = 0, to = *hi - *lo;

    if (bias == NULL)
        return;
    while (to >= 16 && swallows(bias + to - 16))
        to -= 16;
    while (to > 0 && bias[to - 1] <= -MASK_SWALLOWING)
        to--;
    while (from + 16 <= to && swallows(bias + from))
        from += 16;
    while (from < to && bias[from] <= -MASK_SWALLOWING)
        from++;
    if (from == to ||
        (bias[from] < leaving && bias[to - 1] < leaving))
        return;
    *hi = *lo + to;
    *lo += from;
}

static void shift_row(const float *from, int64_t count, double shift,
                      float *out)
{
    typedef double doubles __attribute__((vector_size(32)));
    int64_t j = 0;

    for (; j + 4 <= count; j += 4) {
        floats x;

        memcpy(&x, from + j, sizeof x);
        x = __builtin_convertvector(
            __builtin_convertvector(x, doubles) - shift, floats);
        memcpy(out + j, &x, sizeof x);
    }
    for (; j < count; j++)
        out[j] = (float)((double)from[j] - shift);
}

const float *mask_row_f32(const struct mask *mask, int64_t n, int64_t h,
                          int64_t i, int64_t lo, int64_t hi, double shift,
                          float *out)
{
    const float *lone = lone_row(mask, n, h, i, lo, hi);

    if (lone != NULL && shift == 0)
        return lone;
    if (lone != NULL)
        shift_row(lone, hi - lo, shift, out);
    else if (mask->bias.rank != 0 || mask->key_bias != NULL)
        round_row(mask, n, h, i, lo, hi, shift, out);
    else
        hide_row(mask, n, h, i, lo, hi, out);
    return out;
}
