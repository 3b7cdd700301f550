#ifndef SERVER_BUDGET_H
#define SERVER_BUDGET_H

#include "core/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The memory that all requests in flight may hold together.
 *
 * It counts promises, not malloc: a request reserves the most it can need
 * before it takes it, and gives back what it held when it ends. So the sum of
 * bodies, tensors, scratch and replies never passes the limit, and a request
 * that finds no room is refused instead of killing the process. Any thread may
 * call; nothing waits. */
struct budget {
    _Atomic int64_t reserved_bytes;
    int64_t limit_bytes;
};

void budget_init(struct budget *budget, int64_t limit_bytes);

/* All of `bytes` or nothing. ERR_TOO_LARGE when no amount of waiting would
 * help, ERR_OVERLOADED when it would. */
bool budget_take(struct budget *budget, int64_t bytes, struct error *err);

void budget_give(struct budget *budget, int64_t bytes);

int64_t budget_reserved(struct budget *budget);

#endif
