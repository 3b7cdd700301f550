#ifndef CORE_ATTENTION_SHARE_H
#define CORE_ATTENTION_SHARE_H

#include "core/attention_packed.h"

/* One piece of work on one thread: its memory and its counts. How large a tile
 * may be is known here, by shapes alone. */

/* Rows of a tile at most: 96 and 128 gain half a percent, and 64 leave a head of
 * 128 rows for two threads. */
enum { ATTENTION_TILE_ROWS = 64 };

/* Of so few rows a product takes its keys and values from where they are:
 * packing would cost more, whether they come from memory or from the cache. Of
 * twice as many as well, but for narrow keys: there the sums of a product's lanes
 * cost more than packing. */
enum { ATTENTION_FEW_ROWS = 8, ATTENTION_READING_ROWS = 16,
       ATTENTION_NARROW_KEY = 64 };

enum { ATTENTION_SIMILARITY, ATTENTION_SOFTMAX, ATTENTION_WEIGHTED_SUM,
       ATTENTION_STEPS };

/* Zeroed but for the first two. */
struct attention_share {
    const struct attention *a;
    const struct kernels *kernels;
    void *scores; /* of the largest tile */
    double *row;  /* of T, for F32 rows that are computed in double */
    void *values; /* a part of V, for when one of its rows is not finite */
    float *q, *out; /* of a tile of several heads */
    struct attention_packed packed;
    struct {
        bool known;
        int64_t n, g;
        float size; /* the largest |k| of this head */
    } keys;
    int64_t dead_rows;
    int64_t step_ns[ATTENTION_STEPS];
};

/* What attention_share_init() takes from the scratch, in one block of which the
 * pages that stay unused are never touched. */
int64_t attention_share_bytes(const struct attention *a);

/* False when scratch ran out. */
bool attention_share_init(struct attention_share *share, struct arena *scratch);

/* Heads of one group whose rows, all of them, are one tile: where they are few,
 * so that the group's keys and values are read once. */
int64_t attention_share_heads(const struct attention *a);

/* Scores of a tile at most; one row may have more. */
int64_t attention_share_scores(const struct attention *a);

/* Elements from one row of a tile's scores to the next. */
int64_t attention_share_stride(int64_t columns);

#endif
