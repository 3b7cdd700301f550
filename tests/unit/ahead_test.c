#include "api/ahead.h"
#include "api/json_tensor.h"
#include "api/number_array.h"
#include "core/cpu.h"
#include "tests/unit/number_values.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Arrays read in parts, ahead of the walk, and the same arrays read by the walk
 * alone: the same numbers, the same mistakes. Parts are of a few bytes, so that
 * there is a cut at every place sooner or later. */

enum { TEXT_BYTES = 1 << 16, MEMORY = 1 << 20 };

/* The pieces in turn from the last to the first; how many there were. */
struct backwards {
    struct parallel parallel;
    int64_t pieces;
};

static bool run_backwards(struct parallel *self, int64_t pieces,
                          parallel_piece *piece, void *arg)
{
    struct backwards *backwards = (struct backwards *)self;

    backwards->pieces += pieces;
    while (pieces-- > 0)
        assert_true(piece(arg, pieces, NULL));
    return true;
}

static struct backwards helper = { .parallel = { .run = run_backwards } };

struct read {
    struct arena arena;
    struct named_tensor tensor;
    struct error err;
    enum encoding encoding;
    size_t at; /* where the cursor is in the text */
    bool ok;
};

/* The text is a block of its own, so that the sanitizer sees one byte more. */
static void read_text(struct read *r, const char *text, size_t len,
                      enum dtype wide, size_t part_bytes)
{
    struct json_tensor how = {
        FIELD_TENSOR, wide, "/query",
        part_bytes > 0 ? &helper.parallel : NULL, part_bytes,
    };
    struct cursor json;

    *r = (struct read){ .tensor = { .name = "query" } };
    arena_init(&r->arena, MEMORY);
    cursor_init(&json, text, len, &r->arena, &r->err);
    r->ok = json_tensor_read(&json, &how, &r->tensor, &r->encoding);
    r->at = (size_t)(json.at - text);
}

static bool same_error(const struct error *a, const struct error *b)
{
    return a->code == b->code && strcmp(a->where, b->where) == 0 &&
           strcmp(a->text, b->text) == 0;
}

static bool same(const struct read *a, const struct read *b)
{
    const struct tensor *x = &a->tensor.value, *y = &b->tensor.value;

    if (a->ok != b->ok || a->at != b->at || !same_error(&a->err, &b->err) ||
        (a->tensor.flaw == NULL) != (b->tensor.flaw == NULL))
        return false;
    if (!a->ok)
        return true;
    if (a->tensor.flaw != NULL)
        return same_error(a->tensor.flaw, b->tensor.flaw);
    return x->dtype == y->dtype && x->rank == y->rank &&
           memcmp(x->dim, y->dim, sizeof x->dim) == 0 &&
           memcmp(x->data, y->data, tensor_bytes(x)) == 0;
}

static void expect_same(const char *text, size_t len, enum dtype wide,
                        size_t part_bytes)
{
    struct read alone, ahead;
    char *body = malloc(len + 1);

    assert_non_null(body);
    memcpy(body, text, len);
    body = realloc(body, len > 0 ? len : 1);
    read_text(&alone, body, len, wide, 0);
    read_text(&ahead, body, len, wide, part_bytes);
    if (!same(&alone, &ahead))
        fail_msg("in parts of %zu: %s, %s; alone: %s, %s; of: %.*s", part_bytes,
                 ahead.err.text,
                 ahead.tensor.flaw != NULL ? ahead.tensor.flaw->text : "",
                 alone.err.text,
                 alone.tensor.flaw != NULL ? alone.tensor.flaw->text : "",
                 (int)(len < 500 ? len : 500), text);
    arena_free(&alone.arena);
    arena_free(&ahead.arena);
    free(body);
}

/* ---- texts ---- */

struct text {
    size_t len;
    char bytes[TEXT_BYTES];
};

static void add(struct text *t, const char *piece)
{
    size_t len = strlen(piece);

    assert_true(t->len + len < TEXT_BYTES);
    memcpy(t->bytes + t->len, piece, len + 1);
    t->len += len;
}

/* How the same array may be spelled. */
static const struct style {
    const char *open, *comma, *between, *close; /* between: two arrays */
} styles[] = {
    { "[", ",", ",", "]" },
    { "[", ", ", ", ", "]" },
    { "[\n  ", ",\n  ", " ,\n", "\n] " },
};

enum { STYLES = sizeof styles / sizeof *styles };

static void add_number(struct text *t)
{
    double value = draw_double(below(2) == 0 ? 0 : 3);
    char number[32];

    snprintf(number, sizeof number, "%.*g", 1 + (int)below(17),
             fabs(value) < 1e30 ? value : 7);
    add(t, number);
}

static void add_axis(struct text *t, const struct style *style, int rank,
                     const int64_t *dim)
{
    add(t, style->open);
    for (int64_t i = 0; i < *dim; i++) {
        if (i > 0)
            add(t, rank > 1 ? style->between : style->comma);
        if (rank > 1)
            add_axis(t, style, rank - 1, dim + 1);
        else
            add_number(t);
    }
    add(t, style->close);
}

static const struct shape {
    int rank;
    int64_t dim[4];
} shapes[] = {
    { 1, { 40 } },         { 2, { 1, 40 } },       { 2, { 40, 1 } },
    { 2, { 9, 7 } },       { 3, { 3, 4, 5 } },     { 3, { 1, 12, 3 } },
    { 4, { 2, 3, 1, 6 } }, { 4, { 2, 2, 5, 3 } },  { 4, { 6, 5, 1, 1 } },
    { 2, { 3, 300 } },     { 3, { 12, 14, 2 } },
};

enum { SHAPES = sizeof shapes / sizeof *shapes };

static void spell(struct text *t, const struct shape *shape,
                  const struct style *style)
{
    t->len = 0;
    add_axis(t, style, shape->rank, shape->dim);
}

static void spell_flat(struct text *t, size_t count, const struct style *style)
{
    t->len = 0;
    add(t, "{\"data\": ");
    add_axis(t, style, 1, (int64_t[]){ (int64_t)count });
    add(t, ", \"shape\": [40]}");
}

/* ---- tests ---- */

static void every_shape_is_the_same_wherever_it_is_cut(void **state)
{
    static struct text t;

    (void)state;
    for (size_t i = 0; i < SHAPES * STYLES; i++) {
        const struct shape *shape = &shapes[i / STYLES];
        bool is_only_row = shape->rank == 2 && shape->dim[0] == 1;
        int64_t before = helper.pieces;

        spell(&t, shape, &styles[i % STYLES]);
        add(&t, i % 2 == 0 ? "" : ", \"key\": [[1, 2], [3, 4]]");
        for (size_t part = 1; part < 260; part += 1 + part / 16)
            expect_same(t.bytes, t.len, part % 2 ? DTYPE_F32 : DTYPE_F64, part);
        assert_true(is_only_row || helper.pieces > before + 50);
    }
    for (size_t count = 39; count <= 41; count++) {
        spell_flat(&t, count, &styles[count % STYLES]);
        for (size_t part = 1; part < 260; part++)
            expect_same(t.bytes, t.len, DTYPE_F32, part);
    }
}

/* Not only the same: most of it was read in parts. */
static void rows_and_blocks_of_rows_are_read_in_parts(void **state)
{
    static struct text t;
    struct ahead ahead;
    struct read r;
    float data[12 * 14 * 2];
    const char *end;
    size_t count = 0;

    (void)state;
    spell(&t, &shapes[SHAPES - 1], &styles[0]);
    end = t.bytes + t.len;
    read_text(&r, t.bytes, t.len, DTYPE_F32, 0);
    ahead_begin(&ahead, t.bytes, end, 256);
    for (const char *at = t.bytes; at < end - 64; at += 64) {
        struct number_tally tally = { 0 };

        number_count(t.bytes, at, &tally);
        ahead_mark(&ahead, at, tally.commas);
    }
    ahead_read(&ahead, &helper.parallel, t.bytes + 3, end, 2,
               &(struct number_place){ false, data, 12 * 14 * 2 }, 0);
    assert_in_range(ahead.parts, t.len / 512, AHEAD_PARTS);
    for (int i = 0; i < ahead.parts; i++)
        for (int j = 0; j < ahead.part[i].runs; j++)
            count += ahead.part[i].run[j].count;
    assert_int_equal(count, 12 * 14 * 2);
    assert_memory_equal(data, r.tensor.value.data, sizeof data);
    arena_free(&r.arena);
}

/* A byte is left out, or another in its place, or the rest is missing. */
static void a_mistake_anywhere_is_told_the_same(void **state)
{
    static const char others[] = "],[{}\":-.e0x\n ";
    static struct text t, wrong;

    (void)state;
    for (size_t i = 0; i < SHAPES - 2; i++) {
        spell(&t, &shapes[i], &styles[i % STYLES]);
        for (size_t at = 0; at < t.len; at++) {
            wrong = t;
            memmove(wrong.bytes + at, t.bytes + at + 1, t.len - at - 1);
            expect_same(wrong.bytes, t.len - 1, DTYPE_F32, 1 + below(60));
            expect_same(t.bytes, at, DTYPE_F32, 1 + below(60));
            wrong = t;
            for (size_t j = 0; j < strlen(others); j++) {
                wrong.bytes[at] = others[j];
                expect_same(wrong.bytes, t.len, DTYPE_F32, 1 + below(60));
            }
        }
    }
}

/* Words, arrays and what is no number, in the place of one. */
static void what_is_no_number_is_told_the_same(void **state)
{
    static const char *const words[] = {
        "null", "true", "\"1\"", "\"],[\"", "\",,,,,,,,],[7,7,7,7,7,7\"",
        "[]", "[1]", "{}", "{\"a\": [1,2]}",
        "1e400", "-1e39", "1,2", "1],[2", "1]],[[2", "-Infinity", "",
    };
    static struct text t;

    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (size_t odd = 0; odd < 48; odd++)
            for (size_t part = 1; part < 120; part += 1 + part / 4) {
                t.len = 0;
                for (size_t n = 0; n < 48; n++) {
                    add(&t, n == 0 ? "[[[" : n % 12 == 0 ? "]],[["
                           : n % 4 == 0 ? "],[" : ",");
                    add(&t, n == odd ? words[i] : "0.25");
                }
                add(&t, "]]]");
                expect_same(t.bytes, t.len, DTYPE_F32, part);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_is_the_same_wherever_it_is_cut),
        cmocka_unit_test(rows_and_blocks_of_rows_are_read_in_parts),
        cmocka_unit_test(a_mistake_anywhere_is_told_the_same),
        cmocka_unit_test(what_is_no_number_is_told_the_same),
    };

    number_select(cpu_features(), NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
