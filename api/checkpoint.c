#include "api/checkpoint.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    bool projects;
} kinds[CHECKPOINT_KINDS] = {
    [CHECKPOINT_BERT] = { "bert", false },
    [CHECKPOINT_DISTILBERT] = { "bert", true },
    [CHECKPOINT_TORCH] = { "torch", true },
    [CHECKPOINT_GPT2] = { "gpt2", true },
};

/* How the path of a module ends; '#' is the layer's number. The first row of a
 * kind that fits is taken. */
static const struct {
    enum checkpoint_kind kind;
    const char *pattern;
    bool second;
} modules[] = {
    { CHECKPOINT_BERT, "layer.#.attention.", false },
    { CHECKPOINT_DISTILBERT, "layer.#.attention.", false },
    { CHECKPOINT_GPT2, "h.#.attn.", false },
    { CHECKPOINT_TORCH, "layers.#.self_attn.", false },
    { CHECKPOINT_TORCH, "layers.#.multihead_attn.", true },
    { CHECKPOINT_TORCH, "multihead_attn.", true },
    { CHECKPOINT_TORCH, "", false },
};

/* How a tensor's name ends behind the path. A layer needs one that is telling:
 * an out_proj alone may be anyone's. */
enum { TELLING = 1, TRANSPOSED = 2 };

static const struct {
    enum checkpoint_kind kind;
    const char *part;
    const char *role;
    unsigned flags;
} parts[] = {
    { CHECKPOINT_BERT, "self.query.weight", "query.weight", TELLING },
    { CHECKPOINT_BERT, "self.query.bias", "query.bias", TELLING },
    { CHECKPOINT_BERT, "self.key.weight", "key.weight", TELLING },
    { CHECKPOINT_BERT, "self.key.bias", "key.bias", TELLING },
    { CHECKPOINT_BERT, "self.value.weight", "value.weight", TELLING },
    { CHECKPOINT_BERT, "self.value.bias", "value.bias", TELLING },
    { CHECKPOINT_BERT, "output.dense.weight", "out_proj.weight", 0 },
    { CHECKPOINT_BERT, "output.dense.bias", "out_proj.bias", 0 },
    { CHECKPOINT_DISTILBERT, "q_lin.weight", "query.weight", TELLING },
    { CHECKPOINT_DISTILBERT, "q_lin.bias", "query.bias", TELLING },
    { CHECKPOINT_DISTILBERT, "k_lin.weight", "key.weight", TELLING },
    { CHECKPOINT_DISTILBERT, "k_lin.bias", "key.bias", TELLING },
    { CHECKPOINT_DISTILBERT, "v_lin.weight", "value.weight", TELLING },
    { CHECKPOINT_DISTILBERT, "v_lin.bias", "value.bias", TELLING },
    { CHECKPOINT_DISTILBERT, "out_lin.weight", "out_proj.weight", 0 },
    { CHECKPOINT_DISTILBERT, "out_lin.bias", "out_proj.bias", 0 },
    { CHECKPOINT_GPT2, "c_attn.weight", "in_proj_weight",
      TELLING | TRANSPOSED },
    { CHECKPOINT_GPT2, "c_attn.bias", "in_proj_bias", TELLING },
    { CHECKPOINT_GPT2, "c_proj.weight", "out_proj.weight", TRANSPOSED },
    { CHECKPOINT_GPT2, "c_proj.bias", "out_proj.bias", 0 },
    { CHECKPOINT_TORCH, "in_proj_weight", "in_proj_weight", TELLING },
    { CHECKPOINT_TORCH, "in_proj_bias", "in_proj_bias", TELLING },
    { CHECKPOINT_TORCH, "q_proj_weight", "q_proj_weight", TELLING },
    { CHECKPOINT_TORCH, "k_proj_weight", "k_proj_weight", TELLING },
    { CHECKPOINT_TORCH, "v_proj_weight", "v_proj_weight", TELLING },
    { CHECKPOINT_TORCH, "bias_k", "bias_k", 0 },
    { CHECKPOINT_TORCH, "bias_v", "bias_v", 0 },
    { CHECKPOINT_TORCH, "out_proj.weight", "out_proj.weight", 0 },
    { CHECKPOINT_TORCH, "out_proj.bias", "out_proj.bias", 0 },
};

#define ROWS(table) (sizeof(table) / sizeof *(table))

const char *checkpoint_kind_name(enum checkpoint_kind kind)
{
    return kinds[kind].name;
}

bool checkpoint_kind_projects(enum checkpoint_kind kind)
{
    return kinds[kind].projects;
}

/* ---- a name ---- */

/* At most nine digits, none of them for show, that end at `text + end`.
 * Returns where they begin, or `end` when they are none. */
static size_t read_number(const char *text, size_t end, int64_t *number)
{
    size_t begin = end;
    int64_t value = 0;

    while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9')
        begin--;
    if (end - begin > 9 || (end - begin > 1 && text[begin] == '0'))
        return end;
    for (size_t i = begin; i < end; i++)
        value = 10 * value + (text[i] - '0');
    *number = value;
    return begin;
}

/* A whole number of the path's components, read from its end. */
static bool path_fits(const char *path, const char *pattern,
                      struct checkpoint_match *match)
{
    size_t at = match->path_len;

    match->number = -1;
    for (size_t i = strlen(pattern); i-- > 0;) {
        if (pattern[i] == '#') {
            size_t begin = read_number(path, at, &match->number);

            if (begin == at)
                return false;
            at = begin;
        } else if (at == 0 || path[--at] != pattern[i]) {
            return false;
        }
    }
    match->prefix_len = at;
    return at == 0 || path[at - 1] == '.';
}

static bool find_module(const char *path, struct checkpoint_match *match)
{
    for (size_t i = 0; i < ROWS(modules); i++) {
        if (modules[i].kind == match->kind &&
            path_fits(path, modules[i].pattern, match)) {
            match->second = modules[i].second;
            return true;
        }
    }
    return false;
}

bool checkpoint_match(const char *name, struct checkpoint_match *match)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < ROWS(parts); i++) {
        size_t part_len = strlen(parts[i].part);

        if (part_len > len ||
            memcmp(name + len - part_len, parts[i].part, part_len) != 0)
            continue;
        *match = (struct checkpoint_match){
            .kind = parts[i].kind,
            .role = parts[i].role,
            .telling = (parts[i].flags & TELLING) != 0,
            .transposed = (parts[i].flags & TRANSPOSED) != 0,
            .path_len = len - part_len,
        };
        if (find_module(name, match))
            return true;
    }
    return false;
}

/* ---- all names ---- */

struct found {
    const struct safetensors_tensor *tensor;
    struct checkpoint_match match;
};

struct grouping {
    struct found *found; /* those that match, sorted by path, then by name */
    size_t count;
    struct arena *arena;
    struct checkpoint *out;
    struct error *err;
};

static int compare_slices(const char *a, size_t a_len, const char *b,
                          size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);

    return order != 0 ? order : (a_len > b_len) - (a_len < b_len);
}

static int compare_paths(const struct found *x, const struct found *y)
{
    int order = compare_slices(x->tensor->name, x->match.path_len,
                               y->tensor->name, y->match.path_len);

    return order != 0 ? order : (int)x->match.kind - (int)y->match.kind;
}

static int compare_found(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    int order = compare_paths(x, y);

    return order != 0 ? order : strcmp(x->tensor->name, y->tensor->name);
}

static bool fail_memory(struct error *err)
{
    return error_set(err, ERR_OVERLOADED, "",
                     "no memory is left to sort the tensors of the checkpoint");
}

static bool find_all(struct grouping *g, const struct safetensors *files,
                     size_t count)
{
    size_t tensors = 0;

    for (size_t i = 0; i < count; i++)
        tensors += files[i].count;
    g->found = arena_array(g->arena, tensors, sizeof *g->found);
    if (g->found == NULL)
        return fail_memory(g->err);
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < files[i].count; j++) {
            struct found *f = &g->found[g->count];

            f->tensor = &files[i].tensor[j];
            g->count += checkpoint_match(f->tensor->name, &f->match);
        }
    }
    g->out->ignored = (int64_t)(tensors - g->count);
    qsort(g->found, g->count, sizeof *g->found, compare_found);
    for (size_t i = 1; i < g->count; i++) {
        if (compare_found(&g->found[i - 1], &g->found[i]) == 0)
            return error_set(g->err, ERR_CONFLICT, "",
                             "two files have the tensor %s",
                             g->found[i].tensor->name);
    }
    return true;
}

/* Another view of a (in, out) matrix: (out, in). */
static struct tensor transposed(struct tensor t)
{
    struct tensor other = t;

    other.dim[0] = t.dim[1];
    other.dim[1] = t.dim[0];
    other.step[0] = t.step[1];
    other.step[1] = t.step[0];
    return other;
}

static bool is_weight_dtype(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16 ||
           dtype == DTYPE_F64;
}

static bool read_weight(const struct found *f, struct named_tensor *out,
                        struct error *err)
{
    *out = (struct named_tensor){ .name = f->match.role };
    if (!is_weight_dtype(f->tensor->dtype))
        return error_set(err, ERR_TYPE, "",
                         "weights are F32, F16, BF16 or F64, not %s as in %s",
                         f->tensor->dtype_name, f->tensor->name);
    if (!safetensors_view(f->tensor, &out->value) ||
        (f->match.transposed && out->value.rank != 2))
        return error_set(err, ERR_TYPE, "",
                         "no weight has %llu axes, or one of length 0, as %s",
                         (unsigned long long)f->tensor->rank, f->tensor->name);
    if (f->match.transposed)
        out->value = transposed(out->value);
    return true;
}

static const char *copy_path(struct arena *arena, const struct found *f)
{
    size_t len = f->match.path_len == 0 ? 0 : f->match.path_len - 1;
    char *path = arena_alloc(arena, len + 1);

    if (path == NULL)
        return NULL;
    memcpy(path, f->tensor->name, len);
    path[len] = '\0';
    return path;
}

static bool add_layer(struct grouping *g, const struct found *first,
                      size_t count)
{
    struct checkpoint_layer *layer = &g->out->layer[g->out->layers];
    struct named_tensor *item = arena_array(g->arena, count, sizeof *item);

    layer->path = copy_path(g->arena, first);
    if (item == NULL || layer->path == NULL)
        return fail_memory(g->err);
    layer->match = first->match;
    layer->tensors = (struct tensor_list){ item, (int64_t)count };
    for (size_t i = 0; i < count; i++) {
        if (!read_weight(&first[i], &item[i], g->err))
            return false;
    }
    g->out->layers++;
    return true;
}

/* How many of the found, from `first` on, are of one module. */
static size_t count_module(const struct grouping *g, size_t first,
                           bool *telling)
{
    size_t end = first;

    *telling = false;
    while (end < g->count &&
           compare_paths(&g->found[first], &g->found[end]) == 0)
        *telling |= g->found[end++].match.telling;
    return end - first;
}

static bool group_layers(struct grouping *g)
{
    size_t modules_found = 0, count;
    bool telling;

    for (size_t i = 0; i < g->count; i += count, modules_found++)
        count = count_module(g, i, &telling);
    g->out->layer = arena_array(g->arena, modules_found, sizeof *g->out->layer);
    if (g->out->layer == NULL)
        return fail_memory(g->err);
    for (size_t i = 0; i < g->count; i += count) {
        count = count_module(g, i, &telling);
        if (!telling)
            g->out->ignored += (int64_t)count;
        else if (!add_layer(g, &g->found[i], count))
            return false;
    }
    if (g->out->layers > 0)
        return true;
    return error_set(g->err, ERR_MISSING, "",
                     "none of its %lld tensors has a name of the attention of "
                     "BERT, DistilBERT, GPT-2 or torch",
                     (long long)g->out->ignored);
}

/* ---- the order of the layers ---- */

/* Second attentions last; numbers in the paths compared as numbers. */
static int compare_layers(const void *a, const void *b)
{
    const struct checkpoint_layer *x = a, *y = b;

    if (x->match.second != y->match.second)
        return x->match.second ? 1 : -1;
    return strverscmp(x->path, y->path);
}

static bool check_kinds(const struct checkpoint *out, struct error *err)
{
    const struct checkpoint_layer *first = &out->layer[0];

    for (int64_t i = 1; i < out->layers; i++) {
        if (out->layer[i].match.kind != first->match.kind)
            return error_set(err, ERR_CONFLICT, "",
                             "it mixes %s (%s) with %s (%s)",
                             kinds[first->match.kind].name, first->path,
                             kinds[out->layer[i].match.kind].name,
                             out->layer[i].path);
    }
    return true;
}

static bool same_stack(const struct checkpoint_layer *x,
                       const struct checkpoint_layer *y)
{
    return x->match.number >= 0 && y->match.number >= 0 &&
           x->match.second == y->match.second &&
           x->match.prefix_len == y->match.prefix_len &&
           memcmp(x->path, y->path, x->match.prefix_len) == 0;
}

/* A hole would shift all layers behind it. */
static bool check_numbers(const struct checkpoint *out, struct error *err)
{
    int64_t next = 0;

    for (int64_t i = 0; i < out->layers; i++) {
        const struct checkpoint_layer *layer = &out->layer[i];

        if (i == 0 || !same_stack(layer - 1, layer))
            next = 0;
        if (layer->match.number >= 0 && layer->match.number != next)
            return error_set(err, ERR_MISSING, "",
                             "layer %lld is missing before %s",
                             (long long)next, layer->path);
        next++;
    }
    return true;
}

bool checkpoint_read(const struct safetensors *files, size_t count,
                     struct arena *arena, struct checkpoint *out,
                     struct error *err)
{
    struct grouping g = { .arena = arena, .out = out, .err = err };

    *out = (struct checkpoint){ 0 };
    if (!find_all(&g, files, count) || !group_layers(&g))
        return false;
    qsort(out->layer, (size_t)out->layers, sizeof *out->layer, compare_layers);
    out->kind = out->layer[0].match.kind;
    return check_kinds(out, err) && check_numbers(out, err);
}

/* ---- numbers ---- */

/* `tensor` is the transposed view of a packed (in, out) matrix: a few columns
 * of each of its rows at a time, so that what is written stays in cache. */
static void untranspose(const struct tensor *tensor, enum dtype wanted,
                        void *out)
{
    enum { TILE = 32 };
    int64_t rows = tensor->dim[0], columns = tensor->dim[1];
    size_t size = dtype_size(tensor->dtype), wide = dtype_size(wanted);
    unsigned char *to = out;
    double tile[TILE]; /* floats as well */

    for (int64_t r = 0; r < rows; r += TILE) {
        int64_t count = rows - r < TILE ? rows - r : TILE;

        for (int64_t c = 0; c < columns; c++) {
            tensor_convert((const unsigned char *)tensor->data +
                               (size_t)(c * rows + r) * size,
                           tensor->dtype, count, wanted, tile);
            for (int64_t i = 0; i < count; i++)
                memcpy(to + (size_t)((r + i) * columns + c) * wide,
                       (const unsigned char *)tile + (size_t)i * wide, wide);
        }
    }
}

void checkpoint_convert(const struct tensor *tensor, enum dtype dtype,
                        void *out)
{
    if (tensor_is_packed(tensor))
        tensor_convert(tensor->data, tensor->dtype, tensor_count(tensor), dtype,
                       out);
    else
        untranspose(tensor, dtype, out);
}
