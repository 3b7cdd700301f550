#ifndef TESTS_FUZZ_REQUEST_PROPERTY_H
#define TESTS_FUZZ_REQUEST_PROPERTY_H

#include "api/json_text.h"
#include "api/wire.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* What holds of every request that a wire format decodes, and of every refusal,
 * whatever the bytes were. */

static inline void check_text(const char *text)
{
    const char *end = text + strlen(text);

    while (text < end) {
        size_t len = json_text_character(text, end);

        assert(len > 0);
        text += len;
    }
}

static inline void check_refusal(const struct error *err)
{
    bool whole = err->code == ERR_JSON || err->code == ERR_REQUEST ||
                 err->code == ERR_OVERLOADED || err->code == ERR_TOO_LARGE;

    assert(whole ||
           (err->code >= ERR_UNKNOWN && err->code <= ERR_NOT_FINITE));
    assert((err->where[0] == '\0') == whole);
    assert(err->text[0] != '\0');
    check_text(err->where);
    check_text(err->text);
}

static inline size_t element_bytes(const struct tensor *t)
{
    return (size_t)tensor_count(t) * dtype_size(t->dtype);
}

static inline void check_tensor(const struct named_tensor *t, bool may_be_infinite)
{
    if (t->flaw != NULL) {
        check_refusal(t->flaw);
        assert(t->value.rank == 0);
        return;
    }
    for (int64_t i = 0; i < tensor_count(&t->value); i++) {
        double x = t->value.dtype == DTYPE_F64
                       ? ((const double *)t->value.data)[i]
                   : t->value.dtype == DTYPE_F32
                       ? (double)((const float *)t->value.data)[i]
                       : ((const uint8_t *)t->value.data)[i];

        assert(t->value.dtype != DTYPE_BOOL || x == 0 || x == 1);
        assert(isfinite(x) || (may_be_infinite && x == -INFINITY));
    }
}

static inline void check_same(const struct named_tensor *a,
                       const struct named_tensor *b)
{
    assert((a->flaw == NULL) == (b->flaw == NULL));
    assert(a->flaw == NULL || strcmp(a->flaw->text, b->flaw->text) == 0);
    assert(a->value.rank == b->value.rank && a->value.dtype == b->value.dtype);
    assert(memcmp(a->value.dim, b->value.dim, sizeof a->value.dim) == 0);
    if (a->value.rank > 0)
        assert(memcmp(a->value.data, b->value.data,
                      element_bytes(&a->value)) == 0);
}

static inline void check_tensors(const struct mha_request *a,
                          const struct mha_request *b)
{
    check_tensor(&a->query, false);
    check_tensor(&a->key, false);
    check_tensor(&a->value, false);
    check_tensor(&a->sinks, false);
    check_tensor(&a->alibi_slopes, false);
    check_tensor(&a->key_padding_mask, false);
    check_tensor(&a->attention_mask, false);
    check_tensor(&a->attn_mask, true);
    check_tensor(&a->compare_output, false);
    check_tensor(&a->compare_weights, false);
    check_same(&a->query, &b->query);
    check_same(&a->attn_mask, &b->attn_mask);
    assert(a->state_dict.count == b->state_dict.count);
    for (int64_t i = 0; i < a->state_dict.count; i++) {
        check_tensor(&a->state_dict.item[i], false);
        check_same(&a->state_dict.item[i], &b->state_dict.item[i]);
    }
}

#endif
