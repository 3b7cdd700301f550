#if defined(__x86_64__)

#include <immintrin.h>
#include <stdint.h>

/* Rows by vectors of sixteen, and products by tiles of six rows and four
 * vectors: they, 4 vectors of b and one of a fill 29 of 32 registers, and 24
 * multiply-adds hide the latency of each. A panel's part is 64 KB. 250 to 258
 * of 268 GFLOP/s on packed weights where OpenBLAS 0.3.21, which does not know
 * the processor (an AMD EPYC of family 26) and takes its AVX2 kernels, has 110
 * to 130. */

enum { LANES = 16, ROWS = 6, VECTORS = 4 };
#define FUSES 1
#define SCALES_AT_ONCE 1
#define TILES_OF_FOUR 1
#define PAIRS 1
#define ISA __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef uint32_t lanes_word __attribute__((vector_size(4 * LANES)));

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

/* Halves, then halves of these, and so on to pairs. */
ISA static inline __attribute__((always_inline)) lanes totals(
    const lanes x[LANES])
{
    lanes y[8], z[4];

    _Pragma("GCC unroll 4")
    for (int i = 0; i < 4; i++) {
        _Pragma("GCC unroll 2")
        for (int j = 0; j < 8; j += 4)
            y[i + j] =
                _mm512_shuffle_f32x4(x[i + 2 * j], x[i + 2 * j + 4], 0x44) +
                _mm512_shuffle_f32x4(x[i + 2 * j], x[i + 2 * j + 4], 0xee);
        z[i] = _mm512_shuffle_f32x4(y[i], y[i + 4], 0x88) +
               _mm512_shuffle_f32x4(y[i], y[i + 4], 0xdd);
    }
    _Pragma("GCC unroll 2")
    for (int i = 0; i < 2; i++)
        y[i] = _mm512_shuffle_ps(z[2 * i], z[2 * i + 1], 0x44) +
               _mm512_shuffle_ps(z[2 * i], z[2 * i + 1], 0xee);
    return _mm512_shuffle_ps(y[0], y[1], 0x88) +
           _mm512_shuffle_ps(y[0], y[1], 0xdd);
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

ISA static inline lanes_word high_products(lanes_word x, uint32_t by)
{
    __m512i factor = _mm512_set1_epi32((int)by), all = (__m512i)x;
    __m512i even = _mm512_mul_epu32(all, factor);
    __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(all, 32), factor);

    return (lanes_word)_mm512_mask_blend_epi32(
        0xaaaa, _mm512_srli_epi64(even, 32), odd);
}

ISA static inline lanes times_power_of_two(lanes x, lanes k)
{
    return _mm512_scalef_ps(x, k);
}

/* sum += x.y of sixteen pairs, where the processor has it (which `ISA` does not
 * ask for, hence no intrinsic). By Intel's manual, volume 2, VDPBF16PS: the
 * second product is added first, then the first, each fused and rounded to
 * nearest even; denormals are zeros, as inputs and as results; MXCSR is not
 * asked. */
ISA static inline lanes plus_pairs(lanes sum, lanes x, lanes y)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
    return sum;
}

/* Sixteen rows of sixteen become columns: pairs, fours, then the four quarters
 * of each vector, in two steps. */
ISA static inline __attribute__((always_inline)) void transpose(
    lanes x[LANES])
{
    lanes y[LANES];

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

#include "core/kernels/drop.h"
#include "core/kernels/products.h"

/* As tensor_round_bf16() does, the result in the upper half of each float. */
ISA static __m512i rounded(const float *p, int64_t n)
{
    const __m512i infinity = _mm512_set1_epi32(0x7f800000);
    __m512i x = _mm512_castps_si512(
        load_part(p, n > LANES ? LANES : n < 0 ? 0 : n, 0));
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(x, 16),
                                   _mm512_set1_epi32(1));
    __m512i near = _mm512_add_epi32(
        x, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 over = _mm512_cmpeq_epi32_mask(_mm512_and_si512(near, infinity),
                                             infinity);

    return _mm512_mask_mov_epi32(near, over, x);
}

ISA static void round_row(int64_t k, const float *row, float *pairs)
{
    const __m512i upper_halves = _mm512_add_epi32(
        _mm512_set1_epi32(0x00030001),
        _mm512_mullo_epi32(_mm512_set1_epi32(0x00040004),
                           _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
                                             11, 12, 13, 14, 15)));

    for (int64_t l = 0; l < k; l += 2 * LANES, pairs += LANES) {
        __m512i two = _mm512_permutex2var_epi16(
            rounded(row + l, k - l), upper_halves,
            rounded(row + l + LANES, k - l - LANES));

        store_part(pairs, least((k - l + 1) / 2, LANES),
                   _mm512_castsi512_ps(two));
    }
}

ISA static void round_pairs(int64_t m, int64_t k, const float *rows,
                            float *pairs)
{
    for (int64_t i = 0; i < m; i++)
        round_row(k, rows + i * k, pairs + i * ((k + 1) / 2));
}

void kernels_add_avx512(struct kernels *set)
{
    add_rows(set);
    add_products(set);
    set->drop_row = drop_row;
}

void kernels_add_avx512_bf16(struct kernels *set)
{
    set->round_pairs = round_pairs;
    set->gemm_nt_pairs = gemm_nt_pairs;
    set->gemm_packed_pairs = gemm_packed_pairs;
}

#else
typedef int avx512_is_not_for_this_processor;
#endif
