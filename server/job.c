#include "server/job.h"

#include "api/problem.h"
#include "core/pages.h"
#include "server/auth.h"
#include "server/digits.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

enum {
    FIRST_CHUNK_BYTES = 64 * 1024, /* of a body of unknown length */
    SHORT_TARGET_BYTES = 64,
    PROBLEM_BYTES = 8 * 1024 /* no problem is longer */
};

/* "http://host/path" asks for /path of whoever it was sent to (RFC 9112,
 * absolute-form). What can't stand in a host stays, to be refused as a path. */
static const char *skip_authority(const char *target)
{
    size_t scheme = strncasecmp(target, "http://", 7) == 0    ? 7
                    : strncasecmp(target, "https://", 8) == 0 ? 8
                                                              : 0;
    const char *path = target + scheme;

    while ((unsigned char)*path > ' ' && *path != 0x7f && *path != '/' &&
           *path != '?')
        path++;
    return scheme == 0 ? target : *path == '\0' ? "/" : path;
}

/* All zero but for the room, from the spare one where the target fits there. */
static struct job *take_memory(struct job *spare, size_t len)
{
    size_t room = len < SHORT_TARGET_BYTES ? SHORT_TARGET_BYTES : len;

    if (spare == NULL || room > SHORT_TARGET_BYTES) {
        free(spare);
        spare = malloc(sizeof *spare + room);
        if (spare == NULL)
            return NULL;
    }
    *spare = (struct job){ .target_room = room };
    return spare;
}

struct job *job_new(const char *target, struct job *spare)
{
    const char *path = skip_authority(target);
    size_t len = strlen(path) + 1;
    struct job *job = take_memory(spare, len);

    if (job == NULL)
        return NULL;
    memcpy(job->target, path, len);

    char *query = strchr(job->target, '?');

    if (query != NULL) {
        *query = '\0';
        job->query = query + 1;
    }
    job->method_name = "-";
    job->route = ROUTE_OTHER;
    job_fresh_id(job->id);
    return job;
}

struct job *job_end(struct job *job, struct budget *budget)
{
    job_drop_body(job, budget);
    budget_give(budget, job->reserved_bytes);
    auth_leave(job->client, job->counts);
    headers_free(&job->headers);
    free(job->reply.data);
    if (job->target_room == SHORT_TARGET_BYTES)
        return job;
    free(job);
    return NULL;
}

void job_free(struct job *job, struct budget *budget)
{
    free(job_end(job, budget));
}

/* A random word a process and a count: unique across replicas and restarts
 * without asking the kernel again. */
void job_fresh_id(char id[JOB_ID_BYTES])
{
    static _Atomic uint64_t word, count;
    uint64_t w = atomic_load_explicit(&word, memory_order_relaxed);

    if (w == 0) {
        /* Two threads that meet here draw a word each: both are good. */
        if (getrandom(&w, sizeof w, GRND_NONBLOCK) != sizeof w || w == 0)
            w = (uintptr_t)&w | 1;
        atomic_store_explicit(&word, w, memory_order_relaxed);
    }
    id = digits_write_hex(id, w, 16);
    *id++ = '-';
    id = digits_write_hex(
        id, atomic_fetch_add_explicit(&count, 1, memory_order_relaxed), 1);
    *id = '\0';
}

void job_identify(struct job *job, const char *wanted)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t len = wanted == NULL ? 0 : strspn(wanted, allowed);

    if (len == 0 || len >= JOB_ID_BYTES ||
        wanted[len + strspn(wanted + len, " \t")] != '\0')
        return;
    memcpy(job->id, wanted, len);
    job->id[len] = '\0';
}

static bool no_memory(struct job *job)
{
    return error_set(&job->error, ERR_OVERLOADED, "", "out of memory");
}

static bool too_large(struct job *job, int64_t max_bytes)
{
    return error_set(&job->error, ERR_TOO_LARGE, "",
                     "the body is over the limit of %lld bytes",
                     (long long)max_bytes);
}

bool job_reserve(struct job *job, struct budget *budget, int64_t bytes)
{
    if (bytes <= job->reserved_bytes)
        budget_give(budget, job->reserved_bytes - bytes);
    else if (!budget_take(budget, bytes - job->reserved_bytes, &job->error))
        return false;
    job->reserved_bytes = bytes;
    return true;
}

/* Reserved first: a refused body costs nothing. */
static bool resize_body(struct job *job, struct budget *budget, int64_t bytes)
{
    if (!job_reserve(job, budget, bytes))
        return false;

    uint8_t *body = realloc(job->body, (size_t)bytes);

    if (body == NULL)
        return no_memory(job);
    pages_mapped(body, (size_t)bytes);
    job->body = body;
    job->body_size = (size_t)bytes;
    return true;
}

bool job_expect_body(struct job *job, struct budget *budget, int64_t max_bytes)
{
    const struct headers *headers = &job->headers;

    if (headers->length > max_bytes)
        return too_large(job, max_bytes);
    if (!headers_announce_body(headers))
        return true;
    if (!headers->is_chunked)
        return resize_body(job, budget, headers->length);
    return resize_body(job, budget, max_bytes < FIRST_CHUNK_BYTES
                                        ? max_bytes
                                        : FIRST_CHUNK_BYTES);
}

/* Doubling, so that a body in many pieces costs linear time. */
static bool grow_body(struct job *job, struct budget *budget, size_t need,
                      int64_t max_bytes)
{
    size_t size = job->body_size * 2;

    if (size < need)
        size = need;
    if (size > (size_t)max_bytes)
        size = (size_t)max_bytes;
    return resize_body(job, budget, (int64_t)size);
}

bool job_take_body(struct job *job, const void *data, size_t len,
                   struct budget *budget, int64_t max_bytes)
{
    if (len > (size_t)max_bytes - job->body_len)
        return too_large(job, max_bytes);
    if (len > job->body_size - job->body_len &&
        !grow_body(job, budget, job->body_len + len, max_bytes))
        return false;
    memcpy(job->body + job->body_len, data, len);
    job->body_len += len;
    return true;
}

static void free_body(struct job *job)
{
    free(job->body);
    job->body = NULL;
    job->body_len = job->body_size = 0;
}

void job_drop_body(struct job *job, struct budget *budget)
{
    int64_t size = (int64_t)job->body_size;

    free_body(job);
    if (size > 0)
        job_reserve(job, budget, job->reserved_bytes - size);
}

void job_keep_reply(struct job *job, struct budget *budget)
{
    int64_t reply = (int64_t)job->reply.len;

    free_body(job);
    if (reply < job->reserved_bytes)
        job_reserve(job, budget, reply);
}

bool job_wants_body(const struct job *job)
{
    return job->method == METHOD_POST || job->method == METHOD_PUT;
}

static void drop_reply(struct job *job)
{
    free(job->reply.data);
    job->reply.data = NULL;
    job->reply.static_data = NULL;
    job->reply.len = 0;
}

void job_answer_static(struct job *job, const char *media_type,
                       const char *text, size_t len)
{
    drop_reply(job);
    job->reply.media_type = media_type;
    job->reply.static_data = text;
    job->reply.len = len;
    if (job->reply.status == 0)
        job->reply.status = 200;
}

void job_answer(struct job *job, const char *media_type, struct buffer *text)
{
    size_t len;
    uint8_t *data = buffer_take(text, &len);

    buffer_free(text);
    if (data == NULL) {
        no_memory(job);
        job_refuse(job);
        return;
    }
    job_answer_static(job, media_type, NULL, len);
    job->reply.data = data;
}

void job_refuse(struct job *job)
{
    static const char last_words[] = "{\"status\": 503, \"code\": \"overloaded\"}";
    struct buffer text;
    size_t len;

    buffer_init(&text, PROBLEM_BYTES);
    problem_encode(&job->error, job->id, &text);
    drop_reply(job);
    job->reply.status = problem_status(job->error.code);
    job->reply.media_type = "application/problem+json";
    job->reply.data = buffer_take(&text, &len);
    job->reply.len = len;
    if (job->reply.data == NULL) {
        buffer_free(&text);
        job->reply.status = 503;
        job_answer_static(job, "application/problem+json", last_words,
                          sizeof last_words - 1);
    }
}

void job_set_header(struct job *job, const char *name, const char *value)
{
    job->reply.header_name = name;
    snprintf(job->reply.header_value, sizeof job->reply.header_value, "%s",
             value);
}

char *job_timing(const struct job *job, char out[JOB_TIMING_BYTES])
{
    const struct {
        const char *name;
        int64_t ns;
    } steps[] = {
        { "queue;dur=", job->queue_ns },
        { ", decode;dur=", job->decode_ns },
        { ", compute;dur=", job->compute_ns },
        { ", encode;dur=", job->encode_ns },
    };
    char *end = out;

    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        end = stpcpy(end, steps[i].name);
        end = digits_write_ms(end, steps[i].ns);
    }
    *end = '\0';
    return out;
}
