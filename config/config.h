#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "config/options.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* How this attnd was told to run: the rows of config/options.def as a struct.
 *
 * Filled once, before any thread starts, and only read from then on. Checks
 * each value by itself; it opens no socket, resolves no name, and turns no 0
 * that means "choose for me" into a number: that is for who uses the field.
 * Owns nothing: a struct config may be copied and compared byte for byte. */

#define WORD(enumerator, text) enumerator,
#define WORDS(field, words) enum config_##field { words };
#include "config/options.def"
#undef WORD

#define FIELD_TEXT(field) char field[OPTION_TEXT_BYTES]
#define FIELD_ADDRESS(field) char field[OPTION_TEXT_BYTES]
#define FIELD_WORD(field) enum config_##field field
#define FIELD_NUMBER(field) int64_t field
#define FIELD_BYTES(field) int64_t field
#define FIELD_SWITCH(field) bool field

struct config {
#define OPTION(field, kind, initial, min, max, unit, help) FIELD_##kind(field);
#include "config/options.def"
};

enum config_action {
    CONFIG_RUN,
    CONFIG_HELP,
    CONFIG_VERSION,
    CONFIG_PRINT,
    CONFIG_CHECK,
    CONFIG_HEALTHCHECK
};

/* The table itself, flags without a field included, for the readers in this
 * folder and for tests. */
enum {
    CONFIG_OPTIONS = 0
#define OPTION(field, kind, initial, min, max, unit, help) +1
#define ACTION(flag, action, help) +1
#define FILE_OPTION(name, unit, help) +1
#include "config/options.def"
};
extern const struct options config_options;

/* Every option at its default. */
void config_init(struct config *config);

/* Defaults, then the file named by --config or ATTND_CONFIG, then ATTND_
 * variables, then flags: the last one wins, and a bad value is an error even
 * where another would override it. `envp` ends with NULL and may be NULL.
 * CONFIG_HELP and CONFIG_VERSION come back at once, whatever else is wrong.
 *
 * On false, err->text is one line for the user that names the option, the
 * value, and FILE:LINE if it was in a file; `config` is half filled. */
bool config_load(struct config *config, enum config_action *action, int argc,
                 char **argv, char **envp, struct error *err);

/* Every option with its help, as a file that config_load() reads back to an
 * equal struct; of the defaults it is config/attnd.conf. False if `out` could
 * not be written. */
bool config_print(const struct config *config, FILE *out);

/* The text of --help. False likewise. */
bool config_help(FILE *out);

#endif
