#if defined(__x86_64__)

#include <immintrin.h>

/* Rows by vectors of sixteen. */

enum { LANES = 16 };
#define ISA __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
typedef float lanes __attribute__((vector_size(4 * LANES)));

ISA static inline lanes select_above(lanes a, lanes b, lanes x, lanes y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), y, x);
}

ISA static inline float lanes_largest(lanes x)
{
    return _mm512_reduce_max_ps(x);
}

ISA static inline float lanes_total(lanes x)
{
    return _mm512_reduce_add_ps(x);
}

#include "core/kernels/rows.h"

void kernels_add_avx512(struct kernels *set)
{
    add_rows(set);
}

#else
typedef int avx512_is_not_for_this_processor;
#endif
