#ifndef CORE_WEIGHTS_H
#define CORE_WEIGHTS_H

#include "core/arena.h"
#include "core/linear.h"
#include "core/tensor.h"

struct kernels;

/* The projections of one attention layer: tensors under the names a checkpoint
 * has them, checked and sorted into places. It reads names and shapes and
 * never a number; everything in it is a read-only view of the tensors it was
 * made from, so any number of threads may use one at once. */

enum weights_kind {
    WEIGHTS_NONE,   /* no projections: Q, K, V are the inputs themselves */
    WEIGHTS_PACKED, /* torch.nn.MultiheadAttention with in_proj_weight */
    WEIGHTS_TORCH,  /* ... with q_proj_weight, k_proj_weight, v_proj_weight */
    WEIGHTS_BERT,   /* BertSelfAttention */
};

struct weights {
    enum weights_kind kind;
    struct linear q, k, v; /* (H*D, .), (G*D, .), (G*Dv, .) */
    bool shared_kv;        /* v is k: one layer for both */
    struct linear out;     /* (., H*Dv); weight of rank 0: none is applied */
    struct tensor bias_k;  /* (1, 1, G*D): a key that every query sees, ... */
    struct tensor bias_v;  /* (1, 1, G*Dv) ... and its value; rank 0: none */
    bool rounded;          /* every weight is a bfloat16 already */
};

/* What the weights must fit. H and G are at least 1; where one of them divides
 * nothing, what depends on it is left for the caller to refuse. */
struct weights_widths {
    int64_t query, key, value; /* numbers in a row of the inputs */
    int64_t H, G;
};

/* Checks names first, then that nothing lacks its partner, then each tensor
 * in the order of the contract. `dtype` is what every tensor has to be. Errors:
 * ERR_UNKNOWN, ERR_CONFLICT, ERR_MISSING, ERR_SHAPE, ERR_TYPE, or a tensor's
 * own flaw, with `where` below /state_dict.
 *
 * A width of the key or the value that one weight for several inputs cannot
 * have (WEIGHTS_PACKED, shared_kv) is no fault of the weights: the caller
 * compares k.weight and v.weight with its inputs. */
bool weights_read(const struct tensor_list *list, enum dtype dtype,
                  const struct weights_widths *widths, struct weights *weights,
                  struct error *err);

/* A copy to keep, in `arena`: it owes nothing to what it was made from, and its
 * numbers are of `dtype` (F32 or F64). With `kernels` the weights of F32 are
 * arranged as these multiply them, so that who packs once at start-up packs
 * nothing for each request; NULL arranges nothing, and may be given only where
 * nothing in `from` is arranged. With `round` the weights, not the biases, are
 * rounded to bfloat16 (F32 only), those of q, k and v to pairs where `kernels`
 * multiply these; `from` has none. False when memory ran out. */
bool weights_pack(const struct weights *from, enum dtype dtype, bool round,
                  const struct kernels *kernels, struct arena *arena,
                  struct weights *packed);

/* `split` becomes `from`, whose weights are arranged floats and must live as
 * long, with pieces in `arena` for the projections of `kernels`, which split
 * rows. False when memory ran out. */
bool weights_split(const struct weights *from, const struct kernels *kernels,
                   struct arena *arena, struct weights *split);

#endif
