#ifndef TESTS_KERNELS_GUARDED_H
#define TESTS_KERNELS_GUARDED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* Buffers each of which ends where a page that may not be touched begins, so
 * one element too many is a crash, and starts wherever that puts it, mostly
 * unaligned; and numbers to fill them with. For the programs of this folder. */

enum { BUFFERS = 8 };

struct guarded {
    unsigned char *pages;
    size_t bytes; /* without the guard page */
};

static struct guarded buffers[BUFFERS];

static void *ending_at_guard(int which, size_t bytes)
{
    struct guarded *b = &buffers[which];

    if (b->pages == NULL) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);

        b->bytes = 256 * page;
        b->pages = mmap(NULL, b->bytes + page, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(b->pages, MAP_FAILED);
        assert_int_equal(mprotect(b->pages + b->bytes, page, PROT_NONE), 0);
    }
    assert_true(bytes <= b->bytes);
    return b->pages + b->bytes - bytes;
}

static uint64_t random_state;

static double random_number(void) /* in (-2, 2) */
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)random_state * 0x1p-62;
}

static float *random_floats(int which, int64_t n)
{
    float *p = ending_at_guard(which, (size_t)n * sizeof *p);

    for (int64_t i = 0; i < n; i++)
        p[i] = (float)random_number();
    return p;
}

#endif
