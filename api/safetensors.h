#ifndef API_SAFETENSORS_H
#define API_SAFETENSORS_H

#include "api/wire.h"

/* The safetensors format, from bytes in memory: a checkpoint's file or a
 * request's body.
 *
 *     8 bytes   length of the header, little-endian
 *     header    JSON, one member a tensor: {"dtype": "F32", "shape": [2, 3],
 *               "data_offsets": [0, 24]}, and "__metadata__": strings
 *     data      the tensors, row-major, little-endian, in any order
 *
 * The format's rules hold in full, so that what is accepted is described by
 * its header to the last byte: every byte of data belongs to one tensor. It
 * opens no file, converts no number, and gives no tensor a meaning. */

struct safetensors_tensor {
    const char *name;       /* valid UTF-8, NUL-terminated */
    const char *dtype_name; /* as the format spells it: "F8_E4M3" */
    enum dtype dtype;       /* DTYPE_COUNT: no dtype of this service */
    uint64_t rank;          /* 0 is a scalar */
    int64_t dim[TENSOR_MAX_RANK]; /* the first of them, 0 included */
    const uint8_t *data;    /* in the bytes that were read, not aligned */
    size_t bytes;           /* 0 when a dimension is 0 */
};

struct safetensors_pair {
    const char *key, *value; /* valid UTF-8, NUL-terminated */
};

/* Views of the bytes and of memory in the arena; both outlive it. */
struct safetensors {
    struct safetensors_tensor *tensor; /* in the order of their data */
    size_t count;
    struct safetensors_pair *metadata;
    size_t metadata_count;
};

/* Whatever the header says, takes time in proportion to it (but for sorting the
 * tensors) and at most 24 times its memory; of the data it reads nothing.
 * Errors, all with where "": ERR_JSON (the header is not JSON of this form, or
 * names something twice), ERR_REQUEST (lengths, dtypes, spans), ERR_TOO_LARGE
 * (too many names), ERR_OVERLOADED (memory). The sentence names the tensor or
 * the byte. */
bool safetensors_decode(struct bytes file, struct arena *arena,
                        struct safetensors *out, struct error *err);

/* How long the header says it is; 0 when that can't be. */
size_t safetensors_header_bytes(struct bytes file);

/* The value in `__metadata__`, or NULL. */
const char *safetensors_find_metadata(const struct safetensors *file,
                                      const char *key);

/* A view as the rest of the service has them. False for what has none: a dtype
 * of which it knows only the size, a scalar, a dimension of 0, too high a
 * rank. The view keeps the missing alignment. */
bool safetensors_view(const struct safetensors_tensor *tensor,
                      struct tensor *view);

#endif
