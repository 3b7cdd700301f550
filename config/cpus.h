#ifndef CONFIG_CPUS_H
#define CONFIG_CPUS_H

#include <stdint.h>

/* CPUs that this process may keep busy, at least 1: those it may be scheduled
 * on, or fewer if a control group's quota amounts to less. Asks anew at each
 * call, reading files: for the start, not for a request. */
int64_t cpus_allowed(void);

#endif
