#include "server/routes.h"

#include "api/wire.h"
#include "server/answers.h"
#include "server/auth.h"
#include "server/job.h"
#include "server/metrics.h"
#include "server/model.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

const struct route routes[ROUTES] = {
#define ROUTE(name, path, methods, key, door, answer)                         \
    [ROUTE_##name] = { path, methods, key, door, answer },
#include "server/routes.def"
#undef ROUTE
};

static const struct {
    const char *name;
    enum method method;
} methods[] = {
    { "GET", METHOD_GET },         { "HEAD", METHOD_HEAD },
    { "POST", METHOD_POST },       { "PUT", METHOD_PUT },
    { "DELETE", METHOD_DELETE },   { "OPTIONS", METHOD_OPTIONS },
    { "PATCH", METHOD_OTHER },     { "TRACE", METHOD_OTHER },
    { "CONNECT", METHOD_OTHER },
};

enum method routes_method(const char *name)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(name, methods[i].name) == 0)
            return methods[i].method;
    return METHOD_UNKNOWN;
}

static bool is_path_of(const struct route *route, const char *path)
{
    size_t len = strlen(route->path);

    if (route->path[len - 1] == '/')
        return strncmp(path, route->path, len) == 0 && path[len] != '\0';
    return strcmp(path, route->path) == 0;
}

/* ROUTE_OTHER when there is none. */
static enum route_name find(const char *path)
{
    int i = 0;

    while (i < ROUTE_OTHER && !is_path_of(&routes[i], path))
        i++;
    return (enum route_name)i;
}

unsigned routes_methods(const struct server *server, enum route_name route)
{
    unsigned methods_of = routes[route].methods;

    return server->config->model_upload
               ? methods_of
               : methods_of & ~(unsigned)(METHOD_PUT | METHOD_DELETE);
}

int64_t routes_max_body(const struct server *server, const struct job *job)
{
    return job->method == METHOD_PUT ? server->config->max_model_bytes
                                     : server->config->max_body_bytes;
}

char *routes_allow(unsigned allowed, char *out, size_t size)
{
    size_t at = 0;

    out[0] = '\0';
    allowed |= METHOD_OPTIONS;
    for (size_t i = 0; i < sizeof methods / sizeof *methods && at < size; i++)
        if ((allowed & methods[i].method) != 0)
            at += (size_t)snprintf(out + at, size - at, "%s%s",
                                   at == 0 ? "" : ", ", methods[i].name);
    return out;
}

static bool refuse(struct job *job, enum error_code code, const char *why)
{
    error_set(&job->error, code, "", "%s", why);
    job_refuse(job);
    return false;
}

/* Whether the path is there for who came by this listener. */
static bool is_reached(const struct server *server, const struct job *job)
{
    enum route_door door = routes[job->route].door;
    bool has_admin = server->config->admin_listen[0] != '\0';

    return job->connection->is_admin ? door != DOOR_MAIN
                                     : door != DOOR_ADMIN || !has_admin;
}

const char *routes_model(const struct job *job)
{
    return job->target + strlen(routes[ROUTE_MODEL].path);
}

/* First, so that whoever has no key learns nothing of what there is. */
static bool admit_key(struct server *server, struct job *job)
{
    enum route_key key = routes[job->route].key;

    if (server->auth == NULL || job->connection->is_admin || key == KEY_NEVER ||
        (key == KEY_BY_OPTION && !server->config->metrics_need_key))
        return true;
    job->client = auth_find(server->auth, job->headers.authorization,
                            job->headers.api_key, &job->error);
    if (job->client != NULL)
        return true;
    job_refuse(job);
    if (job->error.code == ERR_KEY) {
        metrics_count_rejected(REASON_unauthorized);
        job_set_header(job, "WWW-Authenticate", "Bearer realm=\"attnd\"");
    }
    return false;
}

static bool admit_quota(struct server *server, struct job *job)
{
    if (job->client == NULL)
        return true;
    job->counts = auth_begin(server->auth, job->client, &job->error);
    if (job->counts)
        return true;
    metrics_count_rejected(REASON_quota);
    job_refuse(job);
    job_set_header(job, "Retry-After", "1");
    return false;
}

static bool admit_method(struct server *server, struct job *job)
{
    char allow[JOB_HEADER_BYTES];

    if (job->method == METHOD_UNKNOWN)
        return refuse(job, ERR_UNKNOWN_METHOD, "no such method");
    if (job->method == METHOD_OPTIONS && strcmp(job->target, "*") == 0)
        return true;
    if (job->route == ROUTE_OTHER)
        return refuse(job, ERR_NOT_FOUND, "no such path");

    unsigned allowed = routes_methods(server, job->route);

    if (job->method == METHOD_OPTIONS || (job->method & allowed) != 0)
        return true;
    routes_allow(allowed, allow, sizeof allow);
    error_set(&job->error, ERR_METHOD, "", "this path takes %s, not %s", allow,
              job->method_name);
    job_refuse(job);
    job_set_header(job, "Allow", allow);
    return false;
}

/* A header that came as `value` (NULL: not at all), and what it may be, which
 * the answer has as `told` as well. */
static bool refuse_header(struct job *job, const char *name, const char *value,
                          const char *told, const char *served)
{
    enum { SHOWN_BYTES = 64 };

    if (value == NULL)
        error_set(&job->error, ERR_MEDIA, "", "there is no %s; it may be %s",
                  name, served);
    else
        error_set(&job->error, ERR_MEDIA, "", "%s is \"%.*s\"; it may be %s",
                  name, (int)error_cut(value, strnlen(value, SHOWN_BYTES)),
                  value, served);
    job_refuse(job);
    job_set_header(job, told, served);
    return false;
}

static bool admit_media(struct job *job)
{
    const struct headers *headers = &job->headers;

    job->format = headers->content_type == NULL
                      ? NULL
                      : wire_find(headers->content_type);
    job->reply_format = wire_accept(headers->accept);
    if (job->format == NULL)
        return refuse_header(job, "Content-Type", headers->content_type,
                             "Accept-Post", wire_media_types());
    return coding_find(headers->content_encoding, &job->coding) ||
           refuse_header(job, "Content-Encoding", headers->content_encoding,
                         "Accept-Encoding", coding_names());
}

/* A model is a safetensors file whether or not the client says so. */
static bool is_checkpoint(const char *content_type)
{
    static const char *const types[] = { "application/x-safetensors",
                                         "application/vnd.safetensors",
                                         "application/octet-stream" };
    size_t len;

    if (content_type == NULL)
        return true;
    len = strcspn(content_type, "; \t");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i]) == len &&
            strncasecmp(content_type, types[i], len) == 0)
            return true;
    return false;
}

static bool admit_model(struct job *job)
{
    const struct headers *headers = &job->headers;
    const char *coding = headers->content_encoding;

    if (!model_is_name(routes_model(job)))
        return refuse(job, ERR_RANGE,
                      "a model's name is 1 to 64 of A-Z a-z 0-9 . _ - without "
                      "a dot at the front");
    if (!is_checkpoint(headers->content_type))
        return refuse_header(job, "a model's Content-Type",
                             headers->content_type, "Accept",
                             "application/x-safetensors");
    return coding == NULL || strcasecmp(coding, "identity") == 0 ||
           refuse_header(job, "a model's Content-Encoding", coding,
                         "Accept-Encoding", "identity");
}

void routes_refuse_full(struct job *job)
{
    metrics_count_rejected(REASON_queue_full);
    refuse(job, ERR_OVERLOADED,
           "too many requests are waiting already; try again later");
}

static bool admit_body(struct server *server, struct job *job)
{
    int64_t max_bytes = routes_max_body(server, job);
    size_t len = job->headers.is_chunked ? 0 : (size_t)job->headers.length;

    if (len > 0 && job->headers.length <= max_bytes &&
        !queue_has_room(&server->queue, len)) {
        routes_refuse_full(job);
        return false;
    }
    if (job_expect_body(job, &server->budget, max_bytes))
        return true;
    metrics_count_rejected(job->error.code == ERR_TOO_LARGE ? REASON_too_large
                                                            : REASON_memory);
    job_refuse(job);
    return false;
}

bool routes_admit(struct server *server, struct job *job)
{
    job->route = find(job->target);
    if (!is_reached(server, job))
        job->route = ROUTE_OTHER;
    if (!admit_key(server, job) || !admit_method(server, job))
        return false;
    if (!job_wants_body(job))
        return true;
    if (atomic_load_explicit(&server->draining, memory_order_relaxed)) {
        metrics_count_rejected(REASON_draining);
        return refuse(job, ERR_DRAINING, "the service is going away");
    }
    return (job->method == METHOD_PUT ? admit_model(job) : admit_media(job)) &&
           admit_quota(server, job) &&
           admit_body(server, job);
}
