#include "config/flags.h"

#include <string.h>

static const struct origin command_line = { .source = OPTION_IN_FLAG };

/* --no-name of the switch --name, or NULL. */
static const struct option *find_negated(const struct options *options,
                                         const char *name)
{
    char positive[OPTION_NAME_BYTES] = "--";

    if (strncmp(name, "--no-", 5) != 0)
        return NULL;
    strncat(positive, name + 5, sizeof positive - 3);

    const struct option *option =
        options_find(options, OPTION_IN_FLAG, positive);

    return option != NULL && option->kind == OPTION_SWITCH ? option : NULL;
}

static bool is_flag(const char *argument)
{
    return argument != NULL && strncmp(argument, "--", 2) == 0;
}

/* What follows a flag written without '='. */
static bool take_value(struct flags *flags, const char *name, struct flag *flag,
                       struct error *err)
{
    if (flag->option->kind == OPTION_ACTION)
        return true;
    if (flag->option->kind == OPTION_SWITCH &&
        (*flags->next == NULL || is_flag(*flags->next))) {
        flag->value = "yes";
        return true;
    }
    if (*flags->next == NULL)
        return error_set(err, ERR_MISSING, name, "%s needs a value: %s", name,
                         flag->option->unit);
    flag->value = *flags->next++;
    return true;
}

bool flags_next(struct flags *flags, struct flag *flag, struct error *err)
{
    char name[OPTION_NAME_BYTES] = "";

    *flag = (struct flag){ 0 };
    if (*flags->next == NULL)
        return true;

    const char *argument = *flags->next++;
    const char *equals = is_flag(argument) ? strchr(argument, '=') : NULL;
    size_t len =
        equals == NULL ? strlen(argument) : (size_t)(equals - argument);

    if (len < sizeof name)
        memcpy(name, argument, len);
    flag->option = options_find(flags->options, OPTION_IN_FLAG, name);
    if (flag->option != NULL && equals == NULL)
        return take_value(flags, name, flag, err);
    if (flag->option != NULL && flag->option->kind == OPTION_ACTION)
        return error_set(err, ERR_TYPE, name, "%s takes no value", name);
    if (flag->option != NULL) {
        flag->value = equals + 1;
        return true;
    }

    flag->option = find_negated(flags->options, name);
    flag->value = "no";
    if (flag->option != NULL && equals == NULL)
        return true;
    return options_unknown(flags->options, &command_line,
                           *name == '\0' ? argument : name, err);
}
