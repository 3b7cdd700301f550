#ifndef CORE_PHILOX_H
#define CORE_PHILOX_H

#include <stdbool.h>
#include <stdint.h>

/* Philox 4x32-10: random words by place, not by turn.
 *
 * A keyed bijection of counters (Salmon, Moraes, Dror, Shaw: "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011). Word e depends on the seed and e
 * alone, so any thread may make any part of a sequence. Not for secrets. */

/* The paper's constants: multipliers found by search for avalanche, and Weyl
 * increments from the golden ratio and the square root of 3. */
enum { PHILOX_ROUNDS = 10 };
#define PHILOX_MULTIPLIERS { 0xd2511f53, 0xcd9e8d57 }
#define PHILOX_INCREMENTS { 0x9e3779b9, 0xbb67ae85 }

void philox_block(const uint32_t counter[4], const uint32_t key[2],
                  uint32_t out[4]);

/* Words first .. first + count - 1 of the sequence of `seed`: word e is number
 * e % 4 of the block whose counter is e / 4, under the key (low half of the
 * seed, high half). */
void philox_words(uint64_t seed, uint64_t first, int64_t count, uint32_t *out);

/* A word hits with probability p, 0 < p < 1, when it is no larger than this. */
uint32_t philox_last_hit(double p);

/* hit[i] is true when word first + i hits. */
void philox_hits(uint64_t seed, uint64_t first, int64_t count, double p,
                 bool *hit);

#endif
