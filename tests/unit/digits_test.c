#include "server/digits.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int64_t values[] = {
    0, 1, 9, 10, 99, 100, 499, 500, 999, 1000, 1499, 1500, 999499, 999500,
    123456789, 999999499, 999999500, 3600000000000, INT64_MAX - 1, INT64_MAX,
};

enum { VALUES = sizeof values / sizeof *values };

static char text[DIGITS_BYTES + 1];

/* Ends the text where the digits do, which must be within their room. */
static const char *ended(char *end)
{
    assert_true(end > text && end <= text + DIGITS_BYTES);
    *end = '\0';
    return text;
}

static void integers_are_what_printf_makes_of_them(void **state)
{
    char expected[32];

    (void)state;
    for (size_t i = 0; i < VALUES; i++) {
        snprintf(expected, sizeof expected, "%" PRId64, values[i]);
        assert_string_equal(ended(digits_write(text, values[i])), expected);
        snprintf(expected, sizeof expected, "%" PRId64, -values[i]);
        assert_string_equal(ended(digits_write(text, -values[i])), expected);
        snprintf(expected, sizeof expected, "%016" PRIx64, values[i]);
        assert_string_equal(
            ended(digits_write_hex(text, (uint64_t)values[i], 16)), expected);
        snprintf(expected, sizeof expected, "%" PRIx64, values[i]);
        assert_string_equal(
            ended(digits_write_hex(text, (uint64_t)values[i], 1)), expected);
    }
    assert_string_equal(ended(digits_write(text, INT64_MIN)),
                        "-9223372036854775808");
    assert_string_equal(ended(digits_write_hex(text, UINT64_MAX, 16)),
                        "ffffffffffffffff");
}

static void milliseconds_are_rounded_to_the_nearest_microsecond(void **state)
{
    const struct {
        int64_t ns;
        const char *text;
    } rows[] = {
        { 0, "0.000" },         { 499, "0.000" },        { 500, "0.001" },
        { 999499, "0.999" },    { 999500, "1.000" },     { 10050000, "10.050" },
        { 5000000, "5.000" },   { 123456789, "123.457" },
        { INT64_MAX, "9223372036854.776" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(ended(digits_write_ms(text, rows[i].ns)),
                            rows[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_are_what_printf_makes_of_them),
        cmocka_unit_test(milliseconds_are_rounded_to_the_nearest_microsecond),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
