#ifndef CORE_MHA_MASK_H
#define CORE_MHA_MASK_H

#include "core/mask.h"
#include "core/mha.h"

/* From the client's masks to core/mask.h's: which shape each may have by the
 * request's conventions, and what its values mean. */

/* Shapes and values of key_padding_mask, attention_mask and attn_mask, in this
 * order. The plan's sizes and layout are set. */
bool mha_mask_check(const struct mha_plan *plan, struct error *err);

/* Does any key_padding_mask or attention_mask forbid; does one add a finite
 * number? Then mha_mask_resolve() needs room. */
bool mha_mask_hides(const struct mha_plan *plan);
bool mha_mask_adds(const struct mha_plan *plan);

/* All masks as one. `key_hidden` (N, S) bytes and `key_bias` (N, S) numbers are
 * filled; NULL where the two functions above said no. Reads the request's
 * tensors from then on. */
struct mask mha_mask_resolve(const struct mha_plan *plan, uint8_t *key_hidden,
                             void *key_bias);

#endif
