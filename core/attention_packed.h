#ifndef CORE_ATTENTION_PACKED_H
#define CORE_ATTENTION_PACKED_H

#include "core/attention.h"
#include "core/kernels/kernels.h"

/* Keys and values of a head in the order in which products read them. They are
 * packed when a tile first asks and stay for the tiles that follow: 64 rows
 * multiply a key in seven times the time that packing it takes.
 *
 * F32 only. What is held is a span of a head's keys that begins at a multiple
 * of the span's length, and grows as tiles ask for more of it; a longer head is
 * packed span by span, anew for each tile. */

/* What is held of one matrix. */
struct attention_span {
    float *packed;
    int64_t n, g, first, column; /* the head, its first key, V's first column */
    int64_t from, to;            /* keys that are packed; none: equal */
};

struct attention_packed {
    const struct attention *a;
    const struct kernels *kernels;
    struct attention_span keys, values;
};

/* V's columns are taken so many at a time. */
enum { ATTENTION_VALUE_COLUMNS = 512 };

int64_t attention_packed_bytes(const struct attention *a);

/* `memory` is attention_packed_bytes() that are aligned to 64 bytes. */
void attention_packed_init(struct attention_packed *packed,
                           const struct attention *a,
                           const struct kernels *kernels, void *memory);

/* Keys of one part of a sum over V: what begins at j ends at the next multiple
 * of this or, where j is no multiple of KERNELS_DEPTH, of that. */
int64_t attention_packed_part(const struct attention *a, int64_t j, int64_t to);

/* scores = scale * q . k for m rows of queries and keys from .. to - 1 of head
 * (n, g), to <= S; `from` is a multiple of 16. Each row needs the keys of its
 * element of `needs`; NULL: all. */
void attention_packed_score(struct attention_packed *packed, int64_t n,
                            int64_t g, int64_t from, int64_t to, int64_t m,
                            const float *q, int64_t q_step,
                            const struct packed_span *needs, float *scores,
                            int64_t scores_step);

/* out = beta * out + weights . v for keys from .. to - 1 <= S, one part, and
 * `columns` of V's columns from `column`, a multiple of
 * ATTENTION_VALUE_COLUMNS; beta is 0 or 1. Weights are 0 but for the keys of
 * `needs`. */
void attention_packed_weigh(struct attention_packed *packed, int64_t n,
                            int64_t g, int64_t from, int64_t to,
                            int64_t column, int64_t columns, int64_t m,
                            const float *weights, int64_t weights_step,
                            const struct packed_span *needs, int beta,
                            float *out, int64_t out_step);

#endif
