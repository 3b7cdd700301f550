#include "server/metrics.h"

#include "server/clock.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A third of a decade a step, from what a small request takes to what a
 * client's patience does. */
static const int64_t bounds_us[] = {
    10,    25,     50,     100,    250,     500,     1000,
    2500,  5000,   10000,  25000,  50000,   100000,  250000,
    500000, 1000000, 2500000, 5000000, 10000000, 30000000,
};

enum { BUCKETS = sizeof bounds_us / sizeof *bounds_us + 1 }; /* and the rest */

enum code_name {
#define CODE(code) CODE_##code,
#include "server/metrics.def"
    CODE_OTHER,
    CODES
};

static const int codes[CODES] = {
#define CODE(code) [CODE_##code] = code,
#include "server/metrics.def"
};

static const char *const reasons[REASONS] = {
#define REASON(name) [REASON_##name] = #name,
#include "server/metrics.def"
};

enum kind { COUNTER, COUNTER_NS, GAUGE, GAUGE_NS, HISTOGRAM };

enum labels { NONE, ROUTE_CODE, REASON_ONLY };

/* The cells of all metrics lie in one array, each metric's from its _AT. */
#define SERIES_NONE 1
#define SERIES_ROUTE_CODE ((int)ROUTES * (int)CODES)
#define SERIES_REASON ((int)REASONS)
#define CELLS_COUNTER 1
#define CELLS_COUNTER_NS 1
#define CELLS_GAUGE 1
#define CELLS_GAUGE_NS 1
#define CELLS_HISTOGRAM (BUCKETS + 1) /* and the sum */

enum {
#define METRIC(kind, name, labels, help)                                       \
    name##_AT, name##_LAST = name##_AT + SERIES_##labels * CELLS_##kind - 1,
#include "server/metrics.def"
    CELLS
};

static _Atomic int64_t cells[CELLS];

#define LABELS_NONE NONE
#define LABELS_ROUTE_CODE ROUTE_CODE
#define LABELS_REASON REASON_ONLY

static const struct row {
    const char *name, *help;
    enum kind kind;
    enum labels labels;
    int at;
} rows[METRICS] = {
#define METRIC(kind, name, labels, help)                                       \
    [METRIC_##name] = { "attnd_" #name, help, kind, LABELS_##labels, name##_AT },
#include "server/metrics.def"
};

static const char *built_version = "", *built_kernels = "";

static void add(int cell, int64_t n)
{
    atomic_fetch_add_explicit(&cells[cell], n, memory_order_relaxed);
}

static int64_t get(int cell)
{
    return atomic_load_explicit(&cells[cell], memory_order_relaxed);
}

void metrics_add(enum metric metric, int64_t n)
{
    add(rows[metric].at, n);
}

void metrics_set(enum metric metric, int64_t value)
{
    atomic_store_explicit(&cells[rows[metric].at], value,
                          memory_order_relaxed);
}

void metrics_count_request(enum route_name route, int status)
{
    int code = 0;

    while (code < CODE_OTHER && codes[code] != status)
        code++;
    add(requests_total_AT + (int)route * CODES + code, 1);
}

void metrics_count_rejected(enum metric_reason reason)
{
    add(rejected_total_AT + (int)reason, 1);
}

void metrics_observe(enum metric histogram, int64_t ns)
{
    int at = rows[histogram].at, bucket = 0;

    while (bucket < BUCKETS - 1 && ns > bounds_us[bucket] * 1000)
        bucket++;
    add(at + bucket, 1);
    add(at + BUCKETS, ns);
}

void metrics_describe(const char *version, const char *kernels)
{
    built_version = version;
    built_kernels = kernels;
}

static const char *kind_name(enum kind kind)
{
    return kind == HISTOGRAM                     ? "histogram"
           : kind == GAUGE || kind == GAUGE_NS ? "gauge"
                                                 : "counter";
}

static void write_head(struct buffer *out, const char *name, const char *type,
                       const char *help)
{
    buffer_format(out, "# HELP %s ", name);
    for (; *help != '\0'; help++) /* quotes stand for themselves here */
        buffer_format(out, *help == '\\' ? "\\\\" : "%c", *help);
    buffer_format(out, "\n# TYPE %s %s\n", name, type);
}

/* A label's value in quotes. */
static void write_label(struct buffer *out, const char *name, const char *value)
{
    buffer_format(out, "%s=\"", name);
    for (; *value != '\0'; value++) {
        if (*value == '\\' || *value == '"')
            buffer_append(out, "\\", 1);
        if (*value == '\n')
            buffer_string(out, "\\n");
        else
            buffer_append(out, value, 1);
    }
    buffer_append(out, "\"", 1);
}

static void write_value(struct buffer *out, enum kind kind, int64_t value)
{
    if (kind == COUNTER || kind == GAUGE)
        buffer_format(out, " %lld\n", (long long)value);
    else
        buffer_format(out, " %.9g\n", (double)value / 1e9);
}

static void write_histogram(struct buffer *out, const struct row *row)
{
    int64_t count = 0;

    for (int i = 0; i < BUCKETS; i++) {
        count += get(row->at + i);
        if (i < BUCKETS - 1)
            buffer_format(out, "%s_bucket{le=\"%g\"} %lld\n", row->name,
                          (double)bounds_us[i] / 1e6, (long long)count);
    }
    buffer_format(out, "%s_bucket{le=\"+Inf\"} %lld\n", row->name,
                  (long long)count);
    buffer_format(out, "%s_sum", row->name);
    write_value(out, HISTOGRAM, get(row->at + BUCKETS));
    buffer_format(out, "%s_count %lld\n", row->name, (long long)count);
}

/* Series that never counted are left out, but for attnd's main route. */
static void write_by_route(struct buffer *out, const struct row *row)
{
    for (int route = 0; route < ROUTES; route++)
        for (int code = 0; code < CODES; code++) {
            int64_t value = get(row->at + route * CODES + code);
            char text[16];

            if (value == 0 && !(route == ROUTE_ATTENTION && code == CODE_200))
                continue;
            snprintf(text, sizeof text, "%d", codes[code]);
            buffer_format(out, "%s{", row->name);
            write_label(out, "route",
                        route == ROUTE_OTHER ? "other" : routes[route].path);
            buffer_append(out, ",", 1);
            write_label(out, "code", text);
            buffer_append(out, "}", 1);
            write_value(out, row->kind, value);
        }
}

static void write_by_reason(struct buffer *out, const struct row *row)
{
    for (int i = 0; i < REASONS; i++) {
        buffer_format(out, "%s{", row->name);
        write_label(out, "reason", reasons[i]);
        buffer_append(out, "}", 1);
        write_value(out, row->kind, get(row->at + i));
    }
}

static void write_row(struct buffer *out, const struct row *row)
{
    write_head(out, row->name, kind_name(row->kind), row->help);
    if (row->kind == HISTOGRAM)
        write_histogram(out, row);
    else if (row->labels == ROUTE_CODE)
        write_by_route(out, row);
    else if (row->labels == REASON_ONLY)
        write_by_reason(out, row);
    else {
        buffer_string(out, row->name);
        write_value(out, row->kind, get(row->at));
    }
}

static int64_t open_files(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int64_t count = -3; /* "." and "..", and the directory itself */

    if (directory == NULL)
        return 0;
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

static int64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    long long pages = 0;

    if (file == NULL)
        return 0;
    if (fscanf(file, "%*d %lld", &pages) != 1)
        pages = 0;
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

/* Seconds since 1970: the field of /proc/self/stat counts ticks since the
 * machine's start. */
static double start_time(void)
{
    char text[1024], *field;
    FILE *file = fopen("/proc/self/stat", "re");
    long long ticks = 0;
    struct timespec now, up;

    if (file == NULL)
        return 0;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    field = strrchr(text, ')'); /* the name may have spaces */
    if (field == NULL ||
        sscanf(field + 1,
               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
               "%*d %*d %*d %*d %lld",
               &ticks) != 1)
        return 0;
    clock_gettime(CLOCK_REALTIME, &now);
    clock_gettime(CLOCK_BOOTTIME, &up);
    return (double)(now.tv_sec - up.tv_sec) +
           (double)(now.tv_nsec - up.tv_nsec) / 1e9 +
           (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

/* The names that every Prometheus client library uses. */
static void write_process(struct buffer *out)
{
    const struct {
        const char *name, *type, *help;
        double value;
    } own[] = {
        { "process_cpu_seconds_total", "counter",
          "CPU time of all threads.", (double)clock_cpu_ns() / 1e9 },
        { "process_resident_memory_bytes", "gauge", "Memory in use.",
          (double)resident_bytes() },
        { "process_open_fds", "gauge", "Open files and sockets.",
          (double)open_files() },
        { "process_start_time_seconds", "gauge", "Start, since 1970.",
          start_time() },
    };

    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        write_head(out, own[i].name, own[i].type, own[i].help);
        buffer_format(out, "%s %.15g\n", own[i].name, own[i].value);
    }
}

void metrics_write(struct buffer *out)
{
    for (int i = 0; i < METRICS; i++)
        write_row(out, &rows[i]);
    write_head(out, "attnd_build_info", "gauge",
               "1; which attnd this is, and the kernels it runs.");
    buffer_string(out, "attnd_build_info{");
    write_label(out, "version", built_version);
    buffer_append(out, ",", 1);
    write_label(out, "kernels", built_kernels);
    buffer_string(out, "} 1\n");
    write_process(out);
}
