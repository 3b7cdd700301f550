#include "tests/load/histogram.h"

#include <math.h>

static const int64_t parts = 1 << HISTOGRAM_PART_BITS;

/* Below 2 * parts a bucket is one nanosecond; above, the leading 8 bits name
 * the bucket within its power of two. */
static int bucket_of(int64_t ns)
{
    int shift = 0;

    if (ns >= 2 * parts)
        shift = 63 - __builtin_clzll((uint64_t)ns) - HISTOGRAM_PART_BITS;
    return (int)(shift * parts + (ns >> shift));
}

/* The largest duration of a bucket. */
static int64_t end_of(int bucket)
{
    int shift = bucket < 2 * parts ? 0 : (int)(bucket / parts) - 1;

    return ((bucket - shift * parts + 1) << shift) - 1;
}

void histogram_add(struct histogram *histogram, int64_t ns)
{
    const int64_t most = ((int64_t)1 << HISTOGRAM_VALUE_BITS) - 1;

    ns = ns < 0 ? 0 : ns > most ? most : ns;
    if (histogram->count == 0 || ns < histogram->min_ns)
        histogram->min_ns = ns;
    if (ns > histogram->max_ns)
        histogram->max_ns = ns;
    histogram->sum_ns += (double)ns;
    histogram->count++;
    histogram->bucket[bucket_of(ns)]++;
}

int64_t histogram_quantile(const struct histogram *histogram, double q)
{
    uint64_t wanted = (uint64_t)ceil(q * (double)histogram->count), seen = 0;

    if (wanted < 1)
        wanted = 1;
    for (int i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += histogram->bucket[i];
        if (seen >= wanted)
            return end_of(i) < histogram->max_ns ? end_of(i)
                                                 : histogram->max_ns;
    }
    return histogram->max_ns;
}

double histogram_mean_ns(const struct histogram *histogram)
{
    return histogram->count == 0
               ? 0
               : histogram->sum_ns / (double)histogram->count;
}
