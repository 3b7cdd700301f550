#ifndef SERVER_JOB_H
#define SERVER_JOB_H

#include "api/coding.h"
#include "api/wire.h"
#include "core/buffer.h"
#include "server/budget.h"
#include "server/headers.h"
#include "server/routes.h"

#include <stdbool.h>
#include <stdint.h>

struct MHD_Connection;
struct auth_client;
struct connection;

/* One HTTP request, from its request line to its access-log line.
 *
 *   state        owner          leaves when
 *   JOB_OPENED   I/O thread     the headers are complete
 *   JOB_READING  I/O thread     the body is complete
 *   JOB_QUEUED   queue          a worker pops it, or its deadline passes
 *   JOB_RUNNING  worker         the reply is encoded, or it is put back in line
 *   JOB_DONE     I/O thread     the reply is sent, or the peer is gone
 *
 * States move down the table, but for that one step back, and only the owner
 * touches the job, so it has no lock of its own: the queue's mutex orders the
 * hand-over to a worker, the library's resume the one back. A request that needs
 * no worker goes from READING to DONE. While a connection is suspended the
 * library notices neither a hang-up nor a timeout; the deadline below is the
 * only clock that runs. */
enum job_state { JOB_OPENED, JOB_READING, JOB_QUEUED, JOB_RUNNING, JOB_DONE };

enum {
    JOB_ID_BYTES = 129,
    JOB_HEADER_BYTES = 256,
    JOB_TIMING_BYTES = 128 /* four durations and their names */
};

/* What goes back. Made by whoever owns the job. */
struct reply {
    int status;
    const char *media_type;  /* static */
    const char *header_name; /* static; one more header, or NULL */
    char header_value[JOB_HEADER_BYTES];
    uint8_t *data;           /* from malloc, the library frees it; or ... */
    const void *static_data; /* ... nobody's to free                      */
    size_t len;
    const char *coding; /* static; NULL: as it is */
    bool varies; /* another client might have got it in another coding */
    bool closes; /* the connection must not be used again */
};

struct job {
    enum job_state state;
    struct MHD_Connection *mhd;
    struct connection *connection;
    struct headers headers;
    enum method method;
    enum route_name route;
    const char *method_name; /* the library's */
    const char *query;       /* after the '?', or NULL */
    char id[JOB_ID_BYTES];
    struct auth_client *client; /* whose key it has, or NULL; held ... */
    bool counts;                /* ... and one of those that run       */

    uint8_t *body;
    size_t body_len, body_size;
    size_t sent_len; /* of the body as it came; what it is when unpacked shows
                        only later */
    int64_t received_bytes; /* of body, also what was thrown away */
    int64_t reserved_bytes; /* of the budget */

    const struct wire_format *format, *reply_format;
    enum coding coding; /* of the body as it is held */
    struct error error; /* ERR_NONE: the reply is what was asked for */
    struct reply reply;
    bool answered_early; /* the reply went past the library; discard the rest */
    bool is_whole;       /* all of the body is here, and the library knows */
    bool is_old;         /* HTTP/1.0 */
    bool is_gone;        /* the peer left before it was computed */

    /* CLOCK_MONOTONIC */
    int64_t arrived_ns;  /* the end of the headers    */
    int64_t deadline_ns; /* run nothing after this    */
    int64_t queued_ns;   /* pushed                    */
    int64_t queue_ns, decode_ns, compute_ns, encode_ns; /* durations */

    struct job *next; /* queue link */
    int64_t guess_ns; /* what it will cost a worker, the queue thinks */
    bool is_big;      /* in the queue's sense */
    size_t target_room;
    char target[];    /* as on the request line, up to the '?' */
};

/* `target` is copied. Uses the memory of `spare`, from job_end() or NULL, or
 * frees it. NULL when there is no memory. */
struct job *job_new(const char *target, struct job *spare);

/* Frees what the job holds and gives its memory back to the budget. Returns what
 * is left of it, a spare; NULL where its target was too long to be kept. */
struct job *job_end(struct job *job, struct budget *budget);
void job_free(struct job *job, struct budget *budget); /* the spare as well */

/* The client's X-Request-ID where it may be used, else one of our own. */
void job_identify(struct job *job, const char *wanted);
void job_fresh_id(char id[JOB_ID_BYTES]);

/* Before the body: its buffer, of the announced length. */
bool job_expect_body(struct job *job, struct budget *budget, int64_t max_bytes);

/* The next bytes of the body. ERR_TOO_LARGE, ERR_OVERLOADED. */
bool job_take_body(struct job *job, const void *data, size_t len,
                   struct budget *budget, int64_t max_bytes);

/* Lets go of the body once nothing points into it any more. */
void job_drop_body(struct job *job, struct budget *budget);

/* Lets go of the body as well, and of all that was reserved but what the reply
 * holds. Reserves no more than before: a refusal may be longer than its body. */
void job_keep_reply(struct job *job, struct budget *budget);

/* What the job has reserved becomes `bytes`; true when it shrinks. */
bool job_reserve(struct job *job, struct budget *budget, int64_t bytes);

/* Whether its method is one whose body a worker reads. */
bool job_wants_body(const struct job *job);

/* Turns the job's error into its reply; there is always one. */
void job_refuse(struct job *job);

/* A reply of static bytes, and one whose memory is handed over. */
void job_answer_static(struct job *job, const char *media_type,
                       const char *text, size_t len);
void job_answer(struct job *job, const char *media_type, struct buffer *text);

/* The name must be static; what does not fit of the value is cut. */
void job_set_header(struct job *job, const char *name, const char *value);

/* "queue;dur=0.012, decode;dur=..." in milliseconds. Returns out. */
char *job_timing(const struct job *job, char out[JOB_TIMING_BYTES]);

#endif
