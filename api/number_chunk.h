#ifndef API_NUMBER_CHUNK_H
#define API_NUMBER_CHUNK_H

/* The two passes over a run, which each level's file compiles for its own
 * instruction set. It defines before including this, besides what
 * number_index.h wants:
 *
 *     GROUP    numbers converted at once, a power of two
 *     BEFORE, BEHIND   what a conversion reads beside its number: up to so many
 *              bytes before the end of its integer part or of its fraction, up
 *              to so many from its start or behind its end
 *     struct masks    the classes of STEP_BYTES on their way
 *     void find_masks(struct masks *m, const char *text, size_t len,
 *                     bool rows);
 *              of `len` bytes, those that are missing being of no class;
 *              without rows, brackets need not be told
 *     struct classes classify(const struct masks *m, bool rows);
 *     bool any(word mask);
 *     void store_word(uint64_t *to, word mask);
 *     void store_parts(struct index *index, struct cursors *n,
 *                      const struct part_words *words, size_t i, size_t base);
 *              appends the positions of the parts of word i, `base` added; the
 *              caller counts the ends
 *
 * and for each format, of which the end of this file makes the functions:
 *
 *     unsigned convert_f32(const char *text, const struct index *index,
 *                          size_t i, float *out);
 *              GROUP numbers from the i-th on; the bits of those that it could
 *              not round for sure, or that are infinite
 */

#include "api/number.h"

#include <math.h>
#include <string.h>

/* All below the lowest bit; all when there is none. */
TARGET_INLINE uint64_t below(uint64_t mask)
{
    return ~mask & (mask - 1);
}

/* Rows have to close where they are full: `full` numbers in, the next one
 * *full + row. False, with the good ends at most *full, when one doesn't. */
TARGET_INLINE bool check_rows(uint64_t ends, uint64_t closes, size_t before,
                              size_t row, size_t *full, uint64_t *good)
{
    for (uint64_t rest = closes; rest != 0; rest &= rest - 1) {
        uint64_t upto = below(rest) | (rest & -rest);
        size_t count = before + (size_t)__builtin_popcountll(ends & upto);

        if (count != *full) {
            *good &= upto;
            return false;
        }
        *full += row;
    }
    return true;
}

TARGET_INLINE void store_words(struct part_words *words,
                               const struct parts *parts,
                               const struct classes *c)
{
    words->exponents = any(parts->tail ^ parts->end);
    store_word(words->start, parts->start);
    store_word(words->minus, parts->minus);
    store_word(words->point, parts->point);
    store_word(words->tail, parts->tail);
    store_word(words->end, parts->end);
    store_word(words->flaws, parts->flaws);
    store_word(words->stops, parts->stops);
    store_word(words->close, c->close);
}

/* Of word i, the ends of the numbers before the first flaw or stop, or before a
 * row that does not close; *stopped when there is one. */
TARGET_INLINE uint64_t good_ends(const struct part_words *words, size_t i,
                                 size_t before, size_t row, size_t *full,
                                 bool *stopped)
{
    uint64_t stops = words->stops[i], stop = stops & -stops;
    uint64_t wrong = words->flaws[i] | stops;
    uint64_t closes = words->close[i] & below(wrong);
    uint64_t good = words->end[i] & below(words->flaws[i]) &
                    (below(stop) | stop);

    *stopped = wrong != 0;
    if (row != 0 &&
        !check_rows(words->end[i], closes, before, row, full, &good))
        *stopped = true;
    return good;
}

/* Indexes the numbers that end in the next INDEX_BYTES. What can't be told from
 * them is left: the next chunk begins with it. The masks are a step ahead, so
 * that they have been stored when they are loaded as one. */
TARGET_INLINE void find_chunk(struct index *index, const struct number_run *run,
                              bool rows)
{
    size_t len = (size_t)(run->end - run->at), row = rows ? run->row : 0;
    size_t part = rows ? run->count % row : 0; /* of a row, so far */
    size_t full = run->count - part +
                  (part != 0 || run->count == 0 ? row : 0);
    struct carries was = { .before_number = run->count == 0,
                           .behind_number = run->count != 0 };
    struct cursors n = { 0 };
    struct masks masks[2];

    index->stopped = false;
    find_masks(&masks[0], run->at, len, rows);
    for (size_t base = 0; base < INDEX_BYTES; base += STEP_BYTES) {
        size_t next = base + STEP_BYTES, left = next < len ? len - next : 0;
        struct classes c;
        struct parts parts;
        struct part_words words;

        find_masks(&masks[next / STEP_BYTES % 2], run->at + next, left, rows);
        c = classify(&masks[base / STEP_BYTES % 2], rows);
        find_numbers(&c, &was, &parts);
        if (rows)
            check_brackets(&c, &was, &parts);
        else
            check_commas(&c, &was, &parts);
        store_words(&words, &parts, &c);
        if (!any(parts.flaws | parts.stops | c.close)) {
            for (size_t i = 0; i < WORDS; i++) {
                store_parts(index, &n, &words, i, base + 64 * i);
                n.end += (size_t)__builtin_popcountll(words.end[i]);
            }
            continue;
        }
        for (size_t i = 0; i < WORDS && !index->stopped; i++) {
            uint64_t good = good_ends(&words, i, run->count + n.end, row, &full,
                                      &index->stopped);

            store_parts(index, &n, &words, i, base + 64 * i);
            n.end += (size_t)__builtin_popcountll(good);
        }
        if (index->stopped)
            break;
    }
    index->count = n.end;
    if (rows && run->count + n.end > full) {
        index->count = full - run->count;
        index->stopped = true;
    }
}

/* How many of the first `count` can be converted without reading past the
 * text. */
TARGET_INLINE size_t within(const struct index *index, size_t len, size_t count)
{
    while (count > 0 &&
           ((size_t)index->start[count - 1] + BEHIND > len ||
            (size_t)index->end[count - 1] + BEHIND > len))
        count--;
    return count;
}

/* Or without reading before it: the first that can. */
TARGET_INLINE size_t first_within(const struct index *index, size_t before,
                                  size_t count)
{
    size_t i = 0;

    while (i < count && (ptrdiff_t)(before + index->point[i]) < BEFORE)
        i++;
    return i;
}

/* So that the last group is a whole one. */
TARGET_INLINE void pad(struct index *index, size_t first, size_t count)
{
    for (size_t i = count; (i - first) % GROUP != 0; i++) {
        index->start[i] = index->start[count - 1];
        index->point[i] = index->point[count - 1];
        index->tail[i] = index->tail[count - 1];
        index->end[i] = index->end[count - 1];
    }
}

/* One by one the numbers from the i-th on whose bits are set. Returns how many
 * of `count` are good: up to the first infinity. */
#define SETTLE(NAME, TYPE, READ)                                               \
    static __attribute__((noinline, cold)) size_t NAME(                        \
        const struct number_run *run, const struct index *index, size_t i,     \
        unsigned unsure, TYPE *out, size_t count)                              \
    {                                                                          \
        for (; unsure != 0; unsure &= unsure - 1) {                            \
            size_t j = (size_t)__builtin_ctz(unsure);                          \
                                                                               \
            READ(run->at + index->start[i + j], run->end, out + j);            \
            if (isinf(out[j]))                                                 \
                return j + 1;                                                  \
        }                                                                      \
        return count;                                                          \
    }

/* The first `count` of the index, at least 1. False when that was all. */
#define CHUNK(NAME, TYPE, READ, CONVERT, SETTLE)                               \
    ISA static bool NAME(struct number_run *run, struct index *index,          \
                         size_t count, TYPE *out)                              \
    {                                                                          \
        const char *text = run->at;                                            \
        size_t done = first_within(index, (size_t)(text - run->begin), count); \
        bool infinite = false;                                                 \
        TYPE spare[GROUP];                                                     \
                                                                               \
        for (size_t i = 0; i < done && !infinite; i++) {                       \
            READ(text + index->start[i], run->end, out + i);                   \
            infinite = isinf(out[i]);                                          \
            done = infinite ? i + 1 : done;                                    \
        }                                                                      \
        pad(index, done, count);                                               \
        while (done < count && !infinite) {                                    \
            size_t n = count - done < GROUP ? count - done : GROUP;            \
            TYPE *to = n == GROUP ? out + done : spare;                        \
            unsigned unsure = CONVERT(text, index, done, to);                  \
                                                                               \
            unsure &= (2u << (n - 1)) - 1;                                     \
            if (__builtin_expect(unsure != 0, 0)) {                            \
                n = SETTLE(run, index, done, unsure, to, n);                   \
                infinite = isinf(to[n - 1]);                                   \
            }                                                                  \
            if (to == spare)                                                   \
                memcpy(out + done, spare, n * sizeof *out);                    \
            done += n;                                                         \
        }                                                                      \
        run->count += done;                                                    \
        run->at = text + index->end[done - 1];                                 \
        return !infinite;                                                      \
    }

#define READ_RUNS(NAME, TYPE, CHUNK)                                           \
    TARGET_INLINE void NAME(struct number_run *run, TYPE *out, bool rows)      \
    {                                                                          \
        struct index index;                                                    \
        bool more;                                                             \
                                                                               \
        do {                                                                   \
            size_t room = run->room - run->count, count;                       \
                                                                               \
            find_chunk(&index, run, rows);                                     \
            count = within(&index, (size_t)(run->end - run->at),               \
                           index.count < room ? index.count : room);           \
            more = count > 0 && CHUNK(run, &index, count, out + run->count) && \
                   !index.stopped && count == index.count;                     \
        } while (more);                                                        \
    }

/* The level's entry: the loop is compiled once with rows and once without, so
 * that a plain run pays nothing for brackets. */
#define READ_ENTRY(NAME, TYPE, RUNS)                                           \
    ISA void NAME(struct number_run *run, TYPE *out)                           \
    {                                                                          \
        if (run->row != 0)                                                     \
            RUNS(run, out, true);                                              \
        else                                                                   \
            RUNS(run, out, false);                                             \
    }

SETTLE(settle_f32, float, number_read_f32)
CHUNK(chunk_f32, float, number_read_f32, convert_f32, settle_f32)
READ_RUNS(read_runs_f32, float, chunk_f32)

SETTLE(settle_f64, double, number_read_f64)
CHUNK(chunk_f64, double, number_read_f64, convert_f64, settle_f64)
READ_RUNS(read_runs_f64, double, chunk_f64)

#endif
