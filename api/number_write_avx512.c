#include "api/number_run.h"

#if defined(__x86_64__)

#include "api/number.h"
#include "api/number_layout.h"
#include "api/number_parts.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

/* As in number_read_avx512.c. */
#define ISA                                                                    \
    __attribute__((target("avx2,fma,bmi,bmi2,lzcnt,popcnt,avx512f,avx512bw," \
                          "avx512cd,avx512dq,avx512vl,avx512vbmi,"            \
                          "avx512vbmi2")))

ISA INLINE __m512i longs(int64_t value)
{
    return _mm512_set1_epi64(value);
}

/* Eight values, in lanes 0 2 4 6 the first four, in 1 3 5 7 the others. */
struct decimals {
    __m512i digits; /* 1 to 9 of them */
    __m512i exponent; /* of the last digit */
};

/* shortest_f32() of number_write.c, where it says why, for eight. The power's
 * halves make two products of 32 bits by 28, which together are the one there,
 * bit for bit. What it is for zero and for what is not finite has no meaning. */
ISA INLINE struct decimals shorten(__m512i bits)
{
    const __m512i one = longs((int64_t)1 << 60), slack = longs(1 << 25);
    __m512i field = _mm512_srli_epi64(bits, 23);
    __m512i fraction = _mm512_and_si512(bits, longs(0x7fffff));
    __mmask8 normal = _mm512_test_epi64_mask(field, field);
    __mmask8 lopsided = _mm512_testn_epi64_mask(fraction, fraction) &
                        _mm512_cmpgt_epi64_mask(field, longs(1));
    __m512i c = _mm512_mask_or_epi64(fraction, normal, fraction,
                                     longs(0x800000));
    __m512i q = _mm512_sub_epi64(_mm512_max_epi64(field, longs(1)), longs(150));
    __m512i log = _mm512_mul_epi32(q, longs(1262611));
    __m512i k = _mm512_srai_epi64(
        _mm512_mask_sub_epi64(log, lopsided, log, longs(524031)), 22);
    __m512i minus_k = _mm512_sub_epi64(_mm512_setzero_si512(), k);
    __m512i b = _mm512_add_epi64(
        _mm512_srai_epi64(_mm512_mul_epi32(minus_k, longs(217706)), 16), q);
    __m512i power = _mm512_add_epi64(
        _mm512_i64gather_epi64(_mm512_add_epi64(minus_k, minus_k),
                               &number_powers[-POWER_LOW].high, 8), longs(1));
    __m512i shifted = _mm512_sllv_epi64(c, _mm512_add_epi64(b, longs(1)));
    __m512i low = _mm512_mul_epu32(shifted, power);
    __m512i high = _mm512_mul_epu32(shifted, _mm512_srli_epi64(power, 32));
    __m512i units = _mm512_srli_epi64(
        _mm512_add_epi64(high, _mm512_srli_epi64(low, 32)), 32);
    __m512i rest = _mm512_srli_epi64(
        _mm512_add_epi64(_mm512_slli_epi64(high, 32), low), 4);
    __m512i ten = _mm512_srli_epi64(_mm512_mul_epu32(units, longs(429496730)),
                                    32);
    __m512i ones = _mm512_sub_epi64(units, _mm512_mul_epu32(ten, longs(10)));
    __m512i over = _mm512_add_epi64(_mm512_slli_epi64(ones, 60), rest);
    __m512i reach = _mm512_srlv_epi64(power, _mm512_sub_epi64(longs(4), b));
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
    units = _mm512_mask_mov_epi64(units, down | up, ten);
    return (struct decimals){
        _mm512_mask_add_epi64(units, up, units, longs(1)),
        _mm512_mask_add_epi64(k, down | up, k, longs(1)),
    };
}

/* write_beside_one() of number_write.c. */
ISA INLINE void keep_distance(struct decimals *d, __m512i bits)
{
    __m512i k = _mm512_sub_epi64(bits, longs(0x3f800000));
    __mmask8 beside = _mm512_cmplt_epu64_mask(_mm512_sub_epi64(k, longs(1)),
                                              longs(63));

    if (__builtin_expect(beside == 0, 1))
        return;
    k = _mm512_add_epi64(_mm512_mul_epu32(k, longs(100000000)), longs(1 << 22));
    d->digits = _mm512_mask_add_epi64(d->digits, beside, longs(100000000),
                                      _mm512_srli_epi64(k, 23));
    d->exponent = _mm512_mask_mov_epi64(d->exponent, beside, longs(-8));
}

/* Nine digits each: the first, and the others as bytes. */
struct figures {
    __m512i first, others;
    __m512i count;    /* without the zeros at the end */
    __m512i exponent; /* of the first digit */
};

ISA INLINE __m512i power_below(__m512i exponent)
{
    const __m512i tens = _mm512_setr_epi32(
        1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000,
        1000000000, 0, 0, 0, 0, 0, 0);

    return _mm512_maskz_permutexvar_epi32(0x5555, exponent, tens);
}

/* spread_digits() of number_write.c. 109951163 / 2^40 is exact below 10^8. */
ISA INLINE __m512i spread(__m512i eight)
{
    __m512i high = _mm512_srli_epi64(
        _mm512_mul_epu32(eight, longs(109951163)), 40);
    __m512i low = _mm512_sub_epi64(eight,
                                   _mm512_mul_epu32(high, longs(10000)));
    __m512i fours = _mm512_or_si512(high, _mm512_slli_epi64(low, 32));
    __m512i hundreds = _mm512_srli_epi16(
        _mm512_mulhi_epu16(fours, _mm512_set1_epi16(5243)), 3);
    __m512i pairs = _mm512_add_epi32(
        hundreds,
        _mm512_slli_epi32(
            _mm512_sub_epi16(fours, _mm512_mullo_epi16(
                                        hundreds, _mm512_set1_epi16(100))),
            16));
    __m512i tens = _mm512_mulhi_epu16(pairs, _mm512_set1_epi16(6554));

    return _mm512_sub_epi16(_mm512_slli_epi16(pairs, 8),
                            _mm512_mullo_epi16(tens, _mm512_set1_epi16(2559)));
}

/* 1441151881 / 2^57 is exact below 10^9. */
ISA INLINE struct figures spell(struct decimals d)
{
    __m512i bits = _mm512_sub_epi64(longs(64), _mm512_lzcnt_epi64(d.digits));
    __m512i least = _mm512_srli_epi64(_mm512_mul_epu32(bits, longs(1233)), 12);
    __mmask8 more = _mm512_cmpge_epu64_mask(d.digits, power_below(least));
    __m512i length = _mm512_mask_add_epi64(least, more, least, longs(1));
    __m512i nine = _mm512_mul_epu32(
        d.digits, power_below(_mm512_sub_epi64(longs(9), length)));
    __m512i first = _mm512_srli_epi64(
        _mm512_mul_epu32(nine, longs(1441151881)), 57);
    __m512i others = spread(
        _mm512_sub_epi64(nine, _mm512_mul_epu32(first, longs(100000000))));

    return (struct figures){
        .first = first,
        .others = others,
        .count = _mm512_sub_epi64(
            longs(9), _mm512_srli_epi64(_mm512_lzcnt_epi64(others), 3)),
        .exponent = _mm512_add_epi64(
            d.exponent, _mm512_sub_epi64(length, longs(1))),
    };
}

/* Which layout, by plain_is_short() of number_write.c. */
ISA INLINE __m512i find_layouts(const struct figures *f)
{
    const __m512i one = longs(1);
    __m512i e = f->exponent;
    __mmask8 point = _mm512_cmpgt_epi64_mask(f->count, one);
    __mmask8 minus = _mm512_movepi64_mask(e);
    __mmask8 tens = _mm512_cmpgt_epi64_mask(_mm512_abs_epi64(e), longs(9));
    __m512i least = _mm512_mask_mov_epi64(longs(-2), point, longs(-3));
    __m512i most = _mm512_add_epi64(f->count, one);
    __m512i kind = longs(LAYOUT_SCIENTIFIC);
    __mmask8 plain;

    most = _mm512_mask_add_epi64(most, point, most, one);
    most = _mm512_mask_add_epi64(most, tens, most, one);
    plain = _mm512_cmpge_epi64_mask(e, least) & _mm512_cmple_epi64_mask(e, most);
    kind = _mm512_mask_add_epi64(kind, minus, kind, longs(LAYOUT_E_MINUS));
    kind = _mm512_mask_add_epi64(kind, tens, kind, longs(LAYOUT_E_TENS));
    kind = _mm512_mask_sub_epi64(kind, plain, e, longs(LAYOUT_PLAIN_LOW));
    return _mm512_add_epi64(_mm512_mul_epu32(kind, longs(LAYOUT_DIGITS)),
                            _mm512_sub_epi64(f->count, one));
}

/* The sources behind the first eight. */
ISA INLINE __m512i other_sources(const struct figures *f, __mmask8 minus)
{
    __m512i e = _mm512_abs_epi64(f->exponent);
    __m512i tens = _mm512_srli_epi64(_mm512_mul_epu32(e, longs(103)), 10);
    __m512i ones = _mm512_sub_epi64(e, _mm512_mul_epu32(tens, longs(10)));
    __m512i all = _mm512_ternarylogic_epi64(
        f->first, _mm512_slli_epi64(tens, 8), _mm512_slli_epi64(ones, 16),
        0xfe);

    all = _mm512_or_si512(all, longs('0' | '0' << 8 | '0' << 16));
    return _mm512_mask_or_epi64(all, minus, all, longs('-' << 24));
}

ISA INLINE __m512i load_layouts(const uint64_t *layout)
{
    const __m128i *rows = (const void *)number_layouts;
    __m256i first = _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128(rows + layout[0])),
        _mm_loadu_si128(rows + layout[2]), 1);
    __m256i last = _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128(rows + layout[4])),
        _mm_loadu_si128(rows + layout[6]), 1);

    return _mm512_inserti64x4(_mm512_castsi256_si512(first), last, 1);
}

/* Four texts and their commas, to be packed; *used are their bytes. */
ISA INLINE __m512i lay_out(__m512i sources, __m512i layouts, __mmask64 *used)
{
    __m512i text = _mm512_mask_mov_epi8(
        _mm512_shuffle_epi8(sources, layouts), _mm512_movepi8_mask(layouts),
        _mm512_and_si512(layouts, _mm512_set1_epi8(0x7f)));
    *used = _mm512_test_epi8_mask(text, text);
    return text;
}

/* Two times four texts, in order. */
struct texts {
    __m512i text[2];
    __mmask64 used[2];
};

ISA INLINE struct texts write_eight(__m256i values)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i turned = _mm256_permutevar8x32_epi32(values, order);
    __m512i bits = _mm512_cvtepu32_epi64(
        _mm256_and_si256(turned, _mm256_set1_epi32(INT32_MAX)));
    __mmask8 minus = _mm256_movepi32_mask(turned);
    __mmask8 zero = _mm512_testn_epi64_mask(bits, bits);
    __mmask8 infinite = _mm512_cmpge_epu64_mask(bits, longs(0x7f800000));
    struct decimals d = shorten(bits);
    uint64_t layouts[8];
    struct texts t;

    keep_distance(&d, bits);

    struct figures f = spell(d);
    __m512i layout = find_layouts(&f);
    __m512i digits = _mm512_or_si512(f.others, _mm512_set1_epi8('0'));
    __m512i others = other_sources(&f, minus);

    layout = _mm512_mask_mov_epi64(layout, zero, longs(LAYOUT_ZERO));
    layout = _mm512_mask_mov_epi64(layout, zero & minus,
                                   longs(LAYOUT_MINUS_ZERO));
    layout = _mm512_mask_mov_epi64(layout, infinite, longs(LAYOUT_NULL));
    _mm512_storeu_si512(layouts, layout);
    t.text[0] = lay_out(_mm512_unpacklo_epi64(digits, others),
                        load_layouts(layouts), &t.used[0]);
    t.text[1] = lay_out(_mm512_unpackhi_epi64(digits, others),
                        load_layouts(layouts + 1), &t.used[1]);
    return t;
}

/* 64 bytes are written for four numbers, of which four may be 4 * 22. */
ISA char *number_write_avx512_f32(const float *values, size_t count, char *out)
{
    _Static_assert(4 * NUMBER_F32_BYTES >= 64, "no more than may be touched");
    size_t i = 0;

    if (count == 0)
        return out;
    for (; i + 8 <= count; i += 8) {
        struct texts t = write_eight(
            _mm256_loadu_si256((const void *)(values + i)));

        for (int half = 0; half < 2; half++) {
            _mm512_storeu_si512(out, _mm512_maskz_compress_epi8(t.used[half],
                                                                t.text[half]));
            out += __builtin_popcountll(t.used[half]);
        }
    }
    if (i < count) {
        __mmask8 lanes = (__mmask8)((1 << (count - i)) - 1);
        struct texts t = write_eight(
            _mm256_maskz_loadu_epi32(lanes, values + i));

        for (size_t half = 0; half < 2 && i + 4 * half < count; half++) {
            size_t left = count - i - 4 * half;
            __mmask64 used = t.used[half];

            if (left < 4)
                used = _bzhi_u64(used, (unsigned)left * LAYOUT_BYTES);

            int bytes = __builtin_popcountll(used);

            _mm512_mask_storeu_epi8(
                out, _bzhi_u64(~(uint64_t)0, (unsigned)bytes),
                _mm512_maskz_compress_epi8(used, t.text[half]));
            out += bytes;
        }
    }
    return out - 1;
}

#endif
