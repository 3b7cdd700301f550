#include "server/digits.h"

#include <string.h>

/* The digits of `value`, last first, end where `end` points. Returns the first. */
static char *write_before(char *end, uint64_t value, uint64_t base)
{
    static const char digits[] = "0123456789abcdef";

    do {
        *--end = digits[value % base];
        value /= base;
    } while (value > 0);
    return end;
}

static char *append(char *out, const char *from, const char *end)
{
    memcpy(out, from, (size_t)(end - from));
    return out + (end - from);
}

char *digits_write(char *out, int64_t value)
{
    char text[DIGITS_BYTES], *end = text + sizeof text;
    uint64_t size = value < 0 ? -(uint64_t)value : (uint64_t)value;

    if (value < 0)
        *out++ = '-';
    return append(out, write_before(end, size, 10), end);
}

char *digits_write_hex(char *out, uint64_t value, int least)
{
    char text[DIGITS_BYTES], *end = text + sizeof text;
    char *first = write_before(end, value, 16);

    while (end - first < least)
        *--first = '0';
    return append(out, first, end);
}

char *digits_write_ms(char *out, int64_t ns)
{
    int64_t us = ns / 1000 + (ns % 1000 >= 500), rest = us % 1000;

    out = digits_write(out, us / 1000);
    *out++ = '.';
    *out++ = (char)('0' + rest / 100);
    *out++ = (char)('0' + rest / 10 % 10);
    *out++ = (char)('0' + rest % 10);
    return out;
}
