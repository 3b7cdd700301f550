#include "core/attention_tile.h"

#include "core/attention_row.h"
#include "core/attention_softmax.h"
#include "core/attention_store.h"
#include "core/kernels/kernels.h"
#include "core/stopwatch.h"

#include <math.h>
#include <string.h>

enum { KEY_ALIGNMENT = 16 }; /* of the first key of a tile */

/* Beyond these, scale * q . k may fit float32 where q . k does not, or be an
 * ordinary number where q . k is a denormal. */
static const double SCALE_MIN = 0x1p-60, SCALE_MAX = 0x1p60;

/* Rows that are computed together, and the columns that any of them may see,
 * with a few before them: lo .. hi - 1, then S .. T - 1. */
struct tile {
    struct attention_share *share;
    const struct attention *a;
    int64_t n, h, heads, g;
    int64_t rows; /* those of a head after those of the one before */
    int64_t lo, hi;
    int64_t seen, extra; /* columns of either kind */
    int64_t value_lo;    /* the first that is really seen */
    int64_t stride;      /* elements between rows of scores */
    int64_t size;        /* bytes of an element */
    const float *q; /* of the first row, F32, ... */
    char *out;      /* ... and its products with V */
    int64_t q_step, out_step; /* elements */
    bool copy_values;
    struct packed_span needs[ATTENTION_TILE_ROWS]; /* of each row's range, the
                                                      keys that may get weight */
    bool ragged; /* some row needs less than the tile sees */
    struct row {
        struct attention_row at;
        enum attention_softmax state;
        float factor; /* from scores' place to weights */
        double shift; /* of the masks */
        bool stored;  /* the weights, while they were in the first cache */
    } row[ATTENTION_TILE_ROWS];
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static char *scores_at(const struct tile *tile, int64_t r, int64_t column)
{
    return (char *)tile->share->scores +
           (r * tile->stride + column) * tile->size;
}

/* From row r on. */
static const struct packed_span *needs_of(const struct tile *tile, int64_t r)
{
    return tile->ragged ? &tile->needs[r] : NULL;
}

static void *seen_of(const struct tile *tile, int64_t r)
{
    return scores_at(tile, r, tile->row[r].at.lo - tile->lo);
}

static void *appended_of(const struct tile *tile, int64_t r)
{
    return scores_at(tile, r, tile->seen);
}

/* The row's products with V, which become its output. */
static void *out_of(const struct tile *tile, int64_t r)
{
    return tile->out + r * tile->out_step * tile->size;
}

static void *output_at(const struct tile *tile, int64_t r)
{
    const struct attention_row *at = &tile->row[r].at;

    return attention_row_at(&tile->a->out, at->n, at->h, at->i);
}

static const void *query_at(const struct tile *tile, int64_t r)
{
    const struct attention_row *at = &tile->row[r].at;

    return attention_row_at(&tile->a->q, at->n, at->h, at->i);
}

/* Whether the tile takes them from where they are. */
static bool reads_keys(const struct tile *tile)
{
    int64_t few = tile->a->D > ATTENTION_NARROW_KEY ? ATTENTION_READING_ROWS
                                                    : ATTENTION_FEW_ROWS;

    return tile->a->dtype == DTYPE_F32 && tile->rows <= few;
}

static bool reads_values(const struct tile *tile)
{
    return tile->a->dtype == DTYPE_F32 && tile->rows <= ATTENTION_READING_ROWS;
}

static void *value_of(const struct tile *tile, int64_t j)
{
    return attention_row_at(&tile->a->v, tile->n, tile->g, j);
}

/* ---- similarity ---- */

/* Scores of rows r .. r + rows - 1 with keys from .. from + count - 1, at
 * `column`. */
static void multiply_keys(const struct tile *tile, int64_t r, int64_t rows,
                          int64_t from, int64_t count, int64_t column)
{
    const struct attention *a = tile->a;
    const struct kernels *kernels = tile->share->kernels;
    const float *q = tile->q + r * tile->q_step;
    const void *k = attention_row_at(&a->k, tile->n, tile->g, from);
    void *scores = scores_at(tile, r, column);

    if (count == 0)
        return;
    if (a->dtype == DTYPE_F64)
        kernels->gemm_nt_f64(rows, count, a->D, a->scale, query_at(tile, r),
                             a->q.step[2], k, a->k.step[2], scores,
                             tile->stride);
    else if (reads_keys(tile))
        kernels->dot_rows(rows, count, a->D, (float)a->scale, q, tile->q_step,
                          k, a->k.step[2], scores, tile->stride);
    else if (from < a->S)
        attention_packed_score(&tile->share->packed, tile->n, tile->g, from,
                               from + count, rows, q, tile->q_step,
                               needs_of(tile, r), scores, tile->stride);
    else
        kernels->gemm_nt_f32(rows, count, a->D, (float)a->scale, q,
                             tile->q_step, k, a->k.step[2], scores,
                             tile->stride);
}

static void multiply_all_keys(const struct tile *tile, int64_t r, int64_t rows)
{
    multiply_keys(tile, r, rows, tile->lo, tile->seen, 0);
    multiply_keys(tile, r, rows, tile->a->S, tile->extra, tile->seen);
}

/* ---- softmax ---- */

/* Mostly there is nothing to clear. */
static void clear(const struct tile *tile, int64_t r, int64_t from, int64_t to)
{
    if (from < to)
        memset(scores_at(tile, r, from - tile->lo), 0,
               (size_t)((to - from) * tile->size));
}

/* Scores that nobody needed, for their masks swallow them. */
static void clear_swallowed(const struct tile *tile, int64_t r)
{
    const struct attention_row *at = &tile->row[r].at;
    const struct packed_span *needs = &tile->needs[r];

    clear(tile, r, at->lo, needs->from);
    clear(tile, r, needs->to, at->hi);
}

/* Columns of the tile that this row does not see. */
static void clear_outside(const struct tile *tile, int64_t r)
{
    const struct attention_row *at = &tile->row[r].at;

    clear(tile, r, tile->lo, at->lo);
    clear(tile, r, at->hi, tile->hi);
}

static enum attention_softmax soften_f64(const struct tile *tile,
                                 const struct attention_row *at, double *seen,
                                 double *appended)
{
    const struct attention *a = tile->a;

    attention_row_mend(a, at, at->lo, at->hi - at->lo, seen);
    attention_row_mend(a, at, a->S, a->T - a->S, appended);
    if (!attention_row_scores(a, at, seen, appended))
        return SOFTMAX_DEAD;
    attention_store_scores(a, at, seen, appended);
    attention_store_lse(a, at, attention_row_weights(a, at, seen, appended));
    return SOFTMAX_LIVE;
}

/* Its heads' weights are one sum, in the order of rows: when all are known. */
static bool sums_heads(const struct tile *tile)
{
    return tile->heads > 1 && tile->a->average_weights;
}

static void soften_row(struct tile *tile, int64_t r)
{
    const struct attention *a = tile->a;
    struct row *row = &tile->row[r];
    void *seen = seen_of(tile, r), *appended = appended_of(tile, r);

    row->factor = 1;
    clear_swallowed(tile, r);
    row->state = a->dtype == DTYPE_F32
        ? attention_softmax_row(a, tile->share->kernels, &row->at, seen,
                                appended, &row->shift, &row->factor)
        : soften_f64(tile, &row->at, seen, appended);
    row->stored = row->state == SOFTMAX_LIVE && !sums_heads(tile);
    if (row->stored)
        attention_store_weights(a, tile->share->kernels, &row->at, seen,
                                appended, row->factor);
    if (row->state != SOFTMAX_SHIFT)
        clear_outside(tile, r);
}

/* Rows r .. end - 1 have large masks: their scores again, and with the masks
 * shifted. */
static void soften_again(struct tile *tile, int64_t r, int64_t end)
{
    multiply_all_keys(tile, r, end - r);
    for (; r < end; r++)
        soften_row(tile, r);
}

static void soften(struct tile *tile)
{
    int64_t first = 0; /* of the rows that have to be made again */

    for (int64_t r = 0; r < tile->rows; r++) {
        tile->row[r].shift = 0;
        soften_row(tile, r);
        if (tile->row[r].state == SOFTMAX_SHIFT)
            continue;
        if (first < r)
            soften_again(tile, first, r);
        first = r + 1;
    }
    if (first < tile->rows)
        soften_again(tile, first, tile->rows);
}

/* ---- weighted sum ---- */

static bool all_finite(const struct tile *tile, const void *x, int64_t count)
{
    const double *f64 = x;
    double flaw = 0;
    float max = 0;

    if (tile->a->dtype == DTYPE_F32)
        return tile->share->kernels->max_row(x, count, &max);
    for (int64_t j = 0; j < count; j++)
        flaw += f64[j] * 0;
    return !isnan(flaw);
}

/* V rows from .. from + count - 1 and some of their columns, held against the
 * weights at `weight_column`. */
struct part {
    int64_t from, count, weight_column, column, columns;
    int beta;
};

/* out = beta * out + weights . v, for all rows of the tile. */
static void multiply_rows(const struct tile *tile, const struct part *part,
                          const void *v, int64_t v_step)
{
    const struct attention *a = tile->a;
    const struct kernels *kernels = tile->share->kernels;
    const void *weights = scores_at(tile, 0, part->weight_column);
    char *out = out_of(tile, 0);

    out += part->column * tile->size;
    if (a->dtype == DTYPE_F64)
        kernels->gemm_nn_f64(tile->rows, part->columns, part->count, weights,
                             tile->stride, v, v_step, part->beta,
                             (double *)(void *)out, tile->out_step);
    else if (reads_values(tile))
        kernels->sum_rows(tile->rows, part->columns, part->count, weights,
                          tile->stride, v, v_step, (float)part->beta,
                          (float *)(void *)out, tile->out_step);
    else
        kernels->gemm_nn_f32(tile->rows, part->columns, part->count, weights,
                             tile->stride, v, v_step, (float)part->beta,
                             (float *)(void *)out, tile->out_step);
}

/* The same bits, from where V is packed if it is. */
static void multiply_part(const struct tile *tile, const struct part *part)
{
    const struct attention *a = tile->a;
    const char *v = value_of(tile, part->from);
    char *out = out_of(tile, 0);

    if (a->dtype == DTYPE_F64 || reads_values(tile) || part->from >= a->S)
        multiply_rows(tile, part, v + part->column * tile->size, a->v.step[2]);
    else
        attention_packed_weigh(
            &tile->share->packed, tile->n, tile->g, part->from,
            part->from + part->count, part->column, part->columns, tile->rows,
            (const float *)(const void *)scores_at(tile, 0,
                                                   part->weight_column),
            tile->stride, needs_of(tile, 0), part->beta,
            (float *)(void *)out + part->column, tile->out_step);
}

/* What the copy left out: nothing where the weight is 0. */
static void add_value(const struct tile *tile, const struct part *part,
                      const void *v, int64_t j)
{
    for (int64_t r = 0; r < tile->rows; r++) {
        const void *weight = scores_at(tile, r, part->weight_column + j);
        char *out = out_of(tile, r);
        float *f32 = (float *)(void *)out + part->column;
        double *f64 = (double *)(void *)out + part->column;

        if (tile->row[r].state != SOFTMAX_LIVE)
            continue;
        if (tile->a->dtype == DTYPE_F64) {
            double w = *(const double *)weight;

            for (int64_t d = 0; w != 0 && d < part->columns; d++)
                f64[d] += w * ((const double *)v)[d];
        } else if (*(const float *)weight != 0) {
            tile->share->kernels->add_row(f32, v, part->columns,
                                          *(const float *)weight);
        }
    }
}

/* The same product, of a copy of V without the rows that are not finite. */
static void multiply_copy(const struct tile *tile, const struct part *part)
{
    int64_t row_size = part->columns * tile->size;
    char *copy = tile->share->values;

    for (int64_t j = 0; j < part->count; j++) {
        const char *v = value_of(tile, part->from + j);

        v += part->column * tile->size;
        if (all_finite(tile, v, part->columns))
            memcpy(copy + j * row_size, v, (size_t)row_size);
        else
            memset(copy + j * row_size, 0, (size_t)row_size);
    }
    multiply_rows(tile, part, copy, part->columns);
    for (int64_t j = 0; j < part->count; j++) {
        const char *v = value_of(tile, part->from + j);

        v += part->column * tile->size;
        if (!all_finite(tile, v, part->columns))
            add_value(tile, part, v, j);
    }
}

static void multiply_values(const struct tile *tile, struct part *part,
                            int64_t from, int64_t to, int64_t weight_column)
{
    for (int64_t j = from; j < to; j += part->count) {
        part->from = j;
        part->count = attention_packed_part(tile->a, j, to);
        part->weight_column = weight_column + (j - from);
        if (tile->copy_values)
            multiply_copy(tile, part);
        else
            multiply_part(tile, part);
        part->beta = 1;
    }
}

static void weigh(const struct tile *tile)
{
    const struct attention *a = tile->a;
    int64_t width = least(a->Dv, ATTENTION_VALUE_COLUMNS);

    for (int64_t column = 0; column < a->Dv; column += width) {
        struct part part = { .column = column,
                             .columns = least(a->Dv - column, width) };

        multiply_values(tile, &part, tile->value_lo, tile->hi,
                        tile->value_lo - tile->lo);
        multiply_values(tile, &part, a->S, a->T, tile->seen);
    }
}

static bool outputs_finite(const struct tile *tile)
{
    for (int64_t r = 0; r < tile->rows; r++)
        if (tile->row[r].state == SOFTMAX_LIVE &&
            !all_finite(tile, out_of(tile, r), tile->a->Dv))
            return false;
    return true;
}

/* A V row that is not finite has spoilt every row of the product, also those
 * that may not see it; a finite one may have overflowed the sum of a row. Rows
 * that stay unsound without it are computed in double. */
static void weigh_again(struct tile *tile)
{
    tile->copy_values = true;
    weigh(tile);
    for (int64_t r = 0; r < tile->rows; r++)
        if (tile->a->dtype == DTYPE_F32 && tile->row[r].state == SOFTMAX_LIVE &&
            !all_finite(tile, out_of(tile, r), tile->a->Dv))
            tile->row[r].state = SOFTMAX_IN_DOUBLE;
}

/* ---- the results ---- */

static void finish_dead(const struct tile *tile, int64_t r)
{
    const struct attention *a = tile->a;
    const struct attention_row *at = &tile->row[r].at;
    struct attention_row none = *at;
    void *seen = seen_of(tile, r);

    none.lo = none.hi = 0; /* all of the row is outside the range */
    attention_store_scores(a, &none, seen, seen);
    attention_store_lse(a, at, attention_row_sink(a, at->h));
    attention_store_weights(a, tile->share->kernels, &none, seen, seen, 1);
    memset(output_at(tile, r), 0, (size_t)(a->Dv * tile->size));
    tile->share->dead_rows++;
}

static bool finish_in_double(const struct tile *tile, int64_t r)
{
    const struct attention_share *share = tile->share;

    return attention_row_run(tile->a, share->kernels, &tile->row[r].at,
                             share->row, seen_of(tile, r),
                             appended_of(tile, r));
}

static void finish_row(const struct tile *tile, int64_t r)
{
    const struct row *row = &tile->row[r];
    const struct kernels *kernels = tile->share->kernels;
    bool in_double = row->state == SOFTMAX_IN_DOUBLE;
    bool live = in_double ? finish_in_double(tile, r) : row->state == SOFTMAX_LIVE;
    float factor = in_double ? 1 : row->factor;

    if (!live) {
        finish_dead(tile, r);
        return;
    }
    if (!in_double && (factor != 1 || tile->heads > 1))
        kernels->scale_row(output_at(tile, r), out_of(tile, r), tile->a->Dv,
                           factor);
    if (!row->stored)
        attention_store_weights(tile->a, kernels, &row->at, seen_of(tile, r),
                                appended_of(tile, r), factor);
}

static void finish(const struct tile *tile)
{
    for (int64_t r = 0; r < tile->rows; r++)
        finish_row(tile, r);
}

/* ---- tiles ---- */

static void unite_ranges(struct tile *tile)
{
    tile->lo = tile->hi = 0;
    for (int64_t r = 0; r < tile->rows; r++) {
        const struct attention_row *at = &tile->row[r].at;

        if (at->lo == at->hi)
            continue;
        if (tile->hi == 0 || at->lo < tile->lo)
            tile->lo = at->lo;
        if (at->hi > tile->hi)
            tile->hi = at->hi;
    }
    tile->value_lo = tile->lo;
    if (tile->a->dtype == DTYPE_F32)
        tile->lo = tile->lo / KEY_ALIGNMENT * KEY_ALIGNMENT;
    tile->seen = tile->hi - tile->lo;
    tile->stride = attention_share_stride(tile->seen + tile->extra);
}

static float keys_size(const struct tile *tile)
{
    struct attention_share *share = tile->share;
    const struct attention *a = tile->a;

    if (share->keys.known && share->keys.n == tile->n &&
        share->keys.g == tile->g)
        return share->keys.size;
    share->keys.known = true;
    share->keys.n = tile->n;
    share->keys.g = tile->g;
    share->keys.size = 0;
    for (int64_t j = 0; j < a->S; j++) {
        float size = share->kernels->size_row(
            attention_row_at(&a->k, tile->n, tile->g, j), a->D);

        if (size > share->keys.size)
            share->keys.size = size;
    }
    return share->keys.size;
}

/* Whether all scores of the tile are small. */
static bool scores_are_small(const struct tile *tile)
{
    const struct attention *a = tile->a;
    double each = fabs(a->scale) * (double)a->D * (double)keys_size(tile);

    for (int64_t r = 0; r < tile->rows; r++) {
        const float *q = query_at(tile, r);

        if (!(each * (double)tile->share->kernels->size_row(q, a->D) <
              (double)MASK_SMALL_SCORE))
            return false;
    }
    return true;
}

/* Neither scores nor values are multiplied where a mask swallows the score: in
 * its place 0 is as good, and the weight is 0. So no bit depends on it. Few rows
 * gain less than looking at every key costs. */
static bool narrow(struct tile *tile)
{
    const struct mask *mask = &tile->a->mask;
    bool narrowed = false;

    if (tile->a->dtype != DTYPE_F32 || reads_keys(tile) ||
        mask_is_boolean(mask) || tile->a->alibi_slopes != NULL)
        return false;

    for (int64_t r = 0; r < tile->rows; r++) {
        const struct attention_row *at = &tile->row[r].at;
        struct packed_span *needs = &tile->needs[r];

        mask_narrow(mask, at->n, at->h, at->i, &needs->from, &needs->to);
        narrowed |= needs->from > at->lo || needs->to < at->hi;
    }
    return narrowed;
}

static void need_all(struct tile *tile)
{
    for (int64_t r = 0; r < tile->rows; r++)
        tile->needs[r] = (struct packed_span){ tile->row[r].at.lo,
                                               tile->row[r].at.hi };
}

static void tell_needs(struct tile *tile)
{
    need_all(tile);
    if (narrow(tile) && !scores_are_small(tile))
        need_all(tile);
    for (int64_t r = 0; r < tile->rows; r++)
        tile->ragged |= tile->needs[r].from != tile->value_lo ||
                        tile->needs[r].to != tile->hi;
}

/* Where queries are and products with V go; those of several heads are brought
 * together. */
static void place(struct tile *tile)
{
    const struct attention *a = tile->a;
    const struct attention_share *share = tile->share;

    if (tile->heads == 1) {
        tile->q = query_at(tile, 0);
        tile->q_step = a->q.step[2];
        tile->out = output_at(tile, 0);
        tile->out_step = a->out.step[2];
        return;
    }
    for (int64_t r = 0; r < tile->rows; r++)
        memcpy(share->q + r * a->D, query_at(tile, r),
               (size_t)a->D * sizeof *share->q);
    tile->q = share->q;
    tile->q_step = a->D;
    tile->out = (char *)share->out;
    tile->out_step = a->Dv;
}

/* As many rows from `first` on as make a tile: of several heads, all. */
static void cut(struct tile *tile, int64_t first, int64_t last)
{
    int64_t length = least(last - first, ATTENTION_TILE_ROWS);

    tile->ragged = false;
    tile->rows = tile->heads * length;
    for (int64_t r = 0; r < tile->rows; r++) {
        struct attention_row *at = &tile->row[r].at;

        *at = (struct attention_row){ .n = tile->n, .h = tile->h + r / length,
                                      .i = first + r % length };
        mask_range(&tile->a->mask, tile->n, at->i, &at->lo, &at->hi);
    }
    unite_ranges(tile);
    while (tile->rows > tile->heads &&
           tile->rows * (tile->seen + tile->extra) > attention_share_scores(tile->a)) {
        tile->rows = (tile->rows + 1) / 2;
        unite_ranges(tile);
    }
    place(tile);
    for (int64_t r = 0; r < tile->rows; r++) { /* a place within the tile */
        struct attention_row *at = &tile->row[r].at;

        if (at->lo == at->hi)
            at->lo = at->hi = tile->lo;
    }
    tell_needs(tile);
}

static int64_t clock_ns(const struct attention *a)
{
    return a->step_ns == NULL ? 0 : stopwatch_ns();
}

static void compute(struct tile *tile)
{
    const struct attention *a = tile->a;
    int64_t *ns = tile->share->step_ns;
    int64_t start = clock_ns(a);

    multiply_all_keys(tile, 0, tile->rows);

    int64_t multiplied = clock_ns(a);

    soften(tile);

    int64_t softened = clock_ns(a);

    weigh(tile);
    if (!outputs_finite(tile))
        weigh_again(tile);

    int64_t weighed = clock_ns(a);

    finish(tile);
    ns[ATTENTION_SIMILARITY] += multiplied - start;
    ns[ATTENTION_WEIGHTED_SUM] += weighed - softened;
    ns[ATTENTION_SOFTMAX] += softened - multiplied + clock_ns(a) - weighed;
}

static bool fits_float32(const struct attention *a)
{
    double size = fabs(a->scale);

    return a->dtype == DTYPE_F64 || (size >= SCALE_MIN && size <= SCALE_MAX);
}

static void compute_in_double(struct tile *tile)
{
    for (int64_t r = 0; r < tile->rows; r++) {
        tile->row[r].state = SOFTMAX_IN_DOUBLE;
        tile->row[r].stored = false;
    }
    finish(tile);
}

void attention_tile_run(struct attention_share *share, int64_t n, int64_t h,
                        int64_t heads, int64_t first, int64_t last)
{
    const struct attention *a = share->a;
    struct tile tile = { .share = share, .a = a, .n = n, .h = h,
                         .heads = heads, .g = h * a->G / a->H,
                         .extra = a->T - a->S,
                         .size = (int64_t)dtype_size(a->dtype) };

    for (int64_t i = first; i < last; i += tile.rows) {
        cut(&tile, i, last);
        tile.copy_values = false;
        if (fits_float32(a))
            compute(&tile);
        else
            compute_in_double(&tile);
    }
}
