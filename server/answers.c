#include "server/answers.h"

#include "api/json_text.h"
#include "api/openapi.h"
#include "core/kernels/kernels.h"
#include "server/auth.h"
#include "server/metrics.h"
#include "server/model_counts.h"
#include "server/models.h"

#include <stdio.h>
#include <string.h>

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
    models_measure(server->models);
    buffer_init(&text, ANSWERS_BYTES);
    metrics_write(&text);
    model_counts_write(&text);
    auth_write(server->auth, &text);
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
    if (if_none_match == NULL)
        return false;
    return (*if_none_match == '*' &&
            if_none_match[1 + strspn(if_none_match + 1, " \t")] == '\0') ||
           strstr(if_none_match, tag) != NULL;
}

/* Sets the ETag, and the 304 of a client that has this text. The text is to be
 * answered all the same: its length belongs to the 304, its bytes the library
 * keeps to itself. */
static void set_etag(struct job *job, const char *text, size_t len)
{
    char tag[24];

    snprintf(tag, sizeof tag, "\"%016llx\"",
             (unsigned long long)digest(text, len));
    job_set_header(job, "ETag", tag);
    if (is_known(job->headers.if_none_match, tag))
        job->reply.status = 304;
}

void answers_openapi(struct server *server, struct job *job)
{
    (void)server;
    set_etag(job, openapi_json, openapi_json_len);
    job_answer_static(job, json, openapi_json, openapi_json_len);
}

/* ---- models ---- */

/* Of what goes in and what comes out. */
static void put_widths(struct buffer *out, const struct weights *w,
                       bool projected)
{
    buffer_format(out,
                  "\"widths\": {\"query\": %lld, \"key\": %lld, "
                  "\"value\": %lld, \"output\": %lld}",
                  (long long)w->q.weight.dim[1], (long long)w->k.weight.dim[1],
                  (long long)w->v.weight.dim[1],
                  (long long)(projected && w->out.weight.rank != 0
                                  ? w->out.weight.dim[0]
                                  : w->v.weight.dim[0]));
}

/* The members that a model has in the list and alone. Its name needs no
 * escape. */
static void put_model(struct buffer *out, const struct model *model)
{
    bool projects = checkpoint_kind_projects(model->kind);

    buffer_format(out, "\"name\": \"%s\", \"kind\": \"%s\", ", model->name,
                  checkpoint_kind_name(model->kind));
    buffer_format(out, "\"layers\": %lld, \"heads\": ",
                  (long long)model->layers);
    if (model->heads == 0)
        buffer_string(out, "null, ");
    else
        buffer_format(out, "%lld, ", (long long)model->heads);
    put_widths(out, &model->layer[0].weights[PRECISION_F32], projects);
    buffer_format(out,
                  ", \"output_projection\": %s, \"dtype\": \"%s\", "
                  "\"bytes\": %lld, \"sha256\": \"%s\"",
                  projects ? "true" : "false", dtype_name(model->dtype),
                  (long long)model->file_bytes, model->sha256);
}

static void put_layer(struct buffer *out, const struct model *model,
                      int64_t number)
{
    const struct model_layer *layer = &model->layer[number];

    buffer_format(out, "%s{\"layer\": %lld, \"module\": ",
                  number == 0 ? "" : ", ", (long long)number);
    json_text_write(layer->path, out);
    buffer_string(out, ", ");
    put_widths(out, &layer->weights[PRECISION_F32],
               checkpoint_kind_projects(model->kind));
    buffer_string(out, "}");
}

static void answer_tagged(struct job *job, struct buffer *text)
{
    if (!text->failed)
        set_etag(job, (char *)text->data, text->len);
    job_answer(job, json, text);
}

void answers_models(struct server *server, struct job *job)
{
    size_t count;
    struct model **all;
    struct buffer text;

    if (!models_hold_all(server->models, &all, &count)) {
        error_set(&job->error, ERR_OVERLOADED, "", "out of memory");
        job_refuse(job);
        return;
    }
    buffer_init(&text, ANSWERS_BYTES);
    buffer_string(&text, "{\"models\": [");
    for (size_t i = 0; i < count; i++) {
        buffer_string(&text, i == 0 ? "{" : ", {");
        put_model(&text, all[i]);
        buffer_string(&text, "}");
    }
    buffer_string(&text, "]}\n");
    models_release_all(all, count);
    answer_tagged(job, &text);
}

static void describe(const struct model *model, struct buffer *text)
{
    buffer_init(text, ANSWERS_BYTES);
    buffer_string(text, "{");
    put_model(text, model);
    buffer_format(text, ", \"ignored_tensors\": %lld, \"attentions\": [",
                  (long long)model->ignored);
    for (int64_t i = 0; i < model->layers; i++)
        put_layer(text, model, i);
    buffer_string(text, "]}\n");
}

void answers_model(struct server *server, struct job *job)
{
    const char *name = routes_model(job);
    bool deletes = job->method == METHOD_DELETE;
    struct model *model = deletes ? NULL : models_find(server->models, name);
    struct buffer text;

    if (model != NULL) {
        describe(model, &text);
        model_release(model);
        answer_tagged(job, &text);
    } else if (deletes && models_delete(server->models, name)) {
        job->reply.status = 204;
    } else {
        error_set(&job->error, ERR_NOT_FOUND, "/model", "no such model");
        job_refuse(job);
    }
}

void answers_upload(struct server *server, struct job *job)
{
    bool is_new = false;
    struct model *model =
        models_upload(server->models, routes_model(job),
                      (struct bytes){ job->body, job->body_len }, &is_new,
                      &job->error);
    struct buffer text;

    if (model == NULL)
        return;
    describe(model, &text);
    model_release(model);
    job->reply.status = is_new ? 201 : 200;
    job_answer(job, json, &text);
}

void answers_version(struct server *server, struct job *job)
{
    const struct config *config = server->config;
    struct buffer text;

    buffer_init(&text, ANSWERS_BYTES);
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
                  (long long)server->max_connections,
                  (long long)config->request_deadline_ms);
    job_answer(job, json, &text);
}

void answers_options(struct server *server, struct job *job)
{
    unsigned allowed = routes_methods(server, job->route);
    char allow[JOB_HEADER_BYTES];

    if (job->route == ROUTE_OTHER) /* OPTIONS * asks for the whole server's */
        for (int i = 0; i < ROUTE_OTHER; i++)
            allowed |= routes_methods(server, (enum route_name)i);
    job->reply.status = 204;
    job_set_header(job, "Allow", routes_allow(allowed, allow, sizeof allow));
}
