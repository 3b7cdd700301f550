#ifndef CORE_MHA_MEMORY_H
#define CORE_MHA_MEMORY_H

#include "core/attention.h"
#include "core/mha.h"

/* Every array that a request needs, in one list that is read twice: by
 * mha_check() to add up bytes and by mha_run() to take them. So what is
 * promised and what is taken cannot drift apart. */

struct mha_memory {
    /* Rounded to bfloat16: the inputs of projections, in the client's layout,
     * and the weights unless they are; packed rows of floats or, in half of the
     * room, of pairs. Or the inputs split, rows of pieces, for weights that have
     * some. Rank 0: the plan's own are used. */
    struct tensor query, key, value;
    struct tensor q_weight, k_weight, v_weight, out_weight;

    /* Rows of Q, K and V in the client's layout, K and V with T of them. Rank
     * 0 where the client's tensors are read as they are. */
    struct tensor q, k, v;
    bool key_is_value; /* one array is K and V */

    struct tensor key_hidden; /* BOOL (N, S), or rank 0 */
    struct tensor key_bias;   /* (N, S), or rank 0 */
    struct tensor context;    /* the output itself where nothing follows it */
    struct tensor context_pieces; /* it split, for the output's projection */
    struct tensor weights;    /* whole rows, whoever wants them */
    struct tensor mean_parts; /* see attention.h */

    /* In the arena; saturated. Of them, those of results. */
    int64_t bytes, result_bytes;
};

/* With `arena` NULL nothing is taken: data stays NULL and bytes are counted.
 * Fills the tensors of `response` as well, zero or as mha_shape() left them.
 * False when the arena ran out. */
bool mha_memory_take(const struct mha_plan *plan, struct arena *arena,
                     struct mha_memory *memory,
                     struct mha_response *response);

/* The attention over these arrays, but for its mask and its clocks. */
struct attention mha_memory_attention(const struct mha_plan *plan,
                                      const struct mha_memory *memory,
                                      const struct mha_response *response);

#endif
