#ifndef CORE_LINEAR_H
#define CORE_LINEAR_H

#include "core/parallel.h"
#include "core/tensor.h"

struct kernels;

/* A linear layer, y = x W^T + b, as checkpoints hold it, and the running of
 * several at once. It knows rows, not batches or heads. */
struct linear {
    struct tensor weight; /* (out, in), rows packed; rank 0: no layer */
    struct tensor bias;   /* (out), or rank 0 */
    bool arranged;        /* F32: the data is as pack_rows_f32() left it, of the
                             kernels that will run it; steps mean nothing */
    bool pairs;           /* F32: rows of (in + 1) / 2 pairs of bfloat16, as
                             round_pairs() made them, maybe arranged then */
    const float *pieces;  /* of an arranged layer: its rows as split_rows() and
                             pack_rows_f32() left them; NULL: none */
};

/* A layer and the rows it is applied to: `runs` runs of `rows` rows, each run
 * with one step from row to row. Numbers are of the weight's dtype, F32 or
 * F64; steps are in elements. Of a layer of pairs x has rows of pairs, and its
 * steps count them. */
struct linear_use {
    const struct linear *layer;
    const void *x;
    const float *pieces; /* all rows of x as split_rows() made them, one behind
                            the other, for a layer that has pieces; or NULL */
    void *y;
    int64_t runs, rows;
    int64_t x_run, x_row; /* steps in x; a row is layer's `in` packed numbers */
    int64_t y_run, y_row; /* steps in y; a row is layer's `out` */
};

enum { LINEAR_USES_MAX = 3 };

/* The floats that a row of x and of the weight takes. */
int64_t linear_width(const struct linear *layer);

/* All of `uses` (at most LINEAR_USES_MAX), cut into blocks by their shapes and
 * spread over `parallel`. Adds to *ns what the pieces took, summed over
 * threads. False as parallel->run is. */
bool linear_run(const struct linear_use *uses, int count,
                const struct kernels *kernels, struct parallel *parallel,
                int64_t *ns);

#endif
