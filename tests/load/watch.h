#ifndef TESTS_LOAD_WATCH_H
#define TESTS_LOAD_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A process seen from outside: what /proc tells of its memory and files. */
struct watch_sample {
    double at_s;
    int64_t resident_bytes;
    int files; /* open */
};

/* Samples over time, thinned to every other one when the array is full. All
 * zeros but the pid is a watch that has seen nothing. */
enum { WATCH_SAMPLES = 4096 };

struct watch {
    pid_t pid;
    int count;
    int skip, skipped; /* of `skip + 1` looks one is kept */
    struct watch_sample sample[WATCH_SAMPLES];
    int64_t most_bytes;
    int most_files;
};

/* False when the process is gone or not ours to see. */
bool watch_look(pid_t pid, struct watch_sample *sample);

/* The most resident memory since the last call, or its start; -1 likewise. */
int64_t watch_take_peak(pid_t pid);

/* CPU time it has used, user and system; -1 likewise. */
int64_t watch_cpu_ms(pid_t pid);

void watch_add(struct watch *watch, double at_s);

/* Bytes an hour: the least-squares line through the samples after `from_s`. 0
 * when there are fewer than three. */
double watch_slope(const struct watch *watch, double from_s);

/* Whether memory grows by more than that, or the last sample has more files
 * than the first after `from_s`. */
bool watch_grows(const struct watch *watch, double from_s,
                 double bytes_an_hour);

#endif
