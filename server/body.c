#include "server/body.h"

#include "core/pages.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIRST_BYTES = 64 * 1024, /* of a body that does not say its length */
    PACKED_FROM_BYTES = 1024 /* a shorter reply fits in a packet as it is */
};

/* The unpacked body while it grows. */
struct growth {
    struct job *job;
    struct budget *budget;
    int64_t fixed_bytes; /* what the job holds beside it */
    uint8_t *data;
    size_t len, size;
};

static bool resize(struct growth *g, size_t size)
{
    uint8_t *data;

    if (!job_reserve(g->job, g->budget, g->fixed_bytes + (int64_t)size))
        return false;
    data = realloc(g->data, size);
    if (data == NULL)
        return error_set(&g->job->error, ERR_OVERLOADED, "", "out of memory");
    pages_mapped(data, size);
    g->data = data;
    g->size = size;
    return true;
}

/* One byte more than the body announces, or than may be, is room enough to see
 * that there is no such byte. */
static size_t first_size(const struct job *job, size_t max)
{
    struct bytes body = { job->body, job->body_len };
    uint64_t announced = coding_announced(job->coding, body);
    size_t size = announced == 0 ? FIRST_BYTES : max;

    if (announced != 0 && announced < max)
        size = (size_t)announced + 1;
    return size < max + 1 ? size : max + 1;
}

static bool read_all(struct growth *g, struct unpacking *u, size_t max)
{
    enum coding_state state;
    size_t len;

    if (!resize(g, first_size(g->job, max)))
        return false;
    for (;;) {
        state = coding_read(u, g->data + g->len, g->size - g->len, &len,
                            &g->job->error);
        if (state != CODING_MORE && state != CODING_END)
            return false;
        g->len += len;
        if (g->len > max)
            return error_set(&g->job->error, ERR_TOO_LARGE, "",
                             "the body, unpacked, is over the limit of %zu "
                             "bytes", max);
        if (state == CODING_END)
            return true;
        if (!resize(g, g->size > max / 2 ? max + 1 : 2 * g->size))
            return false;
    }
}

/* The packed body is let go of; the job holds the other one from now on, also
 * when it is put back in line and decoded again. */
static void take_over(struct growth *g)
{
    struct job *job = g->job;

    free(job->body);
    job->body = g->data;
    job->body_len = g->len;
    job->body_size = g->size;
    job->coding = CODING_IDENTITY;
    job_reserve(job, g->budget, (int64_t)g->size);
}

bool body_unpack(struct job *job, struct budget *budget, int64_t max_bytes)
{
    struct growth g = {
        .job = job,
        .budget = budget,
        .fixed_bytes = (int64_t)(job->body_size + coding_memory(job->coding)),
    };
    struct unpacking u;
    bool good;

    if (job->coding == CODING_IDENTITY)
        return true;
    if (!coding_open(&u, job->coding, (struct bytes){ job->body, job->body_len },
                     &job->error))
        return false;
    good = read_all(&g, &u, (size_t)max_bytes);
    coding_close(&u);
    if (good)
        take_over(&g);
    else
        free(g.data);
    return good;
}

static bool is_text(const char *media_type)
{
    return media_type != NULL && (strncmp(media_type, "text/", 5) == 0 ||
                                  strstr(media_type, "json") != NULL);
}

/* The same tag can't stand for other bytes, but for the same text (RFC 9110,
 * 8.8.3.3). */
static void weaken_tag(struct reply *reply)
{
    char tag[JOB_HEADER_BYTES];

    if (reply->header_name == NULL || strcmp(reply->header_name, "ETag") != 0)
        return;
    snprintf(tag, sizeof tag, "W/%.*s", JOB_HEADER_BYTES - 3,
             reply->header_value);
    memcpy(reply->header_value, tag, sizeof tag);
}

/* Text that is the same for ever is packed once; there is one such text. Held
 * for as long as the process lives. */
static bool answer_kept(struct job *job, enum coding coding, struct bytes text)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static struct kept {
        const uint8_t *of; /* NULL: nothing yet */
        struct buffer packed;
    } kept[CODINGS];
    struct kept *k = &kept[coding];
    bool found;

    pthread_mutex_lock(&mutex);
    if (k->of == NULL) {
        buffer_init(&k->packed, text.len);
        if (coding_pack(coding, text, false, &k->packed))
            k->of = text.data;
        else
            buffer_free(&k->packed);
    }
    found = k->of == text.data;
    pthread_mutex_unlock(&mutex);
    if (found)
        job_answer_static(job, job->reply.media_type, (char *)k->packed.data,
                          k->packed.len);
    return found;
}

static bool answer_packed(struct job *job, enum coding coding,
                          struct bytes text)
{
    struct buffer packed;
    bool good;

    buffer_init(&packed, text.len);
    good = coding_pack(coding, text, job->method == METHOD_POST, &packed);
    if (good)
        job_answer(job, job->reply.media_type, &packed);
    buffer_free(&packed);
    return good;
}

void body_pack_reply(struct job *job)
{
    struct reply *reply = &job->reply;
    struct bytes text = {
        reply->data != NULL ? reply->data : reply->static_data, reply->len
    };
    enum coding coding;

    if (reply->coding != NULL || text.data == NULL ||
        text.len <= PACKED_FROM_BYTES || !is_text(reply->media_type))
        return;
    reply->varies = true;
    coding = coding_accept(job->headers.accept_encoding);
    if (coding == CODING_IDENTITY)
        return;
    if (reply->data == NULL ? answer_kept(job, coding, text)
                            : answer_packed(job, coding, text)) {
        reply->coding = coding_name(coding);
        weaken_tag(reply);
    }
}
