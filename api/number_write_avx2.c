#include "api/number_run.h"

#if defined(__x86_64__)

#include "api/number.h"
#include "api/number_layout.h"
#include "api/number_parts.h"
#include "api/number_write_avx2.h"

#include <immintrin.h>
#include <string.h>

/* number_write_avx512.c with vectors of half the size and no masks: here all
 * bits of a lane say yes. */

/* Eight values, in lanes of 32 bits. Where 64 are needed they are taken in two
 * halves: those in even lanes, which lie right, and those in odd lanes. */

ISA INLINE __m256i odd_half(__m256i lanes)
{
    return _mm256_srli_epi64(lanes, 32);
}

ISA INLINE __m256i even_half(__m256i lanes)
{
    return _mm256_blend_epi32(lanes, _mm256_setzero_si256(), 0xaa);
}

/* What shortest_f32() of number_write.c does before its multiplication. */
struct scaled {
    __m256i c;     /* in the top bit: lopsided */
    __m256i times; /* c << (b + 1) */
    __m256i k;
    __m256i power; /* where in the table, in bytes */
    __m256i five_less_b;
};

ISA INLINE struct scaled scale(__m256i bits)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i field = _mm256_srli_epi32(bits, 23);
    __m256i fraction = _mm256_and_si256(bits, ints(0x7fffff));
    __m256i normal = _mm256_cmpgt_epi32(field, zero);
    __m256i lopsided = _mm256_and_si256(_mm256_cmpeq_epi32(fraction, zero),
                                        _mm256_cmpgt_epi32(field, ints(1)));
    __m256i c = _mm256_or_si256(fraction,
                                _mm256_and_si256(normal, ints(0x800000)));
    __m256i q = _mm256_sub_epi32(_mm256_max_epi32(field, ints(1)), ints(150));
    __m256i k = _mm256_srai_epi32(
        _mm256_sub_epi32(_mm256_madd_epi16(q, ints(1233)),
                         _mm256_and_si256(lopsided, ints(512))), 12);
    __m256i minus_k = _mm256_sub_epi32(zero, k);
    __m256i b = _mm256_add_epi32(
        _mm256_srai_epi32(_mm256_madd_epi16(minus_k, ints(27213)), 13), q);

    return (struct scaled){
        .c = _mm256_or_si256(c, _mm256_slli_epi32(lopsided, 31)),
        .times = _mm256_sllv_epi32(c, _mm256_add_epi32(b, ints(1))),
        .k = k,
        .power = _mm256_slli_epi32(
            _mm256_add_epi32(minus_k, ints(-POWER_LOW)), 4),
        .five_less_b = _mm256_sub_epi32(ints(5), b),
    };
}

/* The rest of it for one half, with 59 fraction bits, so that ten units are a
 * signed number too. The digits; in bit 31, whether they count tens of 10^k. */
ISA INLINE __m256i shorten(__m256i c, __m256i times, __m256i place,
                           __m256i five_less_b)
{
    const __m256i half = longs((int64_t)1 << 58), slack = longs(1 << 24);
    const __m256i one = longs(1), zero = _mm256_setzero_si256();
    __m256i power = _mm256_add_epi64(load_powers(place).high, one);
    __m256i low = _mm256_mul_epu32(times, power);
    __m256i high = _mm256_mul_epu32(times, _mm256_srli_epi64(power, 32));
    __m256i units = _mm256_srli_epi64(
        _mm256_add_epi64(high, _mm256_srli_epi64(low, 32)), 32);
    __m256i rest = _mm256_srli_epi64(
        _mm256_add_epi64(_mm256_slli_epi64(high, 32), low), 5);
    __m256i ten = _mm256_srli_epi64(_mm256_mul_epu32(units, longs(429496730)),
                                    32);
    __m256i ones = _mm256_sub_epi64(units, _mm256_mul_epu32(ten, longs(10)));
    __m256i over = _mm256_add_epi64(_mm256_slli_epi64(ones, 59), rest);
    __m256i reach = _mm256_srlv_epi64(power, five_less_b);
    __m256i lopsided = _mm256_cmpeq_epi64(
        _mm256_and_si256(c, longs((int64_t)1 << 31)),
        longs((int64_t)1 << 31));
    __m256i odd = _mm256_sub_epi64(zero, _mm256_and_si256(c, one));
    __m256i end = _mm256_add_epi64( /* reach + slack, or - slack */
        reach, _mm256_sub_epi64(_mm256_xor_si256(slack, odd), odd));
    __m256i low_end = choose(
        lopsided, _mm256_add_epi64(_mm256_srli_epi64(reach, 1), slack), end);
    __m256i down = _mm256_cmpgt_epi64(low_end, over);
    __m256i up = _mm256_cmpgt_epi64(
        end, _mm256_sub_epi64(longs((int64_t)10 << 59), over));
    __m256i odd_units = _mm256_sub_epi64(zero, _mm256_and_si256(units, one));
    __m256i middle = _mm256_add_epi64(half,
                                      _mm256_andnot_si256(odd_units, slack));
    __m256i tens = _mm256_or_si256(down, up);

    middle = choose(_mm256_and_si256(lopsided,
                                     _mm256_cmpgt_epi64(middle, low_end)),
                    low_end, middle);
    units = _mm256_add_epi64(
        units, _mm256_add_epi64(_mm256_cmpgt_epi64(middle, rest), one));
    ten = _mm256_or_si256(_mm256_sub_epi64(ten, up),
                          longs((int64_t)1 << 31));
    return choose(tens, ten, units);
}

struct decimals {
    __m256i digits;   /* 1 to 9 of them */
    __m256i exponent; /* of the last digit */
};

/* write_beside_one() of number_write.c. k 10^8 / 2^23 = k 390625 / 2^15. */
ISA INLINE void keep_distance(struct decimals *d, __m256i bits)
{
    __m256i k = _mm256_sub_epi32(bits, ints(0x3f800000));
    __m256i beside = _mm256_and_si256(
        _mm256_cmpgt_epi32(k, _mm256_setzero_si256()),
        _mm256_cmpgt_epi32(ints(64), k));

    if (__builtin_expect(_mm256_testz_si256(beside, beside), 1))
        return;
    k = _mm256_add_epi32(_mm256_mullo_epi32(k, ints(390625)), ints(1 << 14));
    k = _mm256_add_epi32(_mm256_srli_epi32(k, 15), ints(100000000));
    d->digits = choose(beside, k, d->digits);
    d->exponent = choose(beside, ints(-8), d->exponent);
}

/* What this is for zero and for what is not finite has no meaning. */
ISA INLINE struct decimals find_decimals(__m256i bits)
{
    struct scaled s = scale(bits);
    __m256i even = shorten(s.c, s.times, even_half(s.power),
                           even_half(s.five_less_b));
    __m256i odd = shorten(odd_half(s.c), odd_half(s.times), odd_half(s.power),
                          odd_half(s.five_less_b));
    __m256i both = join(even, odd);
    struct decimals d = {
        _mm256_and_si256(both, ints(INT32_MAX)),
        _mm256_add_epi32(s.k, _mm256_srli_epi32(both, 31)),
    };

    keep_distance(&d, bits);
    return d;
}

/* One half of nine digits each: the first, the others as bytes, and how many
 * there are without the zeros at the end. 1441151881 / 2^57 is exact below
 * 10^9. */
struct spelled {
    __m256i first, others, count;
};

ISA INLINE struct spelled spell(__m256i nine)
{
    const __m256i place = longs(0x0908070605040302);
    __m256i first = _mm256_srli_epi64(
        _mm256_mul_epu32(nine, longs(1441151881)), 57);
    __m256i others = spread(_mm256_sub_epi64(
        nine, _mm256_mul_epu32(first, longs(100000000))));
    __m256i none = _mm256_cmpeq_epi8(others, _mm256_setzero_si256());
    __m256i last = _mm256_max_epu8(_mm256_andnot_si256(none, place), longs(1));

    last = _mm256_max_epu8(last, _mm256_srli_epi64(last, 32));
    last = _mm256_max_epu8(last, _mm256_srli_epi64(last, 16));
    last = _mm256_max_epu8(last, _mm256_srli_epi64(last, 8));
    return (struct spelled){ first, others,
                             _mm256_and_si256(last, longs(0xff)) };
}

struct figures {
    struct spelled even, odd;
    __m256i count;
    __m256i exponent; /* of the first digit */
};

/* 10^exponent, for 1 to 8. */
ISA INLINE __m256i power_of(__m256i exponent)
{
    const __m256i tens = _mm256_setr_epi32(100000000, 10, 100, 1000, 10000,
                                           100000, 1000000, 10000000);

    return _mm256_permutevar8x32_epi32(tens, exponent);
}

/* The bits by way of float, which may round up to the next power of two: that
 * changes nothing, for `least` is never more than the length. */
ISA INLINE __m256i decimal_lengths(__m256i digits)
{
    __m256i bits = _mm256_sub_epi32(
        _mm256_srli_epi32(
            _mm256_castps_si256(_mm256_cvtepi32_ps(digits)), 23), ints(126));
    __m256i least = _mm256_mulhi_epu16(bits, ints(19729)); /* log10 2 */
    __m256i less = _mm256_cmpgt_epi32(power_of(least), digits);

    return _mm256_max_epi32(
        _mm256_add_epi32(_mm256_add_epi32(least, ints(1)), less), ints(1));
}

ISA INLINE struct figures find_figures(struct decimals d)
{
    __m256i length = decimal_lengths(d.digits);
    __m256i nine = choose(
        _mm256_cmpeq_epi32(length, ints(9)), d.digits,
        _mm256_mullo_epi32(d.digits,
                           power_of(_mm256_sub_epi32(ints(9), length))));
    struct figures f = {
        .even = spell(even_half(nine)),
        .odd = spell(odd_half(nine)),
        .exponent = _mm256_add_epi32(d.exponent,
                                     _mm256_sub_epi32(length, ints(1))),
    };

    f.count = join(f.even.count, f.odd.count);
    return f;
}

ISA INLINE __m256i find_layouts(const struct figures *f)
{
    __m256i e = f->exponent;
    __m256i inside = _mm256_sub_epi32(e, ints(LAYOUT_LOW));
    __m256i is_inside = _mm256_cmpeq_epi32(
        _mm256_min_epu32(inside, ints(LAYOUT_OUTSIDE - 1)), inside);
    __m256i tens = _mm256_cmpgt_epi32(_mm256_abs_epi32(e), ints(9));
    __m256i kind = _mm256_add_epi32(
        _mm256_sub_epi32(ints(LAYOUT_OUTSIDE), _mm256_srai_epi32(e, 31)),
        _mm256_and_si256(tens, ints(LAYOUT_DIGIT)));

    kind = choose(is_inside, inside, kind);
    return _mm256_add_epi32(_mm256_mullo_epi16(kind, ints(LAYOUT_DIGITS)),
                            _mm256_sub_epi32(f->count, ints(1)));
}

/* The sources behind the first digit. */
ISA INLINE __m256i other_sources(__m256i exponent, __m256i minus)
{
    __m256i e = _mm256_abs_epi32(exponent);
    __m256i tens = _mm256_mulhi_epu16(e, ints(6554));
    __m256i ones = _mm256_sub_epi32(e, _mm256_mullo_epi16(tens, ints(10)));

    return _mm256_or_si256(
        _mm256_or_si256(_mm256_slli_epi32(tens, 8),
                        _mm256_slli_epi32(ones, 16)),
        _mm256_or_si256(ints('0' | '0' << 8 | '0' << 16),
                        _mm256_and_si256(minus, ints('-' << 24))));
}

/* Two texts and their commas, zeros behind them. */
ISA INLINE __m256i lay_out(__m256i sources, uint32_t low, uint32_t high)
{
    const char *rows = (const char *)number_layouts;
    __m256i layouts = _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const void *)(rows + low))),
        _mm_loadu_si128((const void *)(rows + high)), 1);

    return _mm256_or_si256(
        _mm256_shuffle_epi8(sources, layouts),
        _mm256_subs_epu8(layouts, _mm256_set1_epi8((char)0x80)));
}

/* Eight texts of 16 bytes. A layout's first place is for a sign: without one it
 * is left out. */
ISA INLINE void write_eight(__m256i values, char texts[8 * LAYOUT_BYTES])
{
    const __m256i zeros = _mm256_set1_epi8('0');
    __m256i bits = _mm256_and_si256(values, ints(INT32_MAX));
    __m256i minus = _mm256_srai_epi32(values, 31);
    __m256i zero = _mm256_cmpeq_epi32(bits, _mm256_setzero_si256());
    __m256i infinite = _mm256_cmpgt_epi32(bits, ints(0x7f7fffff));
    struct figures f = find_figures(find_decimals(bits));
    __m256i layout = find_layouts(&f);
    __m256i others = other_sources(f.exponent, minus);
    __m256i even = _mm256_or_si256(f.even.others, zeros);
    __m256i odd = _mm256_or_si256(f.odd.others, zeros);
    __m256i even_behind = _mm256_or_si256(f.even.first, others);
    __m256i odd_behind = _mm256_or_si256(f.odd.first, odd_half(others));
    uint32_t at[8];
    __m128i *to = (void *)texts;
    __m256i pair[4];

    layout = choose(zero, _mm256_sub_epi32(ints(LAYOUT_ZERO), minus), layout);
    layout = choose(infinite, ints(LAYOUT_NULL), layout);
    minus = _mm256_andnot_si256(_mm256_or_si256(zero, infinite), minus);
    _mm256_storeu_si256((void *)at,
                        _mm256_add_epi32(_mm256_slli_epi32(layout, 4),
                                         _mm256_add_epi32(minus, ints(1))));
    __asm__("" : "+m"(at)); /* or gcc takes the vector apart instead */
    pair[0] = lay_out(_mm256_unpacklo_epi64(even, even_behind), at[0], at[4]);
    pair[1] = lay_out(_mm256_unpacklo_epi64(odd, odd_behind), at[1], at[5]);
    pair[2] = lay_out(_mm256_unpackhi_epi64(even, even_behind), at[2], at[6]);
    pair[3] = lay_out(_mm256_unpackhi_epi64(odd, odd_behind), at[3], at[7]);
    for (int i = 0; i < 4; i++) {
        _mm_storeu_si128(to + i, _mm256_castsi256_si128(pair[i]));
        _mm_storeu_si128(to + i + 4, _mm256_extracti128_si256(pair[i], 1));
    }
}

/* Appends one of the texts. */
ISA INLINE char *append(__m128i text, char *out)
{
    unsigned ends = (unsigned)_mm_movemask_epi8(
        _mm_cmpeq_epi8(text, _mm_setzero_si128()));

    _mm_storeu_si128((void *)out, text);
    return out + _tzcnt_u32(ends | 1 << LAYOUT_BYTES);
}

/* The next eight, or fewer when not so many are left. Returns how many. */
ISA INLINE size_t write_next(const float *values, size_t left,
                             char texts[8 * LAYOUT_BYTES])
{
    if (left >= 8) {
        write_eight(_mm256_loadu_si256((const void *)values), texts);
        return 8;
    }

    __m256i lanes = _mm256_cmpgt_epi32(
        ints((int32_t)left), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));

    write_eight(_mm256_maskload_epi32((const void *)values, lanes), texts);
    return left;
}

ISA char *number_write_avx2_f32(const float *values, size_t count, char *out)
{
    _Static_assert(NUMBER_F32_BYTES > LAYOUT_BYTES - 1, "room for a text");
    char texts[8 * LAYOUT_BYTES];
    const __m128i *from = (const void *)texts;

    if (count == 0)
        return out;
    for (size_t n; count > 0; count -= n, values += n) {
        n = write_next(values, count, texts);
        if (n == 8) {
            for (size_t i = 0; i < 8; i++)
                out = append(_mm_loadu_si128(from + i), out);
        } else {
            for (size_t i = 0; i < n; i++)
                out = append(_mm_loadu_si128(from + i), out);
        }
    }
    return out - 1;
}

ISA char *number_write_avx2_rows_f32(const float *values, size_t count,
                                     size_t row, char *out)
{
    _Static_assert(NUMBER_F32_BYTES >= NUMBER_F32_TEXT + 3, "and for brackets");
    char texts[8 * LAYOUT_BYTES];
    const __m128i *from = (const void *)texts;
    size_t left = row;

    if (count == 0)
        return out;
    for (size_t n; count > 0; count -= n, values += n) {
        n = write_next(values, count, texts);
        for (size_t i = 0; i < n; i++) {
            out = append(_mm_loadu_si128(from + i), out);
            if (--left == 0) {
                memcpy(out - 1, "],[", 3);
                out += 2;
                left = row;
            }
        }
    }
    return out - 3;
}

#endif
