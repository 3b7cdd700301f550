#ifndef CORE_KERNELS_PORTABLE_H
#define CORE_KERNELS_PORTABLE_H

#include <stdint.h>

/* What a higher level falls back on where its own way does not pay: the
 * products of the portable set, as kernels.h describes them. */

void portable_gemm_nt_f32(int64_t m, int64_t n, int64_t k, float alpha,
                          const float *a, int64_t lda, const float *b,
                          int64_t ldb, float *c, int64_t ldc);

#endif
