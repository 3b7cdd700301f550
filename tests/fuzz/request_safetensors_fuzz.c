/* Any bytes as a safetensors request. Properties:
 *   - nothing is read or written out of place (the sanitizer says), and reading
 *     takes no more memory than was asked for;
 *   - a refusal has a known code and UTF-8 text, an acceptance sound tensors;
 *   - the same bytes one further, where nothing is aligned and so nothing is used
 *     in place, are the same request. */

#include "tests/fuzz/request_property.h"
#include "tests/fuzz/safetensors_mutator.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { OPTIONS_BYTES = 64 * 1024 };

struct decoded {
    struct arena arena;
    struct request request;
    struct error err;
    uint8_t *block;
    bool ok;
};

static void decode(struct decoded *d, const uint8_t *data, size_t len,
                   size_t offset)
{
    struct bytes body;

    *d = (struct decoded){ .block = malloc(len + offset) };
    assert(d->block != NULL || len + offset == 0);
    if (len > 0)
        memcpy(d->block + offset, data, len);
    body = (struct bytes){ len == 0 ? NULL : d->block + offset, len };
    arena_init(&d->arena,
               (size_t)wire_safetensors.need(body, NULL) + OPTIONS_BYTES);
    d->ok = wire_safetensors.decode(body, NULL, NULL, &d->arena, &d->request,
                                    &d->err);
}

static void drop(struct decoded *d)
{
    arena_free(&d->arena);
    free(d->block);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct decoded first, moved;

    decode(&first, data, len, 0);
    decode(&moved, data, len, 1);
    assert(first.ok == moved.ok);
    if (first.ok) {
        check_tensors(&first.request.mha, &moved.request.mha);
    } else {
        assert(first.err.code != ERR_OVERLOADED);
        check_refusal(&first.err);
        assert(strcmp(first.err.text, moved.err.text) == 0);
    }
    drop(&moved);
    drop(&first);
    return 0;
}
