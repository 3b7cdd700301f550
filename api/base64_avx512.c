#include "api/base64_levels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define ISA __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))

enum { BYTES = 48, CHARACTERS = 64 };

static const char alphabet[CHARACTERS + 1] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Where each byte of the result comes from, of words of 24 bits, the highest
 * byte first. */
ISA static __m512i packing(void)
{
    uint8_t from[64] = { 0 };

    for (int i = 0; i < BYTES; i++)
        from[i] = (uint8_t)(i / 3 * 4 + 2 - i % 3);
    return _mm512_loadu_si512(from);
}

/* The same the other way: of three bytes a, b, c the word b, a, c, b, in which
 * each of the four characters' bits are next to each other. */
ISA static __m512i spreading(void)
{
    static const uint8_t order[4] = { 1, 0, 2, 1 };
    uint8_t from[64];

    for (int i = 0; i < CHARACTERS; i++)
        from[i] = (uint8_t)(i / 4 * 3 + order[i % 4]);
    return _mm512_loadu_si512(from);
}

/* The values of the characters below 128; what has none has the highest bit. */
ISA static void make_values(__m512i *low, __m512i *high)
{
    uint8_t values[128];

    for (int i = 0; i < 128; i++)
        values[i] = 0x80;
    for (uint8_t i = 0; i < CHARACTERS; i++)
        values[(uint8_t)alphabet[i]] = i;
    *low = _mm512_loadu_si512(values);
    *high = _mm512_loadu_si512(values + 64);
}

ISA size_t base64_decode_avx512(const char *text, size_t bytes, uint8_t *out)
{
    const __mmask64 result = ((__mmask64)1 << BYTES) - 1;
    const __m512i pack = packing();
    __m512i low, high;
    size_t done = 0;

    make_values(&low, &high);
    for (; bytes - done >= BYTES; done += BYTES, text += CHARACTERS) {
        __m512i c = _mm512_loadu_si512(text);
        __m512i v = _mm512_permutex2var_epi8(low, c, high);

        if (_mm512_movepi8_mask(_mm512_or_si512(v, c)) != 0)
            break;
        v = _mm512_maddubs_epi16(v, _mm512_set1_epi32(0x01400140));
        v = _mm512_madd_epi16(v, _mm512_set1_epi32(0x00011000));
        v = _mm512_permutexvar_epi8(pack, v);
        _mm512_mask_storeu_epi8(out + done, result, v);
    }
    return done;
}

ISA size_t base64_encode_avx512(const uint8_t *data, size_t bytes, char *out)
{
    const __mmask64 source = ((__mmask64)1 << BYTES) - 1;
    const __m512i spread = spreading();
    const __m512i letters = _mm512_loadu_si512(alphabet);
    /* Of the word b, a, c, b, from its lowest bit: where each character's six
     * bits begin. */
    const __m512i shifts = _mm512_set1_epi64(0x3036242A1016040A);
    size_t done = 0;

    for (; bytes - done >= BYTES; done += BYTES, out += CHARACTERS) {
        __m512i v = _mm512_maskz_loadu_epi8(source, data + done);

        v = _mm512_permutexvar_epi8(spread, v);
        v = _mm512_multishift_epi64_epi8(shifts, v);
        _mm512_storeu_si512(out, _mm512_permutexvar_epi8(v, letters));
    }
    return done;
}

#endif
