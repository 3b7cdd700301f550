#include "server/model_counts.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 65 };

struct row {
    char name[NAME_BYTES]; /* "": all others */
    int64_t layer;
    _Atomic int64_t requests, rows, flops;
};

static struct row table[1 + MODEL_COUNTS_ROWS]; /* the first is of all others */
/* Rows in use; a reader that sees it sees the names below it. */
static atomic_int used = 1;

int model_counts_row(const char *name, int64_t layer)
{
    int count = atomic_load_explicit(&used, memory_order_relaxed);

    for (int i = 1; i < count; i++) {
        if (table[i].layer == layer && strcmp(table[i].name, name) == 0)
            return i;
    }
    if (count > MODEL_COUNTS_ROWS)
        return 0;
    snprintf(table[count].name, NAME_BYTES, "%s", name);
    table[count].layer = layer;
    atomic_store_explicit(&used, count + 1, memory_order_release);
    return count;
}

static void add(_Atomic int64_t *count, int64_t n)
{
    atomic_fetch_add_explicit(count, n, memory_order_relaxed);
}

void model_counts_add(int row, int64_t rows, double flops)
{
    add(&table[row].requests, 1);
    add(&table[row].rows, rows);
    add(&table[row].flops, (int64_t)flops);
}

static void write_metric(struct buffer *out, const char *name, size_t offset,
                         const char *help)
{
    int count = atomic_load_explicit(&used, memory_order_acquire);

    buffer_format(out, "# HELP %s %s\n# TYPE %s counter\n", name, help, name);
    for (int i = 0; i < count; i++) {
        struct row *row = &table[i];
        _Atomic int64_t *cell =
            (_Atomic int64_t *)(void *)((char *)row + offset);
        int64_t value = atomic_load_explicit(cell, memory_order_relaxed);

        if (i > 0)
            buffer_format(out, "%s{model=\"%s\",layer=\"%lld\"} %lld\n", name,
                          row->name, (long long)row->layer, (long long)value);
        else if (value > 0)
            buffer_format(out, "%s{model=\"\",layer=\"\"} %lld\n", name,
                          (long long)value);
    }
}

void model_counts_write(struct buffer *out)
{
    write_metric(out, "attnd_model_requests_total",
                 offsetof(struct row, requests),
                 "Requests computed with a layer of a model.");
    write_metric(out, "attnd_model_rows_total", offsetof(struct row, rows),
                 "Rows of queries that they sent: N times L.");
    write_metric(out, "attnd_model_flops_total", offsetof(struct row, flops),
                 "Arithmetic that they took, by formula.");
}
