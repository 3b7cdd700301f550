#include "server/model.h"

#include "api/hub.h"
#include "core/finite.h"
#include "core/kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

bool model_is_name(const char *name)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t len = strspn(name, allowed);

    return name[len] == '\0' && len > 0 && len < MODEL_NAME_BYTES &&
           name[0] != '.';
}

/* A checkpoint on its way to a model. */
struct reading {
    struct model *model;
    struct arena work;        /* what is not kept */
    struct safetensors *file; /* `count` of them */
    size_t count;
    struct checkpoint checkpoint;
    struct error *err;
};

static bool out_of_memory(struct error *err)
{
    return error_set(err, ERR_OVERLOADED, "", "no memory is left to hold it");
}

static bool decode_files(struct reading *r, const struct bytes *files)
{
    r->file = arena_array(&r->work, r->count, sizeof *r->file);
    if (r->file == NULL)
        return out_of_memory(r->err);
    for (size_t i = 0; i < r->count; i++) {
        if (!safetensors_decode(files[i], &r->work, &r->file[i], r->err))
            return false;
        r->model->file_bytes += (int64_t)files[i].len;
    }
    return checkpoint_read(r->file, r->count, &r->work, &r->checkpoint, r->err);
}

static bool agree_on_heads(struct reading *r, int64_t heads)
{
    if (heads == 0 || r->model->heads == 0 || heads == r->model->heads) {
        r->model->heads += r->model->heads == 0 ? heads : 0;
        return true;
    }
    return error_set(r->err, ERR_CONFLICT, "",
                     "its files say %lld heads and %lld heads",
                     (long long)r->model->heads, (long long)heads);
}

static bool read_heads(struct reading *r, struct bytes config)
{
    int64_t heads;

    if (config.data != NULL &&
        !hub_config_heads(config, &r->work, &r->model->heads, r->err))
        return false;
    for (size_t i = 0; i < r->count; i++) {
        if (!hub_metadata_heads(&r->file[i], &heads, r->err) ||
            !agree_on_heads(r, heads))
            return false;
    }
    return true;
}

/* ---- one layer ---- */

static bool has_dtype(const struct checkpoint_layer *layer, enum dtype dtype,
                      bool all)
{
    for (int64_t i = 0; i < layer->tensors.count; i++) {
        if ((layer->tensors.item[i].value.dtype == dtype) != all)
            return !all;
    }
    return all;
}

/* The layer's tensors as packed numbers of `dtype`. */
static bool convert(struct reading *r, const struct tensor_list *from,
                    enum dtype dtype, struct tensor_list *to)
{
    to->count = from->count;
    to->item = arena_array(&r->work, (size_t)to->count, sizeof *to->item);
    for (int64_t i = 0; to->item != NULL && i < to->count; i++) {
        const struct tensor *t = &from->item[i].value;
        void *data = arena_array(&r->work, (size_t)tensor_count(t),
                                 dtype_size(dtype));

        if (data == NULL)
            break;
        checkpoint_convert(t, dtype, data);
        to->item[i] = (struct named_tensor){
            .name = from->item[i].name,
            .value = tensor_packed(data, dtype, t->rank, t->dim),
        };
        if (!finite_check(&to->item[i].value, to->item[i].name, false, r->err))
            return false;
    }
    return !arena_failed(&r->work) || out_of_memory(r->err);
}

/* The columns of the first of `names` that is there. */
static int64_t columns_of(const struct tensor_list *list,
                          const char *const *names)
{
    for (; *names != NULL; names++) {
        for (int64_t i = 0; i < list->count; i++) {
            const struct named_tensor *t = &list->item[i];

            if (strcmp(t->name, *names) == 0 && t->value.rank == 2)
                return t->value.dim[1];
        }
    }
    return 0;
}

/* What the weights must fit is what they are: only each other. With one head
 * where the number is not known, every other check still holds. */
static struct weights_widths widths_of(const struct model *model,
                                       const struct tensor_list *list)
{
    static const char *const query[] = { "in_proj_weight", "q_proj_weight",
                                         "query.weight", NULL };
    static const char *const key[] = { "in_proj_weight", "k_proj_weight",
                                       "key.weight", NULL };
    static const char *const value[] = { "in_proj_weight", "v_proj_weight",
                                         "value.weight", "key.weight", NULL };
    int64_t heads = model->heads == 0 ? 1 : model->heads;

    return (struct weights_widths){
        .query = columns_of(list, query),
        .key = columns_of(list, key),
        .value = columns_of(list, value),
        .H = heads,
        .G = heads,
    };
}

static bool check_heads(const struct model *model, const struct weights *w,
                        struct error *err)
{
    int64_t rows = w->q.weight.dim[0];

    if (model->heads == 0 || rows % model->heads == 0)
        return true;
    return error_set(err, ERR_SHAPE, "",
                     "%lld heads do not divide the %lld rows of the query's "
                     "weight", (long long)model->heads, (long long)rows);
}

static bool pack(struct reading *r, const struct checkpoint_layer *from,
                 struct model_layer *to, enum precision precision)
{
    enum dtype dtype = precision == PRECISION_F64 ? DTYPE_F64 : DTYPE_F32;
    struct arena_mark mark = arena_mark(&r->work);
    struct tensor_list list;
    struct weights_widths widths;
    struct weights read;
    bool good = convert(r, &from->tensors, dtype, &list);

    if (good) {
        widths = widths_of(r->model, &list);
        good = weights_read(&list, dtype, &widths, &read, r->err) &&
               check_heads(r->model, &read, r->err) &&
               (weights_pack(&read, dtype, false, r->model->kernels,
                             &to->memory[precision],
                             &to->weights[precision]) ||
                out_of_memory(r->err));
    }
    to->weights[precision].rounded = has_dtype(from, DTYPE_BF16, true);
    arena_release(&r->work, mark);
    atomic_store_explicit(&to->made[precision], good, memory_order_release);
    return good;
}

static bool keep_path(struct model *model, const char *path,
                      struct model_layer *to)
{
    size_t bytes = strlen(path) + 1;
    char *kept = arena_alloc(&model->memory, bytes);

    if (kept == NULL)
        return false;
    to->path = memcpy(kept, path, bytes);
    return true;
}

static bool read_layer(struct reading *r, const struct checkpoint_layer *from,
                       struct model_layer *to)
{
    struct error why = { 0 };
    struct reading inner = *r;
    bool good;

    if (!keep_path(r->model, from->path, to))
        return out_of_memory(r->err);
    inner.err = &why;
    good = pack(&inner, from, to, PRECISION_F32) &&
           (!has_dtype(from, DTYPE_F64, false) ||
            pack(&inner, from, to, PRECISION_F64));
    r->work = inner.work;
    return good || error_set(r->err, why.code, "", "layer \"%.80s\": %s",
                             from->path, why.text);
}

static bool read_layers(struct reading *r)
{
    struct model *model = r->model;
    int64_t count = r->checkpoint.layers;

    model->layer = arena_array(&model->memory, (size_t)count,
                               sizeof *model->layer);
    if (model->layer == NULL)
        return out_of_memory(r->err);
    memset(model->layer, 0, (size_t)count * sizeof *model->layer);
    for (; model->layers < count; model->layers++) {
        struct model_layer *layer = &model->layer[model->layers];

        for (int i = 0; i < MODEL_COPIES; i++)
            arena_init(&layer->memory[i], SIZE_MAX);
        if (!read_layer(r, &r->checkpoint.layer[model->layers], layer)) {
            model->layers++; /* what it has is freed with the others */
            return false;
        }
    }
    return true;
}

static bool read_all(struct reading *r, const struct bytes *files,
                     struct bytes config)
{
    if (!decode_files(r, files) || !read_heads(r, config) || !read_layers(r))
        return false;
    r->model->kind = r->checkpoint.kind;
    r->model->ignored = r->checkpoint.ignored;
    r->model->dtype = r->checkpoint.layer[0].tensors.item[0].value.dtype;
    return true;
}

static void free_model(struct model *model)
{
    for (int64_t i = 0; i < model->layers; i++) {
        for (int j = 0; j < MODEL_COPIES; j++)
            arena_free(&model->layer[i].memory[j]);
    }
    arena_free(&model->memory);
    pthread_mutex_destroy(&model->mutex);
    if (model->budget != NULL)
        budget_give(model->budget, model->charged_bytes);
    free(model);
}

struct model *model_new(const char *name, const struct kernels *kernels,
                        const struct bytes *files, size_t count,
                        struct bytes config, struct error *err)
{
    struct model *model = calloc(1, sizeof *model);
    struct reading r = { .model = model, .count = count, .err = err };

    if (model == NULL || pthread_mutex_init(&model->mutex, NULL) != 0) {
        out_of_memory(err);
        free(model);
        return NULL;
    }
    atomic_init(&model->references, 1);
    model->kernels = kernels;
    memcpy(model->name, name, strnlen(name, MODEL_NAME_BYTES - 1));
    arena_init(&model->memory, SIZE_MAX);
    arena_init(&r.work, SIZE_MAX);

    bool good = read_all(&r, files, config);

    arena_free(&r.work);
    if (good)
        return model;
    free_model(model);
    return NULL;
}

/* ---- requests ---- */

void model_hold(struct model *model)
{
    atomic_fetch_add_explicit(&model->references, 1, memory_order_relaxed);
}

/* Releasing orders what each holder did before the one that frees. */
void model_release(struct model *model)
{
    if (model != NULL &&
        atomic_fetch_sub_explicit(&model->references, 1,
                                  memory_order_acq_rel) == 1)
        free_model(model);
}

/* The copy that is multiplied: of a file of bfloat16 the floats themselves,
 * unless these are multiplied by pairs. */
static int copy_for(const struct model *model, const struct model_layer *layer,
                    enum precision precision)
{
    const struct kernels *kernels = model->kernels;
    bool pairs = kernels != NULL && kernels->round_pairs != NULL;

    if (precision == PRECISION_BF16 && !pairs &&
        layer->weights[PRECISION_F32].rounded)
        return PRECISION_F32;
    if (precision == PRECISION_F32 && kernels != NULL &&
        kernels->split_rows != NULL)
        return MODEL_SPLIT;
    return (int)precision;
}

static bool fill_copy(const struct model *model, struct model_layer *layer,
                      int copy)
{
    const struct weights *from = &layer->weights[PRECISION_F32];

    if (copy == MODEL_SPLIT)
        return weights_split(from, model->kernels, &layer->memory[copy],
                             &layer->weights[copy]);
    return weights_pack(from, copy == PRECISION_F64 ? DTYPE_F64 : DTYPE_F32,
                        copy == PRECISION_BF16, model->kernels,
                        &layer->memory[copy], &layer->weights[copy]);
}

static bool make_copy(struct model *model, struct model_layer *layer, int copy)
{
    bool made;

    pthread_mutex_lock(&model->mutex);
    made = atomic_load_explicit(&layer->made[copy], memory_order_relaxed);
    if (!made) {
        made = fill_copy(model, layer, copy);
        if (!made)
            arena_reset(&layer->memory[copy], 0);
        atomic_store_explicit(&layer->made[copy], made, memory_order_release);
    }
    pthread_mutex_unlock(&model->mutex);
    return made;
}

bool model_find_layer(struct model *model, int64_t number,
                      enum precision precision, struct mha_model *out,
                      struct error *err)
{
    if (number < 0 || number >= model->layers)
        return error_set(err, ERR_RANGE, "/layer",
                         "layer is %lld, but the attention layers of %s are 0 "
                         "to %lld", (long long)number, model->name,
                         (long long)model->layers - 1);

    struct model_layer *layer = &model->layer[number];
    int copy = copy_for(model, layer, precision);

    if (!atomic_load_explicit(&layer->made[copy], memory_order_acquire) &&
        !make_copy(model, layer, copy))
        return error_set(err, ERR_OVERLOADED, "",
                         "no memory is left for a copy of the model's weights "
                         "in this precision");
    *out = (struct mha_model){
        .weights = &layer->weights[copy],
        .num_heads = model->heads,
        .projects = checkpoint_kind_projects(model->kind),
    };
    return true;
}

int64_t model_memory_bytes(struct model *model)
{
    size_t bytes = sizeof *model + model->memory.held_bytes;

    pthread_mutex_lock(&model->mutex);
    for (int64_t i = 0; i < model->layers; i++) {
        for (int j = 0; j < MODEL_COPIES; j++)
            bytes += model->layer[i].memory[j].held_bytes;
    }
    pthread_mutex_unlock(&model->mutex);
    return (int64_t)bytes;
}
