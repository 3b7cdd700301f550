#include "core/pages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Whether Linux was asked for huge pages where `p` is: by the flags of its
 * mapping in /proc/self/smaps, of which hg is that. */
static bool is_huge(const void *p)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[4096];
    bool here = false, huge = false;

    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long from, to;

        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            here = (uintptr_t)p >= from && (uintptr_t)p < to;
        else if (here && strncmp(line, "VmFlags:", 8) == 0)
            huge = strstr(line, " hg") != NULL;
    }
    fclose(maps);
    return huge;
}

static void what_is_mapped_anew_gets_huge_pages(void **state)
{
    char *large = malloc(PAGES_MAPPED_BYTES + 12345);
    char *small = malloc(PAGES_MAPPED_BYTES / 2);

    (void)state;
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) != 0)
        skip();
    assert_true(large != NULL && small != NULL);
    pages_mapped(large, PAGES_MAPPED_BYTES + 12345);
    pages_mapped(small, PAGES_MAPPED_BYTES / 2);
    assert_true(is_huge(large + PAGES_MAPPED_BYTES / 2));
    assert_false(is_huge(small + PAGES_MAPPED_BYTES / 4));
    free(large);
    free(small);
}

static void what_is_large_and_kept_gets_whole_huge_pages(void **state)
{
    static const size_t sizes[] = { 1, 64, 2097151, 2097152, 2097153, 9000001 };

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *p = pages_alloc(sizes[i]);

        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        memset(p, 1, sizes[i]);
        if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) == 0)
            assert_int_equal(is_huge(p), sizes[i] >= 2097152);
        free(p);
    }
}

static void nothing_beyond_it_is_touched_and_contents_stay(void **state)
{
    const size_t bytes = PAGES_MAPPED_BYTES + 4096;
    unsigned char *p = malloc(bytes);

    (void)state;
    assert_non_null(p);
    for (size_t i = 0; i < bytes; i += 1021)
        p[i] = (unsigned char)i;
    pages_mapped(p, bytes);
    for (size_t i = 0; i < bytes; i += 1021)
        assert_int_equal(p[i], (unsigned char)i);
    free(p);
    pages_mapped(NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_mapped_anew_gets_huge_pages),
        cmocka_unit_test(what_is_large_and_kept_gets_whole_huge_pages),
        cmocka_unit_test(nothing_beyond_it_is_touched_and_contents_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
