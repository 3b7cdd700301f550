#include "tests/load/report.h"

#include <math.h>
#include <string.h>

static const double quantile[] = { 0.5, 0.9, 0.99, 0.999, 0.9999 };
static const char *const quantile_name[] = { "p50", "p90", "p99", "p99.9",
                                             "p99.99" };
enum { QUANTILES = 5, SLOPE_S = 60 /* a shorter run's means nothing */ };

static const char *const failure_name[FAILURES] = {
    [FAILED_CONNECT] = "not_connected", [FAILED_CLOSED] = "closed",
    [FAILED_TIMEOUT] = "timed_out",     [FAILED_MALFORMED] = "malformed",
    [FAILED_UNSENT] = "not_sent",
};

static double mib(int64_t bytes)
{
    return (double)bytes / (1 << 20);
}

void report_head(const struct options *options, FILE *out)
{
    fprintf(out, "%s %s", options->method, options->url);
    for (int i = 0; i < options->bodies; i++)
        if (options->body[i].bytes != NULL)
            fprintf(out, "%s%zu", i == 0 ? ", bytes of body " : " ",
                    options->body[i].len);
    fprintf(out, "\n%g s each, at most %d connections; milliseconds from when "
                 "a request was due\n\n%9s %6s %10s %10s",
            options->duration_s, options->connections, "rate", "status",
            "count", "per second");
    for (int i = 0; i < QUANTILES; i++)
        fprintf(out, " %8s", quantile_name[i]);
    fprintf(out, " %8s\n", "max");
    fflush(out);
}

static void print_rate(const struct result *result, FILE *out)
{
    if (result->wanted_rate > 0)
        fprintf(out, "%9.6g ", result->wanted_rate);
    else
        fprintf(out, "%9s ", "closed");
}

static void print_outcome(const struct result *result,
                          const struct outcome *outcome, FILE *out)
{
    fprintf(out, "%6d %10lu %10.1f", outcome->status,
            (unsigned long)outcome->latency.count,
            (double)outcome->in_time / result->counted_s);
    for (int i = 0; i < QUANTILES; i++)
        fprintf(out, " %8.3f",
                (double)histogram_quantile(&outcome->latency, quantile[i]) /
                    1e6);
    fprintf(out, " %8.3f\n", (double)outcome->latency.max_ns / 1e6);
}

static void print_watch(const struct result *result, FILE *out)
{
    const struct watch *watch = &result->watch;
    const struct watch_sample *last = &watch->sample[watch->count - 1];

    if (watch->count == 0)
        return;
    fprintf(out, "%16s %.1f MiB at most, %.1f at the end; %d files at most, %d "
                 "at the end", "daemon", mib(watch->most_bytes),
            mib(last->resident_bytes), watch->most_files, last->files);
    if (result->counted_s >= SLOPE_S)
        fprintf(out, "; %+.2f MiB an hour",
                watch_slope(watch, result->counted_s / 4) / (1 << 20));
    fputc('\n', out);
}

static void print_rest(const struct result *result, FILE *out)
{
    for (int i = 0; i < FAILURES; i++)
        if (result->failed[i] > 0)
            fprintf(out, "%16s %10lld\n", failure_name[i],
                    (long long)result->failed[i]);
    if (result->left > 0)
        fprintf(out, "%16s %10lld\n", "left", (long long)result->left);
    if (result->reaped > 0)
        fprintf(out, "%16s %10lld\n", "reaped", (long long)result->reaped);
    if (result->different > 0)
        fprintf(out, "%16s %10lld\n", "different",
                (long long)result->different);
    print_watch(result, out);
}

void report_run(const struct result *result, FILE *out)
{
    print_rate(result, out);
    for (int i = 0; i < result->outcomes; i++) {
        fprintf(out, "%*s", i == 0 ? 0 : 10, "");
        print_outcome(result, &result->outcome[i], out);
    }
    if (result->outcomes == 0)
        fprintf(out, "%6s\n", "none");
    print_rest(result, out);
    fflush(out);
}

static void json_histogram(const char *name, const struct histogram *histogram,
                           FILE *out)
{
    fprintf(out, ", \"%s\": {\"min\": %.1f, \"mean\": %.1f", name,
            (double)histogram->min_ns / 1e3,
            histogram_mean_ns(histogram) / 1e3);
    for (int i = 0; i < QUANTILES; i++)
        fprintf(out, ", \"%s\": %.1f", quantile_name[i],
                (double)histogram_quantile(histogram, quantile[i]) / 1e3);
    fprintf(out, ", \"max\": %.1f}", (double)histogram->max_ns / 1e3);
}

static void json_watch(const struct watch *watch, double from_s, FILE *out)
{
    if (watch->count == 0)
        return;
    fprintf(out, ",\n  \"server\": {\"most_bytes\": %lld, \"most_files\": %d, "
                 "\"bytes_an_hour\": %.0f, \"samples\": [",
            (long long)watch->most_bytes, watch->most_files,
            watch_slope(watch, from_s));
    for (int i = 0; i < watch->count; i++)
        fprintf(out, "%s[%.1f, %lld, %d]", i == 0 ? "" : ", ",
                watch->sample[i].at_s,
                (long long)watch->sample[i].resident_bytes,
                watch->sample[i].files);
    fputs("]}", out);
}

static void json_run(const struct result *result, FILE *out)
{
    fprintf(out, " {\"rate\": %.10g, \"seconds\": %.3f, \"requests\": %lld, "
                 "\"goodput\": %.2f, \"connections_opened\": %lld, "
                 "\"sent_bytes\": %lld, \"received_bytes\": %lld,\n"
                 "  \"left\": %lld, \"reaped\": %lld, \"different\": %lld",
            result->wanted_rate, result->counted_s, (long long)result->begun,
            result_goodput(result), (long long)result->opened,
            (long long)result->sent_bytes, (long long)result->received_bytes,
            (long long)result->left, (long long)result->reaped,
            (long long)result->different);
    for (int i = 0; i < FAILURES; i++)
        fprintf(out, ", \"%s\": %lld", failure_name[i],
                (long long)result->failed[i]);
    fputs(",\n  \"answers\": [", out);
    for (int i = 0; i < result->outcomes; i++) {
        const struct outcome *outcome = &result->outcome[i];

        fprintf(out, "%s\n   {\"status\": %d, \"count\": %lu, "
                     "\"per_second\": %.2f", i == 0 ? "" : ",",
                outcome->status, (unsigned long)outcome->latency.count,
                (double)outcome->in_time / result->counted_s);
        json_histogram("latency_us", &outcome->latency, out);
        json_histogram("service_us", &outcome->service, out);
        fputs("}", out);
    }
    fputs("]", out);
    json_watch(&result->watch, result->counted_s / 4, out);
    fputs("}", out);
}

/* A URL may hold quotes and backslashes; control characters as well. */
static void json_text(const char *text, FILE *out)
{
    fputc('"', out);
    for (; *text != '\0'; text++)
        if (*text == '"' || *text == '\\' || (unsigned char)*text < ' ')
            fprintf(out, "\\u%04x", (unsigned)*text);
        else
            fputc(*text, out);
    fputc('"', out);
}

bool report_json(const struct options *options, struct result *const *result,
                 int results, FILE *out)
{
    fputs("{\"url\": ", out);
    json_text(options->url, out);
    fputs(", \"method\": ", out);
    json_text(options->method, out);
    fprintf(out, ", \"duration_s\": %g, \"warmup_s\": %g, \"connections\": %d, "
                 "\"idle\": %d, \"bad\": %g, \"abort\": %g, \"runs\": [\n",
            options->duration_s, options->warmup_s, options->connections,
            options->idle, options->bad, options->aborting);
    for (int i = 0; i < results; i++) {
        fputs(i == 0 ? "" : ",\n", out);
        json_run(result[i], out);
    }
    fputs("]}\n", out);
    return fflush(out) == 0 && ferror(out) == 0;
}

static double ms_at(const struct result *result, double q, int status,
                    bool service)
{
    const struct outcome *outcome = result_find(result, status);

    if (outcome == NULL)
        return 0;
    return (double)histogram_quantile(service ? &outcome->service
                                              : &outcome->latency, q) / 1e6;
}

static int64_t trouble(const struct result *result)
{
    int64_t count = result->different;

    for (int i = 0; i < FAILURES; i++)
        count += result->failed[i];
    for (int i = 0; i < result->outcomes; i++)
        if (result->outcome[i].status >= 500 &&
            result->outcome[i].status != 503)
            count += (int64_t)result->outcome[i].latency.count;
    return count;
}

/* The run at the closed run's rate, or the closed run when there is none. */
static const struct result *at_capacity(const struct options *options,
                                        struct result *const *result,
                                        int results)
{
    const struct result *found = NULL;

    for (int i = 0; i < results; i++)
        if ((options->rate[i].kind == RATE_OF_CLOSED &&
             fabs(options->rate[i].value - 1) < 1e-9) ||
            (options->rate[i].kind == RATE_CLOSED && found == NULL))
            found = result[i];
    return found;
}

/* What a README shows of a run. */
static void print_cost(const struct result *result, double rate, double share,
                       double slower, FILE *out)
{
    fprintf(out, "| %g × | %.1f | %.1f, %.1f %% | %.0f ms, %.2f × | ", rate,
            result->wanted_rate, result_goodput(result), share * 100,
            ms_at(result, 0.99, 200, false), slower);
    if (result_find(result, 503) == NULL)
        fprintf(out, "none");
    else
        fprintf(out, "%.2f ms, %.1f ms", ms_at(result, 0.5, 503, true),
                ms_at(result, 0.99, 503, true));
    fprintf(out, " | %lld | %.0f MiB |\n", (long long)trouble(result),
            mib(result->watch.most_bytes));
}

bool report_judge(const struct options *options, struct result *const *result,
                  int results, FILE *out)
{
    const struct result *one = at_capacity(options, result, results);
    double best = 0, usual_ms = one == NULL ? 0 : ms_at(one, 0.99, 200, false);
    double worst = 0;

    for (int i = 0; i < results; i++)
        best = fmax(best, result_goodput(result[i]));
    fprintf(out, "\n| load | offered, /s | answered, /s, of the peak | p99, of "
                 "that at 1 × | refused in, p50, p99 | failures | memory |\n"
                 "| --- | --- | --- | --- | --- | --- | --- |\n");
    for (int i = 0; i < results; i++) {
        double rate = options->rate[i].value;
        double share = result_goodput(result[i]) / best;
        double slower = ms_at(result[i], 0.99, 200, false) / usual_ms;
        bool passes = share >= 0.95 && slower <= 2 && trouble(result[i]) == 0 &&
                      ms_at(result[i], 0.99, 503, true) <= 10;

        if (options->rate[i].kind != RATE_OF_CLOSED || rate < 1)
            continue;
        print_cost(result[i], rate, share, slower, out);
        if (rate > 1 && !passes)
            worst = fmax(worst, rate);
    }
    if (worst > 0)
        fprintf(out, "\nload: at %g × it costs more than it must\n", worst);
    return one != NULL && worst == 0;
}
