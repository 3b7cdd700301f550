#include "tests/e2e/retell_binary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_URL_BYTES = 32 * 1024, ALIGNMENT = 8, MOST_RANK = 4 };

/* Bytes that grow; memory that ends ends the test. */
struct text {
    char *at;
    size_t len, size;
};

static void add(struct text *t, const void *bytes, size_t len)
{
    if (t->len + len + 1 > t->size) {
        t->size = 2 * (t->len + len + 1);
        t->at = realloc(t->at, t->size);
        if (t->at == NULL)
            abort();
    }
    memcpy(t->at + t->len, bytes, len);
    t->len += len;
    t->at[t->len] = '\0';
}

static void add_string(struct text *t, const char *string)
{
    add(t, string, strlen(string));
}

static bool is_double(const json_t *request)
{
    const char *precision =
        json_string_value(json_object_get(request, "precision"));

    return precision != NULL && strcmp(precision, "float64") == 0;
}

/* ---- elements ---- */

static size_t element_bytes(const struct told_tensor *t, bool doubles)
{
    return t->booleans ? 1 : doubles ? 8 : 4;
}

static void write_element(const struct told_tensor *t, size_t i, bool doubles,
                          uint8_t *out)
{
    uint8_t flag = t->data[i] != 0;
    float single = (float)t->data[i];

    memcpy(out,
           t->booleans ? (void *)&flag
           : doubles   ? (void *)&t->data[i]
                       : (void *)&single,
           element_bytes(t, doubles));
}

static bool is_tensor(const json_t *value, struct told_tensor *t)
{
    if (!told_read(value, t))
        return false;
    if (t->rank <= MOST_RANK)
        return true;
    told_free(t);
    return false;
}

/* ---- safetensors ---- */

struct file {
    json_t *header, *metadata;
    struct text data;
    bool doubles;
};

static void add_tensor(struct file *f, const char *name,
                       const struct told_tensor *t)
{
    size_t size = element_bytes(t, f->doubles), from = f->data.len;
    json_t *shape = json_array();
    uint8_t element[8];

    for (int i = 0; i < t->rank; i++)
        json_array_append_new(shape, json_integer((json_int_t)t->dim[i]));
    for (size_t i = 0; i < t->count; i++) {
        write_element(t, i, f->doubles, element);
        add(&f->data, element, size);
    }
    json_object_set_new(
        f->header, name,
        json_pack("{s:s, s:o, s:[I, I]}", "dtype",
                  t->booleans  ? "BOOL"
                  : f->doubles ? "F64" : "F32",
                  "shape", shape, "data_offsets", (json_int_t)from,
                  (json_int_t)f->data.len));
}

/* A field of the request, or one inside another: "state_dict.bias_k". */
static bool add_if_tensor(struct file *f, const char *name, const json_t *value)
{
    struct told_tensor t;

    if (!is_tensor(value, &t))
        return false;
    add_tensor(f, name, &t);
    told_free(&t);
    return true;
}

/* All members or none. */
static bool add_members(struct file *f, const char *name, json_t *value)
{
    const char *key;
    json_t *member;
    struct told_tensor t;

    if (json_object_size(value) == 0 ||
        (strcmp(name, "state_dict") != 0 && strcmp(name, "compare_to") != 0))
        return false;
    json_object_foreach(value, key, member) {
        if (!is_tensor(member, &t))
            return false;
        told_free(&t);
    }
    json_object_foreach(value, key, member) {
        char inner[256];

        snprintf(inner, sizeof inner, "%s.%s", name, key);
        add_if_tensor(f, inner, member);
    }
    return true;
}

/* A word stays a bare word. */
static void add_metadata(json_t *metadata, const char *name,
                         const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    json_t *word = json_is_string(value)
                       ? json_loads(json_string_value(value), JSON_DECODE_ANY,
                                    NULL)
                       : NULL;
    bool bare = json_is_string(value) && word == NULL;

    json_object_set_new(metadata, name,
                        json_string(bare ? json_string_value(value) : text));
    json_decref(word);
    free(text);
}

/* Only these hold tensors: "window" does not, though it looks like one. */
static bool may_be_tensor(const char *name)
{
    static const char *const fields[] = {
        "query", "key", "value", "hidden_states", "alibi_slopes", "sinks",
        "key_padding_mask", "attention_mask", "attn_mask",
    };

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strcmp(fields[i], name) == 0)
            return true;
    return false;
}

void retell_safetensors(const json_t *request, struct told_body *body)
{
    struct file f = { json_object(), json_object(), { 0 },
                      is_double(request) };
    struct text out = { 0 };
    const char *name;
    json_t *value;
    uint64_t len;
    char *header;

    json_object_foreach((json_t *)request, name, value)
        if (!(may_be_tensor(name) && add_if_tensor(&f, name, value)) &&
            !add_members(&f, name, value))
            add_metadata(f.metadata, name, value);
    if (json_object_size(f.metadata) > 0)
        json_object_set(f.header, "__metadata__", f.metadata);
    header = json_dumps(f.header, JSON_COMPACT);
    len = (strlen(header) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    add(&out, &len, sizeof len);
    add_string(&out, header);
    while (out.len < sizeof len + len)
        add(&out, " ", 1);
    add(&out, f.data.len == 0 ? "" : f.data.at, f.data.len);
    *body = (struct told_body){ (uint8_t *)out.at, out.len,
                                strdup("/attention") };
    json_decref(f.header);
    json_decref(f.metadata);
    free(header);
    free(f.data.at);
}

/* ---- npy ---- */

static void add_escaped(struct text *url, const char *text)
{
    for (; *text != '\0'; text++) {
        char c = *text, escaped[4];

        if (c == ' ') {
            add(url, "+", 1);
        } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                   (c >= '0' && c <= '9') || c == '_' || c == '.') {
            add(url, &c, 1);
        } else {
            snprintf(escaped, sizeof escaped, "%%%02X", (unsigned char)c);
            add(url, escaped, 3);
        }
    }
}

static void add_field(struct text *url, const char *name, const json_t *value)
{
    json_t *metadata = json_object();

    add_metadata(metadata, name, value);
    add_string(url, strchr(url->at, '?') == NULL ? "?" : "&");
    add_escaped(url, name);
    add_string(url, "=");
    add_escaped(url, json_string_value(json_object_get(metadata, name)));
    json_decref(metadata);
}

/* The place of element `i` of C order when the first axis is the inner one. */
static size_t fortran_place(const struct told_tensor *t, size_t i)
{
    size_t index[TOLD_MAX_RANK], place = 0;

    for (int axis = t->rank - 1; axis >= 0; axis--) {
        index[axis] = i % t->dim[axis];
        i /= t->dim[axis];
    }
    for (int axis = t->rank - 1; axis >= 0; axis--)
        place = place * t->dim[axis] + index[axis];
    return place;
}

static void add_npy_header(struct text *out, const struct told_tensor *t,
                           bool doubles, bool big, bool fortran, int version)
{
    char header[512];
    size_t len = (size_t)snprintf(
        header, sizeof header,
        "{'descr': '%s', 'fortran_order': %s, 'shape': (",
        t->booleans ? "|b1" : doubles ? (big ? ">f8" : "<f8")
                                      : (big ? ">f4" : "<f4"),
        fortran ? "True" : "False");
    uint32_t length;

    for (int i = 0; i < t->rank; i++)
        len += (size_t)snprintf(header + len, 32, "%zu,", t->dim[i]);
    len += (size_t)snprintf(header + len, 32, "), }");
    while ((len + 1) % 64 != 0)
        header[len++] = ' ';
    header[len++] = '\n';
    length = (uint32_t)len;
    add_string(out, "\x93NUMPY");
    add(out, (char[]){ (char)version, 0 }, 2);
    add(out, &length, version == 1 ? 2 : 4);
    add(out, header, len);
}

static void add_array(struct text *out, const struct told_tensor *t,
                      bool doubles, unsigned variant)
{
    size_t size = element_bytes(t, doubles);
    bool big = variant & 1, fortran = variant & 2;
    uint8_t *data = calloc(t->count, size);

    add_npy_header(out, t, doubles, big, fortran, 1 + (int)(variant / 4 % 3));
    for (size_t i = 0; i < t->count; i++) {
        uint8_t *to = data + size * (fortran ? fortran_place(t, i) : i);
        uint8_t element[8];

        write_element(t, i, doubles, element);
        for (size_t b = 0; b < size; b++)
            to[b] = element[big ? size - 1 - b : b];
    }
    add(out, data, t->count * size);
    free(data);
}

bool retell_npy(const json_t *request, unsigned variant,
                struct told_body *body)
{
    struct text url = { 0 }, out = { 0 };
    struct told_tensor t;
    const char *name;
    json_t *value;

    if (!is_tensor(json_object_get(request, "query"), &t))
        return false;
    add_string(&url, "/attention");
    json_object_foreach((json_t *)request, name, value)
        if (strcmp(name, "query") != 0)
            add_field(&url, name, value);
    if (url.len > MOST_URL_BYTES) {
        free(url.at);
        told_free(&t);
        return false;
    }
    add_array(&out, &t, is_double(request), variant);
    told_free(&t);
    *body = (struct told_body){ (uint8_t *)out.at, out.len, url.at };
    return true;
}

/* ---- replies ---- */

static json_t *read_number(const char *dtype, const uint8_t *at)
{
    double wide;
    float narrow;
    int64_t integer;

    if (strcmp(dtype, "I64") == 0) {
        memcpy(&integer, at, sizeof integer);
        return json_integer(integer);
    }
    if (strcmp(dtype, "F64") == 0) {
        memcpy(&wide, at, sizeof wide);
    } else {
        memcpy(&narrow, at, sizeof narrow);
        wide = (double)narrow;
    }
    return isinf(wide) ? json_null() : json_real(wide);
}

static json_t *read_data(const char *dtype, const uint8_t *data, size_t bytes)
{
    size_t size = strcmp(dtype, "F32") == 0 ? 4 : 8;
    json_t *numbers = json_array();

    for (size_t i = 0; i + size <= bytes; i += size)
        json_array_append_new(numbers, read_number(dtype, data + i));
    return numbers;
}

static json_t *read_entry(const json_t *entry, const uint8_t *data,
                          size_t bytes)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    size_t from = (size_t)json_integer_value(json_array_get(offsets, 0));
    size_t to = (size_t)json_integer_value(json_array_get(offsets, 1));

    if (dtype == NULL || from > to || to > bytes)
        return NULL;
    return json_pack("{s:O, s:o}", "shape", json_object_get(entry, "shape"),
                     "data", read_data(dtype, data + from, to - from));
}

static void set_tensor(json_t *reply, const char *name, json_t *tensor)
{
    const char *dot = strchr(name, '.');
    json_t *weights = json_object_get(reply, "weights");

    if (dot == NULL) {
        json_object_set_new(reply, name, tensor);
        return;
    }
    if (weights == NULL) {
        weights = json_object();
        json_object_set_new(reply, "weights", weights);
    }
    json_object_set_new(weights, dot + 1, tensor);
}

json_t *retell_safetensors_reply(const void *bytes, size_t len)
{
    const char *at = bytes, *key;
    uint64_t header_len;
    json_t *header, *value, *reply = json_object(), *metadata;

    if (len < sizeof header_len)
        return NULL;
    memcpy(&header_len, at, sizeof header_len);
    if (header_len > len - sizeof header_len)
        return NULL;
    at += sizeof header_len;
    header = json_loadb(at, header_len, JSON_REJECT_DUPLICATES, NULL);
    metadata = json_object_get(header, "__metadata__");
    json_object_foreach(metadata, key, value)
        json_object_set_new(reply, key,
                            json_loads(json_string_value(value),
                                       JSON_DECODE_ANY, NULL));
    json_object_del(header, "__metadata__");
    json_object_foreach(header, key, value)
        set_tensor(reply, key,
                   read_entry(value, (const uint8_t *)at + header_len,
                              len - sizeof header_len - header_len));
    json_decref(header);
    return reply;
}

/* The few forms that the service writes. */
json_t *retell_npy_reply(const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    json_t *shape = json_array();
    char header[512], *p;
    size_t header_len;
    bool doubles;

    if (len < 10 || memcmp(at, "\x93NUMPY\1\0", 8) != 0)
        return NULL;
    header_len = at[8] | (size_t)at[9] << 8;
    if ((10 + header_len) % 64 != 0 || header_len >= sizeof header ||
        10 + header_len > len)
        return NULL;
    memcpy(header, at + 10, header_len);
    header[header_len] = '\0';
    doubles = strstr(header, "'descr': '<f8'") != NULL;
    p = strchr(header, '(');
    if ((!doubles && strstr(header, "'descr': '<f4'") == NULL) ||
        strstr(header, "'fortran_order': False") == NULL || p == NULL)
        return NULL;
    for (p++; *p >= '0' && *p <= '9'; p += strspn(p, ", "))
        json_array_append_new(shape, json_integer(strtoll(p, &p, 10)));
    at += 10 + header_len;
    return json_pack("{s:{s:o, s:o}}", "output", "shape", shape, "data",
                     read_data(doubles ? "F64" : "F32", at,
                               len - 10 - header_len));
}
