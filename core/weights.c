#include "core/weights.h"

#include "core/kernels/kernels.h"
#include "core/shape.h"

#include <stdlib.h>
#include <string.h>

enum slot {
    IN_PROJ_WEIGHT, Q_PROJ_WEIGHT, K_PROJ_WEIGHT, V_PROJ_WEIGHT, IN_PROJ_BIAS,
    BIAS_K, BIAS_V, QUERY_WEIGHT, QUERY_BIAS, KEY_WEIGHT, KEY_BIAS,
    VALUE_WEIGHT, VALUE_BIAS, OUT_WEIGHT, OUT_BIAS, SLOTS
};

/* The modules that have a tensor of this name. */
enum { PACKED = 1, SEPARATE = 2, BERT = 4, TORCH = PACKED | SEPARATE,
       ANY = TORCH | BERT };

static const struct {
    const char *name;
    unsigned modules;
    const char *shape; /* in words */
} slots[SLOTS] = {
    [IN_PROJ_WEIGHT] = { "in_proj_weight", PACKED,
                         "(3E, E), E being query's width" },
    [Q_PROJ_WEIGHT] = { "q_proj_weight", SEPARATE,
                        "(E, E), E being query's width" },
    [K_PROJ_WEIGHT] = { "k_proj_weight", SEPARATE,
                        "the width of all key heads by key's width" },
    [V_PROJ_WEIGHT] = { "v_proj_weight", SEPARATE,
                        "the width of all key heads by value's width" },
    [IN_PROJ_BIAS] = { "in_proj_bias", TORCH,
                       "one for each row of the three weights" },
    [BIAS_K] = { "bias_k", TORCH, "(1, 1, the width of all key heads)" },
    [BIAS_V] = { "bias_v", TORCH, "(1, 1, the width of all key heads)" },
    [QUERY_WEIGHT] = { "query.weight", BERT,
                       "the width of all heads by query's width" },
    [QUERY_BIAS] = { "query.bias", BERT, "one for each row of query.weight" },
    [KEY_WEIGHT] = { "key.weight", BERT,
                     "the width of all key heads by key's width" },
    [KEY_BIAS] = { "key.bias", BERT, "one for each row of key.weight" },
    [VALUE_WEIGHT] = { "value.weight", BERT,
                       "a multiple of the key heads by value's width" },
    [VALUE_BIAS] = { "value.bias", BERT, "one for each row of value.weight" },
    [OUT_WEIGHT] = { "out_proj.weight", ANY,
                     "its columns are the heads' outputs side by side" },
    [OUT_BIAS] = { "out_proj.bias", ANY,
                   "one for each row of out_proj.weight" },
};

#define BIT(slot) (1u << (slot))
enum { ALL_SLOTS = (1 << SLOTS) - 1 };

/* In these modules, where any of `given` is, `needed` must be as well. The
 * first that is broken is told. */
static const struct {
    unsigned modules, given;
    enum slot needed;
} partners[] = {
    { ANY, BIT(OUT_BIAS), OUT_WEIGHT },
    { PACKED, ALL_SLOTS, IN_PROJ_WEIGHT },
    { SEPARATE, ALL_SLOTS, Q_PROJ_WEIGHT },
    { SEPARATE, ALL_SLOTS, K_PROJ_WEIGHT },
    { SEPARATE, ALL_SLOTS, V_PROJ_WEIGHT },
    { BERT, ALL_SLOTS, QUERY_WEIGHT },
    { BERT, ALL_SLOTS, KEY_WEIGHT },
    { BERT, BIT(VALUE_BIAS), VALUE_WEIGHT },
    { TORCH, BIT(BIAS_K), BIAS_V },
    { TORCH, BIT(BIAS_V), BIAS_K },
};

struct reader {
    const struct named_tensor *given[SLOTS];
    unsigned present; /* BIT() of each */
    unsigned module;  /* one of PACKED, SEPARATE, BERT */
    enum dtype dtype;
    struct error *err;
};

#define WHERE "/state_dict"
#define NAMES                                                                  \
    "in_proj_weight or q_proj_weight, k_proj_weight, v_proj_weight, with "     \
    "in_proj_bias, bias_k, bias_v (torch.nn.MultiheadAttention), or "          \
    "query.weight, query.bias, key.weight, key.bias, value.weight, "           \
    "value.bias (BertSelfAttention), and out_proj.weight, out_proj.bias"

static bool place(struct reader *r, const struct named_tensor *tensor)
{
    for (int i = 0; i < SLOTS; i++) {
        if (strcmp(tensor->name, slots[i].name) != 0)
            continue;
        r->given[i] = tensor;
        r->present |= BIT(i);
        return true;
    }
    return error_set(r->err, ERR_UNKNOWN, WHERE,
                     "state_dict takes " NAMES ", not \"%s\"", tensor->name);
}

static bool read_names(struct reader *r, const struct tensor_list *list)
{
    for (int64_t i = 0; i < list->count; i++) {
        if (!place(r, &list->item[i]))
            return false;
    }
    return true;
}

static bool refuse_mixture(struct reader *r)
{
    const char *with[2] = { NULL, NULL };
    unsigned modules = ANY;

    for (int i = 0; i < SLOTS; i++) {
        if ((r->present & BIT(i)) == 0 || slots[i].modules == ANY)
            continue;
        if ((modules & slots[i].modules) == 0) {
            with[1] = slots[i].name;
            break;
        }
        modules &= slots[i].modules;
        with[0] = slots[i].name;
    }
    return error_set(r->err, ERR_CONFLICT, WHERE,
                     "state_dict mixes %s with %s, names of different modules; "
                     "it takes " NAMES, with[0], with[1]);
}

static bool find_module(struct reader *r)
{
    unsigned modules = ANY;

    for (int i = 0; i < SLOTS; i++) {
        if (r->present & BIT(i))
            modules &= slots[i].modules;
    }
    if (modules == 0)
        return refuse_mixture(r);
    r->module = modules == TORCH ? PACKED : modules;
    return true;
}

static bool have_partners(struct reader *r)
{
    char where[sizeof r->err->where];

    for (size_t i = 0; i < sizeof partners / sizeof *partners; i++) {
        const char *needed = slots[partners[i].needed].name;

        if ((r->module & ~partners[i].modules) != 0 ||
            (r->present & partners[i].given) == 0 ||
            (r->present & BIT(partners[i].needed)) != 0)
            continue;
        return error_set(r->err, ERR_MISSING,
                         error_pointer(where, sizeof where, WHERE, needed),
                         "state_dict has no %s, which the tensors beside it "
                         "need", needed);
    }
    if (r->module == ANY)
        return error_set(r->err, ERR_MISSING, WHERE,
                         "state_dict has no projection of query, key and "
                         "value; it takes " NAMES);
    return true;
}

/* 0 in the dimensions fits everything. A tensor that is not given fits. */
static bool fits(struct reader *r, enum slot slot, int rank, int64_t a,
                 int64_t b, int64_t c)
{
    const struct named_tensor *t = r->given[slot];
    const int64_t dim[] = { a, b, c };
    char where[sizeof r->err->where];

    if (t == NULL)
        return true;
    error_pointer(where, sizeof where, WHERE, slots[slot].name);
    return shape_check_numbers(t, where, r->dtype, r->err) &&
           shape_check(&t->value, where, rank, dim, slots[slot].shape, r->err);
}

static int64_t rows_of(const struct reader *r, enum slot slot)
{
    return r->given[slot] == NULL ? 0 : r->given[slot]->value.dim[0];
}

/* Numbers in a row of K where a row of Q has `across`; 0 when the head counts
 * do not tell. */
static int64_t key_rows(const struct weights_widths *widths, int64_t across)
{
    if (widths->H == widths->G)
        return across;
    if (across % widths->H != 0 || widths->H % widths->G != 0)
        return 0;
    return across / widths->H * widths->G;
}

static bool fit_torch(struct reader *r, const struct weights_widths *widths)
{
    int64_t E = widths->query, packed = r->module == PACKED;
    int64_t kv = packed ? E : key_rows(widths, E);

    return fits(r, IN_PROJ_WEIGHT, 2, 3 * E, E, 0) &&
           fits(r, Q_PROJ_WEIGHT, 2, E, E, 0) &&
           fits(r, K_PROJ_WEIGHT, 2, kv, widths->key, 0) &&
           fits(r, V_PROJ_WEIGHT, 2, kv, widths->value, 0) &&
           fits(r, IN_PROJ_BIAS, 1, kv == 0 ? 0 : E + 2 * kv, 0, 0) &&
           fits(r, BIAS_K, 3, 1, 1, kv) && fits(r, BIAS_V, 3, 1, 1, kv) &&
           fits(r, OUT_WEIGHT, 2, 0, E, 0) &&
           fits(r, OUT_BIAS, 1, rows_of(r, OUT_WEIGHT), 0, 0);
}

/* value.weight may be as high as it likes, in equal parts for the heads. */
static bool fit_value_heads(struct reader *r, int64_t G)
{
    int64_t rows = rows_of(r, VALUE_WEIGHT);

    if (G == 0 || rows % G == 0)
        return true;
    return error_set(r->err, ERR_SHAPE, WHERE "/value.weight",
                     "state_dict/value.weight has %lld rows, which %lld key "
                     "heads do not divide", (long long)rows, (long long)G);
}

static bool fit_bert(struct reader *r, const struct weights_widths *widths)
{
    if (!fits(r, QUERY_WEIGHT, 2, 0, widths->query, 0))
        return false;

    int64_t across = rows_of(r, QUERY_WEIGHT);
    int64_t kv = key_rows(widths, across);
    bool sound = kv != 0 && across % widths->H == 0;
    int64_t G = sound ? widths->G : 0;

    if (!fits(r, QUERY_BIAS, 1, across, 0, 0) ||
        !fits(r, KEY_WEIGHT, 2, kv, widths->key, 0) ||
        !fits(r, KEY_BIAS, 1, rows_of(r, KEY_WEIGHT), 0, 0) ||
        !fits(r, VALUE_WEIGHT, 2, 0, widths->value, 0) ||
        !fit_value_heads(r, G))
        return false;

    int64_t v = rows_of(r, r->given[VALUE_WEIGHT] ? VALUE_WEIGHT : KEY_WEIGHT);

    return fits(r, VALUE_BIAS, 1, v, 0, 0) &&
           fits(r, OUT_WEIGHT, 2, 0, G == 0 ? 0 : v / G * widths->H, 0) &&
           fits(r, OUT_BIAS, 1, rows_of(r, OUT_WEIGHT), 0, 0);
}

static struct tensor view(const struct reader *r, enum slot slot)
{
    return r->given[slot] == NULL ? (struct tensor){ 0 }
                                  : r->given[slot]->value;
}

/* Rows first .. first+count-1. */
static struct tensor rows(struct tensor t, int64_t first, int64_t count)
{
    if (t.rank == 0)
        return t;
    t.data = (char *)t.data +
             (size_t)(first * t.step[0]) * dtype_size(t.dtype);
    t.dim[0] = count;
    return t;
}

static struct weights torch_weights(const struct reader *r)
{
    struct tensor bias = view(r, IN_PROJ_BIAS);
    struct weights w = {
        .kind = r->module == PACKED ? WEIGHTS_PACKED : WEIGHTS_TORCH,
        .q.weight = view(r, Q_PROJ_WEIGHT),
        .k.weight = view(r, K_PROJ_WEIGHT),
        .v.weight = view(r, V_PROJ_WEIGHT),
        .bias_k = view(r, BIAS_K),
        .bias_v = view(r, BIAS_V),
    };

    if (r->module == PACKED) {
        struct tensor all = view(r, IN_PROJ_WEIGHT);
        int64_t E = all.dim[1];

        w.q.weight = rows(all, 0, E);
        w.k.weight = rows(all, E, E);
        w.v.weight = rows(all, 2 * E, E);
    }

    int64_t q = w.q.weight.dim[0], k = w.k.weight.dim[0];

    w.q.bias = rows(bias, 0, q);
    w.k.bias = rows(bias, q, k);
    w.v.bias = rows(bias, q + k, w.v.weight.dim[0]);
    return w;
}

static struct linear linear_of(const struct reader *r, enum slot weight,
                               enum slot bias)
{
    return (struct linear){ .weight = view(r, weight),
                            .bias = view(r, bias) };
}

static struct weights bert_weights(const struct reader *r)
{
    struct weights w = {
        .kind = WEIGHTS_BERT,
        .q = linear_of(r, QUERY_WEIGHT, QUERY_BIAS),
        .k = linear_of(r, KEY_WEIGHT, KEY_BIAS),
        .v = linear_of(r, VALUE_WEIGHT, VALUE_BIAS),
    };

    if (w.v.weight.rank == 0) {
        w.v = w.k;
        w.shared_kv = true;
    }
    return w;
}

bool weights_read(const struct tensor_list *list, enum dtype dtype,
                  const struct weights_widths *widths, struct weights *weights,
                  struct error *err)
{
    struct reader r = { .dtype = dtype, .err = err };

    if (!read_names(&r, list) || !find_module(&r) || !have_partners(&r))
        return false;
    if (r.module == BERT ? !fit_bert(&r, widths) : !fit_torch(&r, widths))
        return false;
    *weights = r.module == BERT ? bert_weights(&r) : torch_weights(&r);
    weights->out = linear_of(&r, OUT_WEIGHT, OUT_BIAS);
    return true;
}

/* How a copy is to be made. */
struct packing {
    enum dtype dtype;
    bool round;
    bool pairs; /* of what is rounded */
    const struct kernels *kernels;
    struct arena *arena;
};

static bool arranges(const struct packing *p)
{
    return p->kernels != NULL && p->dtype == DTYPE_F32;
}

/* The floats that a row of k numbers takes. */
static int64_t width_of(const struct packing *p, int64_t k)
{
    return p->pairs ? (k + 1) / 2 : k;
}

static bool pack(const struct packing *p, const struct tensor *from,
                 struct tensor *packed)
{
    int64_t count = tensor_count(from);
    void *data;

    if (from->rank == 0)
        return true;
    data = arena_array(p->arena, (size_t)count, dtype_size(p->dtype));
    if (data == NULL)
        return false;
    tensor_convert(from->data, from->dtype, count, p->dtype, data);
    *packed = tensor_packed(data, p->dtype, from->rank, from->dim);
    return true;
}

/* Rows that are arranged at a time: where they begin they may be cut. */
enum { STRIP = 64 };

/* Rows first .. first + rows - 1 of `from`, to their place in `data`. `room` is
 * for two strips of floats. */
static void pack_strip(const struct packing *p, const struct linear *from,
                       int64_t first, int64_t rows, float *room, void *data)
{
    int64_t k = from->weight.dim[1], width = width_of(p, k);
    size_t size = dtype_size(from->weight.dtype);
    const void *source = (const char *)from->weight.data +
                         (size_t)(first * k) * size;
    bool arrange = arranges(p);
    void *plain = (char *)data + (size_t)(first * k) * dtype_size(p->dtype);

    if (from->arranged) {
        p->kernels->unpack_rows_f32(rows, k, source, room, k);
        source = room;
    }
    if (arrange)
        plain = room + STRIP * k;
    tensor_convert(source, from->weight.dtype, rows * k, p->dtype, plain);
    if (p->pairs) {
        p->kernels->round_pairs(rows, k, plain, room);
        plain = room;
    } else if (p->round) {
        tensor_round_bf16(plain, rows * k);
    }
    if (arrange)
        p->kernels->pack_rows_f32(rows, width, plain, width,
                                  (float *)data + first * width);
}

static size_t weight_bytes(const struct packing *p, const struct linear *layer)
{
    const struct tensor *weight = &layer->weight;

    if (weight->rank == 0)
        return 0;

    int64_t n = weight->dim[0], k = weight->dim[1];
    int64_t count = arranges(p) ? p->kernels->packed_f32(n, width_of(p, k))
                                : n * k;

    return (size_t)count * dtype_size(p->dtype);
}

static bool pack_weight(const struct packing *p, const struct linear *from,
                        struct linear *packed)
{
    int64_t n = from->weight.dim[0], k = from->weight.dim[1];
    void *data = arena_alloc(p->arena, weight_bytes(p, from));
    float *room = malloc((size_t)(2 * STRIP * k) * sizeof *room);

    if (data == NULL || room == NULL) {
        free(room);
        return false;
    }
    for (int64_t i = 0; i < n; i += STRIP)
        pack_strip(p, from, i, n - i < STRIP ? n - i : STRIP, room, data);
    free(room);
    packed->weight = tensor_packed(data, p->dtype, 2, from->weight.dim);
    packed->arranged = arranges(p);
    packed->pairs = p->pairs;
    return true;
}

static bool pack_linear(const struct packing *p, const struct linear *from,
                        struct linear *packed)
{
    return (from->weight.rank == 0 || pack_weight(p, from, packed)) &&
           pack(p, &from->bias, &packed->bias);
}

/* All weights side by side, for huge pages. */
static bool reserve(const struct packing *p, const struct weights *from)
{
    const struct packing last = { p->dtype, p->round, false, p->kernels,
                                  p->arena };
    size_t bytes = weight_bytes(p, &from->q) + weight_bytes(p, &from->k) +
                   weight_bytes(&last, &from->out) + 4 * 2 * ARENA_ALIGNMENT;

    if (!from->shared_kv)
        bytes += weight_bytes(p, &from->v);
    return arena_reserve(p->arena, bytes);
}

bool weights_pack(const struct weights *from, enum dtype dtype, bool round,
                  const struct kernels *kernels, struct arena *arena,
                  struct weights *packed)
{
    struct packing p = {
        .dtype = dtype, .round = round, .kernels = kernels, .arena = arena,
        .pairs = round && kernels != NULL && kernels->round_pairs != NULL,
    };

    *packed = (struct weights){
        .kind = from->kind,
        .shared_kv = from->shared_kv,
        .rounded = round || from->rounded,
    };
    if (!reserve(&p, from) ||
        !pack_linear(&p, &from->q, &packed->q) ||
        !pack_linear(&p, &from->k, &packed->k) ||
        (!from->shared_kv && !pack_linear(&p, &from->v, &packed->v)))
        return false;
    p.pairs = false; /* its input is not rounded */
    if (!pack_linear(&p, &from->out, &packed->out) ||
        !pack(&p, &from->bias_k, &packed->bias_k) ||
        !pack(&p, &from->bias_v, &packed->bias_v))
        return false;
    if (from->shared_kv)
        packed->v = packed->k;
    return true;
}

/* Strip by strip, which is where panels begin. */
static bool split_linear(const struct kernels *kernels, struct arena *arena,
                         struct linear *layer)
{
    if (layer->weight.rank == 0)
        return true;

    const float *data = layer->weight.data;
    int64_t n = layer->weight.dim[0], k = layer->weight.dim[1];
    int64_t width = kernels_pieces(k);
    float *to = arena_array(arena, (size_t)kernels->packed_f32(n, width),
                            sizeof *to);
    float *room = malloc((size_t)(STRIP * (k + width)) * sizeof *room);

    for (int64_t i = 0; to != NULL && room != NULL && i < n; i += STRIP) {
        int64_t rows = n - i < STRIP ? n - i : STRIP;
        float *pieces = room + rows * k;

        kernels->unpack_rows_f32(rows, k, data + i * k, room, k);
        kernels->split_rows(rows, k, room, pieces);
        kernels->pack_rows_f32(rows, width, pieces, width, to + i * width);
    }
    layer->pieces = room == NULL ? NULL : to;
    free(room);
    return layer->pieces != NULL;
}

bool weights_split(const struct weights *from, const struct kernels *kernels,
                   struct arena *arena, struct weights *split)
{
    *split = *from;
    if (!split_linear(kernels, arena, &split->q) ||
        !split_linear(kernels, arena, &split->k) ||
        (!from->shared_kv && !split_linear(kernels, arena, &split->v)) ||
        !split_linear(kernels, arena, &split->out))
        return false;
    if (from->shared_kv)
        split->v = split->k;
    return true;
}
