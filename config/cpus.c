#include "config/cpus.h"

#include "config/cgroup.h"

#include <sched.h>
#include <unistd.h>

/* The call refuses a mask with fewer bits than the kernel was built for, which
 * is at most 8192 (CONFIG_NR_CPUS); cpu_set_t alone has 1024. */
static int64_t schedulable(void)
{
    cpu_set_t set[8192 / CPU_SETSIZE];

    if (sched_getaffinity(0, sizeof set, set) == 0)
        return CPU_COUNT_S(sizeof set, set);
    return sysconf(_SC_NPROCESSORS_ONLN);
}

int64_t cpus_allowed(void)
{
    int64_t cpus = schedulable();
    int64_t quota = cgroup_cpus("");

    if (cpus > quota)
        cpus = quota;
    return cpus < 1 ? 1 : cpus;
}
