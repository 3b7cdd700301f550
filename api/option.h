#ifndef API_OPTION_H
#define API_OPTION_H

#include "api/fields.h"

/* One option of a request: from its JSON text, which is a valid value, to the
 * member it sets. */
struct option {
    const struct field *field;
    struct json_span text;
    void *destination; /* what the field's kind says */
    bool wide;         /* numbers are read as doubles, not as float32 */
    struct error *err;
};

/* ERR_TYPE, ERR_RANGE, or ERR_SHAPE (a window that is no pair). Tensors are
 * none of its business: it passes them by. */
bool option_read(const struct option *option);

#endif
