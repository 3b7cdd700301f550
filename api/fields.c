#include "api/fields.h"

#include "api/option.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const struct word layouts[] = {
    { "NLE", LAYOUT_NLE }, { "LNE", LAYOUT_LNE },
    { "LE", LAYOUT_LE },   { "NHLD", LAYOUT_NHLD },
    { NULL, 0 },
};

static const struct word alignments[] = {
    { "top_left", ALIGNMENT_TOP_LEFT },
    { "bottom_right", ALIGNMENT_BOTTOM_RIGHT },
    { NULL, 0 },
};

static const struct word conventions[] = {
    { "torch_mha", CONVENTIONS_TORCH_MHA },
    { "torch_sdpa", CONVENTIONS_TORCH_SDPA },
    { "onnx", CONVENTIONS_ONNX },
    { "jax", CONVENTIONS_JAX },
    { "keras", CONVENTIONS_KERAS },
    { "flash_attn", CONVENTIONS_FLASH_ATTN },
    { NULL, 0 },
};

static const struct word returns[] = {
    { "q", MHA_RETURN_Q },
    { "k", MHA_RETURN_K },
    { "v", MHA_RETURN_V },
    { "scores", MHA_RETURN_SCORES },
    { "context", MHA_RETURN_CONTEXT },
    { "lse", MHA_RETURN_LSE },
    { NULL, 0 },
};

static const struct word formats[] = {
    { "nested", ENCODING_NESTED },
    { "flat", ENCODING_FLAT },
    { "base64", ENCODING_BASE64 },
    { NULL, 0 },
};

static const struct word precisions[] = {
    { "float32", PRECISION_F32 },
    { "float64", PRECISION_F64 },
    { "bfloat16", PRECISION_BF16 },
    { NULL, 0 },
};

#define no_words NULL
#define NO_FLAG FIELD_NO_FLAG
#define FLAG(member) offsetof(struct request, member)
#define BELOW_ONE (1 - DBL_EPSILON / 2)

const struct field fields_table[FIELD_COUNT] = {
#define FIELD(name, kind, destination, given, words, min, max, wanted)         \
    { #name, FIELD_##kind, offsetof(struct request, destination), given,       \
      words, min, max, wanted },
#include "api/fields.def"
#undef FIELD
};

enum field_id fields_find(struct json_text name)
{
    int id = 0;

    while (id < FIELD_COUNT && !json_text_is(name, fields_table[id].name))
        id++;
    return (enum field_id)id;
}

enum field_id fields_find_name(const char *name)
{
    int id = 0;

    while (id < FIELD_COUNT && strcmp(name, fields_table[id].name) != 0)
        id++;
    return (enum field_id)id;
}

void fields_add_unknown(struct fields *fields, const char *name)
{
    size_t len = error_cut(name, strnlen(name, sizeof fields->unknown - 1));

    if (fields->has_unknown)
        return;
    fields->has_unknown = true;
    memcpy(fields->unknown, name, len);
    fields->unknown[len] = '\0';
}

void *fields_destination(struct request *request, const struct field *field)
{
    return (char *)request + field->destination;
}

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

/* Insertions, deletions, replacements and swaps of neighbours that make `name`
 * a field's; what is longer than twice any field's is cut. */
static int distance(const char *name, const char *field)
{
    int row[3][FIELD_NAME_BYTES]; /* of three characters in a row, by turns */
    int n = (int)strnlen(name, (size_t)2 * FIELD_NAME_BYTES);
    int m = (int)strlen(field);

    for (int j = 0; j <= m; j++)
        row[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *now = row[i % 3], *last = row[(i + 2) % 3];
        const int *older = row[(i + 1) % 3];

        now[0] = i;
        for (int j = 1; j <= m; j++) {
            bool same = name[i - 1] == field[j - 1];

            now[j] = min_int(last[j - 1] + !same,
                             1 + min_int(last[j], now[j - 1]));
            if (i > 1 && j > 1 && name[i - 1] == field[j - 2] &&
                name[i - 2] == field[j - 1])
                now[j] = min_int(now[j], older[j - 2] + 1);
        }
    }
    return row[n % 3][m];
}

static const char *nearest(const char *name)
{
    int best = 0;

    for (int id = 1; id < FIELD_COUNT; id++) {
        if (distance(name, fields_table[id].name) <
            distance(name, fields_table[best].name))
            best = id;
    }
    return fields_table[best].name;
}

static bool check_unknown(const struct fields *fields, struct error *err)
{
    char pointer[sizeof err->where];

    if (!fields->has_unknown)
        return true;
    return error_set(err, ERR_UNKNOWN,
                     error_pointer(pointer, sizeof pointer, "",
                                   fields->unknown),
                     "\"%s\" is no field of a request; the nearest is "
                     "\"%s\"", fields->unknown, nearest(fields->unknown));
}

static bool check_inputs(const struct fields *fields, struct error *err)
{
    static const enum field_id others[] = { FIELD_ID_query, FIELD_ID_key,
                                            FIELD_ID_value };

    if (!fields->given[FIELD_ID_hidden_states]) {
        if (fields->given[FIELD_ID_query])
            return true;
        return error_set(err, ERR_MISSING, "/query",
                         "query (or hidden_states, BERT's name for it) is "
                         "missing");
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (fields->given[others[i]])
            return error_set(err, ERR_CONFLICT, "/hidden_states",
                             "hidden_states is query, key and value in one "
                             "and can't stand beside %s",
                             fields_table[others[i]].name);
    }
    return true;
}

static bool check_model(const struct fields *fields, struct error *err)
{
    if (fields->given[FIELD_ID_model] && fields->given[FIELD_ID_state_dict])
        return error_set(err, ERR_CONFLICT, "/state_dict",
                         "state_dict can't stand beside model, which brings "
                         "its own weights");
    if (fields->given[FIELD_ID_layer] && !fields->given[FIELD_ID_model])
        return error_set(err, ERR_MISSING, "/model",
                         "model is missing, of which layer is a part");
    return true;
}

enum precision fields_precision(const struct fields *fields)
{
    enum field_id id = FIELD_ID_precision;
    enum precision precision = PRECISION_F32;
    struct error ignored = { ERR_NONE };
    struct option o = { &fields_table[id], fields->option[id], &precision,
                        false, &ignored };

    if (fields->given[id])
        option_read(&o);
    return precision;
}

bool fields_apply(const struct fields *fields, struct request *request,
                  struct error *err)
{
    bool wide = fields_precision(fields) == PRECISION_F64;

    if (!check_unknown(fields, err) || !check_inputs(fields, err) ||
        !check_model(fields, err))
        return false;
    for (int id = 0; id < FIELD_COUNT; id++) {
        const struct field *field = &fields_table[id];
        struct option o = { field, fields->option[id],
                            fields_destination(request, field), wide, err };

        if (!fields->given[id])
            continue;
        if (!option_read(&o))
            return false;
        if (field->given != FIELD_NO_FLAG)
            *(bool *)((char *)request + field->given) = true;
    }
    return true;
}
