#include "core/philox.h"

#include <math.h>
#include <string.h>

static const uint32_t MULTIPLIER[2] = PHILOX_MULTIPLIERS;
static const uint32_t INCREMENT[2] = PHILOX_INCREMENTS;

void philox_block(const uint32_t counter[4], const uint32_t key[2],
                  uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];

    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t p = (uint64_t)MULTIPLIER[0] * c0;
        uint64_t q = (uint64_t)MULTIPLIER[1] * c2;

        c0 = (uint32_t)(q >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)q;
        c2 = (uint32_t)(p >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p;
        k0 += INCREMENT[0];
        k1 += INCREMENT[1];
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static void block_of(uint64_t seed, uint64_t block, uint32_t words[4])
{
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    const uint32_t counter[4] = { (uint32_t)block, (uint32_t)(block >> 32) };

    philox_block(counter, key, words);
}

void philox_words(uint64_t seed, uint64_t first, int64_t count, uint32_t *out)
{
    uint64_t block = first / 4, skip = first % 4;
    uint32_t words[4];

    if (skip != 0 && count > 0) {
        int64_t n = count < 4 - (int64_t)skip ? count : 4 - (int64_t)skip;

        block_of(seed, block++, words);
        memcpy(out, words + skip, (size_t)n * sizeof *out);
        out += n;
        count -= n;
    }
    for (; count >= 4; count -= 4, out += 4)
        block_of(seed, block++, out);
    if (count > 0) {
        block_of(seed, block, words);
        memcpy(out, words, (size_t)count * sizeof *out);
    }
}

uint32_t philox_last_hit(double p)
{
    return (uint32_t)(ceil(p * 0x1p32) - 1);
}

void philox_hits(uint64_t seed, uint64_t first, int64_t count, double p,
                 bool *hit)
{
    enum { PART = 64 };
    const uint32_t last = philox_last_hit(p);
    uint32_t words[PART];

    for (int64_t j = 0; j < count; j += PART) {
        int64_t n = count - j < PART ? count - j : PART;

        philox_words(seed, first + (uint64_t)j, n, words);
        for (int64_t i = 0; i < n; i++)
            hit[j + i] = words[i] <= last;
    }
}
