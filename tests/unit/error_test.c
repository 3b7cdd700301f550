#include "core/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void the_first_error_wins(void **state)
{
    struct error err = { 0 };

    (void)state;
    assert_false(error_set(&err, ERR_SHAPE, "/key", "key has %d axes", 5));
    assert_false(error_set(&err, ERR_RANGE, "/query", "something else"));
    assert_int_equal(err.code, ERR_SHAPE);
    assert_string_equal(err.where, "/key");
    assert_string_equal(err.text, "key has 5 axes");
}

static void a_long_text_is_cut_between_two_characters(void **state)
{
    char text[sizeof((struct error *)NULL)->text + 8];

    (void)state;
    for (size_t shift = 0; shift < 4; shift++) {
        struct error err = { 0 };

        memset(text, 'a', sizeof text);
        for (size_t i = shift; i + 4 < sizeof text; i += 4)
            memcpy(text + i, "\xF0\x9F\x98\x80", 4);
        text[sizeof text - 1] = '\0';
        error_set(&err, ERR_JSON, "", "%s", text);

        size_t len = strlen(err.text);

        assert_true(len < sizeof err.text && len + 4 >= sizeof err.text);
        assert_int_equal((len - shift) % 4, 0);
    }
}

static void a_pointer_escapes_tilde_and_slash(void **state)
{
    char out[64];

    (void)state;
    assert_string_equal(error_pointer(out, sizeof out, "/state_dict", "a/b~c"),
                        "/state_dict/a~1b~0c");
    assert_string_equal(error_pointer(out, sizeof out, "", ""), "/");
}

static void a_pointer_too_long_is_cut_and_stays_inside(void **state)
{
    char out[16 + 1];

    (void)state;
    for (size_t size = 1; size <= 16; size++) {
        memset(out, '#', sizeof out);
        error_pointer(out, size, "/state", "~~~~////~~~~");
        assert_true(memchr(out, '\0', size) != NULL);
        assert_int_equal(out[size], '#');
    }
}

/* But for the contract's one name for a method in the wrong place (405) and a
 * method of nobody's (501). */
static void every_code_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int i = 0; i < ERR_COUNT; i++) {
        assert_non_null(error_name((enum error_code)i));
        for (int j = 0; j < i; j++)
            if (i != ERR_UNKNOWN_METHOD || j != ERR_METHOD)
                assert_string_not_equal(error_name((enum error_code)i),
                                        error_name((enum error_code)j));
    }
    assert_string_equal(error_name(ERR_SHAPE), "shape_mismatch");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_error_wins),
        cmocka_unit_test(a_long_text_is_cut_between_two_characters),
        cmocka_unit_test(a_pointer_escapes_tilde_and_slash),
        cmocka_unit_test(a_pointer_too_long_is_cut_and_stays_inside),
        cmocka_unit_test(every_code_has_a_name_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
