#include "core/attention_row.h"

#include "core/attention_store.h"
#include "core/kernels/kernels.h"
#include "core/philox.h"

#include <math.h>
#include <string.h>

void *attention_row_at(const struct tensor *t, int64_t n, int64_t h, int64_t i)
{
    int64_t at = n * t->step[0] + h * t->step[1] + i * t->step[2];

    return (char *)t->data + at * (int64_t)dtype_size(t->dtype);
}

static double number(const void *data, enum dtype dtype, int64_t at)
{
    return dtype == DTYPE_F32 ? (double)((const float *)data)[at]
                              : ((const double *)data)[at];
}

double attention_row_sink(const struct attention *a, int64_t h)
{
    return a->sinks == NULL ? -INFINITY : number(a->sinks, a->dtype, h);
}

double attention_row_slope(const struct attention *a, int64_t h)
{
    return a->alibi_slopes == NULL ? 0 : number(a->alibi_slopes, a->dtype, h);
}

/* scale * q . k where double ends: long double reaches beyond the product of
 * any three doubles (where it is no wider than double, nothing is gained). */
static double wide_score(const struct attention *a,
                         const struct attention_row *row, int64_t j)
{
    const double *q = attention_row_at(&a->q, row->n, row->h, row->i);
    const double *k = attention_row_at(&a->k, row->n, row->h * a->G / a->H, j);
    long double sum = 0;

    for (int64_t d = 0; d < a->D; d++)
        sum += (long double)q[d] * (long double)k[d];
    return (double)((long double)a->scale * sum);
}

void attention_row_mend(const struct attention *a,
                        const struct attention_row *row, int64_t from,
                        int64_t count, double *scores)
{
    for (int64_t j = 0; j < count; j++)
        if (!isfinite(scores[j]))
            scores[j] = wide_score(a, row, from + j);
}

static void cap(double *scores, int64_t count, double softcap)
{
    if (softcap != 0)
        for (int64_t j = 0; j < count; j++)
            scores[j] = softcap * tanh(scores[j] / softcap);
}

static void subtract_alibi(const struct attention *a,
                           const struct attention_row *row, double *seen)
{
    double slope = attention_row_slope(a, row->h);
    int64_t at = row->i + a->mask.shift;

    if (slope != 0)
        for (int64_t j = row->lo; j < row->hi; j++)
            seen[j - row->lo] -= slope * fabs((double)(at - j));
}

/* Returns whether any column is left visible. */
static bool add_masks(const struct attention *a,
                      const struct attention_row *row, double *seen)
{
    double bias[MASK_COLUMNS];
    bool any = false;

    if (mask_is_plain(&a->mask, row->n, row->lo, row->hi))
        return row->hi > row->lo;
    for (int64_t lo = row->lo; lo < row->hi; lo += MASK_COLUMNS) {
        int64_t left = row->hi - lo;
        int64_t count = left < MASK_COLUMNS ? left : MASK_COLUMNS;

        mask_row_f64(&a->mask, a->dtype, row->n, row->h, row->i, lo, lo + count,
                     bias);
        for (int64_t j = 0; j < count; j++) {
            double *score = &seen[lo - row->lo + j];
            bool visible = bias[j] != -INFINITY;

            *score = visible ? *score + bias[j] : -INFINITY;
            any |= visible;
        }
    }
    return any;
}

bool attention_row_scores(const struct attention *a,
                          const struct attention_row *row, double *seen,
                          double *appended)
{
    cap(seen, row->hi - row->lo, a->softcap);
    cap(appended, a->T - a->S, a->softcap);
    subtract_alibi(a, row, seen);
    return add_masks(a, row, seen) || a->T > a->S;
}

static double largest(double max, const double *x, int64_t count)
{
    for (int64_t j = 0; j < count; j++)
        max = x[j] > max ? x[j] : max;
    return max;
}

static double exp_all(double *x, int64_t count, double max)
{
    double sum = 0;

    for (int64_t j = 0; j < count; j++) {
        x[j] = exp(x[j] - max);
        sum += x[j];
    }
    return sum;
}

static void scale(double *x, int64_t count, double factor)
{
    for (int64_t j = 0; j < count; j++)
        x[j] *= factor;
}

static void drop(const struct attention *a, const struct attention_row *row,
                 int64_t column, int64_t count, double *weights)
{
    enum { PART = 256 };
    bool hit[PART];
    uint64_t first = (uint64_t)(((row->n * a->H + row->h) * a->L + row->i) *
                                a->T + column);

    if (a->dropout_p == 0)
        return;
    for (int64_t j = 0; j < count; j += PART) {
        int64_t n = count - j < PART ? count - j : PART;

        philox_hits(a->seed, first + (uint64_t)j, n, a->dropout_p, hit);
        for (int64_t i = 0; i < n; i++)
            if (hit[i])
                weights[j + i] = 0;
    }
}

double attention_row_weights(const struct attention *a,
                             const struct attention_row *row, double *seen,
                             double *appended)
{
    int64_t count = row->hi - row->lo, extra = a->T - a->S;
    double sink = attention_row_sink(a, row->h);
    double max = largest(largest(sink, seen, count), appended, extra);
    double sum = exp_all(seen, count, max) + exp_all(appended, extra, max) +
                 exp(sink - max);
    double factor = 1 / (sum * (1 - a->dropout_p));

    drop(a, row, row->lo, count, seen);
    drop(a, row, a->S, extra, appended);
    scale(seen, count, factor);
    scale(appended, extra, factor);
    return max + log(sum);
}

static void dot_keys(const struct attention *a, const struct kernels *kernels,
                     const struct attention_row *row, int64_t from, int64_t to,
                     double *scores)
{
    const float *q = attention_row_at(&a->q, row->n, row->h, row->i);
    int64_t g = row->h * a->G / a->H;

    for (int64_t j = from; j < to; j++) {
        const float *k = attention_row_at(&a->k, row->n, g, j);

        scores[j - from] = a->scale * kernels->dot_row(q, k, a->D);
    }
}

static void round_all(const double *from, int64_t count, float *to)
{
    for (int64_t j = 0; j < count; j++)
        to[j] = (float)from[j];
}

enum { SUM_COLUMNS = 512 }; /* doubles on the stack */

static void add_values(const struct attention *a, const struct kernels *kernels,
                       const struct attention_row *row, int64_t from,
                       int64_t to, const double *weights, int64_t column,
                       int64_t columns, double *sum)
{
    int64_t g = row->h * a->G / a->H;

    for (int64_t j = from; j < to; j++) {
        const float *v = attention_row_at(&a->v, row->n, g, j);

        if (weights[j - from] != 0)
            kernels->add_row_f64(sum, v + column, columns, weights[j - from]);
    }
}

static void weigh_values(const struct attention *a,
                         const struct kernels *kernels,
                         const struct attention_row *row, const double *seen,
                         const double *appended)
{
    float *out = attention_row_at(&a->out, row->n, row->h, row->i);

    for (int64_t column = 0; column < a->Dv; column += SUM_COLUMNS) {
        double sum[SUM_COLUMNS] = { 0 };
        int64_t left = a->Dv - column;
        int64_t columns = left < SUM_COLUMNS ? left : SUM_COLUMNS;

        add_values(a, kernels, row, row->lo, row->hi, seen, column, columns,
                   sum);
        add_values(a, kernels, row, a->S, a->T, appended, column, columns, sum);
        round_all(sum, columns, out + column);
    }
}

bool attention_row_run(const struct attention *a,
                       const struct kernels *kernels,
                       const struct attention_row *row, double *work,
                       float *seen, float *appended)
{
    int64_t count = row->hi - row->lo, extra = a->T - a->S;
    double *more = work + count;

    dot_keys(a, kernels, row, row->lo, row->hi, work);
    dot_keys(a, kernels, row, a->S, a->T, more);
    if (!attention_row_scores(a, row, work, more))
        return false;
    round_all(work, count, seen);
    round_all(more, extra, appended);
    attention_store_scores(a, row, seen, appended);
    attention_store_lse(a, row, attention_row_weights(a, row, work, more));
    weigh_values(a, kernels, row, work, more);
    round_all(work, count, seen);
    round_all(more, extra, appended);
    return true;
}
