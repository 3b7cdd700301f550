#include "server/budget.h"

void budget_init(struct budget *budget, int64_t limit_bytes)
{
    atomic_init(&budget->reserved_bytes, 0);
    budget->limit_bytes = limit_bytes;
}

/* Relaxed throughout: the number guards no other memory, it only adds up. */
bool budget_take(struct budget *budget, int64_t bytes, struct error *err)
{
    int64_t held = atomic_load_explicit(&budget->reserved_bytes,
                                        memory_order_relaxed);

    if (bytes > budget->limit_bytes)
        return error_set(err, ERR_TOO_LARGE, "",
                         "the request needs %lld bytes of memory; all requests "
                         "together may hold %lld",
                         (long long)bytes, (long long)budget->limit_bytes);
    do {
        if (bytes > budget->limit_bytes - held)
            return error_set(err, ERR_OVERLOADED, "",
                             "the memory for requests is spent; the request "
                             "needs %lld bytes",
                             (long long)bytes);
    } while (!atomic_compare_exchange_weak_explicit(
        &budget->reserved_bytes, &held, held + bytes, memory_order_relaxed,
        memory_order_relaxed));
    return true;
}

void budget_give(struct budget *budget, int64_t bytes)
{
    atomic_fetch_sub_explicit(&budget->reserved_bytes, bytes,
                              memory_order_relaxed);
}

int64_t budget_reserved(struct budget *budget)
{
    return atomic_load_explicit(&budget->reserved_bytes, memory_order_relaxed);
}
