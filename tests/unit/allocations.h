#ifndef TESTS_UNIT_ALLOCATIONS_H
#define TESTS_UNIT_ALLOCATIONS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

/* Counts every allocation of the program that includes this; the one that
 * fails_at counts to fails, and those behind it. 0: none does. */
static int allocations, fails_at;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    defined(VALGRIND)
enum { COUNTS_ALLOCATIONS = 0 }; /* the sanitizer's own allocator */
#else
enum { COUNTS_ALLOCATIONS = 1 };

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static bool may_allocate(void)
{
    allocations++;
    if (fails_at == 0 || allocations < fails_at)
        return true;
    errno = ENOMEM;
    return false;
}

void *malloc(size_t bytes)
{
    return may_allocate() ? __libc_malloc(bytes) : NULL;
}

void *calloc(size_t count, size_t bytes)
{
    return may_allocate() ? __libc_calloc(count, bytes) : NULL;
}

void *realloc(void *old, size_t bytes)
{
    return may_allocate() ? __libc_realloc(old, bytes) : NULL;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return may_allocate() ? __libc_memalign(alignment, bytes) : NULL;
}
#endif

#endif
