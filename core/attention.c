#include "core/attention.h"

#include "core/attention_tile.h"

/* A piece that is worth waking a thread for: at 100 GFLOP/s about 40 us, what
 * the waking costs. */
static const double PIECE_FLOPS = 4e6;

/* exp and what goes with it, counted as products. */
static const double SOFTMAX_FLOPS = 64;

/* A unit is one block of rows of one head, or, when weights are averaged, of
 * all heads in turn: a mean is then summed in one order, in place. */
struct work {
    const struct attention *a;
    const struct kernels *kernels;
    int64_t blocks;     /* of ATTENTION_TILE_ROWS in L */
    int64_t unit_heads; /* 1 or H */
    int64_t units, units_per_piece;
};

static void run_unit(const struct work *work, struct attention_share *share,
                     int64_t unit)
{
    const struct attention *a = work->a;
    int64_t first = unit % work->blocks * ATTENTION_TILE_ROWS;
    int64_t last = first + ATTENTION_TILE_ROWS;
    int64_t head = unit / work->blocks * work->unit_heads; /* n * H + h */

    if (last > a->L)
        last = a->L;
    for (int64_t h = 0; h < work->unit_heads; h++)
        attention_tile_run(share, head / a->H, head % a->H + h, first, last);
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

    if (!attention_tile_init(&share, scratch))
        return false;
    for (int64_t unit = first; unit < last && unit < work->units; unit++)
        run_unit(work, &share, unit);
    add_counts(work->a, &share);
    return true;
}

static double unit_flops(const struct work *work)
{
    const struct attention *a = work->a;
    int64_t rows = a->L < ATTENTION_TILE_ROWS ? a->L : ATTENTION_TILE_ROWS;

    return (double)work->unit_heads * (double)rows * (double)a->T *
           (2 * (double)(a->D + a->Dv) + SOFTMAX_FLOPS);
}

int64_t attention_scratch_bytes(const struct attention *a)
{
    /* the arena's header, its red zone, and rounding up */
    return attention_tile_bytes(a) + 3 * ARENA_ALIGNMENT;
}

bool attention_run(const struct attention *a, const struct kernels *kernels,
                   struct parallel *parallel)
{
    struct work work = {
        .a = a,
        .kernels = kernels,
        .blocks = (a->L + ATTENTION_TILE_ROWS - 1) / ATTENTION_TILE_ROWS,
        .unit_heads =
            a->weights.rank != 0 && a->average_weights ? a->H : 1,
    };
    double worth;

    work.units = a->N * a->H / work.unit_heads * work.blocks;
    worth = PIECE_FLOPS / unit_flops(&work);
    work.units_per_piece = worth < 1                     ? 1
                           : worth > (double)work.units ? work.units
                                                         : (int64_t)worth;
    if (a->fully_masked_queries != NULL)
        *a->fully_masked_queries = 0;
    return parallel->run(parallel,
                         (work.units + work.units_per_piece - 1) /
                             work.units_per_piece,
                         run_piece, &work);
}
