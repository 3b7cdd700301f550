#include "server/slice.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void a_thread_leaves_a_cpu_and_may_still_be_anywhere(void **state)
{
    cpu_set_t before, after;
    bool left = false;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    if (CPU_COUNT(&before) < 2)
        skip();
    for (int i = 0; i < 100 && !left; i++) { /* it might have come back */
        int cpu = sched_getcpu();

        slice_leave(cpu);
        left = sched_getcpu() != cpu;
    }
    assert_true(left);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
}

static void a_thread_that_is_elsewhere_or_has_nowhere_to_go_stays(void **state)
{
    cpu_set_t all, one, after;
    int cpu = sched_getcpu();

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    slice_leave(cpu + 1);
    slice_leave(cpu);
    slice_leave(-1);
    assert_int_equal(sched_getcpu(), cpu);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&one, &after));
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_leaves_a_cpu_and_may_still_be_anywhere),
        cmocka_unit_test(a_thread_that_is_elsewhere_or_has_nowhere_to_go_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
