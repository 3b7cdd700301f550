#include "config/memory.h"

#include "config/cgroup.h"

#include <unistd.h>

int64_t memory_allowed(void)
{
    int64_t machine = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    int64_t group = cgroup_memory_bytes("");

    return machine < group ? machine : group;
}
