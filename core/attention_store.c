#include "core/attention_store.h"

#include "core/kernels/kernels.h"

#include <math.h>
#include <string.h>

static char *element(void *data, enum dtype dtype, int64_t at)
{
    return (char *)data + at * (int64_t)dtype_size(dtype);
}

static void fill(void *out, enum dtype dtype, int64_t from, int64_t to,
                 double value)
{
    float *f32 = out;
    double *f64 = out;

    for (int64_t j = from; j < to; j++)
        if (dtype == DTYPE_F32)
            f32[j] = (float)value;
        else
            f64[j] = value;
}

static void clear(void *out, enum dtype dtype, int64_t from, int64_t to)
{
    memset(element(out, dtype, from), 0,
           (size_t)(to - from) * dtype_size(dtype));
}

void attention_store_scores(const struct attention *a,
                            const struct attention_row *row, const void *seen,
                            const void *appended)
{
    size_t size = dtype_size(a->dtype);
    char *out;

    if (a->scores.rank == 0)
        return;
    out = attention_row_at(&a->scores, row->n, row->h, row->i);
    fill(out, a->dtype, 0, row->lo, -INFINITY);
    memcpy(element(out, a->dtype, row->lo), seen,
           (size_t)(row->hi - row->lo) * size);
    fill(out, a->dtype, row->hi, a->S, -INFINITY);
    memcpy(element(out, a->dtype, a->S), appended,
           (size_t)(a->T - a->S) * size);
}

static void scale(const struct kernels *kernels, enum dtype dtype, void *out,
                  const void *from, int64_t count, float factor)
{
    if (dtype == DTYPE_F32)
        kernels->scale_row(out, from, count, factor);
    else
        memcpy(out, from, (size_t)count * sizeof(double));
}

static void add(const struct kernels *kernels, enum dtype dtype, void *sum,
                const void *from, int64_t count, float factor)
{
    double *f64 = sum;
    const double *term = from;

    if (dtype == DTYPE_F32)
        kernels->add_row(sum, from, count, factor);
    else
        for (int64_t j = 0; j < count; j++)
            f64[j] += term[j];
}

static void divide(const struct kernels *kernels, enum dtype dtype, void *row,
                   int64_t count, int64_t by)
{
    double *f64 = row;

    if (dtype == DTYPE_F32)
        kernels->scale_row(row, row, count, (float)(1.0 / (double)by));
    else
        for (int64_t j = 0; j < count; j++)
            f64[j] /= (double)by;
}

int64_t attention_store_part_heads(const struct attention *a)
{
    int64_t parts = 1 + (a->mean_parts.rank == 0 ? 0 : a->mean_parts.dim[0]);

    return parts > a->G ? a->H / parts
                        : (a->G + parts - 1) / parts * (a->H / a->G);
}

/* Row n * L + i of the sum of a part. */
static char *sum_of(const struct attention *a, int64_t part, int64_t row)
{
    int64_t rows = a->N * a->L;

    return part == 0 ? element(a->weights.data, a->dtype, row * a->T)
                     : element(a->mean_parts.data, a->dtype,
                               ((part - 1) * rows + row) * a->T);
}

static void store_mean(const struct attention *a,
                       const struct kernels *kernels,
                       const struct attention_row *row, const void *seen,
                       const void *appended, float factor)
{
    int64_t more = a->mean_parts.rank == 0 ? 0 : a->mean_parts.dim[0];
    int64_t heads = attention_store_part_heads(a);
    char *out = sum_of(a, row->h / heads, row->n * a->L + row->i);

    if (row->h % heads == 0)
        clear(out, a->dtype, 0, a->T);
    add(kernels, a->dtype, element(out, a->dtype, row->lo), seen,
        row->hi - row->lo, factor);
    add(kernels, a->dtype, element(out, a->dtype, a->S), appended, a->T - a->S,
        factor);
    if (more == 0 && row->h == a->H - 1)
        divide(kernels, a->dtype, out, a->T, a->H);
}

void attention_store_merge(const struct attention *a,
                           const struct kernels *kernels, int64_t row)
{
    char *out = sum_of(a, 0, row);

    for (int64_t part = 1; part <= a->mean_parts.dim[0]; part++)
        add(kernels, a->dtype, out, sum_of(a, part, row), a->T, 1);
    divide(kernels, a->dtype, out, a->T, a->H);
}

void attention_store_weights(const struct attention *a,
                             const struct kernels *kernels,
                             const struct attention_row *row,
                             const void *seen, const void *appended,
                             float factor)
{
    char *out;

    if (a->weights.rank == 0)
        return;
    if (a->average_weights) {
        store_mean(a, kernels, row, seen, appended, factor);
        return;
    }
    out = attention_row_at(&a->weights, row->n, row->h, row->i);
    clear(out, a->dtype, 0, row->lo);
    scale(kernels, a->dtype, element(out, a->dtype, row->lo), seen,
          row->hi - row->lo, factor);
    clear(out, a->dtype, row->hi, a->S);
    scale(kernels, a->dtype, element(out, a->dtype, a->S), appended,
          a->T - a->S, factor);
}

void attention_store_lse(const struct attention *a,
                         const struct attention_row *row, double lse)
{
    const int64_t *step = a->lse.step;
    int64_t at;

    if (a->lse.rank == 0)
        return;
    at = row->n * step[0] + row->h * step[1] + row->i * step[2];
    fill(a->lse.data, a->dtype, at, at + 1, lse);
}
