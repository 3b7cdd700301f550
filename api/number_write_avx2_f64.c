#include "api/number_run.h"

#if defined(__x86_64__)

#include "api/number.h"
#include "api/number_layout.h"
#include "api/number_write_avx2.h"

#include <immintrin.h>

/* number_write_avx512_f64.c with four values, whose X is multiplied out in
 * pieces of 26 bits and so too small by less than 4 of the last place, and
 * whose texts are laid out one by one. */

enum { ERROR = 4 };

static const int64_t one = (int64_t)1 << 52; /* of X, as a fraction */

ISA INLINE __m256i low_26(__m256i value)
{
    return _mm256_and_si256(value, longs((1 << 26) - 1));
}

/* The lower halves of lanes, and the upper ones. */
ISA INLINE __m128i low_halves(__m256i lanes)
{
    return _mm_castps_si128(_mm_shuffle_ps(
        _mm_castsi128_ps(_mm256_castsi256_si128(lanes)),
        _mm_castsi128_ps(_mm256_extracti128_si256(lanes, 1)), 0x88));
}

ISA INLINE __m128i high_halves(__m256i lanes)
{
    return low_halves(_mm256_srli_epi64(lanes, 32));
}

/* What the multiplication needs, exponents in lanes of 32 bits. */
struct scaled {
    __m128i exponent; /* k + 1 */
    __m256i high, low; /* 2^q / 10^(k+1), its upper 128 bits */
};

ISA INLINE struct scaled scale(__m128i field, __m128i lopsided)
{
    __m128i q = _mm_sub_epi32(field, _mm_set1_epi32(1075));
    __m128i log = _mm_sub_epi32(
        _mm_mullo_epi32(q, _mm_set1_epi32(1262611)),
        _mm_and_si128(lopsided, _mm_set1_epi32(524031)));
    __m128i exponent = _mm_add_epi32(_mm_srai_epi32(log, 22),
                                     _mm_set1_epi32(1));
    __m128i minus = _mm_sub_epi32(_mm_setzero_si128(), exponent);
    __m128i place = _mm_slli_epi32(
        _mm_sub_epi32(minus, _mm_set1_epi32(POWER_LOW)), 4);
    __m128i b = _mm_add_epi32(
        q, _mm_srai_epi32(_mm_mullo_epi32(minus, _mm_set1_epi32(217706)), 16));
    __m256i right = _mm256_cvtepi32_epi64(_mm_sub_epi32(_mm_setzero_si128(),
                                                        b));
    struct powers power = load_powers(_mm256_cvtepi32_epi64(place));
    __m256i high = power.high, low = power.low;

    return (struct scaled){
        exponent,
        _mm256_srlv_epi64(high, right),
        _mm256_or_si256(
            _mm256_srlv_epi64(low, right),
            _mm256_sllv_epi64(high, _mm256_sub_epi64(longs(64), right))),
    };
}

/* X: its whole part, and the rest in units of 2^-52. */
struct product {
    __m256i ten, over;
};

ISA INLINE struct product multiply(__m256i c, const struct scaled *s)
{
    __m256i c1 = _mm256_srli_epi64(c, 26), c0 = low_26(c);
    __m256i p3 = _mm256_srli_epi64(s->high, 37);
    __m256i p2 = low_26(_mm256_srli_epi64(s->high, 11));
    __m256i p1 = low_26(_mm256_or_si256(_mm256_slli_epi64(s->high, 15),
                                        _mm256_srli_epi64(s->low, 49)));
    __m256i p0 = low_26(_mm256_srli_epi64(s->low, 23));
    __m256i x3 = _mm256_add_epi64(_mm256_mul_epu32(c1, p2),
                                  _mm256_mul_epu32(c0, p3));
    __m256i x2 = _mm256_add_epi64(_mm256_mul_epu32(c1, p1),
                                  _mm256_mul_epu32(c0, p2));
    __m256i x1 = _mm256_add_epi64(_mm256_mul_epu32(c1, p0),
                                  _mm256_mul_epu32(c0, p1));
    __m256i hidden = _mm256_add_epi64(_mm256_slli_epi64(p1, 26), p0);
    __m256i over = _mm256_add_epi64(
        _mm256_add_epi64(x2, _mm256_srli_epi64(x1, 26)),
        _mm256_add_epi64(_mm256_slli_epi64(low_26(x3), 26), hidden));
    __m256i ten = _mm256_add_epi64(
        _mm256_add_epi64(_mm256_mul_epu32(c1, p3),
                         _mm256_srli_epi64(s->high, 11)),
        _mm256_add_epi64(_mm256_srli_epi64(x3, 26),
                         _mm256_srli_epi64(over, 52)));

    return (struct product){ ten, _mm256_and_si256(over, longs(one - 1)) };
}

/* From -`most` to 0. */
ISA INLINE __m256i is_near(__m256i value, int most)
{
    return _mm256_andnot_si256(
        _mm256_cmpgt_epi64(value, _mm256_setzero_si256()),
        _mm256_cmpgt_epi64(value, longs(-most - 1)));
}

struct decimals {
    __m256i ten, last;
    __m128i exponent;
    __m256i unsure;
};

ISA INLINE struct decimals find_decimals(__m256i bits)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i field = _mm256_srli_epi64(bits, 52);
    __m256i c = _mm256_and_si256(bits, longs(one - 1));
    __m256i lopsided = _mm256_cmpeq_epi64(c, zero);
    struct scaled s = scale(low_halves(field), low_halves(lopsided));
    struct product x = multiply(c, &s);
    __m256i reach = _mm256_srli_epi64(s.high, 12);
    __m256i below = _mm256_sub_epi64(
        x.over, choose(lopsided, _mm256_srli_epi64(reach, 1), reach));
    __m256i above = _mm256_sub_epi64(_mm256_add_epi64(x.over, reach),
                                     longs(one));
    __m256i times_ten = _mm256_add_epi64(_mm256_slli_epi64(x.over, 3),
                                         _mm256_slli_epi64(x.over, 1));
    __m256i middle = _mm256_sub_epi64(
        _mm256_and_si256(times_ten, longs(one - 1)), longs(one / 2));
    __m256i up = _mm256_cmpgt_epi64(above, zero);
    __m256i ten = _mm256_or_si256(up, _mm256_cmpgt_epi64(zero, below));
    __m256i last = _mm256_sub_epi64(_mm256_srli_epi64(times_ten, 52),
                                    _mm256_cmpgt_epi64(middle, zero));
    __m256i unsure = _mm256_andnot_si256(
        ten, _mm256_or_si256(is_near(middle, 10 * ERROR), lopsided));

    unsure = _mm256_or_si256(unsure, _mm256_or_si256(is_near(below, ERROR),
                                                     is_near(above, ERROR)));
    return (struct decimals){
        _mm256_sub_epi64(x.ten, up),
        _mm256_andnot_si256(ten, last),
        s.exponent,
        _mm256_or_si256(unsure, _mm256_cmpgt_epi64(longs(2), field)),
    };
}

/* Below 10^16, divided by 10^8 = 5^8 * 2^8. The quotient of doubles errs by far
 * less than the 5^-8 between its possible fractions, or by half of that from a
 * whole number. */
ISA INLINE __m256i upper_half(__m256i ten)
{
    const __m256d magic = _mm256_set1_pd(0x1p52);
    __m256d most = _mm256_sub_pd(
        _mm256_castsi256_pd(_mm256_or_si256(
            _mm256_srli_epi64(ten, 8), _mm256_castpd_si256(magic))), magic);
    __m256d high = _mm256_fmadd_pd(most, _mm256_set1_pd(1 / 390625.0),
                                   _mm256_set1_pd(0.5 / 390625.0 - 0.5));

    return _mm256_and_si256(
        _mm256_castpd_si256(_mm256_add_pd(high, magic)), longs(UINT32_MAX));
}

/* Sixteen digits as bytes, first lowest, and the last. */
struct figures {
    __m256i high, low, last;
    __m128i count;    /* without the zeros at the end */
    __m128i exponent; /* of the first digit */
};

/* The place of the last digit that is not 0; 1 when all are. */
ISA INLINE __m128i count_digits(__m256i high, __m256i low, __m256i last)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i first = _mm256_andnot_si256(_mm256_cmpeq_epi8(high, zero),
                                        longs(0x0807060504030201));
    __m256i second = _mm256_andnot_si256(_mm256_cmpeq_epi8(low, zero),
                                         longs(0x100f0e0d0c0b0a09));
    __m256i third = _mm256_andnot_si256(_mm256_cmpeq_epi64(last, zero),
                                        longs(WIDE_DIGITS));
    __m256i most = _mm256_max_epu8(_mm256_max_epu8(first, second),
                                   _mm256_max_epu8(third, longs(1)));

    most = _mm256_max_epu8(most, _mm256_srli_epi64(most, 32));
    most = _mm256_max_epu8(most, _mm256_srli_epi64(most, 16));
    most = _mm256_max_epu8(most, _mm256_srli_epi64(most, 8));
    return low_halves(_mm256_and_si256(most, longs(0xff)));
}

/* `ten` has 15 or 16 digits. */
ISA INLINE struct figures find_figures(const struct decimals *d)
{
    __m256i brief = _mm256_cmpgt_epi64(longs(1000000000000000), d->ten);
    __m256i tens = _mm256_add_epi64(_mm256_slli_epi64(d->ten, 3),
                                    _mm256_slli_epi64(d->ten, 1));
    __m256i ten = choose(brief, _mm256_add_epi64(tens, d->last), d->ten);
    __m256i high = upper_half(ten);
    __m256i low = _mm256_sub_epi64(ten,
                                   _mm256_mul_epu32(high, longs(100000000)));
    struct figures f = {
        .high = spread(high),
        .low = spread(low),
        .last = _mm256_andnot_si256(brief, d->last),
        .exponent = _mm_add_epi32(
            _mm_add_epi32(d->exponent, _mm_set1_epi32(15)),
            low_halves(brief)),
    };

    f.count = count_digits(f.high, f.low, f.last);
    return f;
}

ISA INLINE __m128i find_layouts(const struct figures *f, __m128i size)
{
    const __m128i first_outside = _mm_set1_epi32(WIDE_OUTSIDE);
    __m128i inside = _mm_sub_epi32(f->exponent, _mm_set1_epi32(LAYOUT_LOW));
    __m128i is_outside = _mm_cmpeq_epi32(
        _mm_max_epu32(inside, first_outside), inside);
    __m128i tens = _mm_and_si128(_mm_cmpgt_epi32(size, _mm_set1_epi32(9)),
                                 _mm_set1_epi32(LAYOUT_DIGIT));
    __m128i hundreds = _mm_and_si128(_mm_cmpgt_epi32(size, _mm_set1_epi32(99)),
                                     _mm_set1_epi32(LAYOUT_DIGIT));
    __m128i kind = _mm_add_epi32(
        _mm_sub_epi32(first_outside, _mm_srai_epi32(f->exponent, 31)),
        _mm_add_epi32(tens, hundreds));

    kind = _mm_blendv_epi8(inside, kind, is_outside);
    return _mm_add_epi32(_mm_mullo_epi16(kind, _mm_set1_epi32(WIDE_DIGITS)),
                         _mm_sub_epi32(f->count, _mm_set1_epi32(1)));
}

/* The sources behind sixteen digits: the last, the exponent, the sign.
 * 41 / 2^12 is exact below 400, 6554 / 2^16 below 100. */
ISA INLINE __m256i other_sources(__m256i last, __m128i size)
{
    __m128i hundreds = _mm_srli_epi32(
        _mm_mullo_epi16(size, _mm_set1_epi32(41)), 12);
    __m128i below = _mm_sub_epi32(
        size, _mm_mullo_epi16(hundreds, _mm_set1_epi32(100)));
    __m128i tens = _mm_mulhi_epu16(below, _mm_set1_epi32(6554));
    __m128i ones = _mm_sub_epi32(below,
                                 _mm_mullo_epi16(tens, _mm_set1_epi32(10)));
    __m128i exponent = _mm_or_si128(
        _mm_or_si128(hundreds, _mm_slli_epi32(tens, 8)),
        _mm_or_si128(_mm_slli_epi32(ones, 16),
                     _mm_set1_epi32('0' | '0' << 8 | '0' << 16 | '-' << 24)));

    return _mm256_or_si256(
        _mm256_slli_epi64(_mm256_cvtepu32_epi64(exponent), 8),
        _mm256_or_si256(last, longs('0')));
}

/* Four texts before they are laid out. */
struct parts {
    __m128i digits[4];
    uint64_t others[4];
    uint32_t row[4], skip[4]; /* of its row, the places to be left out */
};

/* False when one of the four is unsure. */
ISA INLINE bool take_apart(__m256i values, struct parts *p)
{
    const __m256i zeros = _mm256_set1_epi8('0');
    __m256i bits = _mm256_and_si256(values, longs(INT64_MAX));
    __m256i is_zero = _mm256_cmpeq_epi64(bits, _mm256_setzero_si256());
    __m256i is_infinite = _mm256_cmpgt_epi64(
        bits, longs(((int64_t)0x7ff << 52) - 1));
    __m256i is_word = _mm256_or_si256(is_zero, is_infinite);
    struct decimals d = find_decimals(bits);
    struct figures f = find_figures(&d);
    __m128i size = _mm_abs_epi32(f.exponent);
    __m128i minus = _mm_srai_epi32(high_halves(values), 31);
    __m128i row = find_layouts(&f, size);
    __m256i even = _mm256_or_si256(_mm256_unpacklo_epi64(f.high, f.low), zeros);
    __m256i odd = _mm256_or_si256(_mm256_unpackhi_epi64(f.high, f.low), zeros);

    row = _mm_blendv_epi8(row, _mm_sub_epi32(_mm_set1_epi32(WIDE_ZERO), minus),
                          low_halves(is_zero));
    row = _mm_blendv_epi8(row, _mm_set1_epi32(WIDE_NULL),
                          low_halves(is_infinite));
    minus = _mm_andnot_si128(low_halves(is_word), minus);
    p->digits[0] = _mm256_castsi256_si128(even);
    p->digits[1] = _mm256_castsi256_si128(odd);
    p->digits[2] = _mm256_extracti128_si256(even, 1);
    p->digits[3] = _mm256_extracti128_si256(odd, 1);
    _mm256_storeu_si256((void *)p->others, other_sources(f.last, size));
    _mm_storeu_si128((void *)p->row, _mm_slli_epi32(row, 5));
    _mm_storeu_si128((void *)p->skip, _mm_add_epi32(minus, _mm_set1_epi32(1)));
    return _mm256_testc_si256(is_word, d.unsure);
}

/* Appends text i and its comma; 32 bytes are written. A source of one kind is
 * none of the other's, while a character is neither. */
ISA INLINE char *append(const struct parts *p, int i, char *out)
{
    const uint8_t *row = number_wide_layouts + p->row[i];
    __m256i layout = _mm256_loadu_si256((const void *)(row + p->skip[i]));
    __m256i digits = _mm256_shuffle_epi8(
        _mm256_broadcastsi128_si256(p->digits[i]),
        _mm256_adds_epu8(layout, _mm256_set1_epi8(0x80 - WIDE_LAST)));
    __m256i others = _mm256_shuffle_epi8(
        longs((int64_t)p->others[i]),
        _mm256_sub_epi8(layout, _mm256_set1_epi8(WIDE_LAST)));
    __m256i characters = _mm256_subs_epu8(layout, _mm256_set1_epi8((char)0x80));

    _mm256_storeu_si256((void *)out, _mm256_or_si256(
        _mm256_or_si256(digits, others), characters));
    return out + row[WIDE_LENGTH] - p->skip[i];
}

ISA char *number_write_avx2_f64(const double *values, size_t count, char *out)
{
    _Static_assert(NUMBER_F64_BYTES >= 32, "no more than may be touched");
    struct parts p;

    if (count == 0)
        return out;
    for (; count >= 4; count -= 4, values += 4) {
        if (__builtin_expect(
                take_apart(_mm256_loadu_si256((const void *)values), &p), 1)) {
            for (int i = 0; i < 4; i++)
                out = append(&p, i, out);
        } else {
            out = number_write_singly_f64(values, 4, out);
            *out++ = ',';
        }
    }
    return count > 0 ? number_write_singly_f64(values, count, out) : out - 1;
}

#endif
