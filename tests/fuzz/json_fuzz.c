/* Any bytes as a JSON request. Properties:
 *   - nothing is read or written out of place (the sanitizer says);
 *   - a refusal has a known code and UTF-8 text, an acceptance has sound tensors;
 *   - what is accepted, jansson accepts, duplicates forbidden: two strict
 *     readers agree. But for the bare -Infinity, which is ours alone, and what
 *     jansson can't hold: numbers past a double's range, a NUL in a key;
 *   - with another level of number reading the same body gives the same, and so
 *     it does with its arrays read in parts of a few bytes. */

#include "api/number_array.h"
#include "api/walk.h"
#include "core/cpu.h"
#include "tests/fuzz/json_mutator.h"
#include "tests/fuzz/request_property.h"

#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

struct decoded {
    struct arena arena;
    struct request request;
    struct error err;
};

static bool decode(struct decoded *d, const uint8_t *data, size_t len)
{
    *d = (struct decoded){ 0 };
    arena_init(&d->arena, (size_t)1 << 28);
    return wire_json.decode((struct bytes){ data, len }, NULL, NULL, &d->arena,
                            &d->request, &d->err);
}

static bool run_backwards(struct parallel *self, int64_t pieces,
                          parallel_piece *piece, void *arg)
{
    (void)self;
    while (pieces-- > 0)
        assert(piece(arg, pieces, NULL));
    return true;
}

/* In parts of so many bytes; 0: in one. */
static bool walk(struct decoded *d, const uint8_t *data, size_t len,
                 size_t part_bytes)
{
    static struct parallel backwards = { run_backwards };
    struct cursor_object object;
    struct json_text key;
    struct walk w;

    *d = (struct decoded){ 0 };
    arena_init(&d->arena, (size_t)1 << 28);
    walk_begin(&w, data, len, DTYPE_F32, &d->arena, &d->request, &d->err);
    w.parallel = part_bytes > 0 ? &backwards : NULL;
    w.part_bytes = part_bytes;
    if (cursor_peek(&w.json) != '{')
        return false;
    for (bool go = cursor_open_object(&w.json, &object);
         go && cursor_member(&w.json, &object, &key);)
        walk_member(&w, key);
    return cursor_end(&w.json) && walk_end(&w);
}

static void check_parts(const uint8_t *data, size_t len)
{
    struct decoded whole, parts;
    bool ok = walk(&whole, data, len, 0);

    assert(walk(&parts, data, len, 1 + len % 61) == ok);
    assert(parts.err.code == whole.err.code);
    assert(strcmp(parts.err.text, whole.err.text) == 0);
    if (ok)
        check_tensors(&whole.request.mha, &parts.request.mha);
    arena_free(&parts.arena);
    arena_free(&whole.arena);
}

/* The body with each -Infinity, in strings too, made "-1" and spaces. */
static void check_by_jansson(const uint8_t *data, size_t len)
{
    static const char token[] = "-Infinity", instead[] = "-1       ";
    char *copy = malloc(len + 1);
    json_error_t why;
    json_t *root;

    assert(copy != NULL);
    memcpy(copy, data, len);
    copy[len] = '\0';
    for (char *p = copy; (p = memmem(p, (size_t)(copy + len - p), token,
                                     strlen(token))) != NULL;)
        memcpy(p, instead, strlen(instead));
    root = json_loadb(copy, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL |
                                     JSON_DECODE_INT_AS_REAL, &why);
    assert(root != NULL ||
           json_error_code(&why) == json_error_numeric_overflow ||
           json_error_code(&why) == json_error_null_byte_in_key);
    json_decref(root);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static uint32_t features; /* asked for once: a hypervisor makes it slow */
    struct decoded first, again;

    if (features == 0)
        features = cpu_features();
    assert(number_select(features, "portable"));

    bool ok = decode(&first, data, len);

    assert(number_select(features, NULL));
    assert(decode(&again, data, len) == ok);
    if (ok) {
        check_tensors(&first.request.mha, &again.request.mha);
        check_by_jansson(data, len);
    } else {
        check_refusal(&first.err);
        assert(strcmp(first.err.text, again.err.text) == 0);
    }
    arena_free(&again.arena);
    arena_free(&first.arena);
    check_parts(data, len);
    return 0;
}
