#ifndef CORE_PARALLEL_H
#define CORE_PARALLEL_H

#include "core/arena.h"

#include <stdint.h>

/* The one hook by which core asks for help with a computation.
 *
 * Core cuts work into pieces by a rule of the shapes alone and never splits a
 * sum over two pieces, so results do not depend on who runs what, or when. */

/* One piece. `scratch` is the running thread's own and is released to where it
 * was after the piece. False only when scratch ran out. */
typedef bool parallel_piece(void *arg, int64_t piece, struct arena *scratch);

struct parallel {
    /* Runs every piece in [0, pieces) once, on any threads, the caller's among
     * them, in any order; returns when all have ended: false when one of them
     * did. Blocks the caller only for pieces that others have begun. */
    bool (*run)(struct parallel *self, int64_t pieces, parallel_piece *piece,
                void *arg);
};

/* The plain one: the caller runs all pieces in order. */
struct parallel_serial {
    struct parallel parallel;
    struct arena *scratch;
};

void parallel_serial_init(struct parallel_serial *serial,
                          struct arena *scratch);

#endif
