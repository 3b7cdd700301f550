#ifndef API_CHECKPOINT_H
#define API_CHECKPOINT_H

#include "api/safetensors.h"

/* What a checkpoint's tensors are to attention, by their names alone: which
 * module they belong to, which of its layers, and what they would be called in
 * a state_dict of the contract. It reads no numbers, and whether the shapes fit
 * each other is for core/weights.h to say.
 *
 * Layers are numbered so that layer N is the attention of N in the names:
 *   - `multihead_attn`, the second attention of torch's decoder layers, comes
 *     after all others: a decoder of six layers has its self-attentions as 0 to
 *     5 and attends to the encoder in 6 to 11;
 *   - modules under several prefixes follow each other by prefix, compared as
 *     text with numbers in it ("h.2." before "h.10."). */

enum checkpoint_kind {
    CHECKPOINT_BERT,
    CHECKPOINT_DISTILBERT,
    CHECKPOINT_TORCH,
    CHECKPOINT_GPT2,
    CHECKPOINT_KINDS
};

/* "bert", "torch", "gpt2": the family as the contract names it. */
const char *checkpoint_kind_name(enum checkpoint_kind kind);

/* Whether the module itself ends in its output projection. */
bool checkpoint_kind_projects(enum checkpoint_kind kind);

struct checkpoint_match {
    enum checkpoint_kind kind;
    const char *role;  /* its name in a state_dict: "query.weight" */
    bool telling;      /* only attention has a tensor of this name */
    bool transposed;   /* stored (in, out), as GPT-2's Conv1D does */
    bool second;       /* of `multihead_attn` */
    size_t path_len;   /* bytes of the name before the role, the dot included */
    size_t prefix_len; /* of these, before the part that numbers the layers */
    int64_t number;    /* of the layer in the name, -1: it has none */
};

/* False for a name that is none of attention's. */
bool checkpoint_match(const char *name, struct checkpoint_match *match);

struct checkpoint_layer {
    const char *path; /* of the module: "encoder.layer.3.attention", or "" */
    struct checkpoint_match match; /* of its first tensor */
    /* Under their names in a state_dict, in the file's dtype (F32, F16, BF16 or
     * F64), unaligned; steps tell a transposed one. */
    struct tensor_list tensors;
};

struct checkpoint {
    enum checkpoint_kind kind;
    struct checkpoint_layer *layer;
    int64_t layers;  /* at least 1 */
    int64_t ignored; /* tensors that are no part of a layer */
};

/* The layers of the `count` files of one model. Views of the files; names and
 * lists from `arena`. Errors, with where "": ERR_MISSING (nothing is recognised,
 * a number is missing among the layers), ERR_CONFLICT (modules of two kinds, a
 * tensor in two files), ERR_TYPE (a dtype or rank that no weight has),
 * ERR_OVERLOADED. */
bool checkpoint_read(const struct safetensors *files, size_t count,
                     struct arena *arena, struct checkpoint *out,
                     struct error *err);

/* Converts a tensor of a layer to packed F32 or F64 numbers. */
void checkpoint_convert(const struct tensor *tensor, enum dtype dtype,
                        void *out);

#endif
