#include "config/config_file.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct reading {
    struct config *config;
    struct origin origin;             /* the line being read              */
    long set_on_line[CONFIG_OPTIONS]; /* by row of the table; 0: not yet */
};

static char *trim(char *text)
{
    size_t len = strlen(text);

    while (len > 0 && isspace((unsigned char)text[len - 1]))
        text[--len] = '\0';
    while (isspace((unsigned char)*text))
        text++;
    return text;
}

static bool set(struct reading *reading, const char *key, const char *value,
                struct error *err)
{
    const struct option *option =
        options_find(&config_options, OPTION_IN_FILE, key);

    if (option == NULL)
        return options_unknown(&config_options, &reading->origin, key, err);

    long *line = &reading->set_on_line[option - config_options.row];
    char place[300], shown[80];

    if (*line != 0)
        return error_set(
            err, ERR_CONFLICT, key, "%s%s = \"%s\": already set on line %ld",
            options_place(&reading->origin, place, sizeof place), key,
            options_shown(value, shown, sizeof shown), *line);
    *line = reading->origin.line;
    return options_set(reading->config, option, value, &reading->origin, err);
}

static bool malformed(const struct reading *reading, const char *line,
                      struct error *err)
{
    char place[300], shown[80];

    options_place(&reading->origin, place, sizeof place);
    options_shown(line, shown, sizeof shown);
    return error_set(err, ERR_TYPE, "", "%s\"%s\" is not a line `key = value`",
                     place, shown);
}

static bool read_line(struct reading *reading, const char *text, size_t len,
                      struct error *err)
{
    char line[CONFIG_FILE_LINE_BYTES] = "";

    memcpy(line, text, len < sizeof line ? len : sizeof line - 1);
    if (len >= sizeof line || strlen(line) < len)
        return malformed(reading, line, err);

    char *key = trim(line);
    char *equals = strchr(key, '=');

    if (*key == '\0' || *key == '#')
        return true;
    if (equals == NULL || equals == key)
        return malformed(reading, key, err);
    *equals = '\0';
    return set(reading, trim(key), trim(equals + 1), err);
}

bool config_file_parse(struct config *config, const char *text, size_t len,
                       const char *name, struct error *err)
{
    struct reading reading = {
        .config = config,
        .origin = { .source = OPTION_IN_FILE, .file = name },
    };

    while (len > 0) {
        const char *newline = memchr(text, '\n', len);
        size_t line = newline == NULL ? len : (size_t)(newline - text);
        size_t step = newline == NULL ? len : line + 1;

        reading.origin.line++;
        if (!read_line(&reading, text, line, err))
            return false;
        text += step;
        len -= step;
    }
    return true;
}

/* The first `size` bytes of the file. False with errno set. */
static bool load(const char *path, char *text, size_t size, size_t *len)
{
    FILE *file = fopen(path, "re");

    if (file == NULL)
        return false;
    *len = fread(text, 1, size, file);

    int why = ferror(file) ? errno : 0;

    fclose(file);
    errno = why;
    return why == 0;
}

bool config_file_read(struct config *config, const char *path,
                      struct error *err)
{
    enum { SIZE = CONFIG_FILE_BYTES + 1 }; /* one more tells "too large" */
    char *text = malloc(SIZE);
    char shown[256];
    size_t len = 0;
    bool good;

    if (text == NULL || !load(path, text, SIZE, &len))
        good = error_set(err, ERR_NOT_FOUND, "config",
                         "configuration file \"%s\": %s",
                         options_shown(path, shown, sizeof shown),
                         strerror(errno));
    else if (len == SIZE)
        good = error_set(err, ERR_TOO_LARGE, "config",
                         "configuration file \"%s\" is larger than 1 MiB",
                         options_shown(path, shown, sizeof shown));
    else
        good = config_file_parse(config, text, len, path, err);
    free(text);
    return good;
}
