#ifndef CORE_MHA_H
#define CORE_MHA_H

#include "core/arena.h"
#include "core/compare.h"
#include "core/error.h"
#include "core/heads.h"
#include "core/parallel.h"
#include "core/tensor.h"
#include "core/weights.h"

struct kernels;

/* Multi-head attention as a module: project, split heads, attend, merge,
 * project.
 *
 *     output = merge(softmax(scale . Q K^T + masks) V) Wo^T + bo
 *
 * Letters as in the contract: N batch, L queries, S keys, T = S plus the keys
 * appended by bias_k and add_zero_attn, E model width, H query heads, G key
 * heads (query head h reads key head h*G/H), D head width, Dv value's head
 * width. It knows shapes and numbers; it never sees JSON or HTTP, though its
 * errors name the client's fields. */

enum precision {
    PRECISION_F32,  /* tensors are F32 */
    PRECISION_F64,  /* tensors are F64, computed in double throughout */
    PRECISION_BF16, /* tensors are F32; query, key, value and weights are
                       rounded to bfloat16, sums stay float32 */
};

enum alignment { ALIGNMENT_BY_CONVENTION, ALIGNMENT_TOP_LEFT,
                 ALIGNMENT_BOTTOM_RIGHT };

enum conventions { CONVENTIONS_TORCH_MHA, CONVENTIONS_TORCH_SDPA,
                   CONVENTIONS_ONNX, CONVENTIONS_JAX, CONVENTIONS_KERAS,
                   CONVENTIONS_FLASH_ATTN };

/* Members of mha_request.returns. */
enum mha_return {
    MHA_RETURN_Q = 1,
    MHA_RETURN_K = 2,
    MHA_RETURN_V = 4,
    MHA_RETURN_SCORES = 8,
    MHA_RETURN_CONTEXT = 16,
    MHA_RETURN_LSE = 32,
};

/* A layer of a model that is held beyond requests. */
struct mha_model {
    const struct weights *weights; /* of the request's precision, arranged, if
                                      they are, for the kernels that will run;
                                      NULL: none */
    int64_t num_heads;             /* that the model says; 0: it says none */
    bool projects; /* the module itself ends in its output projection */
};

/* One request, option by option as the contract names them. Number tensors are
 * packed, F32 or F64 by `precision`, finite unless they are attn_mask; masks
 * may be BOOL instead (one byte, 0 or 1). Absent tensors have rank 0 and no
 * flaw. All memory stays the caller's and must live as long as the response. */
struct mha_request {
    struct named_tensor query; /* its name is "query" or "hidden_states" */
    struct named_tensor key, value;
    enum layout layout;
    enum precision precision;
    int64_t num_heads;    /* 0: not given */
    int64_t num_kv_heads; /* 0: not given */

    bool has_state_dict;
    const struct error *state_dict_flaw; /* it is no object, and so on */
    struct tensor_list state_dict;

    /* `model`: weights that the caller holds, instead of a state_dict. */
    bool has_model;
    const struct error *model_flaw; /* it has no such layer, and so on */
    struct mha_model model;
    bool has_output_projection;
    bool output_projection;

    bool has_scale;
    double scale;
    double softcap; /* 0: none */
    struct named_tensor alibi_slopes, sinks;
    bool add_zero_attn;
    double dropout_p;
    uint64_t seed;

    struct named_tensor key_padding_mask, attention_mask, attn_mask;
    double mask_filter_value; /* -INFINITY unless given */
    bool is_causal;
    bool has_window;
    int64_t window[2]; /* left, right; -1: unlimited */
    enum alignment causal_alignment;
    enum conventions conventions;

    bool need_weights, average_attn_weights;
    int64_t weights_top_k; /* 0: whole rows */
    unsigned returns;      /* enum mha_return */
    const struct error *compare_flaw;
    struct named_tensor compare_output, compare_weights;
};

/* A request without options: the contract's defaults. */
void mha_request_init(struct mha_request *request);

enum mha_step { MHA_PROJECTIONS, MHA_SIMILARITY, MHA_SOFTMAX,
                MHA_WEIGHTED_SUM, MHA_OUTPUT_PROJECTION, MHA_STEPS };

/* A request that was found sound: every size resolved. Made by mha_check(),
 * which neither allocates nor computes, so that a refusal is cheap and comes
 * before any memory is taken. */
struct mha_plan {
    const struct mha_request *request;
    enum layout layout; /* never LAYOUT_BY_RANK */
    enum dtype dtype;   /* of all numbers: F32 or F64 */
    int64_t N, L, S, T, E, H, G, D, Dv;
    struct tensor query, key, value; /* the client's, defaults filled in */
    struct weights weights;          /* views of the state_dict or model */
    int64_t output_dim[4];
    int output_rank;
    double flops[MHA_STEPS]; /* by formula, as `profile` reports them */
    /* The most that mha_run() takes from its arena, how much less where the
     * caller has given all results their memory, and the most from the scratch
     * of each thread, in bytes; saturated. */
    int64_t arena_bytes, result_bytes, scratch_bytes;
};

/* Reports the first thing wrong in the contract's order: query, key, value;
 * state_dict or model; head counts and widths (weights_top_k among them);
 * extents that the kernels can't count (ERR_TOO_LARGE, where ""); masks;
 * compare_to. Errors: ERR_SHAPE, ERR_RANGE, ERR_CONFLICT, ERR_MISSING,
 * ERR_UNKNOWN, ERR_TYPE, ERR_NOT_FOUND, ERR_TOO_LARGE, or a tensor's own flaw.
 */
bool mha_check(const struct mha_request *request, struct mha_plan *plan,
               struct error *err);

/* What mha_run() computed; rank 0 marks what was not asked for. Numbers are
 * F32, or F64 in PRECISION_F64; indices I64. All packed, in the client's layout
 * and without N when the request was unbatched. */
struct mha_response {
    struct tensor output;
    struct tensor weights;                          /* whole rows, or ... */
    struct tensor top_indices, top_values, top_kept; /* ... the k largest */
    struct tensor q, k, v, scores, context, lse;
    int64_t fully_masked_queries; /* of N*H*L */
    struct comparison compare_output, compare_weights;
    int64_t step_ns[MHA_STEPS]; /* summed over threads */
};

/* The tensors that mha_run() will make, without their memory. The caller may
 * point the data of any to memory of its own, aligned for the dtype. */
void mha_shape(const struct mha_plan *plan, struct mha_response *response);

/* Computes what was planned into the tensors of `response` that have memory, as
 * after mha_shape(), but for `context`; a response of zeros is fine as well. The
 * rest is taken from `arena`, temporaries of the pieces from each thread's
 * scratch. Errors: ERR_NOT_FINITE (a result that is not finite, where ""),
 * ERR_OVERLOADED (memory). Thread safe: the request and the plan are only read. */
bool mha_run(const struct mha_plan *plan, const struct kernels *kernels,
             struct parallel *parallel, struct arena *arena,
             struct mha_response *response, struct error *err);

#endif
