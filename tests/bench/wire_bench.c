#include "api/encode.h"
#include "api/number_array.h"
#include "api/wire.h"
#include "core/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How fast bodies become tensors and tensors replies, on one thread: the best
 * of a few runs, at every level the processor has. */

enum { RUNS = 9, TEXT_BYTES = 16 << 20 };

static const char *const ceilings[] = { "portable", "avx2", "avx512" };

static char text[TEXT_BYTES];
static size_t text_len;
static struct arena memory;

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double bell(void)
{
    double sum = -2;

    for (int i = 0; i < 4; i++)
        sum += (double)rand() / RAND_MAX;
    return 1.7 * sum;
}

static void add(const char *piece)
{
    size_t len = strlen(piece);

    memcpy(text + text_len, piece, len);
    text_len += len;
}

/* A number, or one of two words, "this|that". */
static void add_element(const char *format)
{
    const char *bar = strchr(format, '|');
    double x = bell();

    if (bar == NULL)
        text_len += (size_t)snprintf(text + text_len, 64, format, x);
    else if (x < 0)
        add(bar + 1);
    else
        text_len += (size_t)snprintf(text + text_len, 64, "%.*s",
                                     (int)(bar - format), format);
}

/* A nested array, one axis within the other. */
static void add_axis(int rank, const int64_t *dim, const char *format)
{
    add("[");
    for (int64_t i = 0; i < *dim; i++) {
        add(i > 0 ? ", " : "");
        if (rank > 1)
            add_axis(rank - 1, dim + 1, format);
        else
            add_element(format);
    }
    add("]");
}

#define MASK "{\"query\": [[1]], \"attn_mask\": "

static const struct body {
    const char *name, *before, *format, *behind;
    int rank;
    int64_t dim[4];
} bodies[] = {
    { "hidden 128x768, 17 digits", "{\"hidden_states\": ", "%.17g", "}", 2,
      { 128, 768 } },
    { "hidden 512x768, 8 digits", "{\"hidden_states\": ", "%.8g", "}", 2,
      { 512, 768 } },
    { "flat 98304, 17 digits",
      "{\"hidden_states\": {\"shape\": [128, 768], \"data\": ", "%.17g", "}}",
      1, { 128 * 768 } },
    { "NHLD 1x12x128x64, 17 digits", "{\"query\": ", "%.17g", "}", 4,
      { 1, 12, 128, 64 } },
    { "heads of one row, 64x16x1x64", "{\"query\": ", "%.17g", "}", 4,
      { 64, 16, 1, 64 } },
    { "rows of four, 8192x4", "{\"query\": ", "%.17g", "}", 2, { 8192, 4 } },
    { "mask of booleans, 512x512", MASK, "true|false", "}", 2, { 512, 512 } },
    { "mask of 0.0 and -Infinity", MASK, "0.0|-Infinity", "}", 2,
      { 512, 512 } },
    { "mask of 0 and null", MASK, "0|null", "}", 2, { 512, 512 } },
    { "mask of -Infinity", MASK, "-Infinity|-Infinity", "}", 2, { 512, 512 } },
    { "mask of biases, 8 digits", MASK, "%.8g", "}", 2, { 512, 512 } },
    { "16x64, 17 digits", "{\"hidden_states\": ", "%.17g", "}", 2, { 16, 64 } },
};

static double count_of(const struct body *b)
{
    double count = 1;

    for (int i = 0; i < b->rank; i++)
        count *= (double)b->dim[i];
    return count;
}

static double decode_once(void)
{
    struct request request;
    struct error err = { 0 };
    double start;

    arena_reset(&memory, SIZE_MAX);
    start = seconds();
    if (!wire_json.decode((struct bytes){ (uint8_t *)text, text_len }, NULL, NULL,
                          &memory, &request, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    return seconds() - start;
}

static struct tensor reply_tensor(int64_t rows, int64_t columns)
{
    float *x = arena_array(&memory, (size_t)(rows * columns), sizeof *x);

    for (int64_t i = 0; x != NULL && i < rows * columns; i++)
        x[i] = (float)bell();
    return tensor_packed(x, DTYPE_F32, 2, (int64_t[]){ rows, columns });
}

static double encode_once(const struct mha_response *mha, struct buffer *out)
{
    struct request request = { 0 };
    struct mha_plan plan = { .request = &request.mha };
    struct response response = { .mha = mha, .kernels = "" };
    double start = seconds();

    out->len = 0;
    encode_json(&request, &plan, &response, out);
    return seconds() - start;
}

static double best_of(double best, double time)
{
    return time < best ? time : best;
}

static void print(const char *what, double numbers, double bytes, double time)
{
    printf("  %-9s%-30s %8.1f us %7.0f MB/s %7.1f M numbers/s\n",
           number_selected(), what, 1e6 * time, 1e-6 * bytes / time,
           1e-6 * numbers / time);
}

static void bench_decode(const struct body *b)
{
    double best = 1e9;

    text_len = 0;
    add(b->before);
    add_axis(b->rank, b->dim, b->format);
    add(b->behind);
    for (int i = 0; i < RUNS; i++)
        best = best_of(best, decode_once());
    print(b->name, count_of(b), (double)text_len, best);
}

static void bench_encode(int64_t rows, int64_t columns)
{
    struct mha_response mha;
    struct buffer out;
    double best = 1e9;
    char name[64];

    arena_reset(&memory, SIZE_MAX);
    mha = (struct mha_response){ .output = reply_tensor(rows, columns) };
    buffer_init(&out, SIZE_MAX / 4);
    for (int i = 0; i < RUNS; i++)
        best = best_of(best, encode_once(&mha, &out));
    snprintf(name, sizeof name, "reply %lldx%lld", (long long)rows,
             (long long)columns);
    print(name, (double)(rows * columns), (double)out.len, best);
    buffer_free(&out);
}

int main(void)
{
    arena_init(&memory, (size_t)1 << 30);
    for (size_t i = 0; i < sizeof ceilings / sizeof *ceilings; i++) {
        if (!number_select(cpu_features(), ceilings[i]) ||
            strcmp(number_selected(), ceilings[i]) != 0)
            continue;
        for (size_t j = 0; j < sizeof bodies / sizeof *bodies; j++)
            bench_decode(&bodies[j]);
        bench_encode(512, 768);
        bench_encode(8192, 4);
        bench_encode(16, 64);
    }
    arena_free(&memory);
    return 0;
}
