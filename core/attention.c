#include "core/attention.h"

#include "core/attention_store.h"
#include "core/attention_tile.h"

/* exp and what goes with it, counted as products. */
static const double SOFTMAX_FLOPS = 64;

/* At 190 GFLOP/s, 0.16 ms: less is done before a second thread is awake. */
static const double ALONE_FLOPS = 3e7;

/* A unit is worth 50 us, so that taking it costs nothing, and ... */
static const double UNIT_FLOPS = 1e7;

/* And none is worth more, though it packs its keys anew: of rows computed in
 * double, with D 1, this takes 6 s, and who runs units is expected to end one
 * now and then. */
static const double UNIT_MOST_FLOPS = 2e10;

enum {
    /* ... there are so many of them that threads end together, or as many as
     * there are heads: packing is shared within a unit. */
    UNITS = 24,
    /* Parts of a mean's heads times blocks of its rows. */
    MEAN_UNITS = 8,
};

/* A unit is some blocks of rows of some heads of one group or, when weights are
 * averaged, of a part of the heads, in turn: a part's sum is made in one order,
 * in place. What is in a unit changes no bit, so it may depend on everything but
 * threads. */
struct work {
    const struct attention *a;
    const struct kernels *kernels;
    int64_t blocks;      /* of ATTENTION_TILE_ROWS in L */
    int64_t unit_blocks, unit_heads;
    int64_t across, down; /* units of heads, of a batch; of blocks */
    int64_t units, units_per_piece;
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t parts_of(int64_t whole, int64_t part)
{
    return (whole + part - 1) / part;
}

/* The last rows come first: a causal mask leaves them the most to do. */
static void run_unit(const struct work *work, struct attention_share *share,
                     int64_t unit)
{
    const struct attention *a = work->a;
    int64_t row = a->N * work->across; /* of units */
    int64_t down = work->down - 1 - unit / row;
    int64_t n = unit % row / work->across;
    int64_t head = unit % work->across * work->unit_heads;
    int64_t end = least(a->H, head + work->unit_heads);
    int64_t first = down * work->unit_blocks * ATTENTION_TILE_ROWS;
    int64_t last = least(a->L,
                         first + work->unit_blocks * ATTENTION_TILE_ROWS);
    int64_t group = a->H / a->G, together = attention_share_heads(a);

    for (int64_t h = head, heads; h < end; h += heads) {
        heads = least(together, least(end - h, group - h % group));
        for (int64_t i = first; i < last; i += ATTENTION_TILE_ROWS)
            attention_tile_run(share, n, h, heads, i,
                               least(last, i + ATTENTION_TILE_ROWS));
    }
}

static void add_counts(const struct attention *a,
                       const struct attention_share *share)
{
    if (a->fully_masked_queries != NULL)
        __atomic_fetch_add(a->fully_masked_queries, share->dead_rows,
                           __ATOMIC_RELAXED);
    if (a->step_ns != NULL)
        for (int i = 0; i < ATTENTION_STEPS; i++)
            __atomic_fetch_add(&a->step_ns[i], share->step_ns[i],
                               __ATOMIC_RELAXED);
}

static bool run_piece(void *arg, int64_t piece, struct arena *scratch)
{
    const struct work *work = arg;
    int64_t first = piece * work->units_per_piece;
    int64_t last = first + work->units_per_piece;
    struct attention_share share = { .a = work->a, .kernels = work->kernels };

    if (!attention_share_init(&share, scratch))
        return false;
    for (int64_t unit = first; unit < last && unit < work->units; unit++)
        run_unit(work, &share, unit);
    add_counts(work->a, &share);
    return true;
}

static bool averages(const struct attention *a)
{
    return a->weights.rank != 0 && a->average_weights;
}

/* Of one block of rows of a unit's heads. */
static double block_flops(const struct work *work)
{
    const struct attention *a = work->a;

    return (double)work->unit_heads *
           (double)least(a->L, ATTENTION_TILE_ROWS) * (double)a->T *
           (2 * (double)(a->D + a->Dv) + SOFTMAX_FLOPS);
}

static void cut(struct work *work)
{
    const struct attention *a = work->a;
    double flops = block_flops(work), worth = UNIT_FLOPS / flops;
    int64_t wanted = averages(a) && work->unit_heads > 1 ? MEAN_UNITS : UNITS;
    int64_t whole = a->N * work->across * work->blocks;
    int64_t blocks = whole / wanted;

    if (worth > (double)blocks)
        blocks = worth > (double)work->blocks ? work->blocks : (int64_t)worth;
    if ((double)blocks * flops > UNIT_MOST_FLOPS)
        blocks = (int64_t)(UNIT_MOST_FLOPS / flops);
    blocks = blocks < 1 ? 1 : least(blocks, work->blocks);
    work->down = parts_of(work->blocks, blocks);
    work->unit_blocks = parts_of(work->blocks, work->down);
    work->units = a->N * work->across * work->down;
    worth /= (double)work->unit_blocks;
    if (worth > (double)work->units || flops * (double)whole < ALONE_FLOPS)
        work->units_per_piece = work->units;
    else
        work->units_per_piece = worth < 1 ? 1 : (int64_t)worth;
}

/* The heads of a group share what is packed of its keys and values, or read them
 * at once: they stay together, where that leaves as many units as are wanted. Else
 * a group is cut evenly, though not what may be a tile. */
static int64_t heads_together(int64_t H, int64_t G, int64_t L, int64_t wanted)
{
    int64_t group = H / G, tile = least(group, ATTENTION_FEW_ROWS / L);
    int64_t heads = parts_of(group, parts_of(wanted, G));

    heads = heads < tile ? tile : heads;
    while (group % heads != 0)
        heads++;
    return heads;
}

/* ---- means in parts ---- */

int64_t attention_mean_parts(int64_t H, int64_t G, int64_t L)
{
    int64_t wanted = parts_of(MEAN_UNITS, parts_of(L, ATTENTION_TILE_ROWS));

    return parts_of(H, parts_of(G, wanted) * heads_together(H, G, L, wanted));
}

enum { MERGED_WEIGHTS = 1 << 16 }; /* in a piece, or one row */

static int64_t merged_rows(const struct attention *a)
{
    return a->T < MERGED_WEIGHTS ? MERGED_WEIGHTS / a->T : 1;
}

static bool merge_piece(void *arg, int64_t piece, struct arena *scratch)
{
    const struct work *work = arg;
    int64_t rows = merged_rows(work->a);
    int64_t end = least(work->a->N * work->a->L, (piece + 1) * rows);

    (void)scratch;
    for (int64_t row = piece * rows; row < end; row++)
        attention_store_merge(work->a, work->kernels, row);
    return true;
}

static bool merge(struct work *work, struct parallel *parallel)
{
    const struct attention *a = work->a;

    return a->mean_parts.rank == 0 ||
           parallel->run(parallel, parts_of(a->N * a->L, merged_rows(a)),
                         merge_piece, work);
}

int64_t attention_scratch_bytes(const struct attention *a)
{
    /* the arena's header, its red zone, and rounding up */
    return attention_share_bytes(a) + 3 * ARENA_ALIGNMENT;
}

static int64_t heads_of_unit(const struct attention *a)
{
    return averages(a)
        ? attention_store_part_heads(a)
        : heads_together(a->H, a->G, a->L, parts_of(UNITS, a->N));
}

bool attention_run(const struct attention *a, const struct kernels *kernels,
                   struct parallel *parallel)
{
    struct work work = {
        .a = a,
        .kernels = kernels,
        .blocks = parts_of(a->L, ATTENTION_TILE_ROWS),
        .unit_heads = heads_of_unit(a),
    };

    work.across = parts_of(a->H, work.unit_heads);
    cut(&work);
    if (a->fully_masked_queries != NULL)
        *a->fully_masked_queries = 0;
    return parallel->run(parallel, parts_of(work.units, work.units_per_piece),
                         run_piece, &work) &&
           merge(&work, parallel);
}
