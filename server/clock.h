#ifndef SERVER_CLOCK_H
#define SERVER_CLOCK_H

#include <stdint.h>

/* Time that only moves forward: every duration, deadline and timeout in the
 * service. The wall clock, which may jump, is for log lines alone. */

#define CLOCK_NS_PER_MS 1000000
#define CLOCK_NS_PER_S 1000000000

int64_t clock_ns(void);

/* The same as of the kernel's last tick, 1 to 10 ms apart: 4 ns instead of 21. */
int64_t clock_about_ms(void);

/* CPU time of this process. */
int64_t clock_cpu_ns(void);

/* Sleeps, unless a signal handler runs. */
void clock_sleep_ns(int64_t ns);

#endif
