#include "api/base64.h"
#include "api/number_array.h"
#include "config/config.h"
#include "config/cpus.h"
#include "config/memory.h"
#include "core/cpu.h"
#include "core/kernels/kernels.h"
#include "core/pages.h"
#include "server/auth.h"
#include "server/clock.h"
#include "server/http.h"
#include "server/listener.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/models.h"
#include "server/server.h"
#include "server/systemd.h"
#include "server/tls.h"
#include "server/watchdog.h"
#include "server/workers.h"

#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Starts and stops, in order. Everything else is elsewhere. */

enum {
    EXIT_BAD_OPTIONS = 2,
    /* The library's 40 KiB, and what we note: most of it, while a request is read,
     * a copy of its target. */
    CONNECTION_BYTES = 80 * 1024,
    TLS_BYTES = 16 * 1024, /* more, for a session */
    TICK_MS = 50,      /* between two looks at who is late */
    TRIM_MS = 10000,   /* ... and at what nobody needs */
    LAST_CALL_MS = 500 /* before the grace ends, what still waits is refused */
};

static int complain(int status, const char *text)
{
    fprintf(stderr, "attnd: %s\n", text);
    return status;
}

/* A descriptor 0 to 2 that is closed would be the next socket's, and a log line
 * then some client's answer. */
static void open_standard_files(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* OpenBLAS starts a thread for each CPU when it is loaded, before main; only the
 * environment can tell it not to. So that is set, and the program started once
 * more, under its own name. Where that fails the threads exist and sleep. */
static void restart_without_blas_threads(char **argv)
{
    static const char name[] = "OPENBLAS_NUM_THREADS";
    const char *given = getenv(name);
    char path[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);

    if (len <= 0 || (given != NULL && strcmp(given, "1") == 0) ||
        setenv(name, "1", 1) != 0)
        return;
    path[len] = '\0';
    execv(path, argv);
}

/* Before the constructors of libraries, of which BLAS's takes longest. Until the
 * loader has come to this, a signal has its default effect: the process ends,
 * having accepted nothing. A plain call, for a sanitizer is not there yet. */
static void block_before_libraries(void)
{
    const uint64_t set = 1ULL << (SIGTERM - 1) | 1ULL << (SIGINT - 1) |
                         1ULL << (SIGHUP - 1);

    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, NULL, sizeof set);
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(
    void) = block_before_libraries;

/* Threads inherit the mask: signals come to main alone, when it asks. */
static sigset_t block_signals(void)
{
    sigset_t set;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    return set;
}

static void raise_file_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Bodies and answers of a few megabytes come and go: kept on the heap, their
 * pages need not be fetched anew from the kernel each time. One heap for all
 * threads: what one frees another can use, and trim_heap() reaches all of it. */
static void keep_freed_pages(void)
{
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, PAGES_MAPPED_BYTES);
    mallopt(M_TRIM_THRESHOLD, 64 * 1024 * 1024);
}

static int64_t or_else(int64_t given, int64_t otherwise)
{
    return given > 0 ? given : otherwise;
}

/* The memory that nobody has set is half of what there is for requests, and at
 * most a quarter for connections. */
static int64_t count_connections(const struct config *config)
{
    bool in_tls = config->tls_certificate_file[0] != '\0';
    int64_t each = CONNECTION_BYTES + (in_tls ? TLS_BYTES : 0);
    int64_t most = memory_allowed() / 4 / each;

    return config->memory_bytes > 0 || config->max_connections < most
               ? config->max_connections
               : or_else(most, 1);
}

static void fill(struct server *server, const struct config *config,
                 const struct kernels *kernels)
{
    server->config = config;
    server->kernels = kernels;
    server->worker_count = or_else(config->workers, cpus_allowed());
    server->max_connections = count_connections(config);
    server->limits = (struct limits){
        .response_bytes = config->max_response_bytes,
        .request_flops = (double)config->max_request_flops,
    };
    budget_init(&server->budget,
                or_else(config->memory_bytes, memory_allowed() / 2));
    metrics_describe(ATTND_VERSION, kernels->name);
    metrics_set(METRIC_workers, server->worker_count);
    metrics_set(METRIC_queue_capacity_jobs, config->queue_length);
    metrics_set(METRIC_memory_limit_bytes, server->budget.limit_bytes);
}

static bool wants_tls(const struct config *config)
{
    return config->tls_certificate_file[0] != '\0' ||
           config->tls_key_file[0] != '\0';
}

/* Keys and certificate, from their files. */
static bool read_secrets(struct server *server, struct error *err)
{
    const struct config *config = server->config;

    if (wants_tls(config) &&
        !tls_load(config->tls_certificate_file, config->tls_key_file, err))
        return false;
    if (config->model_upload && config->api_keys_file[0] == '\0')
        return error_set(err, ERR_RANGE, "",
                         "--model-upload: needs --api-keys-file");
    if (config->api_keys_file[0] == '\0')
        return true;
    server->auth = auth_new(config->api_keys_file, config->key_concurrency,
                            err);
    return server->auth != NULL;
}

static void report_reload(const char *what, bool good, const struct error *err)
{
    if (good) {
        log_event(CONFIG_LEVEL_INFO, "reloaded", "what", what,
                  "%s: read again", what);
        return;
    }
    metrics_add(METRIC_reload_failures_total, 1);
    log_event(CONFIG_LEVEL_ERROR, "not reloaded", "what", what,
              "%s: those of before stay: %s", what, err->text);
}

static void reload(struct server *server)
{
    struct error keys = { 0 }, certificate = { 0 };

    models_reload(server->models);
    if (server->auth != NULL)
        report_reload("keys", auth_reload(server->auth, &keys), &keys);
    if (wants_tls(server->config))
        report_reload("certificate", tls_reload(&certificate), &certificate);
}

/* What can fail, in the order in which it is needed. */
static bool start(struct server *server, const struct listeners *on,
                  struct error *err)
{
    const struct connection_limits limits = {
        .header_ms = server->config->header_timeout_ms,
        .body_ms = server->config->body_timeout_ms,
        .idle_ms = server->config->idle_timeout_ms,
        .count = server->max_connections,
    };

    if (!read_secrets(server, err))
        return false;
    const struct queue_limits line = {
        .jobs = server->config->queue_length,
        .wait_ns = server->config->queue_wait_ms * CLOCK_NS_PER_MS,
        .workers = server->worker_count,
    };

    server->models = models_start(server->config->models, server->kernels,
                                  server->config->model_memory_bytes, err);
    if (server->models == NULL)
        return false;
    if (!connections_init(&server->connections, limits))
        return error_set(err, ERR_OVERLOADED, "",
                         "connections: out of memory or open files");
    if (!queue_init(&server->queue, line))
        return error_set(err, ERR_OVERLOADED, "", "queue: out of memory");
    server->http = http_start(server, on, err);
    if (server->http == NULL)
        return false;
    server->workers = workers_start(server, err);
    return server->workers != NULL;
}

static void announce(struct server *server, int admin)
{
    char address[80];

    if (admin >= 0)
        log_event(CONFIG_LEVEL_INFO, "admin", "listen",
                  listener_name(admin, address, sizeof address),
                  "metrics and health are at %s", address);
    atomic_store(&server->ready, true);
    systemd_tell("READY=1");
    log_event(CONFIG_LEVEL_INFO, "ready", "listen", server->address,
              "listening on %s, %lld workers, %s kernels", server->address,
              (long long)server->worker_count, server->kernels->name);
}

/* A worker that is stuck ends the process: a supervisor starts another, and one
 * that hears no word of us any more does the same. */
static void watch(struct server *server)
{
    int64_t now = clock_ns(), limit_ms = server->config->watchdog_ms;
    pthread_t stuck;

    if (limit_ms > 0 &&
        workers_stuck(server->workers, now - limit_ms * CLOCK_NS_PER_MS,
                      &stuck)) {
        log_event(CONFIG_LEVEL_ERROR, "stuck", NULL, NULL,
                  "a worker has done nothing for %lld ms: the process ends",
                  (long long)limit_ms);
        log_stop();
        watchdog_end(stuck);
    }
    systemd_beat(now);
}

/* What is free goes back to the kernel, holes and all: else the heap stays as
 * large as its worst moment, and grows a little with each that is worse. What is
 * wanted again is fetched in a few milliseconds. */
static void trim_heap(void)
{
    static int64_t trimmed_ns;
    int64_t now = clock_ns();

    if (now - trimmed_ns < TRIM_MS * (int64_t)CLOCK_NS_PER_MS)
        return;
    trimmed_ns = now;
    malloc_trim(0);
}

/* What is late is late whether or not anything happens. True when a signal to
 * end came within a tick. */
static bool tick(struct server *server, const sigset_t *signals)
{
    const struct timespec wait = { .tv_nsec = TICK_MS * CLOCK_NS_PER_MS };
    int signal = sigtimedwait(signals, NULL, &wait);

    if (signal == SIGHUP)
        reload(server);
    watch(server);
    connections_sweep(&server->connections, atomic_load(&server->draining));
    workers_drop_late(server, clock_ns());
    trim_heap();
    return signal > 0 && signal != SIGHUP;
}

/* A second signal ends the process now. */
static void tick_impatiently(struct server *server, const sigset_t *signals)
{
    if (tick(server, signals))
        _exit(EXIT_FAILURE);
}

/* Requests that have begun are computed; those that begin now are refused, and
 * connections with nothing to say are closed. Shortly before the end, whatever
 * still waits for a worker is refused too, so that everybody has an answer. */
static bool drain(struct server *server, const sigset_t *signals)
{
    const struct config *config = server->config;
    int64_t now = clock_ns();
    int64_t quiesce_ns = now + config->drain_delay_ms * CLOCK_NS_PER_MS;
    int64_t end_ns = quiesce_ns + config->drain_grace_ms * CLOCK_NS_PER_MS;

    log_event(CONFIG_LEVEL_INFO, "draining", NULL, NULL, "draining");
    systemd_tell("STOPPING=1");
    atomic_store(&server->stopping, true);
    atomic_store(&server->ready, false);
    while (clock_ns() < quiesce_ns)
        tick_impatiently(server, signals);
    atomic_store(&server->draining, true);
    http_quiesce(server->http);
    while (connections_count(&server->connections) > 0 && clock_ns() < end_ns) {
        tick_impatiently(server, signals);
        if (clock_ns() > end_ns - LAST_CALL_MS * CLOCK_NS_PER_MS)
            workers_drop_late(server, INT64_MAX);
    }
    return connections_count(&server->connections) == 0;
}

/* A job that outlasts the grace can't be taken from its worker, and the library
 * must not be stopped under it. */
static void stop(struct server *server, const sigset_t *signals)
{
    bool complete = drain(server, signals);

    queue_close(&server->queue);
    workers_drop_late(server, INT64_MAX);
    connections_cut_all(&server->connections);
    if (!complete)
        tick_impatiently(server, signals);
    if (connections_busy(&server->connections)) {
        log_event(CONFIG_LEVEL_WARN, "cut off", NULL, NULL,
                  "stopped with requests still being computed");
        log_stop();
        _exit(EXIT_FAILURE);
    }
    workers_stop(server->workers);
    http_stop(server->http);
    models_stop(server->models);
    auth_free(server->auth);
    tls_free();
    queue_free(&server->queue);
    connections_free(&server->connections);
}

/* One ceiling for all that is chosen by the processor. */
static bool select_level(const char *ceiling, struct kernels *kernels)
{
    uint32_t features = cpu_features();

    return kernels_select(features, ceiling, kernels) &&
           number_select(features, ceiling) &&
           base64_select(number_selected());
}

static bool open_listeners(const struct config *config, struct listeners *on,
                           struct error *err)
{
    bool has_admin = config->admin_listen[0] != '\0';
    int given[SYSTEMD_LISTENERS] = { -1, -1 };

    on->in_tls = wants_tls(config);
    if (systemd_listeners(given, err) < 0)
        return false;
    on->main = given[0];
    on->admin = given[1];
    if (on->main < 0)
        on->main = listener_open("listen", config->listen, err);
    if (on->main >= 0 && on->admin < 0 && has_admin)
        on->admin = listener_open("admin_listen", config->admin_listen, err);
    return on->main >= 0 && (on->admin >= 0 || !has_admin);
}

static int serve(const struct config *config, const struct kernels *kernels,
                 const sigset_t *signals)
{
    static struct server server; /* threads outlive a failed start */
    struct error err = { 0 };
    bool ended = false;
    struct listeners on;

    if (!open_listeners(config, &on, &err))
        return complain(EXIT_FAILURE, err.text);
    listener_name(on.main, server.address, sizeof server.address);
    raise_file_limit();
    keep_freed_pages();
    watchdog_init();
    fill(&server, config, kernels);
    if (!log_start(config->log_level, config->log_format, STDERR_FILENO))
        return complain(EXIT_FAILURE, "log: out of memory or threads");
    if (!start(&server, &on, &err)) {
        log_stop();
        return complain(EXIT_FAILURE, err.text);
    }
    while (!ended && !models_loaded(server.models))
        ended = tick(&server, signals);
    if (!ended)
        announce(&server, on.admin);
    while (!ended)
        ended = tick(&server, signals);
    stop(&server, signals);
    log_event(CONFIG_LEVEL_INFO, "stopped", NULL, NULL, "stopped");
    /* From here a second signal is the default one, and nothing can hang. */
    pthread_sigmask(SIG_UNBLOCK, signals, NULL);
    log_stop();
    return EXIT_SUCCESS;
}

/* What a start would refuse for what stands in files. */
static int check(const struct config *config)
{
    struct server server = { .config = config };
    struct error err = { 0 };
    bool good = read_secrets(&server, &err);

    auth_free(server.auth);
    tls_free();
    return good ? EXIT_SUCCESS : complain(EXIT_BAD_OPTIONS, err.text);
}

static int ask(const struct config *config)
{
    struct error err = { 0 };
    bool has_admin = config->admin_listen[0] != '\0';
    bool good = has_admin
                    ? listener_ask("admin_listen", config->admin_listen, false,
                                   &err)
                    : listener_ask("listen", config->listen, wants_tls(config),
                                   &err);

    return good ? EXIT_SUCCESS : complain(EXIT_FAILURE, err.text);
}

static int printed(bool good)
{
    return good && fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    static struct config config;
    static struct kernels kernels;
    enum config_action action = CONFIG_RUN;
    struct error err = { 0 };

    /* First, and kept over the restart: a signal that comes while we start is
     * one to stop, in order. */
    sigset_t signals = block_signals();

    open_standard_files();
    if (!config_load(&config, &action, argc, argv, environ, &err))
        return complain(EXIT_BAD_OPTIONS, err.text);
    if (action == CONFIG_HELP)
        return printed(config_help(stdout));
    if (action == CONFIG_VERSION)
        return printed(printf("attnd %s\n", ATTND_VERSION) > 0);
    if (action == CONFIG_PRINT)
        return printed(config_print(&config, stdout));
    if (action == CONFIG_HEALTHCHECK)
        return ask(&config);
    if (!select_level(config.kernels[0] == '\0' ? NULL : config.kernels,
                      &kernels))
        return complain(EXIT_BAD_OPTIONS,
                        "--kernels: not portable, avx2, avx512 or amx");
    if (action == CONFIG_CHECK)
        return check(&config);
    restart_without_blas_threads(argv);
    kernels_single_threaded();
    return serve(&config, &kernels, &signals);
}
