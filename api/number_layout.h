#ifndef API_NUMBER_LAYOUT_H
#define API_NUMBER_LAYOUT_H

#include <stdint.h>

/* How the text of a float32 is put together from what was worked out of it, a
 * row of bytes for each way: what stands at each place, up to the comma behind
 * the number. With its top bit clear a byte is a source, otherwise the other
 * seven bits are the character, and none for 0x80. The levels index the rows;
 * number_select() has them made before any is used. */

enum layout_source {
    /* 0 to 7: the second digit to the ninth */
    LAYOUT_FIRST = 8,
    LAYOUT_EXPONENT_TENS,
    LAYOUT_EXPONENT_ONES,
    LAYOUT_SIGN, /* always at the first place: '-' or none */
};

/* Kinds of LAYOUT_DIGITS rows each, for 1 digit, 2 digits and so on. The first
 * digit is worth 10^exponent. */
enum layout_kind {
    LAYOUT_PLAIN_LOW = -3, /* plain, with exponents from this */
    LAYOUT_PLAIN_HIGH = 12,
    LAYOUT_SCIENTIFIC = LAYOUT_PLAIN_HIGH - LAYOUT_PLAIN_LOW + 1,
    LAYOUT_E_MINUS = 1, /* to be added: a negative exponent */
    LAYOUT_E_TENS = 2,  /* one of two digits */
    LAYOUT_KINDS = LAYOUT_SCIENTIFIC + 4,
};

enum {
    LAYOUT_BYTES = 16, /* -1.23456789e-38, */
    LAYOUT_DIGITS = 9,
    LAYOUT_ZERO = LAYOUT_KINDS * LAYOUT_DIGITS,
    LAYOUT_MINUS_ZERO,
    LAYOUT_NULL,
    LAYOUT_ROWS,
};

/* One byte more, so that a row may be read from its second place on. */
extern uint8_t number_layouts[LAYOUT_ROWS * LAYOUT_BYTES + 1];

void number_layouts_make(void);

#endif
