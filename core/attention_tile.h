#ifndef CORE_ATTENTION_TILE_H
#define CORE_ATTENTION_TILE_H

#include "core/attention_packed.h"

/* Attention of a few rows of one head at a time: scores by one product, the
 * softmax row by row while they are in the cache, output by another.
 *
 * How rows are cut into tiles follows from shapes and from the ranges that the
 * masks leave, never from values: a row's bits depend on its tile. */

/* Rows of a tile at most: a product of 64 rows runs at nine tenths of what one
 * of 512 reaches, and leaves a head of 128 rows for two threads. */
enum { ATTENTION_TILE_ROWS = 64 };

enum { ATTENTION_SIMILARITY, ATTENTION_SOFTMAX, ATTENTION_WEIGHTED_SUM,
       ATTENTION_STEPS };

/* One piece of work on one thread: its memory and its counts. Zeroed but for
 * the first two. */
struct attention_share {
    const struct attention *a;
    const struct kernels *kernels;
    void *scores; /* of the largest tile */
    double *row;  /* of T, for F32 rows that are computed in double */
    void *values; /* a part of V, for when one of its rows is not finite */
    struct attention_packed packed;
    struct {
        bool known;
        int64_t n, g;
        float size; /* the largest |k| of this head */
    } keys;
    int64_t dead_rows;
    int64_t step_ns[ATTENTION_STEPS];
};

/* What attention_tile_init() takes from the scratch, in one block of which the
 * pages that stay unused are never touched. */
int64_t attention_tile_bytes(const struct attention *a);

/* False when scratch ran out. */
bool attention_tile_init(struct attention_share *share, struct arena *scratch);

/* Rows first .. last - 1 of head (n, h), with all that was asked for of them.
 */
void attention_tile_run(struct attention_share *share, int64_t n, int64_t h,
                        int64_t first, int64_t last);

#endif
