#ifndef CORE_KERNELS_DROP_H
#define CORE_KERNELS_DROP_H

/* Dropout of a row, written once and compiled by each level's file, as rows.h
 * is: LANES blocks of the generator at a time, 0.4 ns a word with AVX-512 where
 * one block after another takes 3.8. The file defines, beside what rows.h asks
 * for:
 *
 *     lanes_word high_products(lanes_word x, uint32_t by);
 *             the upper halves of products of 64 bits */

#include "core/kernels/rows.h"
#include "core/philox.h"

/* As philox_block() does, for LANES blocks at once. */
INLINE void philox_lanes(lanes_word c[4], uint64_t seed)
{
    static const uint32_t by[2] = PHILOX_MULTIPLIERS;
    static const uint32_t increment[2] = PHILOX_INCREMENTS;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        lanes_word p = high_products(c[0], by[0]), low_p = c[0] * by[0];
        lanes_word q = high_products(c[2], by[1]), low_q = c[2] * by[1];

        c[0] = q ^ c[1] ^ k0;
        c[1] = low_q;
        c[2] = p ^ c[3] ^ k1;
        c[3] = low_p;
        k0 += increment[0];
        k1 += increment[1];
    }
}

/* a[0] b[0] a[1] b[1] ..., the first half of it or the other. */
INLINE lanes_word zip(lanes_word a, lanes_word b, uint32_t side)
{
    lanes_word at;

    _Pragma("GCC unroll 16")
    for (uint32_t i = 0; i < LANES; i++)
#if __has_builtin(__builtin_shuffle)
        at[i] = side * HALF + i / 2 + i % 2 * LANES;
    return __builtin_shuffle(a, b, at);
#else /* clang, which the fuzzers are built with */
        at[i] = (i % 2 == 0 ? a : b)[side * HALF + i / 2];
    return at;
#endif
}

typedef lanes_word words_at __attribute__((aligned(4), may_alias));

/* The words of LANES blocks, in their order. */
INLINE void philox_words_lanes(uint64_t seed, uint64_t block, uint32_t *out)
{
    lanes_word c[4] = { { 0 }, { 0 }, { 0 }, { 0 } };

    _Pragma("GCC unroll 16")
    for (uint32_t i = 0; i < LANES; i++)
        c[0][i] = i;
    c[0] += (uint32_t)block;
    c[1] = (uint32_t)(block >> 32) -
           (lanes_word)(c[0] < (uint32_t)block); /* true is -1 */
    philox_lanes(c, seed);
    _Pragma("GCC unroll 2")
    for (uint32_t side = 0; side < 2; side++) {
        lanes_word even = zip(c[0], c[2], side), odd = zip(c[1], c[3], side);

        *(words_at *)(out + side * 2 * LANES) = zip(even, odd, 0);
        *(words_at *)(out + side * 2 * LANES + LANES) = zip(even, odd, 1);
    }
}

INLINE lanes keep_above(lanes x, lanes_word words, uint32_t last)
{
    return (lanes)((lanes_word)x & (lanes_word)(words > last));
}

ISA static void drop_row(float *row, int64_t n, uint64_t seed, uint64_t first,
                         uint32_t last)
{
    enum { WORDS = 4 * LANES, PART = 4 * WORDS };
    uint32_t words[PART + WORDS];
    const int64_t skipped = (int64_t)(first % 4);
    const uint32_t *word = words + skipped;

    for (int64_t part; n > 0; n -= part, row += part, first += PART) {
        int64_t j = 0;

        part = n < PART ? n : PART;
        for (int64_t i = 0; i < part + skipped; i += WORDS)
            philox_words_lanes(seed, (first + (uint64_t)i) / 4, words + i);
        for (; j + LANES <= part; j += LANES)
            store(row + j, keep_above(load(row + j),
                                      *(const words_at *)(word + j), last));
        if (j < part)
            store_part(row + j, part - j,
                       keep_above(load_part(row + j, part - j, 0),
                                  *(const words_at *)(word + j), last));
    }
}

#endif
