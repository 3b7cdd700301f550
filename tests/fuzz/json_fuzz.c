/* Any bytes as a JSON request. Properties:
 *   - nothing is read or written out of place (the sanitizer says);
 *   - a refusal has a known code and UTF-8 text, an acceptance has sound tensors;
 *   - what is accepted, jansson accepts, duplicates forbidden: two strict
 *     readers agree. But for the bare -Infinity, which is ours alone, and what
 *     jansson can't hold: numbers past a double's range, a NUL in a key;
 *   - with another level of number reading the same body gives the same. */

#include "api/json_text.h"
#include "api/number_array.h"
#include "api/wire.h"
#include "core/cpu.h"

#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

struct decoded {
    struct arena arena;
    struct request request;
    struct error err;
};

static bool decode(struct decoded *d, const uint8_t *data, size_t len)
{
    *d = (struct decoded){ 0 };
    arena_init(&d->arena, (size_t)1 << 28);
    return wire_json.decode((struct bytes){ data, len }, NULL, &d->arena,
                            &d->request, &d->err);
}

static void check_text(const char *text)
{
    const char *end = text + strlen(text);

    while (text < end) {
        size_t len = json_text_character(text, end);

        assert(len > 0);
        text += len;
    }
}

static void check_refusal(const struct error *err)
{
    assert(err->code == ERR_JSON || err->code == ERR_OVERLOADED ||
           (err->code >= ERR_UNKNOWN && err->code <= ERR_NOT_FINITE));
    assert((err->where[0] == '\0') ==
           (err->code == ERR_JSON || err->code == ERR_OVERLOADED));
    assert(err->text[0] != '\0');
    check_text(err->where);
    check_text(err->text);
}

static size_t element_bytes(const struct tensor *t)
{
    return (size_t)tensor_count(t) * dtype_size(t->dtype);
}

static void check_tensor(const struct named_tensor *t, bool may_be_infinite)
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

static void check_same(const struct named_tensor *a,
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

static void check_tensors(const struct mha_request *a,
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

/* The body with each -Infinity, in strings too, made "-1" and spaces. */
static void check_by_jansson(const uint8_t *data, size_t len)
{
    static const char token[] = "-Infinity", instead[] = "-1       ";
    char *copy = malloc(len + 1);
    json_error_t why;
    json_t *root;

    assert(copy != NULL);
    memcpy(copy, data, len);
    copy[len] = '\0';
    for (char *p = copy; (p = memmem(p, (size_t)(copy + len - p), token,
                                     strlen(token))) != NULL;)
        memcpy(p, instead, strlen(instead));
    root = json_loadb(copy, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL |
                                     JSON_DECODE_INT_AS_REAL, &why);
    assert(root != NULL ||
           json_error_code(&why) == json_error_numeric_overflow ||
           json_error_code(&why) == json_error_null_byte_in_key);
    json_decref(root);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct decoded first, again;

    assert(number_select(cpu_features(), "portable"));

    bool ok = decode(&first, data, len);

    assert(number_select(cpu_features(), NULL));
    assert(decode(&again, data, len) == ok);
    if (ok) {
        check_tensors(&first.request.mha, &again.request.mha);
        check_by_jansson(data, len);
    } else {
        check_refusal(&first.err);
        assert(strcmp(first.err.text, again.err.text) == 0);
    }
    arena_free(&again.arena);
    arena_free(&first.arena);
    return 0;
}
