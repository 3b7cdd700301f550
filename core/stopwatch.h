#ifndef CORE_STOPWATCH_H
#define CORE_STOPWATCH_H

#include <stdint.h>

/* How long steps take, for a profile. Nothing is decided by it: deadlines are
 * the server's. */

/* Nanoseconds since some moment, never fewer than before. Any thread. */
int64_t stopwatch_ns(void);

#endif
