#include "server/metrics.h"

#include <ctype.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The text of a scrape; the caller frees it. */
static char *scrape(void)
{
    struct buffer out;
    size_t len;
    char *text;

    buffer_init(&out, 1 << 20);
    metrics_write(&out);
    buffer_append(&out, "", 1);
    text = buffer_take(&out, &len);
    assert_non_null(text);
    return text;
}

/* The value of a series, by its exact name; -1 when it is not there. */
static double value_of(const char *series)
{
    char *text = scrape(), *at = text;
    size_t len = strlen(series);
    double value = -1;

    while (at != NULL && value < 0) {
        if (strncmp(at, series, len) == 0 && at[len] == ' ')
            value = strtod(at + len, NULL);
        at = strchr(at, '\n');
        at = at == NULL ? NULL : at + 1;
    }
    free(text);
    return value;
}

static void requests_are_counted_by_route_and_code(void **state)
{
    (void)state;
    metrics_count_request(ROUTE_ATTENTION, 422);
    metrics_count_request(ROUTE_ATTENTION, 422);
    metrics_count_request(ROUTE_OTHER, 404);
    metrics_count_request(ROUTE_LIVEZ, 0);
    metrics_count_request(ROUTE_LIVEZ, 299);
    assert_true(value_of("attnd_requests_total{route=\"/attention\","
                         "code=\"422\"}") == 2);
    assert_true(value_of("attnd_requests_total{route=\"other\","
                         "code=\"404\"}") == 1);
    assert_true(value_of("attnd_requests_total{route=\"/livez\","
                         "code=\"0\"}") == 2);
}

static void a_histogram_is_cumulative_and_in_seconds(void **state)
{
    (void)state;
    metrics_observe(METRIC_queue_seconds, 10000);       /* 10 us: in the first */
    metrics_observe(METRIC_queue_seconds, 10001);
    metrics_observe(METRIC_queue_seconds, 60000000000); /* over the last */
    assert_true(value_of("attnd_queue_seconds_bucket{le=\"1e-05\"}") == 1);
    assert_true(value_of("attnd_queue_seconds_bucket{le=\"2.5e-05\"}") == 2);
    assert_true(value_of("attnd_queue_seconds_bucket{le=\"30\"}") == 2);
    assert_true(value_of("attnd_queue_seconds_bucket{le=\"+Inf\"}") == 3);
    assert_true(value_of("attnd_queue_seconds_count") == 3);
    assert_true(value_of("attnd_queue_seconds_sum") > 60.00002 - 1e-6);
}

static void gauges_show_what_was_set(void **state)
{
    (void)state;
    metrics_set(METRIC_workers, 7);
    metrics_set(METRIC_workers, 3);
    assert_true(value_of("attnd_workers") == 3);
    metrics_count_rejected(REASON_memory);
    assert_true(value_of("attnd_rejected_total{reason=\"memory\"}") == 1);
}

static void label_values_are_escaped(void **state)
{
    (void)state;
    metrics_describe("1\"\\\n2", "avx2");
    assert_true(value_of("attnd_build_info{version=\"1\\\"\\\\\\n2\","
                         "kernels=\"avx2\"}") == 1);
}

static void the_process_tells_of_itself(void **state)
{
    (void)state;
    assert_true(value_of("process_open_fds") >= 3);
    assert_true(value_of("process_resident_memory_bytes") > 100000);
    assert_true(value_of("process_cpu_seconds_total") > 0);
    assert_true(value_of("process_start_time_seconds") > 1.5e9);
}

static bool is_name(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!islower(text[i]) && !isdigit(text[i]) && text[i] != '_')
            return false;
    return len > 0;
}

/* Prometheus's rules: HELP, then TYPE, then the family's series and no others;
 * counters end in _total, units are seconds and bytes. */
static void every_line_keeps_the_formats_rules(void **state)
{
    char *text = scrape(), *next = text, *line;
    char family[128] = "", type[16] = "";

    (void)state;
    while ((line = strsep(&next, "\n")) != NULL && *line != '\0') {
        char *rest;

        if (strncmp(line, "# HELP ", 7) == 0) {
            assert_int_equal(sscanf(line + 7, "%127s", family), 1);
            assert_true(strlen(line) > 7 + strlen(family) + 1);
            type[0] = '\0';
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            assert_memory_equal(line + 7, family, strlen(family));
            assert_int_equal(sscanf(line + 7 + strlen(family), "%15s", type), 1);
        } else {
            size_t name = strcspn(line, "{ ");

            assert_memory_equal(line, family, strlen(family));
            assert_true(is_name(line, name));
            assert_true(type[0] != '\0');
            if (strcmp(type, "counter") == 0)
                assert_string_equal(family + strlen(family) - 6, "_total");
            strtod(strrchr(line, ' ') + 1, &rest);
            assert_int_equal(*rest, '\0');
        }
    }
    free(text);
}

static void *count_many(void *arg)
{
    (void)arg;
    for (int i = 0; i < 100000; i++)
        metrics_add(METRIC_aborted_total, 1);
    return NULL;
}

static void nothing_is_lost_when_threads_count_at_once(void **state)
{
    pthread_t threads[4];

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_many, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_true(value_of("attnd_aborted_total") == 400000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_counted_by_route_and_code),
        cmocka_unit_test(a_histogram_is_cumulative_and_in_seconds),
        cmocka_unit_test(gauges_show_what_was_set),
        cmocka_unit_test(label_values_are_escaped),
        cmocka_unit_test(the_process_tells_of_itself),
        cmocka_unit_test(every_line_keeps_the_formats_rules),
        cmocka_unit_test(nothing_is_lost_when_threads_count_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
