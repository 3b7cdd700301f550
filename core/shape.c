#include "core/shape.h"

#include <stdio.h>

bool shape_is_given(const struct named_tensor *t)
{
    return t->value.rank != 0 || t->flaw != NULL;
}

bool shape_check_flaw(const struct error *flaw, struct error *err)
{
    if (flaw != NULL && err->code == ERR_NONE)
        *err = *flaw;
    return flaw == NULL;
}

bool shape_check_numbers(const struct named_tensor *t, const char *where,
                         enum dtype dtype, struct error *err)
{
    if (!shape_check_flaw(t->flaw, err))
        return false;
    if (t->value.dtype == dtype)
        return true;
    return error_set(err, ERR_TYPE, where, "%s holds %s, not numbers (%s)",
                     where + 1, dtype_name(t->value.dtype),
                     dtype_name(dtype));
}

bool shape_check_mask(const struct named_tensor *t, const char *where,
                      enum dtype dtype, struct error *err)
{
    if (t->flaw == NULL && t->value.dtype == DTYPE_BOOL)
        return true;
    return shape_check_numbers(t, where, dtype, err);
}

bool shape_fits(const struct tensor *t, int rank, const int64_t *dim)
{
    if (t->rank != rank)
        return false;
    for (int i = 0; i < rank; i++) {
        if (dim[i] != 0 && dim[i] != t->dim[i])
            return false;
    }
    return true;
}

/* "(2, *, 4)": `dim` as shape_check() reads it. Returns out. */
static char *write_dims(int rank, const int64_t *dim, char *out, size_t size)
{
    size_t at = 0;

    for (int i = 0; i < rank && at < size; i++) {
        const char *before = i == 0 ? "(" : ", ";

        at += (size_t)(dim[i] == 0
                           ? snprintf(out + at, size - at, "%s*", before)
                           : snprintf(out + at, size - at, "%s%lld", before,
                                      (long long)dim[i]));
    }
    if (at < size)
        snprintf(out + at, size - at, "%s)", rank == 1 ? "," : "");
    return out;
}

bool shape_check(const struct tensor *t, const char *where, int rank,
                 const int64_t *dim, const char *words, struct error *err)
{
    char is[TENSOR_SHAPE_BYTES], wanted[TENSOR_SHAPE_BYTES];

    if (shape_fits(t, rank, dim))
        return true;
    return error_set(err, ERR_SHAPE, where,
                     "%s has shape %s, not %s: it must be %s", where + 1,
                     tensor_shape(t, is, sizeof is),
                     write_dims(rank, dim, wanted, sizeof wanted), words);
}
