#include "api/base64.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vectors_of_the_rfc_hold_both_ways),
        cmocka_unit_test(every_length_of_every_byte_comes_back),
        cmocka_unit_test(what_is_not_strict_is_refused_where_it_stands),
        cmocka_unit_test(all_256_characters_are_judged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
