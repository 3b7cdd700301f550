#ifndef TESTS_BENCH_BENCH_H
#define TESTS_BENCH_BENCH_H

#include "core/kernels/kernels.h"
#include "core/parallel.h"

#include <stdint.h>

/* What the bench programs share: contenders that take turns, so that what slows
 * the machine slows all of them, and the median of each one's rounds; threads
 * that wait spinning; the machine's peak; results as JSON.
 *
 * BENCH_SECONDS is the time for a row of a table (0.3 unless set), BENCH_JSON
 * the file that results go to as well. Not thread safe. */

enum { BENCH_CONTENDERS_MAX = 6 };

struct bench_contender {
    const char *name;           /* as JSON has it */
    bool (*run)(void *arg);     /* false ends the program */
    void *arg;
    bool many;                  /* threads: timed by the wall's clock, others
                                   by their own thread's */
    double seconds;             /* out: the median */
};

void bench_race(struct bench_contender *contender, int count);

/* All processors of this process, the caller's among them: bench_threads().
 * One of them alone: bench_alone(). Both live as long as the program. */
struct parallel *bench_alone(void);
struct parallel *bench_threads(void);
int bench_thread_count(void);

/* Of the work that threads have done since the last call, the busiest one's
 * share, in processor time, as the speed-up that it allows: the number of
 * threads when they were equally busy. Other programs' load is not in it. */
double bench_balance(void);

/* Multiply-adds of the level that the set is of, GFLOP/s on one thread. */
double bench_peak(const struct kernels *kernels);

/* Numbers of a bell about 0, of width 1, the same in every run. */
float *bench_numbers(int64_t count);
void *bench_memory(int64_t bytes); /* zeroed, on huge pages; ends the program
                                      without any; freed by nobody, or by: */
void bench_forget(void);           /* all of it; numbers begin anew */

/* One object of the file's array; keys in the order of the calls. */
void bench_json_begin(void);
void bench_json_text(const char *key, const char *value);
void bench_json_number(const char *key, double value);
void bench_json_end(void);

/* The sets that this processor has, in rising order; returns their number. */
enum { BENCH_LEVELS_MAX = 4 };
int bench_levels(struct kernels set[BENCH_LEVELS_MAX]);

#endif
