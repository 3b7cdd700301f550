#include "core/compare.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct tensor f32(float *data, int64_t rows, int64_t columns)
{
    const int64_t dim[] = { rows, columns };

    return tensor_packed(data, DTYPE_F32, 2, dim);
}

static void the_worst_element_is_named_with_both_numbers(void **state)
{
    float got[] = { 1, 2, 3, 4, 5, 6 }, want[] = { 1, 2.5f, 3, 4, 3, 6 };
    struct tensor a = f32(got, 2, 3), b = f32(want, 2, 3);
    struct comparison c;

    (void)state;
    assert_true(compare_tensors(&a, &b, &c));
    assert_true(c.present);
    assert_true(c.max_abs == 2);
    assert_true(fabs(c.max_rel - 2.0 / 3) < 1e-15);
    assert_true(fabs(c.rms - sqrt((0.25 + 4) / 6)) < 1e-15);
    assert_int_equal(c.rank, 2);
    assert_int_equal(c.index[0], 1);
    assert_int_equal(c.index[1], 1);
    assert_true(c.got == 5 && c.expected == 3);
}

static void the_first_of_equal_differences_is_the_worst(void **state)
{
    float got[] = { 0, 1, 0, -1 }, want[] = { 0, 0, 0, 0 };
    struct tensor a = f32(got, 2, 2), b = f32(want, 2, 2);
    struct comparison c;

    (void)state;
    assert_true(compare_tensors(&a, &b, &c));
    assert_int_equal(c.index[0], 0);
    assert_int_equal(c.index[1], 1);
    assert_true(c.got == 1);
}

static void equal_tensors_differ_by_nothing_at_the_first_element(void **state)
{
    float got[] = { 7, 0 };
    struct tensor a = f32(got, 1, 2);
    struct comparison c;

    (void)state;
    assert_true(compare_tensors(&a, &a, &c));
    assert_true(c.max_abs == 0 && c.max_rel == 0 && c.rms == 0);
    assert_true(c.got == 7 && c.expected == 7);
}

static void relative_differences_skip_where_zero_was_expected(void **state)
{
    float got[] = { 5, 1.5f }, want[] = { 0, 1 };
    struct tensor a = f32(got, 1, 2), b = f32(want, 1, 2);
    struct comparison c;

    (void)state;
    assert_true(compare_tensors(&a, &b, &c));
    assert_true(c.max_abs == 5 && c.max_rel == 0.5);
}

static void squares_beyond_double_do_not_spoil_the_mean(void **state)
{
    double got[] = { 1e200, 0 }, want[] = { -1e200, 0 };
    const int64_t dim[] = { 2 };
    struct tensor a = tensor_packed(got, DTYPE_F64, 1, dim);
    struct tensor b = tensor_packed(want, DTYPE_F64, 1, dim);
    struct comparison c;

    (void)state;
    assert_true(compare_tensors(&a, &b, &c));
    assert_true(fabs(c.rms / (2e200 / sqrt(2)) - 1) < 1e-14);
}

static void a_difference_or_ratio_beyond_double_is_refused(void **state)
{
    double got[] = { DBL_MAX, 1 }, far[] = { -DBL_MAX, 1 };
    double tiny[] = { DBL_MAX, 4.9e-324 };
    const int64_t dim[] = { 2 };
    struct tensor a = tensor_packed(got, DTYPE_F64, 1, dim);
    struct tensor b = tensor_packed(far, DTYPE_F64, 1, dim);
    struct tensor d = tensor_packed(tiny, DTYPE_F64, 1, dim);
    struct comparison c;

    (void)state;
    assert_false(compare_tensors(&a, &b, &c));
    assert_false(compare_tensors(&a, &d, &c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worst_element_is_named_with_both_numbers),
        cmocka_unit_test(the_first_of_equal_differences_is_the_worst),
        cmocka_unit_test(equal_tensors_differ_by_nothing_at_the_first_element),
        cmocka_unit_test(relative_differences_skip_where_zero_was_expected),
        cmocka_unit_test(squares_beyond_double_do_not_spoil_the_mean),
        cmocka_unit_test(a_difference_or_ratio_beyond_double_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
