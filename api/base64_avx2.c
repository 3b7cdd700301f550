#include "api/base64_levels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define ISA __attribute__((target("avx2")))

enum { BYTES = 24, CHARACTERS = 32, READ_BYTES = 28 };

/* The sixteen entries in both halves. */
#define TABLE(...) _mm256_broadcastsi128_si256(_mm_setr_epi8(__VA_ARGS__))

/* A character has a value unless a kind that its high digit is of excludes its
 * low digit: 1 for 2x (all but B and F), 2 for 3x (A to F), 4 for 4x and 6x (0),
 * 8 for 5x and 7x (B to F), 16 for the others (all). */
ISA static int is_sound(__m256i low, __m256i high)
{
    const __m256i kinds = TABLE(16, 16, 1, 2, 4, 8, 4, 8, 16, 16, 16, 16, 16,
                                16, 16, 16);
    const __m256i excluded = TABLE(0x15, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11,
                                   0x11, 0x11, 0x11, 0x13, 0x1A, 0x1B, 0x1B,
                                   0x1B, 0x1A);

    return _mm256_testz_si256(_mm256_shuffle_epi8(kinds, high),
                              _mm256_shuffle_epi8(excluded, low));
}

/* What makes a value of a character, by its high digit; '/' alone differs from
 * the other of its digit and takes the place before. */
ISA static __m256i values_of(__m256i c, __m256i high)
{
    const __m256i add = TABLE(0, 16, 19, 4, -65, -65, -71, -71, 0, 0, 0, 0, 0,
                              0, 0, 0);
    __m256i slash = _mm256_cmpeq_epi8(c, _mm256_set1_epi8('/'));

    return _mm256_add_epi8(
        c, _mm256_shuffle_epi8(add, _mm256_add_epi8(high, slash)));
}

/* 32 values of six bits to 24 bytes in front. */
ISA static __m256i pack(__m256i v)
{
    const __m256i order = TABLE(2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13, 12, -1, -1,
                                -1, -1);

    v = _mm256_maddubs_epi16(v, _mm256_set1_epi32(0x01400140));
    v = _mm256_madd_epi16(v, _mm256_set1_epi32(0x00011000));
    v = _mm256_shuffle_epi8(v, order);
    return _mm256_permutevar8x32_epi32(
        v, _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7));
}

ISA size_t base64_decode_avx2(const char *text, size_t bytes, uint8_t *out)
{
    const __m256i digit = _mm256_set1_epi8(15);
    const __m256i result = _mm256_setr_epi32(-1, -1, -1, -1, -1, -1, 0, 0);
    size_t done = 0;

    for (; bytes - done >= BYTES; done += BYTES, text += CHARACTERS) {
        __m256i c = _mm256_loadu_si256((const __m256i *)text);
        __m256i low = _mm256_and_si256(c, digit);
        __m256i high = _mm256_and_si256(_mm256_srli_epi16(c, 4), digit);

        if (!is_sound(low, high))
            break;
        _mm256_maskstore_epi32((int *)(out + done), result,
                               pack(values_of(c, high)));
    }
    return done;
}

/* 24 bytes, of which each half has 12 in front, to 32 values of six bits: of
 * three bytes a, b, c the word b, a, c, b, whose characters are moved to their
 * bytes by multiplying, the first and third to the right, the others to the
 * left. */
ISA static __m256i spread(__m256i v)
{
    const __m256i order = TABLE(1, 0, 2, 1, 4, 3, 5, 4, 7, 6, 8, 7, 10, 9, 11,
                                10);
    __m256i odd, even;

    v = _mm256_shuffle_epi8(v, order);
    even = _mm256_mulhi_epu16(
        _mm256_and_si256(v, _mm256_set1_epi32(0x0FC0FC00)),
        _mm256_set1_epi32(0x04000040));
    odd = _mm256_mullo_epi16(
        _mm256_and_si256(v, _mm256_set1_epi32(0x003F03F0)),
        _mm256_set1_epi32(0x01000010));
    return _mm256_or_si256(even, odd);
}

/* What makes a character of a value: of 26 to 51 at 0, of 52 to 63 behind it, of
 * 0 to 25 at 13. */
ISA static __m256i characters_of(__m256i v)
{
    const __m256i add = TABLE('a' - 26, -4, -4, -4, -4, -4, -4, -4, -4, -4, -4,
                              '+' - 62, '/' - 63, 'A', 0, 0);
    __m256i place = _mm256_subs_epu8(v, _mm256_set1_epi8(51));
    __m256i capital = _mm256_cmpgt_epi8(_mm256_set1_epi8(26), v);

    place = _mm256_or_si256(
        place, _mm256_and_si256(capital, _mm256_set1_epi8(13)));
    return _mm256_add_epi8(v, _mm256_shuffle_epi8(add, place));
}

ISA size_t base64_encode_avx2(const uint8_t *data, size_t bytes, char *out)
{
    size_t done = 0;

    for (; bytes - done >= READ_BYTES; done += BYTES, out += CHARACTERS) {
        const uint8_t *at = data + done;
        __m256i v = _mm256_set_m128i(
            _mm_loadu_si128((const __m128i *)(at + BYTES / 2)),
            _mm_loadu_si128((const __m128i *)at));

        _mm256_storeu_si256((__m256i *)out, characters_of(spread(v)));
    }
    return done;
}

#endif
