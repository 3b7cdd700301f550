#include "core/parallel.h"

static bool run_in_order(struct parallel *self, int64_t pieces,
                         parallel_piece *piece, void *arg)
{
    struct parallel_serial *serial = (struct parallel_serial *)self;
    bool all = true;

    for (int64_t i = 0; i < pieces; i++) {
        struct arena_mark mark = arena_mark(serial->scratch);

        all = piece(arg, i, serial->scratch) && all;
        arena_release(serial->scratch, mark);
    }
    return all;
}

void parallel_serial_init(struct parallel_serial *serial,
                          struct arena *scratch)
{
    *serial = (struct parallel_serial){
        .parallel = { .run = run_in_order },
        .scratch = scratch,
    };
}
