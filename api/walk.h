#ifndef API_WALK_H
#define API_WALK_H

#include "api/cursor.h"
#include "api/fields.h"

/* A request while its fields are read, in whatever order they come: tensors go
 * where they belong, options are kept as text, and what is wrong with either
 * waits for its turn. A body of JSON is one text; in other formats each field
 * that is no tensor is a text of its own. */
struct walk {
    struct cursor json; /* in the text that is being read; arena, err */
    struct request *request;
    struct fields fields;
    enum dtype wide; /* what numbers become: F32 or F64 */
    enum encoding query_encoding;
    struct parallel *parallel; /* helps with arrays of so many bytes ... */
    size_t part_bytes;         /* ... and twice; NULL: nobody does       */
};

/* Everything is forgotten; the cursor is at the start of `text`, which may be
 * empty. Nobody helps. */
void walk_begin(struct walk *w, const void *text, size_t len, enum dtype wide,
                struct arena *arena, struct request *request,
                struct error *err);

/* Reads the value at the cursor as the field `name`. False when the cursor
 * failed, or memory ended: w->json.err. */
bool walk_member(struct walk *w, struct json_text name);

/* The field `name` from a text of its own. The text is JSON, or else a word and
 * thereby a string. Both are valid UTF-8 and outlive the request. False only
 * for want of memory. */
bool walk_text(struct walk *w, const char *name, const char *text);

/* A place for the tensor that the state_dict has under `name`. There is always
 * one: names beyond the most that a module has share the last. NULL for want of
 * memory. */
struct named_tensor *walk_state(struct walk *w, const char *name);

/* Remembers that compare_to has a member it can't have. */
void walk_unknown_expected(struct walk *w, const char *name);

/* Sets the request from what was read, or tells the first thing wrong: see
 * fields_apply(). */
bool walk_end(struct walk *w);

#endif
