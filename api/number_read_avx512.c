#include "api/number_run.h"

#if defined(__x86_64__)

#include "api/number_parts.h"

#include <float.h>
#include <immintrin.h>
#include <stdbool.h>

/* Every function wears its instruction set, so that nothing here can be inlined
 * into code that runs before the processor was asked. */
#define ISA                                                                    \
    __attribute__((target("avx2,fma,bmi,bmi2,lzcnt,popcnt,avx512f,avx512bw," \
                          "avx512dq,avx512vl,avx512vbmi,avx512vbmi2")))

/* Eight words: the text's first is the lowest. */
enum { WORDS = 8 };
typedef __m512i word;

ISA INLINE word next_byte(word mask, word *was)
{
    word before = _mm512_alignr_epi64(mask, *was, WORDS - 1);

    *was = mask;
    return _mm512_shldi_epi64(mask, before, 1);
}

/* Each word's carry goes to the next; through words that are all ones it goes
 * on as it does in the sum of the masks. */
ISA INLINE word behind_runs(word starts, word run, unsigned *carry)
{
    word sum = _mm512_add_epi64(starts, run);
    unsigned full = _mm512_cmpeq_epi64_mask(sum, _mm512_set1_epi64(-1));
    unsigned into = _mm512_cmplt_epu64_mask(sum, run);

    into = ((into << 1 | *carry) + full) ^ full;
    *carry = into >> WORDS;
    sum = _mm512_mask_add_epi64(sum, (__mmask8)into, sum, _mm512_set1_epi64(1));
    return _mm512_andnot_si512(run, sum);
}

#include "api/number_index.h"

ISA INLINE __m512i bytes(char c)
{
    return _mm512_set1_epi8(c);
}

ISA INLINE __m512i iota_bytes(void)
{
    return _mm512_set_epi8(
        63, 62, 61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46,
        45, 44, 43, 42, 41, 40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 30, 29, 28,
        27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10,
        9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
}

/* A mask of each class for each of eight blocks, to be loaded as words. */
enum class {
    DIGIT, ZERO, MINUS, PLUS, POINT, E, SPACE, COMMA, OPEN, CLOSE, CLASSES
};

struct masks {
    __attribute__((aligned(64))) uint64_t word[CLASSES][WORDS];
};

ISA INLINE void classify_block(struct masks *m, size_t i, __m512i text,
                               bool rows)
{
    /* white space by its lower four bits */
    const __m512i space = _mm512_broadcast_i32x4(_mm_setr_epi8(
        ' ', 0, 0, 0, 0, 0, 0, 0, 0, '\t', '\n', 0, 0, '\r', 0, 0));

    m->word[DIGIT][i] = _mm512_cmplt_epu8_mask(
        _mm512_sub_epi8(text, bytes('0')), bytes(10));
    m->word[ZERO][i] = _mm512_cmpeq_epi8_mask(text, bytes('0'));
    m->word[MINUS][i] = _mm512_cmpeq_epi8_mask(text, bytes('-'));
    m->word[PLUS][i] = _mm512_cmpeq_epi8_mask(text, bytes('+'));
    m->word[POINT][i] = _mm512_cmpeq_epi8_mask(text, bytes('.'));
    m->word[E][i] = _mm512_cmpeq_epi8_mask(_mm512_or_si512(text, bytes(0x20)),
                                           bytes('e'));
    m->word[SPACE][i] = _mm512_cmpeq_epi8_mask(
        _mm512_shuffle_epi8(space, text), text);
    m->word[COMMA][i] = _mm512_cmpeq_epi8_mask(text, bytes(','));
    if (rows) {
        m->word[OPEN][i] = _mm512_cmpeq_epi8_mask(text, bytes('['));
        m->word[CLOSE][i] = _mm512_cmpeq_epi8_mask(text, bytes(']'));
    }
}

ISA INLINE void find_masks(struct masks *m, const char *text, size_t len,
                           bool rows)
{
    if (len >= STEP_BYTES) {
        for (size_t i = 0; i < WORDS; i++)
            classify_block(m, i, _mm512_loadu_si512(text + 64 * i), rows);
        return;
    }
    for (size_t i = 0; i < WORDS; i++) {
        size_t left = len > 64 * i ? len - 64 * i : 0;
        __mmask64 within = _bzhi_u64(~(uint64_t)0,
                                     left < 64 ? (unsigned)left : 64);

        classify_block(m, i, _mm512_maskz_loadu_epi8(within, text + 64 * i),
                       rows);
    }
}

ISA INLINE word load_word(const struct masks *m, enum class class)
{
    return _mm512_load_si512(m->word[class]);
}

ISA INLINE struct classes classify(const struct masks *m, bool rows)
{
    return (struct classes){
        .digit = load_word(m, DIGIT),
        .zero = load_word(m, ZERO),
        .minus = load_word(m, MINUS),
        .plus = load_word(m, PLUS),
        .point = load_word(m, POINT),
        .e = load_word(m, E),
        .space = load_word(m, SPACE),
        .comma = load_word(m, COMMA),
        .open = rows ? load_word(m, OPEN) : _mm512_setzero_si512(),
        .close = rows ? load_word(m, CLOSE) : _mm512_setzero_si512(),
    };
}

ISA INLINE bool any(word mask)
{
    return _mm512_test_epi64_mask(mask, mask) != 0;
}

ISA INLINE void store_word(uint64_t *to, word mask)
{
    _mm512_storeu_si512(to, mask);
}

/* The positions of the bits, `base` added. At most 32: numbers are two bytes
 * apart. */
ISA INLINE __m512i positions(uint64_t mask, size_t base)
{
    __m512i packed = _mm512_maskz_compress_epi8(mask, iota_bytes());

    return _mm512_add_epi16(
        _mm512_cvtepu8_epi16(_mm512_castsi512_si256(packed)),
        _mm512_set1_epi16((short)base));
}

ISA INLINE void store_parts(struct index *index, struct cursors *n,
                            const struct part_words *words, size_t i,
                            size_t base)
{
    uint64_t minus = _pext_u64(words->minus[i], words->start[i]);
    __m512i tail = positions(words->tail[i], base);

    _mm256_storeu_si256((void *)(index->minus + n->start),
                        _mm256_movm_epi8((__mmask32)minus));
    _mm512_storeu_si512(index->start + n->start,
                        positions(words->start[i], base));
    _mm512_storeu_si512(index->point + n->point,
                        positions(words->point[i], base));
    _mm512_storeu_si512(index->tail + n->tail, tail);
    _mm512_storeu_si512(index->end + n->end,
                        words->exponents ? positions(words->end[i], base)
                                         : tail);
    n->start += (size_t)__builtin_popcountll(words->start[i]);
    n->point += (size_t)__builtin_popcountll(words->point[i]);
    n->tail += (size_t)__builtin_popcountll(words->tail[i]);
}

/* Eight numbers, a lane each. */
struct eight {
    __m512d high, middle, low; /* 24 digits as integers of 8 */
    __m256i exponent;          /* of the last digit */
    __mmask8 minus;
    __mmask8 unsure; /* more digits than that, or than 3 in the exponent */
};

ISA INLINE __m256i load_positions(const uint16_t *at)
{
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)at));
}

/* The digits of two numbers, 32 bytes for each, zeros before them. From its
 * start on, byte j of a number's last 32 digits is byte j + shift, or, left of
 * its point, the one before. */
ISA INLINE __m512i align_digits(const char *text, const uint16_t *start,
                                __m512i shifts, __m512i points, int pair)
{
    const __m512i iota = iota_bytes();
    const __m512i first = _mm512_and_si512(iota, bytes(32));
    const __m512i lane = _mm512_add_epi8(_mm512_srli_epi16(first, 5),
                                         bytes((char)(2 * pair)));
    __m512i shift = _mm512_permutexvar_epi8(lane, shifts);
    __m512i point = _mm512_permutexvar_epi8(lane, points);
    __m512i from = _mm512_add_epi8(iota, shift);
    __m512i raw = _mm512_inserti64x4(
        _mm512_castsi256_si512(
            _mm256_loadu_si256((const void *)(text + start[0]))),
        _mm256_loadu_si256((const void *)(text + start[1])), 1);

    from = _mm512_mask_sub_epi8(from, _mm512_cmple_epi8_mask(from, point), from,
                                bytes(1));
    return _mm512_maskz_permutexvar_epi8(_mm512_cmpge_epi8_mask(from, first),
                                         from,
                                         _mm512_subs_epu8(raw, bytes('0')));
}

ISA INLINE __m512i fours(__m512i digits)
{
    __m512i twos = _mm512_maddubs_epi16(digits, _mm512_set1_epi16(1 << 8 | 10));

    return _mm512_madd_epi16(twos, _mm512_set1_epi32(1 << 16 | 100));
}

ISA INLINE __m512i eights(__m512i a, __m512i b)
{
    return _mm512_madd_epi16(_mm512_packus_epi32(a, b),
                             _mm512_set1_epi32(1 << 16 | 10000));
}

ISA INLINE __m512d pick_eights(__m512i a, __m512i b, int at)
{
    const __m512i order = _mm512_castsi256_si512(
        _mm256_setr_epi32(0, 8, 2, 10, 16, 24, 18, 26));
    __m512i picked = _mm512_permutex2var_epi32(
        a, _mm512_add_epi32(order, _mm512_set1_epi32(at)), b);

    return _mm512_cvtepi32_pd(_mm512_castsi512_si256(picked));
}

/* What stands behind the 'e' of those that have one. */
ISA INLINE __m256i exponents(const char *text, __m256i tail, __m256i end,
                             __mmask8 *unsure)
{
    const __m256i ten = _mm256_set1_epi32(1 << 24 | 10 << 16 | 100 << 8);
    __mmask8 some = _mm256_cmpneq_epi32_mask(tail, end);
    __m256i raw = _mm256_mmask_i32gather_epi32(_mm256_setzero_si256(), some,
                                               tail, text + 1, 1);
    __m256i first = _mm256_and_si256(raw, _mm256_set1_epi32(0xff));
    __mmask8 minus = _mm256_cmpeq_epi32_mask(first, _mm256_set1_epi32('-'));
    __mmask8 sign = _mm256_cmplt_epi32_mask(first, _mm256_set1_epi32('0'));
    __m256i digits = _mm256_sub_epi32(_mm256_sub_epi32(end, tail),
                                      _mm256_set1_epi32(1));
    __m256i value;

    sign &= some;
    digits = _mm256_mask_sub_epi32(digits, sign, digits, _mm256_set1_epi32(1));
    *unsure |= _mm256_cmpgt_epi32_mask(digits, _mm256_set1_epi32(3));
    raw = _mm256_mask_srli_epi32(raw, sign, raw, 8);
    raw = _mm256_subs_epu8(raw, _mm256_set1_epi8('0'));
    raw = _mm256_sllv_epi32(raw, _mm256_slli_epi32(
        _mm256_sub_epi32(_mm256_set1_epi32(4), digits), 3));
    value = _mm256_madd_epi16(_mm256_maddubs_epi16(raw, ten),
                              _mm256_set1_epi16(1));
    value = _mm256_maskz_mov_epi32(some, value);
    return _mm256_mask_sub_epi32(value, minus & some, _mm256_setzero_si256(),
                                 value);
}

/* Whole numbers have their point behind all, so to speak at -1. */
ISA INLINE struct eight read_eight(const char *text, const struct index *index,
                                   size_t i)
{
    const __m128i odd = _mm_set1_epi16(32 << 8);
    const uint16_t *at = index->start + i;
    __m256i start = load_positions(at);
    __m256i point = load_positions(index->point + i);
    __m256i tail = load_positions(index->tail + i);
    __m256i end = load_positions(index->end + i);
    __m256i length = _mm256_sub_epi32(tail, start);
    __mmask8 split = _mm256_cmpneq_epi32_mask(point, tail);
    __m256i before = _mm256_mask_sub_epi32(_mm256_set1_epi32(-1), split, point,
                                           start);
    __m512i shifts = _mm512_castsi128_si512(_mm256_cvtepi32_epi8(
        _mm256_sub_epi32(length, _mm256_set1_epi32(32))));
    __m512i points = _mm512_castsi128_si512(
        _mm_add_epi8(_mm256_cvtepi32_epi8(before), odd));
    __m512i a = eights(fours(align_digits(text, at, shifts, points, 0)),
                       fours(align_digits(text, at + 2, shifts, points, 1)));
    __m512i b = eights(fours(align_digits(text, at + 4, shifts, points, 2)),
                       fours(align_digits(text, at + 6, shifts, points, 3)));
    struct eight e = {
        .high = pick_eights(a, b, 1),
        .middle = pick_eights(a, b, 4),
        .low = pick_eights(a, b, 5),
        .exponent = _mm256_maskz_sub_epi32(
            split, _mm256_add_epi32(point, _mm256_set1_epi32(1)), tail),
        .minus = (__mmask8)_mm_movepi8_mask(
            _mm_loadl_epi64((const void *)(index->minus + i))),
        .unsure = _mm256_cmpgt_epi32_mask(length, _mm256_set1_epi32(24)),
    };

    if (_mm256_cmpneq_epi32_mask(tail, end) != 0)
        e.exponent = _mm256_add_epi32(e.exponent,
                                      exponents(text, tail, end, &e.unsure));
    return e;
}

/* Each product is off by at most 2^-53 of it, of the two sums, the power and
 * the last product: less than 5 units of the double's last place. With no tie
 * of float32 that near, rounding the double is rounding the decimal. */
ISA INLINE unsigned convert_f32(const char *text, const struct index *index,
                                size_t i, float *out)
{
    const __m512d scale = _mm512_set1_pd(1e8);
    const __m512d least = _mm512_set1_pd(0x1p-126);
    const __m512d most = _mm512_set1_pd(0x1.fffffep127);
    const __m512i below_f32 = _mm512_set1_epi64((1 << 29) - 1);
    const __m512i tie = _mm512_set1_epi64((1 << 28) - 5);
    struct eight e = read_eight(text, index, i);
    __m512d digits = _mm512_fmadd_pd(_mm512_fmadd_pd(e.high, scale, e.middle),
                                     scale, e.low);
    __m256i row = _mm256_sub_epi32(e.exponent, _mm256_set1_epi32(TENS_LOW));
    __mmask8 outside = _mm256_cmpgt_epu32_mask(
        row, _mm256_set1_epi32(TENS_HIGH - TENS_LOW));
    __m512d power = _mm512_i32gather_pd(
        _mm256_maskz_mov_epi32((__mmask8)~outside, row), number_tens_f64, 8);
    __m512d value = _mm512_mul_pd(digits, power);
    __m512i rest = _mm512_and_si512(_mm512_castpd_si512(value), below_f32);
    __mmask8 near = _mm512_cmple_epu64_mask(_mm512_sub_epi64(rest, tie),
                                            _mm512_set1_epi64(10));
    __mmask8 zero = _mm512_cmp_pd_mask(value, _mm512_setzero_pd(), _CMP_EQ_OQ);
    __mmask8 small = _mm512_cmp_pd_mask(value, least, _CMP_LT_OQ);
    __mmask8 large = _mm512_cmp_pd_mask(value, most, _CMP_GT_OQ);
    __m256i sign = _mm256_maskz_set1_epi32(e.minus, INT32_MIN);

    _mm256_storeu_si256(
        (void *)out,
        _mm256_or_si256(_mm256_castps_si256(_mm512_cvtpd_ps(value)), sign));
    return (unsigned)(e.unsure | outside | near | (small & ~zero) | large);
}

/* A sum of two doubles that says more than one can. */
struct sum {
    __m512d high, low;
};

/* The product as rounded: gcc would fuse it with a sum that it goes into. */
ISA INLINE __m512d product_of(__m512d a, __m512d b)
{
    __m512d product = _mm512_mul_pd(a, b);

    __asm__("" : "+v"(product));
    return product;
}

/* The 24 digits, exactly, when the first 16 are below 2^53. */
ISA INLINE struct sum add_digits(const struct eight *e, __mmask8 *unsure)
{
    const __m512d scale = _mm512_set1_pd(1e8);
    __m512d first = _mm512_fmadd_pd(e->high, scale, e->middle);
    __m512d product = product_of(first, scale);
    __m512d high = _mm512_add_pd(product, e->low);
    __m512d low = _mm512_sub_pd(e->low, _mm512_sub_pd(high, product));

    *unsure |= _mm512_cmp_pd_mask(first, _mm512_set1_pd(0x1p53), _CMP_GE_OQ);
    return (struct sum){
        high, _mm512_add_pd(low, _mm512_fmsub_pd(first, scale, product))
    };
}

/* The power of ten of these rows in units of 2^(power_scale + 64), its first 53
 * bits and the 53 behind them. */
ISA INLINE struct sum find_power(__m256i row)
{
    __m256i at = _mm256_slli_epi32(row, 1);
    __m512i high = _mm512_i32gather_epi64(at, &number_powers[0].high, 8);
    __m512i low = _mm512_i32gather_epi64(at, &number_powers[0].low, 8);
    __m512i rest = _mm512_or_si512(_mm512_slli_epi64(high, 53),
                                   _mm512_srli_epi64(low, 11));

    high = _mm512_andnot_si512(_mm512_set1_epi64(0x7ff), high);
    return (struct sum){
        _mm512_cvtepu64_pd(high),
        _mm512_mul_pd(_mm512_cvtepu64_pd(rest), _mm512_set1_pd(0x1p-53)),
    };
}

ISA INLINE struct sum multiply(struct sum a, struct sum b)
{
    __m512d product = product_of(a.high, b.high);
    __m512d low = _mm512_fmadd_pd(
        a.low, b.high,
        _mm512_fmadd_pd(a.high, b.low,
                        _mm512_fmsub_pd(a.high, b.high, product)));
    __m512d high = _mm512_add_pd(product, low);

    return (struct sum){ high,
                         _mm512_sub_pd(low, _mm512_sub_pd(high, product)) };
}

/* The product errs by a few 2^-105 of itself, in the sums of its lower half and
 * in what the power lacks. When 2^-98 more or less rounds to the same, so does
 * the decimal. */
ISA INLINE unsigned convert_f64(const char *text, const struct index *index,
                                size_t i, double *out)
{
    const __m512i sign = _mm512_set1_epi64(INT64_MIN);
    struct eight e = read_eight(text, index, i);
    __mmask8 unsure = e.unsure;
    __m256i row = _mm256_sub_epi32(e.exponent, _mm256_set1_epi32(POWER_LOW));
    __mmask8 outside = _mm256_cmpgt_epu32_mask(
        row, _mm256_set1_epi32(308 - POWER_LOW));
    __m256i log = _mm256_srai_epi32(
        _mm256_mullo_epi32(e.exponent, _mm256_set1_epi32(217706)), 16);
    struct sum digits = add_digits(&e, &unsure);
    struct sum value = multiply(
        digits, find_power(_mm256_maskz_mov_epi32((__mmask8)~outside, row)));
    __m512d error = _mm512_mul_pd(value.high, _mm512_set1_pd(0x1p-98));
    __m512d above = _mm512_add_pd(value.high,
                                  _mm512_add_pd(value.low, error));
    __m512d under = _mm512_add_pd(value.high,
                                  _mm512_sub_pd(value.low, error));
    __m512d result = _mm512_scalef_pd(
        value.high, _mm512_cvtepi32_pd(
                        _mm256_sub_epi32(log, _mm256_set1_epi32(63))));
    __mmask8 zero = _mm512_cmp_pd_mask(value.high, _mm512_setzero_pd(),
                                       _CMP_EQ_OQ);
    __mmask8 small = _mm512_cmp_pd_mask(result, _mm512_set1_pd(0x1p-1022),
                                        _CMP_LT_OQ);
    __mmask8 large = _mm512_cmp_pd_mask(result, _mm512_set1_pd(DBL_MAX),
                                        _CMP_GT_OQ);

    _mm512_storeu_si512(
        out, _mm512_mask_or_epi64(_mm512_castpd_si512(result), e.minus,
                                  _mm512_castpd_si512(result), sign));
    return (unsigned)(unsure | outside | (small & ~zero) | large |
                      _mm512_cmp_pd_mask(above, under, _CMP_NEQ_OQ));
}

enum { GROUP = 8, BEFORE = 0, BEHIND = 32 };

#include "api/number_chunk.h"

READ_ENTRY(number_read_avx512_f32, float, read_runs_f32)
READ_ENTRY(number_read_avx512_f64, double, read_runs_f64)

/* '[' and '{', as ']' and '}', differ in bit 5 alone. */
ISA INLINE void count_block(__m512i text, struct number_tally *tally)
{
    __m512i brackets = _mm512_or_si512(text, bytes(0x20));

    tally->commas += (size_t)__builtin_popcountll(
        _mm512_cmpeq_epi8_mask(text, bytes(',')));
    tally->open += __builtin_popcountll(
        _mm512_cmpeq_epi8_mask(brackets, bytes('{')));
    tally->open -= __builtin_popcountll(
        _mm512_cmpeq_epi8_mask(brackets, bytes('}')));
}

ISA void number_count_avx512(const char *text, const char *end,
                             struct number_tally *tally)
{
    struct number_tally sum = *tally;

    for (; end - text >= 64; text += 64)
        count_block(_mm512_loadu_si512(text), &sum);
    count_block(_mm512_maskz_loadu_epi8(
                    _bzhi_u64(~(uint64_t)0, (unsigned)(end - text)), text),
                &sum);
    *tally = sum;
}

#endif
