#ifndef API_NUMBER_INDEX_H
#define API_NUMBER_INDEX_H

#include "api/number_parts.h"

#include <stdbool.h>

/* The first pass over a run: where its numbers are, and whether all is as JSON
 * wants it, 64 bytes at a time. Bit i of a word is about byte i of them; a
 * level makes the words, this finds in them what a number is made of, with
 * carries of additions where others have loops. For the levels only. */

enum {
    INDEX_BYTES = 4096, /* of text, at most; a multiple of 64 */
    INDEX_NUMBERS = INDEX_BYTES / 2 + 64,
};

/* What the bytes are; in no word: no part of a run. */
struct classes {
    uint64_t digit, zero, minus, plus, point, e;
    uint64_t space, comma, open, close;
};

/* Where the parts of each number are. Bytes from the chunk's first. */
struct index {
    size_t count;
    bool stopped; /* something else is behind the last */
    uint8_t minus[INDEX_NUMBERS];  /* 0xff: there is one; not at every level */
    uint16_t start[INDEX_NUMBERS]; /* the minus or the first digit */
    uint16_t point[INDEX_NUMBERS]; /* the byte behind the integer part */
    uint16_t tail[INDEX_NUMBERS];  /* the one behind the fraction */
    uint16_t end[INDEX_NUMBERS];   /* the one behind the exponent */
};

/* What a word has to know of the one before: bits 0, of two kinds. A byte's
 * successor is still to be looked at, or a run of bytes still goes on. */
struct carries {
    uint64_t number, minus, point, e, sign, zero;
    uint64_t integer, fraction;
    uint64_t behind_number, behind_close, before_number, before_open;
};

/* What one word holds of numbers, and what is wrong with it. */
struct parts {
    uint64_t start, minus, point, tail, end;
    uint64_t flaws; /* at a number's end or before: that number is none */
    uint64_t stops; /* behind a number's end, or there: it is a number */
};

INLINE uint64_t next_byte(uint64_t mask, uint64_t *carry)
{
    uint64_t next = mask << 1 | *carry;

    *carry = mask >> 63;
    return next;
}

/* The bytes behind the runs that begin at `starts`, which themselves are those
 * where the run is empty. The sum carries through each run. */
INLINE uint64_t behind_runs(uint64_t starts, uint64_t run, uint64_t *carry)
{
    unsigned long long sum;

    *carry = __builtin_uaddll_overflow(starts, run, &sum);
    return sum & ~run;
}

/* The first byte of each run of `run` behind a byte of `mask`, and the bytes
 * behind those runs. */
INLINE uint64_t skip_runs(uint64_t mask, uint64_t run, uint64_t *carry)
{
    uint64_t behind = behind_runs(mask << 1 | *carry, run, carry);

    *carry |= mask >> 63;
    return behind;
}

/* The grammar of numbers, which says of each special character where it may
 * stand and of some what comes next. One number has one place where a point and
 * one where an 'e' may be, so two of them need no thought. */
INLINE void find_numbers(const struct classes *c, struct carries *was,
                         struct parts *parts)
{
    uint64_t sign = c->minus | c->plus;
    uint64_t number = c->digit | sign | c->point | c->e;
    uint64_t behind = next_byte(number, &was->number);
    uint64_t start = number & ~behind;
    uint64_t first = (start & c->digit) |
                     next_byte(start & c->minus, &was->minus);
    uint64_t point = behind_runs(first | was->integer, c->digit, &was->integer);
    uint64_t running = was->fraction;
    uint64_t fraction = next_byte(c->point, &was->point);
    uint64_t tail = (point & ~c->point) |
                    behind_runs(fraction | running, c->digit, &was->fraction);
    uint64_t exponent = next_byte(c->e, &was->e);

    parts->start = start;
    parts->minus = start & c->minus;
    parts->point = point;
    parts->tail = tail;
    parts->end = behind & ~number;
    parts->flaws = (c->point & ~point) | (fraction & ~c->digit) |
                   (c->e & ~tail) | (exponent & ~(c->digit | sign)) |
                   (c->minus & ~(start | exponent)) | (c->plus & ~exponent) |
                   (next_byte(sign, &was->sign) & ~c->digit) |
                   (next_byte(first & c->zero, &was->zero) & c->digit);
    parts->stops = ~(number | c->space | c->comma);
}

/* What may stand between numbers: one comma. */
INLINE void check_commas(const struct classes *c, struct carries *was,
                         struct parts *parts)
{
    uint64_t ended = behind_runs(parts->end | was->behind_number, c->space,
                                 &was->behind_number);
    uint64_t begins = skip_runs(c->comma & ended, c->space,
                                &was->before_number);

    parts->stops |= (c->comma & ~ended) | (parts->start & ~begins);
}

/* One comma, or one bracket, a comma, a bracket. */
INLINE void check_brackets(const struct classes *c, struct carries *was,
                           struct parts *parts)
{
    uint64_t ended = behind_runs(parts->end | was->behind_number, c->space,
                                 &was->behind_number);
    uint64_t closed = skip_runs(c->close & ended, c->space, &was->behind_close);
    uint64_t opens = skip_runs(c->comma & closed, c->space, &was->before_open);
    uint64_t begins = skip_runs((c->comma & ended) | (c->open & opens),
                                c->space, &was->before_number);

    parts->stops = (parts->stops & ~(c->open | c->close)) |
                   (c->comma & ~(ended | closed)) | (c->close & ~ended) |
                   (c->open & ~opens) | (parts->start & ~begins);
}

/* All below the lowest bit; all when there is none. */
INLINE uint64_t below(uint64_t mask)
{
    return ~mask & (mask - 1);
}

/* The ends of the numbers before the first flaw or stop. */
INLINE uint64_t good_ends(const struct parts *parts)
{
    uint64_t stop = parts->stops & -parts->stops;

    return parts->end & below(parts->flaws) & (below(stop) | stop);
}

/* How many of each are stored. */
struct cursors {
    size_t start, point, tail, end;
};

#endif
