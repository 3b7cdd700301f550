#ifndef SERVER_MODEL_FILES_H
#define SERVER_MODEL_FILES_H

#include "api/wire.h"
#include "core/arena.h"
#include "server/digest.h"

#include <stdatomic.h>

/* The files of one model, from a folder of models into memory.
 *
 * NAME.safetensors, or NAME/ with *.safetensors in it: those that its
 * model.safetensors.index.json names, or all. Everything is copied out of the
 * files, so that one which is replaced, cut or removed afterwards changes
 * nothing. What it reads are the operator's names, never a client's. */

#define MODEL_FILES_SUFFIX ".safetensors"

struct model_files {
    struct bytes *file; /* `count` of them, by name; empty: not read */
    size_t count;
    struct bytes config; /* config.json; data NULL: there is none */
    int64_t bytes;       /* of the safetensors files */
    /* SHA-256 of the safetensors files, one after another by name. */
    char sha256[DIGEST_TEXT_BYTES];
    /* Of names, places, sizes and times: another when any file was replaced. */
    uint64_t stamp;
    struct arena arena;
};

/* What `entry` of the open folder is: a file to read alone, a folder, or no
 * model's. Other names end in neither. */
enum model_entry { MODEL_ENTRY_NONE, MODEL_ENTRY_FILE, MODEL_ENTRY_FOLDER };
enum model_entry model_files_kind(int folder, const char *entry);

/* Looks, but reads no tensors: count, stamp. A count of 0 is a folder without
 * checkpoint. ERR_NOT_FOUND, ERR_JSON, ERR_OVERLOADED. model_files_free() is
 * due whatever it returns. */
bool model_files_look(struct model_files *files, int folder,
                      enum model_entry kind, const char *entry,
                      struct error *err);

/* Looks, then reads all of it. `stop` set ends it early. */
bool model_files_read(struct model_files *files, int folder,
                      enum model_entry kind, const char *entry,
                      const atomic_bool *stop, struct error *err);

void model_files_free(struct model_files *files);

#endif
