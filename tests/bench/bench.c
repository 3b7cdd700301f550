#include "tests/bench/bench.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { ROUNDS_MIN = 3, ROUNDS_MAX = 31, THREADS_MAX = 64 };

static double read_clock(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double seconds(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

static void die(const char *why)
{
    fprintf(stderr, "bench: %s\n", why);
    exit(1);
}

/* ---- races ---- */

static double budget(void)
{
    const char *text = getenv("BENCH_SECONDS");
    double value = text == NULL ? 0.3 : strtod(text, NULL);

    return value > 0 ? value : 0.3;
}

static double run_times(struct bench_contender *c, int times)
{
    clockid_t clock = c->many ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
    double start = read_clock(clock);

    for (int i = 0; i < times; i++)
        if (!c->run(c->arg))
            die(c->name);
    return (read_clock(clock) - start) / times;
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* A round of a contender takes a millisecond at least, so that the clock and
 * the caches' change of owner do not show. */
static int repeats(double took)
{
    return took > 1e-3 ? 1 : (int)(1e-3 / (took + 1e-7)) + 1;
}

void bench_race(struct bench_contender *contender, int count)
{
    double round[BENCH_CONTENDERS_MAX][ROUNDS_MAX], limit = budget(), began;
    int times[BENCH_CONTENDERS_MAX], rounds = 0;

    for (int i = 0; i < count; i++) {
        run_times(&contender[i], 1); /* pages and caches */
        times[i] = repeats(run_times(&contender[i], 1));
    }
    began = seconds();
    while (rounds < ROUNDS_MAX &&
           (rounds < ROUNDS_MIN || seconds() - began < limit)) {
        for (int i = 0; i < count; i++)
            round[i][rounds] = run_times(&contender[i], times[i]);
        rounds++;
    }
    for (int i = 0; i < count; i++) {
        qsort(round[i], (size_t)rounds, sizeof(double), rising);
        contender[i].seconds = round[i][rounds / 2];
    }
}

/* ---- threads ---- */

struct call {
    parallel_piece *piece;
    void *arg;
    int64_t pieces;
    atomic_long next;
    atomic_bool failed;
};

struct thread {
    pthread_t id;
    struct arena scratch;
    double busy;
};

static struct {
    struct parallel parallel;
    struct thread thread[THREADS_MAX];
    int count;
    struct call call;
    atomic_long wanted, left; /* calls begun; helpers still at the last one */
} team;

static void run_pieces(struct thread *self)
{
    struct call *call = &team.call;
    double start = read_clock(CLOCK_THREAD_CPUTIME_ID);
    int64_t i;

    while ((i = atomic_fetch_add(&call->next, 1)) < call->pieces) {
        struct arena_mark mark = arena_mark(&self->scratch);

        if (!call->piece(call->arg, i, &self->scratch))
            atomic_store(&call->failed, true);
        arena_release(&self->scratch, mark);
    }
    self->busy += read_clock(CLOCK_THREAD_CPUTIME_ID) - start;
}

static void *help(void *arg)
{
    long seen = 0;

    for (;;) {
        for (int i = 0; atomic_load(&team.wanted) == seen; i++)
            if (i > 2000)
                sched_yield();
        seen++;
        run_pieces(arg);
        atomic_fetch_sub(&team.left, 1);
    }
    return NULL;
}

static bool run_together(struct parallel *self, int64_t pieces,
                         parallel_piece *piece, void *arg)
{
    struct call *call = &team.call;

    (void)self;
    call->piece = piece;
    call->arg = arg;
    call->pieces = pieces;
    atomic_store(&call->failed, false);
    atomic_store(&call->next, 0);
    if (pieces > 1) {
        atomic_store(&team.left, team.count - 1);
        atomic_fetch_add(&team.wanted, 1);
    }
    run_pieces(&team.thread[0]);
    while (atomic_load(&team.left) > 0)
        sched_yield();
    return !atomic_load(&call->failed);
}

int bench_thread_count(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    return CPU_COUNT(&set) < THREADS_MAX ? CPU_COUNT(&set) : THREADS_MAX;
}

struct parallel *bench_threads(void)
{
    if (team.count > 0)
        return &team.parallel;
    team.parallel.run = run_together;
    team.count = bench_thread_count();
    for (int i = 0; i < team.count; i++) {
        arena_init(&team.thread[i].scratch, SIZE_MAX);
        if (i > 0 && pthread_create(&team.thread[i].id, NULL, help,
                                    &team.thread[i]) != 0)
            die("no thread");
    }
    return &team.parallel;
}

struct parallel *bench_alone(void)
{
    static struct arena scratch;
    static struct parallel_serial serial;

    if (serial.scratch == NULL) {
        arena_init(&scratch, SIZE_MAX);
        parallel_serial_init(&serial, &scratch);
    }
    return &serial.parallel;
}

double bench_balance(void)
{
    double sum = 0, most = 1e-9;

    for (int i = 0; i < team.count; i++) {
        double busy = team.thread[i].busy;

        team.thread[i].busy = 0;
        sum += busy;
        most = busy > most ? busy : most;
    }
    return sum / most;
}

/* ---- the peak ---- */

enum { CHAINS = 12, STEPS = 100000 };

/* Twelve chains hide a latency of six with two multiply-adds a cycle. */
#define PEAK(name, lanes_count, attributes)                                  \
    attributes static float name(int64_t steps)                              \
    {                                                                        \
        typedef float lanes __attribute__((vector_size(4 * lanes_count)));   \
        lanes sum[CHAINS] = { { 0 } };                                       \
        lanes x = sum[0] + 0.999f, y = sum[0] + 1e-3f;                       \
        for (int64_t i = 0; i < steps; i++) {                                \
            _Pragma("GCC unroll 12")                                         \
            for (int j = 0; j < CHAINS; j++) {                               \
                sum[j] = sum[j] * x + y;                                     \
                __asm__("" : "+" PEAK_REGISTER(sum[j]));                     \
            }                                                                \
        }                                                                    \
        _Pragma("GCC unroll 12")                                             \
        for (int j = 1; j < CHAINS; j++)                                     \
            sum[0] += sum[j];                                                \
        return sum[0][0];                                                    \
    }

#if defined(__x86_64__)
#define PEAK_REGISTER(x) "v"(x)
PEAK(run_wide, 16, __attribute__((target("avx512f,fma"))))
PEAK(run_half, 8, __attribute__((target("avx2,fma"))))
#else
#define PEAK_REGISTER(x) "m"(x)
#endif
PEAK(run_plain, 4, )

double bench_peak(const struct kernels *kernels)
{
    float (*run)(int64_t) = run_plain;
    int lanes_count = 4;
    double best = 1;
    volatile float sink;

#if defined(__x86_64__)
    if (strcmp(kernels->name, "avx512") == 0) {
        run = run_wide;
        lanes_count = 16;
    } else if (strcmp(kernels->name, "avx2") == 0) {
        run = run_half;
        lanes_count = 8;
    }
#endif
    for (int i = 0; i < 20; i++) {
        double start = read_clock(CLOCK_THREAD_CPUTIME_ID), took;

        sink = run(STEPS);
        took = read_clock(CLOCK_THREAD_CPUTIME_ID) - start;
        best = took < best ? took : best;
    }
    (void)sink;
    return 2.0 * CHAINS * STEPS * lanes_count / best * 1e-9;
}

/* ---- memory and numbers ---- */

static struct block {
    struct block *next;
    size_t bytes;
} *blocks;

void *bench_memory(int64_t count)
{
    size_t huge = 2 << 20;
    size_t bytes = ((size_t)count + 64 + huge - 1) / huge * huge;
    struct block *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (block == MAP_FAILED)
        die("no memory");
    madvise(block, bytes, MADV_HUGEPAGE);
    *block = (struct block){ blocks, bytes };
    blocks = block;
    return (char *)block + 64;
}

static uint64_t random_state = 1;

void bench_forget(void)
{
    random_state = 1;
    while (blocks != NULL) {
        struct block *next = blocks->next;

        munmap(blocks, blocks->bytes);
        blocks = next;
    }
}

float *bench_numbers(int64_t count)
{
    float *x = bench_memory(count * (int64_t)sizeof *x);

    for (int64_t i = 0; i < count; i++) {
        float sum = 0;

        for (int j = 0; j < 3; j++) {
            random_state = random_state * 6364136223846793005u +
                           1442695040888963407u;
            sum += (float)(int32_t)(random_state >> 32) * 0x1p-31f;
        }
        x[i] = sum;
    }
    return x;
}

/* ---- JSON ---- */

static FILE *json;
static const char *comma, *first = "[\n";

static void end_file(void)
{
    fputs("\n]", json);
    fclose(json);
}

void bench_json_begin(void)
{
    const char *path = getenv("BENCH_JSON");

    if (json == NULL && path != NULL) {
        json = fopen(path, "w");
        if (json == NULL)
            die(path);
        atexit(end_file);
    }
    if (json != NULL)
        fputs(first, json);
    first = ",\n";
    comma = "{";
}

void bench_json_text(const char *key, const char *value)
{
    if (json != NULL)
        fprintf(json, "%s\"%s\": \"%s\"", comma, key, value);
    comma = ", ";
}

void bench_json_number(const char *key, double value)
{
    if (json != NULL)
        fprintf(json, "%s\"%s\": %.6g", comma, key, value);
    comma = ", ";
}

void bench_json_end(void)
{
    if (json != NULL)
        fputs("}", json);
}

int bench_levels(struct kernels set[BENCH_LEVELS_MAX])
{
    static const char *const names[] = { "portable", "avx2", "avx512", "amx" };
    int count = 0;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!kernels_select(cpu_features(), names[i], &set[count]))
            die(names[i]);
        if (count == 0 || strcmp(set[count].name, set[count - 1].name) != 0)
            count++;
    }
    return count;
}
