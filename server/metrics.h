#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include "core/buffer.h"
#include "server/routes.h"

#include <stdint.h>

/* What the process counts, and Prometheus's text of it.
 *
 * Any thread may count at any time: a count is one atomic addition, relaxed,
 * since a counter orders nothing but itself. A scrape reads them one by one and
 * is thus not a snapshot, which Prometheus does not expect. There is one set a
 * process. */

enum metric {
#define METRIC(kind, name, labels, help) METRIC_##name,
#include "server/metrics.def"
    METRICS
};

enum metric_reason {
#define REASON(name) REASON_##name,
#include "server/metrics.def"
    REASONS
};

/* Of a metric without labels; a gauge's `n` may be negative. */
void metrics_add(enum metric metric, int64_t n);
void metrics_set(enum metric metric, int64_t value);

void metrics_count_request(enum route_name route, int status);
void metrics_count_rejected(enum metric_reason reason);

void metrics_observe(enum metric histogram, int64_t ns);

/* Version and kernels, for attnd_build_info; the strings must stay. Before
 * there are threads. */
void metrics_describe(const char *version, const char *kernels);

/* The text format 0.0.4, with the process's own figures. */
void metrics_write(struct buffer *out);

#endif
