#include "core/attention_softmax.h"

#include "core/attention_store.h"
#include "core/kernels/kernels.h"
#include "core/philox.h"

#include <math.h>
#include <string.h>

/* A bias this large on every key leaves a score so few of its bits that the
 * weights are off by 1e-6. */
static const float LARGE_BIAS = 16;

/* Softmax knows differences only, so that the largest bias may be taken off all
 * of them first. Up to here, the scores that a double keeps beside such a bias
 * are exact enough to be the same; from MASK_SWALLOWING on it keeps none of
 * them, where they are small. */
static const float KEEPING_BIAS = 0x1p30f;

/* The row and what its passes find out. */
struct pass {
    const struct attention *a;
    const struct kernels *kernels;
    const struct attention_row *row;
    float max;      /* of what enters the softmax */
    float bias_max; /* of what masks and ALiBi add */
    double shift;   /* taken off the masks */
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* mask - slope * distance of at most MASK_COLUMNS columns from `lo` on; in
 * `room`, or where the client's own row is. */
static const float *bias_of(const struct pass *pass, int64_t lo, int64_t count,
                            float *room)
{
    const struct attention *a = pass->a;
    const struct attention_row *row = pass->row;
    const float *bias = NULL;

    if (!mask_is_plain(&a->mask, row->n, lo, lo + count))
        bias = mask_row_f32(&a->mask, row->n, row->h, row->i, lo, lo + count,
                            pass->shift, room);
    if (a->alibi_slopes == NULL && bias != NULL)
        return bias;
    pass->kernels->alibi_row(room, bias, count,
                             (float)attention_row_slope(a, row->h),
                             row->i + a->mask.shift - lo);
    return room;
}

/* Adds what ALiBi and masks add. False when a visible score is not finite. */
static bool add_biases(struct pass *pass, float *seen)
{
    const struct attention_row *row = pass->row;
    bool sound = true;

    for (int64_t lo = row->lo; lo < row->hi; lo += MASK_COLUMNS) {
        float room[MASK_COLUMNS];
        int64_t count = least(row->hi - lo, MASK_COLUMNS);
        const float *bias = bias_of(pass, lo, count, room);

        sound &= pass->kernels->mask_row(seen + (lo - row->lo), bias, count,
                                         &pass->max, &pass->bias_max);
    }
    return sound;
}

/* The same where masks are booleans and there is no ALiBi. */
static bool hide(struct pass *pass, float *seen)
{
    const struct attention_row *row = pass->row;
    bool sound = true;

    for (int64_t lo = row->lo; lo < row->hi; lo += MASK_COLUMNS) {
        uint8_t room[MASK_COLUMNS];
        int64_t count = least(row->hi - lo, MASK_COLUMNS);
        const uint8_t *flags = mask_row_flags(&pass->a->mask, row->n, row->h,
                                              row->i, lo, lo + count, room);

        sound &= pass->kernels->hide_row(seen + (lo - row->lo), flags, count,
                                         &pass->max);
    }
    return sound;
}

/* What a huge bias leaves of the scores: nothing. False when one of them is so
 * large, or not finite, that it may be otherwise. */
static bool swallow(const struct pass *pass, float *seen, int64_t count)
{
    float size = pass->kernels->size_row(seen, count);

    memset(seen, 0, (size_t)count * sizeof *seen);
    return size <= MASK_SMALL_SCORE;
}

static bool finish_scores(struct pass *pass, float *seen, float *appended)
{
    const struct attention *a = pass->a;
    const struct attention_row *row = pass->row;
    int64_t count = row->hi - row->lo, extra = a->T - a->S;
    bool sound = true;

    if (a->softcap != 0) {
        pass->kernels->cap_row(seen, count, (float)a->softcap);
        pass->kernels->cap_row(appended, extra, (float)a->softcap);
    }
    if (fabs(pass->shift) >= (double)MASK_SWALLOWING)
        sound = swallow(pass, seen, count);
    if (a->alibi_slopes != NULL)
        sound &= add_biases(pass, seen);
    else if (mask_is_plain(&a->mask, row->n, row->lo, row->hi))
        sound &= pass->kernels->max_row(seen, count, &pass->max);
    else if (mask_is_boolean(&a->mask))
        sound &= hide(pass, seen);
    else
        sound &= add_biases(pass, seen);
    return pass->kernels->max_row(appended, extra, &pass->max) && sound;
}

/* Whether the masks are too large for the scores beside them, and what then.
 * ALiBi is made in float, and appended keys have no mask: neither is shifted.
 * Nor is a sink: beside a large negative bias it is all of the denominator, and
 * shifted there and back it would lose its digits. */
static enum attention_softmax judge(const struct pass *pass, double *shift)
{
    float size = fabsf(pass->bias_max);

    if (pass->bias_max == -INFINITY || size < LARGE_BIAS)
        return SOFTMAX_LIVE;
    if (pass->shift != 0 || pass->a->alibi_slopes != NULL ||
        pass->a->T > pass->a->S || pass->a->sinks != NULL ||
        (size > KEEPING_BIAS && size < MASK_SWALLOWING))
        return SOFTMAX_IN_DOUBLE;
    *shift = (double)pass->bias_max;
    return SOFTMAX_SHIFT;
}

static void drop(const struct pass *pass, int64_t column, int64_t count,
                 float *weights)
{
    const struct attention *a = pass->a;
    const struct attention_row *row = pass->row;
    int64_t first = ((row->n * a->H + row->h) * a->L + row->i) * a->T + column;

    pass->kernels->drop_row(weights, count, a->seed, (uint64_t)first,
                            philox_last_hit(a->dropout_p));
}

/* exp of the row; returns the denominator and makes pass->max its reference. */
static double exp_all(struct pass *pass, float *seen, float *appended)
{
    const struct attention *a = pass->a;
    const struct attention_row *row = pass->row;
    double sink = attention_row_sink(a, row->h), sum;

    if (sink > (double)pass->max)
        pass->max = (float)sink;
    sum = pass->kernels->exp_row(seen, row->hi - row->lo, pass->max);
    if (a->T > a->S)
        sum += pass->kernels->exp_row(appended, a->T - a->S, pass->max);
    if (a->sinks != NULL)
        sum += exp(sink - (double)pass->max);
    return sum;
}

enum attention_softmax attention_softmax_row(const struct attention *a,
                                             const struct kernels *kernels,
                                             const struct attention_row *row,
                                             float *seen, float *appended,
                                             double *shift, float *factor)
{
    /* an appended key is visible and has a bias of 0 */
    struct pass pass = { .a = a, .kernels = kernels, .row = row,
                         .max = -INFINITY, .shift = *shift,
                         .bias_max = a->T > a->S ? 0 : -INFINITY };
    enum attention_softmax state;
    double sum;

    if (!finish_scores(&pass, seen, appended))
        return SOFTMAX_IN_DOUBLE;
    state = judge(&pass, shift);
    if (state != SOFTMAX_IN_DOUBLE && pass.shift == 0)
        attention_store_scores(a, row, seen, appended);
    if (state != SOFTMAX_LIVE)
        return state;
    if (pass.max == -INFINITY)
        return SOFTMAX_DEAD;
    sum = exp_all(&pass, seen, appended);
    if (a->lse.rank != 0)
        attention_store_lse(a, row, (double)pass.max + log(sum) + pass.shift);
    *factor = (float)(1 / (sum * (1 - a->dropout_p)));
    if (a->dropout_p != 0) {
        drop(&pass, row->lo, row->hi - row->lo, seen);
        drop(&pass, a->S, a->T - a->S, appended);
    }
    return SOFTMAX_LIVE;
}
