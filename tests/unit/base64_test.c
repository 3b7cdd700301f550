#include "api/base64.h"
#include "api/number_array.h"
#include "core/cpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* RFC 4648, section 10. */
static const struct {
    const char *bytes, *text;
} vectors[] = {
    { "", "" },          { "f", "Zg==" },         { "fo", "Zm8=" },
    { "foo", "Zm9v" },   { "foob", "Zm9vYg==" },  { "fooba", "Zm9vYmE=" },
    { "foobar", "Zm9vYmFy" },
};

static void the_vectors_of_the_rfc_hold_both_ways(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        size_t bytes = strlen(vectors[i].bytes);
        char text[16];
        uint8_t back[16];

        assert_int_equal(base64_length(bytes), strlen(vectors[i].text));
        assert_int_equal(base64_encode((const uint8_t *)vectors[i].bytes,
                                       bytes, text),
                         base64_length(bytes));
        assert_memory_equal(text, vectors[i].text, base64_length(bytes));
        assert_null(base64_decode(text, bytes, back));
        assert_memory_equal(back, vectors[i].bytes, bytes);
    }
}

static void every_length_of_every_byte_comes_back(void **state)
{
    uint8_t data[512], back[512];
    char text[684]; /* of 512 bytes */

    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 167 + 13);
    for (size_t n = 0; n <= sizeof data; n++) {
        memset(back, 0xAA, sizeof back);
        base64_encode(data, n, text);
        assert_null(base64_decode(text, n, back));
        assert_memory_equal(back, data, n);
        assert_true(n == sizeof back || back[n] == 0xAA);
    }
}

/* Each is the text of `bytes` bytes but for the character at `wrong`. */
static const struct {
    const char *text;
    size_t bytes, wrong;
} bad[] = {
    { "!!!!", 3, 0 },     { "AA A", 3, 2 },     { "AAA\n", 3, 3 },
    { "AA-A", 3, 2 },     { "AA_A", 3, 2 },     { "AAA=", 3, 3 },
    { "=AAA", 3, 0 },     { "AA\x80" "A", 3, 2 }, { "AAAAA\xFF" "AA", 6, 5 },
    { "AAAA", 2, 3 },     { "AAAA", 1, 2 },     { "AA=A", 1, 3 },
    { "A===", 1, 1 },     { "AB==", 1, 1 },     { "AAB=", 2, 2 },
    { "AAA\0", 2, 3 },
};

static void what_is_not_strict_is_refused_where_it_stands(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint8_t out[8];
        const char *wrong = base64_decode(bad[i].text, bad[i].bytes, out);

        assert_non_null(wrong);
        assert_int_equal(wrong - bad[i].text, bad[i].wrong);
    }
}

static void all_256_characters_are_judged(void **state)
{
    int good = 0;

    (void)state;
    for (int c = 0; c < 256; c++) {
        char text[4] = { (char)c, 'A', 'A', 'A' };
        uint8_t out[3];

        good += base64_decode(text, 3, out) == NULL;
    }
    assert_int_equal(good, 64);
}

/* In a text of two vectors and a rest, whichever character it is, and whatever
 * stands in its place. */
static void one_wrong_character_is_found_wherever_it_stands(void **state)
{
    enum { BYTES = 150 };
    uint8_t data[BYTES], back[BYTES];
    char text[BYTES / 3 * 4];

    (void)state;
    for (int i = 0; i < BYTES; i++)
        data[i] = (uint8_t)(i * 89 + 7);
    base64_encode(data, BYTES, text);
    for (size_t at = 0; at < sizeof text; at++)
        for (int c = 0; c < 256; c++) {
            char was = text[at];
            bool good = memchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstu"
                               "vwxyz0123456789+/", c, 64) != NULL;
            const char *wrong;

            text[at] = (char)c;
            wrong = base64_decode(text, BYTES, back);
            text[at] = was;
            if (wrong != (good ? NULL : text + at))
                fail_msg("character %d at %zu", c, at);
        }
}

/* In blocks of exactly their size, so that a sanitizer sees one byte more. */
static void nothing_is_read_or_written_past_the_ends(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 200; n++) {
        uint8_t *data = malloc(n), *back = malloc(n);
        char *text = malloc(base64_length(n));

        memset(data, (int)n, n);
        assert_int_equal(base64_encode(data, n, text), base64_length(n));
        assert_null(base64_decode(text, n, back));
        assert_memory_equal(back, data, n);
        free(data);
        free(back);
        free(text);
    }
}

static int select_level(void **state)
{
    const char *level = *state;

    if (number_select(cpu_features(), level) &&
        strcmp(number_selected(), level) == 0)
        return base64_select(level) ? 0 : -1;
    print_message("no %s here: not run at that level\n", level);
    return base64_select("portable") ? 0 : -1;
}

static void only_levels_are_selected(void **state)
{
    (void)state;
    assert_false(base64_select("amx"));
    assert_false(base64_select(""));
}

#define AT(level, test) { #test " (" level ")", test, select_level, NULL, level }
#define AT_EACH(test) AT("portable", test), AT("avx2", test), AT("avx512", test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        AT_EACH(the_vectors_of_the_rfc_hold_both_ways),
        AT_EACH(every_length_of_every_byte_comes_back),
        AT_EACH(what_is_not_strict_is_refused_where_it_stands),
        AT_EACH(all_256_characters_are_judged),
        AT_EACH(one_wrong_character_is_found_wherever_it_stands),
        AT_EACH(nothing_is_read_or_written_past_the_ends),
        cmocka_unit_test(only_levels_are_selected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
