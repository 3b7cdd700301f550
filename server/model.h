#ifndef SERVER_MODEL_H
#define SERVER_MODEL_H

#include "api/checkpoint.h"
#include "core/mha.h"
#include "server/budget.h"
#include "server/digest.h"

#include <pthread.h>
#include <stdatomic.h>

/* One version of a model: the attention layers of a checkpoint, ready to run.
 *
 * It is made from bytes and keeps none of them: numbers are converted and
 * packed once, so that a request finds its weights in the layout in which they
 * are multiplied. After that it never changes, but for the second copies below,
 * and any number of requests use it at once. Each of them holds a reference; a
 * version that was replaced is freed with its last request.
 *
 * Memory: 4 bytes for each number in a recognised tensor. The first request of
 * `precision` bfloat16 adds 4 for its layer; where kernels multiply pairs 2,
 * and 4 for the output's projection; where they do not none if the file is
 * BF16. Of float64 it adds 8, which a file of F64 has from the beginning. Where
 * kernels split floats, the first request of float32 adds 6. */

enum { MODEL_NAME_BYTES = 65 };

/* A layer's copies: one a precision, and that of floats with pieces. */
enum { MODEL_SPLIT = PRECISION_BF16 + 1, MODEL_COPIES };

struct model_layer {
    const char *path; /* of its module in the checkpoint; "" at the top */
    /* The first is there from the beginning; another may be read once its flag
     * was seen, by an acquiring load, to be set. */
    struct weights weights[MODEL_COPIES];
    struct arena memory[MODEL_COPIES];
    atomic_bool made[MODEL_COPIES];
    int count_row; /* see model_counts.h */
};

struct model {
    atomic_long references;
    const struct kernels *kernels; /* for whom weights are arranged */
    char name[MODEL_NAME_BYTES];
    enum checkpoint_kind kind;
    enum dtype dtype;      /* of the first layer's first weight in the file */
    int64_t heads;         /* 0: the checkpoint does not say */
    int64_t layers;
    int64_t ignored;       /* tensors that are no part of a layer */
    int64_t file_bytes;
    char sha256[DIGEST_TEXT_BYTES];
    uint64_t stamp;        /* of the files: see model_files.h */
    bool uploaded;         /* by a request, and in no file */
    struct budget *budget; /* gets charged_bytes back at the end; or NULL */
    int64_t charged_bytes;
    struct arena memory;   /* of paths and the array of layers */
    pthread_mutex_t mutex; /* held by whoever makes a second copy */
    struct model_layer *layer;
};

/* A name that a model may have: 1 to 64 of A-Z a-z 0-9 . _ - and no dot first. */
bool model_is_name(const char *name);

/* For requests that `kernels` run, which outlive it; NULL: for any. From the
 * `count` safetensors files of a checkpoint, and its config.json or
 * `config.data` NULL. One reference is the caller's. NULL with an error, whose
 * sentence says what is wrong with the checkpoint. */
struct model *model_new(const char *name, const struct kernels *kernels,
                        const struct bytes *files, size_t count,
                        struct bytes config, struct error *err);

void model_hold(struct model *model);
void model_release(struct model *model); /* NULL is fine */

/* A layer for a request of that precision. ERR_RANGE at /layer, or
 * ERR_OVERLOADED: no memory for a second copy. */
bool model_find_layer(struct model *model, int64_t layer,
                      enum precision precision, struct mha_model *out,
                      struct error *err);

/* Taken from malloc now, second copies included. */
int64_t model_memory_bytes(struct model *model);

#endif
