#include "server/model_files.h"

#include "api/hub.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>


#define INDEX "model.safetensors.index.json"

enum {
    PIECE_BYTES = 1 << 20,        /* read, digested while in cache */
    JSON_MAX_BYTES = 16 << 20,    /* of config.json and of an index */
    ARENA_MAX_BYTES = 256 << 20,  /* of names; 16 times a full index */
    FILE_MAX_FILES = 100000,
};

struct looking {
    struct model_files *files;
    int folder;          /* with the files in it */
    const char **name;   /* files->count of them */
    const atomic_bool *stop;
    struct digest digest;
    struct error *err;
};

static bool fail_errno(struct error *err, const char *name)
{
    char text[128];

    return error_set(err, errno == ENOMEM ? ERR_OVERLOADED : ERR_NOT_FOUND, "",
                     "%s: %s", name, strerror_r(errno, text, sizeof text));
}

static bool ends_in(const char *name, const char *suffix)
{
    size_t len = strlen(name), end = strlen(suffix);

    return len > end && strcmp(name + len - end, suffix) == 0;
}

enum model_entry model_files_kind(int folder, const char *entry)
{
    struct stat st;

    if (entry[0] == '.' || fstatat(folder, entry, &st, 0) != 0)
        return MODEL_ENTRY_NONE;
    if (S_ISDIR(st.st_mode))
        return MODEL_ENTRY_FOLDER;
    return ends_in(entry, MODEL_FILES_SUFFIX) ? MODEL_ENTRY_FILE : MODEL_ENTRY_NONE;
}

/* FNV-1a, 64 bits. */
static void stamp_bytes(uint64_t *stamp, const void *data, size_t len)
{
    const unsigned char *byte = data;

    for (size_t i = 0; i < len; i++)
        *stamp = (*stamp ^ byte[i]) * 0x100000001b3;
}

static void stamp_file(uint64_t *stamp, const char *name, const struct stat *st)
{
    const int64_t facts[] = {
        (int64_t)st->st_dev, (int64_t)st->st_ino, st->st_size,
        st->st_mtim.tv_sec, st->st_mtim.tv_nsec,
        st->st_ctim.tv_sec, st->st_ctim.tv_nsec,
    };

    stamp_bytes(stamp, name, strlen(name) + 1);
    stamp_bytes(stamp, facts, sizeof facts);
}

/* Open for reading a regular file; -1 with an error. Never waits for a pipe. */
static int open_file(struct looking *l, const char *name, struct stat *st)
{
    int fd = openat(l->folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || fstat(fd, st) != 0) {
        fail_errno(l->err, name);
    } else if (!S_ISREG(st->st_mode)) {
        error_set(l->err, ERR_NOT_FOUND, "", "%s is no regular file", name);
    } else {
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

/* As many of the `len` bytes as there are. */
static bool read_bytes(struct looking *l, int fd, const char *name,
                       uint8_t *data, size_t len)
{
    size_t at = 0;
    ssize_t n = 1;

    while (at < len && n > 0) {
        size_t piece = len - at < PIECE_BYTES ? len - at : PIECE_BYTES;

        if (l->stop != NULL && atomic_load(l->stop))
            return error_set(l->err, ERR_DRAINING, "", "the service stops");
        n = read(fd, data + at, piece);
        if (n < 0)
            return fail_errno(l->err, name);
        if (l->digest.hash != NULL)
            digest_add(&l->digest, data + at, (size_t)n);
        at += (size_t)n;
    }
    return true;
}

static bool check_unchanged(struct looking *l, int fd, const char *name,
                            const struct stat *before)
{
    struct stat after;

    if (fstat(fd, &after) != 0)
        return fail_errno(l->err, name);
    if (before->st_size == after.st_size &&
        before->st_mtim.tv_sec == after.st_mtim.tv_sec &&
        before->st_mtim.tv_nsec == after.st_mtim.tv_nsec)
        return true;
    return error_set(l->err, ERR_NOT_FOUND, "", "%s changed while it was read",
                     name);
}

/* Into memory from malloc, which `out` then owns. */
static bool read_file(struct looking *l, const char *name, int64_t max_bytes,
                      struct bytes *out)
{
    struct stat st;
    int fd = open_file(l, name, &st);
    bool good = false;

    if (fd < 0)
        return false;
    if (st.st_size > max_bytes) {
        error_set(l->err, ERR_NOT_FOUND, "", "%s has %lld bytes, over the %lld "
                  "that one may have", name, (long long)st.st_size,
                  (long long)max_bytes);
    } else {
        uint8_t *data = malloc((size_t)st.st_size + 1);

        *out = (struct bytes){ data, (size_t)st.st_size };
        good = data == NULL ? fail_errno(l->err, name)
                            : read_bytes(l, fd, name, data, out->len) &&
                                  check_unchanged(l, fd, name, &st);
    }
    close(fd);
    return good;
}

static void free_bytes(struct bytes *bytes)
{
    free((void *)(uintptr_t)bytes->data);
    *bytes = (struct bytes){ 0 };
}

/* ---- which files ---- */

static int is_shard(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && ends_in(entry->d_name, MODEL_FILES_SUFFIX);
}

static bool out_of_memory(struct looking *l)
{
    return error_set(l->err, ERR_OVERLOADED, "",
                     "no memory is left for the names of its files");
}

static bool copy_names(struct looking *l, struct dirent **entry, size_t count)
{
    l->name = arena_array(&l->files->arena, count, sizeof *l->name);
    for (size_t i = 0; l->name != NULL && i < count; i++) {
        size_t bytes = strlen(entry[i]->d_name) + 1;
        char *name = arena_alloc(&l->files->arena, bytes);

        if (name == NULL)
            break;
        l->name[i] = memcpy(name, entry[i]->d_name, bytes);
    }
    l->files->count = count;
    return !arena_failed(&l->files->arena) || out_of_memory(l);
}

static bool list_shards(struct looking *l)
{
    struct dirent **entry;
    int count = scandirat(l->folder, ".", &entry, is_shard, alphasort);
    bool good;

    if (count < 0)
        return fail_errno(l->err, "its folder");
    good = count <= FILE_MAX_FILES
               ? copy_names(l, entry, (size_t)count)
               : error_set(l->err, ERR_NOT_FOUND, "", "it has %d files", count);
    for (int i = 0; i < count; i++)
        free(entry[i]);
    free(entry);
    return good;
}

/* A file that may be there or not. */
static bool read_optional(struct looking *l, const char *name,
                          struct bytes *out)
{
    struct stat st;

    if (fstatat(l->folder, name, &st, 0) != 0)
        return errno == ENOENT || fail_errno(l->err, name);
    stamp_file(&l->files->stamp, name, &st);
    return read_file(l, name, JSON_MAX_BYTES, out);
}

static bool list_files(struct looking *l)
{
    struct bytes index = { 0 };
    bool good = read_optional(l, INDEX, &index);

    if (good)
        good = index.data == NULL
                   ? list_shards(l)
                   : hub_index_files(index, &l->files->arena, &l->name,
                                     &l->files->count, l->err);
    free_bytes(&index);
    return good;
}

static bool stamp_files(struct looking *l)
{
    struct stat st;

    for (size_t i = 0; i < l->files->count; i++) {
        if (fstatat(l->folder, l->name[i], &st, 0) != 0)
            return fail_errno(l->err, l->name[i]);
        stamp_file(&l->files->stamp, l->name[i], &st);
    }
    return true;
}

/* l->folder is open. */
static bool look(struct looking *l, enum model_entry kind, const char *entry)
{
    struct model_files *files = l->files;

    files->stamp = 0xcbf29ce484222325;
    if (kind == MODEL_ENTRY_FOLDER)
        return list_files(l) &&
               read_optional(l, "config.json", &files->config) &&
               stamp_files(l);
    l->name = arena_alloc(&files->arena, sizeof *l->name);
    if (l->name == NULL)
        return out_of_memory(l);
    l->name[0] = entry;
    files->count = 1;
    return stamp_files(l);
}

static bool read_all(struct looking *l)
{
    struct model_files *files = l->files;
    bool good = true;

    files->file = arena_array(&files->arena, files->count, sizeof *files->file);
    if (files->file == NULL)
        return out_of_memory(l);
    memset(files->file, 0, files->count * sizeof *files->file);
    if (!digest_begin(&l->digest))
        return error_set(l->err, ERR_OVERLOADED, "", "there is no SHA-256");
    for (size_t i = 0; i < files->count && good; i++) {
        good = read_file(l, l->name[i], INT64_MAX, &files->file[i]);
        files->bytes += (int64_t)files->file[i].len;
    }
    digest_end(&l->digest, files->sha256);
    l->digest.hash = NULL;
    return good;
}

static bool look_inside(struct looking *l, enum model_entry kind,
                        const char *entry, bool and_read)
{
    int inside = -1;
    bool good;

    if (kind == MODEL_ENTRY_FOLDER) {
        inside = openat(l->folder, entry, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
        if (inside < 0)
            return fail_errno(l->err, entry);
        l->folder = inside;
    }
    good = look(l, kind, entry) && (!and_read || read_all(l));
    if (inside >= 0)
        close(inside);
    return good;
}

static struct looking begin(struct model_files *files, int folder,
                            const atomic_bool *stop, struct error *err)
{
    *files = (struct model_files){ 0 };
    arena_init(&files->arena, ARENA_MAX_BYTES);
    return (struct looking){ .files = files, .folder = folder, .stop = stop,
                             .err = err };
}

bool model_files_look(struct model_files *files, int folder,
                      enum model_entry kind, const char *entry,
                      struct error *err)
{
    struct looking l = begin(files, folder, NULL, err);

    return look_inside(&l, kind, entry, false);
}

bool model_files_read(struct model_files *files, int folder,
                      enum model_entry kind, const char *entry,
                      const atomic_bool *stop, struct error *err)
{
    struct looking l = begin(files, folder, stop, err);

    return look_inside(&l, kind, entry, true);
}

void model_files_free(struct model_files *files)
{
    for (size_t i = 0; files->file != NULL && i < files->count; i++)
        free_bytes(&files->file[i]);
    free_bytes(&files->config);
    arena_free(&files->arena);
}
