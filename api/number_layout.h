#ifndef API_NUMBER_LAYOUT_H
#define API_NUMBER_LAYOUT_H

#include <stdint.h>

/* How the text of a number is put together from what was worked out of it, a
 * row of bytes for each way: what stands at each place, up to the comma behind
 * the number. With its top bit clear a byte is a source, otherwise the other
 * seven bits are the character, and none for 0x80. The levels index the rows;
 * number_select() has them made before any is used.
 *
 * A kind of rows, for 1 digit, 2 digits and so on, belongs to each exponent of
 * the first digit from LAYOUT_LOW to the format's HIGH, plain or scientific,
 * whichever is shorter; further kinds to those outside, which are scientific. */

enum {
    LAYOUT_LOW = -3,
    LAYOUT_MINUS = 1, /* to be added outside: a negative exponent */
    LAYOUT_DIGIT = 2, /* and for each of its digits but one */
};

/* ---- float32 ---- */

enum layout_source {
    /* 0 to 7: the second digit to the ninth */
    LAYOUT_FIRST = 8,
    LAYOUT_EXPONENT_TENS,
    LAYOUT_EXPONENT_ONES,
    LAYOUT_SIGN, /* always at the first place: '-' or none */
};

enum {
    LAYOUT_HIGH = 12,
    LAYOUT_OUTSIDE = LAYOUT_HIGH - LAYOUT_LOW + 1,
    LAYOUT_KINDS = LAYOUT_OUTSIDE + 4,
    LAYOUT_BYTES = 16, /* -1.23456789e-38, */
    LAYOUT_DIGITS = 9,
    LAYOUT_ZERO = LAYOUT_KINDS * LAYOUT_DIGITS,
    LAYOUT_MINUS_ZERO,
    LAYOUT_NULL,
    LAYOUT_ROWS,
};

/* One byte more, so that a row may be read from its second place on. */
extern uint8_t number_layouts[LAYOUT_ROWS * LAYOUT_BYTES + 1];

/* ---- float64 ---- */

enum wide_source {
    /* 0 to 15: the digits but the last */
    WIDE_LAST = 16,
    WIDE_EXPONENT_HUNDREDS,
    WIDE_EXPONENT_TENS,
    WIDE_EXPONENT_ONES,
    WIDE_SIGN,
};

enum {
    WIDE_HIGH = 20,
    WIDE_OUTSIDE = WIDE_HIGH - LAYOUT_LOW + 1,
    WIDE_KINDS = WIDE_OUTSIDE + 6,
    WIDE_BYTES = 32, /* -1.2345678901234567e-308, */
    WIDE_LENGTH = WIDE_BYTES - 1, /* where a row says how many places it has */
    WIDE_DIGITS = 17,
    WIDE_ZERO = WIDE_KINDS * WIDE_DIGITS,
    WIDE_MINUS_ZERO,
    WIDE_NULL,
    WIDE_ROWS,
};

extern uint8_t number_wide_layouts[WIDE_ROWS * WIDE_BYTES + 1];

void number_layouts_make(void);

#endif
