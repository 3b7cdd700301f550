#ifndef CORE_KERNELS_PRODUCTS_H
#define CORE_KERNELS_PRODUCTS_H

/* Products of float matrices, written once and compiled by each level's file,
 * as rows.h is. The file defines, beside what rows.h asks for:
 *
 *     ROWS, VECTORS   a tile of c in registers: ROWS * VECTORS sums, VECTORS
 *                     of b and one of a; ROWS at most 6, VECTORS at most 4
 *     void transpose(lanes x[LANES]);
 *     PAIRS           1 where there is plus_pairs(sum, x, y), which products of
 *                     bfloat16 are made of: a pair is a float to all the rest
 *
 * b is packed into panels of WIDTH columns, and those into parts of DEPTH rows,
 * each of which every row of a runs over while the second cache holds it. Each
 * element of c is summed in the order of k, a part by itself, so that errors of
 * long sums do not pile up, and the same wherever it stands: its bits depend on
 * nothing but its row, its column and where parts begin. */

#include "core/kernels/rows.h"

#include <string.h>

enum { WIDTH = VECTORS * LANES, DEPTH = KERNELS_DEPTH };

struct block {
    int64_t k;           /* depth of this part */
    const float *a;
    int64_t lda;
    const float *panel;  /* k rows ... */
    int64_t stride;      /* ... of so many floats */
    float *c;
    int64_t ldc;
    int64_t columns;     /* of c, that `vectors` vectors hold */
    const float *bias;   /* of those columns; NULL: zeros */
    bool add;            /* to what c holds */
    float alpha;         /* for the last part, else 1 */
    bool pairs;          /* a and the panel hold pairs of bfloat16 */
    bool by_columns;     /* what rows of a need are k rows, not columns */
    int64_t at;          /* the first of them, by its number */
};

/* The first n columns of vector v; n is LANES for all but the last. */
INLINE lanes part_of(const float *x, const int v, int64_t n)
{
    return n == LANES ? load(x + v * LANES) : load_part(x + v * LANES, n, 0);
}

/* `last` columns in the last vector. What is asked of the block is asked once
 * for the tile: a tile of 64 products is over in 400 cycles. */
INLINE void store_sums(const struct block *b, const int rows,
                       const int vectors, int64_t last,
                       lanes (*sum)[VECTORS])
{
    float *c = b->c;
    const float *bias = b->bias;
    int64_t ldc = b->ldc;
    lanes alpha = all(b->alpha);

#define EACH                                                                 \
    _Pragma("GCC unroll 6") for (int r = 0; r < rows; r++)                   \
        _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++)
#define COLUMNS (v == vectors - 1 ? last : LANES)
    if (b->add)
        EACH sum[r][v] += part_of(c + r * ldc, v, COLUMNS);
    EACH sum[r][v] *= alpha;
    if (bias != NULL)
        EACH sum[r][v] += part_of(bias, v, COLUMNS);
    EACH if (COLUMNS == LANES)
        store(c + r * ldc + v * LANES, sum[r][v]);
    else
        store_part(c + r * ldc + v * LANES, last, sum[r][v]);
#undef COLUMNS
#undef EACH
}

/* For attention of 12 x 512 x 512 x 64 products run at 94 % of the peak. Tried,
 * each for less than 1 % of the time, either way: to fetch the panel or the
 * rows of c before they are needed, two steps of k at a time, no alpha where it
 * is 1, rows of c by their pointers. */
INLINE lanes plus_product(lanes sum, lanes x, lanes y, const bool pairs)
{
#if PAIRS
    if (pairs)
        return plus_pairs(sum, x, y);
#endif
    (void)pairs;
    return sum + x * y;
}

INLINE void multiply(const struct block *b, const int rows, const int vectors,
                     const bool pairs)
{
    int64_t last = b->columns - (vectors - 1) * LANES;
    const float *panel = b->panel;
    lanes sum[ROWS][VECTORS];

    _Pragma("GCC unroll 6")
    for (int r = 0; r < rows; r++) {
        _Pragma("GCC unroll 4")
        for (int v = 0; v < vectors; v++)
            sum[r][v] = all(0);
    }
    for (int64_t k = 0; k < b->k; k++, panel += b->stride) {
        lanes column[VECTORS];

        _Pragma("GCC unroll 4")
        for (int v = 0; v < vectors; v++)
            column[v] = load(panel + v * LANES);
        _Pragma("GCC unroll 6")
        for (int r = 0; r < rows; r++) {
            lanes x = all(b->a[r * b->lda + k]);

            _Pragma("GCC unroll 4")
            for (int v = 0; v < vectors; v++)
                sum[r][v] = plus_product(sum[r][v], x, column[v], pairs);
        }
    }
    if (last == LANES)
        store_sums(b, rows, vectors, LANES, sum);
    else
        store_sums(b, rows, vectors, last, sum);
}

#define TILE(rows, vectors, pairs)                                           \
    ISA static void tile_##rows##_##vectors##_##pairs(const struct block *b) \
    {                                                                        \
        multiply(b, rows, vectors, pairs);                                   \
    }
#define TILES(vectors, pairs)                                                \
    TILE(1, vectors, pairs)                                                  \
    TILE(2, vectors, pairs)                                                  \
    TILE(3, vectors, pairs)                                                  \
    TILE(4, vectors, pairs)                                                  \
    TILE(5, vectors, pairs)                                                  \
    TILE(6, vectors, pairs)
#define TILE_NAMES(vectors, pairs)                                           \
    { tile_1_##vectors##_##pairs, tile_2_##vectors##_##pairs,                \
      tile_3_##vectors##_##pairs, tile_4_##vectors##_##pairs,                \
      tile_5_##vectors##_##pairs, tile_6_##vectors##_##pairs }

_Static_assert(ROWS == 6 && (VECTORS == 2 || VECTORS == 4), "as the tables");
TILES(1, 0)
TILES(2, 0)
#if TILES_OF_FOUR
TILES(3, 0)
TILES(4, 0)
#endif
#if PAIRS
TILES(1, 1)
TILES(2, 1)
TILES(3, 1)
TILES(4, 1)
#endif

static void (*const tiles[PAIRS + 1][VECTORS][ROWS])(const struct block *b) = {
    { TILE_NAMES(1, 0), TILE_NAMES(2, 0),
#if TILES_OF_FOUR
      TILE_NAMES(3, 0), TILE_NAMES(4, 0),
#endif
    },
#if PAIRS
    { TILE_NAMES(1, 1), TILE_NAMES(2, 1), TILE_NAMES(3, 1), TILE_NAMES(4, 1) },
#endif
};

static int64_t rounded_up(int64_t n)
{
    return (n + LANES - 1) / LANES * LANES;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Of b->k or b->columns, what one of so many rows needs. */
static struct packed_span needed(const struct block *b,
                                 const struct packed_span *needs, int64_t rows)
{
    int64_t end = b->by_columns ? b->k : b->columns;
    struct packed_span span = { end, 0 };

    for (int64_t r = 0; r < rows; r++) {
        span.from = least(span.from, needs[r].from - b->at);
        span.to = -least(-span.to, b->at - needs[r].to);
    }
    span.from = span.from < 0 ? 0 : span.from;
    span.to = span.to < span.from ? span.from : least(span.to, end);
    return span;
}

/* The next rows of a against what they need of the panel. What is changed is
 * put back one by one: a copy of what has just been written in parts waits for
 * it, 5 % of the time of a product. */
ISA static void multiply_needed(struct block *b, int64_t rows,
                                struct packed_span span)
{
    const float *a = b->a, *panel = b->panel;
    int64_t k = b->k, columns = b->columns;
    float *c = b->c;

    if (b->by_columns) {
        b->a += span.from;
        b->panel += span.from * b->stride;
        b->k = span.to - span.from;
    } else {
        span.from = span.from / LANES * LANES;
        b->panel += span.from;
        b->c += span.from;
        b->columns = least(rounded_up(span.to), columns) - span.from;
    }
    if (b->columns > 0)
        tiles[b->pairs][(b->columns - 1) / LANES][rows - 1](b);
    b->a = a;
    b->panel = panel;
    b->c = c;
    b->k = k;
    b->columns = columns;
}

/* All m rows of a against one part of a panel. */
ISA static void multiply_panel(struct block block, int64_t m,
                               const struct packed_span *needs)
{
    int64_t vectors = (block.columns + LANES - 1) / LANES;

    for (int64_t i = 0; i < m; i += ROWS) {
        int64_t rows = m - i < ROWS ? m - i : ROWS;

        if (needs == NULL)
            tiles[block.pairs][vectors - 1][rows - 1](&block);
        else
            multiply_needed(&block, rows, needed(&block, needs + i, rows));
        block.a += rows * block.lda;
        block.c += rows * block.ldc;
    }
}

/* LANES rows of b, of which n are there, become one vector of each of the
 * panel's k rows. The rows behind them are fetched meanwhile: 16 rows of a head
 * over 4096 keys from memory take 12 % less. */
ISA static void pack_vector(const float *b, int64_t ldb, int64_t n, int64_t k,
                            float *panel, int64_t width)
{
    for (int64_t l = 0; l < k; l += LANES) {
        int64_t depth = k - l < LANES ? k - l : LANES;
        lanes x[LANES];

        _Pragma("GCC unroll 16")
        for (int j = 0; j < LANES; j++)
            x[j] = j >= n ? all(0)
                          : load_ahead(b + j * ldb + l, depth, LANES * ldb);
        transpose(x);
        _Pragma("GCC unroll 16")
        for (int j = 0; j < LANES; j++)
            if (j < depth)
                store(panel + (l + j) * width, x[j]);
    }
}

ISA static void pack_rows_panel(const float *b, int64_t ldb, int64_t n,
                                int64_t k, float *panel)
{
    for (int64_t j = 0; j < n; j += LANES)
        pack_vector(b + j * ldb, ldb, least(n - j, LANES), k, panel + j,
                    rounded_up(n));
}

ISA static void pack_columns_panel(const float *b, int64_t ldb, int64_t n,
                                   int64_t k, float *panel)
{
    for (int64_t l = 0; l < k; l++, b += ldb)
        for (int64_t j = 0; j < n; j += LANES, panel += LANES)
            store(panel, n - j >= LANES ? load(b + j)
                                        : load_part(b + j, n - j, 0));
}

ISA static void multiply_nt(bool pairs, int64_t m, int64_t n, int64_t k,
                            float alpha, const float *a, int64_t lda,
                            const float *b, int64_t ldb, float *c, int64_t ldc)
{
    _Alignas(64) float panel[DEPTH * WIDTH];

    for (int64_t l = 0; l < k; l += DEPTH)
        for (int64_t j = 0; j < n; j += WIDTH) {
            int64_t columns = least(n - j, WIDTH);
            struct block block = { .k = least(k - l, DEPTH),
                                   .a = a + l, .lda = lda, .panel = panel,
                                   .stride = rounded_up(columns),
                                   .c = c + j, .ldc = ldc,
                                   .columns = columns, .add = l > 0,
                                   .alpha = k - l <= DEPTH ? alpha : 1,
                                   .pairs = pairs };

            pack_rows_panel(b + j * ldb + l, ldb, columns, block.k, panel);
            multiply_panel(block, m, NULL);
        }
}

static void gemm_nt_f32(int64_t m, int64_t n, int64_t k, float alpha,
                        const float *a, int64_t lda, const float *b,
                        int64_t ldb, float *c, int64_t ldc)
{
    multiply_nt(false, m, n, k, alpha, a, lda, b, ldb, c, ldc);
}

#if PAIRS
static void gemm_nt_pairs(int64_t m, int64_t n, int64_t k, float alpha,
                          const float *a, int64_t lda, const float *b,
                          int64_t ldb, float *c, int64_t ldc)
{
    multiply_nt(true, m, n, k, alpha, a, lda, b, ldb, c, ldc);
}
#endif

ISA static void gemm_nn_f32(int64_t m, int64_t n, int64_t k, const float *a,
                            int64_t lda, const float *b, int64_t ldb,
                            float beta, float *c, int64_t ldc)
{
    _Alignas(64) float panel[DEPTH * WIDTH];

    for (int64_t j = 0; j < n; j += WIDTH)
        for (int64_t l = 0; l < k; l += DEPTH) {
            int64_t columns = least(n - j, WIDTH);
            struct block block = { .k = least(k - l, DEPTH),
                                   .a = a + l, .lda = lda, .panel = panel,
                                   .stride = rounded_up(columns),
                                   .c = c + j, .ldc = ldc,
                                   .columns = columns,
                                   .add = l > 0 || beta != 0, .alpha = 1 };

            pack_columns_panel(b + l * ldb + j, ldb, columns, block.k, panel);
            multiply_panel(block, m, NULL);
        }
}

/* ---- packed beforehand: panel after panel, each of all k rows ---- */

static int64_t packed_f32(int64_t n, int64_t k)
{
    return rounded_up(n) * k;
}

ISA static void pack_rows_f32(int64_t n, int64_t k, const float *b,
                              int64_t ldb, float *packed)
{
    for (int64_t j = 0; j < n; j += WIDTH)
        pack_rows_panel(b + j * ldb, ldb, least(n - j, WIDTH), k,
                        packed + j * k);
}

/* A few rows at a time, so that they come from memory once and in order. */
enum { PACKED_ROWS = 8 };

ISA static void pack_columns_f32(int64_t n, int64_t k, int64_t row,
                                 int64_t rows, const float *b, int64_t ldb,
                                 float *packed)
{
    for (int64_t l = 0; l < rows; l += PACKED_ROWS)
        for (int64_t j = 0; j < n; j += WIDTH) {
            int64_t columns = least(n - j, WIDTH);

            pack_columns_panel(b + l * ldb + j, ldb, columns,
                               least(rows - l, PACKED_ROWS),
                               packed + j * k + (row + l) * rounded_up(columns));
        }
}

static bool are_packed(int64_t n, int64_t ldb)
{
    return ldb == n && n <= WIDTH && n == rounded_up(n);
}

static void unpack_rows_f32(int64_t n, int64_t k, const float *packed,
                            float *b, int64_t ldb)
{
    for (int64_t j = 0; j < n; j++) {
        int64_t first = j / WIDTH * WIDTH;
        int64_t width = rounded_up(least(n - first, WIDTH));

        for (int64_t l = 0; l < k; l++)
            b[j * ldb + l] = packed[first * k + l * width + (j - first)];
    }
}

/* One row is bound by memory, or by the latency of a panel's few sums: so many
 * panels at once, which are `far` floats apart. */
enum { PANELS = 8 / VECTORS };

INLINE void multiply_row(const struct block *b, int64_t far, const bool pairs)
{
    lanes sum[PANELS][VECTORS];

    _Pragma("GCC unroll 4")
    for (int p = 0; p < PANELS; p++) {
        _Pragma("GCC unroll 4")
        for (int v = 0; v < VECTORS; v++)
            sum[p][v] = all(0);
    }
    for (int64_t k = 0; k < b->k; k++) {
        lanes x = all(b->a[k]);

        _Pragma("GCC unroll 4")
        for (int p = 0; p < PANELS; p++) {
            const float *panel = b->panel + p * far + k * WIDTH;

            _Pragma("GCC unroll 4")
            for (int v = 0; v < VECTORS; v++)
                sum[p][v] = plus_product(sum[p][v], x,
                                         load(panel + v * LANES), pairs);
        }
    }
    _Pragma("GCC unroll 4")
    for (int p = 0; p < PANELS; p++) {
        struct block one = *b;

        one.c += p * WIDTH;
        one.bias += one.bias == NULL ? 0 : p * WIDTH;
        store_sums(&one, 1, VECTORS, LANES, &sum[p]);
    }
}

ISA static void row_of_panels(const struct block *b, int64_t far)
{
    if (b->pairs)
        multiply_row(b, far, true);
    else
        multiply_row(b, far, false);
}

/* The columns of one panel or, of one row, of PANELS whole ones, part by part.
 */
ISA static void multiply_packed(const struct packed_product *p, bool pairs,
                                int64_t j, int64_t columns)
{
    int64_t first = j / WIDTH * WIDTH;
    int64_t width = rounded_up(least(p->n - first, WIDTH));
    const float *panel = p->packed + first * p->k + (j - first);
    int64_t end = p->row + p->rows, part;

    for (int64_t l = p->row; l < end; l += part) {
        part = least(end - l, DEPTH - l % DEPTH);

        struct block block = {
            .k = part,
            .a = p->a + (l - p->row), .lda = p->lda,
            .panel = panel + l * width, .stride = width,
            .c = p->c + (j - p->column), .ldc = p->ldc, .columns = columns,
            .add = l > p->row || p->add,
            .bias = l + part < end || p->bias == NULL ? NULL : p->bias + j,
            .alpha = l + part < end ? 1 : p->alpha,
            .pairs = pairs,
            .by_columns = p->by_columns,
            .at = (p->by_columns ? l : j) + p->origin,
        };

        if (columns > WIDTH)
            row_of_panels(&block, WIDTH * p->k);
        else
            multiply_panel(block, p->m, p->needs);
    }
}

ISA static void multiply_panels(const struct packed_product *p, bool pairs)
{
    int64_t end = p->column + p->columns, columns;

    for (int64_t j = p->column; j < end; j += columns) {
        columns = least(end - j, WIDTH - j % WIDTH);
        if (p->m == 1 && j % WIDTH == 0 && end - j >= PANELS * WIDTH)
            columns = PANELS * WIDTH;
        multiply_packed(p, pairs, j, columns);
    }
}

static void gemm_packed_f32(const struct packed_product *p)
{
    multiply_panels(p, false);
}

#if PAIRS
static void gemm_packed_pairs(const struct packed_product *p)
{
    multiply_panels(p, true);
}
#endif

static void add_products(struct kernels *set)
{
    set->gemm_nt_f32 = gemm_nt_f32;
    set->gemm_nn_f32 = gemm_nn_f32;
    set->packed_f32 = packed_f32;
    set->pack_rows_f32 = pack_rows_f32;
    set->pack_columns_f32 = pack_columns_f32;
    set->are_packed = are_packed;
    set->unpack_rows_f32 = unpack_rows_f32;
    set->gemm_packed_f32 = gemm_packed_f32;
}

#endif
