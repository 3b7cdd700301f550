#include "api/accept.h"
#include "api/coding.h"
#include "api/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void the_closest_name_says_the_quality(void **state)
{
    static const struct {
        const char *header, *name;
        int quality, close;
    } rows[] = {
        { NULL, "a/b", 0, 0 },
        { "", "a/b", 0, 0 },
        { "a/b", "a/b", 1000, 3 },
        { "A/B", "a/b", 1000, 3 },
        { "a/bc", "a/b", 0, 0 },
        { "a/b c", "a/b", 0, 0 },
        { "a", "a/b", 0, 0 },
        { "a/*", "a/b", 1000, 2 },
        { "b/*", "a/b", 0, 0 },
        { "*/*", "a/b", 1000, 1 },
        { "*", "gzip", 1000, 1 },
        { "*/*;q=0.3, a/*;q=0.2, a/b;q=0.1", "a/b", 100, 3 },
        { "a/b;q=0, */*", "a/b", 0, 3 },
        { "a/b;q=0.2, a/b;q=0.8", "a/b", 200, 3 },
        { "x/y,, ,a/b ; q=0.5 ,", "a/b", 500, 3 },
        { "a/b;level=\"1,2;q=0\";q=0.25", "a/b", 250, 3 },
        { "a/b;level=\"\\\",\";q=0.25", "a/b", 250, 3 },
        { "a/b;q=0.999;x=1", "a/b", 999, 3 },
        { "a/b;x", "a/b", 1000, 3 },
        { "a/b;q=1.", "a/b", 1000, 3 },
        { "a/b;Q=0.7", "a/b", 700, 3 },
        { "a/b;quality=0.5;q=0.7", "a/b", 700, 3 },
        { "a/x, */*;q=0.1", "a/b", 100, 1 },

        /* Not well-formed: passed over. */
        { "a/b;q=2, */*;q=0.1", "a/b", 100, 1 },
        { "a/b;q=1.001, */*;q=0.1", "a/b", 100, 1 },
        { "a/b;q=0.1234, */*;q=0.1", "a/b", 100, 1 },
        { "a/b;q=, */*;q=0.1", "a/b", 100, 1 },
        { "a/b;q=-1, */*;q=0.1", "a/b", 100, 1 },
        { "a/b;q=x, */*;q=0.1", "a/b", 100, 1 },
        { "a/b;q=0., */*;q=0.1", "a/b", 0, 3 },
        { "a/b;q=0.5/, */*;q=0.1", "a/b", 100, 1 },
        { "a/b;q=0.5:, */*;q=0.1", "a/b", 100, 1 },
        { "a/b;x=\"open, */*;q=0.1", "a/b", 1000, 3 },
        { "a/b;x=\"open\\", "a/b", 1000, 3 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct preference p = accept_find(rows[i].header, rows[i].name);

        if (p.quality != rows[i].quality || p.close != rows[i].close)
            fail_msg("%s: %d, %d", rows[i].header, p.quality, p.close);
    }
}

static void a_reply_has_the_type_that_accept_prefers_or_json(void **state)
{
    static const struct {
        const char *accept;
        const struct wire_format *format;
    } rows[] = {
        { NULL, &wire_json },
        { "", &wire_json },
        { "*/*", &wire_json },
        { "application/*", &wire_json },
        { "text/html, application/xhtml+xml", &wire_json },
        { "application/x-npy", &wire_npy },
        { "application/x-safetensors", &wire_safetensors },
        { "application/vnd.safetensors", &wire_vnd_safetensors },
        { "*/*, application/x-npy", &wire_npy },
        { "application/json, application/x-npy", &wire_json },
        { "application/x-npy, application/json", &wire_npy },
        { "application/x-npy;q=0.5, application/json", &wire_json },
        { "application/json;q=0.2, application/x-safetensors;q=0.3, "
          "application/x-npy;q=0.1", &wire_safetensors },
        { "application/json;q=0, */*", &wire_safetensors },
        { "application/json;q=0", &wire_json },
        { "application/x-npy;q=0", &wire_json },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (wire_accept(rows[i].accept) != rows[i].format)
            fail_msg("%s", rows[i].accept);
}

static void a_reply_is_packed_as_accept_encoding_prefers_or_not(void **state)
{
    static const struct {
        const char *accept;
        enum coding coding;
    } rows[] = {
        { NULL, CODING_IDENTITY },
        { "", CODING_IDENTITY },
        { "br", CODING_IDENTITY },
        { "identity", CODING_IDENTITY },
        { "gzip", CODING_GZIP },
        { "x-gzip", CODING_GZIP },
        { "zstd", CODING_ZSTD },
        { "gzip, zstd", CODING_ZSTD },
        { "gzip, deflate, br", CODING_GZIP },
        { "zstd;q=0.5, gzip", CODING_GZIP },
        { "gzip;q=0.5, identity", CODING_IDENTITY },
        { "gzip;q=0.5, identity;q=0.1", CODING_GZIP },
        { "*", CODING_ZSTD },
        { "*, zstd;q=0", CODING_GZIP },
        { "*;q=0", CODING_IDENTITY },
        { "gzip;q=0", CODING_IDENTITY },
        { "identity;q=0", CODING_IDENTITY },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (coding_accept(rows[i].accept) != rows[i].coding)
            fail_msg("%s", rows[i].accept);
}

static void only_one_coding_is_undone(void **state)
{
    static const char *const refused[] = {
        "br", "deflate", "gzip, gzip", "gzip,zstd", "identity, gzip", ",",
        "gzip;q=1", "gzi", "gzipp", "",
    };
    static const struct {
        const char *name;
        enum coding coding;
    } taken[] = {
        { NULL, CODING_IDENTITY }, { "identity", CODING_IDENTITY },
        { "gzip", CODING_GZIP },   { " GZip\t", CODING_GZIP },
        { "x-gzip", CODING_GZIP }, { "zstd", CODING_ZSTD },
    };
    enum coding coding;

    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (coding_find(refused[i], &coding))
            fail_msg("%s", refused[i]);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        assert_true(coding_find(taken[i].name, &coding));
        assert_int_equal(coding, taken[i].coding);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_closest_name_says_the_quality),
        cmocka_unit_test(a_reply_has_the_type_that_accept_prefers_or_json),
        cmocka_unit_test(a_reply_is_packed_as_accept_encoding_prefers_or_not),
        cmocka_unit_test(only_one_coding_is_undone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
