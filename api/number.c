#include "api/number.h"

#include <assert.h>
#include <string.h>

/* Words of text are taken as they lie: the first character lowest. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little-endian only");

#define INLINE static inline __attribute__((always_inline))
#define COLD static __attribute__((noinline, cold))

typedef unsigned __int128 u128;

/* ---- Powers of ten: 10^q = (T + e) * 2^power_scale(q) with T of 128 bits,
 * its top bit set, and 0 <= e < 1. e is 0 exactly for q in 0..55, because
 * 5^55 < 2^128 < 5^56 and no power of a tenth is a binary fraction. ---- */

/* 10^-342 * 2^64 is the least that may be above zero in float64; writing its
 * smallest denormal takes 10^324. */
enum { POWER_LOW = -342, POWER_HIGH = 324, POWER_EXACT = 55 };

static const struct power {
    uint64_t high, low;
} powers[] = {
#define POWER(high, low) { high, low },
#include "api/number_powers.def"
#undef POWER
};

_Static_assert(sizeof powers / sizeof *powers == POWER_HIGH - POWER_LOW + 1,
               "a row for each power");

static const uint64_t tens[] = {
    1,
    10,
    100,
    1000,
    10000,
    100000,
    1000000,
    10000000,
    100000000,
    1000000000,
    10000000000,
    100000000000,
    1000000000000,
    10000000000000,
    100000000000000,
    1000000000000000,
    10000000000000000,
    100000000000000000,
    1000000000000000000,
    10000000000000000000U,
};

enum { MAX_DIGITS = 19 }; /* always fit in 64 bits: 10^19 < 2^64 */

/* floor(q log2 10) - 127. 217706 / 2^16 is log2 10 + 1.7e-6; what makes the
 * table asserts it for every row. */
INLINE int power_scale(int q)
{
    return ((q * 217706) >> 16) - 127;
}

INLINE const struct power *power_of_ten(int q)
{
    return &powers[q - POWER_LOW];
}

/* ---- The two formats ---- */

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

/* significand * 2^exponent, hidden bit in place unless exponent is `least`:
 * the hidden bit adds the one by which normal exponent fields start. */
INLINE uint64_t compose(const struct format *to, uint64_t significand,
                        int exponent)
{
    uint64_t bits = ((uint64_t)(exponent - to->least) << (to->width - 1)) +
                    significand;

    return bits < infinity_bits(to) ? bits : infinity_bits(to);
}

/* ---- Decimal to binary, from a 64-bit mantissa ---- */

/* Where to cut a 64-bit approximation `top`, worth 2^scale a unit: its lowest
 * `shift` bits are below the format's last place, worth 2^exponent. */
struct cut {
    int shift;
    int exponent;
};

INLINE struct cut cut_at(const struct format *to, uint64_t top, int scale)
{
    struct cut cut;

    cut.shift = 64 - to->width - !(top >> 63);
    cut.exponent = scale + cut.shift;
    if (cut.exponent < to->least) {
        cut.shift += to->least - cut.exponent;
        cut.exponent = to->least;
    }
    return cut;
}

/* mantissa * 10^q = (top * 2^64 + rest + error) * 2^scale, 0 <= error < 2^64:
 * the normalized mantissa (below 2^64) times e. */
struct product {
    u128 top;
    uint64_t rest;
    int scale;
};

INLINE struct product multiply(uint64_t mantissa, int q)
{
    const struct power *power = power_of_ten(q);
    int up = __builtin_clzll(mantissa);
    u128 low = (u128)(mantissa << up) * power->low;
    u128 high = (u128)(mantissa << up) * power->high;

    return (struct product){ high + (uint64_t)(low >> 64), (uint64_t)low,
                             power_scale(q) - up };
}

INLINE u128 low_bits(u128 value, int n) /* n in 1..128 */
{
    return value & (~(u128)0 >> (128 - n));
}

/* round_decimal() below with all 128 bits of the power. The true value lies in
 * [top, top + 2), strictly above top unless the power is exact. So top = half
 * rounds up, and only top = half - 1 leaves both ways open. */
COLD bool round_closely(const struct format *to, uint64_t mantissa, int q,
                        uint64_t *bits)
{
    struct product p = multiply(mantissa, q);
    struct cut cut = cut_at(to, (uint64_t)(p.top >> 64), p.scale + 128);
    int shift = cut.shift + 64; /* at most 128 */
    u128 half = (u128)1 << (shift - 1), below = low_bits(p.top, shift);
    uint64_t significand = (uint64_t)((p.top >> (shift - 1)) >> 1);
    bool up = below >= half;

    if (q >= 0 && q <= POWER_EXACT)
        up = below > half ||
             (below == half && (p.rest != 0 || (significand & 1) != 0));
    else if (below == half - 1)
        return false;
    *bits = compose(to, significand + up, cut.exponent);
    return true;
}

/* Multiplies by the upper half of the power alone: the true value then lies in
 * [top, top + 2) of 64 bits, one for what the product drops and one for what
 * the power does. Nothing within that of a tie: rounding top is rounding the
 * value. That decides all but 1 in 10^11 (float32) or 1 in 400 (float64). */
INLINE bool round_decimal(const struct format *to, uint64_t mantissa,
                          int64_t exponent, uint64_t *bits)
{
    if (__builtin_expect(mantissa == 0 || exponent < to->low, 0)) {
        *bits = 0;
        return true;
    }
    if (__builtin_expect(exponent > to->high, 0)) {
        *bits = infinity_bits(to);
        return true;
    }

    int q = (int)exponent, up = __builtin_clzll(mantissa);
    uint64_t top = (uint64_t)(
        ((u128)(mantissa << up) * power_of_ten(q)->high) >> 64);
    struct cut cut = cut_at(to, top, power_scale(q) - up + 128);

    if (cut.shift > 64) { /* below half of the smallest denormal */
        *bits = 0;
        return true;
    }

    uint64_t half = (uint64_t)1 << (cut.shift - 1);
    uint64_t below = top & (half - 1 + half);

    if (__builtin_expect(below - (half - 2) <= 2, 0))
        return round_closely(to, mantissa, q, bits);
    *bits = compose(to, ((top >> (cut.shift - 1)) + 1) >> 1, cut.exponent);
    return true;
}

bool number_round_f32(uint64_t mantissa, int64_t exponent, float *value)
{
    uint64_t bits;

    if (!round_decimal(&format_f32, mantissa, exponent, &bits))
        return false;

    uint32_t narrow = (uint32_t)bits;

    memcpy(value, &narrow, sizeof narrow);
    return true;
}

bool number_round_f64(uint64_t mantissa, int64_t exponent, double *value)
{
    uint64_t bits;

    if (!round_decimal(&format_f64, mantissa, exponent, &bits))
        return false;
    memcpy(value, &bits, sizeof bits);
    return true;
}

/* ---- Finding the digits ---- */

/* mantissa * 10^exponent; or, when more than 19 significant digits stand in
 * the text, `dropped` of them at its end are missing from the mantissa. */
struct decimal {
    uint64_t mantissa;
    int64_t exponent;
    int64_t dropped;
    bool negative;
    const char *digits; /* the first digit that counts, at the latest */
    const char *digits_end;
};

#define EACH_BYTE (~(uint64_t)0 / 255)

INLINE bool is_digit(char c)
{
    return (unsigned char)(c - '0') <= 9;
}

INLINE uint64_t load8(const char *p)
{
    uint64_t word;

    memcpy(&word, p, sizeof word);
    return word;
}

/* The top bit of each byte that is no digit. Carries and borrows may blame
 * bytes above such a byte, never below: the lowest one is right. */
INLINE uint64_t strangers(uint64_t word)
{
    return ((word + EACH_BYTE * (0x7f - '9')) | (word - EACH_BYTE * '0')) &
           EACH_BYTE * 0x80;
}

/* Eight bytes 0..9, first lowest, as a number: pairs, fours, all. */
INLINE uint32_t eight_digits(uint64_t word)
{
    word = ((word * (10 << 8 | 1)) >> 8) & 0x00ff00ff00ff00ff;
    word = ((word * (100 << 16 | 1)) >> 16) & 0x0000ffff0000ffff;
    return (uint32_t)((word * ((uint64_t)10000 << 32 | 1)) >> 32);
}

/* Appends the digits at p to *mantissa (modulo 2^64), returns their end. */
INLINE const char *read_digits(const char *p, const char *end,
                               uint64_t *mantissa)
{
    uint64_t m = *mantissa;

    while (end - p >= 8) {
        uint64_t word = load8(p), strange = strangers(word);

        word -= EACH_BYTE * '0';
        if (strange != 0) {
            int n = __builtin_ctzll(strange) / 8;

            /* the n digits to the top, zeros before them; n may be 0 */
            *mantissa = m * tens[n] +
                        eight_digits((word << (56 - 8 * n)) << 8);
            return p + n;
        }
        m = m * 100000000 + eight_digits(word);
        p += 8;
    }
    for (; p < end && is_digit(*p); p++)
        m = m * 10 + (uint64_t)(*p - '0');
    *mantissa = m;
    return p;
}

/* The exponent after 'e', saturated far beyond what the longest text of digits
 * can take back. NULL when no digit is there. */
static const char *read_exponent(const char *p, const char *end,
                                 int64_t *exponent)
{
    const int64_t enough = (int64_t)1 << 56;
    bool negative = p < end && *p == '-';
    int64_t e = 0;

    if (p < end && (*p == '-' || *p == '+'))
        p++;
    if (p == end || !is_digit(*p))
        return NULL;
    for (; p < end && is_digit(*p); p++)
        e = e < enough ? e * 10 + (*p - '0') : enough;
    *exponent += negative ? -e : e;
    return p;
}

/* The mantissa anew from the text, when `count` digits may be too many for it:
 * leading zeros don't count, and the 19 after them are kept. */
COLD void shorten(struct decimal *d, int64_t count)
{
    const char *p = d->digits;

    for (; p < d->digits_end && (*p == '0' || *p == '.'); p++)
        count -= *p == '0';
    d->digits = p;
    if (count <= MAX_DIGITS)
        return;
    d->dropped = count - MAX_DIGITS;
    d->exponent += d->dropped;
    d->mantissa = 0;
    for (int n = 0; n < MAX_DIGITS; p++) {
        if (*p != '.') {
            d->mantissa = d->mantissa * 10 + (uint64_t)(*p - '0');
            n++;
        }
    }
}

/* The number at p, or NULL. The integer part goes byte by byte: it mostly is
 * one digit. */
INLINE const char *scan(const char *p, const char *end, struct decimal *d)
{
    uint64_t mantissa = 0;
    int64_t count = 0;

    d->negative = p < end && *p == '-';
    d->exponent = 0;
    d->dropped = 0;
    p += d->negative;
    d->digits = p;
    if (p == end || !is_digit(*p))
        return NULL;
    if (*p == '0') {
        p++;
        if (p < end && is_digit(*p))
            return NULL;
        d->digits = p;
    } else {
        for (; p < end && is_digit(*p); p++)
            mantissa = mantissa * 10 + (uint64_t)(*p - '0');
        count = p - d->digits;
    }
    if (p < end && *p == '.') {
        const char *fraction = p + 1;

        p = read_digits(fraction, end, &mantissa);
        if (p == fraction)
            return NULL;
        d->exponent = fraction - p;
        count += p - fraction;
    }
    d->digits_end = p;
    if (p < end && (*p | 0x20) == 'e') {
        p = read_exponent(p + 1, end, &d->exponent);
        if (p == NULL)
            return NULL;
    }
    d->mantissa = mantissa;
    if (__builtin_expect(count > MAX_DIGITS, 0))
        shorten(d, count);
    return p;
}

/* ---- Decimal to binary, whatever the number of digits ---- */

/* The largest numbers compared below: 768 digits are 2552 bits, 5^1091 times
 * a 54-bit tie 2588, and the shift makes the two alike. */
enum { BIG_LIMBS = 48, CLOSE_DIGITS = 768 };

struct big {
    int count; /* limbs in use, the highest nonzero */
    uint64_t limb[BIG_LIMBS];
};

static void big_multiply_add(struct big *big, uint64_t factor, uint64_t carry)
{
    for (int i = 0; i < big->count; i++) {
        u128 sum = (u128)big->limb[i] * factor + carry;

        big->limb[i] = (uint64_t)sum;
        carry = (uint64_t)(sum >> 64);
    }
    if (carry != 0) {
        assert(big->count < BIG_LIMBS);
        big->limb[big->count++] = carry;
    }
}

static void big_multiply_power_of_five(struct big *big, int n)
{
    enum { STEP = 27 };
    const uint64_t five_27 = 7450580596923828125; /* the largest in 64 bits */

    for (; n >= STEP; n -= STEP)
        big_multiply_add(big, five_27, 0);
    for (; n > 0; n--)
        big_multiply_add(big, 5, 0);
}

static void big_shift_left(struct big *big, int n)
{
    int limbs = n / 64;

    big_multiply_add(big, (uint64_t)1 << (n % 64), 0);
    assert(big->count + limbs <= BIG_LIMBS);
    memmove(big->limb + limbs, big->limb,
            (size_t)big->count * sizeof *big->limb);
    memset(big->limb, 0, (size_t)limbs * sizeof *big->limb);
    big->count += limbs;
}

static int big_compare(const struct big *a, const struct big *b)
{
    if (a->count != b->count)
        return a->count < b->count ? -1 : 1;
    for (int i = a->count - 1; i >= 0; i--) {
        if (a->limb[i] != b->limb[i])
            return a->limb[i] < b->limb[i] ? -1 : 1;
    }
    return 0;
}

/* The significant digits as an integer, at most CLOSE_DIGITS of them; *unit is
 * the power of ten it counts, *more whether the rest is above zero. */
static void big_load(struct big *big, const struct decimal *d, int *unit,
                     bool *more)
{
    const char *p = d->digits;
    int n = MAX_DIGITS;

    *big = (struct big){ .count = 1, .limb = { d->mantissa } };
    *more = false;
    *unit = (int)d->exponent;
    if (d->dropped == 0)
        return;
    big->count = 0;
    for (n = 0; p < d->digits_end && n < CLOSE_DIGITS; p++) {
        if (*p != '.') {
            big_multiply_add(big, 10, (uint64_t)(*p - '0'));
            n++;
        }
    }
    *unit += MAX_DIGITS - n;
    for (; p < d->digits_end && !*more; p++)
        *more = *p > '0'; /* '.' is below it */
}

/* The nearest value at or below the decimal, to within far less than a last
 * place: the product's error is 2^-126 of it, the dropped digits' 10^-18. */
static uint64_t round_down(const struct format *to, const struct decimal *d)
{
    struct product p = multiply(d->mantissa, (int)d->exponent);
    struct cut cut = cut_at(to, (uint64_t)(p.top >> 64), p.scale + 128);

    if (cut.shift > 64)
        return 0;
    return compose(to, (uint64_t)((p.top >> (cut.shift + 63)) >> 1),
                   cut.exponent);
}

/* Compares the decimal with the tie above the value below it:
 *     digits * 10^unit   against   (2 significand + 1) * 2^(exponent - 1)
 * as integers, with powers of five and two on the side where they are positive.
 *
 * 768 digits suffice: the ties with the most are (2s + 1) * 2^-1075 =
 * (2s + 1) * 5^1075 * 10^-1075 with 2s + 1 < 2^54, below 10^768 in units of
 * 10^-1075. A tie so is a whole number of units, and what was left out can
 * only turn "equal" into "above". */
COLD uint64_t round_exactly(const struct format *to, const struct decimal *d)
{
    uint64_t bits = round_down(to, d), hidden = (uint64_t)1 << (to->width - 1);

    if (bits == infinity_bits(to))
        return bits;

    uint64_t field = bits >> (to->width - 1), fraction = bits & (hidden - 1);
    int exponent = to->least + (int)field - (field != 0);
    struct big left, right = { .count = 1 };
    int unit;
    bool more;

    big_load(&left, d, &unit, &more);
    right.limb[0] = 2 * (field != 0 ? hidden | fraction : fraction) + 1;
    big_multiply_power_of_five(&left, unit);
    big_multiply_power_of_five(&right, -unit);
    if (unit > exponent - 1)
        big_shift_left(&left, unit - (exponent - 1));
    else
        big_shift_left(&right, exponent - 1 - unit);

    int order = big_compare(&left, &right);

    if (order == 0)
        order = more || (bits & 1) != 0 ? 1 : -1;
    return bits + (order > 0);
}

/* Digits that were dropped put the decimal between mantissa and mantissa + 1:
 * if both round alike, so does it. */
INLINE uint64_t round_text(const struct format *to, const struct decimal *d)
{
    uint64_t bits, above;
    bool sure = round_decimal(to, d->mantissa, d->exponent, &bits);

    if (__builtin_expect(d->dropped != 0, 0))
        sure = sure &&
               round_decimal(to, d->mantissa + 1, d->exponent, &above) &&
               above == bits;
    if (__builtin_expect(!sure, 0))
        bits = round_exactly(to, d);
    return bits;
}

size_t number_read_f32(const char *text, const char *end, float *value)
{
    struct decimal d;
    const char *stop = scan(text, end, &d);

    if (stop == NULL)
        return 0;

    uint32_t bits = (uint32_t)round_text(&format_f32, &d) |
                    (uint32_t)d.negative << 31;

    memcpy(value, &bits, sizeof bits);
    return (size_t)(stop - text);
}

size_t number_read_f64(const char *text, const char *end, double *value)
{
    struct decimal d;
    const char *stop = scan(text, end, &d);

    if (stop == NULL)
        return 0;

    uint64_t bits = round_text(&format_f64, &d) | (uint64_t)d.negative << 63;

    memcpy(value, &bits, sizeof bits);
    return (size_t)(stop - text);
}

/* ---- Integers ---- */

/* Trailing zeros of the digits that the mantissa lacks; `dropped` when all of
 * them are. */
static int64_t dropped_zeros(const struct decimal *d)
{
    const char *p = d->digits_end;
    int64_t zeros = 0;

    for (; zeros < d->dropped && (p[-1] == '0' || p[-1] == '.'); p--)
        zeros += p[-1] == '0';
    return zeros;
}

enum number_int number_read_i64(const char *text, size_t len, int64_t *value)
{
    struct decimal d;
    const char *stop = scan(text, text + len, &d);

    assert(stop == text + len);
    if (d.dropped != 0) {
        int64_t zeros = dropped_zeros(&d);

        if (zeros < d.dropped) /* 20 digits and more, to 10^last's place */
            return d.exponent - d.dropped + zeros < 0 ? NUMBER_INT_FRACTION
                                                      : NUMBER_INT_RANGE;
    }
    for (; d.exponent < 0 && d.mantissa != 0; d.exponent++) {
        if (d.mantissa % 10 != 0)
            return NUMBER_INT_FRACTION;
        d.mantissa /= 10;
    }

    uint64_t limit = (uint64_t)INT64_MAX + d.negative;

    if (d.mantissa != 0 && (d.exponent >= MAX_DIGITS ||
                            d.mantissa > limit / tens[d.exponent]))
        return NUMBER_INT_RANGE;
    d.mantissa *= d.mantissa != 0 ? tens[d.exponent] : 1;
    *value = (int64_t)(d.negative ? 0 - d.mantissa : d.mantissa);
    return NUMBER_INT_OK;
}

/* ---- Binary to the shortest decimal ----
 *
 * v = c * 2^q is what every real in the interval
 *     [v - 2^q / 2, v + 2^q / 2], ends included when c is even,
 * rounds to; below a power of two the lower half-width is 2^q / 4. Take k
 * largest with 10^k <= width and count in units of 10^k: w = 2^q / 10^k. Then
 * width < 10, so the interval holds at most one multiple of ten units, which
 * if there is the shortest decimal (after its zeros are dropped); and
 * width >= 1, so otherwise it holds one or more whole units, all equally long,
 * of which the nearest to v = c * w is taken.
 *
 * One multiplication gives c * w: with b = floor(log2 w), in 0..3, and T the
 * power 10^-k, (c << (b + 1)) * (T + 1) is c * w with as many fraction bits as
 * T has, too large by d < 2^-36 (float32, 64 bits of T) or 2^-71 (float64).
 * That replaces comparing exactly, since what is compared, when not equal,
 * differs by more: over all q, m * w is never nearer than 2^-27.7 (float32,
 * m <= 2^25 + 1) or 2^-58.5 (float64, m <= 2^54 + 1) to a multiple of 20
 * without being one, and 2 c * w never
 * nearer than 2^-31.7 or 2^-63.5 to an integer. So
 * a slack between d and half of those settles closed and open ends. The
 * margins were worked out with a Euclid-like search for the least m * w mod 20;
 * beside that all finite float32 have been compared with another printer. */

struct shortest {
    uint64_t digits;
    int exponent;
};

/* floor(q log10 2), or with `lopsided` floor(q log10 2 + log10 3/4), for
 * |q| < 1100: 1262611 / 2^22 = log10 2 - 8e-8, 524031 / 2^22 = -log10 3/4 -
 * 1e-8. */
INLINE int unit_exponent(int q, bool lopsided)
{
    return (q * 1262611 - (lopsided ? 524031 : 0)) >> 22;
}

/* Without a branch: half of random values have a ten and half have none. */
INLINE struct shortest pick(bool ten_down, bool ten_up, uint64_t ten,
                            uint64_t unit, int k)
{
    uint64_t tens_mask = 0 - (uint64_t)(ten_down | ten_up);

    return (struct shortest){
        (tens_mask & (ten + ten_up)) | (~tens_mask & unit),
        k + (ten_down | ten_up),
    };
}

/* `over` is what v exceeds a multiple of ten units by, `reach` the half-width,
 * both with 60 fraction bits: 10 * 2^60 < 2^64. */
INLINE struct shortest shortest_f32(uint64_t c, int q, bool lopsided)
{
    const uint64_t one = (uint64_t)1 << 60, slack = (uint64_t)1 << 25;
    int k = unit_exponent(q, lopsided), b = power_scale(-k) + 127 + q;
    uint64_t power = power_of_ten(-k)->high + 1;
    u128 product = (u128)(c << (b + 1)) * power;
    uint64_t units = (uint64_t)(product >> 64), ten = units / 10;
    uint64_t fraction = (uint64_t)product >> 4;
    uint64_t over = ((units - 10 * ten) << 60) + fraction;
    uint64_t reach = power >> (4 - b);
    uint64_t end = (c & 1) != 0 ? reach - slack : reach + slack;
    uint64_t low_end = lopsided ? (reach >> 1) + slack : end;
    bool ten_down = over < low_end, ten_up = 10 * one - over < end;
    uint64_t middle = one / 2 + ((units & 1) != 0 ? 0 : slack);

    if (lopsided && low_end < middle)
        middle = low_end;
    return pick(ten_down, ten_up, ten, units + (fraction >= middle), k);
}

/* The same with 128 bits of T, thus 124 fraction bits. */
INLINE struct shortest shortest_f64(uint64_t c, int q, bool lopsided)
{
    const u128 one = (u128)1 << 124, slack = (u128)1 << 54;
    int k = unit_exponent(q, lopsided), b = power_scale(-k) + 127 + q;
    u128 power = ((u128)power_of_ten(-k)->high << 64 | power_of_ten(-k)->low) +
                 1;
    u128 low = (u128)(c << (b + 1)) * (uint64_t)power;
    u128 high = (u128)(c << (b + 1)) * (uint64_t)(power >> 64) + (low >> 64);
    uint64_t units = (uint64_t)(high >> 64), ten = units / 10;
    u128 fraction = (high << 64 | (uint64_t)low) >> 4;
    u128 over = ((u128)(units - 10 * ten) << 124) + fraction;
    u128 reach = power >> (4 - b);
    u128 end = (c & 1) != 0 ? reach - slack : reach + slack;
    u128 low_end = lopsided ? (reach >> 1) + slack : end;
    bool ten_down = over < low_end, ten_up = 10 * one - over < end;
    u128 middle = one / 2 + ((units & 1) != 0 ? 0 : slack);

    if (lopsided && low_end < middle)
        middle = low_end;
    return pick(ten_down, ten_up, ten, units + (fraction >= middle), k);
}

/* ---- Laying the digits out ---- */

INLINE void store(char *out, const void *word, size_t len)
{
    memcpy(out, word, len);
}

/* Below 10^8 as eight bytes 0..9, first lowest: fours, pairs, singles. The
 * reciprocals are exact below 10^4 (5243 / 2^19) and 100 (103 / 2^10). */
INLINE uint64_t spread_digits(uint32_t value)
{
    uint64_t fours = value / 10000 | (uint64_t)(value % 10000) << 32;
    uint64_t hundreds = ((fours * 5243) >> 19) & 0x0000007f0000007f;
    uint64_t pairs = hundreds | (fours - 100 * hundreds) << 16;
    uint64_t ones = ((pairs * 103) >> 10) & 0x000f000f000f000f;

    return ones | (pairs - 10 * ones) << 8;
}

/* Trailing zeros of the eight digits. */
INLINE int zeros_behind(uint64_t digits)
{
    return digits != 0 ? __builtin_clzll(digits) / 8 : 8;
}

INLINE int decimal_length(uint64_t value) /* not 0 */
{
    int bits = 64 - __builtin_clzll(value);
    int least = (bits * 1233) >> 12; /* floor(bits log10 2) */

    return least + (value >= tens[least]);
}

/* A decimal of `count` significant digits, the first worth 10^exponent: text
 * in three words, '0' behind the last digit. */
struct figures {
    char first;
    uint64_t head, tail;
    int count;
    int exponent;
};

/* Padded to the 17 digits that a float64 takes at most. */
INLINE struct figures figures_17(struct shortest s)
{
    int length = decimal_length(s.digits);
    uint64_t digits = s.digits * tens[17 - length];
    uint32_t first_nine = (uint32_t)(digits / 100000000);
    uint64_t head = spread_digits(first_nine % 100000000);
    uint64_t tail = spread_digits((uint32_t)(digits % 100000000));

    return (struct figures){
        .first = (char)('0' + first_nine / 100000000),
        .head = head | EACH_BYTE * '0',
        .tail = tail | EACH_BYTE * '0',
        .count = tail != 0 ? 17 - zeros_behind(tail) : 9 - zeros_behind(head),
        .exponent = s.exponent + length - 1,
    };
}

/* To the 9 of a float32; `tail` is not used. */
INLINE struct figures figures_9(struct shortest s)
{
    int length = decimal_length(s.digits);
    uint32_t digits = (uint32_t)(s.digits * tens[9 - length]);
    uint64_t head = spread_digits(digits % 100000000);

    return (struct figures){
        .first = (char)('0' + digits / 100000000),
        .head = head | EACH_BYTE * '0',
        .count = 9 - zeros_behind(head),
        .exponent = s.exponent + length - 1,
    };
}

static size_t write_scientific(const struct figures *f, char *out)
{
    int e = f->exponent, n = f->count > 1 ? f->count + 1 : 1;

    out[0] = f->first;
    out[1] = '.';
    store(out + 2, &f->head, 8);
    store(out + 10, &f->tail, 8);
    out[n++] = 'e';
    if (e < 0)
        out[n++] = '-';
    e = e < 0 ? -e : e;
    if (e >= 100)
        out[n++] = (char)('0' + e / 100);
    if (e >= 10)
        out[n++] = (char)('0' + e / 10 % 10);
    out[n++] = (char)('0' + e % 10);
    return (size_t)n;
}

/* Plain takes 1 - exponent + count below one, above it the digits before the
 * point or, if more, count + 1; scientific takes count, a point if count > 1,
 * 'e' and the exponent's digits and sign. */
INLINE bool plain_is_short(int count, int exponent)
{
    int point = count > 1;

    return -exponent <= 2 + point &&
           exponent <= count + point + (exponent < 10 ? 1 : 2);
}

/* Whatever the next function doesn't: scientific, or an integer of more digits than
 * it has figures, at most 21. */
static __attribute__((noinline)) size_t write_other(struct shortest s,
                                                    char *out)
{
    struct figures f = figures_17(s);

    if (!plain_is_short(f.count, f.exponent))
        return write_scientific(&f, out);
    out[0] = f.first;
    store(out + 1, &f.head, 8);
    store(out + 9, &f.tail, 8);
    store(out + 17, "0000", 4);
    return (size_t)(f.exponent + 1);
}

/* Where the parts of a plain number go, e in -3..15, with no branch on e: in
 * mixed numbers a wrong guess this late costs all the work that overlaps it.
 * The digits go to `lead`, behind "0.00" when below one; then again to `again`,
 * behind the point, without the `skip` before it. */
struct layout {
    int lead, point, again, skip;
    int len;
};

INLINE struct layout lay_out(int count, int e)
{
    int small = e >> 31; /* all ones below one */
    int zeros = -e & small, whole = (e + 1) & ~small;
    int len = count + zeros + (count > whole);

    return (struct layout){
        .lead = zeros - small,
        .point = whole - small,
        .again = zeros + whole + 1 - small,
        .skip = e & ~small,
        .len = len > whole ? len : whole,
    };
}

INLINE size_t write_shortest(struct shortest s, bool wide, char *out)
{
    struct figures f = wide ? figures_17(s) : figures_9(s);

    if (f.exponent < -3 || f.exponent > (wide ? 15 : 7) ||
        !plain_is_short(f.count, f.exponent))
        return write_other(s, out);

    struct layout at = lay_out(f.count, f.exponent);
    size_t bytes = wide ? 16 : 8;
    u128 digits = wide ? (u128)f.tail << 64 | f.head : f.head;
    u128 behind = wide ? digits >> (8 * at.skip) : f.head >> (8 * at.skip);

    store(out, "0.00", 4);
    out[at.lead] = f.first;
    store(out + at.lead + 1, &digits, bytes);
    store(out + at.again, &behind, bytes);
    out[at.point] = '.';
    return (size_t)at.len;
}

static size_t write_zero(bool negative, char *out)
{
    store(out, negative ? "-0.0" : "0   ", 4);
    return negative ? 4 : 1;
}

/* `bits` without the sign. */
INLINE size_t write_bits(const struct format *from, uint64_t bits,
                         bool negative, char *out)
{
    uint64_t hidden = (uint64_t)1 << (from->width - 1);
    int field = (int)(bits >> (from->width - 1));
    uint64_t fraction = bits & (hidden - 1);
    uint64_t c = field != 0 ? hidden | fraction : fraction;
    int q = from->least + field - (field != 0);
    bool wide = from->width > 32, lopsided = fraction == 0 && field > 1;

    assert(bits < infinity_bits(from));
    if (bits == 0)
        return write_zero(negative, out);
    *out = '-';
    return negative + write_shortest(wide ? shortest_f64(c, q, lopsided)
                                          : shortest_f32(c, q, lopsided),
                                     wide, out + negative);
}

size_t number_write_f32(float value, char *out)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return write_bits(&format_f32, bits & 0x7fffffff, bits >> 31, out);
}

size_t number_write_f64(double value, char *out)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return write_bits(&format_f64, bits & ~(uint64_t)0 >> 1, bits >> 63, out);
}

size_t number_write_i64(int64_t value, char *out)
{
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    size_t len = (size_t)(value < 0) +
                 (rest != 0 ? (size_t)decimal_length(rest) : 1);

    *out = '-';
    for (char *p = out + len;; rest /= 10) {
        *--p = (char)('0' + rest % 10);
        if (rest < 10)
            return len;
    }
}
