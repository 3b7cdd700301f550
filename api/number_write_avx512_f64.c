#include "api/number_run.h"

#if defined(__x86_64__)

#include "api/number.h"
#include "api/number_layout.h"
#include "api/number_write_avx512.h"

#include <immintrin.h>

/* Eight values, in lanes of 64 bits. What number_write.c does with a multiple
 * of 10^k is done here with tens of it, X = c * 2^q / 10^(k+1) < 2^53, of which
 * 52 bits of fraction are worked out, too small by less than 3 of the last. The
 * half-width is 1/20 of 2^q / 10^k, so that exact zeros are far from both ends
 * whichever side they come out on. What is as near to an end or to the middle
 * between two units as the error, which also holds all that is exactly there,
 * is left to one number at a time: 1 in 10^13, and integers beyond 2^50. */

enum { ERROR = 3 };

static const int64_t one = (int64_t)1 << 52; /* of X, as a fraction */

/* What the multiplication needs. */
struct scaled {
    __m512i exponent; /* k + 1 */
    __m512i high, low; /* 2^q / 10^(k+1) in units of 2^-52 and of 2^-104 */
};

/* unit_exponent() of number_write.c, and the power. Its 128 bits are worth
 * 2^(b - 127) each, b in -4..0. */
ISA INLINE struct scaled scale(__m512i field, __mmask8 lopsided)
{
    __m512i q = _mm512_sub_epi64(field, longs(1075));
    __m512i log = _mm512_mul_epi32(q, longs(1262611));
    __m512i exponent = _mm512_add_epi64(
        _mm512_srai_epi64(_mm512_mask_sub_epi64(log, lopsided, log,
                                                longs(524031)), 22), longs(1));
    __m512i minus = _mm512_sub_epi64(_mm512_setzero_si512(), exponent);
    __m512i place = _mm512_slli_epi64(
        _mm512_sub_epi64(minus, longs(POWER_LOW)), 4);
    __m512i b = _mm512_add_epi64(
        q, _mm512_srai_epi64(_mm512_mul_epi32(minus, longs(217706)), 16));
    __m512i right = _mm512_sub_epi64(_mm512_setzero_si512(), b);
    struct powers power = load_powers(place);
    __m512i high = power.high, low = power.low;

    low = _mm512_shrdv_epi64(low, high, right);
    high = _mm512_srlv_epi64(high, right);
    return (struct scaled){
        exponent,
        _mm512_srli_epi64(high, 11),
        _mm512_and_si512(_mm512_shldi_epi64(high, low, 41), longs(one - 1)),
    };
}

/* ten * 10^exponent + last * 10^(exponent - 1), `last` not always a digit when
 * it is 0 for all that matters. */
struct decimals {
    __m512i ten, last, exponent;
    __mmask8 unsure;
};

/* Of a lopsided number the lower half-width is half as wide, and its fraction
 * is 0, so that its hidden bit is all there is to multiply. */
ISA INLINE struct decimals find_decimals(__m512i bits)
{
    const __m512i zero = _mm512_setzero_si512();
    __m512i field = _mm512_srli_epi64(bits, 52);
    __m512i c = _mm512_and_si512(bits, longs(one - 1));
    __mmask8 tiny = _mm512_cmple_epu64_mask(field, longs(1));
    __mmask8 lopsided = _mm512_testn_epi64_mask(c, c);
    struct scaled s = scale(field, lopsided);
    __m512i product = _mm512_madd52hi_epu64(
        _mm512_madd52lo_epu64(s.low, c, s.high), c, s.low);
    __m512i ten = _mm512_add_epi64(_mm512_madd52hi_epu64(s.high, c, s.high),
                                   _mm512_srli_epi64(product, 52));
    __m512i over = _mm512_and_si512(product, longs(one - 1));
    __m512i reach = _mm512_srli_epi64(s.high, 1);
    __m512i below = _mm512_sub_epi64(
        over, _mm512_mask_srli_epi64(reach, lopsided, reach, 1));
    __m512i above = _mm512_sub_epi64(_mm512_add_epi64(over, reach), longs(one));
    __m512i times_ten = _mm512_madd52lo_epu64(zero, over, longs(10));
    __m512i middle = _mm512_sub_epi64(times_ten, longs(one / 2));
    __mmask8 down = _mm512_movepi64_mask(below);
    __mmask8 up = _mm512_cmpgt_epi64_mask(above, zero);
    __mmask8 unit = (__mmask8)~(down | up);
    __m512i last = _mm512_madd52hi_epu64(zero, over, longs(10));
    __mmask8 near_end = _mm512_cmple_epu64_mask(
        _mm512_min_epu64(_mm512_add_epi64(below, longs(ERROR)),
                         _mm512_add_epi64(above, longs(ERROR))),
        longs(ERROR));
    __mmask8 near_middle = _mm512_cmple_epu64_mask(
        _mm512_add_epi64(middle, longs(10 * ERROR)), longs(10 * ERROR));

    last = _mm512_mask_add_epi64(
        last, _mm512_cmpgt_epi64_mask(middle, zero), last, longs(1));
    return (struct decimals){
        _mm512_mask_add_epi64(ten, up, ten, longs(1)),
        _mm512_maskz_mov_epi64(unit, last),
        s.exponent,
        tiny | near_end | (unit & (near_middle | lopsided)),
    };
}

/* Seventeen digits: as bytes, first lowest, and the last. */
struct figures {
    __m512i high, low, last;
    __m512i count;    /* without the zeros at the end */
    __m512i exponent; /* of the first digit */
};

/* `ten` has 15 or 16 digits. 10^8 = 5^8 * 2^8, and 3022314549036573 / 2^70 is
 * 5^-8 exactly enough below 2^46. */
ISA INLINE struct figures find_figures(const struct decimals *d)
{
    const __m512i zero = _mm512_setzero_si512();
    __mmask8 brief = _mm512_cmplt_epi64_mask(d->ten, longs(1000000000000000));
    __m512i tens = _mm512_add_epi64(_mm512_slli_epi64(d->ten, 3),
                                    _mm512_slli_epi64(d->ten, 1));
    __m512i ten = _mm512_mask_add_epi64(d->ten, brief, tens, d->last);
    __m512i high = _mm512_srli_epi64(
        _mm512_madd52hi_epu64(zero, _mm512_srli_epi64(ten, 8),
                              longs(3022314549036573)), 18);
    struct figures f = {
        .high = spread(high),
        .low = spread(_mm512_sub_epi64(
            ten, _mm512_mul_epu32(high, longs(100000000)))),
        .last = _mm512_maskz_mov_epi64((__mmask8)~brief, d->last),
        .exponent = _mm512_mask_sub_epi64(
            _mm512_add_epi64(d->exponent, longs(15)), brief,
            _mm512_add_epi64(d->exponent, longs(15)), longs(1)),
    };
    __mmask8 tail = _mm512_test_epi64_mask(f.low, f.low);
    __m512i zeros = _mm512_srli_epi64(
        _mm512_lzcnt_epi64(_mm512_mask_mov_epi64(f.high, tail, f.low)), 3);

    f.count = _mm512_sub_epi64(
        _mm512_mask_mov_epi64(longs(8), tail, longs(16)), zeros);
    f.count = _mm512_mask_mov_epi64(
        f.count, _mm512_test_epi64_mask(f.last, f.last), longs(WIDE_DIGITS));
    return f;
}

ISA INLINE __m512i find_layouts(const struct figures *f, __m512i size)
{
    __m512i inside = _mm512_sub_epi64(f->exponent, longs(LAYOUT_LOW));
    __mmask8 outside = _mm512_cmpge_epu64_mask(inside, longs(WIDE_OUTSIDE));
    __mmask8 tens = _mm512_cmpgt_epi64_mask(size, longs(9));
    __mmask8 hundreds = _mm512_cmpgt_epi64_mask(size, longs(99));
    __m512i kind = _mm512_sub_epi64(longs(WIDE_OUTSIDE),
                                    _mm512_srai_epi64(f->exponent, 63));

    kind = _mm512_mask_add_epi64(kind, tens, kind, longs(LAYOUT_DIGIT));
    kind = _mm512_mask_add_epi64(kind, hundreds, kind, longs(LAYOUT_DIGIT));
    kind = _mm512_mask_mov_epi64(inside, outside, kind);
    return _mm512_add_epi64(_mm512_mul_epu32(kind, longs(WIDE_DIGITS)),
                            _mm512_sub_epi64(f->count, longs(1)));
}

/* The sources behind sixteen digits: the last, the exponent, the sign.
 * 41 / 2^12 is exact below 400, 205 / 2^11 below 100. */
ISA INLINE __m512i other_sources(__m512i last, __m512i size, __mmask8 minus)
{
    __m512i hundreds = _mm512_srli_epi64(_mm512_mul_epu32(size, longs(41)), 12);
    __m512i below = _mm512_sub_epi64(
        size, _mm512_mul_epu32(hundreds, longs(100)));
    __m512i tens = _mm512_srli_epi64(_mm512_mul_epu32(below, longs(205)), 11);
    __m512i ones = _mm512_sub_epi64(below, _mm512_mul_epu32(tens, longs(10)));
    __m512i all = _mm512_or_si512(
        _mm512_or_si512(last, _mm512_slli_epi64(hundreds, 8)),
        _mm512_or_si512(_mm512_slli_epi64(tens, 16),
                        _mm512_slli_epi64(ones, 24)));

    all = _mm512_or_si512(all, longs('0' | '0' << 8 | '0' << 16 | '0' << 24));
    return _mm512_mask_or_epi64(all, minus, all, longs((int64_t)'-' << 32));
}

/* Two texts and their commas, to be packed. */
struct texts {
    __m512i bytes;
    __mmask64 used;
};

ISA INLINE struct texts lay_out(__m512i sources, uint64_t first,
                                uint64_t second)
{
    const char *rows = (const char *)number_wide_layouts;
    const __m512i half = _mm512_inserti64x4(_mm512_setzero_si512(),
                                            _mm256_set1_epi8(WIDE_BYTES), 1);
    const __mmask64 places = ~((uint64_t)1 << 63 | (uint64_t)1 << WIDE_LENGTH);
    __m512i layouts = _mm512_inserti64x4(
        _mm512_castsi256_si512(
            _mm256_loadu_si256((const void *)(rows + first))),
        _mm256_loadu_si256((const void *)(rows + second)), 1);
    __m512i text = _mm512_mask_permutexvar_epi8(
        _mm512_subs_epu8(layouts, _mm512_set1_epi8((char)0x80)),
        _mm512_testn_epi8_mask(layouts, _mm512_set1_epi8((char)0x80)),
        _mm512_or_si512(layouts, half), sources);

    return (struct texts){
        text, _mm512_mask_test_epi8_mask(places, text, text)
    };
}

/* The texts of four times two values; false when one of them is unsure. The
 * sources are brought together from lanes in the order that turns into. */
ISA INLINE bool write_eight(__m512i values, struct texts t[4])
{
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    const __m512i zeros = _mm512_set1_epi8('0');
    __m512i turned = _mm512_permutexvar_epi64(order, values);
    __m512i bits = _mm512_and_si512(turned, longs(INT64_MAX));
    __mmask8 minus = _mm512_movepi64_mask(turned);
    __mmask8 zero = _mm512_testn_epi64_mask(bits, bits);
    __mmask8 infinite = _mm512_cmpge_epu64_mask(bits,
                                                longs((int64_t)0x7ff << 52));
    struct decimals d = find_decimals(bits);
    struct figures f = find_figures(&d);
    __m512i size = _mm512_abs_epi64(f.exponent);
    __m512i layout = find_layouts(&f, size);
    __m512i others = other_sources(f.last, size, minus);
    __m512i high = _mm512_or_si512(f.high, zeros);
    __m512i low = _mm512_or_si512(f.low, zeros);
    __m512i even = _mm512_unpacklo_epi64(high, low);
    __m512i odd = _mm512_unpackhi_epi64(high, low);
    uint64_t at[8];

    layout = _mm512_mask_mov_epi64(layout, zero, longs(WIDE_ZERO));
    layout = _mm512_mask_mov_epi64(layout, zero & minus,
                                   longs(WIDE_MINUS_ZERO));
    layout = _mm512_mask_mov_epi64(layout, infinite, longs(WIDE_NULL));
    _mm512_storeu_si512(at, _mm512_slli_epi64(layout, 5));
    __asm__("" : "+m"(at)); /* or gcc takes the vector apart instead */
    t[0] = lay_out(_mm512_permutex2var_epi64(
                       even, _mm512_setr_epi64(0, 1, 8, 8, 2, 3, 10, 10),
                       others), at[0], at[2]);
    t[1] = lay_out(_mm512_permutex2var_epi64(
                       even, _mm512_setr_epi64(4, 5, 12, 12, 6, 7, 14, 14),
                       others), at[4], at[6]);
    t[2] = lay_out(_mm512_permutex2var_epi64(
                       odd, _mm512_setr_epi64(0, 1, 9, 9, 2, 3, 11, 11),
                       others), at[1], at[3]);
    t[3] = lay_out(_mm512_permutex2var_epi64(
                       odd, _mm512_setr_epi64(4, 5, 13, 13, 6, 7, 15, 15),
                       others), at[5], at[7]);
    return (d.unsure & (__mmask8)~(zero | infinite)) == 0;
}

/* The last few, at most 8. */
ISA INLINE char *write_rest(const double *values, size_t count, char *out)
{
    struct texts t[4];

    if (!write_eight(_mm512_maskz_loadu_epi64(
                         (__mmask8)_bzhi_u32(UINT8_MAX, (unsigned)count),
                         values), t))
        return number_write_singly_f64(values, count, out);
    for (size_t i = 0; i < 4 && 2 * i < count; i++) {
        __mmask64 used = 2 * i + 1 < count ? t[i].used
                                           : _bzhi_u64(t[i].used, WIDE_BYTES);
        int bytes = __builtin_popcountll(used);

        _mm512_mask_storeu_epi8(
            out, _bzhi_u64(~(uint64_t)0, (unsigned)bytes),
            _mm512_maskz_compress_epi8(used, t[i].bytes));
        out += bytes;
    }
    return out - 1;
}

/* 64 bytes are written for two numbers, which may take 2 * 34. */
ISA char *number_write_avx512_f64(const double *values, size_t count, char *out)
{
    _Static_assert(2 * NUMBER_F64_BYTES >= 64, "no more than may be touched");
    struct texts t[4];

    for (; count > 8; count -= 8, values += 8) {
        if (__builtin_expect(!write_eight(_mm512_loadu_si512(values), t), 0)) {
            out = number_write_singly_f64(values, 8, out);
            *out++ = ',';
            continue;
        }
        for (int i = 0; i < 4; i++) {
            _mm512_storeu_si512(
                out, _mm512_maskz_compress_epi8(t[i].used, t[i].bytes));
            out += __builtin_popcountll(t[i].used);
        }
    }
    return count > 0 ? write_rest(values, count, out) : out;
}

#endif
