#include "core/mha_memory.h"

#include "core/kernels/kernels.h"
#include "core/mha_mask.h"

#include <math.h>

struct taker {
    const struct mha_plan *plan;
    struct arena *arena; /* NULL: counts only */
    int64_t bytes, result_bytes;
};

static void add_bytes(struct taker *taker, int64_t bytes)
{
    if (__builtin_add_overflow(taker->bytes, bytes, &taker->bytes))
        taker->bytes = INT64_MAX;
}

static struct tensor take(struct taker *taker, enum dtype dtype, int rank,
                          const int64_t *dim)
{
    int64_t count, bytes;

    if (!tensor_count_dims(dim, rank, &count)) {
        add_bytes(taker, INT64_MAX);
        return (struct tensor){ 0 };
    }
    bytes = count * (int64_t)dtype_size(dtype); /* count * 8 fits */
    add_bytes(taker, bytes);
    add_bytes(taker, ARENA_ALIGNMENT); /* rounding up, and ... */
    add_bytes(taker, ARENA_ALIGNMENT); /* ... a red zone for sanitizers */
    return tensor_packed(taker->arena == NULL
                             ? NULL
                             : arena_alloc(taker->arena, (size_t)bytes),
                         dtype, rank, dim);
}

static struct tensor take_like(struct taker *taker, const struct tensor *t)
{
    return take(taker, t->dtype, t->rank, t->dim);
}

/* In the memory that the caller gave it, or in some of the arena's. */
static void take_result(struct taker *taker, struct tensor *result,
                        enum dtype dtype, int rank, const int64_t *dim)
{
    int64_t before = taker->bytes;

    *result = result->data == NULL
                  ? take(taker, dtype, rank, dim)
                  : tensor_packed(result->data, dtype, rank, dim);
    taker->result_bytes += taker->bytes - before;
}

/* Rows in the client's layout. */
static struct tensor take_rows(struct taker *taker, int64_t rows,
                               int64_t heads, int64_t width)
{
    const struct mha_plan *plan = taker->plan;
    int64_t dim[4];
    int rank = heads_dims(plan->layout, plan->N, rows, heads, width, dim);

    return take(taker, plan->dtype, rank, dim);
}

/* (N, a, b, c), without the axes that are 0, and without N when unbatched;
 * returns the rank. */
static int axes_dims(const struct mha_plan *plan, int64_t a, int64_t b,
                     int64_t c, int64_t dim[4])
{
    const int64_t axes[] = { plan->layout == LAYOUT_LE ? 0 : plan->N, a, b, c };
    int rank = 0;

    for (int i = 0; i < 4; i++) {
        if (axes[i] != 0)
            dim[rank++] = axes[i];
    }
    return rank;
}

static void take_axes(struct taker *taker, struct tensor *result,
                      enum dtype dtype, int64_t a, int64_t b, int64_t c)
{
    int64_t dim[4];
    int rank = axes_dims(taker->plan, a, b, c, dim);

    take_result(taker, result, dtype, rank, dim);
}

/* Fewer rows are bound by the reading of weights, of which floats are less. */
enum { SPLIT_ROWS_MIN = 16 };

static struct tensor take_pieces(struct taker *taker,
                                 const struct linear *layer, int64_t rows)
{
    if (layer->pieces == NULL || rows < SPLIT_ROWS_MIN)
        return (struct tensor){ 0 };
    return take(taker, DTYPE_F32, 2,
                (int64_t[]){ rows, kernels_pieces(layer->weight.dim[1]) });
}

/* Rounded or split, if either. */
static struct tensor take_converted(struct taker *taker,
                                    const struct linear *layer,
                                    const struct tensor *x)
{
    if (taker->plan->request->precision == PRECISION_BF16)
        return take_like(taker, x);
    return take_pieces(taker, layer,
                       tensor_count(x) / layer->weight.dim[1]);
}

static void take_inputs(struct taker *taker, struct mha_memory *m)
{
    const struct mha_plan *plan = taker->plan;
    const struct weights *w = &plan->weights;

    m->query = take_converted(taker, &w->q, &plan->query);
    m->key = plan->key.data == plan->query.data
                 ? m->query
                 : take_converted(taker, &w->k, &plan->key);
    m->value = plan->value.data == plan->key.data
                   ? m->key
               : plan->value.data == plan->query.data
                   ? m->query
                   : take_converted(taker, &w->v, &plan->value);
}

static void take_rounded_weights(struct taker *taker, struct mha_memory *m)
{
    const struct weights *w = &taker->plan->weights;

    if (w->rounded)
        return;
    m->q_weight = take_like(taker, &w->q.weight);
    m->k_weight = take_like(taker, &w->k.weight);
    m->v_weight = w->shared_kv ? m->k_weight
                               : take_like(taker, &w->v.weight);
    if (w->out.weight.rank != 0)
        m->out_weight = take_like(taker, &w->out.weight);
}

static void take_projected(struct taker *taker, struct mha_memory *m)
{
    const struct mha_plan *plan = taker->plan;
    bool projected = plan->weights.kind != WEIGHTS_NONE;
    bool rounded = plan->request->precision == PRECISION_BF16;

    if (projected)
        take_inputs(taker, m);
    if (projected && rounded)
        take_rounded_weights(taker, m);
    if (projected || rounded)
        m->q = take_rows(taker, plan->L, plan->H, plan->D);
    m->key_is_value = plan->value.data == plan->key.data &&
                      (plan->weights.shared_kv || !projected);
    if (!projected && !rounded && plan->T == plan->S)
        return;
    m->k = take_rows(taker, plan->T, plan->G, plan->D);
    m->v = m->key_is_value ? m->k
                           : take_rows(taker, plan->T, plan->G, plan->Dv);
}

static void take_masks(struct taker *taker, struct mha_memory *m)
{
    const int64_t dim[] = { taker->plan->N, taker->plan->S };

    if (mha_mask_hides(taker->plan))
        m->key_hidden = take(taker, DTYPE_BOOL, 2, dim);
    if (mha_mask_adds(taker->plan))
        m->key_bias = take(taker, taker->plan->dtype, 2, dim);
}

static void take_output(struct taker *taker, struct mha_memory *m,
                        struct mha_response *response)
{
    const struct mha_plan *plan = taker->plan;

    take_result(taker, &response->output, plan->dtype, plan->output_rank,
                plan->output_dim);
    m->context = plan->weights.out.weight.rank == 0
                     ? response->output
                     : take_rows(taker, plan->L, plan->H, plan->Dv);
    if (plan->weights.out.weight.rank != 0)
        m->context_pieces = take_pieces(taker, &plan->weights.out,
                                        plan->N * plan->L);
    if (plan->request->returns & MHA_RETURN_CONTEXT)
        response->context = m->context;
}

/* Memory that a mean is made in. */
static void take_mean_parts(struct taker *taker, struct mha_memory *m)
{
    const struct mha_plan *plan = taker->plan;
    const int64_t dim[] = {
        attention_mean_parts(plan->H, plan->G, plan->L) - 1, plan->N, plan->L,
        plan->T
    };

    if (m->weights.rank != 0 && plan->request->average_attn_weights &&
        dim[0] > 0)
        m->mean_parts = take(taker, plan->dtype, 4, dim);
}

static void take_whole_weights(struct taker *taker, struct mha_memory *m,
                               struct mha_response *response, int64_t heads)
{
    const struct mha_plan *plan = taker->plan;
    const struct mha_request *r = plan->request;
    int64_t dim[4];
    int rank = axes_dims(plan, heads, plan->L, plan->T, dim);

    if (r->need_weights && r->weights_top_k == 0) {
        take_result(taker, &response->weights, plan->dtype, rank, dim);
        m->weights = response->weights;
    } else if (r->need_weights || r->compare_weights.value.rank != 0) {
        m->weights = take(taker, plan->dtype, rank, dim);
    }
}

static void take_weights(struct taker *taker, struct mha_memory *m,
                         struct mha_response *response)
{
    const struct mha_plan *plan = taker->plan;
    const struct mha_request *r = plan->request;
    int64_t heads = r->average_attn_weights ? 0 : plan->H;
    int64_t k = r->weights_top_k;

    take_whole_weights(taker, m, response, heads);
    take_mean_parts(taker, m);
    if (!r->need_weights || k == 0)
        return;
    take_axes(taker, &response->top_indices, DTYPE_I64, heads, plan->L, k);
    take_axes(taker, &response->top_values, plan->dtype, heads, plan->L, k);
    take_axes(taker, &response->top_kept, plan->dtype, heads, plan->L, 0);
}

static void take_returns(struct taker *taker, struct mha_response *response)
{
    const struct mha_plan *p = taker->plan;
    const struct {
        unsigned flag;
        struct tensor *result;
        int64_t heads, rows, width;
    } returns[] = {
        { MHA_RETURN_Q, &response->q, p->H, p->L, p->D },
        { MHA_RETURN_K, &response->k, p->G, p->T, p->D },
        { MHA_RETURN_V, &response->v, p->G, p->T, p->Dv },
        { MHA_RETURN_SCORES, &response->scores, p->H, p->L, p->T },
        { MHA_RETURN_LSE, &response->lse, p->H, p->L, 0 },
    };

    for (size_t i = 0; i < sizeof returns / sizeof *returns; i++) {
        if (p->request->returns & returns[i].flag)
            take_axes(taker, returns[i].result, p->dtype, returns[i].heads,
                      returns[i].rows, returns[i].width);
    }
}

bool mha_memory_take(const struct mha_plan *plan, struct arena *arena,
                     struct mha_memory *memory,
                     struct mha_response *response)
{
    struct taker taker = { .plan = plan, .arena = arena };

    *memory = (struct mha_memory){ 0 };
    take_projected(&taker, memory);
    take_masks(&taker, memory);
    take_output(&taker, memory, response);
    take_weights(&taker, memory, response);
    take_returns(&taker, response);
    memory->bytes = taker.bytes;
    memory->result_bytes = taker.result_bytes;
    return taker.bytes != INT64_MAX && (arena == NULL || !arena_failed(arena));
}

static struct tensor view(const struct mha_plan *plan,
                          const struct tensor *own,
                          const struct tensor *clients, int64_t rows,
                          int64_t heads, int64_t width)
{
    return heads_view(own->rank != 0 ? own->data : clients->data, plan->dtype,
                      plan->layout, plan->N, rows, heads, width);
}

/* With its batch axis, of one, where the client's answer has none. */
static struct tensor batched(const struct mha_plan *plan, struct tensor t)
{
    int64_t dim[4] = { 1 };

    if (plan->layout != LAYOUT_LE || t.rank == 0)
        return t;
    for (int i = 0; i < t.rank; i++)
        dim[i + 1] = t.dim[i];
    return tensor_packed(t.data, t.dtype, t.rank + 1, dim);
}

struct attention mha_memory_attention(const struct mha_plan *plan,
                                      const struct mha_memory *memory,
                                      const struct mha_response *response)
{
    const struct mha_request *r = plan->request;

    return (struct attention){
        .dtype = plan->dtype,
        .N = plan->N, .H = plan->H, .G = plan->G, .L = plan->L,
        .S = plan->S, .T = plan->T, .D = plan->D, .Dv = plan->Dv,
        .q = view(plan, &memory->q, &plan->query, plan->L, plan->H, plan->D),
        .k = view(plan, &memory->k, &plan->key, plan->T, plan->G, plan->D),
        .v = view(plan, &memory->v, &plan->value, plan->T, plan->G, plan->Dv),
        .scale = r->has_scale ? r->scale : 1 / sqrt((double)plan->D),
        .softcap = r->softcap,
        .alibi_slopes = r->alibi_slopes.value.data,
        .sinks = r->sinks.value.data,
        .dropout_p = r->dropout_p,
        .seed = r->seed,
        .out = view(plan, &memory->context, NULL, plan->L, plan->H, plan->Dv),
        .weights = batched(plan, memory->weights),
        .average_weights = r->average_attn_weights,
        .mean_parts = memory->mean_parts,
        .scores = batched(plan, response->scores),
        .lse = batched(plan, response->lse),
    };
}
