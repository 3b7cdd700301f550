#include "tests/e2e/retell.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* ---- reading ---- */

static bool read_element(const json_t *x, struct told_tensor *t, bool *number)
{
    double *to = &t->data[t->count];

    if (json_is_number(x))
        *to = json_number_value(x);
    else if (json_is_boolean(x))
        *to = json_is_true(x);
    else if (json_is_null(x) ||
             (json_is_string(x) &&
              strcmp(json_string_value(x), "-Infinity") == 0))
        *to = -INFINITY;
    else
        return false;
    *number = *number || !json_is_boolean(x);
    t->booleans = t->booleans || json_is_boolean(x);
    t->count++;
    return true;
}

static bool read_nested(const json_t *x, int depth, struct told_tensor *t,
                        bool *number)
{
    if (depth == t->rank)
        return !json_is_array(x) && read_element(x, t, number);
    if (json_array_size(x) != t->dim[depth])
        return false;
    for (size_t i = 0; i < t->dim[depth]; i++)
        if (!read_nested(json_array_get(x, i), depth + 1, t, number))
            return false;
    return true;
}

static bool read_shape(const json_t *shape, struct told_tensor *t)
{
    t->rank = (int)json_array_size(shape);
    if (t->rank == 0 || t->rank > TOLD_MAX_RANK)
        return false;
    for (int i = 0; i < t->rank; i++) {
        json_int_t dim = json_integer_value(json_array_get(shape, (size_t)i));

        if (dim < 1 || dim > 1000000)
            return false;
        t->dim[i] = (size_t)dim;
    }
    return true;
}

static size_t product(const struct told_tensor *t)
{
    size_t n = 1;

    for (int i = 0; i < t->rank; i++)
        n *= t->dim[i];
    return n;
}

static bool read_flat(const json_t *value, struct told_tensor *t)
{
    const json_t *data = json_object_get(value, "data");
    bool number = false;

    if (json_object_size(value) != 2 || !json_is_array(data) ||
        !read_shape(json_object_get(value, "shape"), t) ||
        json_array_size(data) != product(t))
        return false;
    t->data = calloc(product(t), sizeof *t->data);
    for (size_t i = 0; i < json_array_size(data); i++)
        if (!read_element(json_array_get(data, i), t, &number))
            return false;
    return !(number && t->booleans);
}

bool told_read(const json_t *value, struct told_tensor *t)
{
    bool number = false;

    *t = (struct told_tensor){ 0 };
    if (json_is_object(value)) {
        if (read_flat(value, t))
            return true;
        told_free(t);
        return false;
    }
    for (const json_t *x = value; json_is_array(x); x = json_array_get(x, 0)) {
        if (t->rank == TOLD_MAX_RANK || json_array_size(x) == 0)
            return false;
        t->dim[t->rank++] = json_array_size(x);
    }
    if (t->rank == 0)
        return false;
    t->data = calloc(product(t), sizeof *t->data);
    if (read_nested(value, 0, t, &number) && !(number && t->booleans))
        return true;
    told_free(t);
    return false;
}

void told_free(struct told_tensor *t)
{
    free(t->data);
    t->data = NULL;
}

/* ---- telling ---- */

static json_t *element(const struct told_tensor *t, size_t i)
{
    if (t->booleans)
        return json_boolean(t->data[i] != 0);
    return isinf(t->data[i]) ? json_null() : json_real(t->data[i]);
}

static json_t *shape_of(const struct told_tensor *t)
{
    json_t *shape = json_array();

    for (int i = 0; i < t->rank; i++)
        json_array_append_new(shape, json_integer((json_int_t)t->dim[i]));
    return shape;
}

static json_t *tell_flat(const struct told_tensor *t)
{
    json_t *data = json_array();

    for (size_t i = 0; i < t->count; i++)
        json_array_append_new(data, element(t, i));
    return json_pack("{s:o, s:o}", "shape", shape_of(t), "data", data);
}

static char *base64(const uint8_t *bytes, size_t len)
{
    char *text = malloc((len + 2) / 3 * 4 + 1), *to = text;

    for (size_t i = 0; i < len; i += 3) {
        uint32_t three = (uint32_t)bytes[i] << 16;

        three |= i + 1 < len ? (uint32_t)bytes[i + 1] << 8 : 0;
        three |= i + 2 < len ? bytes[i + 2] : 0;
        *to++ = alphabet[three >> 18];
        *to++ = alphabet[three >> 12 & 63];
        *to++ = i + 1 < len ? alphabet[three >> 6 & 63] : '=';
        *to++ = i + 2 < len ? alphabet[three & 63] : '=';
    }
    *to = '\0';
    return text;
}

static json_t *tell_base64(const struct told_tensor *t, bool doubles)
{
    size_t size = t->booleans ? 1 : doubles ? 8 : 4;
    uint8_t *bytes = malloc(t->count * size);

    for (size_t i = 0; i < t->count; i++) {
        uint8_t flag = t->data[i] != 0;
        float single = (float)t->data[i];
        const void *from = t->booleans ? (void *)&flag
                           : doubles   ? (void *)&t->data[i]
                                       : (void *)&single;

        memcpy(bytes + i * size, from, size);
    }

    char *text = base64(bytes, t->count * size);
    json_t *told = json_pack("{s:o, s:s, s:s}", "shape", shape_of(t), "dtype",
                             t->booleans ? "BOOL" : doubles ? "F64" : "F32",
                             "base64", text);

    free(text);
    free(bytes);
    return told;
}

static void retell_member(json_t *object, const char *name, enum told told,
                          bool doubles)
{
    struct told_tensor t;
    const json_t *value = json_object_get(object, name);

    if (told == TOLD_NESTED || !told_read(value, &t))
        return;
    if (t.rank <= 4)
        json_object_set_new(object, name,
                            told == TOLD_FLAT ? tell_flat(&t)
                                              : tell_base64(&t, doubles));
    told_free(&t);
}

static void retell_members(json_t *object, enum told told, bool doubles)
{
    void *next;
    const char *name;
    json_t *value;

    json_object_foreach_safe(object, next, name, value)
        retell_member(object, name, told, doubles);
}

void retell_request(json_t *request, enum told told)
{
    static const char *const fields[] = {
        "query", "key", "value", "hidden_states", "alibi_slopes", "sinks",
        "key_padding_mask", "attention_mask", "attn_mask",
    };
    const char *precision =
        json_string_value(json_object_get(request, "precision"));
    bool doubles = precision != NULL && strcmp(precision, "float64") == 0;

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        retell_member(request, fields[i], told, doubles);
    retell_members(json_object_get(request, "state_dict"), told, doubles);
    retell_members(json_object_get(request, "compare_to"), told, doubles);
}
