#include "tests/load/options.h"
#include "tests/load/report.h"
#include "tests/load/run.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Load for a daemon on this machine: runs, one after another, and a report. */

enum { LEAST_SLOPE_S = 600 };

static void raise_file_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static double resolve(const struct rate *rate, double closed)
{
    return rate->kind == RATE_FIXED       ? rate->value
           : rate->kind == RATE_OF_CLOSED ? rate->value * closed
                                          : 0;
}

static int connections_of(const struct options *options,
                          const struct rate *rate)
{
    return rate->kind == RATE_CLOSED && rate->value > 0
               ? (int)rate->value
               : options->connections;
}

/* Of a short run the slope is chance, and only files are looked at. */
static bool is_flat(const struct options *options, const struct result *result)
{
    double most = result->counted_s < LEAST_SLOPE_S
                      ? INFINITY
                      : options->flat_mib * (1 << 20);

    return options->flat_mib <= 0 ||
           !watch_grows(&result->watch, result->counted_s / 4, most);
}

static bool make_results(const struct options *options,
                         struct result **result)
{
    for (int i = 0; i < options->rates; i++) {
        result[i] = calloc(1, sizeof *result[i]);
        if (result[i] == NULL)
            return false;
    }
    return true;
}

/* The rates in turn. False when the generator itself could not run. */
static bool run_round(const struct options *options, struct result **result,
                      uint64_t *digest)
{
    double closed = 0;

    for (int i = 0; i < options->rates; i++) {
        const struct rate *which = &options->rate[i];
        double rate = resolve(which, closed), before_s = result[i]->counted_s;
        int64_t before = result_good(result[i]);

        if (which->kind == RATE_OF_CLOSED && rate <= 0) {
            fputs("load: the closed run got no good answer\n", stderr);
            return false;
        }
        if (!run_load(options, rate, connections_of(options, which), digest,
                      result[i])) {
            fprintf(stderr, "load: %s\n", strerror(errno));
            return false;
        }
        if (result[i]->rounds == options->rounds)
            report_run(result[i], stdout);
        if (which->kind == RATE_CLOSED)
            closed = (double)(result_good(result[i]) - before) /
                     (result[i]->counted_s - before_s);
    }
    return true;
}

/* True when each run got at least one answer, and grew no more than it may. */
static bool run_all(const struct options *options, struct result **result)
{
    uint64_t digest[OPTIONS_BODIES] = { 0 };
    bool good = true;

    report_head(options, stdout);
    for (int round = 0; round < options->rounds; round++)
        if (!run_round(options, result, digest))
            return false;
    for (int i = 0; i < options->rates; i++)
        good = good && result[i]->outcomes > 0 && is_flat(options, result[i]);
    return good;
}

static bool write_json(const struct options *options,
                       struct result *const *result, int results)
{
    FILE *out = options->json == NULL ? NULL : fopen(options->json, "w");
    bool good = out != NULL;

    if (options->json == NULL)
        return true;
    good = good && report_json(options, result, results, out);
    if (out != NULL)
        good = fclose(out) == 0 && good;
    if (!good)
        fprintf(stderr, "load: %s: %s\n", options->json, strerror(errno));
    return good;
}

int main(int argc, char **argv)
{
    static struct options options;
    struct result *result[OPTIONS_RATES] = { NULL };
    char why[512];
    bool good;
    int results = 0;

    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return fputs(options_help, stdout) < 0;
    if (!options_read(&options, argc, argv, why, sizeof why)) {
        fprintf(stderr, "load: %s\n", why);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    raise_file_limit();
    good = make_results(&options, result) && run_all(&options, result);
    while (results < options.rates && result[results] != NULL &&
           result[results]->rounds > 0)
        results++;
    if (options.judges)
        good = report_judge(&options, result, results, stdout) && good;
    good = write_json(&options, result, results) && good;
    for (int i = 0; i < options.rates; i++)
        free(result[i]);
    options_free(&options);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
