#ifndef TESTS_UNIT_NUMBER_VALUES_H
#define TESTS_UNIT_NUMBER_VALUES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Values drawn at random, float64 of every kind that a writer may get wrong
 * among them. The same state gives the same values. */

static uint64_t random_state = 20240229;

static inline uint64_t random64(void)
{
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (random_state ^ random_state >> 32) * 0x9e3779b97f4a7c15U ^
           random_state >> 17;
}

static inline size_t below(size_t limit)
{
    return (size_t)(random64() >> 16) % limit;
}

static inline float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline double double_of(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A float64 in the manner of a kind. */

static double draw_activation(void)
{
    return (double)((int64_t)random64() >> 10) * 0x1p-51;
}

static double draw_any(void)
{
    return double_of(random64());
}

/* So few bits that short texts come up, and powers of two. */
static double draw_few_bits(void)
{
    return double_of(random64() & (uint64_t)(INT64_MIN >> (11 + below(24))));
}

static double draw_decimal(void)
{
    static const double tens[] = {
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
    };
    double digits = (double)(random64() % (uint64_t)tens[1 + below(17)]);
    double ten = tens[below(23)];

    return below(2) == 0 ? digits / ten : digits * ten;
}

static double draw_integer(void)
{
    return (double)((int64_t)random64() >> below(64));
}

/* About where a unit's halves and an interval's ends are exactly hit. */
static double draw_tie(void)
{
    return ldexp((double)(random64() >> 11), (int)below(30) - 20);
}

static double draw_denormal(void)
{
    return double_of(random64() >> (10 + below(54)));
}

/* A few steps beside it. */
static double draw_power_of_ten(void)
{
    double value = pow(10, (int)below(632) - 323);
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return double_of(bits + below(5) - 2);
}

static double (*const draws[])(void) = {
    draw_activation, draw_any,      draw_few_bits,     draw_decimal,
    draw_integer,    draw_tie,      draw_denormal,     draw_power_of_ten,
};

enum { DRAWS = sizeof draws / sizeof *draws };

/* Of kind 0..DRAWS - 1; DRAWS: of any. May be none that is finite. */
static inline double draw_double(size_t kind)
{
    return draws[kind < DRAWS ? kind : below(DRAWS)]();
}

#endif
