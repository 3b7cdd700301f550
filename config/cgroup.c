#include "config/cgroup.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

/* Where systemd, Docker and Kubernetes mount them. In a container the group's
 * own path may not exist under the mount, whose top is then the group itself:
 * the walk ends there. */
static const struct hierarchy {
    const char *controller; /* as /proc/self/cgroup has it; "": version 2 */
    const char *mount;
} hierarchies[] = {
    { "", "/sys/fs/cgroup" },
    { "", "/sys/fs/cgroup/unified" },
    { "cpu", "/sys/fs/cgroup/cpu" },
    { "cpu", "/sys/fs/cgroup/cpu,cpuacct" },
    { "memory", "/sys/fs/cgroup/memory" },
};

enum { HIERARCHIES = sizeof hierarchies / sizeof *hierarchies };

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- texts ---- */

/* A positive number and what follows it, or 0. */
static int64_t parse_positive(const char *text, const char **end)
{
    char *stop;
    int64_t value;

    errno = 0;
    value = strtoll(text, &stop, 10);
    *end = stop;
    if (errno != 0 || (*stop != '\0' && !isspace((unsigned char)*stop)))
        return 0;
    return value > 0 ? value : 0;
}

static int64_t whole_cpus(int64_t quota_us, int64_t period_us)
{
    if (quota_us == 0 || period_us == 0)
        return CGROUP_UNLIMITED;
    return quota_us / period_us + (quota_us % period_us != 0);
}

int64_t cgroup_parse_cpu_max(const char *text)
{
    const char *rest;
    int64_t quota_us = parse_positive(text, &rest);
    int64_t period_us = parse_positive(rest, &rest);

    return whole_cpus(quota_us, period_us);
}

int64_t cgroup_parse_quota(const char *quota_us, const char *period_us)
{
    const char *rest;

    return whole_cpus(parse_positive(quota_us, &rest),
                      parse_positive(period_us, &rest));
}

int64_t cgroup_parse_bytes(const char *text)
{
    const char *rest;
    int64_t bytes = parse_positive(text, &rest);

    return bytes == 0 ? CGROUP_UNLIMITED : bytes;
}

/* Whether `controller` is one of "cpu,cpuacct:", up to the colon. */
static bool lists(const char *names, const char *controller)
{
    for (;;) {
        size_t len = strcspn(names, ",:");

        if (len == strlen(controller) && strncmp(names, controller, len) == 0)
            return true;
        if (names[len] != ',')
            return false;
        names += len + 1;
    }
}

/* A line is "4:cpu,cpuacct:/group", and "0::/group" in version 2. */
bool cgroup_parse_path(const char *text, const char *controller, char *out,
                       size_t size)
{
    for (; *text != '\0'; text += strcspn(text, "\n"), text += *text == '\n') {
        const char *names = strpbrk(text, ":\n");

        if (names == NULL || *names != ':')
            continue;

        const char *path = strpbrk(++names, ":\n");

        if (path == NULL || *path != ':' || !lists(names, controller))
            continue;

        size_t len = strcspn(++path, "\n");

        if (len >= size || *path != '/')
            return false;
        memcpy(out, path, len);
        out[len] = '\0';
        return true;
    }
    return false;
}

/* ---- files ---- */

/* The start of a file as text; "" if it can't be read. Returns out. */
static const char *read_text(const char *directory, const char *name, char *out,
                             size_t size)
{
    char path[PATH_BYTES + 64];
    size_t len = 0;

    snprintf(path, sizeof path, "%s/%s", directory, name);

    FILE *file = fopen(path, "re");

    if (file != NULL) {
        len = fread(out, 1, size - 1, file);
        fclose(file);
    }
    out[len] = '\0';
    return out;
}

static int64_t cpus_of(const char *group)
{
    char max[64], quota_us[64], period_us[64];

    read_text(group, "cpu.max", max, sizeof max);
    read_text(group, "cpu.cfs_quota_us", quota_us, sizeof quota_us);
    read_text(group, "cpu.cfs_period_us", period_us, sizeof period_us);
    return least(cgroup_parse_cpu_max(max),
                 cgroup_parse_quota(quota_us, period_us));
}

/* Above memory.high the kernel slows a group down until it is back below. */
static int64_t memory_bytes_of(const char *group)
{
    static const char *const files[] = { "memory.max", "memory.high",
                                         "memory.limit_in_bytes" };
    int64_t bytes = CGROUP_UNLIMITED;
    char text[64];

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        read_text(group, files[i], text, sizeof text);
        bytes = least(bytes, cgroup_parse_bytes(text));
    }
    return bytes;
}

/* The least that the group at `path` under `top` and those above it allow. */
static int64_t walk(const char *top, const char *path,
                    int64_t (*limit_of)(const char *group))
{
    char group[PATH_BYTES];
    size_t len = strlen(top);
    int64_t limit = CGROUP_UNLIMITED;

    if (snprintf(group, sizeof group, "%s%s", top, path) >= PATH_BYTES)
        return limit;
    for (;;) {
        limit = least(limit, limit_of(group));

        char *slash = strrchr(group + len, '/');

        if (slash == NULL)
            return limit;
        *slash = '\0';
    }
}

static int64_t least_of_all(const char *root,
                            int64_t (*limit_of)(const char *group))
{
    char text[2 * PATH_BYTES], top[PATH_BYTES], path[PATH_BYTES];
    int64_t limit = CGROUP_UNLIMITED;

    snprintf(top, sizeof top, "%s/proc/self", root);
    read_text(top, "cgroup", text, sizeof text);
    for (size_t i = 0; i < HIERARCHIES; i++) {
        if (!cgroup_parse_path(text, hierarchies[i].controller, path,
                               sizeof path))
            path[0] = '\0';
        snprintf(top, sizeof top, "%s%s", root, hierarchies[i].mount);
        limit = least(limit, walk(top, path, limit_of));
    }
    return limit;
}

int64_t cgroup_cpus(const char *root)
{
    return least_of_all(root, cpus_of);
}

int64_t cgroup_memory_bytes(const char *root)
{
    return least_of_all(root, memory_bytes_of);
}
