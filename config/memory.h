#ifndef CONFIG_MEMORY_H
#define CONFIG_MEMORY_H

#include <stdint.h>

/* Bytes of memory that this process may fill before the kernel stops it: the
 * machine's, or less if a control group says so. What others use already is not
 * taken off. For the start, not for a request. */
int64_t memory_allowed(void);

#endif
