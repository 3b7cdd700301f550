#include "api/number_run.h"

#if defined(__x86_64__)

#include "api/number_parts.h"

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

/* As in number_read_avx512.c. No pext, which older processors have in microcode
 * only. */
#define ISA __attribute__((target("avx2,fma,bmi,bmi2,lzcnt,popcnt")))

enum { WORDS = 1 };
typedef uint64_t word;

ISA INLINE word next_byte(word mask, word *was)
{
    word next = mask << 1 | *was >> 63;

    *was = mask;
    return next;
}

ISA INLINE word behind_runs(word starts, word run, unsigned *carry)
{
    unsigned long long sum;

    /* where a run goes on, none can start */
    *carry = __builtin_uaddll_overflow(starts | *carry, run, &sum);
    return sum & ~run;
}

#include "api/number_index.h"

struct block {
    __m256i low, high;
};

ISA INLINE uint64_t mask_of(__m256i low, __m256i high)
{
    return (uint32_t)_mm256_movemask_epi8(low) |
           (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32;
}

ISA INLINE uint64_t equal(struct block text, char c)
{
    const __m256i all = _mm256_set1_epi8(c);

    return mask_of(_mm256_cmpeq_epi8(text.low, all),
                   _mm256_cmpeq_epi8(text.high, all));
}

ISA INLINE struct block with_bits(struct block text, char bits)
{
    const __m256i all = _mm256_set1_epi8(bits);

    return (struct block){ _mm256_or_si256(text.low, all),
                           _mm256_or_si256(text.high, all) };
}

ISA INLINE uint64_t digits(struct block text)
{
    const __m256i zero = _mm256_set1_epi8('0'), nine = _mm256_set1_epi8(9);
    __m256i low = _mm256_sub_epi8(text.low, zero);
    __m256i high = _mm256_sub_epi8(text.high, zero);

    return mask_of(_mm256_cmpeq_epi8(_mm256_min_epu8(low, nine), low),
                   _mm256_cmpeq_epi8(_mm256_min_epu8(high, nine), high));
}

/* White space by its lower four bits. */
ISA INLINE uint64_t spaces(struct block text)
{
    const __m256i space = _mm256_setr_epi8(
        ' ', 0, 0, 0, 0, 0, 0, 0, 0, '\t', '\n', 0, 0, '\r', 0, 0,
        ' ', 0, 0, 0, 0, 0, 0, 0, 0, '\t', '\n', 0, 0, '\r', 0, 0);

    return mask_of(
        _mm256_cmpeq_epi8(_mm256_shuffle_epi8(space, text.low), text.low),
        _mm256_cmpeq_epi8(_mm256_shuffle_epi8(space, text.high), text.high));
}

struct masks {
    struct classes classes;
};

/* What is behind the text is of no class. */
ISA INLINE struct block load_block(const char *text, size_t len)
{
    char spare[64] = "";

    if (len < sizeof spare) {
        memcpy(spare, text, len);
        text = spare;
    }
    return (struct block){
        _mm256_loadu_si256((const void *)text),
        _mm256_loadu_si256((const void *)(text + 32)),
    };
}

ISA INLINE void find_masks(struct masks *m, const char *at, size_t len,
                           bool rows)
{
    struct block text = load_block(at, len);

    m->classes = (struct classes){
        .digit = digits(text),
        .zero = equal(text, '0'),
        .minus = equal(text, '-'),
        .plus = equal(text, '+'),
        .point = equal(text, '.'),
        .e = equal(with_bits(text, 0x20), 'e'),
        .space = spaces(text),
        .comma = equal(text, ','),
        .open = rows ? equal(text, '[') : 0,
        .close = rows ? equal(text, ']') : 0,
    };
}

ISA INLINE struct classes classify(const struct masks *m, bool rows)
{
    (void)rows;
    return m->classes;
}

ISA INLINE bool any(word mask)
{
    return mask != 0;
}

ISA INLINE void store_word(uint64_t *to, word mask)
{
    *to = mask;
}

/* Appends the positions of the bits, `base` added. Four at a time, since a
 * wrong guess of how many costs more than a few too many. */
ISA INLINE size_t store_positions(uint16_t *at, uint64_t mask, size_t base)
{
    size_t count = (size_t)__builtin_popcountll(mask);

    for (size_t i = 0; i < count; i += 4) {
        for (size_t j = i; j < i + 4; j++) {
            at[j] = (uint16_t)(base + _tzcnt_u64(mask));
            mask = _blsr_u64(mask);
        }
    }
    return count;
}

ISA INLINE void store_parts(struct index *index, struct cursors *n,
                            const struct part_words *words, size_t i,
                            size_t base)
{
    uint16_t *tail = index->tail + n->tail, *end = index->end + n->end;
    size_t count = store_positions(tail, words->tail[i], base);

    if (words->exponents)
        store_positions(end, words->end[i], base);
    else
        for (size_t j = 0; j < count; j += 4)
            memcpy(end + j, tail + j, 4 * sizeof *end);
    n->tail += count;
    n->start += store_positions(index->start + n->start, words->start[i], base);
    n->point += store_positions(index->point + n->point, words->point[i], base);
}

/* The eight bytes before each of four positions. */
ISA INLINE __m256i load_before(const char *text, const uint16_t *at, int less)
{
    const char *p = text - 8 - less;
    __m128i low = _mm_loadl_epi64((const void *)(p + at[0]));
    __m128i high = _mm_loadl_epi64((const void *)(p + at[2]));

    low = _mm_castps_si128(_mm_loadh_pi(_mm_castsi128_ps(low),
                                        (const void *)(p + at[1])));
    high = _mm_castps_si128(_mm_loadh_pi(_mm_castsi128_ps(high),
                                         (const void *)(p + at[3])));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

/* The last `count` of eight characters as digits, zeros before them. */
ISA INLINE __m256i last_digits(__m256i text, __m256i count)
{
    __m256i others = _mm256_sub_epi64(
        _mm256_set1_epi64x(64), _mm256_slli_epi64(count, 3));
    __m256i keep = _mm256_sllv_epi64(_mm256_set1_epi64x(-1),
                                     _mm256_max_epi32(others,
                                                      _mm256_setzero_si256()));

    return _mm256_and_si256(keep,
                            _mm256_subs_epu8(text, _mm256_set1_epi8('0')));
}

/* The first character of the last `count` of eight. */
ISA INLINE __m256i first_of(__m256i text, __m256i count)
{
    __m256i others = _mm256_sub_epi64(_mm256_set1_epi64x(64),
                                      _mm256_slli_epi64(count, 3));

    return _mm256_and_si256(_mm256_srlv_epi64(text, others),
                            _mm256_set1_epi64x(0xff));
}

ISA INLINE __m256i fours(__m256i digits_of)
{
    __m256i twos = _mm256_maddubs_epi16(digits_of,
                                        _mm256_set1_epi16(1 << 8 | 10));

    return _mm256_madd_epi16(twos, _mm256_set1_epi32(1 << 16 | 100));
}

/* Four times eight digits of a, and of b, as integers: a's, then b's. */
ISA INLINE __m256i eights(__m256i a, __m256i b)
{
    __m256i both = _mm256_madd_epi16(
        _mm256_packus_epi32(fours(a), fours(b)),
        _mm256_set1_epi32(1 << 16 | 10000));

    return _mm256_permute4x64_epi64(both, 0xd8);
}

ISA INLINE __m256d doubles_of(__m256i eights_of, int half)
{
    return _mm256_cvtepi32_pd(half == 0
                                  ? _mm256_castsi256_si128(eights_of)
                                  : _mm256_extracti128_si256(eights_of, 1));
}

ISA INLINE __m256i load_positions(const uint16_t *at)
{
    return _mm256_cvtepu16_epi64(_mm_loadl_epi64((const void *)at));
}

ISA INLINE __m256d load_powers(const double *table, __m256i exponent)
{
    return _mm256_i64gather_pd(table - TENS_LOW, exponent, 8);
}

/* What stands behind the 'e' of those that have one; all bits of *unsure where
 * that has more than 3 digits or is beyond the table. */
ISA INLINE __m256i exponents(const char *text, const uint16_t *at,
                             __m256i tail, __m256i end, __m256i *unsure)
{
    const __m256i one = _mm256_set1_epi64x(1);
    __m256i length = _mm256_sub_epi64(_mm256_sub_epi64(end, tail), one);
    __m256i raw = load_before(text, at, 0);
    __m256i first = first_of(raw, length);
    __m256i minus = _mm256_cmpeq_epi64(first, _mm256_set1_epi64x('-'));
    __m256i sign = _mm256_cmpgt_epi64(_mm256_set1_epi64x('0'), first);
    __m256i count = _mm256_sub_epi64(length, _mm256_and_si256(sign, one));
    __m256i value = _mm256_srli_epi64(fours(last_digits(raw, count)), 32);
    __m256i far;

    value = _mm256_sub_epi64(_mm256_xor_si256(value, minus), minus);
    far = _mm256_or_si256(
        _mm256_cmpgt_epi64(_mm256_set1_epi64x(TENS_LOW), value),
        _mm256_cmpgt_epi64(value, _mm256_set1_epi64x(TENS_HIGH)));
    far = _mm256_or_si256(far,
                          _mm256_cmpgt_epi64(count, _mm256_set1_epi64x(3)));
    *unsure = _mm256_or_si256(*unsure, far);
    return _mm256_andnot_si256(far, value);
}

/* Four numbers, a lane each. */
struct four {
    __m256d whole, high, middle, low; /* the integer part, 24 digits behind */
    __m256i power;         /* of the last of them */
    __m256i exponent;      /* behind the 'e' */
    __m256i minus, unsure; /* all bits or none */
    bool exponential;      /* one of them has an 'e' */
};

/* Both parts of a number are read by themselves, so no point has to be taken
 * out: 8 characters before it, 24 digits behind. */
ISA INLINE struct four read_four(const char *text, const struct index *index,
                                 size_t i)
{
    const __m256i one = _mm256_set1_epi64x(1), zero = _mm256_setzero_si256();
    __m256i point = load_positions(index->point + i);
    __m256i tail = load_positions(index->tail + i);
    __m256i end = load_positions(index->end + i);
    __m256i whole = _mm256_sub_epi64(point, load_positions(index->start + i));
    __m256i fraction = _mm256_max_epi32(
        _mm256_sub_epi64(_mm256_sub_epi64(tail, point), one), zero);
    __m256i before = load_before(text, index->point + i, 0);
    __m256i outer = eights(
        last_digits(before, whole),
        last_digits(load_before(text, index->tail + i, 16),
                    _mm256_sub_epi64(fraction, _mm256_set1_epi64x(16))));
    __m256i inner = eights(
        last_digits(load_before(text, index->tail + i, 8),
                    _mm256_sub_epi64(fraction, _mm256_set1_epi64x(8))),
        last_digits(load_before(text, index->tail + i, 0), fraction));
    __m256i exponential = _mm256_xor_si256(tail, end);
    struct four f = {
        .whole = doubles_of(outer, 0),
        .high = doubles_of(outer, 1),
        .middle = doubles_of(inner, 0),
        .low = doubles_of(inner, 1),
        .power = _mm256_sub_epi64(
            zero, _mm256_min_epi32(fraction, _mm256_set1_epi64x(-TENS_LOW))),
        .minus = _mm256_cmpeq_epi64(first_of(before, whole),
                                    _mm256_set1_epi64x('-')),
        .unsure = _mm256_or_si256(
            _mm256_cmpgt_epi64(whole, _mm256_set1_epi64x(8)),
            _mm256_cmpgt_epi64(fraction, _mm256_set1_epi64x(24))),
        .exponential = !_mm256_testz_si256(exponential, exponential),
    };

    if (f.exponential)
        f.exponent = exponents(text, index->end + i, tail, end, &f.unsure);
    return f;
}

ISA INLINE __m256d with_sign(const struct four *f, __m256d value)
{
    return _mm256_or_pd(value, _mm256_and_pd(_mm256_castsi256_pd(f->minus),
                                             _mm256_set1_pd(-0.0)));
}

/* Of the true value the fraction errs by at most 2^-53 for each of its two sums
 * and its power, the sum with the integer by another, an exponent by two: less
 * than 7 units of the double's last place. With no tie of float32 that near,
 * rounding the double is rounding the decimal. */
ISA INLINE unsigned convert_f32(const char *text, const struct index *index,
                                size_t i, float *out)
{
    const __m256d scale = _mm256_set1_pd(1e8);
    struct four f = read_four(text, index, i);
    __m256d fraction = _mm256_fmadd_pd(
        _mm256_fmadd_pd(f.high, scale, f.middle), scale, f.low);
    __m256d value = _mm256_fmadd_pd(
        fraction, load_powers(number_tens_f64, f.power), f.whole);

    if (f.exponential)
        value = _mm256_mul_pd(value, load_powers(number_tens_f64, f.exponent));

    __m256i from_tie = _mm256_abs_epi32(_mm256_sub_epi32(
        _mm256_and_si256(_mm256_castpd_si256(value),
                         _mm256_set1_epi64x((1 << 29) - 1)),
        _mm256_set1_epi64x(1 << 28)));
    __m256i near = _mm256_cmpgt_epi64(_mm256_set1_epi64x(8), from_tie);
    __m256d small = _mm256_andnot_pd(
        _mm256_cmp_pd(value, _mm256_setzero_pd(), _CMP_EQ_OQ),
        _mm256_cmp_pd(value, _mm256_set1_pd(0x1p-126), _CMP_LT_OQ));
    __m256d large = _mm256_cmp_pd(value, _mm256_set1_pd(0x1.fffffep127),
                                  _CMP_GT_OQ);

    _mm_storeu_ps(out, _mm256_cvtpd_ps(with_sign(&f, value)));
    return (unsigned)_mm256_movemask_pd(_mm256_or_pd(
        _mm256_castsi256_pd(_mm256_or_si256(f.unsure, near)),
        _mm256_or_pd(small, large)));
}

/* A sum of two doubles that says more than one can. */
struct sum {
    __m256d high, low;
};

/* The product as rounded: gcc would fuse it with a sum that it goes into. */
ISA INLINE __m256d product_of(__m256d a, __m256d b)
{
    __m256d product = _mm256_mul_pd(a, b);

    __asm__("" : "+x"(product));
    return product;
}

/* `high` is not the smaller one. */
ISA INLINE struct sum add(__m256d high, __m256d low)
{
    __m256d both = _mm256_add_pd(high, low);

    return (struct sum){ both, _mm256_sub_pd(low, _mm256_sub_pd(both, high)) };
}

ISA INLINE struct sum multiply(struct sum a, __m256i power)
{
    __m256d high = load_powers(number_tens_f64, power);
    __m256d rest = load_powers(number_tens_rest, power);
    __m256d product = product_of(a.high, high);
    __m256d low = _mm256_fmadd_pd(
        a.low, high,
        _mm256_fmadd_pd(a.high, rest,
                        _mm256_fmsub_pd(a.high, high, product)));

    return add(product, low);
}

/* The digits behind the point, exactly, when the first 16 are below 2^53. */
ISA INLINE struct sum add_digits(const struct four *f, __m256d *unsure)
{
    const __m256d scale = _mm256_set1_pd(1e8);
    __m256d first = _mm256_fmadd_pd(f->high, scale, f->middle);
    __m256d product = product_of(first, scale);
    struct sum digits = add(product, f->low);

    *unsure = _mm256_or_pd(*unsure, _mm256_cmp_pd(first, _mm256_set1_pd(0x1p53),
                                                  _CMP_GE_OQ));
    digits.low = _mm256_add_pd(digits.low,
                               _mm256_fmsub_pd(first, scale, product));
    return digits;
}

/* An integer part is 0 or more than any fraction. */
ISA INLINE struct sum add_whole(__m256d whole, struct sum fraction)
{
    __m256d none = _mm256_cmp_pd(whole, _mm256_setzero_pd(), _CMP_EQ_OQ);
    struct sum both = add(whole, fraction.high);

    both = add(both.high, _mm256_add_pd(both.low, fraction.low));
    return (struct sum){ _mm256_blendv_pd(both.high, fraction.high, none),
                         _mm256_blendv_pd(both.low, fraction.low, none) };
}

/* The products err by a few 2^-105 of themselves, and the exponents keep all of
 * it far from the ends of a double's range. When 2^-98 more or less rounds to
 * the same, so does the decimal. */
ISA INLINE unsigned convert_f64(const char *text, const struct index *index,
                                size_t i, double *out)
{
    struct four f = read_four(text, index, i);
    __m256d unsure = _mm256_castsi256_pd(f.unsure);
    struct sum value = add_whole(
        f.whole, multiply(add_digits(&f, &unsure), f.power));

    if (f.exponential)
        value = multiply(value, f.exponent);

    __m256d error = _mm256_mul_pd(value.high, _mm256_set1_pd(0x1p-98));
    __m256d above = _mm256_add_pd(value.high,
                                  _mm256_add_pd(value.low, error));
    __m256d under = _mm256_add_pd(value.high,
                                  _mm256_sub_pd(value.low, error));

    _mm256_storeu_pd(out, with_sign(&f, value.high));
    return (unsigned)_mm256_movemask_pd(
        _mm256_or_pd(unsure, _mm256_cmp_pd(above, under, _CMP_NEQ_OQ)));
}

enum { GROUP = 4, BEFORE = 24, BEHIND = 0 };

#include "api/number_chunk.h"

READ_ENTRY(number_read_avx2_f32, float, read_runs_f32)
READ_ENTRY(number_read_avx2_f64, double, read_runs_f64)

ISA INLINE int64_t count_of(struct block text, char c)
{
    return __builtin_popcountll(equal(text, c));
}

ISA void number_count_avx2(const char *text, const char *end,
                           struct number_tally *tally)
{
    while (text < end) {
        size_t len = (size_t)(end - text) < 64 ? (size_t)(end - text) : 64;
        struct block x = load_block(text, len);
        struct block brackets = with_bits(x, 0x20);

        tally->commas += (size_t)count_of(x, ',');
        tally->open += count_of(brackets, '{') - count_of(brackets, '}');
        text += len;
    }
}

#endif
