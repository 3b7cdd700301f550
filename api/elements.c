#include "api/elements.h"

#include "api/number.h"
#include "api/number_array.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Stands for a flaw that the arena had no room for, so that reading goes on as
 * behind any other; json->err tells why. */
static const struct error no_room = { .code = ERR_OVERLOADED };

void elements_flaw(struct elements *e, int axes, enum error_code code,
                   const char *format, ...)
{
    char place[CURSOR_MAX_DEPTH * 22 + 1] = "", why[256];
    struct error *flaw;
    size_t at = 0;
    va_list args;

    if (e->flaw != NULL)
        return;
    flaw = arena_alloc(e->json->arena, sizeof *flaw);
    if (flaw == NULL) {
        error_set(e->json->err, ERR_OVERLOADED, "", "no memory is left for %s",
                  e->name);
        e->flaw = &no_room;
        return;
    }
    for (int i = 0; i < axes; i++)
        at += (size_t)snprintf(place + at, sizeof place - at, "[%zu]",
                               e->n[i] - 1);
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    flaw->code = ERR_NONE;
    error_set(flaw, code, e->how->where, "%s%s%s %s", e->name, e->member,
              place, why);
    e->flaw = flaw;
}

bool elements_skip(struct elements *e, int axes, const char *wanted)
{
    char shown[CURSOR_EXCERPT_BYTES];
    const char *start = e->json->at;

    if (!cursor_skip(e->json))
        return false;
    elements_flaw(e, axes, ERR_TYPE, "is %s, not %s",
                  cursor_excerpt(start, e->json->at, shown), wanted);
    return cursor_ok(e->json);
}

static const char *wide_name(const struct elements *e)
{
    return e->how->wide == DTYPE_F64 ? "float64" : "float32";
}

static const char *skip_quoted(const char *p, const char *end)
{
    for (p++; p < end && *p != '"'; p++)
        p += *p == '\\';
    return p < end ? p + 1 : end;
}

/* An array that goes on for so long may be read ahead, from its marks on. */
static void mark(struct elements *e, const char *at, size_t commas)
{
    struct cursor *json = e->json;

    if (e->how->parallel == NULL || e->how->kind != FIELD_TENSOR ||
        (size_t)(at - json->at) < e->how->part_bytes)
        return;
    if (e->ahead == NULL) {
        e->ahead = arena_alloc(json->arena, sizeof *e->ahead);
        if (e->ahead == NULL)
            return;
        ahead_begin(e->ahead, json->at, json->end, e->how->part_bytes);
    }
    ahead_mark(e->ahead, at, commas);
}

/* At least as many as the array at the cursor has: every one but the first has
 * a comma before it. Found at the speed of memory, so that they need one
 * allocation and no copy. The commas are counted from quote to quote, in pieces
 * that stay in the cache between the two looks at them; a few of what follows
 * the array may count too. */
enum { PIECE_BYTES = 16384 };

static size_t most_elements(struct elements *e)
{
    const struct cursor *json = e->json;
    const char *p = json->at, *end = json->end;
    size_t piece = e->how->part_bytes;
    struct number_tally tally = { 0 };

    piece = piece > 0 && piece < PIECE_BYTES ? piece : PIECE_BYTES;
    do {
        size_t left = (size_t)(end - p), len = left < piece ? left : piece;
        const char *quote = memchr(p, '"', len);

        number_count(p, quote != NULL ? quote : p + len, &tally);
        p = quote != NULL && tally.open > 0 ? skip_quoted(quote, end) : p + len;
        if (tally.open > 0)
            mark(e, p, tally.commas);
    } while (p < end && tally.open > 0);
    return tally.commas + 1;
}

/* Whether an element of `dtype` may be stored: memory, rank and neighbours. */
static bool fits(struct elements *e, int axis, enum dtype dtype)
{
    static const char *const what[2] = { "a number", "a boolean" };
    bool is_bool = dtype == DTYPE_BOOL;

    if (e->flaw != NULL)
        return false;
    if (e->data == NULL) {
        e->rank = axis + 1;
        e->dtype = dtype;
        e->data = arena_array(e->json->arena, e->room, dtype_size(dtype));
        if (e->data == NULL)
            return error_set(e->json->err, ERR_OVERLOADED, "",
                             "no memory is left for %s", e->name);
    }
    if (e->rank != axis + 1)
        elements_flaw(e, axis + 1, ERR_SHAPE,
                      "is %s, where arrays stand before it", what[is_bool]);
    else if (e->dtype != dtype)
        elements_flaw(e, axis + 1, ERR_TYPE, "is %s among %ss", what[is_bool],
                      what[!is_bool] + strlen("a "));
    assert(e->flaw != NULL || e->count < e->room);
    return e->flaw == NULL;
}

static void put_number(struct elements *e, double value)
{
    if (e->dtype == DTYPE_F64)
        ((double *)e->data)[e->count++] = value;
    else
        ((float *)e->data)[e->count++] = (float)value;
}

static bool take_minus_infinity(struct elements *e)
{
    struct cursor *json = e->json;
    const char *start = json->at;
    struct json_text text;

    if (e->how->kind != FIELD_BIAS)
        return false;
    if (cursor_take(json, "-Infinity") || cursor_take(json, "null"))
        return true;
    if (cursor_peek(json) != '"' || !cursor_string(json, &text))
        return false;
    if (json_text_is(text, "-Infinity"))
        return true;
    json->at = start;
    return false;
}

/* Behind the comma at `at`, and the white space around it; NULL when none is
 * there. Mostly there is one space or none. */
static const char *skip_comma(const char *at, const char *end)
{
    if (at == end || *at != ',') {
        at = cursor_skip_space(at, end);
        if (at == end || *at != ',')
            return NULL;
    }
    at += 1 + (at + 1 < end && at[1] == ' ');
    return at < end && (unsigned char)*at > ' ' ? at
                                                : cursor_skip_space(at, end);
}

/* Elements that `take` stores and passes, and commas, until something else
 * comes. Returns how many; the cursor is behind the last. */
static inline __attribute__((always_inline)) size_t
take_run(struct elements *e,
         const char *(*take)(struct elements *e, const char *at))
{
    const char *end = e->json->end, *p = e->json->at;
    size_t count = e->count;

    while (p != NULL && e->count < e->room && (p = take(e, p)) != NULL) {
        e->json->at = p;
        p = skip_comma(p, end);
    }
    return e->count - count;
}

static inline uint64_t load8(const char *text)
{
    uint64_t word;

    memcpy(&word, text, sizeof word);
    return word;
}

static inline bool begins_with(uint64_t text, const char word[8], int len)
{
    return ((text ^ load8(word)) << (64 - 8 * len)) == 0;
}

/* The length of the boolean in eight bytes, or 0. Without a branch on which of
 * the two it is: masks have them mixed. */
static size_t match_bool(const char *at, bool *yes)
{
    uint64_t text = load8(at);
    bool no = begins_with(text, "false\0\0", 5);

    *yes = begins_with(text, "true\0\0\0", 4);
    return (size_t)(4 * *yes + 5 * no);
}

/* As many as have a comma behind them, and behind that one space or none: where
 * the next one is then depends on a length alone, and twice as many are read as
 * by skip_comma(). Then one by one. */
static const char *take_bools(struct elements *e, const char *at)
{
    const char *end = e->json->end, *behind = NULL;
    char *out = e->data, last[8] = "";
    size_t i = e->count, len;
    bool yes;

    while (i < e->room && end - at >= 8 &&
           (len = match_bool(at, &yes)) != 0 && at[len] == ',') {
        out[i++] = yes;
        behind = at + len;
        at = behind + 1;
        if (*at == ' ') /* in time, since that is guessed */
            at++;
    }
    if (behind == NULL) {
        memcpy(last, at, end - at < 8 ? (size_t)(end - at) : 8);
        len = match_bool(last, &yes);
        if (len == 0)
            return NULL;
        out[i++] = yes;
        behind = at + len;
    }
    e->count = i;
    return behind;
}

static bool read_bools(struct elements *e, int axis)
{
    size_t run;

    if (!fits(e, axis, DTYPE_BOOL))
        return cursor_skip(e->json);
    run = take_run(e, take_bools);
    if (run == 0)
        return cursor_skip(e->json); /* none after all */
    e->n[axis] += run - 1;
    return true;
}

static bool skip_element(struct elements *e)
{
    return take_minus_infinity(e) || cursor_skip(e->json);
}

static double last_number(const struct elements *e)
{
    return e->dtype == DTYPE_F64 ? ((double *)e->data)[e->count - 1]
                                 : (double)((float *)e->data)[e->count - 1];
}

/* The number before the cursor is an infinity: an overflow, which masks may
 * have below. */
static bool check_overflow(struct elements *e, int axis)
{
    const char *end = e->json->at, *start = end;
    char shown[CURSOR_EXCERPT_BYTES];

    if (e->how->kind == FIELD_BIAS && last_number(e) < 0)
        return true;
    while (start > e->json->start && strchr("+-.0123456789eE", start[-1]))
        start--;
    elements_flaw(e, axis + 1, ERR_NOT_FINITE,
                  "is %s, which is not finite in %s",
                  cursor_excerpt(start, end, shown), wide_name(e));
    return cursor_ok(e->json);
}

static struct number_place place(const struct elements *e)
{
    return (struct number_place){ e->dtype == DTYPE_F64, e->data, e->room };
}

/* Numbers and commas until something else comes, and how many; the cursor is
 * behind the last, or where it was. With `row`, "],[" behind so many of them
 * are passed as well. Nearly all of a large body is read here. */
static size_t read_run(struct elements *e, size_t row)
{
    struct cursor *json = e->json;
    const char *end = json->end;
    const struct ahead_run *ready = ahead_find(e->ahead, json->at, row,
                                               e->count, &end);
    const struct number_place to = place(e);
    size_t count;

    if (ready != NULL) {
        json->at = ready->end;
        count = ready->count;
    } else {
        json->at = number_read(json->at, end, row, &to, e->count, &count);
    }
    e->count += count;
    return count;
}

/* `row` is known now, so that the rest of a long array can be read ahead. */
static void read_ahead(struct elements *e, size_t row)
{
    const struct number_place to = place(e);

    if (e->ahead != NULL)
        ahead_read(e->ahead, e->how->parallel, e->json->at, e->json->end, row,
                   &to, e->count);
}

static bool read_numbers(struct elements *e, int axis)
{
    if (!fits(e, axis, e->how->wide))
        return skip_element(e);
    if (axis == 0)
        read_ahead(e, 0);

    size_t run = read_run(e, 0);

    if (run == 0)
        return cursor_skip(e->json); /* no number after all */
    e->n[axis] += run - 1;
    return !isinf(last_number(e)) || check_overflow(e, axis);
}

/* Behind the word for minus infinity; NULL when it isn't there. */
static const char *skip_minus_infinity(const char *at, const char *end)
{
    if (end - at >= 9 && memcmp(at, "-Infinity", 9) == 0)
        return at + 9;
    return end - at >= 4 && memcmp(at, "null", 4) == 0 ? at + 4 : NULL;
}

/* Behind a zero as masks have it; NULL when none is there. A third faster than
 * reading any number, where zeros and words are mixed. */
static const char *skip_zero(const char *at, const char *end)
{
    if (end - at < 4 || at[0] != '0')
        return NULL;
    if (at[1] == ',')
        return at + 1;
    return at[1] == '.' && at[2] == '0' && at[3] == ',' ? at + 3 : NULL;
}

/* So many numbers in a row make a run of them worth its start. */
enum { PLAIN_RUN = 8 };

/* A word, or a number that fits; not the last of so many numbers. */
static const char *take_bias(struct elements *e, const char *at)
{
    const char *end = e->json->end, *behind = skip_minus_infinity(at, end);
    double value = -INFINITY;
    size_t len;

    e->plain = behind != NULL ? 0 : e->plain + 1;
    if (e->plain >= PLAIN_RUN)
        return NULL;
    if (behind == NULL && (behind = skip_zero(at, end)) != NULL)
        value = 0;
    if (behind == NULL && e->dtype == DTYPE_F64) {
        len = number_read_f64(at, end, &value);
        behind = len > 0 ? at + len : NULL;
    } else if (behind == NULL) {
        float narrow;

        len = number_read_f32(at, end, &narrow);
        behind = len > 0 ? at + len : NULL;
        value = len > 0 ? (double)narrow : 0;
    }
    if (behind == NULL || value == INFINITY)
        return NULL;
    put_number(e, value);
    return behind;
}

/* Masks mix numbers and words, or have long runs of one of them. */
static bool read_biases(struct elements *e, int axis)
{
    size_t run;

    if (!fits(e, axis, e->how->wide))
        return skip_element(e);
    run = take_run(e, take_bias);
    if (run == 0)
        return read_numbers(e, axis);
    e->n[axis] += run - 1;
    return true;
}

/* Behind the bracket of a row: this row and those that follow it, once the
 * first has said how long they are. It ends in the last row that it began. */
static void read_rows(struct elements *e, int axis)
{
    if (e->flaw != NULL || e->data == NULL || axis == 0 ||
        axis != e->rank - 1 || e->dim[axis] == 0 || e->dtype != e->how->wide)
        return;

    size_t row = (size_t)e->dim[axis], run;

    read_ahead(e, row);
    run = read_run(e, row);
    if (run == 0)
        return;
    e->n[axis - 1] += (run - 1) / row;
    e->n[axis] = (run - 1) % row + 1;
    if (isinf(last_number(e)))
        check_overflow(e, axis);
}

static const char *wanted_element(const struct elements *e)
{
    switch (e->how->kind) {
    case FIELD_PADDING: return "a boolean or a number";
    case FIELD_BIAS: return "a boolean, a number or \"-Infinity\"";
    default: return "a number";
    }
}

static bool read_axis(struct elements *e, int axis);

static bool read_element(struct elements *e, int axis)
{
    struct cursor *json = e->json;
    char c = cursor_peek(json);

    if (c == '[')
        return read_axis(e, axis + 1);
    if (e->flaw != NULL)
        return skip_element(e);
    if ((c >= '0' && c <= '9') || c == '-')
        return e->how->kind == FIELD_BIAS ? read_biases(e, axis)
                                          : read_numbers(e, axis);
    if ((c == 't' || c == 'f') && e->how->kind != FIELD_TENSOR)
        return read_bools(e, axis);
    if (c == 'n' && e->how->kind == FIELD_BIAS)
        return read_biases(e, axis);
    if (take_minus_infinity(e)) { /* in quotes */
        if (fits(e, axis, e->how->wide))
            put_number(e, -INFINITY);
        return cursor_ok(json);
    }
    return elements_skip(e, axis + 1, wanted_element(e));
}

static void end_axis(struct elements *e, int axis, int64_t n)
{
    if (e->flaw != NULL)
        return;
    if (n == 0)
        elements_flaw(e, axis, ERR_SHAPE, "is empty");
    else if (e->dim[axis] == 0)
        e->dim[axis] = n;
    else if (e->dim[axis] != n)
        elements_flaw(e, axis, ERR_SHAPE,
                      "has %lld elements, where those before it have %lld",
                      (long long)n, (long long)e->dim[axis]);
}

/* The array at the cursor, whose elements are along `axis`. Recursion ends at
 * CURSOR_MAX_DEPTH. */
static bool read_axis(struct elements *e, int axis)
{
    struct cursor *json = e->json;

    if (e->data != NULL && axis >= e->rank)
        elements_flaw(e, axis, ERR_SHAPE,
                      "is an array, where numbers stand before it");
    if (axis >= e->rank_limit)
        elements_flaw(e, axis, ERR_SHAPE,
                      "is an array, where numbers should be (axes at most: "
                      "%d)", e->rank_limit);
    if (!cursor_open(json))
        return false;
    e->n[axis] = 0;
    read_rows(e, axis);
    while (cursor_element(json, &e->n[axis]))
        read_element(e, axis);
    if (!cursor_ok(json))
        return false;
    end_axis(e, axis, (int64_t)e->n[axis]);
    return cursor_ok(json);
}

bool elements_read(struct elements *e, int rank_limit)
{
    e->rank_limit = rank_limit;
    e->room = most_elements(e);
    return read_axis(e, 0);
}
