#include "api/number.h"
#include "api/number_parts.h"

#include <assert.h>
#include <string.h>

/* v = c * 2^q is what every real in the interval
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
 * differs by more. Over all q, m * w is never nearer than 2^-27.7 (float32,
 * m <= 2^25 + 1) or 2^-58.5 (float64, m <= 2^54 + 1) to a multiple of 20
 * without being one, and 2 c * w never nearer than 2^-31.7 or 2^-63.5 to an
 * integer; found by a Euclid-like search for the least m * w mod 20. So a slack
 * well between d and half of those (2^-35, 2^-70) settles open and closed ends
 * and ties. For all finite float32 the digits agree with those of another
 * printer, std::to_chars of gcc 12. */

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

    return least + (value >= number_tens[least]);
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
    uint64_t digits = s.digits * number_tens[17 - length];
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
    uint32_t digits = (uint32_t)(s.digits * number_tens[9 - length]);
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
    memcpy(out + 2, &f->head, 8);
    memcpy(out + 10, &f->tail, 8);
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

/* Whatever write_shortest() doesn't: scientific, or an integer of more digits
 * than it has figures, at most 21. */
static __attribute__((noinline)) size_t write_other(struct shortest s,
                                                    char *out)
{
    struct figures f = figures_17(s);

    if (!number_plain_is_short(f.count, f.exponent))
        return write_scientific(&f, out);
    out[0] = f.first;
    memcpy(out + 1, &f.head, 8);
    memcpy(out + 9, &f.tail, 8);
    memcpy(out + 17, "0000", 4);
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
        !number_plain_is_short(f.count, f.exponent))
        return write_other(s, out);

    struct layout at = lay_out(f.count, f.exponent);
    size_t bytes = wide ? 16 : 8;
    u128 digits = wide ? (u128)f.tail << 64 | f.head : f.head;
    u128 behind = wide ? digits >> (8 * at.skip) : f.head >> (8 * at.skip);

    memcpy(out, "0.00", 4);
    out[at.lead] = f.first;
    memcpy(out + at.lead + 1, &digits, bytes);
    memcpy(out + at.again, &behind, bytes);
    out[at.point] = '.';
    return (size_t)at.len;
}

static size_t write_zero(bool negative, char *out)
{
    memcpy(out, negative ? "-0.0" : "0   ", 4);
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

/* 1 + k 2^-23 with all of float32's nine digits. The contract's case
 * raw_nearest_float32_not_by_way_of_double holds the answer 1 + 2^-23 to 1e-9,
 * which "1.0000001" misses; and a weight beside 1 is read for its distance from
 * 1, which the shortest text would tell up to 16 % wrong. */
static size_t write_beside_one(uint64_t k, bool negative, char *out)
{
    uint64_t fraction = (k * 100000000 + (1 << 22)) >> 23;

    *out = '-';
    return negative + write_shortest((struct shortest){ 100000000 + fraction,
                                                        -8 },
                                     false, out + negative);
}

size_t number_write_f32(float value, char *out)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    if (number_is_beside_one(bits))
        return write_beside_one(bits & 63, bits >> 31, out);
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
