#ifndef CONFIG_CGROUP_H
#define CONFIG_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the kernel's control groups, version 1 or 2, allow this process: the
 * least of its own group and the groups above it. Reads files and changes none;
 * what can't be read or makes no sense is no limit. */

#define CGROUP_UNLIMITED INT64_MAX

/* CPUs, a quota of one and a half being 2; bytes. `root` stands before every
 * path that is read: "" for the machine, a directory of its own for a test. */
int64_t cgroup_cpus(const char *root);
int64_t cgroup_memory_bytes(const char *root);

/* The text of cpu.max ("150000 100000", "max 100000"): CPUs, rounded up. */
int64_t cgroup_parse_cpu_max(const char *text);

/* The same of version 1: cpu.cfs_quota_us (-1: none) and cpu.cfs_period_us. */
int64_t cgroup_parse_quota(const char *quota_us, const char *period_us);

/* memory.max, memory.high and memory.limit_in_bytes: a number, "max" or -1. */
int64_t cgroup_parse_bytes(const char *text);

/* Finds this process's group in the text of /proc/self/cgroup: that of a
 * version 1 controller, or of version 2 for "". False if there is none or it
 * does not fit. */
bool cgroup_parse_path(const char *text, const char *controller, char *out,
                       size_t size);

#endif
