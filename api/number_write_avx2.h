#ifndef API_NUMBER_WRITE_AVX2_H
#define API_NUMBER_WRITE_AVX2_H

#if defined(__x86_64__)

#include "api/number_parts.h"

#include <immintrin.h>

/* What number_write_avx2.c and number_write_avx2_f64.c share. */

#define ISA __attribute__((target("avx2,fma,bmi,bmi2,lzcnt,popcnt")))

ISA INLINE __m256i ints(int32_t value)
{
    return _mm256_set1_epi32(value);
}

ISA INLINE __m256i longs(int64_t value)
{
    return _mm256_set1_epi64x(value);
}

ISA INLINE __m256i choose(__m256i yes, __m256i a, __m256i b)
{
    return _mm256_blendv_epi8(b, a, yes);
}

ISA INLINE __m256i join(__m256i even, __m256i odd)
{
    return _mm256_or_si256(even, _mm256_slli_epi64(odd, 32));
}

/* The powers of ten whose places in the table, in bytes, are in lanes of 64
 * bits. When gathered instead, 119 and 82 million float32 and float64 are
 * written a second (EPYC, Zen 5), not 143 and 97. */
struct powers {
    __m256i high, low;
};

ISA INLINE __m128i load_power(uint64_t at)
{
    return _mm_loadu_si128((const void *)((const char *)number_powers + at));
}

ISA INLINE struct powers load_powers(__m256i places)
{
    uint64_t at[4];
    __m256i even, odd;

    _mm256_storeu_si256((void *)at, places);
    __asm__("" : "+m"(at)); /* or gcc takes the vector apart instead */
    even = _mm256_set_m128i(load_power(at[2]), load_power(at[0]));
    odd = _mm256_set_m128i(load_power(at[3]), load_power(at[1]));
    return (struct powers){ _mm256_unpacklo_epi64(even, odd),
                            _mm256_unpackhi_epi64(even, odd) };
}

/* spread_digits() of number_write.c. 109951163 / 2^40 is exact below 10^8. */
ISA INLINE __m256i spread(__m256i eight)
{
    __m256i high = _mm256_srli_epi64(
        _mm256_mul_epu32(eight, longs(109951163)), 40);
    __m256i low = _mm256_sub_epi64(eight,
                                   _mm256_mul_epu32(high, longs(10000)));
    __m256i fours = join(high, low);
    __m256i hundreds = _mm256_srli_epi16(
        _mm256_mulhi_epu16(fours, _mm256_set1_epi16(5243)), 3);
    __m256i ones = _mm256_sub_epi16(
        fours, _mm256_mullo_epi16(hundreds, _mm256_set1_epi16(100)));
    __m256i pairs = _mm256_or_si256(hundreds, _mm256_slli_epi32(ones, 16));
    __m256i tens = _mm256_mulhi_epu16(pairs, _mm256_set1_epi16(6554));

    return _mm256_sub_epi16(_mm256_slli_epi16(pairs, 8),
                            _mm256_mullo_epi16(tens, _mm256_set1_epi16(2559)));
}

#endif

#endif
