#include "api/number_run.h"

#if defined(__x86_64__)

#include "api/number.h"
#include "api/number_layout.h"
#include "api/number_parts.h"
#include "api/number_write_avx512.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

/* Sixteen values, in lanes of 32 bits. Where 64 are needed they are taken in
 * two halves: those in even lanes, which lie right, and those in odd lanes. */

ISA INLINE __m512i odd_half(__m512i lanes)
{
    return _mm512_srli_epi64(lanes, 32);
}

ISA INLINE __m512i even_half(__m512i lanes)
{
    return _mm512_and_si512(lanes, longs(UINT32_MAX));
}

/* What shortest_f32() of number_write.c does before its multiplication. */
struct scaled {
    __m512i c;     /* in the top bit: lopsided */
    __m512i times; /* c << (b + 1) */
    __m512i k;
    __m512i power; /* where in the table, in bytes */
    __m512i four_less_b;
};

/* The logarithms are exact for the exponents of float32 with fewer bits than
 * number_write.c takes, tried one by one: 1233 / 2^12 = log10 2 - 5e-6,
 * 512 / 2^12 = -log10 3/4 + 6e-5, 27213 / 2^13 = log2 10 - 3e-5. */
ISA INLINE struct scaled scale(__m512i bits)
{
    __m512i field = _mm512_srli_epi32(bits, 23);
    __m512i fraction = _mm512_and_si512(bits, ints(0x7fffff));
    __mmask16 normal = _mm512_test_epi32_mask(field, field);
    __mmask16 lopsided = _mm512_testn_epi32_mask(fraction, fraction) &
                         _mm512_cmpgt_epi32_mask(field, ints(1));
    __m512i c = _mm512_mask_or_epi32(fraction, normal, fraction,
                                     ints(0x800000));
    __m512i q = _mm512_sub_epi32(_mm512_max_epi32(field, ints(1)), ints(150));
    __m512i log = _mm512_madd_epi16(q, ints(1233));
    __m512i k = _mm512_srai_epi32(
        _mm512_mask_sub_epi32(log, lopsided, log, ints(512)), 12);
    __m512i minus_k = _mm512_sub_epi32(_mm512_setzero_si512(), k);
    __m512i b = _mm512_add_epi32(
        _mm512_srai_epi32(_mm512_madd_epi16(minus_k, ints(27213)), 13), q);

    return (struct scaled){
        .c = _mm512_mask_or_epi32(c, lopsided, c, ints(INT32_MIN)),
        .times = _mm512_sllv_epi32(c, _mm512_add_epi32(b, ints(1))),
        .k = k,
        .power = _mm512_slli_epi32(
            _mm512_add_epi32(minus_k, ints(-POWER_LOW)), 4),
        .four_less_b = _mm512_sub_epi32(ints(4), b),
    };
}

/* The rest of it for one half. The power's halves make two products of 32 bits
 * by 28, which together are the one there, bit for bit. The digits; in bit 31,
 * whether they count tens of 10^k. */
ISA INLINE __m512i shorten(__m512i c, __m512i times, __m512i place,
                           __m512i four_less_b)
{
    const __m512i one = longs((int64_t)1 << 60), slack = longs(1 << 25);
    __m512i power = _mm512_add_epi64(
        load_powers(place).high, longs(1));
    __m512i low = _mm512_mul_epu32(times, power);
    __m512i high = _mm512_mul_epu32(times, _mm512_srli_epi64(power, 32));
    __m512i units = _mm512_srli_epi64(
        _mm512_add_epi64(high, _mm512_srli_epi64(low, 32)), 32);
    __m512i rest = _mm512_srli_epi64(
        _mm512_add_epi64(_mm512_slli_epi64(high, 32), low), 4);
    __m512i ten = _mm512_srli_epi64(_mm512_mul_epu32(units, longs(429496730)),
                                    32);
    __m512i ones = _mm512_sub_epi64(units, _mm512_mul_epu32(ten, longs(10)));
    __m512i over = _mm512_add_epi64(_mm512_slli_epi64(ones, 60), rest);
    __m512i reach = _mm512_srlv_epi64(power, four_less_b);
    __mmask8 lopsided = _mm512_test_epi64_mask(c, longs((int64_t)1 << 31));
    __mmask8 odd = _mm512_test_epi64_mask(c, longs(1));
    __m512i end = _mm512_mask_sub_epi64(_mm512_add_epi64(reach, slack), odd,
                                        reach, slack);
    __m512i low_end = _mm512_mask_add_epi64(
        end, lopsided, _mm512_srli_epi64(reach, 1), slack);
    __mmask8 down = _mm512_cmplt_epu64_mask(over, low_end);
    __mmask8 up = _mm512_cmplt_epu64_mask(
        _mm512_sub_epi64(longs((int64_t)(10ULL << 60)), over), end);
    __m512i half = _mm512_srli_epi64(one, 1);
    __m512i middle = _mm512_mask_add_epi64(
        half, _mm512_testn_epi64_mask(units, longs(1)), half, slack);
    __mmask8 above;

    middle = _mm512_mask_min_epu64(middle, lopsided, middle, low_end);
    above = _mm512_cmpge_epu64_mask(rest, middle);
    units = _mm512_mask_add_epi64(units, above, units, longs(1));
    ten = _mm512_mask_add_epi64(ten, up, ten, longs(1));
    return _mm512_mask_or_epi64(units, down | up, ten,
                                longs((int64_t)1 << 31));
}

struct decimals {
    __m512i digits;   /* 1 to 9 of them */
    __m512i exponent; /* of the last digit */
};

/* write_beside_one() of number_write.c. k 10^8 / 2^23 = k 390625 / 2^15. */
ISA INLINE void keep_distance(struct decimals *d, __m512i bits)
{
    __m512i k = _mm512_sub_epi32(bits, ints(0x3f800000));
    __mmask16 beside = _mm512_cmplt_epu32_mask(_mm512_sub_epi32(k, ints(1)),
                                               ints(63));

    if (__builtin_expect(beside == 0, 1))
        return;
    k = _mm512_add_epi32(_mm512_mullo_epi32(k, ints(390625)), ints(1 << 14));
    d->digits = _mm512_mask_add_epi32(d->digits, beside, ints(100000000),
                                      _mm512_srli_epi32(k, 15));
    d->exponent = _mm512_mask_mov_epi32(d->exponent, beside, ints(-8));
}

/* What this is for zero and for what is not finite has no meaning. */
ISA INLINE struct decimals find_decimals(__m512i bits)
{
    struct scaled s = scale(bits);
    __m512i even = shorten(s.c, s.times, even_half(s.power),
                           even_half(s.four_less_b));
    __m512i odd = shorten(odd_half(s.c), odd_half(s.times), odd_half(s.power),
                          odd_half(s.four_less_b));
    __m512i both = join(even, odd);
    __mmask16 tens = _mm512_movepi32_mask(both);
    struct decimals d = {
        _mm512_and_si512(both, ints(INT32_MAX)),
        _mm512_mask_add_epi32(s.k, tens, s.k, ints(1)),
    };

    keep_distance(&d, bits);
    return d;
}

/* One half of nine digits each: the first, and the others as bytes.
 * 1441151881 / 2^57 is exact below 10^9. */
struct spelled {
    __m512i first, others;
};

ISA INLINE struct spelled spell(__m512i nine)
{
    __m512i first = _mm512_srli_epi64(
        _mm512_mul_epu32(nine, longs(1441151881)), 57);
    __m512i eight = _mm512_sub_epi64(
        nine, _mm512_mul_epu32(first, longs(100000000)));

    return (struct spelled){ first, spread(eight) };
}

struct figures {
    struct spelled even, odd;
    __m512i count;    /* without the zeros at the end */
    __m512i exponent; /* of the first digit */
};

ISA INLINE __m512i power_of(__m512i exponent)
{
    const __m512i tens = _mm512_setr_epi32(
        1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000,
        1000000000, 0, 0, 0, 0, 0, 0);

    return _mm512_permutexvar_epi32(exponent, tens);
}

/* 19729 / 2^16 is log10 2, for up to 28 bits. */
ISA INLINE struct figures find_figures(struct decimals d)
{
    __m512i bits = _mm512_sub_epi32(ints(32), _mm512_lzcnt_epi32(d.digits));
    __m512i least = _mm512_mulhi_epu16(bits, ints(19729));
    __mmask16 more = _mm512_cmpge_epu32_mask(d.digits, power_of(least));
    __m512i length = _mm512_mask_add_epi32(least, more, least, ints(1));
    __m512i nine = _mm512_mullo_epi32(
        d.digits, power_of(_mm512_sub_epi32(ints(9), length)));
    struct figures f = {
        .even = spell(even_half(nine)),
        .odd = spell(odd_half(nine)),
        .exponent = _mm512_add_epi32(d.exponent,
                                     _mm512_sub_epi32(length, ints(1))),
    };
    __m512i zeros = join(
        _mm512_srli_epi64(_mm512_lzcnt_epi64(f.even.others), 3),
        _mm512_srli_epi64(_mm512_lzcnt_epi64(f.odd.others), 3));

    f.count = _mm512_sub_epi32(ints(9), zeros);
    return f;
}

ISA INLINE __m512i find_layouts(const struct figures *f)
{
    __m512i e = f->exponent;
    __m512i inside = _mm512_sub_epi32(e, ints(LAYOUT_LOW));
    __mmask16 outside = _mm512_cmpge_epu32_mask(inside, ints(LAYOUT_OUTSIDE));
    __mmask16 tens = _mm512_cmpgt_epi32_mask(_mm512_abs_epi32(e), ints(9));
    __m512i kind = _mm512_sub_epi32(ints(LAYOUT_OUTSIDE),
                                    _mm512_srai_epi32(e, 31));

    kind = _mm512_mask_add_epi32(kind, tens, kind, ints(LAYOUT_DIGIT));
    kind = _mm512_mask_mov_epi32(inside, outside, kind);
    return _mm512_add_epi32(_mm512_mullo_epi16(kind, ints(LAYOUT_DIGITS)),
                            _mm512_sub_epi32(f->count, ints(1)));
}

/* The sources behind the first digit. */
ISA INLINE __m512i other_sources(__m512i exponent, __mmask16 minus)
{
    __m512i e = _mm512_abs_epi32(exponent);
    __m512i tens = _mm512_mulhi_epu16(e, ints(6554));
    __m512i ones = _mm512_sub_epi32(e, _mm512_mullo_epi16(tens, ints(10)));
    __m512i all = _mm512_ternarylogic_epi32(
        _mm512_slli_epi32(tens, 8), _mm512_slli_epi32(ones, 16),
        ints('0' | '0' << 8 | '0' << 16), 0xfe);

    return _mm512_mask_or_epi32(all, minus, all, ints('-' << 24));
}

/* Those of four, whose lanes are `first` and every fourth behind it. */
ISA INLINE __m512i load_layouts(const uint32_t *first)
{
    const char *rows = (const char *)number_layouts;
    __m256i low = _mm256_inserti128_si256(
        _mm256_castsi128_si256(
            _mm_loadu_si128((const void *)(rows + first[0]))),
        _mm_loadu_si128((const void *)(rows + first[4])), 1);
    __m256i high = _mm256_inserti128_si256(
        _mm256_castsi128_si256(
            _mm_loadu_si128((const void *)(rows + first[8]))),
        _mm_loadu_si128((const void *)(rows + first[12])), 1);

    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* Four texts and their commas, to be packed. */
struct texts {
    __m512i bytes;
    __mmask64 used;
};

ISA INLINE struct texts lay_out(__m512i sources, __m512i layouts)
{
    __m512i text = _mm512_or_si512(
        _mm512_shuffle_epi8(sources, layouts),
        _mm512_subs_epu8(layouts, _mm512_set1_epi8((char)0x80)));

    return (struct texts){ text, _mm512_test_epi8_mask(text, text) };
}

/* The texts of four times four values. What unpacking pairs up brings them in
 * order, when they begin in this one. */
ISA INLINE void write_sixteen(__m512i values, struct texts t[4])
{
    const __m512i order = _mm512_setr_epi32(0, 8, 4, 12, 1, 9, 5, 13, 2, 10, 6,
                                            14, 3, 11, 7, 15);
    const __m512i zeros = _mm512_set1_epi8('0');
    __m512i turned = _mm512_permutexvar_epi32(order, values);
    __m512i bits = _mm512_and_si512(turned, ints(INT32_MAX));
    __mmask16 minus = _mm512_movepi32_mask(turned);
    __mmask16 zero = _mm512_testn_epi32_mask(bits, bits);
    __mmask16 infinite = _mm512_cmpge_epu32_mask(bits, ints(0x7f800000));
    struct figures f = find_figures(find_decimals(bits));
    __m512i layout = find_layouts(&f);
    __m512i others = other_sources(f.exponent, minus);
    __m512i even = _mm512_or_si512(f.even.others, zeros);
    __m512i odd = _mm512_or_si512(f.odd.others, zeros);
    uint32_t layouts[16];

    layout = _mm512_mask_mov_epi32(layout, zero, ints(LAYOUT_ZERO));
    layout = _mm512_mask_mov_epi32(layout, zero & minus,
                                   ints(LAYOUT_MINUS_ZERO));
    layout = _mm512_mask_mov_epi32(layout, infinite, ints(LAYOUT_NULL));
    _mm512_storeu_si512(layouts, _mm512_slli_epi32(layout, 4));
    __asm__("" : "+m"(layouts)); /* or gcc takes the vector apart instead */

    __m512i even_behind = _mm512_or_si512(f.even.first, others);
    __m512i odd_behind = _mm512_or_si512(f.odd.first, odd_half(others));

    t[0] = lay_out(_mm512_unpacklo_epi64(even, even_behind),
                   load_layouts(layouts));
    t[1] = lay_out(_mm512_unpackhi_epi64(even, even_behind),
                   load_layouts(layouts + 2));
    t[2] = lay_out(_mm512_unpacklo_epi64(odd, odd_behind),
                   load_layouts(layouts + 1));
    t[3] = lay_out(_mm512_unpackhi_epi64(odd, odd_behind),
                   load_layouts(layouts + 3));
}

/* The last few, at most 16. */
ISA INLINE char *write_rest(const float *values, size_t count, char *out)
{
    struct texts t[4];

    write_sixteen(_mm512_maskz_loadu_epi32(
                      (__mmask16)_bzhi_u32(UINT16_MAX, (unsigned)count),
                      values), t);
    for (size_t i = 0; i < 4 && 4 * i < count; i++) {
        size_t left = count - 4 * i;
        __mmask64 used = left >= 4 ? t[i].used
                                   : _bzhi_u64(t[i].used,
                                               (unsigned)left * LAYOUT_BYTES);
        int bytes = __builtin_popcountll(used);

        _mm512_mask_storeu_epi8(
            out, _bzhi_u64(~(uint64_t)0, (unsigned)bytes),
            _mm512_maskz_compress_epi8(used, t[i].bytes));
        out += bytes;
    }
    return out;
}

/* 64 bytes are written for four numbers, which may take 4 * 22. */
ISA char *number_write_avx512_f32(const float *values, size_t count, char *out)
{
    _Static_assert(4 * NUMBER_F32_BYTES >= 64, "no more than may be touched");

    if (count == 0)
        return out;
    for (; count >= 16; count -= 16, values += 16) {
        struct texts t[4];

        write_sixteen(_mm512_loadu_si512(values), t);
        for (int i = 0; i < 4; i++) {
            _mm512_storeu_si512(
                out, _mm512_maskz_compress_epi8(t[i].used, t[i].bytes));
            out += __builtin_popcountll(t[i].used);
        }
    }
    if (count > 0)
        out = write_rest(values, count, out);
    return out - 1;
}

#endif
