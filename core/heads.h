#ifndef CORE_HEADS_H
#define CORE_HEADS_H

#include "core/tensor.h"

/* Where batch, row and head stand in a tensor of a given layout, and the
 * views that say so to code which wants (N, H, L, D): splitting and merging
 * heads is a matter of steps and moves no number. */

enum layout { LAYOUT_BY_RANK, LAYOUT_NLE, LAYOUT_LNE, LAYOUT_LE, LAYOUT_NHLD };

/* Which axis is which; -1: has none. NHLD's last axis is D, not E. */
struct layout_axes {
    const char *name, *shape; /* "NLE", "(N, L, E)" */
    int rank, batch, head, row;
};

/* Here and below, `layout` is never LAYOUT_BY_RANK. */
const struct layout_axes *layout_axes(enum layout layout);

/* The dimensions of N batches of L rows of H heads of D; returns the rank. */
int heads_dims(enum layout layout, int64_t N, int64_t L, int64_t H, int64_t D,
               int64_t dim[4]);

/* (N, H, L, D) over packed numbers that stand in `layout`. */
struct tensor heads_view(void *data, enum dtype dtype, enum layout layout,
                         int64_t N, int64_t L, int64_t H, int64_t D);

/* Rows first .. first+count-1 of a view. */
struct tensor heads_rows(const struct tensor *view, int64_t first,
                         int64_t count);

/* Copies a view of (N, H, L, D) to another; one whose step over N is 0 repeats.
 * The last step of both is 1. */
void heads_copy(const struct tensor *from, const struct tensor *to);

/* Makes every number of the view zero. */
void heads_clear(const struct tensor *to);

#endif
