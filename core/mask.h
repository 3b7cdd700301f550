#ifndef CORE_MASK_H
#define CORE_MASK_H

#include "core/tensor.h"

/* Which keys a query may see, all rules together, and what is added to their
 * scores. Resolved from the client's masks by mha; read by attention one row
 * at a time. Only the S keys of the client are masked: appended keys
 * (columns S .. T-1) are visible to every query. */
struct mask {
    int64_t S;
    const uint8_t *key_hidden; /* (N, S), 1 hides; NULL: none. Padding of both
                                  spellings, where it forbids */
    const void *key_bias;      /* (N, S) numbers of the request's dtype, or
                                  NULL: a finite mask_filter_value */
    struct tensor hidden;      /* BOOL (N, H, L, S), step 0 where an axis is
                                  broadcast; rank 0: none */
    uint8_t hides_when;        /* the value in `hidden` that forbids: 0 or 1 */
    struct tensor bias;        /* F32 or F64 (N, H, L, S), steps as above;
                                  -INFINITY forbids; rank 0: none */
    int64_t shift;             /* query i stands at key i + shift */
    int64_t left, right;       /* visible: i+shift-left .. i+shift+right, both
                                  ends included; INT64_MAX: unlimited */
};

/* The visible columns of row (n, i) by window and padding at the ends alone:
 * [*lo, *hi), 0 <= lo <= hi <= S. Trimming matters: what is outside is neither
 * computed nor read, so padding at the end cannot change a bit. */
void mask_range(const struct mask *mask, int64_t n, int64_t i, int64_t *lo,
                int64_t *hi);

#endif
