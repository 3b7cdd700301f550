#ifndef TESTS_LOAD_HISTOGRAM_H
#define TESTS_LOAD_HISTOGRAM_H

#include <stdint.h>

/* Durations counted in log-linear buckets, as HdrHistogram does: every power of
 * two is cut into 128 parts, so that a quantile is right to within 0.8 % from a
 * nanosecond to an hour and adding is a shift and an increment. The extremes
 * are exact. One thread. All zeros is an empty one. */
enum {
    HISTOGRAM_PART_BITS = 7,
    HISTOGRAM_VALUE_BITS = 43, /* 2^43 ns is 2.4 hours; more counts as that */
    HISTOGRAM_BUCKETS =
        (HISTOGRAM_VALUE_BITS - HISTOGRAM_PART_BITS + 1) << HISTOGRAM_PART_BITS
};

struct histogram {
    uint64_t count;
    int64_t min_ns, max_ns;
    double sum_ns;
    uint64_t bucket[HISTOGRAM_BUCKETS];
};

/* Less than 0 counts as 0. */
void histogram_add(struct histogram *histogram, int64_t ns);

/* The smallest duration that at least the share `q` (0 to 1) of all does not
 * exceed, rounded up to the end of its bucket; 0 when nothing was added. */
int64_t histogram_quantile(const struct histogram *histogram, double q);

double histogram_mean_ns(const struct histogram *histogram);

#endif
