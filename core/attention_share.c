#include "core/attention_share.h"

enum {
    /* Scores of a tile: 1 MB of floats, which the second cache holds; a longer
     * row is a tile by itself, however long. */
    TILE_SCORES = 256 * 1024,
    /* ... but for few rows: scores are then little beside their keys, which
     * are read once for all of them. */
    FEW_SCORES = 4 * TILE_SCORES,
    /* Between the rows of a tile, so that rows of 2^k columns do not all fall
     * into one set of the first cache. */
    TILE_GAP = 16,
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t attention_share_stride(int64_t columns)
{
    return (columns + TILE_GAP - 1) / TILE_GAP * TILE_GAP + TILE_GAP;
}

int64_t attention_share_heads(const struct attention *a)
{
    int64_t heads = least(a->H / a->G, ATTENTION_FEW_ROWS / a->L);

    if (a->dtype != DTYPE_F32 || heads < 2)
        return 1;
    while (heads > 1 && heads * a->L * a->T > FEW_SCORES)
        heads = (heads + 1) / 2;
    return heads;
}

static int64_t tile_rows(const struct attention *a)
{
    return least(a->L, ATTENTION_TILE_ROWS) * attention_share_heads(a);
}

int64_t attention_share_scores(const struct attention *a)
{
    return tile_rows(a) <= ATTENTION_FEW_ROWS ? FEW_SCORES : TILE_SCORES;
}

static int64_t score_bytes(const struct attention *a)
{
    int64_t rows = tile_rows(a), scores = attention_share_scores(a);
    int64_t most = a->T > scores ? a->T : scores;

    return least(rows * attention_share_stride(a->T),
                 most + rows * 2 * TILE_GAP) *
           (int64_t)dtype_size(a->dtype);
}

/* Of q and of out. */
static int64_t joined_bytes(const struct attention *a, int64_t width)
{
    return attention_share_heads(a) == 1
        ? 0 : tile_rows(a) * width * (int64_t)sizeof(float);
}

static int64_t value_columns(const struct attention *a)
{
    return least(a->Dv, ATTENTION_VALUE_COLUMNS);
}

static int64_t value_bytes(const struct attention *a)
{
    return attention_packed_part(a, 0, a->T) * value_columns(a) *
           (int64_t)dtype_size(a->dtype);
}

static int64_t row_bytes(const struct attention *a)
{
    return a->dtype == DTYPE_F32 ? a->T * (int64_t)sizeof(double) : 0;
}

static int64_t aligned(int64_t bytes)
{
    return (bytes + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
}

int64_t attention_share_bytes(const struct attention *a)
{
    return aligned(score_bytes(a)) + aligned(attention_packed_bytes(a)) +
           aligned(row_bytes(a)) + aligned(joined_bytes(a, a->D)) +
           aligned(joined_bytes(a, a->Dv)) + value_bytes(a);
}

bool attention_share_init(struct attention_share *share, struct arena *scratch)
{
    const struct attention *a = share->a;
    char *block = arena_alloc(scratch, (size_t)attention_share_bytes(a));

    if (block == NULL)
        return false;
    share->scores = block;
    block += aligned(score_bytes(a));
    attention_packed_init(&share->packed, a, share->kernels, block);
    block += aligned(attention_packed_bytes(a));
    share->row = (double *)(void *)block;
    block += aligned(row_bytes(a));
    share->q = (float *)(void *)block;
    block += aligned(joined_bytes(a, a->D));
    share->out = (float *)(void *)block;
    share->values = block + aligned(joined_bytes(a, a->Dv));
    return true;
}
