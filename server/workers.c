#include "server/workers.h"

#include "api/decode.h"
#include "core/kernels/kernels.h"
#include "server/answers.h"
#include "server/body.h"
#include "server/clock.h"
#include "server/connections.h"
#include "server/http.h"
#include "server/job.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/model_counts.h"
#include "server/models.h"
#include "server/slice.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

enum {
    /* What a worker keeps for its next job, of tensors and of scratch: a fresh
     * 4 KiB page costs a microsecond, which is 1 ms for 4 MB. */
    KEPT_BYTES = 32 * 1024 * 1024,
    /* Blocks and alignment on top of what a plan adds up to. */
    SLACK_BYTES = 1024 * 1024,
    /* A client that looks gone is asked only after a wait that a client may
     * have found too long. */
    PROBE_AFTER_NS = 50 * CLOCK_NS_PER_MS,
    LOOK_NS = 200 * CLOCK_NS_PER_MS /* and between two pieces so often */
};

/* Below this, waking another thread takes about as long as it saves: 50 us of it
 * against 0.15 ms at 200 GFLOP/s. */
#define HELP_FLOPS 3e7

/* From here on a job is big in the queue's sense, whatever its length said: it
 * takes about 10 ms at the 30 GFLOP/s of short heads. */
#define BIG_FLOPS 3e8

struct worker {
    struct workers *all;
    pthread_t thread;
    struct arena arena;   /* of the job at hand */
    struct arena scratch; /* of the piece at hand, its own or another's */
    /* When the last step was done, or the job taken; 0 without one. Relaxed: a
     * look that comes a step late finds a worker that is well. */
    _Atomic int64_t step_ns;
    int64_t helped_ns; /* what others spent on the job at hand */
    struct job *watched; /* that job, while its client may leave it; or NULL */
    int64_t looked_ns;
};

struct workers {
    struct server *server;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    enum { GATE_SHUT, GATE_OPEN, GATE_GIVEN_UP } gate;
    int64_t warm;
    int64_t count;
    struct worker each[];
};

/* Core's hook for help, while one worker runs one job. */
struct team {
    struct parallel parallel;
    struct worker *worker;
    size_t scratch_bytes;
    bool alone;
};

static int64_t add(int64_t a, int64_t b)
{
    int64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static int64_t times(int64_t a, int64_t b)
{
    int64_t product;

    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/* Room for `bytes` more than the arena has, which was paid for. */
static void allow(struct arena *arena, int64_t bytes)
{
    arena->cap_bytes = (size_t)add((int64_t)arena->held_bytes, bytes);
}

static void note_step(struct worker *worker, int64_t now_ns)
{
    atomic_store_explicit(&worker->step_ns, now_ns, memory_order_relaxed);
}

static bool is_awaited(struct worker *worker, int64_t now_ns)
{
    struct job *job = worker->watched;

    if (job == NULL || now_ns - worker->looked_ns < LOOK_NS)
        return true;
    worker->looked_ns = now_ns;
    job->is_gone = connection_has_left(job->connection, !job->is_old);
    return !job->is_gone;
}

/* Takes pieces until none is left that nobody has begun, or wants. The counter
 * hands each number out once and orders nothing: what pieces write is seen by
 * the caller through the queue's mutex, which every helper takes when it
 * leaves. */
static void run_pieces(struct worker *worker, struct call *call,
                       struct queue *leaves_for)
{
    int64_t i, now;

    allow(&worker->scratch, (int64_t)call->scratch_bytes);
    while (!atomic_load_explicit(&call->failed, memory_order_relaxed) &&
           (leaves_for == NULL || !queue_has_small(leaves_for)) &&
           (i = atomic_fetch_add_explicit(&call->next, 1,
                                          memory_order_relaxed)) <
               call->pieces) {
        struct arena_mark mark = arena_mark(&worker->scratch);

        if (!call->piece(call->arg, i, &worker->scratch))
            atomic_store_explicit(&call->failed, true, memory_order_relaxed);
        arena_release(&worker->scratch, mark);
        now = clock_ns();
        note_step(worker, now);
        if (!is_awaited(worker, now))
            atomic_store_explicit(&call->failed, true, memory_order_relaxed);
    }
    arena_reset(&worker->scratch, KEPT_BYTES);
}

/* A helper leaves between two pieces when a small job waits. */
static void help(struct worker *worker, struct call *call)
{
    struct queue *queue = &worker->all->server->queue;
    int64_t since = clock_ns();

    slice_leave(call->cpu);
    run_pieces(worker, call, queue);
    atomic_fetch_add_explicit(&call->helped_ns, clock_ns() - since,
                              memory_order_relaxed);
    queue_leave(queue, call);
}

static bool run_together(struct parallel *self, int64_t pieces,
                         parallel_piece *piece, void *arg)
{
    struct team *team = (struct team *)self;
    struct queue *queue = &team->worker->all->server->queue;
    struct call call = { .piece = piece,
                         .arg = arg,
                         .pieces = pieces,
                         .cpu = sched_getcpu(),
                         .scratch_bytes = team->scratch_bytes };
    bool shared = pieces > 1 && !team->alone && queue_has_idle(queue);

    if (shared)
        queue_call(queue, &call);
    run_pieces(team->worker, &call, NULL);
    if (shared)
        queue_uncall(queue, &call);
    team->worker->helped_ns += atomic_load_explicit(&call.helped_ns,
                                                    memory_order_relaxed);
    return !atomic_load_explicit(&call.failed, memory_order_relaxed);
}

static struct team team_of(struct worker *worker, int64_t scratch_bytes,
                           bool alone)
{
    return (struct team){ { run_together }, worker, (size_t)scratch_bytes,
                          alone };
}

static double total_flops(const struct mha_plan *plan)
{
    double sum = 0;

    for (int i = 0; i < MHA_STEPS; i++)
        sum += plan->flops[i];
    return sum;
}

static void refuse_for_memory(struct job *job, int64_t given)
{
    job->error = (struct error){ 0 };
    error_set(&job->error, ERR_TOO_LARGE, "",
              "decoding the body takes more than %lld bytes of memory",
              (long long)given);
}

/* Most bodies take far less than the most they could, so a body that could take
 * all of the budget gets half of it, and is too large only if that is used up.
 * *model is the request's, to be released after its last step. */
static bool decode(struct worker *worker, struct job *job,
                   struct request *request, struct model **model,
                   struct mha_plan *plan)
{
    struct server *server = worker->all->server;
    struct team team = team_of(worker, 0, false);
    struct error flaw;
    int64_t half = server->budget.limit_bytes / 2;
    int64_t most, need, held;
    struct bytes body;

    if (!body_unpack(job, &server->budget, server->config->max_body_bytes))
        return false;
    body = (struct bytes){ job->body, job->body_len };
    most = add(job->format->need(body, job->query), SLACK_BYTES);
    need = most < half ? most : half;
    held = (int64_t)job->body_size + (int64_t)worker->arena.held_bytes;
    if (!job_reserve(job, &server->budget, add(held, need)))
        return false;
    allow(&worker->arena, need);
    if (!decode_request(job->format, body, job->query, &team.parallel,
                        &worker->arena, request, &job->error)) {
        if (need < most && arena_failed(&worker->arena))
            refuse_for_memory(job, need);
        return false;
    }
    if (request->mha.has_model)
        *model = models_attach(server->models, request, &flaw);
    return decode_plan(request, job->reply_format, &server->limits, plan,
                       &job->error);
}

/* What decoding took is known now, and the rest from the shapes. */
static bool reserve(struct worker *worker, struct job *job,
                    const struct request *request, const struct mha_plan *plan)
{
    struct server *server = worker->all->server;
    int64_t placed = job->reply_format->place == NULL ? 0 : plan->result_bytes;
    int64_t results = add(plan->arena_bytes - placed, SLACK_BYTES);
    int64_t scratch = times(add(plan->scratch_bytes, SLACK_BYTES),
                            server->worker_count);
    int64_t held = (int64_t)job->body_size + (int64_t)worker->arena.held_bytes;
    int64_t reply = job->reply_format->bound(request, plan);
    /* Packed, it is no longer, and it is beside the other for a while. */
    int64_t packed =
        coding_accept(job->headers.accept_encoding) == CODING_IDENTITY ? 0
                                                                       : reply;

    allow(&worker->arena, results);
    return job_reserve(job, &server->budget,
                       add(add(held, results),
                           add(scratch, add(reply, packed))));
}

/* Where the reply has the results as they are, they are computed in it. */
static bool place(struct job *job, const struct request *request,
                  const struct mha_plan *plan, struct mha_response *result,
                  struct buffer *reply)
{
    if (job->reply_format->place == NULL)
        return true;
    mha_shape(plan, result);
    job->reply_format->place(request, result, reply);
    return !reply->failed ||
           error_set(&job->error, ERR_OVERLOADED, "", "out of memory");
}

static bool run(struct worker *worker, struct job *job,
                const struct mha_plan *plan, struct mha_response *result)
{
    struct server *server = worker->all->server;
    double flops = total_flops(plan);
    struct team team = team_of(worker, add(plan->scratch_bytes, SLACK_BYTES),
                               flops < HELP_FLOPS);
    bool good;

    worker->watched = job;
    worker->looked_ns = clock_ns();
    good = mha_run(plan, server->kernels, &team.parallel, &worker->arena,
                   result, &job->error);
    worker->watched = NULL;
    if (job->is_gone)
        job->error = (struct error){ 0 };
    if (!good)
        return false;
    metrics_add(METRIC_flops_total, (int64_t)flops);
    return true;
}

static void encode(struct worker *worker, struct job *job,
                   const struct request *request, const struct mha_plan *plan,
                   const struct mha_response *result, struct buffer *reply)
{
    struct server *server = worker->all->server;
    struct team team = team_of(worker, 0, false);
    struct response response = { .mha = result,
                                 .kernels = server->kernels->name,
                                 .decode_ns = job->decode_ns,
                                 .parallel = queue_has_idle(&server->queue)
                                                 ? &team.parallel
                                                 : NULL };

    job->reply_format->encode(request, plan, &response, reply);
    if (reply->over_cap)
        error_set(&job->error, ERR_TOO_LARGE, "",
                  "the answer is over the limit of %lld bytes",
                  (long long)server->limits.response_bytes);
    else if (reply->failed)
        error_set(&job->error, ERR_OVERLOADED, "", "out of memory");
    else
        job_answer(job, job->reply_format->media_type, reply);
    body_pack_reply(job);
}

/* The time since *since, which moves to now: a step is done. */
static int64_t lap(struct worker *worker, int64_t *since)
{
    int64_t now = clock_ns(), time = now - *since;

    note_step(worker, now);
    *since = now;
    return time;
}

/* Decoding, the first to know, finds a big job that there is no worker for. */
static bool must_wait(struct worker *worker, struct job *job,
                      const struct mha_plan *plan)
{
    return !job->is_big && total_flops(plan) >= BIG_FLOPS &&
           !queue_promote(&worker->all->server->queue, job);
}

/* False when the job must be put back in line. */
static bool compute_with(struct worker *worker, struct job *job,
                         struct model **model)
{
    struct request request = { 0 };
    struct mha_plan plan = { 0 };
    struct mha_response result = { 0 };
    struct buffer reply;
    int64_t since = clock_ns();
    bool good = decode(worker, job, &request, model, &plan);

    if (good && must_wait(worker, job, &plan))
        return false;
    good = good && reserve(worker, job, &request, &plan);
    job->decode_ns = lap(worker, &since);
    if (!good)
        return true;
    log_event(CONFIG_LEVEL_DEBUG, "computing", "id", job->id,
              "%s: N %lld, L %lld, S %lld, E %lld, H %lld, D %lld; %.3g FLOPs; "
              "%lld bytes reserved",
              job->id, (long long)plan.N, (long long)plan.L, (long long)plan.S,
              (long long)plan.E, (long long)plan.H, (long long)plan.D,
              total_flops(&plan), (long long)job->reserved_bytes);
    buffer_init(&reply, (size_t)worker->all->server->limits.response_bytes);
    good = place(job, &request, &plan, &result, &reply) &&
           run(worker, job, &plan, &result);
    job->compute_ns = lap(worker, &since);
    if (good && *model != NULL)
        model_counts_add((*model)->layer[request.layer].count_row,
                         plan.N * plan.L, total_flops(&plan));
    if (good) {
        encode(worker, job, &request, &plan, &result, &reply);
        job->encode_ns = lap(worker, &since);
    }
    buffer_free(&reply);
    return true;
}

static void upload(struct worker *worker, struct job *job)
{
    struct server *server = worker->all->server;
    int64_t since = clock_ns();

    if (job_reserve(job, &server->budget,
                    add(job->reserved_bytes, ANSWERS_BYTES)))
        answers_upload(server, job);
    job->decode_ns = lap(worker, &since);
}

static bool compute(struct worker *worker, struct job *job)
{
    struct model *model = NULL;
    bool done;

    if (job->route == ROUTE_MODEL) {
        upload(worker, job);
        return true;
    }
    queue_begin_calls(&worker->all->server->queue);
    done = compute_with(worker, job, &model);
    queue_end_calls(&worker->all->server->queue);
    model_release(model);
    return done;
}

static void refuse_late(struct job *job, bool draining)
{
    if (draining)
        error_set(&job->error, ERR_DRAINING, "", "the service is going away");
    else
        error_set(&job->error, ERR_OVERLOADED, "",
                  "the request's deadline passed before a worker was free");
    metrics_count_rejected(draining ? REASON_draining : REASON_deadline);
}

static void refuse_hopeless(struct job *job)
{
    error_set(&job->error, ERR_OVERLOADED, "",
              "the requests before this one take longer than it may wait");
    metrics_count_rejected(REASON_queue_full);
}

/* Lets go of the body, leaves in the budget what the reply holds, and hands the
 * job back. */
static void hand_back(struct server *server, struct job *job)
{
    if (job->error.code != ERR_NONE) {
        if (job->error.code == ERR_OVERLOADED && job->decode_ns > 0)
            metrics_count_rejected(REASON_memory);
        job_refuse(job);
        body_pack_reply(job);
    }
    job_keep_reply(job, &server->budget);
    http_resume(job);
}

/* Its body alone is kept: decoding it again costs little beside computing it. */
static void put_back(struct worker *worker, struct job *job)
{
    struct server *server = worker->all->server;

    arena_reset(&worker->arena, KEPT_BYTES);
    job_reserve(job, &server->budget, (int64_t)job->body_size);
    queue_put_back(&server->queue, job);
}

static void run_job(struct worker *worker, struct job *job)
{
    struct server *server = worker->all->server;
    int64_t now = clock_ns();
    bool may_probe, done = true;

    worker->helped_ns = 0;
    job->queue_ns = now - job->queued_ns;
    may_probe = !job->is_old && job->queue_ns > PROBE_AFTER_NS;
    if (now > job->deadline_ns)
        refuse_late(job, false);
    else if (connection_has_left(job->connection, may_probe))
        job->is_gone = true;
    else
        done = compute(worker, job);
    if (!done) {
        put_back(worker, job);
        return;
    }
    queue_done(&server->queue, job,
               job->decode_ns == 0 || job->is_gone
                   ? 0
                   : clock_ns() - now + worker->helped_ns);
    hand_back(server, job);
    arena_reset(&worker->arena, KEPT_BYTES);
}

void workers_drop_late(struct server *server, int64_t now_ns)
{
    struct job *job = queue_expire(&server->queue, now_ns);

    while (job != NULL) {
        struct job *next = job->next;

        job->queue_ns = clock_ns() - job->queued_ns;
        if (job->deadline_ns < now_ns)
            refuse_late(job, now_ns == INT64_MAX);
        else
            refuse_hopeless(job);
        hand_back(server, job);
        job = next;
    }
}

static bool pass_gate(struct workers *all)
{
    bool open;

    pthread_mutex_lock(&all->mutex);
    while (all->gate == GATE_SHUT)
        pthread_cond_wait(&all->changed, &all->mutex);
    open = all->gate == GATE_OPEN;
    pthread_mutex_unlock(&all->mutex);
    return open;
}

/* All at once: BLAS takes a buffer for each caller that it has at a time. */
static void warm_up(struct workers *all)
{
    kernels_warm();
    pthread_mutex_lock(&all->mutex);
    all->warm++;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->mutex);
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    struct queue *queue = &worker->all->server->queue;
    struct job *job;
    struct call *call;
    enum queue_item item;

    pthread_setname_np(pthread_self(), "attnd-worker");
    if (!pass_gate(worker->all))
        return NULL;
    warm_up(worker->all);
    while ((item = queue_pop(queue, &job, &call)) != QUEUE_END) {
        metrics_add(METRIC_workers_busy, 1);
        note_step(worker, clock_ns());
        if (item == QUEUE_JOB)
            run_job(worker, job);
        else
            help(worker, call);
        note_step(worker, 0);
        metrics_add(METRIC_workers_busy, -1);
    }
    return NULL;
}

bool workers_stuck(struct workers *workers, int64_t since_ns,
                   pthread_t *thread)
{
    for (int64_t i = 0; i < workers->count; i++) {
        int64_t step_ns = atomic_load_explicit(&workers->each[i].step_ns,
                                               memory_order_relaxed);

        *thread = workers->each[i].thread;
        if (step_ns != 0 && step_ns < since_ns)
            return true;
    }
    return false;
}

static void set_gate(struct workers *all, int gate)
{
    pthread_mutex_lock(&all->mutex);
    all->gate = gate;
    pthread_cond_broadcast(&all->changed);
    while (gate == GATE_OPEN && all->warm < all->count)
        pthread_cond_wait(&all->changed, &all->mutex);
    pthread_mutex_unlock(&all->mutex);
}

struct workers *workers_start(struct server *server, struct error *err)
{
    int64_t count = server->worker_count;
    struct workers *all =
        calloc(1, sizeof *all + (size_t)count * sizeof all->each[0]);

    if (all == NULL) {
        error_set(err, ERR_OVERLOADED, "", "workers: out of memory");
        return NULL;
    }
    all->server = server;
    if (pthread_mutex_init(&all->mutex, NULL) != 0 ||
        pthread_cond_init(&all->changed, NULL) != 0) {
        error_set(err, ERR_OVERLOADED, "", "workers: out of memory");
        free(all);
        return NULL;
    }
    for (; all->count < count; all->count++) {
        struct worker *worker = &all->each[all->count];

        worker->all = all;
        arena_init(&worker->arena, 0);
        arena_init(&worker->scratch, 0);
        if (pthread_create(&worker->thread, NULL, work, worker) != 0) {
            error_set(err, ERR_OVERLOADED, "",
                      "workers: only %lld of %lld threads could be started",
                      (long long)all->count, (long long)count);
            set_gate(all, GATE_GIVEN_UP);
            workers_stop(all);
            return NULL;
        }
    }
    set_gate(all, GATE_OPEN);
    return all;
}

void workers_stop(struct workers *all)
{
    for (int64_t i = 0; i < all->count; i++) {
        pthread_join(all->each[i].thread, NULL);
        arena_free(&all->each[i].arena);
        arena_free(&all->each[i].scratch);
    }
    pthread_cond_destroy(&all->changed);
    pthread_mutex_destroy(&all->mutex);
    free(all);
}
