#ifndef SERVER_MODEL_COUNTS_H
#define SERVER_MODEL_COUNTS_H

#include "core/buffer.h"

#include <stdint.h>

/* What requests asked of each layer of each model, for /metrics.
 *
 * A row is for ever: a model that is read again, or comes back, counts on. The
 * rows are as many as MODEL_COUNTS_ROWS however often models change; what finds
 * no room counts in a row of all others, so that no one can make the labels
 * grow without end. Counting is an atomic addition, as in metrics.h. */

enum { MODEL_COUNTS_ROWS = 1024 };

/* The row of a layer, made when it is new; that of all others when there is no
 * room. One thread at a time, as models.c has it. `name` has no character that a
 * label escapes. */
int model_counts_row(const char *name, int64_t layer);

void model_counts_add(int row, int64_t rows, double flops);

/* Prometheus's text of them. */
void model_counts_write(struct buffer *out);

#endif
