#include "core/philox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* From the authors' file of known answers. */
static void known_answers_come_out(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } known[] = {
        { { 0, 0, 0, 0 },
          { 0, 0 },
          { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
          { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t got[4];

        philox_block(known[i].counter, known[i].key, got);
        assert_memory_equal(got, known[i].want, sizeof got);
    }
}

static void a_word_is_the_same_wherever_its_run_begins(void **state)
{
    enum { WORDS = 41 };
    const uint64_t first = ((uint64_t)5 << 34) - 7; /* the counter carries */
    const uint64_t seed = 0x0123456789abcdef;
    uint32_t whole[WORDS], part[WORDS];

    (void)state;
    philox_words(seed, first, WORDS, whole);
    for (int from = 0; from < WORDS; from++) {
        philox_words(seed, first + (uint64_t)from, WORDS - from, part);
        assert_memory_equal(part, whole + from,
                            (size_t)(WORDS - from) * sizeof *part);
    }
    for (int i = 0; i < WORDS; i++) {
        uint64_t e = first + (uint64_t)i;
        const uint32_t counter[4] = { (uint32_t)(e / 4),
                                      (uint32_t)(e / 4 >> 32), 0, 0 };
        const uint32_t key[2] = { 0x89abcdef, 0x01234567 };
        uint32_t words[4];

        philox_block(counter, key, words);
        assert_int_equal(whole[i], words[e % 4]);
    }
}

static void hits_are_the_words_below_the_bound(void **state)
{
    enum { WORDS = 1000 };
    uint32_t words[WORDS];
    bool hit[WORDS];
    int hits = 0;

    (void)state;
    philox_words(9, 3, WORDS, words);
    philox_hits(9, 3, WORDS, 0.25, hit);
    for (int i = 0; i < WORDS; i++) {
        assert_int_equal(hit[i], words[i] < 1u << 30);
        assert_int_equal(hit[i], words[i] <= philox_last_hit(0.25));
        hits += hit[i];
    }
    assert_in_range(hits, 200, 300);
    assert_int_equal(philox_last_hit(0x1p-40), 0);
    assert_int_equal(philox_last_hit(1 - 0x1p-53), UINT32_MAX);
}

static void no_words_write_nothing(void **state)
{
    uint32_t word = 7;

    (void)state;
    philox_words(1, 2, 0, &word);
    assert_int_equal(word, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers_come_out),
        cmocka_unit_test(a_word_is_the_same_wherever_its_run_begins),
        cmocka_unit_test(hits_are_the_words_below_the_bound),
        cmocka_unit_test(no_words_write_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
