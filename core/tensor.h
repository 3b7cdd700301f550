#ifndef CORE_TENSOR_H
#define CORE_TENSOR_H

#include "core/error.h"

#include <stdint.h>

/* In the order of safetensors' names; dtype_find() reads them. Only F32 and
 * F64 (numbers), BOOL (masks) and I64 (indices) live beyond api/. */
enum dtype {
    DTYPE_F64,
    DTYPE_F32,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_I64,
    DTYPE_I32,
    DTYPE_I16,
    DTYPE_I8,
    DTYPE_U8,
    DTYPE_BOOL,
    DTYPE_COUNT
};

enum { TENSOR_MAX_RANK = 4 };

/* A view of an n-dimensional array. It owns nothing: the memory belongs to an
 * arena or to a model and outlives the view. Rank 0 means absent. */
struct tensor {
    void *data; /* the first element */
    enum dtype dtype;
    int rank;
    int64_t dim[TENSOR_MAX_RANK];  /* elements along each axis, each >= 1 */
    int64_t step[TENSOR_MAX_RANK]; /* elements to the next index; 0 repeats
                                      one value along the axis */
};

/* A tensor as a client sent it. What is wrong inside it (a ragged row, a
 * string among numbers) was found while reading but must be told in its turn,
 * so it waits in `flaw`; the view is then without meaning. */
struct named_tensor {
    const char *name; /* as it came on the wire, NUL-terminated */
    struct tensor value;
    const struct error *flaw; /* NULL: sound */
};

struct tensor_list {
    struct named_tensor *item;
    int64_t count;
};

size_t dtype_size(enum dtype dtype);       /* bytes per element */
const char *dtype_name(enum dtype dtype);  /* "BF16" */
bool dtype_find(const char *name, enum dtype *dtype);

/* The product of `rank` dimensions, false when a dimension is < 1 or the
 * product times 8 (the largest element) would pass INT64_MAX. Every size in
 * the service goes through here. */
bool tensor_count_dims(const int64_t *dim, int rank, int64_t *count);

/* Elements of a checked tensor, and the bytes they take packed; 0 when absent. */
int64_t tensor_count(const struct tensor *t);
size_t tensor_bytes(const struct tensor *t);

/* A packed row-major view of `data`. The dimensions were checked. */
struct tensor tensor_packed(void *data, enum dtype dtype, int rank,
                            const int64_t *dim);

/* True when the last axis is contiguous and every other step is that of a
 * packed row-major array. */
bool tensor_is_packed(const struct tensor *t);

/* "(2, 3, 4)"; what does not fit is cut. Returns out. */
char *tensor_shape(const struct tensor *t, char *out, size_t size);
enum { TENSOR_SHAPE_BYTES = 96 };

/* Converts `count` little-endian elements of any dtype (unaligned is fine) to
 * `wanted`, F32 or F64, at dst (aligned), rounding to nearest, ties to even.
 * BOOL becomes 0 and 1. src and dst do not overlap. */
void tensor_convert(const void *src, enum dtype dtype, int64_t count,
                    enum dtype wanted, void *dst);

/* Rounds in place to bfloat16's 8 bits of mantissa, ties to even; a float that
 * would round up to infinity stays the largest bfloat16. */
void tensor_round_bf16(float *values, int64_t count);

#endif
