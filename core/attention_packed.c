#include "core/attention_packed.h"

#include "core/attention_row.h"

enum {
    /* Numbers of a span: 2 MB, 8192 keys of 64. */
    SPAN = 512 * 1024,
    PARTS = 4, /* of V in a span */
    /* Columns that may be packed by themselves, and alignment of their count */
    PANEL = 64,
    VECTOR = 16,
    /* Wider keys are packed by the product itself. */
    WIDEST_KEY = SPAN / KERNELS_DEPTH,
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t up(int64_t x, int64_t unit)
{
    return (x + unit - 1) / unit * unit;
}

/* Keys in a span of K: a multiple of KERNELS_DEPTH. */
static int64_t key_span(const struct attention *a)
{
    return SPAN / a->D / KERNELS_DEPTH * KERNELS_DEPTH;
}

static int64_t value_columns(const struct attention *a)
{
    return up(least(a->Dv, ATTENTION_VALUE_COLUMNS), VECTOR);
}

static int64_t value_part(const struct attention *a)
{
    int64_t keys = SPAN / PARTS / value_columns(a);

    return keys / KERNELS_DEPTH * KERNELS_DEPTH;
}

static int64_t key_floats(const struct attention *a)
{
    if (a->D > WIDEST_KEY)
        return 0;
    return up(least(a->S, key_span(a)), VECTOR) * a->D;
}

static int64_t value_floats(const struct attention *a)
{
    return least(a->S, PARTS * value_part(a)) * value_columns(a);
}

int64_t attention_packed_bytes(const struct attention *a)
{
    if (a->dtype != DTYPE_F32)
        return 0;
    return (key_floats(a) + value_floats(a)) * (int64_t)sizeof(float);
}

void attention_packed_init(struct attention_packed *packed,
                           const struct attention *a,
                           const struct kernels *kernels, void *memory)
{
    *packed = (struct attention_packed){ .a = a, .kernels = kernels };
    packed->keys.packed = memory;
    packed->values.packed = (float *)memory + key_floats(a);
}

int64_t attention_packed_part(const struct attention *a, int64_t j, int64_t to)
{
    int64_t unit = j % KERNELS_DEPTH != 0 ? KERNELS_DEPTH : value_part(a);

    return least(to, (j / unit + 1) * unit) - j;
}

/* Turns to another place, and forgets what is held of the one before. */
static void turn_to(struct attention_span *span, int64_t n, int64_t g,
                    int64_t first, int64_t column)
{
    if (span->n == n && span->g == g && span->first == first &&
        span->column == column)
        return;
    *span = (struct attention_span){ .packed = span->packed, .n = n, .g = g,
                                     .first = first, .column = column };
}

typedef void pack_keys(const struct attention_packed *packed, int64_t from,
                       int64_t to);

static void hold(struct attention_packed *packed, struct attention_span *span,
                 pack_keys *pack, int64_t from, int64_t to)
{
    if (span->from == span->to)
        span->from = span->to = from;
    if (from < span->from) {
        pack(packed, from, span->from);
        span->from = from;
    }
    if (to > span->to) {
        pack(packed, span->to, to);
        span->to = to;
    }
}

/* ---- keys ---- */

static int64_t keys_in_span(const struct attention_packed *packed)
{
    const struct attention *a = packed->a;

    return least(key_span(a), a->S - packed->keys.first);
}

static void pack_key_columns(const struct attention_packed *packed,
                             int64_t from, int64_t to)
{
    const struct attention *a = packed->a;
    const struct attention_span *span = &packed->keys;

    packed->kernels->pack_rows_f32(
        to - from, a->D,
        attention_row_at(&a->k, span->n, span->g, span->first + from),
        a->k.step[2], span->packed + from * a->D);
}

void attention_packed_score(struct attention_packed *packed, int64_t n,
                            int64_t g, int64_t from, int64_t to, int64_t m,
                            const float *q, int64_t q_step,
                            const struct packed_span *needs, float *scores,
                            int64_t scores_step)
{
    const struct attention *a = packed->a;
    int64_t length;

    if (a->D > WIDEST_KEY) {
        packed->kernels->gemm_nt_f32(m, to - from, a->D, (float)a->scale, q,
                                     q_step, attention_row_at(&a->k, n, g, from),
                                     a->k.step[2], scores, scores_step);
        return;
    }
    length = key_span(a);
    for (int64_t j = from, end; j < to; j = end) {
        struct attention_span *span = &packed->keys;
        int64_t first = j / length * length;

        end = least(to, first + length);
        turn_to(span, n, g, first, 0);

        int64_t count = keys_in_span(packed);

        hold(packed, span, pack_key_columns, (j - first) / PANEL * PANEL,
             least(count, up(end - first, PANEL)));

        struct packed_product product = {
            .m = m, .a = q, .lda = q_step, .packed = span->packed,
            .n = count, .k = a->D, .column = j - first, .columns = end - j,
            .rows = a->D, .alpha = (float)a->scale,
            .c = scores + (j - from), .ldc = scores_step,
            .needs = needs, .origin = first,
        };

        packed->kernels->gemm_packed_f32(&product);
    }
}

/* ---- values ---- */

static int64_t columns_in_span(const struct attention_packed *packed)
{
    return least(packed->a->Dv - packed->values.column,
                 ATTENTION_VALUE_COLUMNS);
}

static int64_t rows_in_span(const struct attention_packed *packed)
{
    const struct attention *a = packed->a;

    return least(PARTS * value_part(a), a->S - packed->values.first);
}

/* Row `from` of the span and on, at its first column. */
static const float *values_at(const struct attention_packed *packed,
                              int64_t from)
{
    const struct attention_span *span = &packed->values;
    const float *v = attention_row_at(&packed->a->v, span->n, span->g,
                                      span->first + from);

    return v + span->column;
}

static void pack_value_rows(const struct attention_packed *packed, int64_t from,
                            int64_t to)
{
    packed->kernels->pack_columns_f32(columns_in_span(packed),
                                      rows_in_span(packed), from, to - from,
                                      values_at(packed, from),
                                      packed->a->v.step[2],
                                      packed->values.packed);
}

/* Where rows from .. to - 1 of the span are, as products read them. */
static const float *packed_values(struct attention_packed *packed, int64_t from,
                                  int64_t to)
{
    if (packed->kernels->are_packed(columns_in_span(packed),
                                    packed->a->v.step[2]))
        return values_at(packed, 0);
    hold(packed, &packed->values, pack_value_rows, from, to);
    return packed->values.packed;
}

void attention_packed_weigh(struct attention_packed *packed, int64_t n,
                            int64_t g, int64_t from, int64_t to,
                            int64_t column, int64_t columns, int64_t m,
                            const float *weights, int64_t weights_step,
                            const struct packed_span *needs, int beta,
                            float *out, int64_t out_step)
{
    struct attention_span *span = &packed->values;
    int64_t length = PARTS * value_part(packed->a);
    int64_t first = from / length * length;

    turn_to(span, n, g, first, column);

    struct packed_product product = {
        .m = m, .a = weights, .lda = weights_step,
        .packed = packed_values(packed, from - first, to - first),
        .by_columns = true, .n = columns, .k = rows_in_span(packed),
        .columns = columns, .row = from - first, .rows = to - from, .alpha = 1,
        .add = beta != 0, .c = out, .ldc = out_step,
        .needs = needs, .origin = first,
    };

    packed->kernels->gemm_packed_f32(&product);
}
