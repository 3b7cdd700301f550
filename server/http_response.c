#include "server/http_response.h"

#include "server/connections.h"
#include "server/job.h"

#include <microhttpd.h>
#include <stdlib.h>

/* The reply's memory goes to the library, which frees it when it is sent. */
static struct MHD_Response *new_response(struct reply *reply)
{
    struct MHD_Response *response;

    if (reply->data == NULL)
        return MHD_create_response_from_buffer(
            reply->static_data == NULL ? 0 : reply->len,
            (void *)(uintptr_t)reply->static_data, MHD_RESPMEM_PERSISTENT);
    response = MHD_create_response_from_buffer_with_free_callback(
        reply->len, reply->data, free);
    if (response != NULL)
        reply->data = NULL;
    return response;
}

static bool add_reply_headers(struct MHD_Response *response,
                              const struct job *job, bool closes)
{
    const struct reply *reply = &job->reply;
    char timing[JOB_TIMING_BYTES];
    const struct {
        const char *name, *value;
    } headers[] = {
        { "X-Request-ID", job->id },
        { "Server-Timing", job_timing(job, timing) },
        { "Content-Type", reply->media_type },
        { "Content-Encoding", reply->coding },
        { reply->varies ? "Vary" : NULL, "Accept-Encoding" },
        { reply->header_name, reply->header_value },
        { closes ? "Connection" : NULL, "close" },
    };

    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        if (headers[i].name != NULL && headers[i].value != NULL &&
            MHD_add_response_header(response, headers[i].name,
                                    headers[i].value) != MHD_YES)
            return false;
    return true;
}

/* Whether the reply is a text that never changes, under headers of which none but
 * the ID may differ: what is told to those who ask how we are, again and again. */
static bool is_plain(const struct job *job, bool closes)
{
    const struct reply *reply = &job->reply;

    return reply->static_data != NULL && reply->header_name == NULL &&
           reply->coding == NULL && !reply->varies && !closes &&
           job->queued_ns == 0;
}

/* The response of the connection's last plain reply, which the library is done
 * with, under the new id. NULL when it had another text. */
static struct MHD_Response *reuse_response(struct job *job)
{
    struct connection *connection = job->connection;
    struct MHD_Response *response = connection->plain_response;
    const char *id;

    if (response == NULL || connection->plain_text != job->reply.static_data)
        return NULL;
    id = MHD_get_response_header(response, "X-Request-ID");
    connection->plain_response = NULL;
    if (MHD_del_response_header(response, "X-Request-ID", id) == MHD_YES &&
        MHD_add_response_header(response, "X-Request-ID", job->id) == MHD_YES)
        return response;
    MHD_destroy_response(response);
    return NULL;
}

struct MHD_Response *http_response_make(struct job *job, bool closes)
{
    bool plain = is_plain(job, closes);
    struct MHD_Response *response = plain ? reuse_response(job) : NULL;

    if (response != NULL)
        return response;
    response = new_response(&job->reply);
    if (response == NULL || add_reply_headers(response, job, closes))
        return response;
    MHD_destroy_response(response);
    return NULL;
}

void http_response_sent(struct job *job, struct MHD_Response *response,
                        bool closes)
{
    struct connection *connection = job->connection;

    if (!is_plain(job, closes)) {
        MHD_destroy_response(response);
        return;
    }
    http_response_forget(connection);
    connection->plain_response = response;
    connection->plain_text = job->reply.static_data;
}

void http_response_forget(struct connection *connection)
{
    if (connection->plain_response != NULL)
        MHD_destroy_response(connection->plain_response);
    connection->plain_response = NULL;
}

struct MHD_Response *http_response_last_words(void)
{
    static const char text[] =
        "{\"type\": \"about:blank\", \"title\": \"Service Unavailable\", "
        "\"status\": 503, \"detail\": \"out of memory\", "
        "\"code\": \"overloaded\", \"pointer\": \"\", "
        "\"error\": \"out of memory\"}\n";
    struct MHD_Response *response = MHD_create_response_from_buffer(
        sizeof text - 1, (void *)(uintptr_t)text, MHD_RESPMEM_PERSISTENT);

    if (response != NULL) {
        MHD_add_response_header(response, "Content-Type",
                                "application/problem+json");
        MHD_add_response_header(response, "Retry-After", "1");
        MHD_add_response_header(response, "Connection", "close");
    }
    return response;
}
