#include "core/topk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void the_largest_come_first_and_ties_by_index(void **state)
{
    const float row[] = { 0.5f, 2, 0.5f, 3, 2, 0.5f };
    const int64_t want[] = { 3, 1, 4, 0, 2, 5 };
    int64_t indices[6];
    float values[6], kept;

    (void)state;
    for (int64_t k = 1; k <= 6; k++) {
        topk_row(row, DTYPE_F32, 6, k, indices, values, &kept);
        for (int64_t i = 0; i < k; i++) {
            assert_int_equal(indices[i], want[i]);
            assert_true(values[i] == row[want[i]]);
        }
    }
    assert_true(kept == 8.5f);
}

static void a_row_of_one_value_keeps_the_lowest_indices_in_order(void **state)
{
    float row[50], values[20], kept;
    int64_t indices[20];

    (void)state;
    for (int i = 0; i < 50; i++)
        row[i] = 0.02f;
    topk_row(row, DTYPE_F32, 50, 20, indices, values, &kept);
    for (int i = 0; i < 20; i++)
        assert_int_equal(indices[i], i);
}

static void kept_is_added_in_double_and_rounded_once(void **state)
{
    float row[1000], values[1000], kept;
    int64_t indices[1000];
    double sum = 0;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        row[i] = 1.0f / (float)(i + 3);
        sum += (double)row[i];
    }
    topk_row(row, DTYPE_F32, 1000, 1000, indices, values, &kept);
    assert_true(kept == (float)sum);
}

static const double *sorted_row;

static int by_value_then_index(const void *a, const void *b)
{
    int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;

    if (sorted_row[i] != sorted_row[j])
        return sorted_row[i] > sorted_row[j] ? -1 : 1;
    return i < j ? -1 : 1;
}

static void doubles_with_many_ties_agree_with_a_full_sort(void **state)
{
    double row[97], values[97], kept;
    int64_t indices[97], all[97];

    (void)state;
    srand(7);
    for (int round = 0; round < 200; round++) {
        int64_t n = 1 + rand() % 97, k = 1 + rand() % n;

        for (int64_t i = 0; i < n; i++) {
            row[i] = rand() % 9 * 0.1;
            all[i] = i;
        }
        sorted_row = row;
        qsort(all, (size_t)n, sizeof *all, by_value_then_index);
        topk_row(row, DTYPE_F64, n, k, indices, values, &kept);
        assert_memory_equal(indices, all, (size_t)k * sizeof *all);
        for (int64_t i = 0; i < k; i++)
            assert_true(values[i] == row[all[i]]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_come_first_and_ties_by_index),
        cmocka_unit_test(a_row_of_one_value_keeps_the_lowest_indices_in_order),
        cmocka_unit_test(kept_is_added_in_double_and_rounded_once),
        cmocka_unit_test(doubles_with_many_ties_agree_with_a_full_sort),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
