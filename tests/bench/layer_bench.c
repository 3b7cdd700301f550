#include "core/mha.h"
#include "tests/bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A whole layer, hidden states to output: three projections, attention, the
 * output's projection. With weights that the server holds, packed, and with
 * weights that came in the request; beside OpenBLAS, which does the same
 * products layer by layer and head by head, and held weights in bfloat16. 768
 * wide with 12 heads, and small.
 *
 * layer_bench [portable|avx2|avx512|amx] */

static const struct shape {
    int64_t N, L, E, H;
} shapes[] = {
    { 1, 1, 768, 12 },   { 1, 16, 64, 4 },    { 1, 128, 768, 12 },
    { 1, 512, 768, 12 }, { 8, 128, 768, 12 }, { 8, 512, 768, 12 },
};

enum { MEMORY = 1 << 30 };

struct own {
    struct mha_request request;
    struct mha_plan plan;
    const struct kernels *kernels;
    struct parallel *parallel;
    struct arena arena;
};

static bool run_own(void *arg)
{
    struct own *own = arg;
    struct mha_response response = { 0 };
    struct error err = { 0 };
    bool good = mha_run(&own->plan, own->kernels, own->parallel, &own->arena,
                        &response, &err);

    arena_reset(&own->arena, MEMORY);
    return good;
}

static struct named_tensor named(const char *name, const float *data, int rank,
                                 int64_t a, int64_t b, int64_t c)
{
    return (struct named_tensor){
        .name = name,
        .value = tensor_packed((float *)(uintptr_t)data, DTYPE_F32, rank,
                               (int64_t[]){ a, b, c }),
    };
}

static void fill(struct own *own, const struct shape *s,
                 struct named_tensor dict[4])
{
    struct error err = { 0 };

    mha_request_init(&own->request);
    own->request.query = named("hidden_states",
                               bench_numbers(s->N * s->L * s->E), 3, s->N, s->L,
                               s->E);
    own->request.num_heads = s->H;
    own->request.need_weights = false;
    own->request.has_state_dict = true;
    own->request.state_dict = (struct tensor_list){ .item = dict, .count = 4 };
    if (!mha_check(&own->request, &own->plan, &err)) {
        fprintf(stderr, "layer_bench: %s\n", err.text);
        exit(1);
    }
    arena_init(&own->arena, SIZE_MAX);
}

/* The same request with its weights held. */
static void hold(struct own *own, const struct own *sent,
                 enum precision precision, struct arena *memory,
                 struct weights *weights)
{
    struct error err = { 0 };

    *own = *sent;
    arena_init(&own->arena, SIZE_MAX);
    if (!weights_pack(&sent->plan.weights, DTYPE_F32,
                      precision == PRECISION_BF16, own->kernels, memory,
                      weights))
        exit(1);
    own->request.precision = precision;
    own->request.has_state_dict = false;
    own->request.state_dict.count = 0;
    own->request.has_model = true;
    own->request.model = (struct mha_model){ .weights = weights,
                                             .num_heads = sent->plan.H,
                                             .projects = true };
    if (!mha_check(&own->request, &own->plan, &err))
        exit(1);
}

/* ---- OpenBLAS ---- */

struct peer {
    const struct shape *shape;
    const struct mha_plan *plan;
    const struct kernels *blas, *rows;
    float *q, *k, *v, *scores, *context, *output;
};

static void project(const struct peer *p, const struct linear *layer,
                    const float *x, float *y)
{
    int64_t rows = p->shape->N * p->shape->L, E = p->shape->E;
    const float *bias = layer->bias.data;

    p->blas->gemm_nt_f32(rows, E, E, 1, x, E, layer->weight.data, E, y, E);
    for (int64_t i = 0; i < rows; i++)
        p->rows->add_row(y + i * E, bias, E, 1);
}

static void attend(const struct peer *p, int64_t n, int64_t h)
{
    int64_t L = p->shape->L, E = p->shape->E, D = E / p->shape->H;
    int64_t at = n * L * E + h * D;

    p->blas->gemm_nt_f32(L, L, D, (float)(1 / sqrt((double)D)), p->q + at, E,
                         p->k + at, E, p->scores, L);
    for (int64_t i = 0; i < L; i++) {
        float *row = p->scores + i * L, max = -INFINITY;
        double sum;

        p->rows->max_row(row, L, &max);
        sum = p->rows->exp_row(row, L, max);
        p->rows->scale_row(row, row, L, (float)(1 / sum));
    }
    p->blas->gemm_nn_f32(L, D, L, p->scores, L, p->v + at, E, 0,
                         p->context + at, E);
}

static bool run_peer(void *arg)
{
    const struct peer *p = arg;
    const struct weights *w = &p->plan->weights;
    const float *x = p->plan->query.data;

    project(p, &w->q, x, p->q);
    project(p, &w->k, x, p->k);
    project(p, &w->v, x, p->v);
    for (int64_t n = 0; n < p->shape->N; n++)
        for (int64_t h = 0; h < p->shape->H; h++)
            attend(p, n, h);
    project(p, &w->out, p->context, p->output);
    return true;
}

/* ---- the table ---- */

static void report(const struct shape *s, const struct bench_contender *c,
                   double flops, double peak)
{
    char name[64];

    snprintf(name, sizeof name, "N%ld L%ld E%ld", (long)s->N, (long)s->L,
             (long)s->E);
    printf("%-14s %9.3f %7.1f %4.0f %% %6.2f %9.3f %6.2f %9.3f %9.3f %9.3f "
           "%6.2f\n", name,
           c[0].seconds * 1e3, flops / c[0].seconds * 1e-9,
           100 * flops / c[0].seconds * 1e-9 / peak,
           c[3].seconds / c[0].seconds, c[1].seconds * 1e3,
           c[0].seconds / c[1].seconds, c[2].seconds * 1e3,
           c[3].seconds * 1e3, c[4].seconds * 1e3,
           c[0].seconds / c[4].seconds);
    fflush(stdout);
    bench_json_begin();
    bench_json_text("layer", name);
    bench_json_number("held_ms", c[0].seconds * 1e3);
    bench_json_number("gflops", flops / c[0].seconds * 1e-9);
    bench_json_number("of_peak", flops / c[0].seconds * 1e-9 / peak);
    bench_json_number("ratio", c[3].seconds / c[0].seconds);
    bench_json_number("held_all_ms", c[1].seconds * 1e3);
    bench_json_number("sent_ms", c[2].seconds * 1e3);
    bench_json_number("openblas_ms", c[3].seconds * 1e3);
    bench_json_number("held_bfloat16_ms", c[4].seconds * 1e3);
    bench_json_end();
}

static void measure(const struct shape *s, const struct kernels *kernels,
                    const struct kernels set[], int levels)
{
    int64_t E = s->E, rows = s->N * s->L;
    struct named_tensor dict[4] = {
        named("in_proj_weight", bench_numbers(3 * E * E), 2, 3 * E, E, 0),
        named("in_proj_bias", bench_numbers(3 * E), 1, 3 * E, 0, 0),
        named("out_proj.weight", bench_numbers(E * E), 2, E, E, 0),
        named("out_proj.bias", bench_numbers(E), 1, E, 0, 0),
    };
    struct own sent = { .kernels = kernels, .parallel = bench_alone() };
    struct own held, all, rounded;
    struct arena memory;
    struct weights weights, rounded_weights;
    double flops = 8.0 * (double)rows * (double)(E * E) +
                   4.0 * (double)rows * (double)(s->L * E);

    arena_init(&memory, SIZE_MAX);
    fill(&sent, s, dict);
    hold(&held, &sent, PRECISION_F32, &memory, &weights);
    hold(&rounded, &sent, PRECISION_BF16, &memory, &rounded_weights);
    all = held;
    arena_init(&all.arena, SIZE_MAX);
    all.parallel = bench_threads();

    struct peer peer = {
        .shape = s, .plan = &sent.plan, .blas = &set[0],
        .rows = &set[levels - 1],
        .q = bench_numbers(rows * E), .k = bench_numbers(rows * E),
        .v = bench_numbers(rows * E), .context = bench_numbers(rows * E),
        .output = bench_numbers(rows * E), .scores = bench_numbers(s->L * s->L),
    };
    struct bench_contender contender[] = {
        { .name = "held", .run = run_own, .arg = &held },
        { .name = "held, all", .run = run_own, .arg = &all, .many = true },
        { .name = "sent", .run = run_own, .arg = &sent },
        { .name = "openblas", .run = run_peer, .arg = &peer },
        { .name = "held, bfloat16", .run = run_own, .arg = &rounded },
    };

    bench_race(contender, 5);
    report(s, contender, flops, bench_peak(kernels));
    arena_free(&sent.arena);
    arena_free(&held.arena);
    arena_free(&all.arena);
    arena_free(&rounded.arena);
    arena_free(&memory);
    bench_forget();
}

int main(int argc, char **argv)
{
    struct kernels kernels, set[BENCH_LEVELS_MAX];
    int levels;

    kernels_single_threaded();
    kernels_warm();
    if (!kernels_select(cpu_features(), argc > 1 ? argv[1] : NULL, &kernels)) {
        fprintf(stderr, "usage: layer_bench [portable|avx2|avx512|amx]\n");
        return 1;
    }
    levels = bench_levels(set);
    printf("a layer, %s kernels, one thread and %d, ms\n%-14s %9s %7s %6s %6s "
           "%9s %6s %9s %9s %9s %6s\n", kernels.name, bench_thread_count(), "",
           "held", "GFLOP/s", "peak", "ratio", "all", "one/", "sent",
           "OpenBLAS", "bfloat16", "ratio");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        measure(&shapes[i], &kernels, set, levels);
    return 0;
}
