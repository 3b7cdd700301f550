#include "api/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Million numbers a second, one thread, medians of rounds that take turns, so
 * that what slows the machine slows all rows. */

enum { NUMBERS = 100000, ROUNDS = 15, TEXT_BYTES = NUMBERS * 32 };

static char text[TEXT_BYTES], out[TEXT_BYTES];
static float floats[NUMBERS];
static double doubles[NUMBERS];
static size_t text_len;
static volatile uint64_t sink;

static uint64_t random64(void)
{
    static uint64_t state = 1;

    state = state * 6364136223846793005U + 1442695040888963407U;
    return (state ^ state >> 29) * 0xbf58476d1ce4e5b9U;
}

/* About what activations look like: a bell around 0, width near 1. */
static void fill_values(void)
{
    for (size_t i = 0; i < NUMBERS; i++) {
        double sum = -2;

        for (int j = 0; j < 4; j++)
            sum += (double)(random64() >> 11) * 0x1p-53;
        doubles[i] = sum * 1.7;
        floats[i] = (float)doubles[i];
    }
}

static void fill_text(int digits)
{
    text_len = 0;
    for (size_t i = 0; i < NUMBERS; i++)
        text_len += (size_t)snprintf(text + text_len, TEXT_BYTES - text_len,
                                     "%.*g, ", digits, doubles[i]);
}

static uint64_t read_f32(void)
{
    uint64_t sum = 0;

    for (const char *p = text, *end = text + text_len; p < end; p += 2) {
        float value = 0;

        p += number_read_f32(p, end, &value);
        sum += (uint64_t)(int64_t)(value * 64);
    }
    return sum;
}

static uint64_t read_f64(void)
{
    uint64_t sum = 0;

    for (const char *p = text, *end = text + text_len; p < end; p += 2) {
        double value = 0;

        p += number_read_f64(p, end, &value);
        sum += (uint64_t)(int64_t)(value * 64);
    }
    return sum;
}

static uint64_t read_strtof(void)
{
    uint64_t sum = 0;

    for (char *p = text, *end = text + text_len; p < end; p += 2)
        sum += (uint64_t)(int64_t)(strtof(p, &p) * 64);
    return sum;
}

static uint64_t write_f32(void)
{
    char *p = out;

    for (size_t i = 0; i < NUMBERS; i++) {
        p += number_write_f32(floats[i], p);
        *p++ = ',';
    }
    return (uint64_t)(p - out);
}

static uint64_t write_f64(void)
{
    char *p = out;

    for (size_t i = 0; i < NUMBERS; i++) {
        p += number_write_f64(doubles[i], p);
        *p++ = ',';
    }
    return (uint64_t)(p - out);
}

static uint64_t write_snprintf(void)
{
    char *p = out;

    for (size_t i = 0; i < NUMBERS; i++)
        p += snprintf(p, 32, "%.9g,", (double)floats[i]);
    return (uint64_t)(p - out);
}

static const struct row {
    const char *name;
    int digits; /* of the text to read; 0: writes */
    uint64_t (*run)(void);
} rows[] = {
    { "read f32, 17 digits", 17, read_f32 },
    { "read f32, 8 digits", 8, read_f32 },
    { "read f64, 17 digits", 17, read_f64 },
    { "strtof, 17 digits", 17, read_strtof },
    { "strtof, 8 digits", 8, read_strtof },
    { "write f32", 0, write_f32 },
    { "write f64", 0, write_f64 },
    { "snprintf %.9g", 0, write_snprintf },
};

enum { ROWS = sizeof rows / sizeof *rows };

static double seconds(uint64_t (*run)(void))
{
    struct timespec from, to;

    clock_gettime(CLOCK_MONOTONIC, &from);
    sink = run();
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (double)(to.tv_sec - from.tv_sec) +
           1e-9 * (double)(to.tv_nsec - from.tv_nsec);
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(void)
{
    static double took[ROWS][ROUNDS];

    fill_values();
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < ROWS; i++) {
            if (rows[i].digits != 0)
                fill_text(rows[i].digits);
            took[i][round] = seconds(rows[i].run);
        }
    }
    for (size_t i = 0; i < ROWS; i++) {
        qsort(took[i], ROUNDS, sizeof **took, rising);
        printf("number  %-20s %7.1f M/s\n", rows[i].name,
               NUMBERS / took[i][ROUNDS / 2] * 1e-6);
    }
    return 0;
}
