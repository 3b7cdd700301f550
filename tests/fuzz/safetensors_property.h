#ifndef TESTS_FUZZ_SAFETENSORS_PROPERTY_H
#define TESTS_FUZZ_SAFETENSORS_PROPERTY_H

#include "api/safetensors.h"

#include <string.h>

/* What holds of every file that safetensors_decode() accepts, checked without
 * its help; the fuzz target and the unit test share it. */

/* Bits of an element, by the digits in the dtype's name; BOOL has none. */
static inline unsigned property_bits(const char *dtype)
{
    unsigned bits = 0;

    for (dtype += strcspn(dtype, "0123456789");
         *dtype >= '0' && *dtype <= '9'; dtype++)
        bits = bits * 10 + (unsigned)(*dtype - '0');
    return bits == 0 ? 8 : bits;
}

static inline bool property_size(const struct safetensors_tensor *t)
{
    unsigned __int128 bits = property_bits(t->dtype_name);

    if (t->rank > TENSOR_MAX_RANK)
        return true; /* the other dimensions were not kept */
    for (uint64_t i = 0; i < t->rank; i++)
        bits *= (uint64_t)t->dim[i];
    return bits == (unsigned __int128)t->bytes * 8;
}

/* Tensors tile what follows the header, in order, sized by their shapes, each
 * under a name of its own. */
static inline bool property_holds(struct bytes file,
                                  const struct safetensors *read)
{
    uint64_t header;

    memcpy(&header, file.data, sizeof header);

    const uint8_t *next = file.data + 8 + header;

    for (size_t i = 0; i < read->count; i++) {
        const struct safetensors_tensor *t = &read->tensor[i];

        if (t->data != next || !property_size(t))
            return false;
        next += t->bytes;
        for (size_t j = 0; j < i && i < 100; j++) {
            if (strcmp(read->tensor[j].name, t->name) == 0)
                return false;
        }
    }
    return next == file.data + file.len;
}

#endif
