#ifndef CORE_SHAPE_H
#define CORE_SHAPE_H

#include "core/tensor.h"

/* Is a client's tensor what its field takes? Each check names the field by its
 * JSON Pointer, `where`, tells what came and what should have come, and looks
 * at no number. */

/* False when the client left the field out; one with a flaw was not. */
bool shape_is_given(const struct named_tensor *t);

/* True when there is no flaw (NULL); else that is the error. */
bool shape_check_flaw(const struct error *flaw, struct error *err);

/* No flaw of its own, and numbers of `dtype`. */
bool shape_check_numbers(const struct named_tensor *t, const char *where,
                         enum dtype dtype, struct error *err);

/* No flaw of its own, and numbers of `dtype` or booleans. */
bool shape_check_mask(const struct named_tensor *t, const char *where,
                      enum dtype dtype, struct error *err);

/* These dimensions; 0 in `dim` fits any. `words` says what they stand for. */
bool shape_check(const struct tensor *t, const char *where, int rank,
                 const int64_t *dim, const char *words, struct error *err);

/* The same without a word. */
bool shape_fits(const struct tensor *t, int rank, const int64_t *dim);

#endif
