#include "core/cpu.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Bits of cpuid's registers, and of XCR0, by Intel's manual, volume 2A,
 * CPUID, and volume 1, 13.3. */
enum {
    LEAF1_ECX_FMA = 1 << 12,
    LEAF1_ECX_POPCNT = 1 << 23,
    LEAF1_ECX_OSXSAVE = 1 << 27,
    LEAF7_EBX_BMI1 = 1 << 3,
    LEAF7_EBX_AVX2 = 1 << 5,
    LEAF7_EBX_BMI2 = 1 << 8,
    LEAF7_EBX_AVX512F = 1 << 16,
    LEAF7_EBX_AVX512DQ = 1 << 17,
    LEAF7_EBX_AVX512IFMA = 1 << 21,
    LEAF7_EBX_AVX512CD = 1 << 28,
    LEAF7_EBX_AVX512BW = 1 << 30,
    LEAF7_ECX_AVX512VBMI = 1 << 1,
    LEAF7_ECX_AVX512VBMI2 = 1 << 6,
    LEAF7_EDX_AMX_BF16 = 1 << 22,
    LEAF7_EDX_AMX_TILE = 1 << 24,
    LEAF7_1_EAX_AVX512BF16 = 1 << 5,
    EXTENDED1_ECX_LZCNT = 1 << 5,
    XCR0_YMM = 0x6,  /* xmm and the upper halves of ymm */
    XCR0_ZMM = 0xe0, /* opmasks, upper halves of zmm, zmm16 and up */
    XCR0_TILES = 0x60000, /* their shapes and their numbers */
};
static const uint32_t LEAF7_EBX_AVX512VL = 1u << 31;

static uint32_t saved_registers(void)
{
    uint32_t low, high;

    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static bool all_of(uint32_t value, uint32_t bits)
{
    return (value & bits) == bits;
}

/* Tiles are 8 KB that Linux saves for nobody who has not asked: see
 * Documentation/arch/x86/xstate.rst. */
static bool may_use_tiles(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_NUMBERS = 18 };

    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_NUMBERS) == 0;
}

uint32_t cpu_features(void)
{
    const uint32_t avx512 = LEAF7_EBX_AVX512F | LEAF7_EBX_AVX512DQ |
                            LEAF7_EBX_AVX512BW | LEAF7_EBX_AVX512VL;
    const uint32_t avx2 = LEAF7_EBX_AVX2 | LEAF7_EBX_BMI1 | LEAF7_EBX_BMI2;
    const uint32_t cd_ifma = LEAF7_EBX_AVX512CD | LEAF7_EBX_AVX512IFMA;
    const uint32_t vbmi2 = LEAF7_ECX_AVX512VBMI | LEAF7_ECX_AVX512VBMI2;
    const uint32_t amx = LEAF7_EDX_AMX_TILE | LEAF7_EDX_AMX_BF16;
    uint32_t a, b, c, d, a71, b7, c7, d7, features = 0;

    if (__get_cpuid(1, &a, &b, &c, &d) == 0 ||
        !all_of(c, LEAF1_ECX_FMA | LEAF1_ECX_POPCNT | LEAF1_ECX_OSXSAVE) ||
        __get_cpuid_count(7, 1, &a71, &b, &c7, &d) == 0 || /* 0 if unknown */
        __get_cpuid_count(7, 0, &a, &b7, &c7, &d7) == 0 ||
        __get_cpuid(0x80000001, &a, &b, &c, &d) == 0 ||
        !all_of(c, EXTENDED1_ECX_LZCNT))
        return 0;

    uint32_t saved = saved_registers();

    if (all_of(saved, XCR0_YMM) && all_of(b7, avx2))
        features |= CPU_AVX2;
    if (features != 0 && all_of(saved, XCR0_ZMM) && all_of(b7, avx512))
        features |= CPU_AVX512;
    if ((features & CPU_AVX512) != 0 && all_of(b7, cd_ifma) && all_of(c7, vbmi2))
        features |= CPU_AVX512_VBMI2;
    if ((features & CPU_AVX512) != 0 && all_of(a71, LEAF7_1_EAX_AVX512BF16))
        features |= CPU_AVX512_BF16;
    if (all_of(saved, XCR0_TILES) && all_of(d7, amx) && may_use_tiles())
        features |= CPU_AMX;
    return features;
}

#else

uint32_t cpu_features(void)
{
    return 0;
}

#endif
