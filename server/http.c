#include "server/http.h"

#include "server/answers.h"
#include "server/auth.h"
#include "server/body.h"
#include "server/clock.h"
#include "server/http_response.h"
#include "server/job.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/refusal.h"
#include "server/slice.h"
#include "server/tls.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    /* Room for headers of 32 KiB and upload chunks of 20 KiB. The library
     * wipes it all after each request: with 128 KiB that took 1.3 of the 8.7 us
     * of a /livez. A body of 8 MB takes 0.2 ms more with the short chunks. */
    CONNECTION_BYTES = 40 * 1024,
    /* Of a body that was refused, this much is read and thrown away before the
     * answer, for the sake of the next request on the connection. */
    DISCARD_BYTES = 64 * 1024 * 1024,
    /* One that finds no room is read too when it is no longer than this: that
     * takes less time than a new connection, and the memory is there. */
    SHORT_BYTES = 256 * 1024,
    /* And this much after an answer that did not wait, since some clients read
     * nothing before they have sent all. */
    LEAVING_BYTES = 128 * 1024 * 1024
};

/* One listening socket, and who comes by it. */
struct door {
    struct http *http;
    struct MHD_Daemon *daemon; /* NULL: there is none */
    bool is_admin, is_tls;
};

struct http {
    struct server *server;
    struct door main, admin;
    struct MHD_Response *last_words; /* for want of memory for any other */
};

static struct connection *connection_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *found =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return found == NULL ? NULL : found->socket_context;
}

/* What became no job: `status` is the library's answer, or 0 for none. */
static void report_unparsed(const struct connection *connection, int status)
{
    struct log_request line = {
        .id = "-", .method = "-", .path = "-", .code = "unparsed",
        .peer = connection == NULL ? "-" : connection->peer,
        .status = status,
    };

    log_request(&line);
    metrics_count_request(ROUTE_OTHER, status);
    metrics_count_rejected(REASON_unparsed);
}

static struct tls_pair *prepare_session(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);

    return info == NULL ? NULL : tls_prepare(info->tls_session);
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct door *door = cls;
    struct connections *connections = &door->http->server->connections;

    slice_shorten();
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *fd =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
        const union MHD_ConnectionInfo *address =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);

        struct connection *connection = connections_add(
            connections, fd->connect_fd, address->client_addr);

        if (connection != NULL) {
            connection->is_admin = door->is_admin;
            connection->is_tls = door->is_tls;
            connection->pair = door->is_tls ? prepare_session(mhd) : NULL;
        }
        *context = connection;
    } else if (*context != NULL) {
        if (connection_was_garbage(*context))
            report_unparsed(*context, 0);
        tls_release(((struct connection *)*context)->pair);
        http_response_forget(*context);
        connections_remove(connections, *context);
        *context = NULL;
    }
}

/* The request line has come: `uri` is as the client wrote it, which the
 * library's own url, unescaped, no longer is. */
static void *on_request_line(void *cls, const char *uri,
                             struct MHD_Connection *mhd)
{
    struct connection *connection = connection_of(mhd);
    struct job *job;

    (void)cls;
    if (connection == NULL)
        return NULL;
    connection->has_requested = true;
    job = job_new(uri, connection->spare);
    connection->spare = NULL;
    if (job == NULL)
        return NULL;
    connection_enter(connection, CONNECTION_HEADERS);
    job->mhd = mhd;
    job->connection = connection;
    return job;
}

/* The library glues a folded line to the name of the header before it, and not
 * to its value: "Content: 5\r\n -Length" arrives as Content-Length. Such a name is
 * a copy behind the rest; any other lies in front of its value, as it came. */
static bool is_glued(const char *name, const char *value)
{
    const char *behind = name + strlen(name) + 1;

    return (uintptr_t)value < (uintptr_t)behind ||
           value != behind + strspn(behind, " \t");
}

static enum MHD_Result add_header(void *cls, enum MHD_ValueKind kind,
                                  const char *name, const char *value)
{
    struct headers *headers = cls;

    (void)kind;
    headers_add(headers, name, value);
    if (is_glued(name, value))
        headers->bad_name = name;
    return MHD_YES;
}

static enum MHD_Result say_last_words(struct http *http,
                                      struct MHD_Connection *mhd)
{
    return MHD_queue_response(mhd, MHD_HTTP_SERVICE_UNAVAILABLE,
                              http->last_words);
}

/* Whoever is refused for want of room is told when there may be some. */
static void tell_when(struct http *http, struct job *job)
{
    char seconds[16];

    if (job->reply.status != MHD_HTTP_SERVICE_UNAVAILABLE)
        return;
    snprintf(seconds, sizeof seconds, "%d", queue_retry_s(&http->server->queue));
    job_set_header(job, "Retry-After", seconds);
}

static enum MHD_Result send_reply(struct http *http, struct job *job)
{
    bool closes = job->reply.closes ||
                  atomic_load_explicit(&http->server->draining,
                                       memory_order_relaxed);
    struct MHD_Response *response;
    enum MHD_Result sent;

    job->state = JOB_DONE;
    if (job->is_gone || !connection_enter(job->connection, CONNECTION_REPLY))
        return MHD_NO;
    tell_when(http, job);
    response = http_response_make(job, closes);
    if (response == NULL) {
        error_set(&job->error, ERR_OVERLOADED, "", "out of memory");
        job->reply.status = MHD_HTTP_SERVICE_UNAVAILABLE;
        return say_last_words(http, job->mhd);
    }
    sent = MHD_queue_response(job->mhd, (unsigned)job->reply.status, response);
    http_response_sent(job, response, closes);
    return sent;
}

/* Whether the rest of a refused body is not worth waiting for: it may never
 * end, or takes longer than the connection that the answer ends is worth. */
static bool is_urgent(const struct job *job)
{
    bool is_short = job->headers.length <= SHORT_BYTES &&
                    !job->headers.is_chunked;

    return job->error.code == ERR_TOO_LARGE || job->error.code == ERR_KEY ||
           (job->error.code == ERR_OVERLOADED && !is_short) ||
           job->headers.length > DISCARD_BYTES;
}

static void send_past_library(struct job *job)
{
    const struct refusal refusal = { &job->error, job->id,
                                     job->reply.header_name,
                                     job->reply.header_value };
    const union MHD_ConnectionInfo *info;
    struct buffer answer;

    if (!job->connection->is_tls) {
        refusal_send(job->connection->fd, &refusal);
        return;
    }
    info = MHD_get_connection_info(job->mhd,
                                   MHD_CONNECTION_INFO_GNUTLS_SESSION);
    buffer_init(&answer, REFUSAL_BYTES);
    refusal_write(&refusal, &answer);
    if (info != NULL && !answer.failed)
        tls_send_last(info->tls_session, answer.data, answer.len);
    buffer_free(&answer);
}

/* An answer that doesn't wait for the rest of the body, and that the library
 * would not take before it. Our side of the connection ends here. */
static void answer_early(struct http *http, struct job *job)
{
    tell_when(http, job);
    job->answered_early = true;
    if (!connection_enter(job->connection, CONNECTION_LEAVING))
        return;
    send_past_library(job);
    shutdown(job->connection->fd, SHUT_WR);
}

/* The headers are complete. A job that is refused may still have a body on the
 * way, and its client reads the answer only after the last byte of it. */
static enum MHD_Result begin(struct http *http, struct job *job,
                             const char *method, const char *version)
{
    struct server *server = http->server;
    struct headers *headers = &job->headers;

    job->state = JOB_READING;
    job->arrived_ns = clock_ns();
    job->deadline_ns = job->arrived_ns + server->config->request_deadline_ms *
                                             (int64_t)CLOCK_NS_PER_MS;
    MHD_get_connection_values(job->mhd, MHD_HEADER_KIND, add_header, headers);
    job->method_name = method;
    job->method = routes_method(method);
    job->is_old = strcmp(version, MHD_HTTP_VERSION_1_0) == 0;
    job_identify(job, headers->request_id);
    memcpy(job->connection->id, job->id, sizeof job->id);
    if (headers_announce_body(headers) &&
        !connection_enter(job->connection, CONNECTION_BODY))
        return MHD_NO;
    if (!headers_check(headers, method, version, job->target, &job->error)) {
        job_refuse(job);
        job->reply.closes = true;
        return send_reply(http, job); /* before the body: closes at once */
    }
    if (routes_admit(server, job) || !headers_announce_body(headers))
        return MHD_YES;
    if (headers->expects_continue) {
        job->reply.closes = true;
        return send_reply(http, job);
    }
    if (is_urgent(job))
        answer_early(http, job);
    return MHD_YES;
}

/* Enough was thrown away; a GET that goes on and on is refused only now. */
static enum MHD_Result refuse_more(struct http *http, struct job *job)
{
    error_set(&job->error, ERR_TOO_LARGE, "", "this request takes no body");
    if (job->reply.status == 0)
        job_refuse(job);
    answer_early(http, job);
    return MHD_YES;
}

/* Keeps the bytes, or throws them away when the job was refused. */
static enum MHD_Result take_body(struct http *http, struct job *job,
                                 const void *data, size_t len)
{
    struct server *server = http->server;
    bool refused = job->reply.status != 0;
    bool wanted = job_wants_body(job) && !refused;

    job->received_bytes += (int64_t)len;
    if (job->answered_early)
        return job->received_bytes > LEAVING_BYTES ? MHD_NO : MHD_YES;
    if (!wanted && job->received_bytes > DISCARD_BYTES)
        return refuse_more(http, job);
    if (wanted && !job_take_body(job, data, len, &server->budget,
                                 routes_max_body(server, job))) {
        metrics_count_rejected(job->error.code == ERR_TOO_LARGE
                                   ? REASON_too_large
                                   : REASON_memory);
        job_drop_body(job, &server->budget);
        job_refuse(job);
        answer_early(http, job);
    }
    return MHD_YES;
}

/* The library, resuming a connection, goes on with what it was about to do when
 * it was suspended. If that was to read, and the client has ended its side and
 * waits, it takes the end for a hang-up and drops the answer. Called for the end
 * of a body and given nothing, it is about to call again, and no longer to read.
 *
 * Suspended before the push: a worker may resume it before the push returns.
 * After a push the job is not ours to look at. */
static enum MHD_Result submit(struct http *http, struct job *job)
{
    struct server *server = http->server;
    struct MHD_Connection *mhd = job->mhd;

    if (!job->is_whole) {
        job->is_whole = true;
        return connection_enter(job->connection, CONNECTION_BUSY) ? MHD_YES
                                                                  : MHD_NO;
    }
    job->queued_ns = clock_ns();
    MHD_suspend_connection(mhd);
    if (queue_push(&server->queue, job))
        return MHD_YES;
    routes_refuse_full(job);
    job->state = JOB_DONE;
    MHD_resume_connection(mhd);
    return MHD_YES;
}

/* The request is complete. */
static enum MHD_Result finish_body(struct http *http, struct job *job)
{
    if (job->answered_early)
        return MHD_NO;
    if (job->reply.status != 0)
        return send_reply(http, job);
    if (job_wants_body(job))
        return submit(http, job);
    if (job->method == METHOD_OPTIONS)
        answers_options(http->server, job);
    else
        routes[job->route].answer(http->server, job);
    body_pack_reply(job);
    return send_reply(http, job);
}

/* Called with the headers, with each part of the body, at the end of it, and
 * once more after a resume. */
static enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd,
                                  const char *url, const char *method,
                                  const char *version, const char *upload,
                                  size_t *upload_len, void **context)
{
    struct http *http = cls;
    struct job *job = *context;
    size_t len = *upload_len;

    (void)url;
    if (job == NULL) {
        report_unparsed(connection_of(mhd), MHD_HTTP_SERVICE_UNAVAILABLE);
        return say_last_words(http, mhd);
    }
    if (job->state == JOB_OPENED)
        return begin(http, job, method, version);
    if (job->state == JOB_DONE)
        return send_reply(http, job);
    if (len == 0)
        return finish_body(http, job);
    *upload_len = 0;
    return take_body(http, job, upload, len);
}

static void observe(const struct job *job, int64_t total_ns)
{
    metrics_observe(METRIC_request_seconds, total_ns);
    if (job->queued_ns == 0)
        return;
    metrics_observe(METRIC_queue_seconds, job->queue_ns);
    if (job->encode_ns == 0)
        return;
    metrics_observe(METRIC_decode_seconds, job->decode_ns);
    metrics_observe(METRIC_compute_seconds, job->compute_ns);
    metrics_observe(METRIC_encode_seconds, job->encode_ns);
}

/* One line and one tick, whatever became of the request. */
static void report(struct http *http, struct job *job, bool complete)
{
    int64_t total_ns = job->arrived_ns == 0 ? 0 : clock_ns() - job->arrived_ns;
    bool told = connections_told(&http->server->connections, job->connection,
                                 job->id);
    bool answered = complete || told || job->answered_early;
    struct log_request line = {
        .id = job->id, .method = job->method_name, .path = job->target,
        .peer = job->connection->peer,
        .key = job->client == NULL ? NULL : job->client->name,
        .code = told                           ? error_name(ERR_TIMEOUT)
                : job->error.code != ERR_NONE ? error_name(job->error.code)
                                               : NULL,
        .status = told ? MHD_HTTP_REQUEST_TIMEOUT
                       : answered ? job->reply.status : 0,
        .aborted = !answered,
        .received_bytes = job->received_bytes,
        .sent_bytes = complete && job->method != METHOD_HEAD
                          ? (int64_t)job->reply.len : 0,
        .queue_ns = job->queue_ns, .decode_ns = job->decode_ns,
        .compute_ns = job->compute_ns, .encode_ns = job->encode_ns,
        .total_ns = total_ns,
    };

    log_request(&line);
    metrics_count_request(job->route, line.status);
    metrics_add(METRIC_aborted_total, line.aborted);
    metrics_add(METRIC_received_bytes_total, line.received_bytes);
    metrics_add(METRIC_sent_bytes_total, line.sent_bytes);
    if (answered)
        observe(job, total_ns);
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **context,
                         enum MHD_RequestTerminationCode code)
{
    struct http *http = cls;
    struct job *job = *context;
    struct connection *connection;
    bool complete = code == MHD_REQUEST_TERMINATED_COMPLETED_OK;

    *context = NULL;
    if (job == NULL)
        return;
    /* What the library answered by itself before it called us was told to
     * on_library_message() already. */
    if (job->state != JOB_OPENED ||
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_HTTP_STATUS) == NULL)
        report(http, job, complete);
    connection = job->connection;
    connection_enter(connection, CONNECTION_IDLE);
    connection->spare = job_end(job, &http->server->budget);
}

/* The library tells of answers it gives by itself (400 for a line that is no
 * header, 431, 505) only here, in words. The rest of what it says is about
 * clients that went away. */
static void on_library_message(void *cls, const char *format, va_list args)
{
    static const char answers[] =
        "Error processing request (HTTP response code is %u";
    char text[512];

    (void)cls;
    if (strncmp(format, answers, sizeof answers - 1) == 0) {
        va_list again;

        va_copy(again, args);
        report_unparsed(NULL, (int)va_arg(again, unsigned));
        va_end(again);
        return;
    }
    vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = '\0';
    log_event(CONFIG_LEVEL_DEBUG, "http", NULL, NULL, "%s", text);
}

/* Of the admin's door one thread and few connections will do. */
enum { ADMIN_CONNECTIONS = 64 };

/* With epoll, 0.9.75 takes a socket that was once readable for one that is so to
 * the end of its handshake: a client that stops in the middle of one keeps the
 * thread at 100 % of a CPU. With poll it asks the kernel. */
static unsigned loop_of(const struct door *door)
{
    return door->is_tls ? (unsigned)MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_TLS
                        : (unsigned)MHD_USE_EPOLL_INTERNAL_THREAD;
}

static bool open_door(struct door *door, int listener)
{
    struct http *http = door->http;
    const struct config *config = http->server->config;
    unsigned threads = door->is_admin ? 1 : (unsigned)config->io_threads;
    int64_t connections = door->is_admin ? ADMIN_CONNECTIONS
                                         : http->server->max_connections;
    struct MHD_OptionItem more[] = {
        { MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)TLS_PRIORITIES },
        { MHD_OPTION_HTTPS_CERT_CALLBACK2, 0, (void *)(uintptr_t)tls_choose },
        { MHD_OPTION_THREAD_POOL_SIZE, threads, NULL },
        { MHD_OPTION_END, 0, NULL },
    };

    if (threads == 1) /* a pool of one would be one too many */
        more[2] = more[3];
    door->daemon = MHD_start_daemon(
        loop_of(door) | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC |
            MHD_USE_ERROR_LOG,
        0, NULL, NULL, on_request, http,
        MHD_OPTION_EXTERNAL_LOGGER, on_library_message, http,
        MHD_OPTION_LISTEN_SOCKET, listener,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)connections,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
        MHD_OPTION_CONNECTION_TIMEOUT, 0u,
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, door,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, http,
        MHD_OPTION_URI_LOG_CALLBACK, on_request_line, http,
        MHD_OPTION_ARRAY, door->is_tls ? more : more + 2, MHD_OPTION_END);
    return door->daemon != NULL;
}

struct http *http_start(struct server *server, const struct listeners *on,
                        struct error *err)
{
    struct http *http = calloc(1, sizeof *http);

    if (http != NULL) {
        http->server = server;
        http->main = (struct door){ .http = http, .is_tls = on->in_tls };
        http->admin = (struct door){ .http = http, .is_admin = true };
        http->last_words = http_response_last_words();
        if (http->last_words != NULL && open_door(&http->main, on->main) &&
            (on->admin < 0 || open_door(&http->admin, on->admin)))
            return http;
        http_stop(http);
    }
    error_set(err, ERR_OVERLOADED, "", "HTTP does not start: out of memory, "
                                       "threads or open files");
    return NULL;
}

void http_resume(struct job *job)
{
    struct MHD_Connection *mhd = job->mhd;

    job->state = JOB_DONE;
    MHD_resume_connection(mhd);
}

void http_add(struct http *http, int fd, const struct sockaddr *address,
              socklen_t len)
{
    MHD_add_connection(http->main.daemon, fd, address, len);
}

static void take_over(struct http *http, int listener)
{
    for (;;) {
        struct sockaddr_storage address;
        socklen_t len = sizeof address;
        int fd = accept4(listener, (struct sockaddr *)&address, &len,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0 && errno != EINTR && errno != ECONNABORTED)
            return;
        if (fd >= 0)
            http_add(http, fd, (struct sockaddr *)&address, len);
    }
}

void http_quiesce(struct http *http)
{
    int listener = MHD_quiesce_daemon(http->main.daemon);

    take_over(http, listener);
    close(listener);
}

void http_stop(struct http *http)
{
    if (http->admin.daemon != NULL)
        MHD_stop_daemon(http->admin.daemon);
    if (http->main.daemon != NULL)
        MHD_stop_daemon(http->main.daemon);
    if (http->last_words != NULL)
        MHD_destroy_response(http->last_words);
    free(http);
}
