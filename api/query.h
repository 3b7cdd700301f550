#ifndef API_QUERY_H
#define API_QUERY_H

#include "core/arena.h"
#include "core/error.h"

/* A URL's query string, "num_heads=3&window=%5B1%2C1%5D", to pairs of texts.
 *
 * Percent-escapes are undone and '+' is a space, as forms and every library
 * write them. Both texts are valid UTF-8 without a NUL; a name without '=' has
 * the value "", and "&&" is nothing. What a name means is not its business. */
struct query_pair {
    const char *name, *value; /* NUL-terminated, in the arena */
};

struct query {
    struct query_pair *pair; /* in their order; a name may come twice */
    size_t count;
};

/* `text` may be NULL: none. Takes at most 18 times its length, and a little.
 * ERR_REQUEST, where "": a broken escape, a NUL, no UTF-8. ERR_OVERLOADED. */
bool query_decode(const char *text, struct arena *arena, struct query *out,
                  struct error *err);

/* For formats whose fields are all in the body: ERR_UNKNOWN at the first name,
 * which is told up to its first byte that is not printable. */
bool query_check_none(const char *text, struct error *err);

#endif
