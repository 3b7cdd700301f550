#ifndef TESTS_UNIT_NUMBER_DRAW_H
#define TESTS_UNIT_NUMBER_DRAW_H

#include "tests/unit/number_values.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers as text, of every kind that a reader may get wrong, drawn at random;
 * and arrays of them. The same state gives the same text. */

/* Text being made. */
struct text {
    char *data;
    size_t len, room;
};

static char *text_room(struct text *t, size_t bytes)
{
    if (t->room - t->len < bytes) {
        t->room = 2 * t->room + bytes;
        t->data = realloc(t->data, t->room);
        if (t->data == NULL)
            abort();
    }
    return t->data + t->len;
}

static void add(struct text *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add(struct text *t, const char *format, ...)
{
    va_list args;
    char *at = text_room(t, 2048);

    va_start(args, format);
    t->len += (size_t)vsnprintf(at, 2048, format, args);
    va_end(args);
}

static void add_digits(struct text *t, size_t count)
{
    char *at = text_room(t, count);

    for (size_t i = 0; i < count; i++)
        at[i] = (char)('0' + below(10));
    t->len += count;
}

/* A number in the manner of a kind. */

static void add_activation(struct text *t, const char *format)
{
    double sum = -2;

    for (int i = 0; i < 4; i++)
        sum += (double)(random64() >> 11) * 0x1p-53;
    add(t, format, sum);
}

static void add_17_digits(struct text *t)
{
    add_activation(t, "%.17g");
}

static void add_8_digits(struct text *t)
{
    add_activation(t, "%.8g");
}

static void add_any_float(struct text *t)
{
    float value = float_of((uint32_t)random64());

    add(t, "%.9g", isfinite(value) ? (double)value : 0.0);
}

static void add_any_double(struct text *t)
{
    double value = double_of(random64());

    add(t, "%.17g", fabs(value) < FLT_MAX ? value : 0.0);
}

static void add_integer(struct text *t)
{
    add(t, "%lld", (long long)((int64_t)random64() >> below(64)));
}

static void add_denormal(struct text *t)
{
    add(t, "%.*g", 1 + (int)below(20),
        (double)float_of((uint32_t)random64() & 0x80ffffff));
}

static void add_limit(struct text *t)
{
    static const char *const limits[] = {
        "3.4028235677973365e38", "3.4028234663852886e+38", "1.1754943508e-38",
        "1.401298464324817e-45", "7.006492321624085e-46", "1e-400", "-0", "0",
        "7.006492321624086e-46", "1.1754942807573643e-38", "-0.0", "0e5",
        "0.0e-999", "1e38", "1e-38", "1E+0", "1e-0", "1e00000000000000000010",
        "0.00000000000000000000000000000000000000000000001e46",
        "100000000000000000000000000000000000000", "1e-63", "1e-64", "1e-65",
        "999999999999999999999999e-64", "999999999999999999999999",
        "0.999999999999999999999999", "-1234567890123456789012.34e-5",
    };

    add(t, "%s", limits[below(sizeof limits / sizeof *limits)]);
}

/* What is wrong by way of a correctly rounded double. */
static void add_trap(struct text *t)
{
    static const char *const traps[] = {
        "1.00000017881393432617187499", "16777217.0000000001",
        "8388609.499999999999999", "7.0064923216240854e-46",
    };

    add(t, "%s", traps[below(sizeof traps / sizeof *traps)]);
}

/* Half way between two float32, to so many digits that all are there, or not,
 * and with one more behind them. */
static void add_tie(struct text *t)
{
    float value = float_of((uint32_t)random64() & 0xbfffffff);
    double tie = ((double)value + (double)nextafterf(value, INFINITY)) / 2;
    int digits = (int)below(8) == 0 ? 130 : 12 + (int)below(20);
    size_t was = t->len;

    if (fabs(tie) < 1e-3 || fabs(tie) > 1e5)
        add(t, "%.*e", digits, tie);
    else
        add(t, "%.*f", digits, tie);

    char *e = memchr(t->data + was, 'e', t->len - was);

    if (e == NULL && below(2) == 0)
        add(t, "%c", '0' + (int)below(10));
    if (e == NULL && below(4) == 0)
        t->data[t->len - 1] = (char)('0' + below(10));
}

/* Half way between two float64, or the digits of one of them. */
static void add_wide_tie(struct text *t)
{
    double value = ldexp((double)(random64() >> 11), -70 + (int)below(60));
    long double tie = ((long double)value +
                       (long double)nextafter(value, INFINITY)) / 2;

    add(t, "%.*Lg", 16 + (int)below(9), below(4) == 0 ? value : tie);
}

static void add_short_tie(struct text *t)
{
    bool wide = below(2) == 0;
    uint64_t whole = (uint64_t)1 << (wide ? 52 : 23) |
                     random64() >> (wide ? 12 : 41);

    add(t, "%llu.5%s", (unsigned long long)whole,
        (const char *[]){ "", "0", "000000000", "00001" }[below(4)]);
}

static void add_many_digits(struct text *t)
{
    size_t count = below(16) == 0 ? 1 + below(1000) : 1 + below(40);

    add(t, "%s%d", below(2) == 0 ? "-" : "", 1 + (int)below(9));
    add_digits(t, below(38));
    if (below(4) != 0) {
        add(t, ".");
        add_digits(t, count);
    }
}

static void add_exponent(struct text *t)
{
    static const char *const marks[] = { "e", "E", "e+", "E+", "e-", "E-" };

    add(t, "%s%d", below(2) == 0 ? "-" : "", (int)below(10));
    if (below(3) != 0) {
        add(t, ".");
        add_digits(t, 1 + below(22));
    }
    add(t, "%s%d", marks[below(6)], (int)below(below(4) == 0 ? 60 : 20));
}

static void add_zeros(struct text *t)
{
    add(t, "0.%.*s", (int)below(20), "00000000000000000000");
    add_digits(t, 1 + below(20));
}

static void (*const kinds[])(struct text *) = {
    add_17_digits, add_8_digits, add_any_float, add_any_double, add_integer,
    add_denormal, add_limit, add_trap, add_tie, add_wide_tie, add_short_tie,
    add_many_digits, add_exponent, add_zeros,
};

enum { KINDS = sizeof kinds / sizeof *kinds };

static void add_space(struct text *t)
{
    static const char *const spaces[] = {
        "", " ", "\n", "\r\n", "\t", "  \n\t ", "\n        ",
        "                                                                    ",
    };

    add(t, "%s", spaces[below(sizeof spaces / sizeof *spaces)]);
}

/* How the numbers of one text are apart, so that a text may be compact. */
enum separator { COMPACT, PYTHON, LINES, ANY, SEPARATORS };

static inline void add_separator(struct text *t, enum separator how, bool row_ends)
{
    const char *p = row_ends ? "],[" : ",";

    for (; *p != '\0'; p++) {
        if (how == ANY)
            add_space(t);
        add(t, how == PYTHON && *p == ',' ? ", " : "%c", *p);
        if (how == LINES && *p == ',')
            add(t, "\n");
        if (how == ANY)
            add_space(t);
    }
}

/* A number of kind 0..KINDS - 1; KINDS: of any. */
static inline void add_run(struct text *t, size_t count, size_t kind, size_t row,
                    enum separator how)
{
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            add_separator(t, how, row != 0 && i % row == 0);
        kinds[kind < KINDS ? kind : below(KINDS)](t);
    }
}

#endif
