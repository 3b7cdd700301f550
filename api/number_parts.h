#ifndef API_NUMBER_PARTS_H
#define API_NUMBER_PARTS_H

#include <stdbool.h>
#include <stdint.h>

/* What number_*.c share: the two formats and the powers of ten. Nobody else
 * includes it. */

/* Words of text are taken as they lie: the first character lowest. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little-endian only");

#define INLINE static inline __attribute__((always_inline))

typedef unsigned __int128 u128;

#define EACH_BYTE (~(uint64_t)0 / 255)

/* 10^q = (T + e) * 2^power_scale(q) with T of 128 bits, its top bit set, and
 * 0 <= e < 1. e is 0 exactly for q in 0..55, because 5^55 < 2^128 < 5^56 and
 * no power of a tenth is a binary fraction. 2^64 * 10^-342 is the least that
 * may be above zero in float64; writing its smallest denormal takes 10^324. */
enum { POWER_LOW = -342, POWER_HIGH = 324, POWER_EXACT = 55 };

struct power {
    uint64_t high, low;
};

extern const struct power number_powers[POWER_HIGH - POWER_LOW + 1];

enum { MAX_DIGITS = 19 }; /* always fit in 64 bits: 10^19 < 2^64 */

extern const uint64_t number_tens[MAX_DIGITS + 1]; /* 10^0 .. 10^19 */

/* 10^q as the nearest double, and what it lacks, for the q that are common. */
enum { TENS_LOW = -64, TENS_HIGH = 63 };

extern const double number_tens_f64[TENS_HIGH - TENS_LOW + 1];
extern const double number_tens_rest[TENS_HIGH - TENS_LOW + 1];

/* floor(q log2 10) - 127. 217706 / 2^16 is log2 10 + 1.7e-6; what makes the
 * table asserts it for every row. */
INLINE int power_scale(int q)
{
    return ((q * 217706) >> 16) - 127;
}

INLINE const struct power *power_of_ten(int q)
{
    return &number_powers[q - POWER_LOW];
}

struct format {
    int width; /* bits of a significand, the hidden one included */
    int least; /* 2^least is the smallest denormal               */
    int low;   /* 2^64 * 10^(low - 1) still rounds to zero       */
    int high;  /* 10^(high + 1) is already infinite              */
};

static const struct format format_f32 = { 24, -149, -64, 38 };
static const struct format format_f64 = { 53, -1074, -342, 308 };

/* Bit patterns order as the values do, so rounding up is adding one, also
 * into the next binade and into infinity, which is this one. */
INLINE uint64_t infinity_bits(const struct format *to)
{
    return (uint64_t)(5 - 2 * to->least - 2 * to->width) << (to->width - 1);
}

/* Whether so many digits, the first worth 10^exponent, are written as 0.00123
 * and not as 1.23e-3. Plain takes 1 - exponent + count below one, above it the
 * digits before the point or, if more, count + 1; scientific takes count, a
 * point if count > 1, 'e' and the exponent's digits and sign. */
INLINE bool number_plain_is_short(int count, int exponent)
{
    int point = count > 1;

    return -exponent <= 2 + point &&
           exponent <= count + point + (exponent < 10 ? 1 : 2);
}

/* A float32 among the 63 next above 1 or below -1, by its bits. */
INLINE bool number_is_beside_one(uint32_t bits)
{
    return (bits & 0x7fffffff) - 0x3f800001 < 63;
}

#endif
