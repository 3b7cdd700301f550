#ifndef TESTS_LOAD_REPORT_H
#define TESTS_LOAD_REPORT_H

#include "tests/load/options.h"
#include "tests/load/run.h"

#include <stdbool.h>
#include <stdio.h>

/* What runs came to, for people and for programs. */

void report_head(const struct options *options, FILE *out);

/* The lines of one run, one for each status it got. */
void report_run(const struct result *result, FILE *out);

/* All runs as one JSON object; times in microseconds. False when the file
 * can't be written. */
bool report_json(const struct options *options, struct result *const *result,
                 int results, FILE *out);

/* Prints what overload cost, and whether that is what it may cost: beside the
 * best goodput of all runs and the 100% run, every run that was asked for more
 * keeps 95 % of the goodput, twice the p99 of 200s, refuses within 10 ms
 * (p99), and has neither failures nor a 5xx but 503. */
bool report_judge(const struct options *options, struct result *const *result,
                  int results, FILE *out);

#endif
