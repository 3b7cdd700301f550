#include "api/coding.h"
#include "api/npy.h"
#include "api/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What binary bodies cost, and packed ones, on one thread: 128 rows of 768
 * numbers, the best of a few runs. memcpy() of as many bytes is beside them. */

enum { ROWS = 128, COLUMNS = 768, COUNT = ROWS * COLUMNS, RUNS = 25 };
enum { BODY_BYTES = 4 << 20 };

static _Alignas(64) uint8_t body[BODY_BYTES], copy[BODY_BYTES];
static size_t body_len;
static struct arena memory;

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void print(const char *what, double bytes, double time)
{
    printf("  %-44s %8.1f us %7.0f MB/s\n", what, 1e6 * time,
           1e-6 * bytes / time);
}

/* ---- the runs: false ends the program ---- */

static bool copy_body(void)
{
    memcpy(copy, body, body_len);
    __asm__ volatile("" ::: "memory");
    return true;
}

static bool decode(const struct wire_format *format, size_t offset)
{
    struct request request;
    struct error err = { ERR_NONE };

    arena_reset(&memory, SIZE_MAX);
    return format->decode((struct bytes){ body + offset, body_len }, NULL, NULL,
                          &memory, &request, &err);
}

static bool decode_in_place(void)
{
    return decode(&wire_safetensors, 0);
}

static bool decode_unaligned(void)
{
    return decode(&wire_safetensors, 1);
}

static bool decode_npy(void)
{
    return decode(&wire_npy, 0);
}

static struct mha_response mha;
static struct buffer out;

static bool encode(const struct wire_format *format)
{
    struct request request = { 0 };
    struct mha_plan plan = { .request = &request.mha };
    struct response response = { .mha = &mha, .kernels = "" };

    out.len = 0;
    format->place(&request, &mha, &out);
    format->encode(&request, &plan, &response, &out);
    return !out.failed;
}

static bool encode_safetensors(void)
{
    return encode(&wire_safetensors);
}

static bool encode_npy(void)
{
    return encode(&wire_npy);
}

static enum coding coding;

static bool pack(void)
{
    out.len = 0;
    return coding_pack(coding, (struct bytes){ body, body_len }, true, &out);
}

static bool unpack(void)
{
    struct error err = { ERR_NONE };
    struct unpacking u;
    enum coding_state state;
    size_t len;

    if (!coding_open(&u, coding, (struct bytes){ out.data, out.len }, &err))
        return false;
    state = coding_read(&u, copy, sizeof copy, &len, &err);
    coding_close(&u);
    return state == CODING_END && len == body_len;
}

static void bench(const char *what, bool (*run)(void), double bytes)
{
    double best = 1e9;

    for (int i = 0; i < RUNS; i++) {
        double start = seconds();

        if (!run()) {
            fprintf(stderr, "%s failed\n", what);
            exit(1);
        }
        start = seconds() - start;
        best = start < best ? start : best;
    }
    print(what, bytes, best);
}

/* ---- bodies ---- */

/* Numbers of about 1, of any dtype in which these bytes are some. */
static void fill_numbers(uint8_t *to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] = i % 2 == 0 ? (uint8_t)(i * 7) : 0x3C;
}

static void make_safetensors(const char *dtype, size_t size, size_t offset)
{
    char header[256];
    uint64_t len = (uint64_t)snprintf(
        header, sizeof header,
        "{\"query\":{\"dtype\":\"%s\",\"shape\":[%d,%d],\"data_offsets\":[0,"
        "%zu]}}", dtype, ROWS, COLUMNS, size * COUNT);
    uint64_t padded = (len + 7) / 8 * 8;

    memset(body + offset, ' ', 8 + padded);
    memcpy(body + offset, &padded, 8);
    memcpy(body + offset + 8, header, len);
    fill_numbers(body + offset + 8 + padded, size * COUNT);
    body_len = 8 + padded + size * COUNT;
}

static void make_npy(const char *descr, const char *order)
{
    const struct tensor t = tensor_packed(NULL, DTYPE_F32, 2,
                                          (int64_t[]){ ROWS, COLUMNS });
    size_t len = npy_write_header(&t, (char *)body);

    memcpy(memmem(body, len, "<f4", 3), descr, 3);
    memcpy(memmem(body, len, "False,", 6), order, 6);
    fill_numbers(body + len, sizeof(float) * COUNT);
    body_len = len + sizeof(float) * COUNT;
}

/* Text as replies have it. */
static void make_text(void)
{
    unsigned x = 1;

    body_len = 0;
    for (int i = 0; i < COUNT; i++) {
        x = x * 1664525 + 1013904223;
        body_len += (size_t)snprintf((char *)body + body_len, 32, "%.8g,",
                                     (double)x / 0x1p31 - 1);
    }
}

static void bench_packing(enum coding which)
{
    char what[64];

    coding = which;
    snprintf(what, sizeof what, "pack numbers, %s", coding_name(which));
    bench(what, pack, (double)body_len);
    snprintf(what, sizeof what, "unpack them, %s (%.0f %%)", coding_name(which),
             100 * (double)out.len / (double)body_len);
    bench(what, unpack, (double)body_len);
}

int main(void)
{
    arena_init(&memory, (size_t)1 << 28);
    buffer_init(&out, SIZE_MAX / 4);
    make_safetensors("F32", 4, 0);
    bench("memcpy", copy_body, (double)body_len);
    bench("safetensors F32, in place", decode_in_place, (double)body_len);
    make_safetensors("F16", 2, 0);
    bench("safetensors F16", decode_in_place, (double)body_len);
    make_safetensors("F64", 8, 0);
    bench("safetensors F64", decode_in_place, (double)body_len);
    make_safetensors("F32", 4, 1);
    bench("safetensors F32, not aligned", decode_unaligned, (double)body_len);
    make_npy("<f4", "False,");
    bench("npy <f4", decode_npy, (double)body_len);
    make_npy("<f4", "True, ");
    bench("npy <f4, fortran_order", decode_npy, (double)body_len);
    make_npy(">f4", "False,");
    bench("npy >f4", decode_npy, (double)body_len);

    mha.output = tensor_packed(NULL, DTYPE_F32, 2,
                               (int64_t[]){ ROWS, COLUMNS });
    bench("reply in safetensors", encode_safetensors, 4.0 * COUNT);
    bench("reply in npy", encode_npy, 4.0 * COUNT);
    make_text();
    bench_packing(CODING_GZIP);
    bench_packing(CODING_ZSTD);
    buffer_free(&out);
    arena_free(&memory);
    return 0;
}
