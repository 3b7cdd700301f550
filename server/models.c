#include "server/models.h"

#include "server/clock.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/model_counts.h"
#include "server/model_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    /* Of the bytes of an upload, while it is read: a layer's numbers as float32
     * and packed, twice each where the file has 16 bits, and its header. */
    READING = 8,
    READING_BYTES = 4 * 1024 * 1024,
    HEADER_SHARE = 16, /* of a file, and ... */
    HEADER_BYTES = 64 * 1024,
    /* 4 bytes a number now, 16 with float64 and bfloat16 beside them. */
    COPIES = 4,
    FIXED_BYTES = 64 * 1024
};

struct models {
    const char *folder;
    const struct kernels *kernels;
    pthread_t thread;
    bool has_thread;
    atomic_bool stopping, loaded;

    pthread_mutex_t mutex; /* of what follows; never held while a file is read */
    pthread_cond_t changed;
    bool wanted;         /* somebody asked for a look */
    struct model **item; /* by name */
    size_t count, size;
    size_t uploaded; /* of them, by requests */

    struct budget uploads; /* what those may take, and what they take */
};

/* An entry of the folder that is a model, by its name. */
struct candidate {
    char name[MODEL_NAME_BYTES];
    const char *entry;
    enum model_entry kind;
};

struct look {
    struct models *models;
    int folder;
    struct dirent **entry;
    int entries;
    struct candidate *candidate;
    size_t count;
};

/* ---- the table; the mutex is held ---- */

/* Where the name is, or where it would go. */
static size_t place_of(const struct models *models, const char *name)
{
    size_t low = 0, high = models->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (strcmp(models->item[middle]->name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_at(const struct models *models, size_t at, const char *name)
{
    return at < models->count && strcmp(models->item[at]->name, name) == 0;
}

static bool grow(struct models *models)
{
    size_t size = models->size == 0 ? 16 : 2 * models->size;
    struct model **item = realloc(models->item, size * sizeof *item);

    if (item == NULL)
        return false;
    models->item = item;
    models->size = size;
    return true;
}

/* Takes the model out and gives the table's reference away. */
static struct model *take(struct models *models, size_t at)
{
    struct model *model = models->item[at];

    memmove(&models->item[at], &models->item[at + 1],
            (--models->count - at) * sizeof *models->item);
    models->uploaded -= model->uploaded;
    return model;
}

static bool insert(struct models *models, size_t at, struct model *model)
{
    if (models->count == models->size && !grow(models))
        return false;
    memmove(&models->item[at + 1], &models->item[at],
            (models->count++ - at) * sizeof *models->item);
    models->item[at] = model;
    models->uploaded += model->uploaded;
    return true;
}

static void replace(struct models *models, size_t at, struct model *model)
{
    models->uploaded += model->uploaded;
    models->uploaded -= models->item[at]->uploaded;
    models->item[at] = model;
}

/* ---- one model ---- */

enum outcome { PUT_NEW, PUT_REPLACED, PUT_SHADOWED, PUT_NO_ROOM };

/* Unless an upload stands in a file's way, or there is no room, the caller's
 * reference becomes the table's; what it replaces lives as long as the last
 * request that has it. */
static enum outcome put(struct models *models, struct model *model)
{
    struct model *old = NULL;
    enum outcome outcome = PUT_NEW;

    pthread_mutex_lock(&models->mutex);

    size_t at = place_of(models, model->name);

    for (int64_t i = 0; i < model->layers; i++)
        model->layer[i].count_row = model_counts_row(model->name, i);
    if (is_at(models, at, model->name)) {
        old = models->item[at];
        outcome = PUT_REPLACED;
    }
    if (old != NULL && old->uploaded && !model->uploaded)
        outcome = PUT_SHADOWED;
    else if (model->uploaded && (old == NULL || !old->uploaded) &&
             models->uploaded == MODELS_UPLOADED)
        outcome = PUT_NO_ROOM;
    else if (old != NULL)
        replace(models, at, model);
    else if (!insert(models, at, model))
        outcome = PUT_NO_ROOM;
    pthread_mutex_unlock(&models->mutex);
    if (outcome == PUT_REPLACED)
        model_release(old);
    return outcome;
}

static struct model *read_model(struct look *look,
                                const struct candidate *candidate,
                                struct error *err)
{
    struct model_files files;
    struct model *model = NULL;

    if (model_files_read(&files, look->folder, candidate->kind,
                         candidate->entry, &look->models->stopping, err))
        model = model_new(candidate->name, look->models->kernels, files.file,
                          files.count, files.config, err);
    if (model != NULL) {
        memcpy(model->sha256, files.sha256, sizeof model->sha256);
        model->stamp = files.stamp;
    }
    model_files_free(&files);
    return model;
}

static void complain(const char *name, bool held, const struct error *err)
{
    metrics_add(METRIC_model_failures_total, 1);
    log_event(CONFIG_LEVEL_ERROR, "model refused", "model", name,
              "model %s %s: %s", name,
              held ? "keeps its old version" : "is not loaded", err->text);
}

static void report_load(const struct model *model, int64_t start)
{
    metrics_add(METRIC_model_loads_total, 1);
    log_event(CONFIG_LEVEL_INFO,
              model->uploaded ? "model uploaded" : "model loaded", "model",
              model->name,
              "model %s: %s, %lld layers, %lld bytes, %lld other tensors, "
              "in %lld ms", model->name, checkpoint_kind_name(model->kind),
              (long long)model->layers, (long long)model->file_bytes,
              (long long)model->ignored,
              (long long)((clock_ns() - start) / CLOCK_NS_PER_MS));
}

static void load(struct look *look, const struct candidate *candidate,
                 bool held)
{
    int64_t start = clock_ns();
    struct error err = { 0 };
    struct model *model = read_model(look, candidate, &err);
    enum outcome outcome = PUT_SHADOWED;

    if (model == NULL && !atomic_load(&look->models->stopping))
        complain(candidate->name, held, &err);
    if (model == NULL)
        return;
    model_hold(model); /* for what follows */
    if (!atomic_load(&look->models->stopping))
        outcome = put(look->models, model);
    if (outcome == PUT_NO_ROOM) {
        error_set(&err, ERR_OVERLOADED, "", "no memory is left to hold it");
        complain(candidate->name, held, &err);
    } else if (outcome != PUT_SHADOWED) {
        report_load(model, start);
    }
    if (outcome == PUT_NO_ROOM || outcome == PUT_SHADOWED)
        model_release(model); /* what would have been the table's */
    model_release(model);
}

/* False when the candidate is no model after all: a folder without a
 * checkpoint in it. */
static bool refresh(struct look *look, const struct candidate *candidate)
{
    struct model *held = models_find(look->models, candidate->name);
    struct model_files files;
    struct error err = { 0 };

    if (held != NULL && held->uploaded) {
        model_release(held);
        return true;
    }

    bool looked = model_files_look(&files, look->folder, candidate->kind,
                                   candidate->entry, &err);
    bool is_model = !looked || files.count > 0;

    if (!looked)
        complain(candidate->name, held != NULL, &err);
    else if (is_model && (held == NULL || held->stamp != files.stamp))
        load(look, candidate, held != NULL);
    model_files_free(&files);
    model_release(held);
    return is_model;
}

/* ---- the folder ---- */

static bool add_candidate(struct look *look, const char *entry)
{
    enum model_entry kind = model_files_kind(look->folder, entry);
    struct candidate *c = &look->candidate[look->count];
    size_t len = strlen(entry);
    char name[NAME_MAX + 1];

    if (kind == MODEL_ENTRY_NONE)
        return true;
    if (kind == MODEL_ENTRY_FILE)
        len -= strlen(MODEL_FILES_SUFFIX);
    memcpy(name, entry, len);
    name[len] = '\0';
    if (!model_is_name(name))
        return false;
    memcpy(c->name, name, len + 1);
    c->entry = entry;
    c->kind = kind;
    look->count++;
    return true;
}

/* Files before folders of the same name. */
static int compare_candidates(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    return order != 0 ? order : (int)x->kind - (int)y->kind;
}

static void find_candidates(struct look *look)
{
    for (int i = 0; i < look->entries; i++) {
        const char *entry = look->entry[i]->d_name;

        if (!add_candidate(look, entry))
            log_event(CONFIG_LEVEL_WARN, "model ignored", "entry", entry,
                      "%s is ignored: a model's name is 1 to 64 of A-Z a-z 0-9 "
                      ". _ - without a dot at the front", entry);
    }
    qsort(look->candidate, look->count, sizeof *look->candidate,
          compare_candidates);
}

static int compare_name(const void *name, const void *candidate)
{
    const struct candidate *c = candidate;

    return strcmp(name, c->name);
}

/* Drops what is held and is not among the candidates from 0 to count-1. */
static void drop_others(struct look *look)
{
    struct models *models = look->models;
    size_t count;
    struct model **all;

    models_hold_all(models, &all, &count); /* or none: they stay for now */
    for (size_t i = 0; i < count; i++) {
        struct model *gone = NULL;

        if (all[i]->uploaded ||
            bsearch(all[i]->name, look->candidate, look->count,
                    sizeof *look->candidate, compare_name) != NULL)
            continue;
        pthread_mutex_lock(&models->mutex);

        size_t at = place_of(models, all[i]->name);

        if (at < models->count && models->item[at] == all[i])
            gone = take(models, at);
        pthread_mutex_unlock(&models->mutex);
        if (gone != NULL)
            log_event(CONFIG_LEVEL_INFO, "model dropped", "model", gone->name,
                      "model %s is dropped: its files are gone", gone->name);
        model_release(gone);
    }
    models_release_all(all, count);
}

static void look_at_each(struct look *look)
{
    size_t kept = 0;

    find_candidates(look);
    for (size_t i = 0; i < look->count; i++) {
        struct candidate *c = &look->candidate[i];

        if (atomic_load(&look->models->stopping))
            return;
        if (kept > 0 && strcmp(look->candidate[kept - 1].name, c->name) == 0)
            log_event(CONFIG_LEVEL_WARN, "model ignored", "entry", c->entry,
                      "%s is ignored: there is a file of that name",
                      c->entry);
        else if (refresh(look, c))
            look->candidate[kept++] = *c;
    }
    look->count = kept;
    drop_others(look);
}

static bool open_folder(struct look *look, struct error *err)
{
    const char *path = look->models->folder;
    char text[128];

    look->folder = open(path, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    look->entries = look->folder < 0 ? -1
                                     : scandirat(look->folder, ".",
                                                 &look->entry, NULL, alphasort);
    if (look->entries >= 0)
        look->candidate = calloc((size_t)look->entries + 1,
                                 sizeof *look->candidate);
    if (look->candidate != NULL)
        return true;
    return error_set(err, ERR_NOT_FOUND, "", "--models: %s: %s", path,
                     strerror_r(errno, text, sizeof text));
}

static void close_folder(struct look *look)
{
    free(look->candidate);
    for (int i = 0; i < look->entries; i++)
        free(look->entry[i]);
    free(look->entry);
    if (look->folder >= 0)
        close(look->folder);
}

static void look_at_all(struct models *models)
{
    struct look look = { .models = models };
    struct error err = { 0 };

    if (open_folder(&look, &err)) {
        look_at_each(&look);
    } else {
        metrics_add(METRIC_model_failures_total, 1);
        log_event(CONFIG_LEVEL_ERROR, "models unread", NULL, NULL,
                  "models stay as they are: %s", err.text);
    }
    close_folder(&look);
}

/* ---- the thread ---- */

static bool wait_until_wanted(struct models *models)
{
    pthread_mutex_lock(&models->mutex);
    while (!models->wanted && !atomic_load(&models->stopping))
        pthread_cond_wait(&models->changed, &models->mutex);
    models->wanted = false;
    pthread_mutex_unlock(&models->mutex);
    return !atomic_load(&models->stopping);
}

static void *work(void *arg)
{
    struct models *models = arg;

    pthread_setname_np(pthread_self(), "attnd-models");
    while (wait_until_wanted(models)) {
        look_at_all(models);
        atomic_store(&models->loaded, true);
    }
    return NULL;
}

static bool start_thread(struct models *models, struct error *err)
{
    struct look look = { .models = models };
    bool readable = open_folder(&look, err);

    close_folder(&look);
    if (!readable)
        return false;
    models->wanted = true;
    models->has_thread =
        pthread_create(&models->thread, NULL, work, models) == 0;
    return models->has_thread ||
           error_set(err, ERR_OVERLOADED, "",
                     "models: their thread could not be started");
}

struct models *models_start(const char *folder, const struct kernels *kernels,
                            int64_t upload_bytes, struct error *err)
{
    struct models *models = calloc(1, sizeof *models);

    if (models == NULL) {
        error_set(err, ERR_OVERLOADED, "", "models: out of memory");
        return NULL;
    }
    models->folder = folder;
    models->kernels = kernels;
    budget_init(&models->uploads, upload_bytes);
    if (pthread_mutex_init(&models->mutex, NULL) != 0 ||
        pthread_cond_init(&models->changed, NULL) != 0) {
        error_set(err, ERR_OVERLOADED, "", "models: out of memory");
        free(models);
        return NULL;
    }
    atomic_init(&models->loaded, folder[0] == '\0');
    if (folder[0] == '\0' || start_thread(models, err))
        return models;
    models_stop(models);
    return NULL;
}

bool models_loaded(struct models *models)
{
    return atomic_load(&models->loaded);
}

void models_reload(struct models *models)
{
    pthread_mutex_lock(&models->mutex);
    models->wanted = true;
    pthread_cond_signal(&models->changed);
    pthread_mutex_unlock(&models->mutex);
}

void models_stop(struct models *models)
{
    pthread_mutex_lock(&models->mutex);
    atomic_store(&models->stopping, true);
    pthread_cond_signal(&models->changed);
    pthread_mutex_unlock(&models->mutex);
    if (models->has_thread)
        pthread_join(models->thread, NULL);
    for (size_t i = 0; i < models->count; i++)
        model_release(models->item[i]);
    free(models->item);
    pthread_cond_destroy(&models->changed);
    pthread_mutex_destroy(&models->mutex);
    free(models);
}

/* ---- for requests ---- */

struct model *models_find(struct models *models, const char *name)
{
    struct model *model = NULL;

    pthread_mutex_lock(&models->mutex);

    size_t at = place_of(models, name);

    if (is_at(models, at, name)) {
        model = models->item[at];
        model_hold(model);
    }
    pthread_mutex_unlock(&models->mutex);
    return model;
}

bool models_hold_all(struct models *models, struct model ***all, size_t *count)
{
    bool good;

    pthread_mutex_lock(&models->mutex);
    *all = models->count == 0 ? NULL : malloc(models->count * sizeof **all);
    good = *all != NULL || models->count == 0;
    *count = good ? models->count : 0;
    for (size_t i = 0; i < *count; i++) {
        (*all)[i] = models->item[i];
        model_hold((*all)[i]);
    }
    pthread_mutex_unlock(&models->mutex);
    return good;
}

void models_release_all(struct model **all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        model_release(all[i]);
    free(all);
}

void models_measure(struct models *models)
{
    size_t count;
    int64_t bytes = 0;
    struct model **all;

    if (!models_hold_all(models, &all, &count))
        return;

    for (size_t i = 0; i < count; i++)
        bytes += model_memory_bytes(all[i]);
    models_release_all(all, count);
    metrics_set(METRIC_models, (int64_t)count);
    metrics_set(METRIC_models_memory_bytes, bytes);
}

/* ---- uploads ---- */

/* Read so far as to say that reading the rest of it takes no more than was
 * reserved: the header is read into 24 times its memory. */
static bool has_fair_header(struct bytes file, struct error *err)
{
    uint64_t header = 0;

    for (size_t i = 0; i < 8 && i < file.len; i++)
        header |= (uint64_t)file.data[i] << (8 * i);
    if (header <= HEADER_BYTES + file.len / HEADER_SHARE || header > file.len)
        return true; /* or it is refused for what it is */
    return error_set(err, ERR_TOO_LARGE, "",
                     "a header of %llu bytes is too much for a file of %zu",
                     (unsigned long long)header, file.len);
}

static bool reserve(struct models *models, int64_t bytes, struct error *err)
{
    struct error why = { 0 };

    return budget_take(&models->uploads, bytes, &why) ||
           error_set(err, ERR_TOO_LARGE, "",
                     "the model needs %lld bytes while it is read; uploaded "
                     "models hold %lld and may hold %lld", (long long)bytes,
                     (long long)budget_reserved(&models->uploads),
                     (long long)models->uploads.limit_bytes);
}

static bool digest_file(struct model *model, struct bytes file,
                        struct error *err)
{
    struct digest digest;

    if (!digest_begin(&digest))
        return error_set(err, ERR_OVERLOADED, "", "out of memory");
    digest_add(&digest, file.data, file.len);
    digest_end(&digest, model->sha256);
    return true;
}

/* A model that is charged for what it will take once it was asked for in every
 * precision. What was reserved beyond that is given back. */
static struct model *make_upload(struct models *models, const char *name,
                                 struct bytes file, int64_t reserved,
                                 struct error *err)
{
    struct model *model = model_new(name, models->kernels, &file, 1,
                                    (struct bytes){ 0 }, err);
    int64_t charge;

    if (model == NULL) {
        budget_give(&models->uploads, reserved);
        return NULL;
    }
    charge = COPIES * model_memory_bytes(model) + FIXED_BYTES;
    if (charge < reserved)
        budget_give(&models->uploads, reserved - charge);
    else
        charge = reserved;
    model->uploaded = true;
    model->budget = &models->uploads;
    model->charged_bytes = charge;
    if (digest_file(model, file, err))
        return model;
    model_release(model);
    return NULL;
}

struct model *models_upload(struct models *models, const char *name,
                            struct bytes file, bool *is_new, struct error *err)
{
    int64_t start = clock_ns();
    int64_t bytes = READING * (int64_t)file.len + READING_BYTES;
    struct model *model = NULL;
    enum outcome outcome;

    if (has_fair_header(file, err) && reserve(models, bytes, err))
        model = make_upload(models, name, file, bytes, err);
    if (model == NULL)
        return NULL;
    model_hold(model); /* the caller's */
    outcome = put(models, model);
    if (outcome == PUT_NO_ROOM) {
        error_set(err, ERR_TOO_LARGE, "",
                  "%d uploaded models are held, which is all that may be",
                  (int)MODELS_UPLOADED);
        model_release(model);
        model_release(model);
        return NULL;
    }
    *is_new = outcome == PUT_NEW;
    report_load(model, start);
    return model;
}

bool models_delete(struct models *models, const char *name)
{
    struct model *gone = NULL;

    pthread_mutex_lock(&models->mutex);

    size_t at = place_of(models, name);

    if (is_at(models, at, name))
        gone = take(models, at);
    pthread_mutex_unlock(&models->mutex);
    if (gone != NULL)
        log_event(CONFIG_LEVEL_INFO, "model deleted", "model", gone->name,
                  "model %s is deleted by a request", gone->name);
    model_release(gone);
    return gone != NULL;
}

struct model *models_attach(struct models *models, struct request *request,
                            struct error *flaw)
{
    struct mha_request *mha = &request->mha;
    struct model *model = models_find(models, request->model);

    *flaw = (struct error){ 0 };
    if (model == NULL)
        error_set(flaw, ERR_NOT_FOUND, "/model",
                  "no model is held under the name \"%s\"", request->model);
    else if (model_find_layer(model, request->layer, mha->precision,
                              &mha->model, flaw))
        return model;
    mha->model_flaw = flaw;
    model_release(model);
    return NULL;
}
