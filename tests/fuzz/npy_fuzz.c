/* Any bytes as an npy request: a URL's query string up to the first NUL, and the
 * body behind it. Properties:
 *   - nothing is read or written out of place (the sanitizer says), and reading
 *     takes no more memory than was asked for;
 *   - a refusal has a known code and UTF-8 text, an acceptance sound tensors;
 *   - an array that was taken, written as npy and read again, is the same. */

#include "api/npy.h"
#include "tests/fuzz/request_property.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { OPTIONS_BYTES = 64 * 1024 };

static struct bytes as_npy(const struct tensor *t)
{
    size_t bytes = element_bytes(t);
    char header[NPY_HEADER_BYTES];
    size_t len = npy_write_header(t, header);
    uint8_t *file = malloc(len + bytes);

    assert(file != NULL);
    memcpy(file, header, len);
    memcpy(file + len, t->data, bytes);
    return (struct bytes){ file, len + bytes };
}

static void check_round_trip(const struct named_tensor *first)
{
    struct bytes file = as_npy(&first->value);
    const char *query = first->value.dtype == DTYPE_F64 ? "precision=float64"
                                                        : NULL;
    struct error err = { ERR_NONE };
    struct request request;
    struct arena arena;

    arena_init(&arena, (size_t)wire_npy.need(file, query) + OPTIONS_BYTES);
    assert(wire_npy.decode(file, query, NULL, &arena, &request, &err));
    check_same(first, &request.mha.query);
    arena_free(&arena);
    free((void *)(uintptr_t)file.data);
}

static void check(struct bytes body, const char *query)
{
    struct error err = { ERR_NONE };
    struct request request;
    struct arena arena;

    arena_init(&arena, (size_t)wire_npy.need(body, query) + OPTIONS_BYTES);
    if (wire_npy.decode(body, query, NULL, &arena, &request, &err)) {
        check_tensors(&request.mha, &request.mha);
        if (request.mha.query.flaw == NULL)
            check_round_trip(&request.mha.query);
    } else {
        assert(err.code != ERR_OVERLOADED);
        check_refusal(&err);
    }
    arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    const uint8_t *end = len == 0 ? NULL : memchr(data, '\0', len);
    struct bytes body;
    char *query;

    if (end == NULL)
        return 0;
    query = strdup((const char *)data);
    assert(query != NULL);
    body.len = (size_t)(data + len - (end + 1));
    body.data = memcpy(malloc(body.len + 1), end + 1, body.len);
    check(body, query);
    free((void *)(uintptr_t)body.data);
    free(query);
    return 0;
}
