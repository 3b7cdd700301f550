#ifndef API_NUMBER_INDEX_H
#define API_NUMBER_INDEX_H

/* The first pass over a run: where its numbers are, and whether all is as JSON
 * wants it. Bit i of a word is about byte i of 64. A level makes the words,
 * this finds in them what a number is made of, with carries of additions where
 * others have loops. Each level's file compiles it for its own instruction set
 * and defines before including it:
 *
 *     ISA      the target attribute of every function
 *     WORDS    64 bits each in a `word`, which & | ^ and ~ work on
 *     word next_byte(word mask, word *was);
 *              each bit moved to the next byte; *was becomes `mask`, for the
 *              first byte of the next word
 *     word behind_runs(word starts, word run, unsigned *carry);
 *              the bytes behind the runs that begin at `starts`, which
 *              themselves are those where the run is empty:
 *              ~run & (starts + run + *carry), carrying to the next word */

#include "api/number_parts.h"
#include "api/number_run.h"

#include <stdbool.h>

#define TARGET_INLINE ISA INLINE

enum {
    STEP_BYTES = 64 * WORDS,
    INDEX_BYTES = 4096, /* of text, at most; a multiple of steps */
    INDEX_NUMBERS = INDEX_BYTES / 2 + 64,
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

/* What the bytes are; in no word: no part of a run. */
struct classes {
    word digit, zero, minus, plus, point, e;
    word space, comma, open, close;
};

/* What a word has to know of the one before: what stood in it, and which runs
 * go on. */
struct carries {
    word number, minus, point, e, sign, zero, comma, close, closing_comma;
    unsigned integer, fraction;
    unsigned behind_number, behind_close, before_number, before_open;
};

/* What one word holds of numbers, and what is wrong with it. */
struct parts {
    word start, minus, point, tail, end;
    word flaws; /* at a number's end or before: that number is none */
    word stops; /* behind a number's end, or there: it is a number */
};

/* The grammar of numbers, which says of each special character where it may
 * stand and of some what comes next. One number has one place where a point and
 * one where an 'e' may be, so two of them need no thought. */
TARGET_INLINE void find_numbers(const struct classes *c, struct carries *was,
                                struct parts *parts)
{
    word sign = c->minus | c->plus;
    word number = c->digit | sign | c->point | c->e;
    word behind = next_byte(number, &was->number);
    word start = number & ~behind;
    word first = (start & c->digit) | next_byte(start & c->minus, &was->minus);
    word point = behind_runs(first, c->digit, &was->integer);
    word fraction = next_byte(c->point, &was->point);
    word tail = (point & ~c->point) |
                behind_runs(fraction, c->digit, &was->fraction);
    word exponent = next_byte(c->e, &was->e);

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
TARGET_INLINE void check_commas(const struct classes *c, struct carries *was,
                                struct parts *parts)
{
    word ended = behind_runs(parts->end, c->space, &was->behind_number);
    word begins = behind_runs(next_byte(c->comma & ended, &was->comma),
                              c->space, &was->before_number);

    parts->stops |= (c->comma & ~ended) | (parts->start & ~begins);
}

/* One comma, or one bracket, a comma, a bracket. */
TARGET_INLINE void check_brackets(const struct classes *c, struct carries *was,
                                  struct parts *parts)
{
    word ended = behind_runs(parts->end, c->space, &was->behind_number);
    word closed = behind_runs(next_byte(c->close & ended, &was->close),
                              c->space, &was->behind_close);
    word opens = behind_runs(next_byte(c->comma & closed, &was->closing_comma),
                             c->space, &was->before_open);
    word commas = (c->comma & ended) | (c->open & opens);
    word begins = behind_runs(next_byte(commas, &was->comma), c->space,
                              &was->before_number);

    parts->stops = (parts->stops & ~(c->open | c->close)) |
                   (c->comma & ~(ended | closed)) | (c->close & ~ended) |
                   (c->open & ~opens) | (parts->start & ~begins);
}

/* The same, stored as 64 bits each. */
struct part_words {
    uint64_t start[WORDS], minus[WORDS], point[WORDS], tail[WORDS], end[WORDS];
    uint64_t flaws[WORDS], stops[WORDS];
    uint64_t close[WORDS]; /* closing brackets */
    bool exponents;        /* a tail is not the end, in one of them */
};

/* How many of each are stored. */
struct cursors {
    size_t start, point, tail, end;
};

#endif
