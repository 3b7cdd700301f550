#include "core/heads.h"

#include <string.h>

static const struct layout_axes axes[] = {
    /*                    name    shape           rank batch head row */
    [LAYOUT_NLE] =  { "NLE",  "(N, L, E)",    3,  0,  -1,  1 },
    [LAYOUT_LNE] =  { "LNE",  "(L, N, E)",    3,  1,  -1,  0 },
    [LAYOUT_LE] =   { "LE",   "(L, E)",       2, -1,  -1,  0 },
    [LAYOUT_NHLD] = { "NHLD", "(N, H, L, D)", 4,  0,   1,  2 },
};

const struct layout_axes *layout_axes(enum layout layout)
{
    return &axes[layout];
}

int heads_dims(enum layout layout, int64_t N, int64_t L, int64_t H, int64_t D,
               int64_t dim[4])
{
    const struct layout_axes *a = &axes[layout];

    dim[a->row] = L;
    dim[a->rank - 1] = D;
    if (a->batch >= 0)
        dim[a->batch] = N;
    if (a->head >= 0)
        dim[a->head] = H;
    else
        dim[a->rank - 1] *= H;
    return a->rank;
}

struct tensor heads_view(void *data, enum dtype dtype, enum layout layout,
                         int64_t N, int64_t L, int64_t H, int64_t D)
{
    const struct layout_axes *a = &axes[layout];
    int64_t dim[4];
    int rank = heads_dims(layout, N, L, H, D, dim);
    struct tensor whole = tensor_packed(data, dtype, rank, dim);

    return (struct tensor){
        .data = data,
        .dtype = dtype,
        .rank = 4,
        .dim = { N, H, L, D },
        .step = { a->batch >= 0 ? whole.step[a->batch] : 0,
                  a->head >= 0 ? whole.step[a->head] : D,
                  whole.step[a->row], 1 },
    };
}

static char *at(const struct tensor *t, int64_t n, int64_t h, int64_t i)
{
    int64_t offset = n * t->step[0] + h * t->step[1] + i * t->step[2];

    return (char *)t->data + (size_t)offset * dtype_size(t->dtype);
}

struct tensor heads_rows(const struct tensor *view, int64_t first,
                         int64_t count)
{
    struct tensor rows = *view;

    rows.data = at(view, 0, 0, first);
    rows.dim[2] = count;
    return rows;
}

void heads_copy(const struct tensor *from, const struct tensor *to)
{
    size_t row_bytes = (size_t)to->dim[3] * dtype_size(to->dtype);

    for (int64_t n = 0; n < to->dim[0]; n++)
        for (int64_t h = 0; h < to->dim[1]; h++)
            for (int64_t i = 0; i < to->dim[2]; i++)
                memcpy(at(to, n, h, i), at(from, n, h, i), row_bytes);
}

void heads_clear(const struct tensor *to)
{
    size_t row_bytes = (size_t)to->dim[3] * dtype_size(to->dtype);

    for (int64_t n = 0; n < to->dim[0]; n++)
        for (int64_t h = 0; h < to->dim[1]; h++)
            for (int64_t i = 0; i < to->dim[2]; i++)
                memset(at(to, n, h, i), 0, row_bytes);
}
