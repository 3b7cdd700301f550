#include "api/number.h"
#include "api/number_parts.h"
#include "tests/unit/number_values.h"

#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* Reading is held against glibc's strtof and strtod, which round correctly;
 * writing against a ladder of snprintf's roundings. */

static uint32_t bits_of_float(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint64_t bits_of_double(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float random_float(void)
{
    float value;

    do
        value = float_of((uint32_t)(random64() >> 32));
    while (!isfinite(value));
    return value;
}

static double random_double(void)
{
    double value;

    do
        value = double_of(random64());
    while (!isfinite(value));
    return value;
}

static void expect_f32(const char *text)
{
    size_t len = strlen(text);
    float value = NAN, want = strtof(text, NULL);

    if (number_read_f32(text, text + len, &value) != len ||
        bits_of_float(value) != bits_of_float(want))
        fail_msg("f32 %.60s (%zu bytes): got %a want %a", text, len,
                 (double)value, (double)want);
}

static void expect_f64(const char *text)
{
    size_t len = strlen(text);
    double value = NAN, want = strtod(text, NULL);

    if (number_read_f64(text, text + len, &value) != len ||
        bits_of_double(value) != bits_of_double(want))
        fail_msg("f64 %.60s (%zu bytes): got %a want %a", text, len, value,
                 want);
}

static void expect_both(const char *text)
{
    expect_f32(text);
    expect_f64(text);
}

static void random_bits_in_any_precision_read_as_libc_reads_them(void **state)
{
    static const int digits[] = { 6, 9, 17, 25 };
    char text[64];

    (void)state;
    for (int i = 0; i < 140000; i++) {
        for (size_t j = 0; j < sizeof digits / sizeof *digits; j++) {
            snprintf(text, sizeof text, "%.*g", digits[j],
                     (double)random_float());
            expect_both(text);
        }
        snprintf(text, sizeof text, "%.*g", digits[i % 4], random_double());
        expect_both(text);
    }
}

static void random_digits_and_exponents_read_as_libc_reads_them(void **state)
{
    char text[64];

    (void)state;
    for (int i = 0; i < 200000; i++) {
        uint64_t digits = random64() >> random64() % 60;
        int len = snprintf(text, sizeof text, "%s%llu",
                           (i & 1) != 0 ? "-" : "",
                           (unsigned long long)digits);

        if ((i & 2) != 0)
            len += snprintf(text + len, sizeof text - (size_t)len, ".%llu",
                            (unsigned long long)random64());
        snprintf(text + len, sizeof text - (size_t)len, "e%d",
                 (int)(random64() % ((i & 4) != 0 ? 90 : 700)) -
                     ((i & 4) != 0 ? 65 : 370));
        expect_both(text);
    }
}

/* Digits put behind those of "d.ddde-x". */
static void insert(char *text, const char *digits)
{
    char *e = strchr(text, 'e');
    size_t len = strlen(digits);

    memmove(e + len, e, strlen(e) + 1);
    memcpy(e, digits, len);
}

/* The same decimal a little lower: its last digit that isn't 0 less by one,
 * nines behind. */
static void lower(char *text)
{
    char *p = strchr(text, 'e') - 1;

    for (; *p == '0' || *p == '.'; p--) {
        if (*p == '0')
            *p = '9';
    }
    --*p;
}

/* `digits` of them hold the tie exactly. */
static void expect_around(long double tie, int digits,
                          void (*expect)(const char *text))
{
    static char zeros[301];
    char text[2400], exact[1600];

    memset(zeros, '0', sizeof zeros - 1);
    snprintf(exact, sizeof exact, "%.*Le", digits, tie);
    memcpy(text, exact, sizeof exact);
    expect(text);
    insert(text, "1");
    expect(text);
    memcpy(text, exact, sizeof exact);
    insert(text, zeros);
    insert(text, zeros);
    insert(text, "0000000000000001");
    expect(text);
    memcpy(text, exact, sizeof exact);
    lower(text);
    expect(text);
    memcpy(text, exact, sizeof exact);
    insert(text, zeros);
    lower(text);
    expect(text);
    snprintf(text, sizeof text, "%.*Le", 18, tie);
    expect(text);
    snprintf(text, sizeof text, "%.*Le", 19, tie);
    expect(text);
}

static void ties_between_float32_and_their_neighbours_round_right(void **state)
{
    (void)state;
    for (int i = 0; i < 6000; i++) {
        float value = i % 8 == 0 ? float_of((uint32_t)random64() & 0x807fffff)
                                 : random_float();
        long double next = nextafterf(value, INFINITY);

        if (value != 0 && isfinite(next) && next != 0)
            expect_around((value + next) / 2, 130, expect_f32);
    }
}

static void ties_between_float64_and_their_neighbours_round_right(void **state)
{
    const uint64_t sign_and_fraction = 0x800fffffffffffff;

    (void)state;
    for (int i = 0; i < 1200; i++) {
        double value = i % 8 == 0 ? double_of(random64() & sign_and_fraction)
                                  : random_double();
        double next = nextafter(value, INFINITY);

        if (value != 0 && isfinite(next) && next != 0)
            expect_around(((long double)value + (long double)next) / 2, 780,
                          expect_f64);
    }
}

/* Short ties: what people type, and what 128 bits of 10^-1 can't decide. */
static void halves_between_integers_round_to_even(void **state)
{
    char text[64];

    (void)state;
    for (int i = 0; i < 20000; i++) {
        uint64_t shift = random64() % 16;
        uint64_t whole = (uint64_t)1 << (24 + 29 * (i & 1)) |
                         random64() >> (40 - 29 * (i & 1));

        snprintf(text, sizeof text, "%llu.%s",
                 (unsigned long long)(whole >> (shift + 1)),
                 (const char *[]){ "5", "50", "25", "75", "125" }[i % 5]);
        expect_both(text);
        snprintf(text, sizeof text, "%llue%d", (unsigned long long)whole,
                 (int)shift - 8);
        expect_both(text);
    }
}

static void a_float32_is_not_read_by_way_of_a_double(void **state)
{
    static const struct {
        const char *text;
        float want;
    } rows[] = {
        { "1.00000017881393432617187499", 0x1.000002p+0F },
        { "16777217.0000000001", 0x1.000002p+24F },
        { "8388609.499999999999999", 0x1.000002p+23F },
        { "7.0064923216240854e-46", 0x1p-149F },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        float value = 0;
        const char *end = rows[i].text + strlen(rows[i].text);

        assert_int_equal(number_read_f32(rows[i].text, end, &value),
                         end - rows[i].text);
        assert_true(value == rows[i].want);
        assert_true((float)strtod(rows[i].text, NULL) != rows[i].want);
    }
}

static void limits_and_their_neighbours_read_right(void **state)
{
    static const char *rows[] = {
        "3.4028234663852886e38",
        "3.4028235e38",
        "3.4028235677973366e38", /* rounds to infinity, though below the tie */
        "3.4028235677973365e38",
        "3.4028235677973367e38",
        "340282356779733661637539395458142568447",
        "340282356779733661637539395458142568448", /* the tie: infinity */
        "340282356779733661637539395458142568447.99999999999999999999999999",
        "3.4028236e38",
        "1e39",
        "1e999",
        "1.401298464324817e-45",
        "7.006492321624085e-46",
        "7.006492321624086e-46",
        "7.00649232162408535461864791644958065640130970938257885878534141944"
        "895541342930300743319094181060791015625e-46", /* the tie: zero */
        "7.00649232162408535461864791644958065640130970938257885878534141944"
        "8955413429303007433190941810607910156250000000000000001e-46",
        "1.1754943508222875e-38",
        "1.1754942807573643e-38",
        "1.1754942107e-38",
        "1e-46",
        "1.7976931348623157e308",
        "1.7976931348623158e308",
        "1.7976931348623159e308",
        "179769313486231580793728971405303415079934132710037826936173778980444"
        "968292764750946649017977587207096330286416692887910946555547851940402"
        "630657488671505820681908902000708383676273854845817711531764475730270"
        "069855571366959622842914819860834936475292719074168444365510704342711"
        "559699508093042880e0", /* the tie */
        "1.797693134862315807e308",
        "1.7976931348623158079e308",
        "1e309",
        "2.2250738585072011e-308",
        "2.2250738585072012e-308",
        "2.2250738585072014e-308",
        "4.9406564584124654e-324",
        "2.4703282292062327e-324",
        "2.4703282292062328e-324",
        "1e-324",
        "1e-999",
        "0e999",
        "0.0e-999",
        "9007199254740993",
        "9007199254740993.0",
        "18446744073709551615",
        "18446744073709551616",
        "9999999999999999999",
        "10000000000000000000",
        "0.00000000000000000000000000000000000000000000000000001",
        "1e23",
        "8.5e22",
        "6.631236846766476e-316",
        "3.237883913302901e-319",
    };
    char negative[512];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        expect_both(rows[i]);
        snprintf(negative, sizeof negative, "-%s", rows[i]);
        expect_both(negative);
    }
}

static void every_power_of_ten_reads_as_libc_reads_it(void **state)
{
    char text[64];

    (void)state;
    for (int q = -400; q <= 400; q++) {
        for (int digit = 1; digit <= 9; digit++) {
            snprintf(text, sizeof text, "%de%d", digit, q);
            expect_both(text);
        }
        snprintf(text, sizeof text, "18446744073709551615e%d", q);
        expect_both(text);
    }
}

static const struct {
    const char *text;
    size_t takes;
} grammar[] = {
    /* y: all of it */
    { "0", 1 },
    { "-0", 2 },
    { "-0.0", 4 },
    { "1", 1 },
    { "10", 2 },
    { "1.5", 3 },
    { "0.5", 3 },
    { "0.05", 4 },
    { "1e5", 3 },
    { "1E5", 3 },
    { "1e+5", 4 },
    { "1E-5", 4 },
    { "0e0", 3 },
    { "0E+00", 5 },
    { "1e007", 5 },
    { "1.5e-10", 7 },
    { "123456789.123456789e12", 22 },
    { "12345678901234567890", 20 },
    /* y: up to what can't belong to it */
    { "1x", 1 },
    { "1,2", 1 },
    { "1 ", 1 },
    { "1]", 1 },
    { "1_000", 1 },
    { "0x10", 1 },
    { "1-2", 1 },
    { "1.5.5", 3 },
    { "1e5e5", 3 },
    { "1e5.5", 3 },
    { "1f", 1 },
    { "1/", 1 },
    { "1:", 1 },
    { "1.25/56789", 4 },
    { "1.25:56789", 4 },
    { "1.1234567\xb9", 9 },
    { "1.1234567\xff", 9 },
    { "1.12345678/", 10 },
    { "1.123456781234567\x80", 17 },
    { "1.5\x05", 3 },
    /* n */
    { "", 0 },
    { "-", 0 },
    { "+", 0 },
    { "+1", 0 },
    { "--1", 0 },
    { "-+1", 0 },
    { "- 1", 0 },
    { " 1", 0 },
    { ".", 0 },
    { ".5", 0 },
    { "-.5", 0 },
    { "1.", 0 },
    { "1.,", 0 },
    { "1.e5", 0 },
    { "1.-5", 0 },
    { "1.     567", 0 },
    { "00", 0 },
    { "01", 0 },
    { "-01", 0 },
    { "-00.5", 0 },
    { "1e", 0 },
    { "1e+", 0 },
    { "1e-", 0 },
    { "1e,", 0 },
    { "1e.5", 0 },
    { "1e+-5", 0 },
    { "1.5e", 0 },
    { "e5", 0 },
    { "NaN", 0 },
    { "Infinity", 0 },
    { "-Infinity", 0 },
    { "inf", 0 },
    { "x", 0 },
    { "\xd9\xa1", 0 }, /* a digit in Arabic */
    { "/", 0 },
    { ":", 0 },
};

static void the_grammar_is_that_of_json(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof grammar / sizeof *grammar; i++) {
        const char *text = grammar[i].text, *end = text + strlen(text);
        float f;
        double d;

        if (number_read_f32(text, end, &f) != grammar[i].takes ||
            number_read_f64(text, end, &d) != grammar[i].takes)
            fail_msg("\"%s\" should take %zu", text, grammar[i].takes);
    }
}

/* Each prefix of each text, with its end on the end of a page. */
static void nothing_at_or_past_the_end_is_read(void **state)
{
    static const char *texts[] = {
        "-12.345678901234567e-10",
        "0.1234567890123456789012345678901234567890",
        "123456789012345678901234567890e+123456789",
        "16777217.000000000000000000000000000000000",
    };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        for (size_t len = 0; len <= strlen(texts[i]); len++) {
            char *at = memcpy(pages + page - len, texts[i], len);
            float f = 0, f_within = 0;
            double d = 0, d_within = 0;

            assert_int_equal(
                number_read_f32(at, at + len, &f),
                number_read_f32(texts[i], texts[i] + len, &f_within));
            assert_int_equal(
                number_read_f64(at, at + len, &d),
                number_read_f64(texts[i], texts[i] + len, &d_within));
            assert_true(f == f_within && d == d_within);
        }
    }
    munmap(pages, 2 * page);
}

enum { MANY = 1000000 };

/* `head`, MANY times `fill`, `tail`. */
static char *long_text(const char *head, char fill, const char *tail)
{
    size_t before = strlen(head), behind = strlen(tail) + 1;
    char *text = malloc(before + MANY + behind);

    assert_non_null(text);
    memcpy(text, head, before);
    memset(text + before, fill, MANY);
    memcpy(text + before + MANY, tail, behind);
    return text;
}

static void a_million_digits_read_right_in_linear_time(void **state)
{
    static const struct {
        const char *head;
        char fill;
        const char *tail;
        double want;
    } rows[] = {
        { "0.", '0', "1e1000001", 1 },
        { "1", '0', "e-1000000", 1 },
        { "-25", '0', ".0e-1000001", -2.5 },
        { "0.", '9', "", 1 },
        { "1.", '0', "1", 1 },
        { "16777217.", '0', "1", 0 }, /* two formats, two answers */
        { "0.", '0', "", 0 },
        { "-0.", '0', "e5", -0.0 },
        { "", '9', "", INFINITY },
        { "0.", '0', "1", 0 },
        { "0e", '9', "", 0 },
        { "-0.0e-", '9', "", -0.0 },
        { "1e", '9', "", INFINITY },
        { "-1e-", '9', "", -0.0 },
        { "1e-", '0', "1", 0.1 },
    };
    clock_t start = clock();

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = long_text(rows[i].head, rows[i].fill, rows[i].tail);
        char *end = text + strlen(text);
        bool tie = rows[i].want == 0 && rows[i].head[0] == '1';
        float f = NAN, want = tie ? 16777218 : (float)rows[i].want;
        double d = NAN;

        assert_int_equal(number_read_f32(text, end, &f), end - text);
        assert_int_equal(number_read_f64(text, end, &d), end - text);
        if (bits_of_float(f) != bits_of_float(want) ||
            bits_of_double(d) !=
                bits_of_double(tie ? 16777217 : rows[i].want))
            fail_msg("%s%c...%s: %a %a", rows[i].head, rows[i].fill,
                     rows[i].tail, (double)f, d);
        free(text);
    }
    /* 30 MB at a few ns a byte; quadratic would be hours */
    assert_true(clock() - start < 5 * CLOCKS_PER_SEC);
}

enum { TEXT = 64 }; /* room for any number written in the tests below */

/* d.ddd * 10^exponent as text, by the rule in number.h. */
static void lay_out_plainly(const char *digits, int exponent, char *out)
{
    char plain[512], scientific[96];
    int count = (int)strlen(digits);

    if (exponent < 0)
        snprintf(plain, sizeof plain, "0.%.*s%s", -exponent - 1,
                 (char[400]){ [0 ... 398] = '0' }, digits);
    else if (count <= exponent + 1)
        snprintf(plain, sizeof plain, "%s%.*s", digits, exponent + 1 - count,
                 (char[400]){ [0 ... 398] = '0' });
    else
        snprintf(plain, sizeof plain, "%.*s.%s", exponent + 1, digits,
                 digits + exponent + 1);
    snprintf(scientific, sizeof scientific, "%c%s%se%d", digits[0],
             count > 1 ? "." : "", digits + 1, exponent);

    const char *text = strlen(plain) <= strlen(scientific) ? plain : scientific;

    memcpy(out, text, strlen(text) + 1);
}

/* "d.dddde-xx" to digits without zeros at the end, and the exponent. */
static int split(const char *text, char *digits)
{
    int n = 0;

    for (; *text != 'e'; text++) {
        if (*text != '.')
            digits[n++] = *text;
    }
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = '\0';
    return (int)strtol(text + 1, NULL, 10);
}

static bool reads_back(const char *text, double value, bool wide)
{
    return wide ? strtod(text, NULL) == value
                : (double)strtof(text, NULL) == value;
}

/* The decimal of n digits nearest to the value or, if that one doesn't read
 * back, the next above it: just above a power of two the interval reaches
 * farther up than down. False when neither does. */
static bool try_digits(int n, double value, bool wide, char *out)
{
    snprintf(out, TEXT, "%.*e", n - 1, value);
    if (reads_back(out, value, wide))
        return true;
    fesetround(FE_UPWARD); /* glibc's printf obeys it */
    snprintf(out, TEXT, "%.*e", n - 1, value);
    fesetround(FE_TONEAREST);
    return reads_back(out, value, wide);
}

/* With the fewest digits for which there is one. */
static void shortest_by_trying(double value, bool wide, char *out)
{
    char text[TEXT], best[TEXT], digits[TEXT];

    for (int n = wide ? 17 : 9; n >= 1; n--) {
        if (!try_digits(n, value, wide, text))
            break;
        memcpy(best, text, sizeof best);
    }

    int exponent = split(best, digits);

    lay_out_plainly(digits, exponent, out);
}

static void expect_text(double value, bool wide)
{
    char got[TEXT], want[TEXT + 1];

    memset(got, 'Z', sizeof got);

    size_t len = wide ? number_write_f64(value, got)
                      : number_write_f32((float)value, got);
    size_t touched = wide ? NUMBER_F64_BYTES : NUMBER_F32_BYTES;

    assert_true(got[touched] == 'Z');
    assert_true(len <= (wide ? NUMBER_F64_TEXT : NUMBER_F32_TEXT));
    got[len] = '\0';
    want[0] = '-';
    shortest_by_trying(fabs(value), wide, want + (value < 0));
    if (strcmp(got, want) != 0)
        fail_msg("%a: got %s want %s", value, got, want);
}

static void every_exponent_of_float32_is_written_shortest_and_nearest(
    void **state)
{
    (void)state;
    for (uint32_t exponent = 0; exponent < 255; exponent++) {
        for (uint32_t i = 0; i < 400; i++) {
            uint32_t mantissa = (uint32_t)random64() & 0x7fffff;

            if (i < 6)
                mantissa = i < 3 ? i : 0x7fffff - (i - 3);
            if (i % 16 == 7) /* a few bits: short decimals */
                mantissa &= 0x700000;

            uint32_t bits = (uint32_t)(i & 1) << 31 | exponent << 23 | mantissa;
            float value = float_of(bits), back = NAN;
            char text[NUMBER_F32_BYTES];

            if (value == 0 || number_is_beside_one(bits))
                continue;
            expect_text((double)value, false);

            size_t len = number_write_f32(value, text);

            assert_int_equal(number_read_f32(text, text + len, &back), len);
            assert_int_equal(bits_of_float(back), bits);
        }
    }
}

static void every_exponent_of_float64_is_written_shortest_and_nearest(
    void **state)
{
    (void)state;
    for (uint64_t exponent = 0; exponent < 2047; exponent++) {
        for (uint64_t i = 0; i < 16; i++) {
            uint64_t mantissa = random64() >> 12;

            if (i < 4)
                mantissa = i < 2 ? i : ~(uint64_t)0 >> 12 << (i - 2) >> (i - 2);

            uint64_t bits = i << 63 | exponent << 52 | mantissa;
            double value = double_of(bits), back = NAN;
            char text[NUMBER_F64_BYTES];

            if (value == 0)
                continue;
            expect_text(value, true);

            size_t len = number_write_f64(value, text);

            assert_int_equal(number_read_f64(text, text + len, &back), len);
            assert_true(bits_of_double(back) == bits);
        }
    }
}

/* At any level the same bytes are written: number_array_test.c. */
static void a_million_float64_of_every_kind_are_written_shortest_and_nearest(
    void **state)
{
    (void)state;
    for (int i = 0; i < 1000000; i++) {
        double value = draw_double(DRAWS);

        if (isfinite(value) && value != 0)
            expect_text(value, true);
    }
}

static void beside_one_nine_digits_tell_the_distance(void **state)
{
    (void)state;
    for (uint32_t k = 0; k <= 70; k++) {
        float value = float_of(0x3f800000 + k);
        char text[NUMBER_F32_BYTES + 1], want[TEXT];
        size_t len = number_write_f32(value, text);

        text[len] = '\0';
        snprintf(want, sizeof want, "%.9g", (double)value);
        if (k >= 1 && k <= 63)
            assert_string_equal(text, want);
        if (k >= 1)
            assert_true(fabs(strtod(text, NULL) - (double)value) <=
                        0.01 * ((double)value - 1));

        size_t negative = number_write_f32(-value, want);

        assert_int_equal(negative, len + 1);
        assert_memory_equal(want + 1, text, len);
    }
}

/* Few digits, so every layout: points, zeros, both notations. */
static void short_decimals_come_back_as_they_were(void **state)
{
    char text[64];

    (void)state;
    for (int i = 0; i < 60000; i++) {
        int digits = 1 + (int)(random64() % 5);
        uint64_t mantissa = random64() % (uint64_t)pow(10, digits) + 1;

        snprintf(text, sizeof text, "%llue%d", (unsigned long long)mantissa,
                 (int)(random64() % 44) - 22);
        expect_text((double)strtof(text, NULL), false);
        expect_text(strtod(text, NULL), true);
    }
}

static void the_notation_is_the_shorter_one(void **state)
{
    static const struct {
        double value;
        const char *f32, *f64;
    } rows[] = {
        { 0.0, "0", "0" },
        { -0.0, "-0.0", "-0.0" },
        { 1, "1", "1" },
        { -1, "-1", "-1" },
        { 0.5, "0.5", "0.5" },
        { 10, "10", "10" },
        { 100, "100", "100" },
        { 1000, "1e3", "1e3" },
        { 1200, "1200", "1200" },
        { 0.01, "0.01", "0.01" },
        { 0.001, "1e-3", "1e-3" },
        { 0.00123, "0.00123", "0.00123" },
        { 0.000123, "1.23e-4", "1.23e-4" },
        { 1e-7, "1e-7", "1e-7" },
        { 1.5e10, "1.5e10", "1.5e10" },
        { 16777216, "16777216", "16777216" },
        { 2097152.25, "2097152.2", "2097152.25" }, /* a tie, to even */
        { 2097152.75, "2097152.8", "2097152.75" },
        { 0x1.fffffep+127, "3.4028235e38", "3.4028234663852886e38" },
        { 0x1p-149, "1e-45", "1.401298464324817e-45" },
        { 0x1p-126, "1.1754944e-38", "1.1754943508222875e-38" },
        { 12345678901234567000.0, "1.2345679e19", "12345678901234567000" },
        { 123456784, "123456780", "123456784" }, /* the end of an interval */
        { 1234567890000, "1.234568e12", "1234567890000" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[64];
        size_t len = number_write_f32((float)rows[i].value, text);

        assert_int_equal(len, strlen(rows[i].f32));
        assert_memory_equal(text, rows[i].f32, len);
        len = number_write_f64(rows[i].value, text);
        assert_int_equal(len, strlen(rows[i].f64));
        assert_memory_equal(text, rows[i].f64, len);
    }
}

static const struct {
    const char *text;
    enum number_int is;
    int64_t value;
} integers[] = {
    { "0", NUMBER_INT_OK, 0 },
    { "-0", NUMBER_INT_OK, 0 },
    { "-0.000e99999999999999999999", NUMBER_INT_OK, 0 },
    { "2", NUMBER_INT_OK, 2 },
    { "2.0", NUMBER_INT_OK, 2 },
    { "2e0", NUMBER_INT_OK, 2 },
    { "20e-1", NUMBER_INT_OK, 2 },
    { "-0.02e2", NUMBER_INT_OK, -2 },
    { "2.50e1", NUMBER_INT_OK, 25 },
    { "1e18", NUMBER_INT_OK, 1000000000000000000 },
    { "9223372036854775807", NUMBER_INT_OK, INT64_MAX },
    { "9223372036854775807.000000000000000000000", NUMBER_INT_OK, INT64_MAX },
    { "92233720368547758070000000000e-10", NUMBER_INT_OK, INT64_MAX },
    { "-9223372036854775808", NUMBER_INT_OK, INT64_MIN },
    { "-9.223372036854775808e18", NUMBER_INT_OK, INT64_MIN },
    { "0.00000000000000000000000000000000000003e38", NUMBER_INT_OK, 3 },
    { "300000000000000000000000000000000000000e-38", NUMBER_INT_OK, 3 },
    { "1e0000000000000000000000000000000000000001", NUMBER_INT_OK, 10 },
    { "1.5", NUMBER_INT_FRACTION, 0 },
    { "-0.1", NUMBER_INT_FRACTION, 0 },
    { "1e-1", NUMBER_INT_FRACTION, 0 },
    { "1e-99999999999999999999", NUMBER_INT_FRACTION, 0 },
    { "9223372036854775807.5", NUMBER_INT_FRACTION, 0 },
    { "99999999999999999999.5", NUMBER_INT_FRACTION, 0 },
    { "1.0000000000000000000000000000001", NUMBER_INT_FRACTION, 0 },
    { "10000000000000000000000000000001e-1", NUMBER_INT_FRACTION, 0 },
    { "9223372036854775808", NUMBER_INT_RANGE, 0 },
    { "-9223372036854775809", NUMBER_INT_RANGE, 0 },
    { "1e19", NUMBER_INT_RANGE, 0 },
    { "-1e19", NUMBER_INT_RANGE, 0 },
    { "1e99999999999999999999", NUMBER_INT_RANGE, 0 },
    { "18446744073709551616", NUMBER_INT_RANGE, 0 },
    { "184467440737095516160", NUMBER_INT_RANGE, 0 },
    { "100000000000000000000000000000001", NUMBER_INT_RANGE, 0 },
    { "1.00000000000000000000000000000010e31", NUMBER_INT_RANGE, 0 },
};

static void integers_in_any_spelling_are_told_from_fractions_and_overflows(
    void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        int64_t value = 0;

        if (number_read_i64(integers[i].text, strlen(integers[i].text),
                            &value) != integers[i].is ||
            value != integers[i].value)
            fail_msg("%s: got %lld", integers[i].text, (long long)value);
    }
}

static void integers_of_a_million_digits_are_judged_right(void **state)
{
    static const struct {
        const char *head, *tail;
        enum number_int is;
    } rows[] = {
        { "7", "e-1000000", NUMBER_INT_OK },
        { "0.", "7e1000001", NUMBER_INT_OK },
        { "7.", "", NUMBER_INT_OK },
        { "7.", "1", NUMBER_INT_FRACTION },
        { "7", "e-1000001", NUMBER_INT_FRACTION },
        { "7", "", NUMBER_INT_RANGE },
        { "7", "1.0", NUMBER_INT_RANGE },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = long_text(rows[i].head, '0', rows[i].tail);
        int64_t value = 7;

        assert_int_equal(number_read_i64(text, strlen(text), &value),
                         rows[i].is);
        assert_int_equal(value, 7);
        free(text);
    }
}

static void expect_i64(int64_t value)
{
    char got[NUMBER_I64_BYTES], want[32];
    size_t len = number_write_i64(value, got);
    int64_t back = 0;

    assert_int_equal(snprintf(want, sizeof want, "%lld", (long long)value),
                     len);
    assert_memory_equal(got, want, len);
    assert_int_equal(number_read_i64(got, len, &back), NUMBER_INT_OK);
    assert_true(back == value);
}

static void integers_are_written_as_libc_writes_them(void **state)
{
    (void)state;
    expect_i64(0);
    expect_i64(INT64_MAX);
    expect_i64(INT64_MIN);
    for (int64_t power = 1; power <= INT64_MAX / 10; power *= 10) {
        expect_i64(power);
        expect_i64(power - 1);
        expect_i64(-power);
        expect_i64(1 - power);
    }
    for (int i = 0; i < 100000; i++)
        expect_i64((int64_t)random64() >> random64() % 64);
}

/* The table, worked out again in base 2^32: little-endian limbs. */

static const uint64_t powers[][2] = {
#define POWER(high, low) { high, low },
#include "api/number_powers.def"
#undef POWER
};

enum { LIMBS = 40 };

static void multiply(uint32_t *big, uint32_t factor)
{
    uint64_t carry = 0;

    for (int i = 0; i < LIMBS; i++) {
        carry += (uint64_t)big[i] * factor;
        big[i] = (uint32_t)carry;
        carry >>= 32;
    }
    assert_true(carry == 0);
}

static int bit(const uint32_t *big, int i)
{
    return i < 0 ? 0 : (int)(big[i / 32] >> i % 32 & 1);
}

static int length(const uint32_t *big)
{
    int n = 32 * LIMBS;

    while (bit(big, n - 1) == 0)
        n--;
    return n;
}

/* big -= take * 2^n if that leaves nothing below zero. */
static int subtract(uint32_t *big, const uint32_t *take)
{
    uint32_t left[LIMBS];
    int64_t borrow = 0;

    for (int i = 0; i < LIMBS; i++) {
        borrow += (int64_t)big[i] - take[i];
        left[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
    if (borrow < 0)
        return 0;
    memcpy(big, left, sizeof left);
    return 1;
}

static void expect_row(int q, const uint64_t want[2])
{
    const uint64_t *row = powers[q + 342];

    if (row[0] != want[0] || row[1] != want[1])
        fail_msg("10^%d: %016llx %016llx", q, (unsigned long long)want[0],
                 (unsigned long long)want[1]);
}

/* 10^q and 5^q have the same leading bits; those of 5^-q come by long division
 * of a power of two. */
static void the_powers_of_ten_are_right_to_the_last_bit(void **state)
{
    uint32_t five[LIMBS] = { 1 };

    (void)state;
    assert_int_equal(sizeof powers / sizeof *powers, 342 + 1 + 324);
    for (int q = 0; q <= 342; q++, multiply(five, 5)) {
        uint64_t direct[2] = { 0 }, inverse[2] = { 0 };
        uint32_t rest[LIMBS] = { 0 };
        int top = length(five), n = 0;

        for (int i = 0; i < 128; i++)
            direct[i / 64] = direct[i / 64] << 1 |
                             (uint64_t)bit(five, top - 1 - i);
        if (q <= 324)
            expect_row(q, direct);
        rest[(top - 1) / 32] = (uint32_t)1 << (top - 1) % 32;
        while (q > 0 && n < 128) {
            multiply(rest, 2);
            inverse[n / 64] = inverse[n / 64] << 1 |
                              (uint64_t)subtract(rest, five);
            n++;
        }
        if (q > 0)
            expect_row(-q, inverse);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_powers_of_ten_are_right_to_the_last_bit),
        cmocka_unit_test(the_grammar_is_that_of_json),
        cmocka_unit_test(nothing_at_or_past_the_end_is_read),
        cmocka_unit_test(a_float32_is_not_read_by_way_of_a_double),
        cmocka_unit_test(limits_and_their_neighbours_read_right),
        cmocka_unit_test(every_power_of_ten_reads_as_libc_reads_it),
        cmocka_unit_test(random_bits_in_any_precision_read_as_libc_reads_them),
        cmocka_unit_test(random_digits_and_exponents_read_as_libc_reads_them),
        cmocka_unit_test(ties_between_float32_and_their_neighbours_round_right),
        cmocka_unit_test(ties_between_float64_and_their_neighbours_round_right),
        cmocka_unit_test(halves_between_integers_round_to_even),
        cmocka_unit_test(a_million_digits_read_right_in_linear_time),
        cmocka_unit_test(the_notation_is_the_shorter_one),
        cmocka_unit_test(short_decimals_come_back_as_they_were),
        cmocka_unit_test(
            every_exponent_of_float32_is_written_shortest_and_nearest),
        cmocka_unit_test(beside_one_nine_digits_tell_the_distance),
        cmocka_unit_test(
            every_exponent_of_float64_is_written_shortest_and_nearest),
        cmocka_unit_test(
            a_million_float64_of_every_kind_are_written_shortest_and_nearest),
        cmocka_unit_test(
            integers_in_any_spelling_are_told_from_fractions_and_overflows),
        cmocka_unit_test(integers_of_a_million_digits_are_judged_right),
        cmocka_unit_test(integers_are_written_as_libc_writes_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
