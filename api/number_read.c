#include "api/number.h"
#include "api/number_parts.h"

#include <assert.h>
#include <string.h>

#define COLD static __attribute__((noinline, cold))

/* significand * 2^exponent, hidden bit in place unless exponent is `least`:
 * the hidden bit adds the one by which normal exponent fields start. */
INLINE uint64_t compose(const struct format *to, uint64_t significand,
                        int exponent)
{
    uint64_t bits = ((uint64_t)(exponent - to->least) << (to->width - 1)) +
                    significand;

    return bits < infinity_bits(to) ? bits : infinity_bits(to);
}

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
 * the power does. With no tie at top or top + 1, rounding top is rounding the
 * value. That decides all but 1 in 10^11 (float32) or 1 in 700 (float64). */
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

    if (__builtin_expect(below - (half - 1) <= 1, 0))
        return round_closely(to, mantissa, q, bits);
    *bits = compose(to, ((top >> (cut.shift - 1)) + 1) >> 1, cut.exponent);
    return true;
}

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
            *mantissa = m * number_tens[n] +
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
                            d.mantissa > limit / number_tens[d.exponent]))
        return NUMBER_INT_RANGE;
    d.mantissa *= d.mantissa != 0 ? number_tens[d.exponent] : 1;
    *value = (int64_t)(d.negative ? 0 - d.mantissa : d.mantissa);
    return NUMBER_INT_OK;
}
