#ifndef CORE_PAGES_H
#define CORE_PAGES_H

#include <stddef.h>

/* From so many bytes on, memory is mapped anew each time it is asked for, and
 * given back when it is freed, so all of its pages are fresh: the daemon tells
 * malloc so. */
enum { PAGES_MAPPED_BYTES = 32 * 1024 * 1024 };

/* From malloc's family, for free(). Of 2 MiB and more, what makes whole huge
 * pages is asked to be some: for what is read over and over, so that addresses
 * need no looking up. A layer of L 128, E 768 takes 3 % less time, of L 1 8 %.
 * Aligned to 64 bytes; NULL: no memory. */
void *pages_alloc(size_t bytes);

/* `bytes` at `p`, just taken from malloc or its kin, are about to be filled:
 * where they were mapped, Linux is asked for huge pages, 2 MiB for each fault
 * instead of 4 KiB. Contents stay; where there are none, nothing happens. */
void pages_mapped(void *p, size_t bytes);

#endif
