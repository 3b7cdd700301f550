#ifndef CORE_ATTENTION_H
#define CORE_ATTENTION_H

#include "core/mask.h"
#include "core/parallel.h"
#include "core/tensor.h"

struct kernels;

/* Scaled dot-product attention over heads and groups, in tiles of rows.
 *
 *     scores  = cap(scale * q . k^T) - alibi + masks        (N, H, L, T)
 *     weights = dropout(softmax(scores, sink))              (N, H, L, T)
 *     out     = weights . v                                 (N, H, L, Dv)
 *
 * cap(s) = softcap * tanh(s / softcap). Columns S .. T-1 are appended keys:
 * capped, but neither masked nor ALiBi'd. Everything was checked by mha: it
 * refuses nothing, and fails only for lack of scratch.
 *
 * F32 tiles go through the kernels. Of masks so large that they would swallow
 * the scores the largest is taken off first. A row where float32 ends - a
 * visible score that is not finite, a large mask beside ALiBi or appended keys -
 * is computed again in double (attention_row), which is also how F64 requests and
 * the tests' reference are computed. Which way a row goes depends on what it
 * may see and on nothing else. */
struct attention {
    enum dtype dtype; /* F32 or F64: q, k, v, biases, slopes, sinks, outputs */
    int64_t N, H, G, L, S, T, D, Dv;
    struct tensor q; /* (N, H, L, D)  any steps, the last 1 */
    struct tensor k; /* (N, G, T, D)  */
    struct tensor v; /* (N, G, T, Dv) */
    double scale;
    double softcap;           /* 0: none */
    const void *alibi_slopes; /* (H) or NULL */
    const void *sinks;        /* (H) or NULL */
    struct mask mask;
    double dropout_p; /* element ((n*H+h)*L+i)*T+j of Philox keyed by seed */
    uint64_t seed;

    /* Where results go; rank 0, or NULL: not asked for. */
    struct tensor out;     /* (N, H, L, Dv) any steps, the last 1 */
    struct tensor weights; /* (N, H, L, T), or (N, L, T) averaged over H */
    bool average_weights;
    /* Room for sums of all parts of the heads but the first, (P - 1, N, L, T),
     * P being attention_mean_parts(); rank 0: the mean is made in one part. */
    struct tensor mean_parts;
    struct tensor scores; /* (N, H, L, T), as they enter the softmax */
    struct tensor lse;    /* (N, H, L), sink included; -INFINITY for none */
    int64_t *fully_masked_queries; /* set: rows (n, h, i) without any key */
    int64_t *step_ns; /* similarity, softmax, weighted sum: added to, by every
                         thread; or NULL */
};

/* The most scratch that one piece of work takes, in bytes. */
int64_t attention_scratch_bytes(const struct attention *a);

/* In how many parts a mean over heads is made, so that a few rows are work for
 * several threads. By H, G and L alone: a mean's bits depend on it. */
int64_t attention_mean_parts(int64_t H, int64_t G, int64_t L);

/* False only when a thread's scratch ran out. Results are the same bits for
 * any number of threads, with or without the optional outputs, whatever other
 * batches and heads are there, and whatever stands behind a mask. */
bool attention_run(const struct attention *a, const struct kernels *kernels,
                   struct parallel *parallel);

#endif
