#ifndef SERVER_ANSWERS_H
#define SERVER_ANSWERS_H

#include "server/job.h"

enum { ANSWERS_BYTES = 1 << 20 }; /* none is longer */

/* What the service says about itself. Each fills the job's reply, on the I/O
 * thread, and waits for nothing. */

void answers_livez(struct server *server, struct job *job);
void answers_readyz(struct server *server, struct job *job);
void answers_metrics(struct server *server, struct job *job);
void answers_models(struct server *server, struct job *job);
void answers_model(struct server *server, struct job *job);
void answers_openapi(struct server *server, struct job *job);
void answers_version(struct server *server, struct job *job);

/* To PUT /models/NAME, by a worker, for it reads the model: only here the job's
 * error is left for the caller to turn into a reply, and the memory for the
 * answer is reserved by the caller. */
void answers_upload(struct server *server, struct job *job);

/* To OPTIONS, on any path. */
void answers_options(struct server *server, struct job *job);

#endif
