#include "server/model_counts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* One process has one table: these run in order. */

static bool says(const char *line)
{
    struct buffer out;
    bool found;

    buffer_init(&out, 1 << 20);
    model_counts_write(&out);
    buffer_append(&out, "", 1);
    found = strstr((char *)out.data, line) != NULL;
    buffer_free(&out);
    return found;
}

static void a_layer_keeps_its_row_and_counts_in_it(void **state)
{
    int row = model_counts_row("tiny-bert", 1);

    (void)state;
    assert_int_not_equal(model_counts_row("tiny-bert", 0), row);
    assert_int_not_equal(model_counts_row("mha", 1), row);
    assert_int_equal(model_counts_row("tiny-bert", 1), row);
    model_counts_add(row, 5, 1e3);
    model_counts_add(row, 7, 1e3);
    assert_true(says("# TYPE attnd_model_requests_total counter\n"));
    assert_true(says(
        "\nattnd_model_requests_total{model=\"tiny-bert\",layer=\"1\"} 2\n"));
    assert_true(
        says("\nattnd_model_rows_total{model=\"tiny-bert\",layer=\"1\"} 12\n"));
    assert_true(says(
        "\nattnd_model_flops_total{model=\"tiny-bert\",layer=\"1\"} 2000\n"));
    assert_true(
        says("\nattnd_model_rows_total{model=\"mha\",layer=\"1\"} 0\n"));
    assert_false(says("model=\"\""));
}

static void layers_without_room_count_together(void **state)
{
    char name[16];

    (void)state;
    for (int i = 0; i < 2 * MODEL_COUNTS_ROWS; i++) {
        snprintf(name, sizeof name, "m%d", i);
        model_counts_add(model_counts_row(name, 0), 1, 1);
    }
    assert_int_equal(model_counts_row("one-more", 0), 0);
    assert_int_not_equal(model_counts_row("m0", 0), 0);
    /* Three rows were taken above, so that as many found none. */
    assert_true(says("\nattnd_model_rows_total{model=\"\",layer=\"\"} 1027\n"));
    assert_int_equal(MODEL_COUNTS_ROWS + 3, 1027);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_keeps_its_row_and_counts_in_it),
        cmocka_unit_test(layers_without_room_count_together),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
