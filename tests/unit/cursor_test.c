#include "api/cursor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    defined(VALGRIND) || defined(GCOV)
enum { SLOWER = 10 }; /* than when nobody watches */
#else
enum { SLOWER = 1 };
#endif

/* One whole document; the arena's bytes in *held. In a block of its own size,
 * so that the sanitizer sees one byte more. */
static bool check(const char *text, size_t len, struct error *err, size_t *held)
{
    char *body = malloc(len);
    struct arena arena;
    struct cursor json;

    assert_true(body != NULL || len == 0);
    if (len > 0)
        memcpy(body, text, len);
    err->code = ERR_NONE;
    arena_init(&arena, (size_t)1 << 30);
    cursor_init(&json, body, len, &arena, err);
    json.at = cursor_skip_space(json.at, json.end);

    bool ok = cursor_skip(&json) && cursor_end(&json);

    assert_int_equal(ok, err->code == ERR_NONE);
    if (held != NULL)
        *held = arena.held_bytes;
    arena_free(&arena);
    free(body);
    return ok;
}

#define TEXT(s) { s, sizeof s - 1 }
static const struct {
    const char *text;
    size_t len;
} good[] = {
    TEXT("{}"), TEXT("[]"), TEXT("0"), TEXT("-0"), TEXT("\"\""), TEXT("true"),
    TEXT("false"), TEXT("null"), TEXT(" \t\r\n1 \t\r\n"), TEXT("[ ]"),
    TEXT("{ }"), TEXT("[1,2]"), TEXT("[1 , 2]"), TEXT("{\"a\":1,\"b\":2}"),
    TEXT("{ \"a\" : 1 , \"b\" : [ ] }"), TEXT("0.0"), TEXT("-0.5e-10"),
    TEXT("1E+2"), TEXT("10"), TEXT("1e0000000000000000000000001"),
    TEXT("123456789012345678901234567890"), TEXT("1e999"), TEXT("-1e-999"),
    TEXT("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\""),
    TEXT("\"\\uD83D\\uDE00\\uABCD\""), TEXT("\"\\u0000\""),
    TEXT("\"\x7F\""), TEXT("\"\u00E9\u20AC\U0001F600\U0010FFFF\""),
    TEXT("\"\xEF\xBF\xBF\xEE\x80\x80\xED\x9F\xBF\""),
    TEXT("{\"a\":{\"a\":{\"a\":1}}}"), TEXT("[{\"a\":1},{\"a\":1}]"),
    TEXT("{\"\":1,\"a\":2,\"a\\u0000\":3,\"A\":4}"),
    TEXT("[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]"),
};

static void what_is_json_passes(void **state)
{
    struct error err;

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (!check(good[i].text, good[i].len, &err, NULL))
            fail_msg("%s: %s", good[i].text, err.text);
    }
}

/* Where the mistake is: the byte. */
#define AT(byte, s) { s, sizeof s - 1, byte }
static const struct {
    const char *text;
    size_t len, byte;
} bad[] = {
    AT(0, ""), AT(3, "   "), AT(0, "\xEF\xBB\xBF{}"), AT(0, "\xFF\xFE{\0}\0"),
    AT(1, "{\0}\0"), AT(2, "{}\0"), AT(2, "{}\0\0\0"), AT(2, "{}x"),
    AT(3, "{} {}"), AT(3, "[] // x"), AT(3, "[1 /* x */]"), AT(1, "[# x\n1]"),

    AT(1, "["), AT(1, "{"), AT(2, "[1"), AT(3, "[1,"), AT(3, "[1,]"),
    AT(1, "[,1]"), AT(3, "[1,,2]"), AT(3, "[1 2]"), AT(2, "[1}"), AT(1, "[}"),
    AT(1, "{]"), AT(1, "{1:2}"), AT(4, "{\"a\"}"), AT(5, "{\"a\":}"),
    AT(5, "{\"a\" 1}"), AT(7, "{\"a\":1,}"), AT(7, "{\"a\":1 \"b\":2}"),
    AT(1, "{'a':1}"), AT(1, "{a:1}"), AT(6, "{\"a\":1]"), AT(1, "{,}"),
    AT(7, "{\"a\":1,,\"b\":2}"), AT(5, "{\"a\"::1}"), AT(0, "]"), AT(0, ","),

    AT(0, "01"), AT(1, "-01"), AT(0, "00"), AT(0, "+1"), AT(2, "1."),
    AT(2, "1.]"), AT(2, "1.e1"), AT(0, ".5"), AT(1, "-"), AT(1, "-.5"),
    AT(1, "0x10"), AT(2, "1e"), AT(3, "1e+"), AT(2, "1ee1"), AT(3, "1e1.5"),
    AT(1, "--1"), AT(1, "-+1"), AT(1, "1_000"), AT(2, "1 000"),
    AT(0, "NaN"), AT(0, "Infinity"), AT(0, "-Infinity"), AT(1, "-NaN"),
    AT(0, "nan"), AT(0, "inf"), AT(1, "1f"), AT(1, "1L"), AT(1, "1\xE2\x82\xAC"),

    AT(0, "True"), AT(0, "tru"), AT(4, "truex"), AT(0, "nul"), AT(0, "None"),
    AT(0, "fals"), AT(0, "undefined"),

    AT(1, "\""), AT(2, "\"a"), AT(1, "\"\n\""), AT(1, "\"\x1F\""),
    AT(1, "\"\0\""), AT(1, "\"\t\""), AT(1, "\"\\x41\""), AT(3, "\"\\\""),
    AT(1, "\"\\"), AT(1, "\"\\u12\""), AT(1, "\"\\u12G4\""), AT(1, "\"\\U0041\""),
    AT(1, "\"\\'\""), AT(1, "\"\\0\""), AT(0, "'a'"), AT(1, "\"\\\0\""),

    AT(1, "\"\\uD800\""), AT(1, "\"\\uDC00\""), AT(1, "\"\\uD800\\uD800\""),
    AT(1, "\"\\uDC00\\uD800\""), AT(1, "\"\\uD800x\""), AT(1, "\"\\uD83D\\u\""),
    AT(1, "\"\\uD83D\\n\""),

    AT(1, "\"\x80\""), AT(1, "\"\xBF\""), AT(1, "\"\xC0\xAF\""),
    AT(1, "\"\xC1\xBF\""), AT(1, "\"\xE0\x80\xAF\""), AT(1, "\"\xE0\x9F\xBF\""),
    AT(1, "\"\xED\xA0\x80\""), AT(1, "\"\xED\xBF\xBF\""),
    AT(1, "\"\xF0\x80\x80\xAF\""), AT(1, "\"\xF0\x8F\xBF\xBF\""),
    AT(1, "\"\xF4\x90\x80\x80\""), AT(1, "\"\xF5\x80\x80\x80\""),
    AT(1, "\"\xF8\x88\x80\x80\x80\""), AT(1, "\"\xFE\""), AT(1, "\"\xFF\""),
    AT(1, "\"\xC3\""), AT(1, "\"\xE2\x82\""), AT(1, "\"\xF0\x9F\x98\""),
    AT(1, "\"\xE2\x82"), AT(1, "\"\xC3("), AT(3, "\"\xC3\xA9\xC3\""),
    AT(0, "\xC3\xA9"),

    AT(7, "{\"a\":1,\"a\":2}"), AT(7, "{\"a\":1,\"\\u0061\":2}"),
    AT(12, "{\"\\u0061\":1,\"a\":2}"), AT(13, "{\"a\":1,\"b\":2,\"a\":3}"),
    AT(6, "{\"\":1,\"\":2}"), AT(8, "[{\"a\":1,\"a\":2}]"),
    AT(12, "{\"a\":{\"b\":1,\"b\":2}}"), AT(13, "{\"a\":{\"b\":1},\"a\":2}"),
    AT(18, "{\"\\ud83d\\ude00\":1,\"\U0001F600\":2}"),
    AT(16, "[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]"),
};

static void a_mistake_is_told_by_line_column_and_byte(void **state)
{
    struct error err;
    int wrong = 0;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char want[48];

        snprintf(want, sizeof want, "(byte %zu): ", bad[i].byte);
        if (check(bad[i].text, bad[i].len, &err, NULL) ||
            err.code != ERR_JSON || err.where[0] != '\0' ||
            strstr(err.text, want) == NULL) {
            print_error("row %zu, %s: %s, not %s\n", i, bad[i].text,
                        err.text, want);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
}

static void lines_and_columns_count_from_one_and_columns_in_characters(
    void **state)
{
    static const struct {
        const char *text, *where;
    } cases[] = {
        { "x", "line 1, column 1 (byte 0): " },
        { "[1,\n 2,\n  x]", "line 3, column 3 (byte 10): " },
        { "[\"\u00E9\u20AC\U0001F600\", x]", "line 1, column 9 (byte 14): " },
        { "\r\n\r\n]", "line 3, column 1 (byte 4): " },
    };
    struct error err;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_false(check(cases[i].text, strlen(cases[i].text), &err, NULL));
        if (strncmp(err.text, cases[i].where, strlen(cases[i].where)) != 0)
            fail_msg("%s, not %s", err.text, cases[i].where);
    }
}

/* Eight bytes are looked at together: the odd one may be any of them. */
static void a_string_is_judged_at_every_place_in_it(void **state)
{
    static const char odd[] = "\n\x1F\0\x80\xFF\xC3";
    char text[40];
    struct error err;

    (void)state;
    for (size_t len = 0; len < 36; len++) {
        for (size_t at = 0; at < len; at++) {
            for (size_t i = 0; i < sizeof odd - 1; i++) {
                memset(text, 'x', sizeof text);
                text[0] = text[len + 1] = '"';
                text[at + 1] = odd[i];
                assert_false(check(text, len + 2, &err, NULL));
                text[at + 1] = '~';
                assert_true(check(text, len + 2, &err, NULL));
            }
        }
    }
}

static void a_document_cut_anywhere_is_refused(void **state)
{
    static const char text[] =
        "{\"query\": [[1, -2.5e+3], [true, null]], \"s\": \"a\\u00e9\\n\u00E9\", "
        "\"o\": {\"k\": false}}";
    struct error err;

    (void)state;
    assert_true(check(text, sizeof text - 1, &err, NULL));
    for (size_t len = 0; len < sizeof text - 1; len++) {
        assert_false(check(text, len, &err, NULL));
        assert_int_equal(err.code, ERR_JSON);
        assert_non_null(strstr(err.text, "(byte "));
    }
}

static char *repeat(const char *piece, size_t times, size_t *len)
{
    size_t n = strlen(piece);
    char *text = malloc(n * times + 1);

    assert_non_null(text);
    for (size_t i = 0; i < times; i++)
        memcpy(text + i * n, piece, n);
    text[n * times] = '\0';
    *len = n * times;
    return text;
}

static void depth_ends_at_its_cap_whatever_nests(void **state)
{
    static const struct {
        const char *piece;
        size_t byte;
    } bombs[] = { { "[", 16 }, { "{\"a\":", 80 }, { "[{\"\":", 40 } };
    struct error err;

    (void)state;
    for (size_t i = 0; i < sizeof bombs / sizeof *bombs; i++) {
        size_t len;
        char *text = repeat(bombs[i].piece, 100000, &len);
        char want[48];

        snprintf(want, sizeof want, "(byte %zu): nested deeper than 16",
                 bombs[i].byte);
        assert_false(check(text, len, &err, NULL));
        assert_non_null(strstr(err.text, want));
        free(text);
    }
}

/* The CPU seconds and the arena's bytes that an object of these keys takes. */
static double time_keys(const char *text, size_t len, bool ok, size_t *held)
{
    struct error err;
    clock_t began = clock();

    assert_int_equal(check(text, len, &err, held), ok);
    return (double)(clock() - began) / CLOCKS_PER_SEC;
}

static void a_million_keys_take_linear_time_and_bounded_memory(void **state)
{
    enum { KEYS = 1000000 };
    char *text = malloc(KEYS * 12 + 16);
    size_t len = 0, held;

    (void)state;
    assert_non_null(text);
    text[len++] = '{';
    for (int i = 0; i < KEYS; i++)
        len += (size_t)snprintf(text + len, 16, "\"%x\":0,", i);
    memcpy(text + len - 1, "}", 2);
    assert_true(time_keys(text, len, true, &held) < 1.0 * SLOWER);
    assert_true(held < 5 * len);

    memcpy(text + len - 1, ",\"0\":1}", 8);
    assert_true(time_keys(text, len + 7, false, &held) < 1.0 * SLOWER);
    free(text);
}

/* 2^17 keys that are one to hashes of the kind h * 31 + c, whose "Aa" is
 * their "BB". */
static void keys_made_to_collide_do_not(void **state)
{
    enum { BITS = 17, KEY_BYTES = 2 * BITS + 5 };
    size_t len = 0, held;
    char *text = malloc(((size_t)KEY_BYTES << BITS) + 1);

    (void)state;
    assert_non_null(text);
    for (int i = 0; i < 1 << BITS; i++) {
        memcpy(text + len, i == 0 ? "{\"" : ",\"", 2);
        len += 2;
        for (int bit = 0; bit < BITS; bit++, len += 2)
            memcpy(text + len, i >> bit & 1 ? "Aa" : "BB", 2);
        memcpy(text + len, "\":0", 3);
        len += 3;
    }
    text[len++] = '}';
    assert_true(time_keys(text, len, true, &held) < 0.5 * SLOWER);
    free(text);
}

static void a_key_of_ten_megabytes_is_only_long(void **state)
{
    size_t len, held;
    char *text = repeat("\\u0061bcdef", 1000000, &len);
    char *twice = malloc(2 * len + 16);

    (void)state;
    assert_non_null(twice);

    size_t both = (size_t)snprintf(twice, len + 16, "{\"%s\":1,\"", text);

    memcpy(twice + both, text, len);
    memcpy(twice + both + len, "\":2}", 4);
    assert_true(time_keys(twice, both + len + 4, false, &held) <
                1.0 * SLOWER);
    twice[both + len - 1] = 'g';
    assert_true(time_keys(twice, both + len + 4, true, &held) < 1.0 * SLOWER);
    assert_true(held < 65536);
    free(twice);
    free(text);
}

static void keys_of_closed_objects_are_forgotten(void **state)
{
    size_t len, held;
    char *inner = repeat("{\"a\":{\"b\":0,\"c\":{}},\"d\":1},", 100000, &len);
    char *text = malloc(len + 2);

    (void)state;
    assert_non_null(text);
    text[0] = '[';
    memcpy(text + 1, inner, len);
    text[len] = ']';
    assert_true(time_keys(text, len + 1, true, &held) < 1.0 * SLOWER);
    assert_int_equal(held, 0);
    free(text);
    free(inner);
}

static void megabytes_of_white_space_hold_nothing(void **state)
{
    size_t len;
    char *text = repeat(" ", 64 << 20, &len);
    struct error err;

    (void)state;
    assert_false(check(text, len, &err, NULL));
    assert_non_null(strstr(err.text, "(byte 67108864): the body ends"));
    free(text);
}

static void an_excerpt_is_short_and_whole_characters(void **state)
{
    static const char *const cases[][2] = {
        { "\"x\"", "\"x\"" },
        { "[]", "[]" },
        { "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", "an array" },
        { "{\"a\":\"0123456789012345678901234567890123456789\"}",
          "an object" },
        { "\"0123456789012345678901234567890123\u00E9\u00E9\u00E9\u00E9\"",
          "\"0123456789012345678901234567890123..." },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[CURSOR_EXCERPT_BYTES];

        cursor_excerpt(cases[i][0], cases[i][0] + strlen(cases[i][0]), out);
        assert_string_equal(out, cases[i][1]);
    }
}

static void a_full_arena_is_no_fault_of_the_client(void **state)
{
    char text[4096] = "{";
    struct error err = { ERR_NONE };
    struct arena arena;
    struct cursor json;
    size_t len = 1;

    (void)state;
    for (int i = 0; i < 200; i++)
        len += (size_t)snprintf(text + len, 16, "\"%d\":0,", i);
    arena_init(&arena, 100);
    cursor_init(&json, text, len, &arena, &err);
    assert_false(cursor_skip(&json));
    assert_int_equal(err.code, ERR_OVERLOADED);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_json_passes),
        cmocka_unit_test(a_mistake_is_told_by_line_column_and_byte),
        cmocka_unit_test(lines_and_columns_count_from_one_and_columns_in_characters),
        cmocka_unit_test(a_string_is_judged_at_every_place_in_it),
        cmocka_unit_test(a_document_cut_anywhere_is_refused),
        cmocka_unit_test(depth_ends_at_its_cap_whatever_nests),
        cmocka_unit_test(a_million_keys_take_linear_time_and_bounded_memory),
        cmocka_unit_test(keys_made_to_collide_do_not),
        cmocka_unit_test(a_key_of_ten_megabytes_is_only_long),
        cmocka_unit_test(keys_of_closed_objects_are_forgotten),
        cmocka_unit_test(megabytes_of_white_space_hold_nothing),
        cmocka_unit_test(an_excerpt_is_short_and_whole_characters),
        cmocka_unit_test(a_full_arena_is_no_fault_of_the_client),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
