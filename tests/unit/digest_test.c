#include "server/digest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* FIPS 180-2's examples. */
static const struct {
    const char *data, *text;
} known[] = {
    { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
    { "abc",
      "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
    { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
};

static void the_standards_examples_come_out_in_any_pieces(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t len = strlen(known[i].data);

        for (size_t cut = 0; cut <= len; cut++) {
            struct digest digest;
            char text[DIGEST_TEXT_BYTES];

            assert_true(digest_begin(&digest));
            digest_add(&digest, known[i].data, cut);
            digest_add(&digest, known[i].data + cut, len - cut);
            digest_end(&digest, text);
            assert_string_equal(text, known[i].text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_standards_examples_come_out_in_any_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
