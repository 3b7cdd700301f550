#include "config/config.h"

#include "config/config_file.h"
#include "config/flags.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

#define WORD(enumerator, text) [enumerator] = text,
#define WORDS(field, words) \
    static const char *const words_##field[] = { words NULL };
#include "config/options.def"
#undef WORD

#define WORDS_OF_TEXT(field) NULL
#define WORDS_OF_ADDRESS(field) NULL
#define WORDS_OF_WORD(field) words_##field
#define WORDS_OF_NUMBER(field) NULL
#define WORDS_OF_BYTES(field) NULL
#define WORDS_OF_SWITCH(field) NULL

static const struct option rows[CONFIG_OPTIONS] = {
#define OPTION(field, kind, initial, min, max, unit, help)                 \
    { #field, OPTION_##kind, offsetof(struct config, field), initial, min, \
      max,    unit,          help, WORDS_OF_##kind(field),   0 },
#define ACTION(flag, action, help) \
    { #flag, OPTION_ACTION, 0, "", 0, 0, "", help, NULL, action },
#define FILE_OPTION(name, unit, help) \
    { #name, OPTION_FILE, 0, "", 0, 0, unit, help, NULL, 0 },
#include "config/options.def"
};

const struct options config_options = { rows, CONFIG_OPTIONS };

static bool has_field(const struct option *option)
{
    return option->kind != OPTION_FILE && option->kind != OPTION_ACTION;
}

void config_init(struct config *config)
{
    static const struct origin table = { OPTION_IN_FILE, "config/options.def",
                                         0 };
    struct error err = { 0 };

    memset(config, 0, sizeof *config);
    for (size_t i = 0; i < CONFIG_OPTIONS; i++) {
        const struct option *row = &rows[i];
        bool good = !has_field(row) ||
                    options_set(config, row, row->initial, &table, &err);

        assert(good); /* else a row's default is outside its own bounds */
    }
}

/* ---- the environment ---- */

/* "ATTND_X=value" taken apart, or false for somebody else's variable. The name
 * is cut where no option's could be so long. */
static bool is_ours(const char *entry, char name[OPTION_NAME_BYTES],
                    const char **value)
{
    const char *equals = strchr(entry, '=');

    if (strncmp(entry, "ATTND_", 6) != 0 || equals == NULL)
        return false;
    snprintf(name, OPTION_NAME_BYTES, "%.*s", (int)(equals - entry), entry);
    *value = equals + 1;
    return true;
}

/* Kubernetes tells every pod about a Service named "attnd" or "attnd-..." in
 * variables like ATTND_SERVICE_HOST, ATTND_PORT=tcp://10.0.0.7:8080 and
 * ATTND_PORT_8080_TCP_ADDR: not meant for us, and no reason not to start. */
static bool is_service_link(const char *name, const char *value)
{
    const char *port = strstr(name, "_PORT");

    if (strstr(name, "_SERVICE_HOST") != NULL ||
        strstr(name, "_SERVICE_PORT") != NULL)
        return true;
    if (port == NULL)
        return false;
    return port[5] == '\0' ? strstr(value, "://") != NULL
                           : port[5] == '_' && isdigit((unsigned char)port[6]);
}

static const char *find_file(char **envp)
{
    char name[OPTION_NAME_BYTES];
    const char *value, *path = NULL;

    for (; envp != NULL && *envp != NULL; envp++) {
        if (!is_ours(*envp, name, &value))
            continue;

        const struct option *option =
            options_find(&config_options, OPTION_IN_ENVIRONMENT, name);

        if (option != NULL && option->kind == OPTION_FILE)
            path = value;
    }
    return path;
}

static bool read_environment(struct config *config, char **envp,
                             struct error *err)
{
    static const struct origin origin = { .source = OPTION_IN_ENVIRONMENT };
    char name[OPTION_NAME_BYTES];
    const char *value;

    for (; envp != NULL && *envp != NULL; envp++) {
        if (!is_ours(*envp, name, &value))
            continue;

        const struct option *option =
            options_find(&config_options, origin.source, name);

        if (option == NULL && is_service_link(name, value))
            continue;
        if (option == NULL)
            return options_unknown(&config_options, &origin, name, err);
        if (has_field(option) &&
            !options_set(config, option, value, &origin, err))
            return false;
    }
    return true;
}

/* ---- the command line ---- */

static bool is_final(enum config_action action)
{
    return action == CONFIG_HELP || action == CONFIG_VERSION;
}

/* What to do and the file to read first: what the flags say beside values. */
static bool survey_flags(char **argv, const char **path,
                         enum config_action *action, struct error *err)
{
    struct flags flags = { &config_options, argv };
    struct flag flag;

    while (!is_final(*action) && flags_next(&flags, &flag, err)) {
        if (flag.option == NULL)
            return true;
        if (flag.option->kind == OPTION_FILE)
            *path = flag.value;
        if (flag.option->kind != OPTION_ACTION)
            continue;

        enum config_action wanted = (enum config_action)flag.option->action;

        if (*action != CONFIG_RUN && *action != wanted && !is_final(wanted))
            return error_set(err, ERR_CONFLICT, flag.option->name,
                             "%s: only one of --check-config, --print-config "
                             "and --healthcheck at a time",
                             flags.next[-1]);
        *action = wanted;
    }
    return is_final(*action);
}

static bool read_flags(struct config *config, char **argv, struct error *err)
{
    static const struct origin origin = { .source = OPTION_IN_FLAG };
    struct flags flags = { &config_options, argv };
    struct flag flag;

    while (flags_next(&flags, &flag, err)) {
        if (flag.option == NULL)
            return true;
        if (has_field(flag.option) &&
            !options_set(config, flag.option, flag.value, &origin, err))
            return false;
    }
    return false;
}

bool config_load(struct config *config, enum config_action *action, int argc,
                 char **argv, char **envp, struct error *err)
{
    const char *path = find_file(envp);

    argv += argc > 0; /* the program's own name */
    *action = CONFIG_RUN;
    config_init(config);
    if (!survey_flags(argv, &path, action, err))
        return false;
    if (is_final(*action))
        return true;
    if (path != NULL && !config_file_read(config, path, err))
        return false;
    return read_environment(config, envp, err) &&
           read_flags(config, argv, err);
}

/* ---- what is printed ---- */

static void print_row(const struct config *config, const struct option *option,
                      FILE *out)
{
    char value[OPTION_TEXT_BYTES], wanted[160];

    options_wanted(option, wanted, sizeof wanted);
    options_value(config, option, value);
    fprintf(out, "\n# %s\n# Takes %s.\n%s =%s%s\n", option->help, wanted,
            option->name, *value == '\0' ? "" : " ", value);
}

bool config_print(const struct config *config, FILE *out)
{
    fputs("# Configuration of attnd, for attnd --config FILE.\n"
          "# Lines of `key = value`; a variable (ATTND_WORKERS=4) overrides\n"
          "# the file, and a flag (--workers=4) overrides both.\n",
          out);
    for (size_t i = 0; i < CONFIG_OPTIONS; i++)
        if (has_field(&rows[i]))
            print_row(config, &rows[i], out);
    return fflush(out) == 0 && !ferror(out);
}

static void help_row(const struct option *option, FILE *out)
{
    char name[OPTION_NAME_BYTES], wanted[160];

    options_spell(option, OPTION_IN_FLAG, name);
    fprintf(out, "  %s%s%s\n      %s\n", name,
            *option->unit == '\0' ? "" : " ", option->unit, option->help);
    if (has_field(option))
        fprintf(out, "      Takes %s; default \"%s\".\n",
                options_wanted(option, wanted, sizeof wanted),
                option->initial);
}

bool config_help(FILE *out)
{
    fputs("usage: attnd [FLAG...]\n\n"
          "Serves multi-head attention over HTTP. An option --some-name is\n"
          "also the variable ATTND_SOME_NAME and the line `some_name = value`\n"
          "of the file: flags override variables, variables the file.\n\n",
          out);
    for (size_t i = 0; i < CONFIG_OPTIONS; i++)
        if (rows[i].kind != OPTION_ACTION)
            help_row(&rows[i], out);
    fputs("\nInstead of serving:\n", out);
    for (size_t i = 0; i < CONFIG_OPTIONS; i++)
        if (rows[i].kind == OPTION_ACTION)
            help_row(&rows[i], out);
    return fflush(out) == 0 && !ferror(out);
}
