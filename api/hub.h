#ifndef API_HUB_H
#define API_HUB_H

#include "api/safetensors.h"

/* What a checkpoint says of itself beside its tensors, in the files that
 * Hugging Face's libraries write: how many heads it has, and which files are
 * its parts. From bytes, without looking at any file. */

/* The number of heads in a config.json: num_attention_heads, n_head (GPT-2) or
 * n_heads (DistilBERT); 0 when it has none. Errors, with where "": ERR_JSON (no
 * JSON object), ERR_TYPE and ERR_RANGE (no number of heads), ERR_CONFLICT (two
 * that differ), ERR_OVERLOADED (arena). */
bool hub_config_heads(struct bytes json, struct arena *arena, int64_t *heads,
                      struct error *err);

/* The same from num_heads in a file's `__metadata__`. */
bool hub_metadata_heads(const struct safetensors *file, int64_t *heads,
                        struct error *err);

/* The file names in the weight_map of a model.safetensors.index.json, each once,
 * sorted; none leads to another folder. Errors: ERR_JSON, ERR_RANGE (a name that
 * no file beside it can have), ERR_OVERLOADED. */
bool hub_index_files(struct bytes json, struct arena *arena,
                     const char ***names, size_t *count, struct error *err);

#endif
