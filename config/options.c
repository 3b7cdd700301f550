#include "config/options.h"

#include "config/address.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct suffix {
    const char *word;
    int64_t bytes;
} suffixes[] = { /* the first that divides a size is how it is written */
    { "GiB", 1 << 30 }, { "MiB", 1 << 20 }, { "KiB", 1 << 10 },
    { "G", 1 << 30 },   { "M", 1 << 20 },   { "K", 1 << 10 },
    { "", 1 },
};

enum { SUFFIXES = sizeof suffixes / sizeof *suffixes };

/* ---- names ---- */

static bool may_stand(const struct option *option, enum option_source source)
{
    switch (option->kind) {
    case OPTION_ACTION:
        return source == OPTION_IN_FLAG;
    case OPTION_FILE:
        return source != OPTION_IN_FILE;
    default:
        return true;
    }
}

const char *options_spell(const struct option *option,
                          enum option_source source,
                          char out[OPTION_NAME_BYTES])
{
    static const char *const prefix[] = { "", "ATTND_", "--" };

    snprintf(out, OPTION_NAME_BYTES, "%s%s", prefix[source], option->name);
    for (char *c = out; *c != '\0'; c++) {
        if (source == OPTION_IN_ENVIRONMENT)
            *c = (char)toupper((unsigned char)*c);
        if (source == OPTION_IN_FLAG && *c == '_')
            *c = '-';
    }
    return out;
}

const struct option *options_find(const struct options *options,
                                  enum option_source source,
                                  const char *spelling)
{
    char name[OPTION_NAME_BYTES];

    for (size_t i = 0; i < options->count; i++) {
        const struct option *option = &options->row[i];

        if (may_stand(option, source) &&
            strcmp(options_spell(option, source, name), spelling) == 0)
            return option;
    }
    return NULL;
}

static bool same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Single-character edits from `a` to `b`; row[j] is the distance between what
 * has been read of `a` and the first j of `b`. Case is no difference. */
static size_t distance(const char *a, const char *b)
{
    size_t row[OPTION_NAME_BYTES];
    size_t len = strnlen(b, OPTION_NAME_BYTES - 1);

    for (size_t j = 0; j <= len; j++)
        row[j] = j;
    for (; *a != '\0'; a++) {
        size_t diagonal = row[0]++;

        for (size_t j = 1; j <= len; j++) {
            size_t edits = diagonal + !same(*a, b[j - 1]);

            diagonal = row[j];
            if (edits > row[j - 1] + 1)
                edits = row[j - 1] + 1;
            if (edits > row[j] + 1)
                edits = row[j] + 1;
            row[j] = edits;
        }
    }
    return row[len];
}

/* A third of what was typed may be wrong, or its end be missing; two letters
 * after "--" are too few to guess from. */
static const char *nearest(const struct options *options,
                           enum option_source source, const char *spelling,
                           char out[OPTION_NAME_BYTES])
{
    char name[OPTION_NAME_BYTES];
    size_t len = strnlen(spelling, OPTION_NAME_BYTES);
    size_t least = len / 3 + 1;

    out[0] = '\0';
    for (size_t i = 0; i < options->count; i++) {
        const struct option *option = &options->row[i];

        if (!may_stand(option, source))
            continue;
        options_spell(option, source, name);

        bool begun = len >= sizeof "--ab" && strncmp(name, spelling, len) == 0;
        size_t edits = begun ? 0 : distance(spelling, name);

        if (edits < least) {
            least = edits;
            memcpy(out, name, sizeof name);
        }
    }
    return out;
}

bool options_unknown(const struct options *options, const struct origin *origin,
                     const char *spelling, struct error *err)
{
    static const char *const what[] = { "a configuration key",
                                        "a variable of attnd",
                                        "a flag of attnd" };
    char place[300], shown[80], near[OPTION_NAME_BYTES];

    options_place(origin, place, sizeof place);
    options_shown(spelling, shown, sizeof shown);
    nearest(options, origin->source, spelling, near);
    return error_set(err, ERR_UNKNOWN, shown, "%s%s is not %s%s%s%s", place,
                     shown, what[origin->source],
                     *near == '\0' ? "; see attnd --help" : "; did you mean ",
                     near, *near == '\0' ? "" : "?");
}

/* ---- messages ---- */

const char *options_place(const struct origin *origin, char *out, size_t size)
{
    char file[256];

    out[0] = '\0';
    if (origin->source == OPTION_IN_FILE)
        snprintf(out, size, "%s:%ld: ",
                 options_shown(origin->file, file, sizeof file), origin->line);
    return out;
}

const char *options_shown(const char *text, char *out, size_t size)
{
    size_t len = strnlen(text, size);
    bool whole = len < size;

    if (!whole)
        len = size - sizeof "...";
    while (!whole && len > 0 && ((unsigned char)text[len] & 0xC0) == 0x80)
        len--; /* not in the middle of a character */
    for (size_t i = 0; i < len; i++)
        out[i] = iscntrl((unsigned char)text[i]) ? '?' : text[i];
    snprintf(out + len, size - len, "%s", whole ? "" : "...");
    return out;
}

static const char *size_text(int64_t bytes, char out[OPTION_TEXT_BYTES])
{
    size_t i = 0;

    while (bytes == 0 ? i < SUFFIXES - 1 : bytes % suffixes[i].bytes != 0)
        i++;
    snprintf(out, OPTION_TEXT_BYTES, "%" PRId64 "%s", bytes / suffixes[i].bytes,
             suffixes[i].word);
    return out;
}

static void list_words(const char *const *words, char *out, size_t size)
{
    size_t at = 0;

    for (size_t i = 0; words[i] != NULL && at < size; i++) {
        const char *join = i == 0 ? "" : words[i + 1] == NULL ? " or " : ", ";
        int n = snprintf(out + at, size - at, "%s%s", join, words[i]);

        at += n < 0 ? 0 : (size_t)n;
    }
}

const char *options_wanted(const struct option *option, char *out, size_t size)
{
    char min[OPTION_TEXT_BYTES], max[OPTION_TEXT_BYTES];

    switch (option->kind) {
    case OPTION_TEXT:
        snprintf(out, size, "one line of %" PRId64 " to %" PRId64
                 " bytes without blanks at its ends", option->min, option->max);
        break;
    case OPTION_ADDRESS:
        snprintf(out, size, "HOST:PORT or [IPv6]:PORT");
        break;
    case OPTION_WORD:
        list_words(option->words, out, size);
        break;
    case OPTION_NUMBER:
        snprintf(out, size, "a number from %" PRId64 " to %" PRId64,
                 option->min, option->max);
        break;
    case OPTION_BYTES:
        snprintf(out, size, "a size from %s to %s in bytes, KiB, MiB or GiB",
                 size_text(option->min, min), size_text(option->max, max));
        break;
    case OPTION_SWITCH:
        snprintf(out, size, "yes or no");
        break;
    case OPTION_FILE:
    case OPTION_ACTION:
        out[0] = '\0';
        break;
    }
    return out;
}

static bool refuse(const struct option *option, const char *text,
                   const struct origin *origin, struct error *err)
{
    char place[300], name[OPTION_NAME_BYTES], shown[80], wanted[160];

    options_spell(option, origin->source, name);
    options_wanted(option, wanted, sizeof wanted);
    options_place(origin, place, sizeof place);
    options_shown(text, shown, sizeof shown);
    return error_set(err, ERR_RANGE, name, "%s%s is \"%s\", not %s", place,
                     name, shown, wanted);
}

/* ---- values ---- */

static bool text_fits(const struct option *option, const char *text)
{
    size_t len = strlen(text);

    if (len < (size_t)option->min || len > (size_t)option->max ||
        len >= OPTION_TEXT_BYTES)
        return false;
    if (len > 0 && (text[0] == ' ' || text[len - 1] == ' '))
        return false;
    for (size_t i = 0; i < len; i++)
        if (iscntrl((unsigned char)text[i]))
            return false;
    return true;
}

static bool address_fits(const char *text)
{
    struct address address;

    return strlen(text) < OPTION_TEXT_BYTES && address_parse(text, &address);
}

/* Digits, with a sign so that -1 is told its range. */
static bool parse_integer(const char *text, int64_t *value, const char **end)
{
    char *stop;

    if (!isdigit((unsigned char)text[text[0] == '-']))
        return false;
    errno = 0;
    *value = strtoll(text, &stop, 10);
    *end = stop;
    return errno == 0;
}

static bool parse_bytes(const char *text, int64_t *value)
{
    const char *end;

    if (!parse_integer(text, value, &end))
        return false;
    if (*end == ' ' && isalpha((unsigned char)end[1]))
        end++;
    for (size_t i = 0; i < SUFFIXES; i++)
        if (strcasecmp(end, suffixes[i].word) == 0)
            return !__builtin_mul_overflow(*value, suffixes[i].bytes, value);
    return false;
}

static bool parse_number(const char *text, int64_t *value)
{
    const char *end;

    return parse_integer(text, value, &end) && *end == '\0';
}

static bool parse_word(const char *const *words, const char *text,
                       unsigned *index)
{
    for (*index = 0; words[*index] != NULL; ++*index)
        if (strcmp(words[*index], text) == 0)
            return true;
    return false;
}

static bool in_range(const struct option *option, int64_t value)
{
    return value >= option->min && value <= option->max;
}

bool options_set(void *fields, const struct option *option, const char *text,
                 const struct origin *origin, struct error *err)
{
    static const char *const no_yes[] = { "no", "yes", "false", "true",
                                          NULL };
    void *field = (char *)fields + option->offset;
    int64_t value = 0;
    unsigned word = 0;
    bool good = false;

    switch (option->kind) {
    case OPTION_TEXT:
    case OPTION_ADDRESS:
        good = option->kind == OPTION_TEXT ? text_fits(option, text)
                                           : address_fits(text);
        if (good)
            strncpy(field, text, OPTION_TEXT_BYTES); /* zeros to the end */
        break;
    case OPTION_NUMBER:
    case OPTION_BYTES:
        good = (option->kind == OPTION_NUMBER ? parse_number(text, &value)
                                              : parse_bytes(text, &value)) &&
               in_range(option, value);
        if (good)
            memcpy(field, &value, sizeof value);
        break;
    case OPTION_WORD:
        good = parse_word(option->words, text, &word);
        if (good)
            memcpy(field, &word, sizeof word);
        break;
    case OPTION_SWITCH:
        good = parse_word(no_yes, text, &word);
        if (good)
            *(bool *)field = word % 2 == 1;
        break;
    case OPTION_FILE:
    case OPTION_ACTION:
        assert(!"has a field");
    }
    return good || refuse(option, text, origin, err);
}

const char *options_value(const void *fields, const struct option *option,
                          char out[OPTION_TEXT_BYTES])
{
    const void *field = (const char *)fields + option->offset;
    int64_t value;
    unsigned word;

    switch (option->kind) {
    case OPTION_TEXT:
    case OPTION_ADDRESS:
        memcpy(out, field, OPTION_TEXT_BYTES);
        break;
    case OPTION_NUMBER:
        memcpy(&value, field, sizeof value);
        snprintf(out, OPTION_TEXT_BYTES, "%" PRId64, value);
        break;
    case OPTION_BYTES:
        memcpy(&value, field, sizeof value);
        size_text(value, out);
        break;
    case OPTION_WORD:
        memcpy(&word, field, sizeof word);
        snprintf(out, OPTION_TEXT_BYTES, "%s", option->words[word]);
        break;
    case OPTION_SWITCH:
        snprintf(out, OPTION_TEXT_BYTES, "%s",
                 *(const bool *)field ? "yes" : "no");
        break;
    case OPTION_FILE:
    case OPTION_ACTION:
        out[0] = '\0';
        break;
    }
    return out;
}
