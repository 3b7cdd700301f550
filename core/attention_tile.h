#ifndef CORE_ATTENTION_TILE_H
#define CORE_ATTENTION_TILE_H

#include "core/attention_share.h"

/* Attention of a few rows at a time: scores by one product, the softmax row by
 * row while they are in the cache, output by another. They are rows of one head
 * or, where these are very few, of several heads of one group, which then read
 * its keys and values once.
 *
 * How rows are cut into tiles follows from shapes and from the ranges that the
 * masks leave, never from values: a row's bits depend on its tile. */

/* Rows first .. last - 1 of heads (n, h) .. (n, h + heads - 1), with all that
 * was asked for of them: more than one head is no more than
 * attention_share_heads(), of one group, and all of its rows. */
void attention_tile_run(struct attention_share *share, int64_t n, int64_t h,
                        int64_t heads, int64_t first, int64_t last);

#endif
