#ifndef API_CURSOR_H
#define API_CURSOR_H

#include "api/json_text.h"
#include "api/keys.h"
#include "core/error.h"

/* Strict JSON (RFC 8259), read once and in place: a cursor that its user moves
 * value by value. It builds nothing.
 *
 * Beyond the grammar it refuses what is valid but ambiguous or a trap: a key
 * twice in an object, nesting deeper than CURSOR_MAX_DEPTH, a byte-order mark,
 * a surrogate without its other half.
 *
 * The first mistake ends the reading. Its error is ERR_JSON (where "", the text
 * says line, column and byte), or ERR_OVERLOADED when the arena is full; from
 * then on every function returns false, so a loop checks once, behind it, with
 * cursor_ok(). */

enum { CURSOR_MAX_DEPTH = 16 }; /* the top-level value counts as 1 */

struct cursor {
    const char *start, *at, *end;
    struct arena *arena;
    struct error *err;
    int depth;
    struct keys keys;
};

/* Values: the cursor is at the first byte of one, and behind it afterwards. */

void cursor_init(struct cursor *json, const void *body, size_t len,
                 struct arena *arena, struct error *err);

bool cursor_ok(const struct cursor *json);

/* Refuses the body for what stands at `at`. Returns false. */
bool cursor_fail(struct cursor *json, const char *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The first byte of the value, '\0' when none is there. */
char cursor_peek(const struct cursor *json);

/* Past one value of any kind, checked in full. */
bool cursor_skip(struct cursor *json);

bool cursor_string(struct cursor *json, struct json_text *text);

/* Takes `word` when it stands here: "true", "-Infinity". */
bool cursor_take(struct cursor *json, const char *word);

/*     for (bool go = cursor_open(json); go && cursor_element(json, &n); )
 *         ... reads one value ...
 * cursor_element() moves to the next element, counts it in n (0 before the
 * first), and at the end behind the bracket, where it returns false. */
bool cursor_open(struct cursor *json);
bool cursor_element(struct cursor *json, size_t *n);

/* The same for members of an object: the cursor moves to the value. */
struct cursor_object {
    size_t keys; /* where its keys begin */
    size_t members;
};
bool cursor_open_object(struct cursor *json, struct cursor_object *object);
bool cursor_member(struct cursor *json, struct cursor_object *object,
                   struct json_text *key);

/* Nothing but white space may be left. */
bool cursor_end(struct cursor *json);

static inline bool cursor_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static inline const char *cursor_skip_space(const char *at, const char *end)
{
    while (at < end && cursor_is_space(*at))
        at++;
    return at;
}

/* What a sentence calls the valid value at `at`: itself, cut when it is long,
 * or "an array" or "an object" when that is long, or its end is not known and
 * given as `at`. Returns out. */
enum { CURSOR_EXCERPT_BYTES = 48 };
char *cursor_excerpt(const char *at, const char *end,
                     char out[CURSOR_EXCERPT_BYTES]);

#endif
