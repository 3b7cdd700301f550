#include "api/number.h"
#include "api/number_array.h"
#include "core/cpu.h"
#include "tests/unit/number_draw.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What is too long for `make test`, by hand, on every processor there is:
 *
 *     number_proof floats [SHARE]   all 2^32 float32, or one in SHARE: written
 *                                   the same at every level, read back by every
 *                                   level and by strtof; one in 101 against the
 *                                   shortest that snprintf finds
 *     number_proof doubles [COUNT]  the same of 10^8 float64 of every kind
 *     number_proof numbers [COUNT]  10^8 numbers of every kind, read at every
 *                                   level as strtof and strtod read them
 *
 * Ends with the counts, or at the first difference with status 1. */

enum { PIECE = 4096, LEVELS_MAX = 3 };

static const char *levels[LEVELS_MAX];
static int level_count;

static void differ(const char *what, const char *level, double value,
                   const char *text)
{
    fprintf(stderr, "%s at %s: %a: %.60s\n", what, level, value, text);
    exit(1);
}

static void find_levels(void)
{
    static const char *const names[] = { "portable", "avx2", "avx512" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        number_select(cpu_features(), names[i]);
        if (strcmp(number_selected(), names[i]) == 0)
            levels[level_count++] = names[i];
    }
}

static void select_level(int i)
{
    number_select(cpu_features(), levels[i]);
}

static double read_back(const char *text, bool wide)
{
    return wide ? strtod(text, NULL) : (double)strtof(text, NULL);
}

/* No decimal of one digit less, above or below, reads back. Beside one nine
 * digits are what is wanted of a float32. */
static void check_shortest(double value, bool wide, const char *text,
                           size_t len)
{
    char digits[32], nearest[32];
    int count = 0;
    double beside = fabs(value) - 1;

    if (value == 0 || (!wide && beside > 0 && beside < 64 * 0x1p-23))
        return;
    for (size_t i = 0; i < len && text[i] != 'e'; i++) {
        if (text[i] >= '0' && text[i] <= '9' && (count > 0 || text[i] != '0'))
            digits[count++] = text[i];
    }
    while (count > 1 && digits[count - 1] == '0')
        count--;
    if (count == 1)
        return;
    snprintf(nearest, sizeof nearest, "%.*e", count - 2, value);
    if (read_back(nearest, wide) == value)
        differ("not the shortest", number_selected(), value, text);
    snprintf(nearest, sizeof nearest, "%.*e", count - 1, value);
    if (read_back(nearest, wide) == value &&
        strtold(nearest, NULL) != strtold(text, NULL))
        differ("not the nearest", number_selected(), value, text);
}

/* ---- floats ---- */

static size_t fill_finite(uint64_t first, uint64_t step, float *values)
{
    size_t count = 0;

    for (size_t i = 0; i < PIECE && first + i * step <= UINT32_MAX; i++) {
        values[count] = float_of((uint32_t)(first + i * step));
        count += isfinite(values[count]);
    }
    return count;
}

/* Each text by itself, and what libc makes of it. */
static void check_texts(const float *values, size_t count, char *text,
                        uint64_t first)
{
    for (size_t i = 0; i < count; i++) {
        char *end, *was = text;
        float back = strtof(text, &end);

        if (memcmp(&back, &values[i], sizeof back) != 0)
            differ("strtof", "libc", (double)values[i], text);
        if ((first + i) % 101 == 0)
            check_shortest((double)values[i], false, was,
                           (size_t)(end - was));
        text = end + 1;
    }
}

static uint64_t prove_piece(uint64_t first, uint64_t step)
{
    static float values[PIECE], back[PIECE];
    static char text[PIECE * NUMBER_F32_BYTES], other[PIECE * NUMBER_F32_BYTES];
    size_t count = fill_finite(first, step, values), len = 0, read;

    if (count == 0)
        return 0;
    for (int i = 0; i < level_count; i++) {
        char *to = i == 0 ? text : other;
        size_t took;

        select_level(i);
        took = (size_t)(number_write_run_f32(values, count, to) - to);
        if (i == 0)
            len = took;
        else if (took != len || memcmp(text, other, len) != 0)
            differ("written otherwise", levels[i], (double)values[0], other);
        number_read_run_f32(text, text + len, back, PIECE, &read);
        if (read != count || memcmp(values, back, count * sizeof *back) != 0)
            differ("read back otherwise", levels[i], (double)values[0], text);
    }
    text[len] = '\0';
    check_texts(values, count, text, first);
    return count;
}

static uint64_t prove_floats(uint64_t part, uint64_t parts, uint64_t share)
{
    uint64_t done = 0, from = ((uint64_t)1 << 32) / parts * part;
    uint64_t to = part + 1 < parts ? ((uint64_t)1 << 32) / parts * (part + 1)
                                   : (uint64_t)1 << 32;

    for (uint64_t first = from + part % share; first < to;
         first += PIECE * share)
        done += prove_piece(first, share);
    return done;
}

/* ---- doubles ---- */

static size_t draw_finite(size_t kind, double *values)
{
    size_t count = 0;

    for (size_t i = 0; i < PIECE; i++) {
        values[count] = draw_double(kind);
        count += isfinite(values[count]);
    }
    return count;
}

static void check_wide_texts(const double *values, size_t count, char *text)
{
    for (size_t i = 0; i < count; i++) {
        char *end, *was = text;
        double back = strtod(text, &end);

        if (memcmp(&back, &values[i], sizeof back) != 0)
            differ("strtod", "libc", values[i], text);
        if (i % 4 == 0)
            check_shortest(values[i], true, was, (size_t)(end - was));
        text = end + 1;
    }
}

static uint64_t prove_wide_piece(size_t kind)
{
    static double values[PIECE], back[PIECE];
    static char text[PIECE * NUMBER_F64_BYTES], other[PIECE * NUMBER_F64_BYTES];
    size_t count = draw_finite(kind, values), len = 0, read;

    for (int i = 0; i < level_count; i++) {
        char *to = i == 0 ? text : other;
        size_t took;

        select_level(i);
        took = (size_t)(number_write_run_f64(values, count, to) - to);
        if (i == 0)
            len = took;
        else if (took != len || memcmp(text, other, len) != 0)
            differ("written otherwise", levels[i], values[0], other);
        number_read_run_f64(text, text + len, back, PIECE, &read);
        if (read != count || memcmp(values, back, count * sizeof *back) != 0)
            differ("read back otherwise", levels[i], values[0], text);
    }
    text[len] = '\0';
    check_wide_texts(values, count, text);
    return count;
}

static uint64_t prove_doubles(uint64_t part, uint64_t parts, uint64_t count)
{
    uint64_t done = 0, pieces = count / parts / PIECE;

    random_state = part + 1;
    for (uint64_t i = 0; i <= pieces; i++)
        done += prove_wide_piece(i % (DRAWS + 1));
    return done;
}

/* ---- numbers ---- */

/* Reads the runs of both formats; what overflows ends one, and the next begins
 * behind it. */
static void prove_text(const char *text, const char *end, const float *want,
                       const double *want_wide, size_t count)
{
    static float got[PIECE];
    static double got_wide[PIECE];
    size_t done, n;
    const char *p;

    for (p = text, done = 0; done < count; done += n, p++) {
        p = number_read_run_f32(p, end, got + done, count - done, &n);
        if (n == 0)
            differ("no number", number_selected(), (double)want[done], p);
    }
    for (p = text, done = 0; done < count; done += n, p++) {
        p = number_read_run_f64(p, end, got_wide + done, count - done, &n);
        if (n == 0)
            differ("no number", number_selected(), want_wide[done], p);
    }
    for (size_t i = 0; i < count; i++) {
        if (memcmp(got + i, want + i, sizeof *want) != 0)
            differ("float32", number_selected(), (double)want[i], text);
        if (memcmp(got_wide + i, want_wide + i, sizeof *want_wide) != 0)
            differ("float64", number_selected(), want_wide[i], text);
    }
}

static uint64_t prove_numbers(uint64_t part, uint64_t parts, uint64_t count)
{
    static float want[PIECE];
    static double want_wide[PIECE];
    struct text t = { 0 };
    uint64_t done = 0;

    random_state = part + 1;
    for (; done < count / parts; done += PIECE) {
        t.len = 0;
        add_run(&t, PIECE, done / PIECE % (KINDS + 1), 0, COMPACT);
        *text_room(&t, 1) = '\0';

        char *end = t.data, *end_wide = t.data;

        for (size_t i = 0; i < PIECE; i++) {
            want[i] = strtof(end + (i > 0), &end);
            want_wide[i] = strtod(end_wide + (i > 0), &end_wide);
        }
        for (int i = 0; i < level_count; i++) {
            select_level(i);
            prove_text(t.data, t.data + t.len, want, want_wide, PIECE);
        }
    }
    free(t.data);
    return done;
}

/* ---- a process for each processor ---- */

static const struct proof {
    const char *what;
    uint64_t (*prove)(uint64_t part, uint64_t parts, uint64_t number);
    uint64_t number; /* unless it is given */
} proofs[] = {
    { "floats", prove_floats, 1 },
    { "doubles", prove_doubles, 100000000 },
    { "numbers", prove_numbers, 100000000 },
};

static int usage(void)
{
    fprintf(stderr, "usage: number_proof floats [SHARE] | doubles [COUNT] | "
                    "numbers [COUNT]\n");
    return 2;
}

static const struct proof *find_proof(const char *what)
{
    for (size_t i = 0; i < sizeof proofs / sizeof *proofs; i++) {
        if (strcmp(what, proofs[i].what) == 0)
            return &proofs[i];
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const struct proof *proof = argc > 1 ? find_proof(argv[1]) : NULL;
    long parts = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t number;
    int status, failed = 0;

    if (proof == NULL)
        return usage();
    number = argc > 2 ? strtoull(argv[2], NULL, 10) : proof->number;
    if (number == 0)
        return usage();
    find_levels();
    for (long part = 0; part < parts; part++) {
        if (fork() != 0)
            continue;

        uint64_t done = proof->prove((uint64_t)part, (uint64_t)parts, number);

        printf("%llu %s right, up to %s\n", (unsigned long long)done,
               proof->what, levels[level_count - 1]);
        return 0;
    }
    while (wait(&status) > 0)
        failed |= status;
    return failed != 0;
}
