#include "core/pages.h"

#include <stdint.h>
#include <sys/mman.h>

enum { HUGE_BYTES = 2 * 1024 * 1024 };

/* A request of 134 MB takes 40 ms with them and 130 without. */
void pages_mapped(void *p, size_t bytes)
{
    size_t skipped = -(uintptr_t)p % HUGE_BYTES;

    if (bytes >= PAGES_MAPPED_BYTES)
        madvise((char *)p + skipped,
                (bytes - skipped) / HUGE_BYTES * HUGE_BYTES, MADV_HUGEPAGE);
}
