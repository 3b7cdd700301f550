#include "tests/load/watch.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A file of /proc/PID; NULL when the process is gone. */
static FILE *open_proc(pid_t pid, const char *name, const char *mode)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    return fopen(path, mode);
}

static int64_t resident_bytes(pid_t pid)
{
    long long pages = -1;
    FILE *file = open_proc(pid, "statm", "r");

    if (file == NULL)
        return -1;
    if (fscanf(file, "%*d %lld", &pages) != 1)
        pages = -1;
    fclose(file);
    return pages < 0 ? -1 : pages * sysconf(_SC_PAGESIZE);
}

static int open_files(pid_t pid)
{
    char path[64];
    int count = 0;
    DIR *dir;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    if (dir == NULL)
        return -1;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

bool watch_look(pid_t pid, struct watch_sample *sample)
{
    sample->resident_bytes = resident_bytes(pid);
    sample->files = open_files(pid);
    return sample->resident_bytes >= 0 && sample->files >= 0;
}

static bool forget_peak(pid_t pid)
{
    FILE *file = open_proc(pid, "clear_refs", "w");

    if (file == NULL)
        return false;
    fputs("5", file);
    return fclose(file) == 0;
}

int64_t watch_take_peak(pid_t pid)
{
    char line[128];
    long long kib = -1;
    FILE *file = open_proc(pid, "status", "r");

    if (file == NULL)
        return -1;
    while (kib < 0 && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "VmHWM: %lld", &kib) != 1)
            kib = -1;
    fclose(file);
    return kib < 0 || !forget_peak(pid) ? -1 : kib * 1024;
}

int64_t watch_cpu_ms(pid_t pid)
{
    char text[1024] = "";
    unsigned long user = 0, system = 0;
    const char *end;
    FILE *file = open_proc(pid, "stat", "r");

    if (file == NULL)
        return -1;
    end = fgets(text, sizeof text, file) == NULL ? NULL : strrchr(text, ')');
    fclose(file);
    if (end == NULL || sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u "
                                       "%*u %*u %lu %lu", &user, &system) != 2)
        return -1;
    return (int64_t)(user + system) * 1000 / sysconf(_SC_CLK_TCK);
}

static void thin(struct watch *watch)
{
    watch->count /= 2;
    for (int i = 0; i < watch->count; i++)
        watch->sample[i] = watch->sample[2 * i];
    watch->skip = 2 * watch->skip + 1;
    watch->skipped = 0;
}

void watch_add(struct watch *watch, double at_s)
{
    struct watch_sample sample = { .at_s = at_s };

    if (!watch_look(watch->pid, &sample))
        return;
    if (sample.resident_bytes > watch->most_bytes)
        watch->most_bytes = sample.resident_bytes;
    if (sample.files > watch->most_files)
        watch->most_files = sample.files;
    if (watch->count > 0 && watch->skipped++ < watch->skip)
        return;
    watch->skipped = 0;
    if (watch->count == WATCH_SAMPLES)
        thin(watch);
    watch->sample[watch->count++] = sample;
}

double watch_slope(const struct watch *watch, double from_s)
{
    double n = 0, t = 0, y = 0, tt = 0, ty = 0;

    for (int i = 0; i < watch->count; i++) {
        double at = watch->sample[i].at_s - from_s;
        double bytes = (double)watch->sample[i].resident_bytes;

        if (at < 0)
            continue;
        n++, t += at, y += bytes, tt += at * at, ty += at * bytes;
    }
    if (n < 3 || n * tt - t * t <= 0)
        return 0;
    return (n * ty - t * y) / (n * tt - t * t) * 3600;
}

bool watch_grows(const struct watch *watch, double from_s,
                 double bytes_an_hour)
{
    int first = 0, last = watch->count - 1;

    while (first < last && watch->sample[first].at_s < from_s)
        first++;
    return last >= 0 &&
           (watch_slope(watch, from_s) > bytes_an_hour ||
            watch->sample[last].files > watch->sample[first].files);
}
