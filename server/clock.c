#include "server/clock.h"

#include <time.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * CLOCK_NS_PER_S + t.tv_nsec;
}

int64_t clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t clock_about_ms(void)
{
    return read_clock(CLOCK_MONOTONIC_COARSE) / CLOCK_NS_PER_MS;
}

int64_t clock_cpu_ns(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

void clock_sleep_ns(int64_t ns)
{
    struct timespec t = { .tv_sec = ns / CLOCK_NS_PER_S,
                          .tv_nsec = ns % CLOCK_NS_PER_S };

    nanosleep(&t, NULL);
}
