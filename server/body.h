#ifndef SERVER_BODY_H
#define SERVER_BODY_H

#include "server/job.h"

/* Bodies that travel packed: a job's own is unpacked before it is decoded, and
 * its reply packed before it is sent. Work for whoever may take its time. */

/* Undoes the body's Content-Encoding, once, of at most `max_bytes` when
 * unpacked, and never takes more memory than that. ERR_REQUEST, ERR_TOO_LARGE,
 * ERR_OVERLOADED. */
bool body_unpack(struct job *job, struct budget *budget, int64_t max_bytes);

/* Packs the reply as the client prefers, when it is text long enough to gain by
 * it and there is memory to do so. */
void body_pack_reply(struct job *job);

#endif
