#ifndef API_NUMBER_WRITE_AVX512_H
#define API_NUMBER_WRITE_AVX512_H

#if defined(__x86_64__)

#include "api/number_parts.h"

#include <immintrin.h>

/* What number_write_avx512.c and number_write_avx512_f64.c share. */

/* As in number_read_avx512.c. */
#define ISA                                                                    \
    __attribute__((target("avx2,fma,bmi,bmi2,lzcnt,popcnt,avx512f,avx512bw," \
                          "avx512cd,avx512dq,avx512vl,avx512ifma,"            \
                          "avx512vbmi,avx512vbmi2")))

ISA INLINE __m512i ints(int32_t value)
{
    return _mm512_set1_epi32(value);
}

ISA INLINE __m512i longs(int64_t value)
{
    return _mm512_set1_epi64(value);
}

ISA INLINE __m512i join(__m512i even, __m512i odd)
{
    return _mm512_or_si512(even, _mm512_slli_epi64(odd, 32));
}

/* The powers of ten whose places in the table, in bytes, are in lanes of 64
 * bits. When gathered instead, 258 and 145 million float32 and float64 are
 * written a second (EPYC, Zen 5), not 278 and 195. */
struct powers {
    __m512i high, low;
};

ISA INLINE __m128i load_power(uint64_t at)
{
    return _mm_loadu_si128((const void *)((const char *)number_powers + at));
}

ISA INLINE __m512i load_four(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_set_m128i(load_power(b), load_power(a))),
        _mm256_set_m128i(load_power(d), load_power(c)), 1);
}

ISA INLINE struct powers load_powers(__m512i places)
{
    uint64_t at[8];
    __m512i even, odd;

    _mm512_storeu_si512(at, places);
    __asm__("" : "+m"(at)); /* or gcc takes the vector apart instead */
    even = load_four(at[0], at[2], at[4], at[6]);
    odd = load_four(at[1], at[3], at[5], at[7]);
    return (struct powers){ _mm512_unpacklo_epi64(even, odd),
                            _mm512_unpackhi_epi64(even, odd) };
}

/* spread_digits() of number_write.c. 109951163 / 2^40 is exact below 10^8. */
ISA INLINE __m512i spread(__m512i eight)
{
    __m512i high = _mm512_srli_epi64(
        _mm512_mul_epu32(eight, longs(109951163)), 40);
    __m512i low = _mm512_sub_epi64(eight,
                                   _mm512_mul_epu32(high, longs(10000)));
    __m512i fours = join(high, low);
    __m512i hundreds = _mm512_srli_epi16(
        _mm512_mulhi_epu16(fours, _mm512_set1_epi16(5243)), 3);
    __m512i ones = _mm512_sub_epi16(
        fours, _mm512_mullo_epi16(hundreds, _mm512_set1_epi16(100)));
    __m512i pairs = _mm512_or_si512(hundreds, _mm512_slli_epi32(ones, 16));
    __m512i tens = _mm512_mulhi_epu16(pairs, _mm512_set1_epi16(6554));

    return _mm512_sub_epi16(_mm512_slli_epi16(pairs, 8),
                            _mm512_mullo_epi16(tens, _mm512_set1_epi16(2559)));
}

#endif

#endif
