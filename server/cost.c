#include "server/cost.h"

enum { KINDS_A_DOUBLING = 4, LATEST_SHARE = 8 };

/* Four kinds a doubling: the length's highest bit and the two below it. */
static size_t kind_of(size_t len)
{
    unsigned bit = 63 - (unsigned)__builtin_clzll((uint64_t)len | 4);

    return bit * KINDS_A_DOUBLING + ((len >> (bit - 2)) & 3);
}

int64_t cost_guess(const struct cost *cost, size_t body_len)
{
    return cost->ns[kind_of(body_len)];
}

/* A mean in which each request counts an eighth: after twenty of a new kind the
 * old ones are forgotten, and one that was slow by accident moves little. */
void cost_learn(struct cost *cost, size_t body_len, int64_t ns)
{
    int64_t *mean = &cost->ns[kind_of(body_len)];

    *mean += *mean == 0 ? ns : (ns - *mean) / LATEST_SHARE;
}
