#ifndef CONFIG_CONFIG_FILE_H
#define CONFIG_CONFIG_FILE_H

#include "config/config.h"

/* The configuration file: lines of `key = value`, blank lines, and lines whose
 * first character other than a blank is '#'. A value goes to the end of its
 * line, without the blanks around it; there are no quotes and no escapes. A key
 * may stand once. */

enum {
    CONFIG_FILE_BYTES = 1 << 20, /* of a whole file: a bound for /dev/zero */
    CONFIG_FILE_LINE_BYTES = 2048
};

/* Sets the fields that the file names and leaves the others. */
bool config_file_read(struct config *config, const char *path,
                      struct error *err);

/* The same for a text of `len` bytes; `name` stands for it in errors. */
bool config_file_parse(struct config *config, const char *text, size_t len,
                       const char *name, struct error *err);

#endif
