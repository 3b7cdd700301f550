#include "core/attention.h"
#include "core/kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How fast the attention core is on one thread: the median of a few runs, as
 * GFLOP/s of the 4 N H L S D that the formula counts, hidden keys included, so
 * that a mask which saves work shows as speed. */

enum { RUNS = 7, MEMORY = 1 << 30 };
static const double SECONDS_PER_CELL = 0.4; /* over all runs */

static const struct shape {
    int64_t H, L, S, D;
} shapes[] = {
    { 12, 128, 128, 64 },   { 12, 512, 512, 64 }, { 16, 1024, 1024, 64 },
    { 8, 4096, 4096, 64 },  { 32, 1, 4096, 128 },
};

enum masking { NONE, CAUSAL, PADDED, BOOLEAN, BIASED, MASKINGS };
static const char *const masking_names[MASKINGS] = {
    "none", "causal", "1/4 padded", "boolean", "additive"
};

enum returned { OUTPUT, MEAN, EVERY_HEAD, RETURNED };
static const char *const returned_names[RETURNED] = { "output", "mean",
                                                      "all weights" };

static struct arena memory;

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static float *numbers(int64_t count)
{
    float *x = arena_array(&memory, (size_t)count, sizeof *x);

    if (x == NULL)
        exit(1);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)(rand() % 2001 - 1000) / 600;
    return x;
}

static struct tensor tensor(int64_t H, int64_t L, int64_t D)
{
    return tensor_packed(numbers(H * L * D), DTYPE_F32, 4,
                         (int64_t[]){ 1, H, L, D });
}

static void add_mask(struct attention *a, enum masking masking)
{
    int64_t L = a->L, S = a->S;
    uint8_t *hidden = arena_alloc(&memory, (size_t)(L * S));

    a->mask = (struct mask){ .S = S, .left = INT64_MAX, .right = INT64_MAX };
    for (int64_t j = 0; j < L * S; j++)
        hidden[j] = masking == PADDED ? j >= S * 3 / 4 : rand() % 4 == 0;
    if (masking == CAUSAL) {
        a->mask.right = 0;
        a->mask.shift = S - L;
    } else if (masking == PADDED) {
        a->mask.key_hidden = hidden;
    } else if (masking == BOOLEAN) {
        a->mask.hidden = tensor_packed(hidden, DTYPE_BOOL, 4,
                                       (int64_t[]){ 1, 1, L, S });
        a->mask.hides_when = 1;
        a->mask.hidden.step[1] = 0;
    } else if (masking == BIASED) {
        a->mask.bias = tensor(1, L, S);
        a->mask.bias.step[1] = 0;
    }
}

static struct attention problem(const struct shape *s, enum masking masking,
                                enum returned returned)
{
    struct attention a = { .dtype = DTYPE_F32, .N = 1, .H = s->H, .G = s->H,
                           .L = s->L, .S = s->S, .T = s->S, .D = s->D,
                           .Dv = s->D, .scale = 0.125 };

    a.q = tensor(s->H, s->L, s->D);
    a.k = tensor(s->H, s->S, s->D);
    a.v = tensor(s->H, s->S, s->D);
    a.out = tensor(s->H, s->L, s->D);
    add_mask(&a, masking);
    a.average_weights = returned == MEAN;
    if (returned == MEAN)
        a.weights = tensor_packed(numbers(s->L * s->S), DTYPE_F32, 3,
                                  (int64_t[]){ 1, s->L, s->S });
    if (returned == EVERY_HEAD)
        a.weights = tensor(s->H, s->L, s->S);
    return a;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median_seconds(const struct attention *a,
                             const struct kernels *kernels,
                             struct parallel *parallel)
{
    double run[RUNS], began = seconds();
    int done = 0;

    if (!attention_run(a, kernels, parallel)) /* warm */
        exit(1);

    int repeats = 1 + (int)(SECONDS_PER_CELL / RUNS / (seconds() - began));

    began = seconds();
    while (done < RUNS && (done < 1 || seconds() - began < SECONDS_PER_CELL)) {
        double start = seconds();

        for (int i = 0; i < repeats; i++)
            attention_run(a, kernels, parallel);
        run[done++] = (seconds() - start) / repeats;
    }
    qsort(run, (size_t)done, sizeof *run, by_size);
    return run[done / 2];
}

static void measure(const struct shape *s, enum returned returned,
                    const struct kernels *kernels, struct parallel *parallel)
{
    double flops = 4.0 * (double)(s->H * s->L) * (double)(s->S * s->D);

    printf("%3ld x %4ld x %4ld x %3ld  %-11s", (long)s->H, (long)s->L,
           (long)s->S, (long)s->D, returned_names[returned]);
    for (int masking = NONE; masking < MASKINGS; masking++) {
        struct arena_mark mark = arena_mark(&memory);
        struct attention a = problem(s, (enum masking)masking, returned);

        printf("  %10.1f",
               flops / median_seconds(&a, kernels, parallel) * 1e-9);
        fflush(stdout);
        arena_release(&memory, mark);
    }
    putchar('\n');
}

int main(int argc, char **argv)
{
    struct kernels kernels;
    struct arena scratch;
    struct parallel_serial serial;

    kernels_single_threaded();
    kernels_warm();
    if (!kernels_select(cpu_features(), argc > 1 ? argv[1] : NULL, &kernels)) {
        fprintf(stderr, "usage: core_bench [portable|avx2|avx512|amx]\n");
        return 1;
    }
    arena_init(&memory, MEMORY);
    arena_init(&scratch, MEMORY);
    parallel_serial_init(&serial, &scratch);
    printf("attention core, one thread, %s kernels, GFLOP/s\n%-24s  %-11s",
           kernels.name, "  H      L      S     D", "returned");
    for (int i = 0; i < MASKINGS; i++)
        printf("  %10s", masking_names[i]);
    putchar('\n');
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int returned = OUTPUT; returned < RETURNED; returned++)
            if (shapes[i].L < 4096 || returned == OUTPUT)
                measure(&shapes[i], (enum returned)returned, &kernels,
                        &serial.parallel);
    arena_free(&scratch);
    arena_free(&memory);
    return 0;
}
