#if defined(__x86_64__)

#include <immintrin.h>
#include <stdint.h>

/* Rows by vectors of eight, with fused multiply-add, and products by tiles of
 * six rows and two vectors: they, 2 vectors of b and one of a fill 15 of 16
 * registers. */

enum { LANES = 8, ROWS = 6, VECTORS = 2 };
#define FUSES 1
#define SCALES_AT_ONCE 0
#define TILES_OF_FOUR 0
#define PAIRS 0
#define ISA __attribute__((target("avx2,fma")))
typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef uint32_t lanes_word __attribute__((vector_size(4 * LANES)));

ISA static inline lanes select_above(lanes a, lanes b, lanes x, lanes y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
}

ISA static inline lanes larger(lanes a, lanes b)
{
    return _mm256_max_ps(a, b);
}

ISA static inline lanes smaller(lanes a, lanes b)
{
    return _mm256_min_ps(a, b);
}

/* All bits set in the first n of eight. */
ISA static inline __m256i first(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

ISA static inline lanes load_part(const float *p, int64_t n, float rest)
{
    __m256i mask = first(n);

    return _mm256_blendv_ps(_mm256_set1_ps(rest), _mm256_maskload_ps(p, mask),
                            _mm256_castsi256_ps(mask));
}

ISA static inline void store_part(float *p, int64_t n, lanes x)
{
    _mm256_maskstore_ps(p, first(n), x);
}

ISA static inline lanes load_flags(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(
        _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p)));
}

ISA static inline lanes_word high_products(lanes_word x, uint32_t by)
{
    __m256i factor = _mm256_set1_epi32((int)by), all = (__m256i)x;
    __m256i even = _mm256_mul_epu32(all, factor);
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(all, 32), factor);

    return (lanes_word)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd,
                                          0xaa);
}

ISA static inline float lanes_largest(lanes x)
{
    __m128 a = _mm_max_ps(_mm256_castps256_ps128(x),
                          _mm256_extractf128_ps(x, 1));

    a = _mm_max_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)));
}

ISA static inline float lanes_total(lanes x)
{
    __m128 a = _mm_add_ps(_mm256_castps256_ps128(x),
                          _mm256_extractf128_ps(x, 1));

    a = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
}

/* Halves, then halves of these, then pairs. */
ISA static inline __attribute__((always_inline)) lanes totals(
    const lanes x[LANES])
{
    lanes y[4], z[2];

    _Pragma("GCC unroll 4")
    for (int i = 0; i < 4; i++)
        y[i] = _mm256_permute2f128_ps(x[i], x[i + 4], 0x20) +
               _mm256_permute2f128_ps(x[i], x[i + 4], 0x31);
    _Pragma("GCC unroll 2")
    for (int i = 0; i < 2; i++)
        z[i] = _mm256_shuffle_ps(y[2 * i], y[2 * i + 1], 0x44) +
               _mm256_shuffle_ps(y[2 * i], y[2 * i + 1], 0xee);
    return _mm256_shuffle_ps(z[0], z[1], 0x88) +
           _mm256_shuffle_ps(z[0], z[1], 0xdd);
}

/* Eight rows of eight become columns: pairs, fours, then halves. */
ISA static inline __attribute__((always_inline)) void transpose(
    lanes x[LANES])
{
    lanes y[LANES];

    _Pragma("GCC unroll 4")
    for (int i = 0; i < LANES; i += 2) {
        y[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
        y[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
    _Pragma("GCC unroll 2")
    for (int i = 0; i < LANES; i += 4) {
        x[i] = _mm256_shuffle_ps(y[i], y[i + 2], 0x44);
        x[i + 1] = _mm256_shuffle_ps(y[i], y[i + 2], 0xee);
        x[i + 2] = _mm256_shuffle_ps(y[i + 1], y[i + 3], 0x44);
        x[i + 3] = _mm256_shuffle_ps(y[i + 1], y[i + 3], 0xee);
    }
    _Pragma("GCC unroll 4")
    for (int i = 0; i < 4; i++) {
        y[i] = _mm256_permute2f128_ps(x[i], x[i + 4], 0x20);
        y[i + 4] = _mm256_permute2f128_ps(x[i], x[i + 4], 0x31);
    }
    _Pragma("GCC unroll 8")
    for (int i = 0; i < LANES; i++)
        x[i] = y[i];
}

#include "core/kernels/drop.h"
#include "core/kernels/products.h"

void kernels_add_avx2(struct kernels *set)
{
    add_rows(set);
    add_products(set);
    set->drop_row = drop_row;
}

#else
typedef int avx2_is_not_for_this_processor;
#endif
