#include "api/ahead.h"

#include "api/cursor.h"

#include <string.h>

void ahead_begin(struct ahead *ahead, const char *at, const char *end,
                 size_t part_bytes)
{
    size_t least = (size_t)(end - at) / AHEAD_PARTS + 1;

    ahead->part_bytes = part_bytes > least ? part_bytes : least;
    ahead->marks = ahead->parts = 0;
    ahead->mark[0] = (struct ahead_mark){ at, 0 };
}

void ahead_mark(struct ahead *ahead, const char *at, size_t commas)
{
    const struct ahead_mark *last =
        &ahead->mark[ahead->marks == 0 ? 0 : ahead->marks - 1];

    if ((size_t)(at - last->at) >= ahead->part_bytes &&
        ahead->marks < AHEAD_PARTS - 1)
        ahead->mark[ahead->marks++] = (struct ahead_mark){ at, commas };
}

/* Behind the brackets and the comma between two rows, and white space before and
 * among them; NULL when something else is there. */
static const char *skip_brackets(const char *p, const char *end)
{
    const char *behind = NULL;

    p = cursor_skip_space(p, end);
    if (p == end || *p != ']')
        return NULL;
    while (p < end && *p == ']')
        p = cursor_skip_space(p + 1, end);
    if (p == end || *p != ',')
        return NULL;
    for (p = cursor_skip_space(p + 1, end); p < end && *p == '[';
         p = cursor_skip_space(p + 1, end))
        behind = p + 1;
    return behind;
}

/* The first part that can begin at the mark or behind it, before `end`. */
static bool cut(const struct ahead_mark *mark, size_t row, const char *end,
                struct ahead_part *part)
{
    size_t left = (size_t)(end - mark->at);
    const char *stop = memchr(mark->at, row > 0 ? ']' : ',', left);
    struct number_tally tally = { .commas = mark->commas };

    if (stop == NULL)
        return false;
    number_count(mark->at, stop, &tally);
    part->at = row > 0 ? skip_brackets(stop, end)
                       : cursor_skip_space(stop + 1, end);
    part->stop = stop;
    part->first = tally.commas + 1;
    return part->at != NULL && part->at < end;
}

/* Each part ends where the next one was cut off, in text and in numbers: a count
 * of commas is wrong where they stand in quotes, which no array of numbers has. */
static void cut_all(struct ahead *a, const char *at, const char *end,
                    size_t first)
{
    a->part[0] = (struct ahead_part){ .at = at, .stop = end, .first = first };
    a->parts = 1;
    for (int i = 0; i < a->marks; i++) {
        const struct ahead_mark *mark = &a->mark[i];
        const char *limit = i + 1 < a->marks ? mark[1].at : end;
        struct ahead_part part = { 0 }, *last = &a->part[a->parts - 1];

        if (mark->at <= at || !cut(mark, a->row, limit, &part) ||
            part.first <= last->first || part.first >= a->to.room)
            continue;
        last->stop = part.stop;
        part.stop = end;
        a->part[a->parts++] = part;
    }
    a->marks = 0;
}

static bool read_part(void *arg, int64_t piece, struct arena *scratch)
{
    struct ahead *a = arg;
    struct ahead_part *part = &a->part[piece];
    struct number_place to = a->to;
    const char *at = part->at;
    size_t next = part->first;

    (void)scratch;
    if (piece + 1 < a->parts)
        to.room = part[1].first;
    while (at != NULL && part->runs < AHEAD_RUNS) {
        struct ahead_run run = { .at = at };

        run.end = number_read(at, part->stop, a->row, &to, next, &run.count);
        if (run.count == 0)
            break;
        part->run[part->runs++] = run;
        next += run.count;
        at = a->row > 0 ? skip_brackets(run.end, part->stop) : NULL;
    }
    return true;
}

void ahead_read(struct ahead *ahead, struct parallel *parallel, const char *at,
                const char *end, size_t row, const struct number_place *to,
                size_t first)
{
    if (ahead->marks == 0)
        return;
    ahead->row = row;
    ahead->to = *to;
    ahead->here = 0;
    cut_all(ahead, at, end, first);
    parallel->run(parallel, ahead->parts, read_part, ahead);
}

const struct ahead_run *ahead_find(struct ahead *ahead, const char *at,
                                   size_t row, size_t first, const char **end)
{
    const struct ahead_part *part;
    size_t number;

    if (ahead == NULL || ahead->parts == 0)
        return NULL;
    while (ahead->here + 1 < ahead->parts && at >= ahead->part[ahead->here + 1].at)
        ahead->here++;
    part = &ahead->part[ahead->here];
    number = part->first;
    for (int i = 0; i < part->runs; i++) {
        const struct ahead_run *run = &part->run[i];

        if (run->at == at && number == first && row == ahead->row)
            return run;
        number += run->count;
    }
    if (at < part->stop)
        *end = part->stop;
    return NULL;
}
