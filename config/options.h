#ifndef CONFIG_OPTIONS_H
#define CONFIG_OPTIONS_H

#include "core/error.h"

#include <stdint.h>

/* What one option is: how its value is spelled, read, checked and written.
 *
 * Knows nothing of where values come from or which one wins (config.c), and
 * prints nothing. Every function is pure but for what it is handed to fill. */

enum option_kind {
    OPTION_TEXT,
    OPTION_ADDRESS,
    OPTION_WORD,
    OPTION_NUMBER,
    OPTION_BYTES,
    OPTION_SWITCH,
    OPTION_FILE,  /* has no field: names the configuration file */
    OPTION_ACTION /* has no field and takes no value            */
};

enum {
    OPTION_TEXT_BYTES = 1024, /* of a TEXT or ADDRESS field, with its NUL */
    OPTION_NAME_BYTES = 64    /* of a name as any source spells it, likewise */
};

struct option {
    const char *name; /* max_body_bytes */
    enum option_kind kind;
    size_t offset;       /* of the field in the struct that is filled        */
    const char *initial; /* the default, as a user would write it            */
    int64_t min, max;    /* of the value; of a TEXT, of its length           */
    const char *unit;    /* what stands for the value in --help              */
    const char *help;
    const char *const *words; /* of a WORD, by enumerator; ends with NULL    */
    int action;               /* of an ACTION                                */
};

struct options {
    const struct option *row;
    size_t count;
};

enum option_source { OPTION_IN_FILE, OPTION_IN_ENVIRONMENT, OPTION_IN_FLAG };

/* Where a value was found, for the sentence that refuses it. */
struct origin {
    enum option_source source;
    const char *file; /* of a file only */
    long line;
};

/* The name as `source` has it: max_body_bytes, ATTND_MAX_BODY_BYTES,
 * --max-body-bytes. Returns out. */
const char *options_spell(const struct option *option,
                          enum option_source source,
                          char out[OPTION_NAME_BYTES]);

/* The option that `source` spells exactly like that, or NULL: an action is no
 * file key. */
const struct option *options_find(const struct options *options,
                                  enum option_source source,
                                  const char *spelling);

/* Sets the error for a name that is none, with the nearest one that is. */
bool options_unknown(const struct options *options, const struct origin *origin,
                     const char *spelling, struct error *err);

/* Reads `text` into the option's field of `fields`; on false nothing there has
 * changed. The option has a field. */
bool options_set(void *fields, const struct option *option, const char *text,
                 const struct origin *origin, struct error *err);

/* The field's value such that options_set() reads it back. Returns out. */
const char *options_value(const void *fields, const struct option *option,
                          char out[OPTION_TEXT_BYTES]);

/* What a value must be: "a number from 0 to 1024". Returns out. */
const char *options_wanted(const struct option *option, char *out, size_t size);

/* "FILE:LINE: " for a file, else "". Returns out. */
const char *options_place(const struct origin *origin, char *out, size_t size);

/* `text` cut to what fits, control characters as '?': fit for a message of one
 * line. Returns out. */
const char *options_shown(const char *text, char *out, size_t size);

#endif
