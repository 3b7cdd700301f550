#if defined(__x86_64__)

#include <immintrin.h>

/* Rows by vectors of eight, with fused multiply-add. */

enum { LANES = 8 };
#define ISA __attribute__((target("avx2,fma")))
typedef float lanes __attribute__((vector_size(4 * LANES)));

ISA static inline lanes select_above(lanes a, lanes b, lanes x, lanes y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
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

#include "core/kernels/rows.h"

void kernels_add_avx2(struct kernels *set)
{
    add_rows(set);
}

#else
typedef int avx2_is_not_for_this_processor;
#endif
