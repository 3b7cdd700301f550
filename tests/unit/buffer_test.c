#include "core/buffer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void what_is_appended_is_there_in_order(void **state)
{
    struct buffer b;
    char want[8192];
    size_t len = 0;

    (void)state;
    buffer_init(&b, 1 << 20);
    for (int i = 0; i < 500; i++) {
        buffer_format(&b, "%d,", i);
        len += (size_t)snprintf(want + len, sizeof want - len, "%d,", i);
    }
    buffer_string(&b, "end");
    buffer_append(&b, "\0x", 2);
    assert_false(b.failed);
    assert_int_equal(b.len, len + 5);
    assert_memory_equal(b.data, want, len);
    assert_memory_equal(b.data + len, "end\0x", 5);
    buffer_free(&b);
}

static void passing_the_cap_fails_says_so_and_stays(void **state)
{
    struct buffer b;
    size_t len;

    (void)state;
    buffer_init(&b, 10);
    buffer_string(&b, "0123456789");
    assert_false(b.failed);
    buffer_string(&b, "a");
    assert_true(b.failed && b.over_cap);
    buffer_string(&b, "b");
    assert_null(buffer_room(&b, 1));
    assert_null(buffer_take(&b, &len));
    buffer_free(&b);
}

static void room_beyond_all_memory_is_refused_and_is_not_the_cap(void **state)
{
    struct buffer b;

    (void)state;
    buffer_init(&b, SIZE_MAX);
    buffer_string(&b, "x");
    assert_null(buffer_room(&b, SIZE_MAX / 2));
    assert_true(b.failed);
    assert_false(b.over_cap);
    buffer_free(&b);
}

static void room_counts_only_when_it_was_added(void **state)
{
    struct buffer b;
    char *room;

    (void)state;
    buffer_init(&b, 1 << 20);
    room = buffer_room(&b, 5000);
    assert_non_null(room);
    memset(room, 'y', 5000);
    assert_int_equal(b.len, 0);
    buffer_added(&b, 3);
    buffer_string(&b, "z");
    assert_memory_equal(b.data, "yyyz", 4);
    assert_int_equal(b.len, 4);
    buffer_free(&b);
}

static void memory_that_did_not_grow_is_aligned(void **state)
{
    (void)state;
    for (size_t bytes = 1; bytes < 100000; bytes = 3 * bytes + 1) {
        struct buffer b;

        buffer_init(&b, SIZE_MAX);
        assert_int_equal((uintptr_t)buffer_room(&b, bytes) % BUFFER_ALIGNMENT,
                         0);
        buffer_free(&b);
    }
}

static void what_is_trimmed_keeps_its_bytes_and_may_grow_again(void **state)
{
    struct buffer b;

    (void)state;
    buffer_init(&b, SIZE_MAX);
    buffer_trim(&b);
    assert_non_null(buffer_room(&b, 1 << 20));
    buffer_string(&b, "0123");
    buffer_trim(&b);
    assert_int_equal(b.size, 4);
    buffer_string(&b, "45");
    assert_false(b.failed);
    assert_memory_equal(b.data, "012345", 6);
    buffer_free(&b);
}

static void what_was_taken_is_the_callers_and_the_buffer_is_empty(void **state)
{
    struct buffer b;
    size_t len;

    (void)state;
    buffer_init(&b, 100);
    buffer_string(&b, "mine");

    char *data = buffer_take(&b, &len);

    assert_int_equal(len, 4);
    assert_memory_equal(data, "mine", 4);
    assert_int_equal(b.len, 0);
    buffer_string(&b, "next");
    assert_memory_equal(data, "mine", 4);
    free(data);
    buffer_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_appended_is_there_in_order),
        cmocka_unit_test(passing_the_cap_fails_says_so_and_stays),
        cmocka_unit_test(room_beyond_all_memory_is_refused_and_is_not_the_cap),
        cmocka_unit_test(room_counts_only_when_it_was_added),
        cmocka_unit_test(memory_that_did_not_grow_is_aligned),
        cmocka_unit_test(what_is_trimmed_keeps_its_bytes_and_may_grow_again),
        cmocka_unit_test(what_was_taken_is_the_callers_and_the_buffer_is_empty),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
