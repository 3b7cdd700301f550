#include "api/json_tensor.h"
#include "core/arena.h"
#include "tests/unit/number_values.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Booleans are read many at once where commas stand right behind them, and one
 * by one elsewhere: both have to judge alike. */

enum { ROWS = 12, COLUMNS = 15, COUNT = ROWS * COLUMNS, TEXT_BYTES = 4096 };

static const char *const close_by[] = { ",", ", " };
static const char *const apart[] = { " ,", " , ", "\n,\n  ", "\t, \r" };
static const char *const any[] = { ",", ", ", " ,", ",\n ", ", ", ",", ",  " };

/* A nested array; the `odd`-th element is `word` instead. Returns its length. */
static size_t spell(const bool *values, const char *const *commas, size_t kinds,
                    size_t odd, const char *word, char *text)
{
    char *p = stpcpy(text, "[[");

    for (size_t i = 0; i < COUNT; i++) {
        if (i > 0 && i % COLUMNS == 0)
            p = stpcpy(p, "],[");
        else if (i > 0)
            p = stpcpy(p, commas[below(kinds)]);
        p = stpcpy(p, i == odd ? word : values[i] ? "true" : "false");
    }
    return (size_t)(stpcpy(p, "]]") - text);
}

#define SPELL(values, commas, odd, word, text)                                 \
    spell(values, commas, sizeof commas / sizeof *commas, odd, word, text)

struct read {
    struct arena arena;
    struct named_tensor tensor;
    struct error err;
    bool ok;
};

/* In a block of its own, so that the sanitizer sees one byte more. */
static void read_mask(struct read *r, const char *text, size_t len)
{
    struct json_tensor how = { .kind = FIELD_PADDING, .wide = DTYPE_F32,
                               .where = "/mask" };
    char *body = malloc(len);
    enum encoding encoding;
    struct cursor json;

    assert_true(body != NULL || len == 0);
    memcpy(body, text, len);
    *r = (struct read){ .tensor = { .name = "mask" } };
    arena_init(&r->arena, 1 << 20);
    cursor_init(&json, body, len, &r->arena, &r->err);
    r->ok = json_tensor_read(&json, &how, &r->tensor, &encoding);
    free(body);
}

static bool is_json(const char *text)
{
    struct arena arena;
    struct error err = { ERR_NONE };
    struct cursor json;
    bool ok;

    arena_init(&arena, 1 << 20);
    cursor_init(&json, text, strlen(text), &arena, &err);
    ok = cursor_skip(&json);
    arena_free(&arena);
    return ok;
}

static void draw_values(bool *values, size_t i)
{
    size_t stay = 1 + i % 9;

    for (size_t j = 0; j < COUNT; j++)
        values[j] = j == 0 || below(stay) == 0 ? below(2) : values[j - 1];
}

static void booleans_are_read_whatever_stands_between_them(void **state)
{
    bool values[COUNT];
    char text[TEXT_BYTES];
    struct read r;

    (void)state;
    for (size_t i = 0; i < 3000; i++) {
        draw_values(values, i);
        read_mask(&r, text,
                  i % 3 == 0   ? SPELL(values, close_by, COUNT, "", text)
                  : i % 3 == 1 ? SPELL(values, apart, COUNT, "", text)
                               : SPELL(values, any, COUNT, "", text));
        assert_true(r.ok);
        assert_null(r.tensor.flaw);
        assert_int_equal(r.tensor.value.dtype, DTYPE_BOOL);
        assert_int_equal(r.tensor.value.dim[0], ROWS);
        assert_int_equal(r.tensor.value.dim[1], COLUMNS);
        assert_memory_equal(r.tensor.value.data, values, sizeof values);
        arena_free(&r.arena);
    }
}

/* The same refusal, by the same words where it is no place in the text. */
static void what_stands_among_booleans_is_told_the_same_in_any_spacing(
    void **state)
{
    static const char *const words[] = {
        "True", "tru", "truex", "falsey", "fals", "false,", ",", "", "1", "0.5",
        "null", "\"true\"", "[true]", "{}", "true true", "nul", "\xff",
        "false,true", "t", "f",
    };
    bool values[COUNT];
    char text[TEXT_BYTES];

    (void)state;
    draw_values(values, 2);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        for (size_t odd = 0; odd < COUNT; odd++) {
            struct read near, far;

            read_mask(&near, text, SPELL(values, close_by, odd, words[i], text));
            read_mask(&far, text, SPELL(values, apart, odd, words[i], text));
            assert_int_equal(near.ok, far.ok);
            assert_int_equal(near.err.code, far.err.code);
            assert_int_equal(near.ok, is_json(text));
            assert_true(!near.ok || near.tensor.flaw != NULL);
            if (near.ok)
                assert_string_equal(near.tensor.flaw->text,
                                    far.tensor.flaw->text);
            arena_free(&near.arena);
            arena_free(&far.arena);
        }
    }
}

static void booleans_cut_at_any_byte_are_no_array(void **state)
{
    bool values[COUNT];
    char text[TEXT_BYTES];
    size_t len;

    (void)state;
    draw_values(values, 1);
    len = SPELL(values, close_by, COUNT, "", text);
    for (size_t cut = 0; cut < len; cut++) {
        struct read r;

        read_mask(&r, text, cut);
        assert_false(r.ok);
        assert_int_equal(r.err.code, ERR_JSON);
        arena_free(&r.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(booleans_are_read_whatever_stands_between_them),
        cmocka_unit_test(
            what_stands_among_booleans_is_told_the_same_in_any_spacing),
        cmocka_unit_test(booleans_cut_at_any_byte_are_no_array),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
