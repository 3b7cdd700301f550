#if defined(__x86_64__)

#include <immintrin.h>
#include <stdint.h>

/* Rows by vectors of sixteen, and products by tiles of six rows and four
 * vectors that stay in registers. */

enum { LANES = 16 };
#define ISA __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
typedef float lanes __attribute__((vector_size(4 * LANES)));

ISA static inline lanes select_above(lanes a, lanes b, lanes x, lanes y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), y, x);
}

ISA static inline lanes larger(lanes a, lanes b)
{
    return _mm512_max_ps(a, b);
}

ISA static inline lanes smaller(lanes a, lanes b)
{
    return _mm512_min_ps(a, b);
}

ISA static inline float lanes_largest(lanes x)
{
    return _mm512_reduce_max_ps(x);
}

ISA static inline float lanes_total(lanes x)
{
    return _mm512_reduce_add_ps(x);
}

ISA static inline __mmask16 first(int64_t n)
{
    return (__mmask16)((1u << n) - 1);
}

ISA static inline lanes load_part(const float *p, int64_t n, float rest)
{
    return _mm512_mask_loadu_ps(_mm512_set1_ps(rest), first(n), p);
}

ISA static inline void store_part(float *p, int64_t n, lanes x)
{
    _mm512_mask_storeu_ps(p, first(n), x);
}

ISA static inline lanes load_flags(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(
        _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p)));
}

ISA static inline lanes times_power_of_two(lanes x, lanes k)
{
    return _mm512_scalef_ps(x, k);
}

#include "core/kernels/rows.h"

/* ---- products ----
 *
 * c is made in tiles of ROWS x WIDTH: 6 x 4 sums, 4 vectors of b and one of a
 * fill 29 of 32 registers, and 24 multiply-adds hide the latency of each. b is
 * packed into panels of WIDTH columns and DEPTH rows, 64 KB on the stack, which
 * every row of a then runs over from the second cache. Each element of c is
 * summed in the order of k, a panel by itself, so that errors of long sums do
 * not pile up, and the same wherever it stands: its bits depend on nothing but
 * its row and its column. 200 to 240 GFLOP/s where OpenBLAS 0.3.21, which does
 * not know the processor (an AMD EPYC of family 26) and takes its AVX2 kernels,
 * has 110 to 125. */
enum { ROWS = 6, VECTORS = 4, WIDTH = VECTORS * LANES, DEPTH = 256 };

struct block {
    int64_t k;           /* depth of this panel */
    const float *a;
    int64_t lda;
    const float *panel;  /* k rows of `vectors` vectors */
    float *c;
    int64_t ldc;
    int64_t columns;     /* of c, that the panel's vectors hold */
    bool add;            /* to what an earlier panel left in c */
    float alpha;         /* for the last panel, else 1 */
};

INLINE void store_sum(const struct block *b, int row, int vector, int64_t n,
                      lanes sum)
{
    float *c = b->c + row * b->ldc + vector * LANES;

    if (b->add)
        sum += load_part(c, n, 0);
    store_part(c, n, sum * b->alpha);
}

INLINE void multiply(const struct block *b, const int rows, const int vectors)
{
    int64_t last = b->columns - (vectors - 1) * LANES;
    lanes sum[ROWS][VECTORS];

    _Pragma("GCC unroll 6")
    for (int r = 0; r < rows; r++) {
        _Pragma("GCC unroll 4")
        for (int v = 0; v < vectors; v++)
            sum[r][v] = all(0);
    }
    for (int64_t k = 0; k < b->k; k++) {
        lanes column[VECTORS];

        _Pragma("GCC unroll 4")
        for (int v = 0; v < vectors; v++)
            column[v] = load(b->panel + (k * vectors + v) * LANES);
        _Pragma("GCC unroll 6")
        for (int r = 0; r < rows; r++) {
            lanes x = all(b->a[r * b->lda + k]);

            _Pragma("GCC unroll 4")
            for (int v = 0; v < vectors; v++)
                sum[r][v] += x * column[v];
        }
    }
    _Pragma("GCC unroll 6")
    for (int r = 0; r < rows; r++) {
        _Pragma("GCC unroll 4")
        for (int v = 0; v < vectors; v++)
            store_sum(b, r, v, v == vectors - 1 ? last : LANES, sum[r][v]);
    }
}

#define TILE(rows, vectors)                                                  \
    ISA static void tile_##rows##_##vectors(const struct block *b)           \
    {                                                                        \
        multiply(b, rows, vectors);                                          \
    }
#define TILES(vectors)                                                       \
    TILE(1, vectors)                                                         \
    TILE(2, vectors)                                                         \
    TILE(3, vectors)                                                         \
    TILE(4, vectors)                                                         \
    TILE(5, vectors)                                                         \
    TILE(6, vectors)
TILES(1)
TILES(2)
TILES(3)
TILES(4)

#define TILE_NAMES(vectors)                                                  \
    { tile_1_##vectors, tile_2_##vectors, tile_3_##vectors,                  \
      tile_4_##vectors, tile_5_##vectors, tile_6_##vectors }
static void (*const tiles[VECTORS][ROWS])(const struct block *b) = {
    TILE_NAMES(1), TILE_NAMES(2), TILE_NAMES(3), TILE_NAMES(4)
};

/* All m rows of a against one panel. */
ISA static void multiply_panel(struct block block, int64_t m)
{
    int64_t vectors = (block.columns + LANES - 1) / LANES;

    for (int64_t i = 0; i < m; i += ROWS) {
        int64_t rows = m - i < ROWS ? m - i : ROWS;

        tiles[vectors - 1][rows - 1](&block);
        block.a += rows * block.lda;
        block.c += rows * block.ldc;
    }
}

/* Sixteen rows of sixteen become columns: pairs, fours, then the four quarters
 * of each vector, in two steps. */
INLINE void transpose(__m512 x[LANES])
{
    __m512 y[LANES];

    _Pragma("GCC unroll 8")
    for (int i = 0; i < LANES; i += 2) {
        y[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    _Pragma("GCC unroll 4")
    for (int i = 0; i < LANES; i += 4) {
        for (int j = 0; j < 2; j++) {
            __m512d low = _mm512_castps_pd(y[i + j]);
            __m512d high = _mm512_castps_pd(y[i + j + 2]);

            x[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            x[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    }
    _Pragma("GCC unroll 4")
    for (int j = 0; j < 4; j++) {
        for (int i = 0; i < LANES; i += 8) {
            y[i + j] = _mm512_shuffle_f32x4(x[i + j], x[i + j + 4], 0x88);
            y[i + j + 4] = _mm512_shuffle_f32x4(x[i + j], x[i + j + 4], 0xdd);
        }
    }
    _Pragma("GCC unroll 8")
    for (int j = 0; j < 8; j++) {
        x[j] = _mm512_shuffle_f32x4(y[j], y[j + 8], 0x88);
        x[j + 8] = _mm512_shuffle_f32x4(y[j], y[j + 8], 0xdd);
    }
}

/* Sixteen rows of b, of which n are there, become one vector of each of the
 * panel's k rows. */
ISA static void pack_sixteen(const float *b, int64_t ldb, int64_t n, int64_t k,
                             float *panel, int64_t width)
{
    for (int64_t l = 0; l < k; l += LANES) {
        int64_t depth = k - l < LANES ? k - l : LANES;
        __m512 x[LANES];

        _Pragma("GCC unroll 16")
        for (int j = 0; j < LANES; j++)
            x[j] = _mm512_maskz_loadu_ps(j < n ? first(depth) : 0,
                                         b + (j < n ? j : 0) * ldb + l);
        transpose(x);
        _Pragma("GCC unroll 16")
        for (int j = 0; j < LANES; j++)
            if (j < depth)
                _mm512_store_ps(panel + (l + j) * width, x[j]);
    }
}

ISA static void pack_transposed(const float *b, int64_t ldb, int64_t n,
                                int64_t k, float *panel)
{
    int64_t width = (n + LANES - 1) / LANES * LANES;

    for (int64_t j = 0; j < n; j += LANES)
        pack_sixteen(b + j * ldb, ldb, n - j < LANES ? n - j : LANES, k,
                     panel + j, width);
}

ISA static void pack_straight(const float *b, int64_t ldb, int64_t n,
                              int64_t k, float *panel)
{
    int64_t full = n / LANES * LANES, rest = n - full;

    for (int64_t l = 0; l < k; l++, b += ldb) {
        for (int64_t j = 0; j < full; j += LANES, panel += LANES)
            _mm512_store_ps(panel, load(b + j));
        if (rest > 0) {
            _mm512_store_ps(panel, load_part(b + full, rest, 0));
            panel += LANES;
        }
    }
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* One row, or two, take less time without packing: 24 us a row against 65 for
 * both at n = k = 768, on that EPYC. */
enum { FEW_ROWS = 2 };

ISA static void gemm_nt_f32(int64_t m, int64_t n, int64_t k, float alpha,
                            const float *a, int64_t lda, const float *b,
                            int64_t ldb, float *c, int64_t ldc)
{
    _Alignas(64) float panel[DEPTH * WIDTH];

    if (m <= FEW_ROWS) {
        for (int64_t i = 0; i < m; i++)
            dot_rows(n, k, alpha, a + i * lda, b, ldb, c + i * ldc);
        return;
    }
    for (int64_t l = 0; l < k; l += DEPTH)
        for (int64_t j = 0; j < n; j += WIDTH) {
            struct block block = { .k = least(k - l, DEPTH),
                                   .a = a + l, .lda = lda, .panel = panel,
                                   .c = c + j, .ldc = ldc,
                                   .columns = least(n - j, WIDTH),
                                   .add = l > 0,
                                   .alpha = k - l <= DEPTH ? alpha : 1 };

            pack_transposed(b + j * ldb + l, ldb, block.columns, block.k,
                            panel);
            multiply_panel(block, m);
        }
}

ISA static void gemm_nn_f32(int64_t m, int64_t n, int64_t k, const float *a,
                            int64_t lda, const float *b, int64_t ldb,
                            float beta, float *c, int64_t ldc)
{
    _Alignas(64) float panel[DEPTH * WIDTH];

    for (int64_t j = 0; j < n; j += WIDTH)
        for (int64_t l = 0; l < k; l += DEPTH) {
            struct block block = { .k = least(k - l, DEPTH),
                                   .a = a + l, .lda = lda, .panel = panel,
                                   .c = c + j, .ldc = ldc,
                                   .columns = least(n - j, WIDTH),
                                   .add = l > 0 || beta != 0, .alpha = 1 };

            pack_straight(b + l * ldb + j, ldb, block.columns, block.k, panel);
            multiply_panel(block, m);
        }
}

void kernels_add_avx512(struct kernels *set)
{
    add_rows(set);
    set->gemm_nt_f32 = gemm_nt_f32;
    set->gemm_nn_f32 = gemm_nn_f32;
}

#else
typedef int avx512_is_not_for_this_processor;
#endif
