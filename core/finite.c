#include "core/finite.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Sixteen bytes at a time: gcc 12 makes no vectors of such a loop at -O2, and
 * one number at a time a pass over the weights is felt. */
typedef float f32x4 __attribute__((vector_size(16)));
typedef double f64x2 __attribute__((vector_size(16)));
typedef int64_t i64x2 __attribute__((vector_size(16)));

#define ALL_WITHIN(TYPE, VECTOR, least, most)                                  \
    do {                                                                       \
        const TYPE *x = (const TYPE *)t->data + at;                            \
        int64_t i = 0, lanes = sizeof(VECTOR) / sizeof(TYPE);                  \
        for (; count - i >= lanes; i += lanes) {                               \
            VECTOR v;                                                          \
            memcpy(&v, x + i, sizeof v);                                       \
            within &= (i64x2)((v >= (least)) & (v <= (most)));                 \
        }                                                                      \
        for (; i < count; i++)                                                 \
            rest = rest && x[i] >= (least) && x[i] <= (most);                  \
    } while (0)

static bool block_is_finite(const struct tensor *t, int64_t at, int64_t count,
                            bool minus_infinity)
{
    i64x2 within = { -1, -1 };
    bool rest = true;

    if (t->dtype == DTYPE_F64)
        ALL_WITHIN(double, f64x2, minus_infinity ? -INFINITY : -DBL_MAX,
                   DBL_MAX);
    else
        ALL_WITHIN(float, f32x4, minus_infinity ? -INFINITY : -FLT_MAX,
                   FLT_MAX);
    return rest && (within[0] & within[1]) == -1;
}

enum { BLOCK = 1024 };

static bool refuse_element(const struct tensor *t, int64_t at,
                           const char *name, struct error *err)
{
    int64_t index[TENSOR_MAX_RANK];
    char place[128];
    size_t len = 0;

    for (int i = t->rank - 1; i >= 0; i--) {
        index[i] = at % t->dim[i];
        at /= t->dim[i];
    }
    for (int i = 0; i < t->rank && len < sizeof place; i++)
        len += (size_t)snprintf(place + len, sizeof place - len, "[%lld]",
                                (long long)index[i]);
    return error_set(err, ERR_NOT_FINITE, "",
                     "%s%s is not finite in %s, though every number sent is",
                     name, place,
                     t->dtype == DTYPE_F64 ? "float64" : "float32");
}

bool finite_check(const struct tensor *t, const char *name,
                  bool minus_infinity, struct error *err)
{
    int64_t count = tensor_count(t);

    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t n = count - at < BLOCK ? count - at : BLOCK;

        if (block_is_finite(t, at, n, minus_infinity))
            continue;
        while (block_is_finite(t, at, 1, minus_infinity))
            at++; /* ends in this block */
        return refuse_element(t, at, name, err);
    }
    return true;
}
