/* Properties: the tensors of a file that is accepted tile its data exactly,
 * sized by shape and dtype, under different names, and reading it took memory
 * in proportion to it; a file that is refused is refused with a reason. */

#include "tests/fuzz/safetensors_mutator.h"
#include "tests/fuzz/safetensors_property.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { BYTES_PER_BYTE = 24, FIXED_BYTES = 64 * 1024 };

static void must(bool held)
{
    if (!held)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct bytes file = { data, len };
    struct safetensors read;
    struct error err = { 0 };
    struct arena arena;

    arena_init(&arena, BYTES_PER_BYTE * len + FIXED_BYTES);
    if (safetensors_decode(file, &arena, &read, &err)) {
        must(err.code == ERR_NONE && property_holds(file, &read));
    } else {
        must(err.code == ERR_JSON || err.code == ERR_REQUEST);
        must(err.text[0] != '\0' && err.where[0] == '\0');
    }
    arena_free(&arena);
    return 0;
}
