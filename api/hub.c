#include "api/hub.h"

#include "api/cursor.h"
#include "api/number.h"

#include <stdlib.h>
#include <string.h>

static const char *const head_names[] = { "num_attention_heads", "n_head",
                                          "n_heads" };

enum { HEADS_MAX = 1 << 20, FILE_NAME_BYTES = 256 };

static bool open_object(struct cursor *json, struct cursor_object *object)
{
    json->at = cursor_skip_space(json->at, json->end);
    if (cursor_peek(json) != '{')
        return cursor_fail(json, json->at, "an object should stand here");
    return cursor_open_object(json, object);
}

/* A file that is one object, while its members are read. Not to be copied. */
struct file {
    struct cursor json;
    struct cursor_object members;
    struct error why; /* of the syntax */
};

static bool open_file(struct file *file, struct bytes text, struct arena *arena)
{
    file->why = (struct error){ 0 };
    cursor_init(&file->json, text.data, text.len, arena, &file->why);
    return open_object(&file->json, &file->members);
}

static bool end_file(struct file *file, const char *name, struct error *err)
{
    return cursor_end(&file->json) ||
           error_set(err, file->why.code, "", "%s, %s", name, file->why.text);
}

static bool set_heads(int64_t value, const char *name, int64_t *heads,
                      struct error *err)
{
    if (value < 1 || value > HEADS_MAX)
        return error_set(err, ERR_RANGE, "", "%s is %lld, not 1 to %d", name,
                         (long long)value, HEADS_MAX);
    if (*heads != 0 && *heads != value)
        return error_set(err, ERR_CONFLICT, "",
                         "%s is %lld, but another name for it says %lld", name,
                         (long long)value, (long long)*heads);
    *heads = value;
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool read_member(struct cursor *json, struct json_text key,
                        int64_t *heads, struct error *err)
{
    const char *at = json->at, *name = NULL;
    int64_t value;

    for (size_t i = 0; i < sizeof head_names / sizeof *head_names; i++) {
        if (json_text_is(key, head_names[i]))
            name = head_names[i];
    }
    if (!cursor_skip(json))
        return false;
    if (name == NULL || *at == 'n') /* null */
        return true;
    if ((*at != '-' && !is_digit(*at)) ||
        number_read_i64(at, (size_t)(json->at - at), &value) != NUMBER_INT_OK)
        return error_set(err, ERR_TYPE, "", "%s in config.json is no integer",
                         name);
    return set_heads(value, name, heads, err);
}

bool hub_config_heads(struct bytes text, struct arena *arena, int64_t *heads,
                      struct error *err)
{
    struct file file;
    struct json_text key;

    *heads = 0;
    for (bool go = open_file(&file, text, arena);
         go && cursor_member(&file.json, &file.members, &key);) {
        if (!read_member(&file.json, key, heads, err))
            break;
    }
    return err->code == ERR_NONE && end_file(&file, "config.json", err);
}

bool hub_metadata_heads(const struct safetensors *file, int64_t *heads,
                        struct error *err)
{
    const char *text = safetensors_find_metadata(file, "num_heads");
    const char *at = text;
    int64_t value = 0;

    *heads = 0;
    if (text == NULL)
        return true;
    while (is_digit(*at) && value <= HEADS_MAX)
        value = 10 * value + (*at++ - '0');
    if (at == text || *at != '\0' || (*text == '0' && at - text > 1))
        return error_set(err, ERR_TYPE, "",
                         "num_heads in __metadata__ is no whole number: %s",
                         text);
    return set_heads(value, "num_heads", heads, err);
}

/* ---- the index ---- */

struct names {
    const char **name;
    size_t count, size;
    struct arena *arena;
    struct error *err;
};

static bool fail_memory(struct error *err)
{
    return error_set(err, ERR_OVERLOADED, "",
                     "no memory is left for the names of its files");
}

static bool is_file_name(const char *name)
{
    return name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL &&
           strlen(name) < FILE_NAME_BYTES - 1;
}

/* Twice as many places, in the arena, where the old ones stay as well. */
static bool grow(struct names *n)
{
    size_t size = n->size == 0 ? 16 : 2 * n->size;
    const char **name = arena_array(n->arena, size, sizeof *name);

    if (name == NULL)
        return fail_memory(n->err);
    if (n->count > 0)
        memcpy(name, n->name, n->count * sizeof *name);
    n->name = name;
    n->size = size;
    return true;
}

/* A map has a member for each tensor, and few files among them: the file that
 * was the last one is not kept again. */
static bool add_name(struct names *n, struct json_text text)
{
    char name[FILE_NAME_BYTES], *kept;

    json_text_copy(text, name, sizeof name);
    if (!is_file_name(name))
        return error_set(n->err, ERR_RANGE, "",
                         "the index names a file that is none of its folder: "
                         "\"%s\"", name);
    if (n->count > 0 && strcmp(n->name[n->count - 1], name) == 0)
        return true;
    if (n->count == n->size && !grow(n))
        return false;
    kept = arena_alloc(n->arena, strlen(name) + 1);
    if (kept == NULL)
        return fail_memory(n->err);
    n->name[n->count++] = memcpy(kept, name, strlen(name) + 1);
    return true;
}

static bool read_map(struct cursor *json, struct names *n)
{
    struct cursor_object object;
    struct json_text key, file;

    for (bool go = open_object(json, &object);
         go && cursor_member(json, &object, &key);) {
        if (!cursor_string(json, &file) || !add_name(n, file))
            return false;
    }
    return cursor_ok(json);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void sort_names(struct names *n)
{
    size_t kept = 0;

    if (n->count > 0)
        qsort(n->name, n->count, sizeof *n->name, compare_names);
    for (size_t i = 0; i < n->count; i++) {
        if (kept == 0 || strcmp(n->name[kept - 1], n->name[i]) != 0)
            n->name[kept++] = n->name[i];
    }
    n->count = kept;
}

bool hub_index_files(struct bytes text, struct arena *arena,
                     const char ***names, size_t *count, struct error *err)
{
    static const char name[] = "model.safetensors.index.json";
    struct names n = { .arena = arena, .err = err };
    struct file file;
    struct json_text key;

    for (bool go = open_file(&file, text, arena);
         go && cursor_member(&file.json, &file.members, &key);) {
        if (json_text_is(key, "weight_map") ? !read_map(&file.json, &n)
                                            : !cursor_skip(&file.json))
            break;
    }
    if (err->code != ERR_NONE || !end_file(&file, name, err))
        return false;
    sort_names(&n);
    *names = n.name;
    *count = n.count;
    return n.count > 0 ||
           error_set(err, ERR_JSON, "", "%s has no weight_map", name);
}
