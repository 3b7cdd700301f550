#include "core/linear.h"

#include "core/kernels/kernels.h"
#include "core/stopwatch.h"

/* A piece of work: so many rows of y, so many columns. Weights that are not
 * arranged are packed anew for every block of rows: 768 x 768 on 512 rows run
 * at 243 GFLOP/s with 128 rows, 250 with 256 (AVX-512, one thread). The columns
 * begin where arranged weights may be cut, and are so few that the six blocks
 * of an output's projection are work for two or three threads. */
enum { BLOCK_ROWS = 256, BLOCK_COLUMNS = 128 };

struct work {
    const struct linear_use *uses;
    const struct kernels *kernels;
    int64_t *ns;
};

struct block {
    const struct linear_use *use;
    int64_t run, row, column, rows, columns;
};

static int64_t blocks(int64_t whole, int64_t block)
{
    return (whole + block - 1) / block;
}

static int64_t pieces_of(const struct linear_use *use)
{
    return use->runs * blocks(use->rows, BLOCK_ROWS) *
           blocks(use->layer->weight.dim[0], BLOCK_COLUMNS);
}

static int64_t at_most(int64_t limit, int64_t value)
{
    return value < limit ? value : limit;
}

static struct block block_find(const struct work *work, int64_t piece)
{
    const struct linear_use *use = work->uses;

    for (; piece >= pieces_of(use); use++)
        piece -= pieces_of(use);

    int64_t out = use->layer->weight.dim[0];
    int64_t across = blocks(out, BLOCK_COLUMNS);
    int64_t down = blocks(use->rows, BLOCK_ROWS);
    struct block b = {
        .use = use,
        .run = piece / across / down,
        .row = piece / across % down * BLOCK_ROWS,
        .column = piece % across * BLOCK_COLUMNS,
    };

    b.rows = at_most(BLOCK_ROWS, use->rows - b.row);
    b.columns = at_most(BLOCK_COLUMNS, out - b.column);
    return b;
}

/* One block, in one type of number: the product, then the bias while the rows
 * are still in cache. */
#define RUN_BLOCK(TYPE, gemm_nt)                                               \
    do {                                                                       \
        int64_t width = linear_width(use->layer);                              \
        const TYPE *x = (const TYPE *)use->x + b.run * use->x_run +            \
                        b.row * use->x_row;                                    \
        const TYPE *w = (const TYPE *)weight->data +                           \
                        b.column * width;                                      \
        TYPE *y = (TYPE *)use->y + b.run * use->y_run + b.row * use->y_row +   \
                  b.column;                                                    \
        work->kernels->gemm_nt(b.rows, b.columns, width, 1, x, use->x_row, w,  \
                               width, y, use->y_row);                          \
        if (use->layer->bias.rank == 0)                                        \
            break;                                                             \
        const TYPE *bias = (const TYPE *)use->layer->bias.data + b.column;     \
        for (int64_t i = 0; i < b.rows; i++)                                   \
            for (int64_t j = 0; j < b.columns; j++)                            \
                y[i * use->y_row + j] += bias[j];                              \
    } while (0)

/* The same numbers from arranged weights, which nobody packs any more. */
static void run_arranged(const struct work *work, const struct block *b)
{
    const struct linear_use *use = b->use;
    const struct tensor *weight = &use->layer->weight;
    int64_t width = linear_width(use->layer);
    struct packed_product product = {
        .m = b->rows,
        .a = (const float *)use->x + b->run * use->x_run + b->row * use->x_row,
        .lda = use->x_row,
        .packed = weight->data,
        .n = weight->dim[0],
        .k = width,
        .column = b->column,
        .columns = b->columns,
        .rows = width,
        .alpha = 1,
        .bias = use->layer->bias.rank == 0 ? NULL : use->layer->bias.data,
        .c = (float *)use->y + b->run * use->y_run + b->row * use->y_row +
             b->column,
        .ldc = use->y_row,
    };

    if (use->layer->pairs)
        work->kernels->gemm_packed_pairs(&product);
    else if (use->pieces == NULL)
        work->kernels->gemm_packed_f32(&product);
    else
        work->kernels->gemm_packed_pieces(
            &product,
            use->pieces + (b->run * use->rows + b->row) * kernels_pieces(width),
            use->layer->pieces);
}

static bool run_piece(void *arg, int64_t piece, struct arena *scratch)
{
    const struct work *work = arg;
    struct block b = block_find(work, piece);
    const struct linear_use *use = b.use;
    const struct tensor *weight = &use->layer->weight;
    int64_t start = stopwatch_ns();

    (void)scratch;
    if (use->layer->arranged)
        run_arranged(work, &b);
    else if (weight->dtype == DTYPE_F64)
        RUN_BLOCK(double, gemm_nt_f64);
    else if (use->layer->pairs)
        RUN_BLOCK(float, gemm_nt_pairs);
    else
        RUN_BLOCK(float, gemm_nt_f32);
    __atomic_fetch_add(work->ns, stopwatch_ns() - start, __ATOMIC_RELAXED);
    return true;
}

int64_t linear_width(const struct linear *layer)
{
    int64_t in = layer->weight.dim[1];

    return layer->pairs ? (in + 1) / 2 : in;
}

bool linear_run(const struct linear_use *uses, int count,
                const struct kernels *kernels, struct parallel *parallel,
                int64_t *ns)
{
    struct work work = { uses, kernels, ns };
    int64_t pieces = 0;

    for (int i = 0; i < count; i++)
        pieces += pieces_of(&uses[i]);
    return parallel->run(parallel, pieces, run_piece, &work);
}
