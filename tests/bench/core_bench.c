#include "core/attention.h"
#include "tests/bench/bench.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The attention core beside OpenBLAS, head by head: on one thread and on all.
 * GFLOP/s are of the 4 N H L S D that the formula counts, hidden keys included,
 * so that a mask which saves work shows as speed.
 *
 * core_bench [portable|avx2|avx512|amx [SHAPE]] */

static const struct shape {
    int64_t H, G, L, S, D;
} shapes[] = {
    { 12, 12, 128, 128, 64 }, { 12, 12, 512, 512, 64 },
    { 16, 16, 1024, 1024, 64 }, { 8, 8, 4096, 4096, 64 },
    { 32, 32, 1, 4096, 128 }, { 32, 8, 1, 4096, 128 }, /* decode */
};

enum masking { NONE, CAUSAL, PADDED, EXTENDED, BOOLEAN, BIASED, MASKINGS };
static const char *const masking_names[MASKINGS] = {
    "none", "causal", "1/4 padded", "extended", "boolean", "additive"
};

enum returned { OUTPUT, MEAN, EVERY_HEAD, RETURNED };
static const char *const returned_names[RETURNED] = { "output", "mean weights",
                                                      "all weights" };

/* ---- ours ---- */

struct own {
    struct attention a;
    const struct kernels *kernels;
    struct parallel *parallel;
};

static bool run_own(void *arg)
{
    const struct own *own = arg;

    return attention_run(&own->a, own->kernels, own->parallel);
}

static struct tensor tensor(int64_t H, int64_t L, int64_t D)
{
    return tensor_packed(bench_numbers(H * L * D), DTYPE_F32, 4,
                         (int64_t[]){ 1, H, L, D });
}

static void add_mask(struct attention *a, enum masking masking)
{
    int64_t L = a->L, S = a->S;
    uint8_t *hidden = bench_memory(L * S);

    a->mask = (struct mask){ .S = S, .left = INT64_MAX, .right = INT64_MAX };
    for (int64_t j = 0; j < L * S; j++)
        hidden[j] = masking == PADDED ? j % S >= S * 3 / 4 : j % 7 == 3;
    if (masking == CAUSAL) {
        a->mask.right = 0;
        a->mask.shift = S - L;
    } else if (masking == PADDED) {
        a->mask.key_hidden = hidden;
    } else if (masking == EXTENDED) { /* as Hugging Face sends padding */
        float *bias = bench_memory(S * (int64_t)sizeof *bias);

        for (int64_t j = 0; j < S; j++)
            bias[j] = j >= S * 3 / 4 ? -FLT_MAX : 0;
        a->mask.bias = tensor_packed(bias, DTYPE_F32, 4,
                                     (int64_t[]){ 1, 1, 1, S });
        a->mask.bias.step[0] = a->mask.bias.step[1] = 0;
        a->mask.bias.step[2] = 0;
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
    struct attention a = { .dtype = DTYPE_F32, .N = 1, .H = s->H, .G = s->G,
                           .L = s->L, .S = s->S, .T = s->S, .D = s->D,
                           .Dv = s->D, .scale = 0.125 };
    int64_t parts = attention_mean_parts(s->H, s->G, s->L);

    a.q = tensor(s->H, s->L, s->D);
    a.k = tensor(s->G, s->S, s->D);
    a.v = tensor(s->G, s->S, s->D);
    a.out = tensor(s->H, s->L, s->D);
    add_mask(&a, masking);
    a.average_weights = returned == MEAN;
    if (returned == MEAN)
        a.weights = tensor_packed(bench_numbers(s->L * s->S), DTYPE_F32, 3,
                                  (int64_t[]){ 1, s->L, s->S });
    if (returned == MEAN && parts > 1)
        a.mean_parts = tensor_packed(bench_numbers((parts - 1) * s->L * s->S),
                                     DTYPE_F32, 4,
                                     (int64_t[]){ parts - 1, 1, s->L, s->S });
    if (returned == EVERY_HEAD)
        a.weights = tensor(s->H, s->L, s->S);
    return a;
}

/* ---- OpenBLAS ---- */

/* The products by cblas, a head and PEER_ROWS rows at a time, which it prefers
 * to whole heads of 1024 and more; exp and the rest by our fastest vectors.
 * Every key is multiplied: a mask only hides. */
enum { PEER_ROWS = 256 };

struct peer {
    const struct attention *a;
    const struct kernels *blas, *rows;
    float *scores;
};

static void soften(const struct peer *peer, int64_t i, float *row)
{
    const struct attention *a = peer->a;
    const struct mask *mask = &a->mask;
    int64_t lo, hi;
    float max = -INFINITY, bias_max = -INFINITY;
    double sum;

    mask_range(mask, 0, i, &lo, &hi);
    memset(row, 0, (size_t)lo * sizeof *row);
    memset(row + hi, 0, (size_t)(a->S - hi) * sizeof *row);
    row += lo;
    if (mask->bias.rank != 0)
        peer->rows->mask_row(row, (const float *)mask->bias.data +
                                      i * mask->bias.step[2] + lo, hi - lo,
                             &max, &bias_max);
    else if (mask->hidden.rank != 0)
        peer->rows->hide_row(row, (const uint8_t *)mask->hidden.data +
                                      i * a->S + lo, hi - lo, &max);
    else
        peer->rows->max_row(row, hi - lo, &max);
    sum = peer->rows->exp_row(row, hi - lo, max);
    peer->rows->scale_row(row, row, hi - lo, (float)(1 / sum));
}

static void return_weights(const struct peer *peer, int64_t h, int64_t first,
                           int64_t rows)
{
    const struct attention *a = peer->a;
    int64_t mean = a->average_weights, S = a->S;

    if (a->weights.rank == 0)
        return;
    float *out = (float *)a->weights.data + ((mean ? 0 : h * a->L) + first) * S;

    if (mean && h == 0)
        memset(out, 0, (size_t)(rows * S) * sizeof *out);
    if (mean)
        peer->rows->add_row(out, peer->scores, rows * S, 1 / (float)a->H);
    else
        memcpy(out, peer->scores, (size_t)(rows * S) * sizeof *out);
}

static bool run_peer(void *arg)
{
    const struct peer *peer = arg;
    const struct attention *a = peer->a;
    int64_t S = a->S, D = a->D, group = a->H / a->G;

    for (int64_t h = 0; h < a->H; h++)
        for (int64_t i = 0; i < a->L; i += PEER_ROWS) {
            int64_t rows = a->L - i < PEER_ROWS ? a->L - i : PEER_ROWS;
            const float *q = (const float *)a->q.data + (h * a->L + i) * D;
            float *out = (float *)a->out.data + (h * a->L + i) * D;

            peer->blas->gemm_nt_f32(rows, S, D, (float)a->scale, q, D,
                                    (const float *)a->k.data +
                                        h / group * S * D, D,
                                    peer->scores, S);
            for (int64_t r = 0; r < rows; r++)
                soften(peer, i + r, peer->scores + r * S);
            return_weights(peer, h, i, rows);
            peer->blas->gemm_nn_f32(rows, D, S, peer->scores, S,
                                    (const float *)a->v.data +
                                        h / group * S * D, D, 0, out, D);
        }
    return true;
}

/* ---- the table ---- */

static void report(const struct shape *s, const char *masking,
                   const char *returned, const struct bench_contender *c,
                   double peak)
{
    double flops = 4.0 * (double)(s->H * s->L) * (double)(s->S * s->D);
    double one = c[0].seconds, all = c[1].seconds, peer = c[2].seconds;
    double balance = bench_balance();
    char name[64];

    char heads[24] = "";

    if (s->G != s->H)
        snprintf(heads, sizeof heads, "/%ld", (long)s->G);
    snprintf(name, sizeof name, "%ld%sx%ldx%ldx%ld", (long)s->H, heads,
             (long)s->L, (long)s->S, (long)s->D);
    printf("%-16s %-10s %-12s %8.3f %7.1f %4.0f %% %8.3f %6.2f %5.2f %9.3f "
           "%6.2f\n", name, masking, returned, one * 1e3, flops / one * 1e-9,
           100 * flops / one * 1e-9 / peak, all * 1e3, one / all, balance,
           peer * 1e3, peer / one);
    fflush(stdout);
    bench_json_begin();
    bench_json_text("shape", name);
    bench_json_text("mask", masking);
    bench_json_text("returned", returned);
    bench_json_number("one_ms", one * 1e3);
    bench_json_number("gflops", flops / one * 1e-9);
    bench_json_number("of_peak", flops / one * 1e-9 / peak);
    bench_json_number("all_ms", all * 1e3);
    bench_json_number("all_speedup", one / all);
    bench_json_number("all_balance", balance);
    bench_json_number("openblas_ms", peer * 1e3);
    bench_json_number("ratio", peer / one);
    bench_json_end();
}

static void measure(const struct shape *s, enum masking masking,
                    enum returned returned, const struct kernels *kernels,
                    const struct kernels set[], int levels)
{
    struct own one = { problem(s, masking, returned), kernels, bench_alone() };
    struct own all = { one.a, kernels, bench_threads() };
    struct peer peer = { &one.a, &set[0], &set[levels - 1],
                         bench_numbers(PEER_ROWS * s->S) };
    struct bench_contender contender[] = {
        { .name = "one", .run = run_own, .arg = &one },
        { .name = "all", .run = run_own, .arg = &all, .many = true },
        { .name = "openblas", .run = run_peer, .arg = &peer },
    };

    bench_balance();
    bench_race(contender, 3);
    report(s, masking_names[masking], returned_names[returned], contender,
           bench_peak(kernels));
    bench_forget();
}

int main(int argc, char **argv)
{
    struct kernels kernels, set[BENCH_LEVELS_MAX];
    int levels;
    long only = argc > 2 ? strtol(argv[2], NULL, 10) : -1;

    kernels_single_threaded();
    kernels_warm();
    if (!kernels_select(cpu_features(), argc > 1 ? argv[1] : NULL, &kernels)) {
        fprintf(stderr,
                "usage: core_bench [portable|avx2|avx512|amx [SHAPE]]\n");
        return 1;
    }
    levels = bench_levels(set);
    printf("attention core, %s kernels, one thread of %.0f GFLOP/s peak and "
           "%d threads; ms\n%-16s %-10s %-12s %8s %7s %6s %8s %6s %5s %9s "
           "%6s\n", kernels.name, bench_peak(&kernels), bench_thread_count(),
           "H/G x L x S x D", "mask", "returned", "one", "GFLOP/s", "peak",
           "all", "one/", "most", "OpenBLAS", "ratio");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int returned = OUTPUT; returned < RETURNED; returned++)
            for (int masking = NONE; masking < MASKINGS; masking++) {
                bool large = shapes[i].L >= 4096;

                if ((only < 0 || only == (long)i) &&
                    (returned == OUTPUT || (!large && masking == NONE)) &&
                    (!large || masking < BOOLEAN))
                    measure(&shapes[i], (enum masking)masking,
                            (enum returned)returned, &kernels, set, levels);
            }
    return 0;
}
