#include "api/query.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void pairs_are_split_and_their_escapes_undone(void **state)
{
    static const struct {
        const char *text;
        size_t count;
        const char *name, *value; /* of the last */
    } rows[] = {
        { NULL, 0, NULL, NULL },
        { "", 0, NULL, NULL },
        { "&&", 0, NULL, NULL },
        { "a=1", 1, "a", "1" },
        { "a=1&b=2", 2, "b", "2" },
        { "&a=1&&b=2&", 2, "b", "2" },
        { "a", 1, "a", "" },
        { "a=", 1, "a", "" },
        { "=a", 1, "", "a" },
        { "a=b=c", 1, "a", "b=c" },
        { "a=1+2%2B3", 1, "a", "1 2+3" },
        { "w=%5B-1%2c%200%5d", 1, "w", "[-1, 0]" },
        { "%6eum%5Fheads=3", 1, "num_heads", "3" },
        { "a=%26%3D&b=%c3%a4", 2, "b", "\xc3\xa4" },
        { "a=1&a=1", 2, "a", "1" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error err = { ERR_NONE };
        struct query query;
        struct arena arena;

        arena_init(&arena, 1 << 20);
        assert_true(query_decode(rows[i].text, &arena, &query, &err));
        assert_int_equal(query.count, rows[i].count);
        if (query.count > 0) {
            assert_string_equal(query.pair[query.count - 1].name,
                                rows[i].name);
            assert_string_equal(query.pair[query.count - 1].value,
                                rows[i].value);
        }
        arena_free(&arena);
    }
}

static void what_no_client_writes_is_refused(void **state)
{
    static const char *const rows[] = {
        "a=%",      "a=%1",  "a=%g0",     "a=%0g",  "%00=1",
        "a=%00",    "a=%ff", "%c3=%a4",   "a=%c0%80", "a=%ed%a0%80",
        "a=1&b=%2", "a=\xff",
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error err = { ERR_NONE };
        struct query query;
        struct arena arena;

        arena_init(&arena, 1 << 20);
        if (query_decode(rows[i], &arena, &query, &err))
            fail_msg("%s", rows[i]);
        assert_int_equal(err.code, ERR_REQUEST);
        assert_string_equal(err.where, "");
        arena_free(&arena);
    }
}

static void a_long_query_takes_memory_in_proportion(void **state)
{
    enum { LEN = 100000 };
    char *text = malloc(LEN + 1);
    struct error err = { ERR_NONE };
    struct query query;
    struct arena arena;

    (void)state;
    for (int i = 0; i < LEN; i++)
        text[i] = i % 2 == 0 ? 'a' : '&';
    text[LEN] = '\0';
    arena_init(&arena, 18 * LEN + 64 * 1024);
    assert_true(query_decode(text, &arena, &query, &err));
    assert_int_equal(query.count, LEN / 2);
    arena_free(&arena);
    arena_init(&arena, LEN);
    assert_false(query_decode(text, &arena, &query, &err));
    assert_int_equal(err.code, ERR_OVERLOADED);
    arena_free(&arena);
    free(text);
}

static void where_none_is_wanted_the_first_name_is_told(void **state)
{
    static const struct {
        const char *text, *where;
    } rows[] = {
        { "a=1&b=2", "/a" }, { "num_heads", "/num_heads" }, { "&", "/" },
        { "a\xff=1", "/a" }, { "a\x7f=1", "/a" }, { "a b", "/a" },
        { "0123456789012345678901234567890123456789012345678901234567890123456",
          "/012345678901234567890123456789012345678901234567890123456789012" },
        { "a/b~=1", "/a~1b~0" },
    };
    struct error none = { ERR_NONE };

    (void)state;
    assert_true(query_check_none(NULL, &none));
    assert_true(query_check_none("", &none));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error err = { ERR_NONE };

        assert_false(query_check_none(rows[i].text, &err));
        assert_int_equal(err.code, ERR_UNKNOWN);
        assert_string_equal(err.where, rows[i].where);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_split_and_their_escapes_undone),
        cmocka_unit_test(what_no_client_writes_is_refused),
        cmocka_unit_test(a_long_query_takes_memory_in_proportion),
        cmocka_unit_test(where_none_is_wanted_the_first_name_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
