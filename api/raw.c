#include "api/raw.h"

#include <math.h>
#include <string.h>

bool raw_target(enum dtype dtype, enum field_kind kind, enum dtype wide,
                enum dtype *target)
{
    *target = dtype == DTYPE_BOOL ? DTYPE_BOOL : wide;
    return dtype != DTYPE_BOOL || kind == FIELD_PADDING || kind == FIELD_BIAS;
}

static int64_t first_no_bool(const uint8_t *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (values[i] > 1)
            return i;
    }
    return -1;
}

static bool may_stand(double value, enum field_kind kind)
{
    return isfinite(value) || (kind == FIELD_BIAS && value < 0);
}

int64_t raw_convert(const void *src, enum dtype dtype, int64_t count,
                    enum field_kind kind, enum dtype target, void *out)
{
    if (target == DTYPE_BOOL) {
        memcpy(out, src, (size_t)count);
        return first_no_bool(out, count);
    }
    if (target == DTYPE_F64) {
        const double *values = out;

        tensor_to_f64(src, dtype, count, out);
        for (int64_t i = 0; i < count; i++) {
            if (!may_stand(values[i], kind))
                return i;
        }
        return -1;
    }

    const float *values = out;

    tensor_to_f32(src, dtype, count, out);
    for (int64_t i = 0; i < count; i++) {
        if (!may_stand((double)values[i], kind))
            return i;
    }
    return -1;
}
