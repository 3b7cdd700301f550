#ifndef TESTS_UNIT_NUMBER_SINGLY_H
#define TESTS_UNIT_NUMBER_SINGLY_H

#include "api/number.h"

#include <math.h>
#include <string.h>

/* What api/number_array.h promises, by a loop that takes one number at a time.
 * `out` and `values` are float64 when `wide`, else float32. */

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && strchr(" \t\r\n", *p) != NULL && *p != '\0')
        p++;
    return p;
}

static const char *skip_separator(const char *p, const char *end, bool row_ends)
{
    for (const char *want = row_ends ? "],[" : ","; *want != '\0'; want++) {
        p = skip_space(p, end);
        if (p == end || *p != *want)
            return NULL;
        p++;
    }
    return p;
}

union value {
    float f32;
    double f64;
};

static size_t read_one(const char *p, const char *end, bool wide,
                       union value *value)
{
    return wide ? number_read_f64(p, end, &value->f64)
                : number_read_f32(p, end, &value->f32);
}

static inline const char *read_singly(const char *text, const char *end, size_t row,
                               bool wide, void *out, size_t room, size_t *count)
{
    const char *p = text, *behind = text;

    for (*count = 0; *count < room && p != NULL;) {
        union value value;
        size_t len;

        p = skip_space(p, end);
        len = read_one(p, end, wide, &value);
        if (len == 0)
            break;
        behind = p + len;
        memcpy((char *)out + *count * (wide ? 8 : 4), &value, wide ? 8 : 4);
        if (wide ? isinf(value.f64) : isinf(value.f32)) {
            ++*count;
            break;
        }
        ++*count;
        p = skip_separator(behind, end, row != 0 && *count % row == 0);
    }
    return behind;
}

static inline char *write_singly(const void *values, size_t count, bool wide,
                          char *out)
{
    for (size_t i = 0; i < count; i++) {
        const float *f = (const float *)values + i;
        const double *d = (const double *)values + i;

        if (i > 0)
            *out++ = ',';
        if (wide ? isfinite(*d) : isfinite(*f))
            out += wide ? number_write_f64(*d, out) : number_write_f32(*f, out);
        else
            out = (char *)memcpy(out, "null", 4) + 4;
    }
    return out;
}

#endif
