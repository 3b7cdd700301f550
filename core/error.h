#ifndef CORE_ERROR_H
#define CORE_ERROR_H

#include <stdbool.h>
#include <stddef.h>

/* Why a call failed, told once, by the code that knew.
 *
 * A function that can fail returns bool and takes `struct error *` last. It
 * returns false exactly when it has called error_set(). The first error wins:
 * a caller adding its own view on the way out changes nothing. Nothing here
 * allocates, so an error can always be told. */

enum error_code {
    ERR_NONE,
#define ERROR(code, name, example) code,
#include "core/error.def"
#undef ERROR
    ERR_COUNT
};

struct error {
    enum error_code code; /* ERR_NONE until set */
    char where[256];      /* JSON Pointer to the input, "" for none; UTF-8 */
    char text[512];       /* one sentence, no trailing newline; UTF-8 */
};

/* Always returns false, so that a refusal is one statement:
 *     return error_set(err, ERR_SHAPE, "/key", "key has %d axes, not %d", ...);
 * `where` is a pointer already escaped (error_pointer). Text that does not fit
 * is cut between two characters. */
bool error_set(struct error *err, enum error_code code, const char *where,
               const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Writes `parent`/`name` as a JSON Pointer: '~' and '/' in the name become
 * "~0" and "~1" (RFC 6901). What does not fit in `size` is cut. Returns out. */
char *error_pointer(char *out, size_t size, const char *parent,
                    const char *name);

/* How many of the first `len` bytes of `text` to show where all of it is too
 * long: those that end between two characters. */
size_t error_cut(const char *text, size_t len);

/* The code as the contract spells it: "shape_mismatch". */
const char *error_name(enum error_code code);

#endif
