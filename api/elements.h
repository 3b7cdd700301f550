#ifndef API_ELEMENTS_H
#define API_ELEMENTS_H

#include "api/ahead.h"
#include "api/json_tensor.h"

/* The elements of a tensor while they are read: a nested array of numbers or
 * booleans, from text into one block of the arena. For json_tensor.c alone.
 *
 * What is wrong is kept as a flaw, the first one; after it nothing is stored
 * and only the grammar counts. */
struct elements {
    struct cursor *json;
    const struct json_tensor *how;
    const char *name;   /* of the tensor, for sentences */
    const char *member; /* what of an object is being read: ".data", or "" */
    const struct error *flaw; /* NULL: none so far */

    int rank_limit;
    int rank; /* 0 until the first element that is no array */
    int64_t dim[TENSOR_MAX_RANK]; /* 0 until the first such array has ended */
    size_t n[CURSOR_MAX_DEPTH]; /* on each axis, elements begun: the cursor is
                                   in the last of them */
    void *data; /* NULL until the first element */
    enum dtype dtype;
    size_t count, room;
    int plain; /* numbers in a row that stand last in a mask */
    struct ahead *ahead; /* NULL: nothing is read ahead */
};

/* Reads the array at the cursor, of at most `rank_limit` axes. False only when
 * the cursor failed. */
bool elements_read(struct elements *e, int rank_limit);

/* Keeps what is wrong with the element that the first `axes` of e->n say,
 * unless there is a flaw already; the sentence goes on behind its name. */
void elements_flaw(struct elements *e, int axes, enum error_code code,
                   const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Past the value at the cursor, whose flaw is that it is not `wanted`. False
 * only when the cursor failed. */
bool elements_skip(struct elements *e, int axes, const char *wanted);

#endif
