#include "core/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void every_block_is_aligned_and_its_own(void **state)
{
    struct arena arena;
    unsigned char *p[100];

    (void)state;
    arena_init(&arena, 1 << 20);
    for (size_t i = 0; i < 100; i++) {
        p[i] = arena_alloc(&arena, i * 13);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % ARENA_ALIGNMENT, 0);
        memset(p[i], (int)i, i * 13);
    }
    for (size_t i = 1; i < 100; i++)
        assert_int_equal(p[i][i * 13 - 1], i);
    arena_free(&arena);
    assert_int_equal(arena.held_bytes, 0);
}

static void passing_the_cap_fails_and_stays_failed_until_reset(void **state)
{
    struct arena arena;

    (void)state;
    arena_init(&arena, 100000);
    assert_non_null(arena_alloc(&arena, 50000));
    assert_null(arena_alloc(&arena, 60000));
    assert_null(arena_alloc(&arena, 1));
    assert_true(arena_failed(&arena));
    arena_reset(&arena, 0);
    assert_non_null(arena_alloc(&arena, 90000));
    arena_free(&arena);
}

static void an_array_whose_size_overflows_is_refused(void **state)
{
    struct arena arena;

    (void)state;
    arena_init(&arena, SIZE_MAX / 2);
    volatile size_t count = SIZE_MAX / 4; /* hidden from the compiler, which would refuse it too */

    assert_null(arena_array(&arena, count, 8));
    arena_free(&arena);
}

static void released_scratch_is_reused_without_new_memory(void **state)
{
    struct arena arena;

    (void)state;
    arena_init(&arena, 1 << 24);
    arena_alloc(&arena, 100);

    struct arena_mark mark = arena_mark(&arena);
    size_t used = arena.used_bytes;

    assert_non_null(arena_alloc(&arena, 1 << 20));
    arena_release(&arena, mark);
    assert_int_equal(arena.used_bytes, used);

    size_t held = arena.held_bytes;

    for (int i = 0; i < 10; i++) {
        assert_non_null(arena_alloc(&arena, 1 << 20));
        arena_release(&arena, mark);
    }
    assert_int_equal(arena.held_bytes, held);
    arena_free(&arena);
}

static void a_reset_keeps_no_more_than_it_was_told(void **state)
{
    struct arena arena;

    (void)state;
    arena_init(&arena, 1 << 24);
    for (int i = 0; i < 8; i++)
        arena_alloc(&arena, 1 << 20);
    arena_reset(&arena, 3 << 20);
    assert_true(arena.held_bytes <= 3 << 20);
    assert_true(arena.held_bytes >= 2 << 20);
    arena_free(&arena);
}

static void what_was_reserved_is_one_block(void **state)
{
    struct arena arena;
    unsigned char *a, *b;

    (void)state;
    arena_init(&arena, 1 << 20);
    assert_true(arena_reserve(&arena, 300000));
    size_t held = arena.held_bytes;
    a = arena_alloc(&arena, 100000);
    b = arena_alloc(&arena, 150000);
    assert_true(b > a && b - a < 101000);
    assert_int_equal(arena.held_bytes, held);
    assert_false(arena_reserve(&arena, 1 << 20));
    assert_true(arena_failed(&arena));
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_reserved_is_one_block),
        cmocka_unit_test(every_block_is_aligned_and_its_own),
        cmocka_unit_test(passing_the_cap_fails_and_stays_failed_until_reset),
        cmocka_unit_test(an_array_whose_size_overflows_is_refused),
        cmocka_unit_test(released_scratch_is_reused_without_new_memory),
        cmocka_unit_test(a_reset_keeps_no_more_than_it_was_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
