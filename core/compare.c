#include "core/compare.h"

#include <math.h>

static double at(const struct tensor *t, int64_t i)
{
    return t->dtype == DTYPE_F64 ? ((const double *)t->data)[i]
                                 : (double)((const float *)t->data)[i];
}

/* The root of the mean square of got - expected, in units of the largest
 * difference: its square would overflow from 1e154 on. */
static double scaled_rms(const struct tensor *got,
                         const struct tensor *expected, double max_abs)
{
    int64_t count = tensor_count(got);
    double sum = 0;

    for (int64_t i = 0; i < count; i++) {
        double d = (at(got, i) - at(expected, i)) / max_abs;

        sum += d * d;
    }
    return sqrt(sum / (double)count);
}

static void place(struct comparison *c, const struct tensor *got,
                  int64_t worst)
{
    c->rank = got->rank;
    for (int axis = got->rank - 1; axis >= 0; axis--) {
        c->index[axis] = worst % got->dim[axis];
        worst /= got->dim[axis];
    }
}

bool compare_tensors(const struct tensor *got, const struct tensor *expected,
                     struct comparison *comparison)
{
    struct comparison c = { .present = true };
    int64_t count = tensor_count(got), worst = 0;

    for (int64_t i = 0; i < count; i++) {
        double want = at(expected, i), d = fabs(at(got, i) - want);

        if (d > c.max_abs) {
            c.max_abs = d;
            worst = i;
        }
        if (want != 0 && d / fabs(want) > c.max_rel)
            c.max_rel = d / fabs(want);
    }
    if (c.max_abs > 0 && isfinite(c.max_abs))
        c.rms = c.max_abs * scaled_rms(got, expected, c.max_abs);
    c.got = at(got, worst);
    c.expected = at(expected, worst);
    place(&c, got, worst);
    *comparison = c;
    return isfinite(c.max_abs) && isfinite(c.max_rel);
}
