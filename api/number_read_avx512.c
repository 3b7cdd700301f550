#include "api/number_run.h"

#if defined(__x86_64__)

#include "api/number.h"
#include "api/number_index.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

/* Every function wears its instruction set, so that nothing here can be inlined
 * into code that runs before the processor was asked. */
#define ISA                                                                    \
    __attribute__((target("avx2,fma,bmi,bmi2,lzcnt,popcnt,avx512f,avx512bw," \
                          "avx512dq,avx512vl,avx512vbmi,avx512vbmi2")))

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

ISA INLINE struct classes classify(__m512i text, bool rows)
{
    /* white space by its lower four bits */
    const __m512i space = _mm512_broadcast_i32x4(_mm_setr_epi8(
        ' ', 0, 0, 0, 0, 0, 0, 0, 0, '\t', '\n', 0, 0, '\r', 0, 0));

    return (struct classes){
        .digit = _mm512_cmplt_epu8_mask(_mm512_sub_epi8(text, bytes('0')),
                                        bytes(10)),
        .zero = _mm512_cmpeq_epi8_mask(text, bytes('0')),
        .minus = _mm512_cmpeq_epi8_mask(text, bytes('-')),
        .plus = _mm512_cmpeq_epi8_mask(text, bytes('+')),
        .point = _mm512_cmpeq_epi8_mask(text, bytes('.')),
        .e = _mm512_cmpeq_epi8_mask(_mm512_or_si512(text, bytes(0x20)),
                                    bytes('e')),
        .space = _mm512_cmpeq_epi8_mask(_mm512_shuffle_epi8(space, text), text),
        .comma = _mm512_cmpeq_epi8_mask(text, bytes(',')),
        .open = rows ? _mm512_cmpeq_epi8_mask(text, bytes('[')) : 0,
        .close = rows ? _mm512_cmpeq_epi8_mask(text, bytes(']')) : 0,
    };
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

struct cursors {
    size_t start, point, tail, end;
};

ISA INLINE void store_parts(struct index *index, struct cursors *n,
                            const struct parts *parts, bool exponents,
                            size_t base)
{
    uint64_t minus = _pext_u64(parts->minus, parts->start);
    __m512i tail = positions(parts->tail, base);

    _mm256_storeu_si256((void *)(index->minus + n->start),
                        _mm256_movm_epi8((__mmask32)minus));
    _mm512_storeu_si512(index->start + n->start,
                        positions(parts->start, base));
    _mm512_storeu_si512(index->point + n->point,
                        positions(parts->point, base));
    _mm512_storeu_si512(index->tail + n->tail, tail);
    _mm512_storeu_si512(index->end + n->end,
                        exponents ? positions(parts->end, base) : tail);
    n->start += (size_t)__builtin_popcountll(parts->start);
    n->point += (size_t)__builtin_popcountll(parts->point);
    n->tail += (size_t)__builtin_popcountll(parts->tail);
    n->end += (size_t)__builtin_popcountll(parts->end);
}

ISA INLINE __m512i load_block(const char *p, size_t len)
{
    return len >= 64 ? _mm512_loadu_si512(p)
                     : _mm512_maskz_loadu_epi8(_bzhi_u64(~(uint64_t)0,
                                                         (unsigned)len), p);
}

/* Indexes the numbers that end in the next INDEX_BYTES. What can't be told from
 * them is left: the next chunk begins with it. */
ISA INLINE void find_chunk(struct index *index, const struct number_run *run,
                           bool rows)
{
    size_t len = (size_t)(run->end - run->at), row = run->row;
    size_t full = !rows ? 0
                  : run->count == 0 ? row
                                    : (run->count + row - 1) / row * row;
    struct carries was = { .before_number = run->count == 0,
                           .behind_number = run->count != 0 };
    struct cursors n = { 0 };
    size_t base = 0;

    index->stopped = false;
    do {
        struct parts parts;
        struct classes c = classify(load_block(run->at + base, len - base),
                                    rows);

        find_numbers(&c, &was, &parts);
        if (rows)
            check_brackets(&c, &was, &parts);
        else
            check_commas(&c, &was, &parts);

        bool exponents = parts.tail != parts.end;

        if (rows || (parts.flaws | parts.stops) != 0) {
            uint64_t wrong = parts.flaws | parts.stops;
            uint64_t good = good_ends(&parts);

            index->stopped = wrong != 0;
            if (rows && (c.close & below(wrong)) != 0 &&
                !check_rows(&parts, c.close & below(wrong),
                            run->count + n.end, row, &full, &good))
                index->stopped = true;
            parts.end = good;
        }
        store_parts(index, &n, &parts, exponents, base);
        base += 64;
    } while (!index->stopped && base < INDEX_BYTES);
    index->count = n.end;
    if (rows && run->count + n.end > full) {
        index->count = full - run->count;
        index->stopped = true;
    }
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
ISA INLINE __m256 round_f32(const struct eight *e, __mmask8 *unsure)
{
    const __m512d scale = _mm512_set1_pd(1e8);
    const __m512d least = _mm512_set1_pd(0x1p-126);
    const __m512d most = _mm512_set1_pd(0x1.fffffep127);
    const __m512i below = _mm512_set1_epi64((1 << 29) - 1);
    const __m512i tie = _mm512_set1_epi64((1 << 28) - 5);
    __m512d digits = _mm512_fmadd_pd(_mm512_fmadd_pd(e->high, scale, e->middle),
                                     scale, e->low);
    __m256i row = _mm256_sub_epi32(e->exponent, _mm256_set1_epi32(TENS_LOW));
    __mmask8 outside = _mm256_cmpgt_epu32_mask(
        row, _mm256_set1_epi32(TENS_HIGH - TENS_LOW));
    __m512d power = _mm512_i32gather_pd(
        _mm256_maskz_mov_epi32((__mmask8)~outside, row), number_tens_f64, 8);
    __m512d value = _mm512_mul_pd(digits, power);
    __m512i rest = _mm512_and_si512(_mm512_castpd_si512(value), below);
    __mmask8 near = _mm512_cmple_epu64_mask(_mm512_sub_epi64(rest, tie),
                                            _mm512_set1_epi64(10));
    __mmask8 zero = _mm512_cmp_pd_mask(value, _mm512_setzero_pd(), _CMP_EQ_OQ);
    __mmask8 small = _mm512_cmp_pd_mask(value, least, _CMP_LT_OQ);
    __mmask8 large = _mm512_cmp_pd_mask(value, most, _CMP_GT_OQ);
    __m256i sign = _mm256_maskz_set1_epi32(e->minus, INT32_MIN);

    *unsure = e->unsure | outside | near | (__mmask8)(small & ~zero) | large;
    return _mm256_castsi256_ps(_mm256_xor_si256(
        _mm256_castps_si256(_mm512_cvtpd_ps(value)), sign));
}

/* Numbers whose 32 bytes, and the 4 behind an 'e', are within the text. */
INLINE size_t within(const struct index *index, size_t len)
{
    size_t n = index->count;

    while (n > 0 && ((size_t)index->start[n - 1] + 32 > len ||
                     (size_t)index->end[n - 1] + 8 > len))
        n--;
    return n;
}

INLINE void pad(struct index *index, size_t count)
{
    for (size_t i = count; i % 8 != 0; i++) {
        index->start[i] = index->start[count - 1];
        index->point[i] = index->point[count - 1];
        index->tail[i] = index->tail[count - 1];
        index->end[i] = index->end[count - 1];
    }
}

/* One by one those that eight at a time left open. Returns the count, or less:
 * up to the first infinity. */
static __attribute__((noinline, cold)) size_t
settle_f32(const char *text, const char *end, const uint16_t *start,
           unsigned unsure, float *out, size_t count)
{
    for (; unsure != 0; unsure &= unsure - 1) {
        size_t i = (size_t)__builtin_ctz(unsure);

        number_read_f32(text + start[i], end, out + i);
        if (isinf(out[i]))
            return i + 1;
    }
    return count;
}

/* The first `count` of the index, at least 1. */
ISA static bool chunk_f32(struct number_run *run, float *out,
                          struct index *index, size_t count)
{
    const char *text = run->at;
    size_t done = 0;

    while (done < count) {
        struct eight e = read_eight(text, index, done);
        size_t n = count - done < 8 ? count - done : 8;
        __mmask8 lanes = (__mmask8)((1 << n) - 1), unsure;
        __m256 values = round_f32(&e, &unsure);

        _mm256_mask_storeu_ps(out + done, lanes, values);
        unsure &= lanes;
        if (__builtin_expect(unsure != 0, 0)) {
            size_t good = settle_f32(text, run->end, index->start + done,
                                     unsure, out + done, n);

            if (good < n || isinf(out[done + n - 1])) {
                done += good;
                index->stopped = true;
                break;
            }
        }
        done += n;
    }
    run->count += done;
    run->at = text + index->end[done - 1];
    return !index->stopped;
}

ISA INLINE void read_runs_f32(struct number_run *run, float *out, bool rows)
{
    struct index index;

    for (;;) {
        size_t room = run->room - run->count, count;

        find_chunk(&index, run, rows);
        count = within(&index, (size_t)(run->end - run->at));
        if (count > room)
            count = room;
        if (count == 0)
            return;
        pad(&index, count);
        if (count < index.count)
            index.stopped = true;
        if (!chunk_f32(run, out + run->count, &index, count))
            return;
    }
}

ISA void number_read_avx512_f32(struct number_run *run, float *out)
{
    if (run->row != 0)
        read_runs_f32(run, out, true);
    else
        read_runs_f32(run, out, false);
}

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
    count_block(load_block(text, (size_t)(end - text)), &sum);
    *tally = sum;
}

#endif
