#include "core/mask.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct mask open_mask = { .S = 10, .left = INT64_MAX,
                                       .right = INT64_MAX };

static void expect_range(const struct mask *mask, int64_t n, int64_t i,
                         int64_t lo, int64_t hi)
{
    int64_t got_lo, got_hi;

    mask_range(mask, n, i, &got_lo, &got_hi);
    if (hi > lo) {
        assert_int_equal(got_lo, lo);
        assert_int_equal(got_hi, hi);
    } else {
        assert_int_equal(got_lo, got_hi);
        assert_in_range(got_lo, 0, mask->S);
    }
}

static void without_masks_every_key_is_seen(void **state)
{
    (void)state;
    expect_range(&open_mask, 0, 0, 0, 10);
    expect_range(&open_mask, 5, 1000000, 0, 10);
    assert_true(mask_is_plain(&open_mask, 0, 0, 10));
}

static void a_causal_query_sees_itself_and_what_came_before(void **state)
{
    struct mask mask = open_mask;

    (void)state;
    mask.right = 0;
    expect_range(&mask, 0, 0, 0, 1);
    expect_range(&mask, 0, 8, 0, 9);
    expect_range(&mask, 0, 9, 0, 10);
    expect_range(&mask, 0, 30, 0, 10);
    mask.shift = -3; /* fewer keys than queries, bottom right */
    expect_range(&mask, 0, 2, 0, 0);
    expect_range(&mask, 0, 3, 0, 1);
    mask.shift = 6;
    expect_range(&mask, 0, 0, 0, 7);
}

static void a_window_has_both_ends(void **state)
{
    struct mask mask = open_mask;

    (void)state;
    mask.left = 2;
    mask.right = 1;
    expect_range(&mask, 0, 0, 0, 2);
    expect_range(&mask, 0, 5, 3, 7);
    expect_range(&mask, 0, 9, 7, 10);
    expect_range(&mask, 0, 11, 9, 10);
    expect_range(&mask, 0, 12, 0, 0); /* past the last key */
    mask.left = mask.right = 0;
    expect_range(&mask, 0, 4, 4, 5);
}

static void windows_of_any_size_do_not_overflow(void **state)
{
    static const int64_t sizes[] = { INT64_MAX, INT64_MAX - 1,
                                     INT64_MAX - 100 };
    struct mask mask = open_mask;

    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < 3; j++)
            for (int64_t shift = -50; shift <= 50; shift += 50) {
                mask.left = sizes[i];
                mask.right = sizes[j];
                mask.shift = shift;
                expect_range(&mask, 0, 20, 0, 10);
            }
}

static void padding_at_either_end_is_outside_the_range(void **state)
{
    static const uint8_t hidden[20] = { 1, 1, 0, 1, 0, 0, 1, 0, 1, 1,
                                        1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    struct mask mask = open_mask;

    (void)state;
    mask.key_hidden = hidden;
    expect_range(&mask, 0, 0, 2, 8);
    expect_range(&mask, 1, 0, 0, 0); /* nothing is left */
    assert_false(mask_is_plain(&mask, 0, 2, 8));
    assert_true(mask_is_plain(&mask, 0, 4, 6));
    assert_true(mask_is_plain(&mask, 0, 4, 4));
    mask.right = 0;
    expect_range(&mask, 0, 1, 0, 0);
    expect_range(&mask, 0, 3, 2, 3);
    expect_range(&mask, 0, 6, 2, 6);
}

static void rows_add_up_what_is_added_and_forbid_what_is_forbidden(void **state)
{
    static const uint8_t key_hidden[10] = { 0, 0, 1 };
    static const float key_bias[10] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 };
    uint8_t hidden[20] = { 0 };
    float bias[10] = { 0.5f, -INFINITY, 0, 0, -0.25f };
    struct mask mask = open_mask;
    double sum[10];
    float out[10];
    const float *row;

    (void)state;
    hidden[10 + 3] = 1; /* of query 1 alone */
    mask.key_hidden = key_hidden;
    mask.key_bias = key_bias;
    mask.hidden = tensor_packed(hidden, DTYPE_BOOL, 4,
                                (int64_t[]){ 1, 1, 2, 10 });
    mask.hides_when = 1;
    mask.bias = tensor_packed(bias, DTYPE_F32, 4, (int64_t[]){ 1, 1, 1, 10 });
    mask.bias.step[2] = 0;
    mask_row_f64(&mask, DTYPE_F32, 0, 0, 1, 0, 5, sum);
    row = mask_row_f32(&mask, 0, 0, 1, 0, 5, 0, out);

    static const double want[5] = { 1.5, -(double)INFINITY, -(double)INFINITY,
                                    -(double)INFINITY, 4.75 };

    for (int j = 0; j < 5; j++) {
        assert_true(sum[j] == want[j]);
        assert_true((double)row[j] == want[j]);
    }
    row = mask_row_f32(&mask, 0, 0, 0, 3, 4, 0, out);
    assert_true(row[0] == 4);
    mask.hides_when = 0; /* now it hides all but that one */
    row = mask_row_f32(&mask, 0, 0, 1, 3, 5, 0, out);
    assert_true(row[0] == 4 && row[1] == -INFINITY);
}

static void booleans_alone_add_nothing(void **state)
{
    static const uint8_t key_hidden[10] = { 0, 0, 1 };
    static const uint8_t hidden[10] = { 1 };
    struct mask mask = open_mask;
    float out[10];

    (void)state;
    mask.key_hidden = key_hidden;
    mask.hidden = tensor_packed((void *)hidden, DTYPE_BOOL, 4,
                                (int64_t[]){ 1, 1, 1, 10 });
    mask.hides_when = 1;
    mask_row_f32(&mask, 0, 0, 0, 0, 10, 0, out);
    for (int j = 0; j < 10; j++)
        assert_true(out[j] == (j == 0 || j == 2 ? -INFINITY : 0));
}

static void flags_say_what_any_boolean_forbids(void **state)
{
    static const uint8_t key_hidden[10] = { 0, 0, 1 };
    static const uint8_t hidden[10] = { 1, 0, 0, 0, 0, 0, 0, 0, 0, 1 };
    struct mask mask = open_mask;
    uint8_t room[10];
    const uint8_t *flags;

    (void)state;
    mask.hidden = tensor_packed((void *)hidden, DTYPE_BOOL, 4,
                                (int64_t[]){ 1, 1, 1, 10 });
    mask.hides_when = 1;
    assert_ptr_equal(mask_row_flags(&mask, 0, 0, 0, 2, 10, room), hidden + 2);
    mask.key_hidden = key_hidden;
    assert_ptr_equal(mask_row_flags(&mask, 0, 0, 0, 3, 10, room), hidden + 3);
    for (uint8_t when = 0; when < 2; when++)
        for (int64_t lo = 0; lo < 3; lo++) {
            mask.hides_when = when;
            flags = mask_row_flags(&mask, 0, 0, 0, lo, 10, room);
            for (int64_t j = lo; j < 10; j++)
                assert_int_equal(flags[j - lo],
                                 key_hidden[j] || hidden[j] == when);
        }
    mask.hidden.rank = 0;
    assert_ptr_equal(mask_row_flags(&mask, 0, 0, 0, 1, 10, room),
                     key_hidden + 1);
    flags = mask_row_flags(&mask, 0, 0, 0, 4, 6, room);
    assert_true(flags[0] == 0 && flags[1] == 0);
    assert_true(mask_is_boolean(&mask));
    mask.key_bias = room;
    assert_false(mask_is_boolean(&mask));
}

static void a_lone_additive_mask_is_read_where_it_is(void **state)
{
    float bias[30] = { 0 };
    uint8_t key_hidden[10] = { 1, 0, 0, 0, 0, 0, 0, 0, 0, 1 };
    struct mask mask = open_mask;
    float out[10];

    (void)state;
    mask.bias = tensor_packed(bias, DTYPE_F32, 4, (int64_t[]){ 1, 1, 3, 10 });
    assert_ptr_equal(mask_row_f32(&mask, 0, 0, 2, 4, 10, 0, out), bias + 24);
    mask.key_hidden = key_hidden; /* trimmed away, so still alone */
    assert_ptr_equal(mask_row_f32(&mask, 0, 0, 2, 1, 9, 0, out), bias + 21);
    mask.bias.step[3] = 0;
    assert_ptr_equal(mask_row_f32(&mask, 0, 0, 2, 1, 9, 0, out), out);
}

static void a_shift_is_taken_off_the_sum_before_it_is_rounded(void **state)
{
    float key_bias[10], bias[10] = { 0.25f, -INFINITY, 0, 0.0625f };
    struct mask mask = open_mask;
    float out[10];

    (void)state;
    for (int j = 0; j < 10; j++)
        key_bias[j] = -1e6f - (float)j;
    mask.key_bias = key_bias;
    assert_ptr_equal(mask_row_f32(&mask, 0, 0, 0, 3, 10, 0, out), key_bias + 3);
    for (int lo = 0; lo < 5; lo++) {
        mask_row_f32(&mask, 0, 0, 0, lo, 10, -1e6, out);
        for (int j = lo; j < 10; j++)
            assert_true(out[j - lo] == -(float)j);
    }
    mask.bias = tensor_packed(bias, DTYPE_F32, 4, (int64_t[]){ 1, 1, 1, 10 });
    mask_row_f32(&mask, 0, 0, 0, 0, 4, -1e6, out);
    assert_true(out[0] == 0.25f && out[1] == -INFINITY && out[2] == -2);
    assert_true(out[3] == -3 + 0.0625f);
}

/* Only minus infinity forbids, or a sum that is that in the request's dtype. */
static void a_sum_that_overflows_the_dtype_forbids(void **state)
{
    float key_f32[10] = { -FLT_MAX, -FLT_MAX, FLT_MAX };
    float bias_f32[10] = { -FLT_MAX, 1, -FLT_MAX };
    double key_f64[10] = { -(double)FLT_MAX, -DBL_MAX };
    double bias_f64[10] = { -(double)FLT_MAX, -DBL_MAX };
    struct mask mask = open_mask;
    double sum[3];
    float out[3];

    (void)state;
    mask.key_bias = key_f32;
    mask.bias = tensor_packed(bias_f32, DTYPE_F32, 4,
                              (int64_t[]){ 1, 1, 1, 10 });
    mask_row_f64(&mask, DTYPE_F32, 0, 0, 0, 0, 3, sum);
    mask_row_f32(&mask, 0, 0, 0, 0, 3, 0, out);
    assert_true(sum[0] == -(double)INFINITY && out[0] == -INFINITY);
    assert_true(sum[1] == 1 - (double)FLT_MAX && out[1] == -FLT_MAX);
    assert_true(sum[2] == 0 && out[2] == 0);
    mask.key_bias = key_f64;
    mask.bias = tensor_packed(bias_f64, DTYPE_F64, 4,
                              (int64_t[]){ 1, 1, 1, 10 });
    mask_row_f64(&mask, DTYPE_F64, 0, 0, 0, 0, 2, sum);
    assert_true(sum[0] == -2 * (double)FLT_MAX);
    assert_true(sum[1] == -(double)INFINITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_masks_every_key_is_seen),
        cmocka_unit_test(a_causal_query_sees_itself_and_what_came_before),
        cmocka_unit_test(a_window_has_both_ends),
        cmocka_unit_test(windows_of_any_size_do_not_overflow),
        cmocka_unit_test(padding_at_either_end_is_outside_the_range),
        cmocka_unit_test(rows_add_up_what_is_added_and_forbid_what_is_forbidden),
        cmocka_unit_test(booleans_alone_add_nothing),
        cmocka_unit_test(flags_say_what_any_boolean_forbids),
        cmocka_unit_test(a_lone_additive_mask_is_read_where_it_is),
        cmocka_unit_test(a_shift_is_taken_off_the_sum_before_it_is_rounded),
        cmocka_unit_test(a_sum_that_overflows_the_dtype_forbids),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
