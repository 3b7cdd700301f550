#include "api/number_layout.h"

#include "api/number_parts.h"

#include <assert.h>
#include <string.h>

uint8_t number_layouts[LAYOUT_ROWS * LAYOUT_BYTES + 1];
uint8_t number_wide_layouts[WIDE_ROWS * WIDE_BYTES + 1];

enum { CHARACTER = 0x80 };

/* What a format's rows are made of. */
static const struct style {
    uint8_t *rows;
    int bytes, length; /* of a row; where its length is told, or 0 */
    int digits, high, kinds;
    int zero, minus_zero, null;
    uint8_t digit[WIDE_DIGITS];
    uint8_t exponent[3]; /* ones, tens, hundreds */
    uint8_t sign;
} styles[] = {
    {
        number_layouts, LAYOUT_BYTES, 0,
        LAYOUT_DIGITS, LAYOUT_HIGH, LAYOUT_KINDS,
        LAYOUT_ZERO, LAYOUT_MINUS_ZERO, LAYOUT_NULL,
        { LAYOUT_FIRST, 0, 1, 2, 3, 4, 5, 6, 7 },
        { LAYOUT_EXPONENT_ONES, LAYOUT_EXPONENT_TENS },
        LAYOUT_SIGN,
    },
    {
        number_wide_layouts, WIDE_BYTES, WIDE_LENGTH,
        WIDE_DIGITS, WIDE_HIGH, WIDE_KINDS,
        WIDE_ZERO, WIDE_MINUS_ZERO, WIDE_NULL,
        { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, WIDE_LAST },
        { WIDE_EXPONENT_ONES, WIDE_EXPONENT_TENS, WIDE_EXPONENT_HUNDREDS },
        WIDE_SIGN,
    },
};

/* A row while it is made. */
struct maker {
    const struct style *style;
    uint8_t *row;
    int len;
};

static void put(struct maker *m, int source)
{
    assert(m->len < m->style->bytes);
    m->row[m->len++] = (uint8_t)source;
}

static void put_text(struct maker *m, const char *text)
{
    for (; *text != '\0'; text++)
        put(m, CHARACTER | *text);
}

static void put_digit(struct maker *m, int i, int count)
{
    put(m, i >= count ? CHARACTER | '0' : m->style->digit[i]);
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

/* With an exponent of so many digits. */
static void put_scientific(struct maker *m, int count, bool minus, int digits)
{
    put_digit(m, 0, count);
    put_text(m, count > 1 ? "." : "");
    for (int i = 1; i < count; i++)
        put_digit(m, i, count);
    put_text(m, minus ? "e-" : "e");
    while (digits-- > 0)
        put(m, m->style->exponent[digits]);
}

static struct maker begin(const struct style *style, int row)
{
    return (struct maker){ style, style->rows + row * style->bytes, 0 };
}

static void end(struct maker *m)
{
    put_text(m, ",");
    if (m->style->length != 0)
        m->row[m->style->length] = (uint8_t)m->len;
}

static void make_digits(const struct style *style, int kind, int count)
{
    struct maker m = begin(style, kind * style->digits + count - 1);
    int e = kind + LAYOUT_LOW, outside = e - style->high - 1;

    put(&m, style->sign);
    if (outside >= 0)
        put_scientific(&m, count, (outside & LAYOUT_MINUS) != 0,
                       outside / LAYOUT_DIGIT + 1);
    else if (number_plain_is_short(count, e))
        put_plain(&m, count, e);
    else
        put_scientific(&m, count, e < 0, e > 9 ? 2 : 1);
    end(&m);
}

/* Its first place is none, for who starts with the second. */
static void make_word(const struct style *style, int row, const char *text)
{
    struct maker m = begin(style, row);

    put(&m, CHARACTER);
    put_text(&m, text);
    end(&m);
}

static void make(const struct style *style)
{
    for (int kind = 0; kind < style->kinds; kind++) {
        for (int count = 1; count <= style->digits; count++)
            make_digits(style, kind, count);
    }
    make_word(style, style->zero, "0");
    make_word(style, style->minus_zero, "-0.0");
    make_word(style, style->null, "null");
}

void number_layouts_make(void)
{
    memset(number_layouts, CHARACTER, sizeof number_layouts);
    memset(number_wide_layouts, CHARACTER, sizeof number_wide_layouts);
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++)
        make(&styles[i]);
}
