#include "core/finite.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Past a block, and not a whole number of vectors. */
enum { ROWS = 3, COLUMNS = 1025, COUNT = ROWS * COLUMNS };

static void set(void *numbers, enum dtype dtype, int64_t i, double value)
{
    if (dtype == DTYPE_F64)
        ((double *)numbers)[i] = value;
    else
        ((float *)numbers)[i] = (float)value;
}

static void expect(const struct tensor *t, int64_t at, bool minus_infinity,
                   bool fine)
{
    struct error err = { 0 };
    char where[64];

    assert_int_equal(finite_check(t, "scores", minus_infinity, &err), fine);
    if (fine)
        return;
    snprintf(where, sizeof where, "scores[%lld][%lld] ",
             (long long)(at / COLUMNS), (long long)(at % COLUMNS));
    assert_int_equal(err.code, ERR_NOT_FINITE);
    assert_string_equal(err.where, "");
    if (strncmp(err.text, where, strlen(where)) != 0)
        fail_msg("not %s: %s", where, err.text);
}

static void check_every_place(enum dtype dtype, double largest)
{
    static const int64_t dim[] = { ROWS, COLUMNS };
    void *numbers = calloc(COUNT, sizeof(double));
    struct tensor t = tensor_packed(numbers, dtype, 2, dim);

    for (int64_t i = 0; i < COUNT; i++) {
        set(numbers, dtype, i, i % 2 ? largest : -largest);
        expect(&t, i, false, true);
        set(numbers, dtype, i, INFINITY);
        expect(&t, i, false, false);
        expect(&t, i, true, false);
        set(numbers, dtype, i, NAN);
        expect(&t, i, false, false);
        expect(&t, i, true, false);
        set(numbers, dtype, i, -INFINITY);
        expect(&t, i, false, false);
        expect(&t, i, true, true);
        set(numbers, dtype, i, i % 2 ? -0.0 : largest);
    }
    free(numbers);
}

static void infinity_and_nan_are_found_wherever_they_stand(void **state)
{
    (void)state;
    check_every_place(DTYPE_F32, (double)FLT_MAX);
    check_every_place(DTYPE_F64, DBL_MAX);
}

static void a_tensor_that_is_not_there_is_fine(void **state)
{
    struct tensor absent = { 0 };
    struct error err = { 0 };

    (void)state;
    assert_true(finite_check(&absent, "q", false, &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infinity_and_nan_are_found_wherever_they_stand),
        cmocka_unit_test(a_tensor_that_is_not_there_is_fine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
