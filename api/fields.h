#ifndef API_FIELDS_H
#define API_FIELDS_H

#include "api/cursor.h"
#include "api/message.h"

/* The fields of a request: api/fields.def as a table, and what a body gave of
 * them before it means anything.
 *
 * A wire format fills `struct fields` in whatever order its body has; tensors
 * it reads itself, options it leaves as JSON text. fields_apply() then tells
 * what is wrong in the contract's order, not the body's. */

enum field_kind {
    FIELD_TENSOR,
    FIELD_PADDING,
    FIELD_BIAS,
    FIELD_TENSORS,
    FIELD_COMPARE,
    FIELD_INTEGER,
    FIELD_NUMBER,
    FIELD_FILTER,
    FIELD_BOOL,
    FIELD_WORD,
    FIELD_WORD_LIST,
    FIELD_WINDOW,
    FIELD_NAME,
};

enum field_id {
#define FIELD(name, ...) FIELD_ID_##name,
#include "api/fields.def"
#undef FIELD
    FIELD_COUNT
};

struct word {
    const char *text; /* NULL ends a table */
    unsigned value;
};

enum { FIELD_NAME_BYTES = 32 }; /* of any field, its NUL included */

#define FIELD_NO_FLAG ((size_t)-1)

struct field {
    const char *name;
    enum field_kind kind;
    size_t destination; /* offsets in struct request */
    size_t given;       /* of a bool, or FIELD_NO_FLAG */
    const struct word *words;
    double min, max;
    const char *wanted;
};

extern const struct field fields_table[FIELD_COUNT];

enum { FIELDS_UNKNOWN_BYTES = 256 };

/* The text of a valid JSON value, where it stands. */
struct json_span {
    const char *at, *end;
};

struct fields {
    bool given[FIELD_COUNT];
    struct json_span option[FIELD_COUNT];
    bool has_unknown;
    char unknown[FIELDS_UNKNOWN_BYTES]; /* the first name that is no field */
};

/* FIELD_COUNT when there is none of this name. */
enum field_id fields_find(struct json_text name);
enum field_id fields_find_name(const char *name);

/* Remembers the first name that is no field, cut between two characters. */
void fields_add_unknown(struct fields *fields, const char *name);

/* Where a field of `request` goes. */
void *fields_destination(struct request *request, const struct field *field);

/* The precision asked for, which tensors must know before the options are
 * applied; float32 when what it says is not valid. */
enum precision fields_precision(const struct fields *fields);

/* Sets the options of `request`, or tells the first thing wrong: a field
 * unknown (ERR_UNKNOWN, with the nearest known name), query missing, or a layer
 * without its model (ERR_MISSING), hidden_states beside query, key or value, or
 * a state_dict beside model (ERR_CONFLICT), then the options in the table's
 * order (ERR_TYPE, ERR_RANGE, ERR_SHAPE). */
bool fields_apply(const struct fields *fields, struct request *request,
                  struct error *err);

#endif
