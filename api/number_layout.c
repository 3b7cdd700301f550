#include "api/number_layout.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

uint8_t number_layouts[LAYOUT_ROWS * LAYOUT_BYTES + 1];

enum { CHARACTER = 0x80 };

/* A row while it is made. */
struct maker {
    uint8_t *row;
    int len;
};

static void put(struct maker *m, int source)
{
    assert(m->len < LAYOUT_BYTES);
    m->row[m->len++] = (uint8_t)source;
}

static void put_text(struct maker *m, const char *text)
{
    for (; *text != '\0'; text++)
        put(m, CHARACTER | *text);
}

static void put_digit(struct maker *m, int i, int count)
{
    put(m, i >= count ? CHARACTER | '0' : i == 0 ? LAYOUT_FIRST : i - 1);
}

static void put_plain(struct maker *m, int count, int exponent)
{
    put_text(m, exponent < 0 ? "0." : "");
    for (int i = exponent + 1; i < 0; i++)
        put_text(m, "0");
    for (int i = 0; i < count || i <= exponent; i++) {
        if (i == exponent + 1 && i > 0)
            put_text(m, ".");
        put_digit(m, i, count);
    }
}

static void put_scientific(struct maker *m, int count, bool minus, bool tens)
{
    put_digit(m, 0, count);
    put_text(m, count > 1 ? "." : "");
    for (int i = 1; i < count; i++)
        put_digit(m, i, count);
    put_text(m, minus ? "e-" : "e");
    if (tens)
        put(m, LAYOUT_EXPONENT_TENS);
    put(m, LAYOUT_EXPONENT_ONES);
}

static struct maker begin(int row)
{
    return (struct maker){ number_layouts + row * LAYOUT_BYTES, 0 };
}

static void make_digits(int kind, int count)
{
    struct maker m = begin(kind * LAYOUT_DIGITS + count - 1);
    int e = kind - LAYOUT_SCIENTIFIC;

    put(&m, LAYOUT_SIGN);
    if (kind < LAYOUT_SCIENTIFIC)
        put_plain(&m, count, kind + LAYOUT_PLAIN_LOW);
    else
        put_scientific(&m, count, (e & LAYOUT_E_MINUS) != 0,
                       (e & LAYOUT_E_TENS) != 0);
    put_text(&m, ",");
}

/* Its first place is none, for who starts with the second. */
static void make_word(int row, const char *text)
{
    struct maker m = begin(row);

    put(&m, CHARACTER);
    put_text(&m, text);
}

void number_layouts_make(void)
{
    memset(number_layouts, CHARACTER, sizeof number_layouts);
    for (int kind = 0; kind < LAYOUT_KINDS; kind++) {
        for (int count = 1; count <= LAYOUT_DIGITS; count++)
            make_digits(kind, count);
    }
    make_word(LAYOUT_ZERO, "0,");
    make_word(LAYOUT_MINUS_ZERO, "-0.0,");
    make_word(LAYOUT_NULL, "null,");
}
