#include "server/answers.h"

#include "api/openapi.h"
#include "core/kernels/kernels.h"
#include "server/metrics.h"

#include <stdio.h>
#include <string.h>

enum { ANSWER_BYTES = 1 << 20 }; /* none is longer */

static const char json[] = "application/json";

static void say(struct job *job, const char *text)
{
    job_answer_static(job, json, text, strlen(text));
}

void answers_livez(struct server *server, struct job *job)
{
    (void)server;
    say(job, "{\"status\": \"alive\"}\n");
}

void answers_readyz(struct server *server, struct job *job)
{
    if (atomic_load_explicit(&server->ready, memory_order_relaxed)) {
        say(job, "{\"status\": \"ready\"}\n");
        return;
    }
    if (atomic_load_explicit(&server->stopping, memory_order_relaxed))
        error_set(&job->error, ERR_DRAINING, "", "the service is going away");
    else
        error_set(&job->error, ERR_OVERLOADED, "", "the service is warming up");
    job_refuse(job);
}

void answers_metrics(struct server *server, struct job *job)
{
    struct buffer text;

    metrics_set(METRIC_memory_reserved_bytes, budget_reserved(&server->budget));
    metrics_set(METRIC_ready, atomic_load_explicit(&server->ready,
                                                   memory_order_relaxed));
    buffer_init(&text, ANSWER_BYTES);
    metrics_write(&text);
    job_answer(job, "text/plain; version=0.0.4; charset=utf-8", &text);
}

/* FNV-1a, 64 bits: it names a version of the text, it protects nothing. */
static uint64_t digest(const char *text, size_t len)
{
    uint64_t hash = 0xcbf29ce484222325;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3;
    return hash;
}

/* Whether If-None-Match names the tag: "*", or a list in which a weak tag
 * counts as the strong one (RFC 9110). Tags have no quotes inside, so a search
 * for the quoted text finds list members only. */
static bool is_known(const char *if_none_match, const char *tag)
{
    return if_none_match != NULL && (strcmp(if_none_match, "*") == 0 ||
                                     strstr(if_none_match, tag) != NULL);
}

void answers_openapi(struct server *server, struct job *job)
{
    char tag[24];

    (void)server;
    snprintf(tag, sizeof tag, "\"%016llx\"",
             (unsigned long long)digest(openapi_json, openapi_json_len));
    job_set_header(job, "ETag", tag);
    if (is_known(job->headers.if_none_match, tag))
        job->reply.status = 304;
    else
        job_answer_static(job, json, openapi_json, openapi_json_len);
}

void answers_version(struct server *server, struct job *job)
{
    const struct config *config = server->config;
    struct buffer text;

    buffer_init(&text, ANSWER_BYTES);
    buffer_format(&text,
                  "{\"version\": \"%s\", \"kernels\": \"%s\", \"workers\": %lld, "
                  "\"limits\": {\"max_body_bytes\": %lld, "
                  "\"max_response_bytes\": %lld, \"max_request_flops\": %lld, "
                  "\"memory_bytes\": %lld, \"queue_length\": %lld, "
                  "\"max_connections\": %lld, \"request_deadline_ms\": %lld}}\n",
                  ATTND_VERSION, server->kernels->name,
                  (long long)server->worker_count,
                  (long long)config->max_body_bytes,
                  (long long)config->max_response_bytes,
                  (long long)config->max_request_flops,
                  (long long)server->budget.limit_bytes,
                  (long long)config->queue_length,
                  (long long)config->max_connections,
                  (long long)config->request_deadline_ms);
    job_answer(job, json, &text);
}

void answers_options(struct server *server, struct job *job)
{
    unsigned allowed = routes[job->route].methods;
    char allow[JOB_HEADER_BYTES];

    (void)server;
    if (job->route == ROUTE_OTHER) /* OPTIONS * asks for the whole server's */
        for (int i = 0; i < ROUTE_OTHER; i++)
            allowed |= routes[i].methods;
    job->reply.status = 204;
    job_set_header(job, "Allow", routes_allow(allowed, allow, sizeof allow));
}
