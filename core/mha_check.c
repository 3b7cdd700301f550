#include "core/mha_mask.h"
#include "core/mha_memory.h"
#include "core/shape.h"

#include <assert.h>

/* "/query" or "/hidden_states". */
static const char *query_pointer(const struct mha_request *r, char out[64])
{
    return error_pointer(out, 64, "",
                         r->query.name != NULL ? r->query.name : "query");
}

static bool check_layout(const struct mha_request *r, struct mha_plan *plan,
                         struct error *err)
{
    static const enum layout by_rank[] = { [2] = LAYOUT_LE, [3] = LAYOUT_NLE,
                                           [4] = LAYOUT_NHLD };
    const struct tensor *query = &r->query.value;
    char shape[TENSOR_SHAPE_BYTES], pointer[64];

    if (query->rank < 2)
        return error_set(err, ERR_SHAPE, query_pointer(r, pointer),
                         "%s has shape %s: it takes 2 axes (L, E), 3 (N, L, "
                         "E) or 4 (N, H, L, D)", pointer + 1,
                         tensor_shape(query, shape, sizeof shape));
    plan->layout = r->layout == LAYOUT_BY_RANK ? by_rank[query->rank]
                                               : r->layout;

    const struct layout_axes *axes = layout_axes(plan->layout);

    if (axes->rank == query->rank)
        return true;
    return error_set(err, ERR_SHAPE, "/layout",
                     "layout %s is %s, which does not fit %s of shape %s",
                     axes->name, axes->shape, query_pointer(r, pointer) + 1,
                     tensor_shape(query, shape, sizeof shape));
}

static int64_t axis(const struct tensor *t, int i)
{
    return i < 0 ? 1 : t->dim[i];
}

static bool check_query(const struct mha_request *r, struct mha_plan *plan,
                        struct error *err)
{
    char pointer[64];

    query_pointer(r, pointer);
    if (!shape_is_given(&r->query))
        return error_set(err, ERR_MISSING, pointer,
                         "%s is missing: there is no attention without it",
                         pointer + 1);
    if (!shape_check_numbers(&r->query, pointer, plan->dtype, err) ||
        !check_layout(r, plan, err))
        return false;

    const struct layout_axes *axes = layout_axes(plan->layout);

    plan->query = r->query.value;
    plan->N = axis(&plan->query, axes->batch);
    plan->L = axis(&plan->query, axes->row);
    plan->E = plan->query.dim[axes->rank - 1] * axis(&plan->query, axes->head);
    return true;
}

/* The rank of the query, N of its batches and `rows` rows, if not 0; how many
 * heads and how wide is told later. */
static bool check_rows(const struct named_tensor *t, const char *where,
                       int64_t rows, const char *words,
                       const struct mha_plan *plan, struct error *err)
{
    const struct layout_axes *axes = layout_axes(plan->layout);
    int64_t dim[4] = { 0 };

    dim[axes->row] = rows;
    if (axes->batch >= 0)
        dim[axes->batch] = plan->N;
    return shape_check_numbers(t, where, plan->dtype, err) &&
           shape_check(&t->value, where, axes->rank, dim, words, err);
}

static bool check_inputs(const struct mha_request *r, struct mha_plan *plan,
                         struct error *err)
{
    if (!check_query(r, plan, err))
        return false;
    plan->key = plan->query;
    if (shape_is_given(&r->key)) {
        if (!check_rows(&r->key, "/key", 0, "of query's layout and batch",
                        plan, err))
            return false;
        plan->key = r->key.value;
    }
    plan->S = plan->key.dim[layout_axes(plan->layout)->row];
    plan->value = plan->key;
    if (shape_is_given(&r->value)) {
        if (!check_rows(&r->value, "/value", plan->S,
                        "of key's layout, batch and length", plan, err))
            return false;
        plan->value = r->value.value;
    }
    return true;
}

static int64_t width(const struct tensor *t)
{
    return t->dim[t->rank - 1];
}

static int64_t or_else(int64_t given_count, int64_t otherwise)
{
    return given_count != 0 ? given_count : otherwise;
}

static bool check_width(const struct tensor *t, const char *where,
                        int64_t want, const char *words, struct error *err)
{
    int64_t dim[4] = { 0 };

    dim[t->rank - 1] = want;
    return shape_check(t, where, t->rank, dim, words, err);
}

static bool check_projectable(const struct mha_plan *plan, const char *where,
                              struct error *err)
{
    if (plan->layout != LAYOUT_NHLD)
        return true;
    return error_set(err, ERR_CONFLICT, where,
                     "%s projects rows of layout NLE, LNE or LE; an input of "
                     "layout NHLD is projected already", where + 1);
}

static bool check_state_dict(const struct mha_request *r,
                             struct mha_plan *plan, struct error *err)
{
    int64_t H = or_else(r->num_heads, 1);
    struct weights_widths widths = {
        .query = plan->E,
        .key = width(&plan->key),
        .value = width(&plan->value),
        .H = H,
        .G = or_else(r->num_kv_heads, H),
    };

    return check_projectable(plan, "/state_dict", err) &&
           weights_read(&r->state_dict, plan->dtype, &widths, &plan->weights,
                        err);
}

/* Its weights fit each other; whether they fit the request is seen here. */
static bool check_model(const struct mha_request *r, struct mha_plan *plan,
                        struct error *err)
{
    char pointer[64];

    if (!check_projectable(plan, "/model", err) ||
        !shape_check_flaw(r->model_flaw, err))
        return false;
    if (r->model.weights == NULL)
        return error_set(err, ERR_NOT_FOUND, "/model",
                         "there is no such model");
    plan->weights = *r->model.weights;
    assert(plan->weights.q.weight.dtype == plan->dtype);
    return check_width(&plan->query, query_pointer(r, pointer),
                       plan->weights.q.weight.dim[1],
                       "as wide as the model's weight that projects it", err);
}

/* The module's own output projection, unless the request decides. */
static bool choose_output(const struct mha_request *r, struct mha_plan *plan,
                          struct error *err)
{
    struct linear *out = &plan->weights.out;

    if (r->has_output_projection ? !r->output_projection
                                 : r->has_model && !r->model.projects)
        *out = (struct linear){ 0 };
    else if (r->has_output_projection && out->weight.rank == 0)
        return error_set(err, ERR_CONFLICT, "/output_projection",
                         "output_projection is true, but %s",
                         r->has_model ? "the model's layer has none"
                         : r->has_state_dict
                             ? "state_dict has no out_proj.weight"
                             : "without state_dict or model there is none");
    return true;
}

static bool check_weights(const struct mha_request *r, struct mha_plan *plan,
                          struct error *err)
{
    if (!shape_check_flaw(r->state_dict_flaw, err))
        return false;
    if (r->has_state_dict && !check_state_dict(r, plan, err))
        return false;
    if (r->has_model && !check_model(r, plan, err))
        return false;
    return choose_output(r, plan, err);
}

/* NHLD: axis 1 says how many heads there are. */
static bool check_given_heads(const struct mha_request *r,
                              struct mha_plan *plan, struct error *err)
{
    plan->H = plan->query.dim[1];
    plan->G = plan->key.dim[1];
    if (r->num_heads != 0 && r->num_heads != plan->H)
        return error_set(err, ERR_SHAPE, "/num_heads",
                         "num_heads is %lld, but the query has %lld heads on "
                         "axis 1", (long long)r->num_heads,
                         (long long)plan->H);
    if (r->num_kv_heads != 0 && r->num_kv_heads != plan->G)
        return error_set(err, ERR_SHAPE, "/num_kv_heads",
                         "num_kv_heads is %lld, but the key has %lld heads on "
                         "axis 1", (long long)r->num_kv_heads,
                         (long long)plan->G);
    if (plan->H % plan->G == 0)
        return true;
    return error_set(err, ERR_SHAPE,
                     r->num_kv_heads != 0 ? "/num_kv_heads" : "/key",
                     "key has %lld heads, which do not divide the query's "
                     "%lld", (long long)plan->G, (long long)plan->H);
}

static bool check_model_heads(const struct mha_request *r,
                              const struct mha_plan *plan, struct error *err)
{
    int64_t says = r->model.num_heads, rows = plan->weights.v.weight.dim[0];

    if (r->num_heads == 0 && says == 0)
        return error_set(err, ERR_MISSING, "/num_heads",
                         "num_heads is missing, and the model does not say it");
    if (r->num_heads != 0 && says != 0 && r->num_heads != says)
        return error_set(err, ERR_CONFLICT, "/num_heads",
                         "num_heads is %lld, but the model has %lld heads",
                         (long long)r->num_heads, (long long)says);
    if (rows % or_else(r->num_heads, says) == 0)
        return true;
    return error_set(err, ERR_SHAPE, "/num_heads",
                     "num_heads is %lld, which does not divide %lld, the rows "
                     "of the value's weight",
                     (long long)or_else(r->num_heads, says), (long long)rows);
}

static bool check_split_heads(const struct mha_request *r,
                              struct mha_plan *plan, struct error *err)
{
    bool projected = plan->weights.kind != WEIGHTS_NONE;
    int64_t across = projected ? plan->weights.q.weight.dim[0] : plan->E;

    if (r->has_model && !check_model_heads(r, plan, err))
        return false;
    plan->H = or_else(r->num_heads, or_else(r->model.num_heads, 1));
    plan->G = or_else(r->num_kv_heads, plan->H);
    if (across % plan->H != 0)
        return error_set(err, ERR_SHAPE, "/num_heads",
                         "num_heads is %lld, which does not divide %lld, the "
                         "%s", (long long)plan->H, (long long)across,
                         projected ? "rows of the query's weight"
                                   : "query's width");
    if (plan->H % plan->G != 0)
        return error_set(err, ERR_SHAPE, "/num_kv_heads",
                         "num_kv_heads is %lld, which does not divide "
                         "num_heads, %lld", (long long)plan->G,
                         (long long)plan->H);
    if ((plan->weights.kind == WEIGHTS_PACKED || r->has_model) &&
        plan->G != plan->H)
        return error_set(err, ERR_SHAPE, "/num_kv_heads",
                         "num_kv_heads is %lld beside num_heads %lld, but %s "
                         "one width for both", (long long)plan->G,
                         (long long)plan->H,
                         r->has_model ? "the model has"
                                      : "in_proj_weight has");
    plan->D = across / plan->H;
    return true;
}

/* One weight for several inputs wants them of one width; apart from that the
 * weights were fitted to the inputs. */
static bool check_projected_widths(struct mha_plan *plan, struct error *err)
{
    const struct weights *w = &plan->weights;

    if (!check_width(&plan->key, "/key", w->k.weight.dim[1],
                     "as wide as the weight that projects it", err) ||
        !check_width(&plan->value, "/value", w->v.weight.dim[1],
                     "as wide as the weight that projects it", err))
        return false;
    plan->Dv = w->v.weight.dim[0] / plan->G;
    return true;
}

static bool check_split_widths(const struct mha_request *r,
                               struct mha_plan *plan, struct error *err)
{
    int64_t keys = plan->G * plan->D, values = width(&plan->value);

    if (width(&plan->key) != keys && !shape_is_given(&r->key))
        return error_set(err, ERR_SHAPE, "/num_kv_heads",
                         "num_kv_heads is %lld, but without a key of its own "
                         "the query's %lld numbers are the key's heads, not "
                         "%lld", (long long)plan->G, (long long)plan->E,
                         (long long)keys);
    if (!check_width(&plan->key, "/key", keys,
                     "num_kv_heads times the query's head width", err))
        return false;
    if (values % plan->G != 0)
        return error_set(err, ERR_SHAPE, "/value",
                         "value is %lld wide, which %lld key heads do not "
                         "divide", (long long)values, (long long)plan->G);
    plan->Dv = values / plan->G;
    return true;
}

static bool check_given_widths(struct mha_plan *plan, struct error *err)
{
    const int64_t value_dim[4] = { 0, plan->G, 0, 0 };

    plan->D = width(&plan->query);
    plan->Dv = width(&plan->value);
    return check_width(&plan->key, "/key", plan->D,
                       "as wide as the query's heads", err) &&
           shape_check(&plan->value, "/value", 4, value_dim,
                       "of as many heads as the key", err);
}

static bool check_heads(const struct mha_request *r, struct mha_plan *plan,
                        struct error *err)
{
    if (plan->layout == LAYOUT_NHLD)
        return check_given_heads(r, plan, err) &&
               check_given_widths(plan, err);
    if (!check_split_heads(r, plan, err))
        return false;
    return plan->weights.kind == WEIGHTS_NONE
               ? check_split_widths(r, plan, err)
               : check_projected_widths(plan, err);
}

/* Of an optional tensor of numbers, the shape. */
static bool check_optional(const struct named_tensor *t, const char *where,
                           int rank, const int64_t *dim, const char *words,
                           const struct mha_plan *plan, struct error *err)
{
    return !shape_is_given(t) ||
           (shape_check_numbers(t, where, plan->dtype, err) &&
            shape_check(&t->value, where, rank, dim, words, err));
}

static bool check_options(const struct mha_request *r, struct mha_plan *plan,
                          struct error *err)
{
    plan->T = plan->S + (plan->weights.bias_k.rank != 0) + r->add_zero_attn;
    if (!check_optional(&r->alibi_slopes, "/alibi_slopes", 1, &plan->H,
                        "one for each head", plan, err) ||
        !check_optional(&r->sinks, "/sinks", 1, &plan->H, "one for each head",
                        plan, err))
        return false;
    if (r->weights_top_k <= plan->T)
        return true;
    return error_set(err, ERR_RANGE, "/weights_top_k",
                     "weights_top_k is %lld, but a row of weights has %lld",
                     (long long)r->weights_top_k, (long long)plan->T);
}

/* BLAS counts columns, and numbers from one row to the next, in 31 bits; a row
 * of scores has a few numbers more. */
enum { EXTENT_MAX = INT32_MAX - 64 };

static bool check_extents(const struct mha_plan *plan, struct error *err)
{
    const struct weights *w = &plan->weights;
    double H = (double)plan->H, G = (double)plan->G;
    double columns[] = {
        (double)width(&plan->query), (double)width(&plan->key),
        (double)width(&plan->value), H * (double)plan->D, G * (double)plan->D,
        H * (double)plan->Dv,
        w->out.weight.rank != 0 ? (double)w->out.weight.dim[0] : 0,
    };
    double most = (double)(plan->L > plan->T ? plan->L : plan->T);

    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        if (plan->layout == LAYOUT_LNE)
            columns[i] *= (double)plan->N;
        if (columns[i] > most)
            most = columns[i];
    }
    if (most <= EXTENT_MAX)
        return true;
    return error_set(err, ERR_TOO_LARGE, "",
                     "the request has %.0f numbers from one row of a matrix to "
                     "the next, or along an axis, more than the %d that can be "
                     "counted", most, EXTENT_MAX);
}

static void size_output(struct mha_plan *plan)
{
    const struct tensor *out = &plan->weights.out.weight;

    plan->output_rank =
        out->rank != 0
            ? heads_dims(plan->layout, plan->N, plan->L, 1, out->dim[0],
                         plan->output_dim)
            : heads_dims(plan->layout, plan->N, plan->L, plan->H, plan->Dv,
                         plan->output_dim);
}

static bool check_compare(const struct mha_request *r,
                          const struct mha_plan *plan, struct error *err)
{
    bool unbatched = plan->layout == LAYOUT_LE;
    int64_t weights[4] = { plan->N };
    int rank = 1;

    if (!shape_check_flaw(r->compare_flaw, err))
        return false;
    if (!r->average_attn_weights)
        weights[rank++] = plan->H;
    weights[rank++] = plan->L;
    weights[rank++] = plan->T;
    return check_optional(&r->compare_output, "/compare_to/output",
                          plan->output_rank, plan->output_dim,
                          "as the output is", plan, err) &&
           check_optional(&r->compare_weights, "/compare_to/weights",
                          rank - unbatched, weights + unbatched,
                          "as the whole weights are", plan, err);
}

/* An exponential and its sum count as SOFTMAX_FLOPS for each score: subtract
 * the maximum, exp, add, divide, and the comparison that found the maximum. */
enum { SOFTMAX_FLOPS = 5 };

static double linear_flops(double rows, const struct linear *layer)
{
    return 2 * rows * (double)layer->weight.dim[0] *
           (double)layer->weight.dim[1];
}

static void count_flops(struct mha_plan *plan, bool key_is_value)
{
    const struct weights *w = &plan->weights;
    double rows = (double)plan->N * (double)plan->L;
    double keys = (double)plan->N * (double)plan->S;
    double scores = rows * (double)plan->H * (double)plan->T;

    if (w->kind != WEIGHTS_NONE)
        plan->flops[MHA_PROJECTIONS] =
            linear_flops(rows, &w->q) + linear_flops(keys, &w->k) +
            (key_is_value ? 0 : linear_flops(keys, &w->v));
    plan->flops[MHA_SIMILARITY] = 2 * scores * (double)plan->D;
    plan->flops[MHA_SOFTMAX] = SOFTMAX_FLOPS * scores;
    plan->flops[MHA_WEIGHTED_SUM] = 2 * scores * (double)plan->Dv;
    if (w->out.weight.rank != 0)
        plan->flops[MHA_OUTPUT_PROJECTION] = linear_flops(rows, &w->out);
}

static void count_cost(struct mha_plan *plan)
{
    struct mha_memory memory;
    struct mha_response response = { 0 };

    plan->arena_bytes = plan->scratch_bytes = INT64_MAX;
    if (mha_memory_take(plan, NULL, &memory, &response)) {
        struct attention a = mha_memory_attention(plan, &memory, &response);

        plan->arena_bytes = memory.bytes;
        plan->result_bytes = memory.result_bytes;
        plan->scratch_bytes = attention_scratch_bytes(&a);
    }
    count_flops(plan, memory.key_is_value);
}

bool mha_check(const struct mha_request *request, struct mha_plan *plan,
               struct error *err)
{
    *plan = (struct mha_plan){
        .request = request,
        .dtype = request->precision == PRECISION_F64 ? DTYPE_F64 : DTYPE_F32,
    };
    if (!check_inputs(request, plan, err) ||
        !check_weights(request, plan, err) ||
        !check_heads(request, plan, err) ||
        !check_options(request, plan, err) || !check_extents(plan, err))
        return false;
    size_output(plan);
    if (!mha_mask_check(plan, err) || !check_compare(request, plan, err))
        return false;
    count_cost(plan);
    return true;
}
