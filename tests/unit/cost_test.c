#include "server/cost.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void nothing_is_known_at_first(void **state)
{
    struct cost cost = { 0 };

    (void)state;
    assert_int_equal(cost_guess(&cost, 0), 0);
    assert_int_equal(cost_guess(&cost, SIZE_MAX), 0);
}

static void the_first_of_a_length_tells_all(void **state)
{
    struct cost cost = { 0 };

    (void)state;
    cost_learn(&cost, 1000, 70);
    assert_int_equal(cost_guess(&cost, 1000), 70);
    assert_int_equal(cost_guess(&cost, 1020), 70);
    assert_int_equal(cost_guess(&cost, 2000), 0);
    assert_int_equal(cost_guess(&cost, 500), 0);
}

static void a_change_is_learnt_and_an_accident_is_not(void **state)
{
    struct cost cost = { 0 };

    (void)state;
    cost_learn(&cost, 64, 800);
    cost_learn(&cost, 64, 8000);
    assert_int_equal(cost_guess(&cost, 64), 1700);
    for (int i = 0; i < 40; i++)
        cost_learn(&cost, 64, 800);
    assert_in_range(cost_guess(&cost, 64), 790, 820);
}

static void every_length_has_a_place(void **state)
{
    struct cost cost = { 0 };

    (void)state;
    for (int bit = 0; bit < 64; bit++)
        for (size_t below = 0; below < 8; below++) {
            size_t len = ((size_t)1 << bit) | below << bit >> 3;

            cost_learn(&cost, len, 5);
            assert_int_equal(cost_guess(&cost, len), 5);
        }
    cost_learn(&cost, 0, 5);
    assert_int_equal(cost_guess(&cost, 0), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_known_at_first),
        cmocka_unit_test(the_first_of_a_length_tells_all),
        cmocka_unit_test(a_change_is_learnt_and_an_accident_is_not),
        cmocka_unit_test(every_length_has_a_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
