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

/* A mask that takes this much off swallows what the score was, in float32 and in
 * double, if that is a small one. */
#define MASK_SWALLOWING 0x1p91f
#define MASK_SMALL_SCORE 0x1p36f

/* Narrows [*lo, *hi), a part of the range of row (n, h, i) of an F32 request, to
 * what may get a weight when all scores are small: at its ends, a mask of numbers
 * that swallows, as Hugging Face's do, leaves none where it takes no more than
 * half as much off another key. */
void mask_narrow(const struct mask *mask, int64_t n, int64_t h, int64_t i,
                 int64_t *lo, int64_t *hi);

/* True when the masks neither hide nor bias any key of a row of batch n in
 * columns [lo, hi), a part of its range. */
bool mask_is_plain(const struct mask *mask, int64_t n, int64_t lo, int64_t hi);

/* A row is read in parts of at most so many columns. */
enum { MASK_COLUMNS = 1024 };

/* True when no mask is a number: rows then need no sums, only flags. */
bool mask_is_boolean(const struct mask *mask);

/* The flags of columns [lo, hi) of row (n, h, i), 1 where a boolean forbids:
 * in `out`, or the client's own row when that says it all. At most
 * MASK_COLUMNS. */
const uint8_t *mask_row_flags(const struct mask *mask, int64_t n, int64_t h,
                              int64_t i, int64_t lo, int64_t hi, uint8_t *out);

/* What the masks add to columns [lo, hi) of row (n, h, i): their sum in double,
 * or -INFINITY where one of them forbids or the sum rounds to that in `dtype`,
 * which is the request's. The float row is rounded once. At most
 * MASK_COLUMNS. */
void mask_row_f64(const struct mask *mask, enum dtype dtype, int64_t n,
                  int64_t h, int64_t i, int64_t lo, int64_t hi, double *out);

/* For F32 requests, less `shift`, which is taken off before rounding. Returns
 * `out`, or the client's own row when that is the only mask and shift is 0:
 * nothing is then copied. */
const float *mask_row_f32(const struct mask *mask, int64_t n, int64_t h,
                          int64_t i, int64_t lo, int64_t hi, double shift,
                          float *out);

#endif
