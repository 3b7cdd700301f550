#ifndef SERVER_MODELS_H
#define SERVER_MODELS_H

#include "api/message.h"
#include "server/model.h"

/* The models that the server holds, under their names, and the thread that
 * reads them: once at the start, and whenever it is asked to look again.
 *
 * Looking again loads what is new or changed beside what is held and then
 * exchanges the pointers, so that a request finds the old version or the new
 * one and keeps it to its end. A model that fails to load keeps its old
 * version, is named in one log line and counts in a metric; one whose files
 * are gone is dropped.
 *
 * A model that was uploaded lives in memory alone and touches no file. As long
 * as it is held, a file of its name is not looked at; once it is deleted, the
 * next look finds the file. A model from a file may be deleted too, until the
 * next look. */
struct models;

enum { MODELS_UPLOADED = 1000 }; /* held at a time */

/* Begins to read the folder; "" is none. Weights are arranged for `kernels`,
 * which outlive all models. Uploads may take `upload_bytes` together. NULL with
 * an error when the folder can't be read at all. */
struct models *models_start(const char *folder, const struct kernels *kernels,
                            int64_t upload_bytes, struct error *err);

/* True once the folder was read for the first time. */
bool models_loaded(struct models *models);

/* Asks the thread to look again; waits for nothing. Several calls while it
 * looks are one. */
void models_reload(struct models *models);

/* Ends the thread, which is at most in the middle of a file, and lets go of
 * the models. */
void models_stop(struct models *models);

/* A reference to the model of this name, or NULL. */
struct model *models_find(struct models *models, const char *name);

/* References to all, by name, in memory from malloc; NULL when there is none.
 * False: no memory. models_release_all() takes both back. */
bool models_hold_all(struct models *models, struct model ***all, size_t *count);
void models_release_all(struct model **all, size_t count);

/* Reads a checkpoint of one file from memory and puts it in the place of what
 * has that name; `name` is one that a model may have. Takes as long as reading
 * does; any thread. A reference for the caller; NULL with an error: those of
 * model_new(), ERR_TOO_LARGE. */
struct model *models_upload(struct models *models, const char *name,
                            struct bytes file, bool *is_new,
                            struct error *err);

/* False when there is none. */
bool models_delete(struct models *models, const char *name);

/* Sets the gauges of how many there are and what they take. */
void models_measure(struct models *models);

/* Finds what the request names: fills its mha.model, and returns a reference
 * that must last as long as the request's plan. NULL: there is none, or no such
 * layer; then mha.model_flaw is `flaw` and says so in its turn. */
struct model *models_attach(struct models *models, struct request *request,
                            struct error *flaw);

#endif
