#ifndef API_AHEAD_H
#define API_AHEAD_H

#include "api/number_array.h"
#include "core/parallel.h"

/* A long array of numbers, read by several threads ahead of the one that walks
 * it. The text is cut between rows, or between the numbers of an only row. How
 * many numbers stand before a cut is known from the commas, which are counted in
 * any case, so that each part is read to its own place.
 *
 * The walk asks here before it reads on its own, and gets a run of numbers only
 * where it would have read the same to the same place. So neither values nor
 * mistakes depend on the cuts, or on who read what. Nothing fails here: what was
 * not read ahead is read then. */

enum {
    AHEAD_PART_BYTES = 256 * 1024, /* 80 us of reading */
    AHEAD_PARTS = 64,              /* at most: longer ones, then */
    AHEAD_RUNS = 8                 /* at most, of a part */
};

struct ahead_mark {
    const char *at;
    size_t commas; /* of the array, before it */
};

struct ahead_run {
    const char *at, *end; /* behind its last number */
    size_t count;
};

struct ahead_part {
    const char *at;   /* behind a row's bracket, or a number's first byte */
    const char *stop; /* what is read ends before it */
    size_t first;     /* number of the array */
    int runs;
    struct ahead_run run[AHEAD_RUNS];
};

struct ahead {
    size_t part_bytes;
    int marks, parts;
    int here; /* the part that the walk is in */
    size_t row; /* numbers in a row; 0: there is an only one */
    struct number_place to;
    struct ahead_mark mark[AHEAD_PARTS - 1];
    struct ahead_part part[AHEAD_PARTS];
};

/* For an array that begins at `at`: parts of `part_bytes`, or of more, so that
 * there is not one too many before `end`. */
void ahead_begin(struct ahead *ahead, const char *at, const char *end,
                 size_t part_bytes);

/* The commas of the array are counted up to here. */
void ahead_mark(struct ahead *ahead, const char *at, size_t commas);

/* Reads all parts from `at` on, where number `first` of the array is: behind the
 * bracket of a row of `row` numbers, or at the first number of an only row, 0. The
 * first call alone does anything. */
void ahead_read(struct ahead *ahead, struct parallel *parallel, const char *at,
                const char *end, size_t row, const struct number_place *to,
                size_t first);

/* The run that begins at `at`, with number `first`, if it was read. NULL: it was
 * not, and *end is no further than where the next part that was begins. */
const struct ahead_run *ahead_find(struct ahead *ahead, const char *at,
                                   size_t row, size_t first, const char **end);

#endif
