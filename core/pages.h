#ifndef CORE_PAGES_H
#define CORE_PAGES_H

#include <stddef.h>

/* From so many bytes on, memory is mapped anew each time it is asked for, and
 * given back when it is freed, so all of its pages are fresh: the daemon tells
 * malloc so. */
enum { PAGES_MAPPED_BYTES = 32 * 1024 * 1024 };

/* `bytes` at `p`, just taken from malloc or its kin, are about to be filled:
 * where they were mapped, Linux is asked for huge pages, 2 MiB for each fault
 * instead of 4 KiB. Contents stay; where there are none, nothing happens. */
void pages_mapped(void *p, size_t bytes);

#endif
