#include "core/mha_mask.h"

#include "core/shape.h"

#include <math.h>
#include <stdio.h>

static double at(const struct tensor *t, int64_t i)
{
    switch (t->dtype) {
    case DTYPE_BOOL: return ((const uint8_t *)t->data)[i];
    case DTYPE_F64: return ((const double *)t->data)[i];
    default: return (double)((const float *)t->data)[i];
    }
}

static bool check_zeros_and_ones(const struct tensor *t, const char *where,
                                 struct error *err)
{
    int64_t count = tensor_count(t), S = t->dim[t->rank - 1];

    for (int64_t i = 0; t->dtype != DTYPE_BOOL && i < count; i++) {
        char row[24] = "";
        double x = at(t, i);

        if (x == 0 || x == 1)
            continue;
        if (t->rank == 2)
            snprintf(row, sizeof row, "[%lld]", (long long)(i / S));
        return error_set(err, ERR_RANGE, where,
                         "%s%s[%lld] is %.9g, and a mask of numbers takes 0 "
                         "and 1 alone", where + 1, row, (long long)(i % S), x);
    }
    return true;
}

/* key_padding_mask and attention_mask: (N, S), or (S) when unbatched. */
static bool check_key_mask(const struct mha_plan *plan,
                           const struct named_tensor *t, const char *where,
                           struct error *err)
{
    bool unbatched = plan->layout == LAYOUT_LE;
    int64_t dim[] = { plan->N, plan->S };

    if (!shape_is_given(t))
        return true;
    return shape_check_mask(t, where, plan->dtype, err) &&
           shape_check(&t->value, where, unbatched ? 1 : 2, dim + unbatched,
                       unbatched ? "(S,), as the input is unbatched"
                                 : "(N, S), batch by keys", err) &&
           check_zeros_and_ones(&t->value, where, err);
}

/* Whether an attn_mask of rank 3 has a first axis of batches, of heads, or of
 * both in one, (N*H). */
static const struct convention {
    bool true_hides, batches, heads, both;
    enum alignment alignment;
    const char *rank3; /* in words */
} conventions[] = {
    [CONVENTIONS_TORCH_MHA] = { true, true, false, true, ALIGNMENT_TOP_LEFT,
                                "(N*H, L, S) or (N, L, S)" },
    [CONVENTIONS_TORCH_SDPA] = { false, false, true, false,
                                 ALIGNMENT_TOP_LEFT, "(H, L, S)" },
    [CONVENTIONS_ONNX] = { false, false, true, false, ALIGNMENT_TOP_LEFT,
                           "(H, L, S)" },
    [CONVENTIONS_JAX] = { false, false, true, false, ALIGNMENT_TOP_LEFT,
                          "(H, L, S)" },
    [CONVENTIONS_KERAS] = { false, true, false, false, ALIGNMENT_TOP_LEFT,
                            "(N, L, S)" },
    [CONVENTIONS_FLASH_ATTN] = { false, false, true, false,
                                 ALIGNMENT_BOTTOM_RIGHT, "(H, L, S)" },
};

static const struct convention *convention(const struct mha_plan *plan)
{
    return &conventions[plan->request->conventions];
}

static bool first_axis_fits(const struct mha_plan *plan, int64_t first)
{
    const struct convention *c = convention(plan);

    return (c->both && first % plan->N == 0 && first / plan->N == plan->H) ||
           (c->batches && first == plan->N) || (c->heads && first == plan->H);
}

static bool axes_fit(const struct mha_plan *plan, const struct tensor *t)
{
    const int64_t full[4] = { plan->N, plan->H, plan->L, plan->S };

    for (int i = 0; i < 4; i++) {
        if (t->dim[i] != 1 && t->dim[i] != full[i])
            return false;
    }
    return true;
}

static bool check_attn_mask(const struct mha_plan *plan, struct error *err)
{
    const struct named_tensor *mask = &plan->request->attn_mask;
    const struct tensor *t = &mask->value;
    const int64_t rows[3] = { 0, plan->L, plan->S };
    bool fits = false;

    if (!shape_is_given(mask))
        return true;
    if (!shape_check_mask(mask, "/attn_mask", plan->dtype, err))
        return false;
    if (t->rank == 2)
        fits = shape_fits(t, 2, rows + 1);
    else if (t->rank == 3)
        fits = shape_fits(t, 3, rows) && first_axis_fits(plan, t->dim[0]);
    else if (t->rank == 4)
        fits = axes_fit(plan, t);
    if (fits)
        return true;

    char shape[TENSOR_SHAPE_BYTES];

    return error_set(
        err, ERR_SHAPE, "/attn_mask",
        "attn_mask has shape %s; with N = %lld, H = %lld, L = %lld, S = %lld "
        "it must be (L, S), %s or (N, H, L, S) with any axis 1",
        tensor_shape(t, shape, sizeof shape), (long long)plan->N,
        (long long)plan->H, (long long)plan->L, (long long)plan->S,
        convention(plan)->rank3);
}

/* Finite in double but not in float32: below, that is minus infinity. */
static double filter_value(const struct mha_plan *plan)
{
    double value = plan->request->mask_filter_value;

    return plan->dtype == DTYPE_F64 ? value : (double)(float)value;
}

static bool check_filter_value(const struct mha_plan *plan, struct error *err)
{
    double value = filter_value(plan);

    if (value <= 0 || isfinite(value))
        return true;
    return error_set(err, ERR_RANGE, "/mask_filter_value",
                     "mask_filter_value is %g, which does not fit float32",
                     plan->request->mask_filter_value);
}

bool mha_mask_check(const struct mha_plan *plan, struct error *err)
{
    const struct mha_request *r = plan->request;

    return check_key_mask(plan, &r->key_padding_mask, "/key_padding_mask",
                          err) &&
           check_key_mask(plan, &r->attention_mask, "/attention_mask", err) &&
           check_filter_value(plan, err) && check_attn_mask(plan, err);
}

bool mha_mask_hides(const struct mha_plan *plan)
{
    const struct mha_request *r = plan->request;

    return r->key_padding_mask.value.rank != 0 ||
           (r->attention_mask.value.rank != 0 && isinf(filter_value(plan)));
}

bool mha_mask_adds(const struct mha_plan *plan)
{
    return plan->request->attention_mask.value.rank != 0 &&
           !isinf(filter_value(plan));
}

static void hide_keys(const struct mha_plan *plan, uint8_t *hidden)
{
    const struct tensor *padding = &plan->request->key_padding_mask.value;
    const struct tensor *attend = &plan->request->attention_mask.value;
    bool attend_hides = attend->rank != 0 && !mha_mask_adds(plan);

    for (int64_t i = 0; i < plan->N * plan->S; i++)
        hidden[i] = (padding->rank != 0 && at(padding, i) != 0) ||
                    (attend_hides && at(attend, i) == 0);
}

static void bias_keys(const struct mha_plan *plan, void *bias)
{
    const struct tensor *attend = &plan->request->attention_mask.value;
    double value = filter_value(plan);

    for (int64_t i = 0; i < plan->N * plan->S; i++) {
        double x = at(attend, i) == 0 ? value : 0;

        if (plan->dtype == DTYPE_F64)
            ((double *)bias)[i] = x;
        else
            ((float *)bias)[i] = (float)x;
    }
}

/* (N, H, L, S) over an attn_mask of any rank; its shape was checked. */
static struct tensor spread(const struct mha_plan *plan,
                            const struct tensor *t)
{
    int64_t rows = t->dim[t->rank - 2], keys = t->dim[t->rank - 1];
    struct tensor view = {
        .data = t->data,
        .dtype = t->dtype,
        .rank = 4,
        .dim = { plan->N, plan->H, plan->L, plan->S },
        .step = { 0, 0, rows == 1 ? 0 : keys, keys == 1 ? 0 : 1 },
    };
    int64_t matrix = rows * keys;

    if (t->rank == 4) {
        view.step[0] = t->dim[0] == 1 ? 0 : t->dim[1] * matrix;
        view.step[1] = t->dim[1] == 1 ? 0 : matrix;
    } else if (t->rank == 3 && convention(plan)->heads) {
        view.step[1] = matrix;
    } else if (t->rank == 3) {
        int64_t heads = t->dim[0] / plan->N; /* H, or 1 for all of them */

        view.step[0] = heads * matrix;
        view.step[1] = heads == 1 ? 0 : matrix;
    }
    return view;
}

/* The window as the keys it lets be seen, and causality with it. What reaches
 * past every key is unlimited, so that no sum of it overflows. */
static void set_window(const struct mha_plan *plan, struct mask *mask)
{
    const struct mha_request *r = plan->request;
    int64_t all = plan->L + plan->S;

    mask->left = mask->right = INT64_MAX;
    if (r->has_window && r->window[0] >= 0 && r->window[0] < all)
        mask->left = r->window[0];
    if (r->has_window && r->window[1] >= 0 && r->window[1] < all)
        mask->right = r->window[1];
    if (r->is_causal)
        mask->right = 0;
}

struct mask mha_mask_resolve(const struct mha_plan *plan, uint8_t *key_hidden,
                             void *key_bias)
{
    const struct mha_request *r = plan->request;
    const struct convention *c = convention(plan);
    enum alignment alignment = r->causal_alignment == ALIGNMENT_BY_CONVENTION
                                   ? c->alignment
                                   : r->causal_alignment;
    struct mask mask = {
        .S = plan->S,
        .key_hidden = key_hidden,
        .key_bias = key_bias,
        .hides_when = c->true_hides,
        .shift = alignment == ALIGNMENT_BOTTOM_RIGHT ? plan->S - plan->L : 0,
    };

    if (key_hidden != NULL)
        hide_keys(plan, key_hidden);
    if (key_bias != NULL)
        bias_keys(plan, key_bias);
    if (r->attn_mask.value.rank != 0)
        *(r->attn_mask.value.dtype == DTYPE_BOOL ? &mask.hidden
                                                 : &mask.bias) =
            spread(plan, &r->attn_mask.value);
    set_window(plan, &mask);
    return mask;
}
