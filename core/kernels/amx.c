#if defined(__x86_64__)

#include "core/kernels/kernels.h"

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

/* Products by tiles: registers of 16 rows of 64 bytes, of which one instruction
 * multiplies 16 x 32 bfloat16 by 32 x 16 and adds that to 16 x 16 floats. Intel's
 * manual, volume 2, TDPBF16PS: of each 32 products the even ones are summed in
 * order, and the odd ones, the two sums then added; denormals are zeros, as
 * inputs and as results; MXCSR is not asked.
 *
 * A block of c is 32 x 32, four tiles; two tiles of a and two of b fill the
 * registers. Of pieces the five products that are small are all added first, and
 * the large one last, whose additions are then the only ones that round at the
 * size of the result: 9e-8 of it for k = 768, where sgemm is 2.9e-7 off.
 *
 * Tiles are shaped when a product begins and released when it ends, so threads
 * hold none between calls. */

#define INLINE static inline __attribute__((always_inline))
#define ISA __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

enum {
    LANES = 16,        /* floats, or pairs, in a row of a tile */
    SIDE = 2 * LANES,  /* of a block */
    PANEL = 64,        /* columns that pack_rows_f32() keeps together */
    PART = 512,        /* pairs of a sum that are added up in a tile */
    PIECES = 3,
    MARK = 0x7fc07fc0, /* begins a row that is marked: two NaNs */
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Tiles 0 to 3 are of c, row by row; 4 and 5 of a; 6 and 7 of b. */
#define ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::)
#define LOAD(tile, from, floats)                                             \
    __asm__ volatile("tileloadd (%0, %1, 4), %%tmm" #tile                    \
                     : : "r"(from), "r"(floats) : "memory")
#define STORE(tile, to)                                                      \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0, %1, 4)"                \
                     : : "r"(to), "r"((int64_t)SIDE) : "memory")
#define MULTIPLY(c, a, b)                                                    \
    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

/* What LDTILECFG reads. */
struct shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* For blocks of so many rows, 1 to 32. A tile that stays unused has a row. */
static void shape_tiles(int64_t rows)
{
    uint8_t upper = (uint8_t)(rows < LANES ? rows : LANES);
    uint8_t lower = (uint8_t)(rows > LANES ? rows - LANES : 1);
    struct shapes shapes = {
        .palette = 1,
        .rows = { upper, upper, lower, lower, upper, lower, LANES, LANES },
    };

    for (int i = 0; i < 8; i++)
        shapes.row_bytes[i] = 4 * LANES;
    __asm__ volatile("ldtilecfg %0" : : "m"(shapes));
}

static void release_tiles(void)
{
    __asm__ volatile("tilerelease");
}

/* Rows of one factor, of pairs, where the next 16 pairs of the sum begin. */
struct factor {
    const float *at;
    int64_t step;  /* a: to the next row; b: to the next pair of the sum */
    int64_t piece; /* from one piece to the next */
};

INLINE void load_a(const struct factor *a, int piece, const bool two)
{
    const float *from = a->at + piece * a->piece;

    LOAD(4, from, a->step);
    if (two)
        LOAD(5, from + LANES * a->step, a->step);
}

INLINE void load_b(const struct factor *b, int piece, const bool two)
{
    const float *from = b->at + piece * b->piece;

    LOAD(6, from, b->step);
    if (two)
        LOAD(7, from + LANES, b->step);
}

INLINE void multiply(const bool two_rows, const bool two_columns)
{
    MULTIPLY(0, 4, 6);
    if (two_columns)
        MULTIPLY(1, 4, 7);
    if (two_rows)
        MULTIPLY(2, 5, 6);
    if (two_rows && two_columns)
        MULTIPLY(3, 5, 7);
}

/* In an order in which each product shares a factor with the one before. */
INLINE void add_small(const struct factor *a, const struct factor *b,
                      const bool two_rows, const bool two_columns)
{
    load_a(a, 2, two_rows);
    load_b(b, 0, two_columns);
    multiply(two_rows, two_columns);
    load_a(a, 1, two_rows);
    multiply(two_rows, two_columns);
    load_b(b, 1, two_columns);
    multiply(two_rows, two_columns);
    load_a(a, 0, two_rows);
    multiply(two_rows, two_columns);
    load_b(b, 2, two_columns);
    multiply(two_rows, two_columns);
}

INLINE void add_large(const struct factor *a, const struct factor *b,
                      const bool two_rows, const bool two_columns)
{
    load_a(a, 0, two_rows);
    load_b(b, 0, two_columns);
    multiply(two_rows, two_columns);
}

/* One part of the sums of a block. */
struct block {
    int64_t rows, columns, pairs; /* pairs: of the sum; columns: of tiles */
    struct factor a, b;
    int pieces; /* 1 or PIECES */
};

/* What is left of a sum after its last 16 pairs, with zeros behind it. */
struct rest {
    _Alignas(64) float a[PIECES][SIDE][LANES];
    _Alignas(64) float b[PIECES][LANES][SIDE];
};

ISA static void copy_rest(const struct block *block, int64_t at,
                          struct rest *rest)
{
    int64_t pairs = block->pairs - at;
    __mmask16 there = (__mmask16)((1u << pairs) - 1);

    for (int p = 0; p < block->pieces; p++) {
        const float *a = block->a.at + p * block->a.piece + at;
        const float *b = block->b.at + p * block->b.piece + at * block->b.step;

        for (int64_t i = 0; i < block->rows; i++)
            _mm512_store_ps(rest->a[p][i], _mm512_maskz_loadu_ps(
                                there, a + i * block->a.step));
        for (int64_t l = 0; l < LANES; l++)
            for (int64_t j = 0; j < block->columns; j += LANES)
                _mm512_store_ps(rest->b[p][l] + j,
                                l < pairs ? _mm512_loadu_ps(
                                                b + l * block->b.step + j)
                                          : _mm512_setzero_ps());
    }
}

INLINE void add_whole(const struct block *block, const bool small,
                      const bool two_rows, const bool two_columns)
{
    struct factor a = block->a, b = block->b;

    for (int64_t l = LANES; l <= block->pairs; l += LANES) {
        if (small)
            add_small(&a, &b, two_rows, two_columns);
        else
            add_large(&a, &b, two_rows, two_columns);
        a.at += LANES;
        b.at += LANES * b.step;
    }
}

INLINE void add_block(const struct block *block, float sums[SIDE][SIDE],
                      const bool two_rows, const bool two_columns)
{
    int64_t whole = block->pairs / LANES * LANES;
    struct rest rest;
    struct factor a = { rest.a[0][0], LANES, SIDE * LANES };
    struct factor b = { rest.b[0][0], SIDE, LANES * SIDE };

    ZERO(0);
    ZERO(1);
    ZERO(2);
    ZERO(3);
    if (whole < block->pairs)
        copy_rest(block, whole, &rest);
    if (block->pieces > 1)
        add_whole(block, true, two_rows, two_columns);
    if (block->pieces > 1 && whole < block->pairs)
        add_small(&a, &b, two_rows, two_columns);
    add_whole(block, false, two_rows, two_columns);
    if (whole < block->pairs)
        add_large(&a, &b, two_rows, two_columns);
    STORE(0, sums[0]);
    if (two_columns)
        STORE(1, sums[0] + LANES);
    if (two_rows)
        STORE(2, sums[LANES]);
    if (two_rows && two_columns)
        STORE(3, sums[LANES] + LANES);
}

static void multiply_block(const struct block *block, float sums[SIDE][SIDE])
{
    if (block->rows > LANES && block->columns > LANES)
        add_block(block, sums, true, true);
    else if (block->rows > LANES)
        add_block(block, sums, true, false);
    else if (block->columns > LANES)
        add_block(block, sums, false, true);
    else
        add_block(block, sums, false, false);
}

/* ---- a part of the sums of a panel, block by block ---- */

struct part {
    int64_t m, columns; /* of c */
    int64_t pairs;
    struct factor a, b;
    int pieces;
    bool add; /* to what the parts before left in c */
    float alpha;
    const float *bias; /* of the columns; NULL: zeros */
    float *c;
    int64_t ldc;
};

/* To rows i .. and columns j .. of c. */
ISA static void store_block(const struct part *p, const struct block *block,
                            int64_t i, int64_t j, float sums[SIDE][SIDE])
{
    const __m512 alpha = _mm512_set1_ps(p->alpha), zero = _mm512_setzero_ps();

    for (int64_t v = j; v < p->columns && v < j + SIDE; v += LANES) {
        int64_t n = p->columns - v;
        __mmask16 there = (__mmask16)(n < LANES ? (1u << n) - 1 : 0xffff);
        __m512 bias = p->bias == NULL
                          ? zero
                          : _mm512_maskz_loadu_ps(there, p->bias + v);

        for (int64_t r = 0; r < block->rows; r++) {
            float *c = p->c + (i + r) * p->ldc + v;
            __m512 sum = _mm512_load_ps(sums[r] + (v - j));

            if (p->add)
                sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(there, c));
            _mm512_mask_storeu_ps(c, there,
                                  _mm512_fmadd_ps(sum, alpha, bias));
        }
    }
}

/* A block of c, for whose rows the tiles are shaped. */
static void run_block(const struct part *p, int64_t i, int64_t rows, int64_t j)
{
    _Alignas(64) float sums[SIDE][SIDE];
    struct block block = {
        .rows = rows, .columns = least(p->columns - j, SIDE),
        .pairs = p->pairs,
        .a = { p->a.at + i * p->a.step, p->a.step, p->a.piece },
        .b = { p->b.at + j, p->b.step, p->b.piece },
        .pieces = p->pieces,
    };

    multiply_block(&block, sums);
    store_block(p, &block, i, j, sums);
}

static void run_part(const struct part *p)
{
    int64_t whole = p->m / SIDE * SIDE;

    if (whole > 0)
        shape_tiles(SIDE);
    for (int64_t j = 0; j < p->columns; j += SIDE)
        for (int64_t i = 0; i < whole; i += SIDE)
            run_block(p, i, SIDE, j);
    if (whole == p->m)
        return;
    shape_tiles(p->m - whole);
    for (int64_t j = 0; j < p->columns; j += SIDE)
        run_block(p, whole, p->m - whole, j);
}

/* Part by part, of the columns of a panel from `column` on: `pairs` pairs in
 * each piece of a's rows and of b, whose panels lie one behind the other. */
static int64_t run_panel(const struct packed_product *p, struct factor a,
                         const float *b, int64_t pairs, int pieces,
                         int64_t column)
{
    int64_t first = column / PANEL * PANEL;
    int64_t width = (least(p->n - first, PANEL) + LANES - 1) / LANES * LANES;
    struct part part = {
        .m = p->m,
        .columns = least(p->column + p->columns, first + PANEL) - column,
        .a = a,
        .b = { b + first * pairs * pieces + (column - first), width,
               pairs * width },
        .pieces = pieces,
        .c = p->c + (column - p->column),
        .ldc = p->ldc,
    };

    for (int64_t l = 0; l < pairs; l += PART) {
        bool last = pairs - l <= PART;

        part.pairs = last ? pairs - l : PART;
        part.add = l > 0;
        part.alpha = last ? p->alpha : 1;
        part.bias = last && p->bias != NULL ? p->bias + column : NULL;
        run_part(&part);
        part.a.at += PART;
        part.b.at += PART * width;
    }
    return part.columns;
}

/* ---- of bfloat16 ---- */

static void gemm_packed_pairs(const struct packed_product *p)
{
    struct factor a = { p->a, p->lda, 0 };
    int64_t end = p->column + p->columns;

    for (int64_t j = p->column; j < end;)
        j += run_panel(p, a, p->packed, p->k, 1, j);
    release_tiles();
}

/* Panel by panel, and each part by itself. */
static void gemm_nt_pairs(int64_t m, int64_t n, int64_t k, float alpha,
                          const float *a, int64_t lda, const float *b,
                          int64_t ldb, float *c, int64_t ldc)
{
    _Alignas(64) float panel[PART * PANEL];
    struct kernels below = { 0 };

    kernels_add_avx512(&below);
    for (int64_t j = 0; j < n; j += PANEL) {
        int64_t columns = least(n - j, PANEL);
        int64_t width = (columns + LANES - 1) / LANES * LANES;

        for (int64_t l = 0; l < k; l += PART) {
            bool last = k - l <= PART;
            struct part part = {
                .m = m, .columns = columns, .pairs = last ? k - l : PART,
                .a = { a + l, lda, 0 }, .b = { panel, width, 0 }, .pieces = 1,
                .add = l > 0, .alpha = last ? alpha : 1, .c = c + j, .ldc = ldc,
            };

            below.pack_rows_f32(columns, part.pairs, b + j * ldb + l, ldb,
                                panel);
            run_part(&part);
        }
    }
    release_tiles();
}

/* ---- of floats, by pieces ---- */

/* Exact for 0 and for sizes of 2^-51 to 2^60: below 2^-102 what a product
 * loses to the denormals that are taken for 0 would count in float32, and
 * above 2^120 a sum of some might overflow on the way. */
enum { SMALLEST = (127 - 51) << 23, ABOVE_LARGEST = (127 + 61) << 23 };

ISA static __mmask16 outside(__m512 x)
{
    __m512i size = _mm512_and_si512(_mm512_castps_si512(x),
                                    _mm512_set1_epi32(0x7fffffff));
    __m512i above = _mm512_sub_epi32(size, _mm512_set1_epi32(SMALLEST));
    __mmask16 beyond = _mm512_cmpge_epu32_mask(
        above, _mm512_set1_epi32(ABOVE_LARGEST - SMALLEST));

    return _mm512_mask_test_epi32_mask(beyond, size, size);
}

/* What 16 bfloat16 leave of 16 floats. */
ISA static __m512 remainder_of(__m512 x, __m256i piece)
{
    __m512i bits = _mm512_slli_epi32(_mm512_cvtepu16_epi32(piece), 16);

    return _mm512_sub_ps(x, _mm512_castsi512_ps(bits));
}

/* Up to 32 numbers, to each piece's place in the row. */
ISA static __mmask16 split_some(const float *row, int64_t n, float *pieces,
                                int64_t piece)
{
    __mmask16 pairs = (__mmask16)((1u << (n + 1) / 2) - 1);
    __mmask16 in_x = (__mmask16)(n < LANES ? (1u << n) - 1 : 0xffff);
    __mmask16 in_y = (__mmask16)(n > LANES ? (1ull << (n - LANES)) - 1 : 0);
    __m512 x = _mm512_maskz_loadu_ps(in_x, row);
    __m512 y = _mm512_maskz_loadu_ps(in_y, row + LANES);
    __mmask16 bad = outside(x) | outside(y);

    for (int p = 0; p < PIECES; p++, pieces += piece) {
        __m512i both = (__m512i)_mm512_cvtne2ps_pbh(y, x);

        _mm512_mask_storeu_epi32(pieces, pairs, both);
        x = remainder_of(x, _mm512_castsi512_si256(both));
        y = remainder_of(y, _mm512_extracti64x4_epi64(both, 1));
    }
    return bad;
}

static void split_rows(int64_t m, int64_t k, const float *rows, float *pieces)
{
    const uint32_t mark = MARK;
    int64_t piece = (k + 1) / 2;

    for (int64_t i = 0; i < m; i++, rows += k, pieces += PIECES * piece) {
        bool bad = false;

        for (int64_t l = 0; l < k; l += SIDE)
            bad |= split_some(rows + l, least(k - l, SIDE), pieces + l / 2,
                              piece) != 0;
        if (bad)
            memcpy(pieces, &mark, sizeof mark);
    }
}

static bool is_marked(const float *row)
{
    uint32_t bits;

    memcpy(&bits, row, sizeof bits);
    return bits == MARK;
}

/* The first of `count` rows, `step` apart, that is marked, or is not; else
 * `count`. */
static int64_t find_row(const float *rows, int64_t step, int64_t from,
                        int64_t count, bool marked)
{
    while (from < count && is_marked(rows + from * step) != marked)
        from++;
    return from;
}

/* Marked rows, from the floats. */
static void multiply_marked_rows(const struct packed_product *p,
                                 const struct kernels *below, const float *a,
                                 int64_t step)
{
    for (int64_t i = 0, end; i < p->m; i = end) {
        struct packed_product rows = *p;

        i = find_row(a, step, i, p->m, true);
        end = find_row(a, step, i, p->m, false);
        rows.m = end - i;
        rows.a += i * p->lda;
        rows.c += i * p->ldc;
        if (rows.m > 0)
            below->gemm_packed_f32(&rows);
    }
}

/* Columns `from` .. of a panel with a marked one, from the floats. */
static int64_t multiply_marked_panel(const struct packed_product *p,
                                     const struct kernels *below, int64_t from)
{
    struct packed_product panel = *p;

    panel.column = from;
    panel.columns = least(p->column + p->columns, from / PANEL * PANEL + PANEL) -
                    from;
    panel.c += from - p->column;
    below->gemm_packed_f32(&panel);
    return panel.columns;
}

static void gemm_packed_pieces(const struct packed_product *p, const float *a,
                               const float *b)
{
    int64_t pairs = (p->k + 1) / 2, end = p->column + p->columns;
    struct factor rows = { a, PIECES * pairs, pairs };
    struct kernels below = { 0 };

    kernels_add_avx512(&below);
    for (int64_t j = p->column; j < end;) {
        int64_t first = j / PANEL * PANEL, n = least(p->n - first, PANEL);
        const float *panel = b + first * PIECES * pairs;

        if (find_row(panel, 1, 0, n, true) < n)
            j += multiply_marked_panel(p, &below, j);
        else
            j += run_panel(p, rows, b, pairs, PIECES, j);
    }
    release_tiles();
    multiply_marked_rows(p, &below, a, PIECES * pairs);
}

void kernels_add_amx(struct kernels *set)
{
    set->gemm_nt_pairs = gemm_nt_pairs;
    set->gemm_packed_pairs = gemm_packed_pairs;
    set->split_rows = split_rows;
    set->gemm_packed_pieces = gemm_packed_pieces;
}

#else
typedef int amx_is_not_for_this_processor;
#endif
