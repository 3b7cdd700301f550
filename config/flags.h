#ifndef CONFIG_FLAGS_H
#define CONFIG_FLAGS_H

#include "config/options.h"

/* The command line, one flag at a time:
 *
 *     --name value   --name=value   --switch   --no-switch   --action
 *
 * Sets no field and judges no value. */

struct flags {
    const struct options *options;
    char **next; /* ends with NULL */
};

struct flag {
    const struct option *option; /* NULL once all have been read   */
    const char *value;           /* in argv; NULL for an OPTION_ACTION */
};

/* The next flag. False for an argument that is none, a value that is missing,
 * and a value where none can be. */
bool flags_next(struct flags *flags, struct flag *flag, struct error *err);

#endif
