#ifndef CORE_CPU_H
#define CORE_CPU_H

#include <stdint.h>

/* What the processor and the operating system let us use, in steps as coarse
 * as the kernels are. A bit stands for everything its kernels need, saved
 * registers included, so that no caller asks twice. */
enum cpu_feature {
    CPU_AVX2 = 1,   /* AVX2, FMA, BMI1, BMI2, LZCNT and POPCNT, ymm saved */
    CPU_AVX512 = 2, /* AVX-512 F, BW, DQ and VL, zmm saved */
    CPU_AVX512_VBMI2 = 4, /* AVX-512 CD, IFMA, VBMI and VBMI2 as well */
    CPU_AVX512_BF16 = 8,  /* products of bfloat16 beside CPU_AVX512 */
    CPU_AMX = 16,         /* AMX-TILE and AMX-BF16, tiles saved */
};

/* The bits above; 0 where the processor is none that we know. Asks Linux to let
 * this process, whose threads start later, use tiles. */
uint32_t cpu_features(void);

#endif
