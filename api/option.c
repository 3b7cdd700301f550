#include "api/option.h"

#include "api/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool refuse_as(const struct option *o, enum error_code code,
                      const char *wanted)
{
    char pointer[FIELD_NAME_BYTES + 1], shown[CURSOR_EXCERPT_BYTES];

    return error_set(o->err, code,
                     error_pointer(pointer, sizeof pointer, "",
                                   o->field->name),
                     "%s is %s, not %s", o->field->name,
                     cursor_excerpt(o->text.at, o->text.end, shown), wanted);
}

static bool refuse(const struct option *o, enum error_code code)
{
    return refuse_as(o, code, o->field->wanted);
}

static bool is_number(struct json_span text)
{
    char c = text.at[*text.at == '-'];

    return c >= '0' && c <= '9';
}

static bool is_string(struct json_span text, struct json_text *string)
{
    return *text.at == '"' &&
           json_text_read(text.at + 1, text.end, string) == NULL;
}

static bool span_is(struct json_span text, const char *word)
{
    size_t len = strlen(word);

    return (size_t)(text.end - text.at) == len &&
           memcmp(text.at, word, len) == 0;
}

static bool read_bool(const struct option *o)
{
    bool yes = span_is(o->text, "true");

    if (!yes && !span_is(o->text, "false"))
        return refuse(o, ERR_TYPE);
    *(bool *)o->destination = yes;
    return true;
}

/* ERR_NONE, or what is wrong with an integer of at least `min`. */
static enum error_code read_int64(struct json_span text, int64_t min,
                                  int64_t *value)
{
    if (!is_number(text))
        return ERR_TYPE;
    switch (number_read_i64(text.at, (size_t)(text.end - text.at), value)) {
    case NUMBER_INT_FRACTION:
        return ERR_TYPE;
    case NUMBER_INT_RANGE:
        return ERR_RANGE;
    case NUMBER_INT_OK:
        break;
    }
    return *value < min ? ERR_RANGE : ERR_NONE;
}

static bool read_integer(const struct option *o)
{
    int64_t value;
    enum error_code code = read_int64(o->text, (int64_t)o->field->min, &value);

    if (code != ERR_NONE)
        return refuse(o, code);
    memcpy(o->destination, &value, sizeof value);
    return true;
}

static bool read_number(const struct option *o)
{
    double value;
    float narrow;

    if (!is_number(o->text))
        return refuse(o, ERR_TYPE);
    number_read_f64(o->text.at, o->text.end, &value);
    if (!o->wide) {
        number_read_f32(o->text.at, o->text.end, &narrow);
        value = (double)narrow;
    }
    if (value < o->field->min || value > o->field->max)
        return refuse(o, ERR_RANGE);
    *(double *)o->destination = value;
    return true;
}

static bool read_filter(const struct option *o)
{
    struct json_text string;

    if (!span_is(o->text, "-Infinity") &&
        !(is_string(o->text, &string) && json_text_is(string, "-Infinity")))
        return read_number(o);
    *(double *)o->destination = -INFINITY;
    return true;
}

/* "NLE", "LNE" or "LE" */
static char *list_words(const struct word *words, char *out, size_t size)
{
    size_t at = 0;

    for (const struct word *w = words; w->text != NULL; w++)
        at += (size_t)snprintf(out + at, size - at, "%s\"%s\"",
                               w == words          ? ""
                               : w[1].text == NULL ? " or "
                                                   : ", ",
                               w->text);
    return out;
}

static const struct word *find_word(const struct word *words,
                                    struct json_text text)
{
    while (words->text != NULL && !json_text_is(text, words->text))
        words++;
    return words->text == NULL ? NULL : words;
}

static bool read_word(const struct option *o)
{
    struct json_text string;
    bool is_word = is_string(o->text, &string);
    const struct word *word =
        is_word ? find_word(o->field->words, string) : NULL;
    char wanted[160];

    if (word == NULL)
        return refuse_as(o, is_word ? ERR_RANGE : ERR_TYPE,
                         list_words(o->field->words, wanted, sizeof wanted));
    memcpy(o->destination, &word->value, sizeof word->value);
    return true;
}

/* The elements of an option that is an array. The text was found valid, so
 * that `json` can't fail; an array or object inside is never entered. */
struct list {
    struct cursor json;
    struct error never;
    size_t n;
    struct json_span text; /* of the element last read */
};

static bool open_list(struct list *list, struct json_span text)
{
    list->n = 0;
    list->never.code = ERR_NONE;
    cursor_init(&list->json, text.at, (size_t)(text.end - text.at), NULL,
                &list->never);
    return *text.at == '[' && cursor_open(&list->json);
}

static bool next_element(struct list *list)
{
    if (!cursor_element(&list->json, &list->n))
        return false;

    char c = cursor_peek(&list->json);

    list->text.at = list->json.at;
    if (c != '[' && c != '{')
        cursor_skip(&list->json);
    list->text.end = list->json.at;
    return true;
}

static bool refuse_element(const struct option *o, const struct list *list,
                           enum error_code code)
{
    char pointer[2 * FIELD_NAME_BYTES], wanted[160];
    char shown[CURSOR_EXCERPT_BYTES];

    snprintf(pointer, sizeof pointer, "/%s/%zu", o->field->name, list->n - 1);
    return error_set(o->err, code, pointer, "%s[%zu] is %s, not %s",
                     o->field->name, list->n - 1,
                     cursor_excerpt(list->text.at, list->text.end, shown),
                     list_words(o->field->words, wanted, sizeof wanted));
}

static bool read_word_list(const struct option *o)
{
    struct list list;
    struct json_text string;
    unsigned bits = 0;

    if (!open_list(&list, o->text))
        return refuse(o, ERR_TYPE);
    while (next_element(&list)) {
        bool is_word = is_string(list.text, &string);
        const struct word *word =
            is_word ? find_word(o->field->words, string) : NULL;

        if (word == NULL)
            return refuse_element(o, &list, is_word ? ERR_RANGE : ERR_TYPE);
        bits |= word->value;
    }
    memcpy(o->destination, &bits, sizeof bits);
    return true;
}

static bool read_window(const struct option *o)
{
    struct list list;
    int64_t window[2];

    if (!open_list(&list, o->text))
        return refuse(o, ERR_TYPE);
    while (next_element(&list)) {
        if (list.n > 2)
            return refuse(o, ERR_SHAPE);

        enum error_code code = read_int64(list.text, -1, &window[list.n - 1]);

        if (code != ERR_NONE)
            return refuse(o, code);
    }
    if (list.n != 2)
        return refuse(o, ERR_SHAPE);
    memcpy(o->destination, window, sizeof window);
    return true;
}

static bool read_name(const struct option *o)
{
    struct json_text string;

    if (!is_string(o->text, &string))
        return refuse(o, ERR_TYPE);
    json_text_copy(string, o->destination, REQUEST_NAME_BYTES);
    return true;
}

bool option_read(const struct option *o)
{
    switch (o->field->kind) {
    case FIELD_INTEGER: return read_integer(o);
    case FIELD_NUMBER: return read_number(o);
    case FIELD_FILTER: return read_filter(o);
    case FIELD_BOOL: return read_bool(o);
    case FIELD_WORD: return read_word(o);
    case FIELD_WORD_LIST: return read_word_list(o);
    case FIELD_WINDOW: return read_window(o);
    case FIELD_NAME: return read_name(o);
    case FIELD_TENSOR:
    case FIELD_PADDING:
    case FIELD_BIAS:
    case FIELD_TENSORS:
    case FIELD_COMPARE: break; /* read with the body */
    }
    return true;
}
