#include "api/number_array.h"

#include "api/number.h"
#include "api/number_layout.h"
#include "api/number_run.h"
#include "core/cpu.h"

#include <math.h>
#include <string.h>

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    return p;
}

/* Behind `c` and white space around it; NULL when something else is there. */
static const char *skip_around(const char *p, const char *end, char c)
{
    p = skip_space(p, end);
    return p < end && *p == c ? skip_space(p + 1, end) : NULL;
}

/* Where the next number has to stand. NULL: the run ends here. */
static const char *next_number(const struct number_run *run)
{
    const char *p = run->at, *end = run->end;

    if (run->count == 0)
        return skip_space(p, end);
    if (run->row == 0 || run->count % run->row != 0)
        return skip_around(p, end, ',');
    p = skip_around(p, end, ']');
    if (p == NULL || p == end || *p != ',')
        return NULL;
    return skip_around(p + 1, end, '[');
}

/* One number more. False when the run ends, before it or with it. */
#define STEP(NAME, TYPE, READ)                                                 \
    static bool NAME(struct number_run *run, TYPE *out)                        \
    {                                                                          \
        const char *p;                                                         \
        size_t len;                                                            \
                                                                               \
        if (run->count == run->room ||                                         \
            (run->count > 0 && isinf(out[run->count - 1])))                    \
            return false;                                                      \
        p = next_number(run);                                                  \
        len = p != NULL ? READ(p, run->end, out + run->count) : 0;             \
        if (len == 0)                                                          \
            return false;                                                      \
        run->at = p + len;                                                     \
        return !isinf(out[run->count++]);                                      \
    }

STEP(step_f32, float, number_read_f32)
STEP(step_f64, double, number_read_f64)

static void read_f32(struct number_run *run, float *out)
{
    while (step_f32(run, out))
        continue;
}

static void read_f64(struct number_run *run, double *out)
{
    while (step_f64(run, out))
        continue;
}

typedef int8_t block __attribute__((vector_size(16)));

static void count_byte(struct number_tally *tally, char c)
{
    tally->commas += c == ',';
    tally->open += (c == '[' || c == '{') - (c == ']' || c == '}');
}

/* '[' and '{', as ']' and '}', differ in bit 5 alone. Lanes hold up to 127. */
static void count_blocks(struct number_tally *tally, const char *p,
                         size_t blocks)
{
    block commas = { 0 }, open = { 0 };

    for (size_t i = 0; i < blocks; i++) {
        block x;

        memcpy(&x, p + i * sizeof x, sizeof x);
        commas -= x == ',';
        open -= (x | 0x20) == '{';
        open += (x | 0x20) == '}';
    }
    for (size_t lane = 0; lane < sizeof commas; lane++) {
        tally->commas += (size_t)commas[lane];
        tally->open += open[lane];
    }
}

static void count(const char *p, const char *end, struct number_tally *tally)
{
    while (end - p >= (ptrdiff_t)sizeof(block)) {
        size_t blocks = (size_t)(end - p) / sizeof(block);

        if (blocks > 127)
            blocks = 127;
        count_blocks(tally, p, blocks);
        p += blocks * sizeof(block);
    }
    while (p < end)
        count_byte(tally, *p++);
}

static size_t write_null(char *out)
{
    memcpy(out, "null", 4);
    return 4;
}

static char *write_f32(const float *values, size_t count, char *out)
{
    for (size_t i = 0; i < count; i++) {
        out += isfinite(values[i]) ? number_write_f32(values[i], out)
                                   : write_null(out);
        *out++ = ',';
    }
    return out - (count > 0);
}

char *number_write_singly_f64(const double *values, size_t count, char *out)
{
    for (size_t i = 0; i < count; i++) {
        out += isfinite(values[i]) ? number_write_f64(values[i], out)
                                   : write_null(out);
        *out++ = ',';
    }
    return out - (count > 0);
}

static char *write_rows_f32(const float *values, size_t count, size_t row,
                            char *out)
{
    for (size_t i = 0; i < count; i += row) {
        if (i > 0)
            out = (char *)memcpy(out, "],[", 3) + 3;
        out = number_write_run_f32(values + i, row, out);
    }
    return out;
}

static const struct level {
    const char *name;
    uint32_t needs; /* every bit must be there */
    void (*read_f32)(struct number_run *run, float *out);
    void (*read_f64)(struct number_run *run, double *out);
    void (*count)(const char *text, const char *end,
                  struct number_tally *tally);
    char *(*write_f32)(const float *values, size_t count, char *out);
    char *(*write_f64)(const double *values, size_t count, char *out);
    char *(*write_rows_f32)(const float *values, size_t count, size_t row,
                            char *out); /* short ones */
} levels[] = {
    { "portable", 0, read_f32, read_f64, count, write_f32,
      number_write_singly_f64, write_rows_f32 },
#if defined(__x86_64__)
    { "avx2", CPU_AVX2, number_read_avx2_f32, number_read_avx2_f64,
      number_count_avx2, number_write_avx2_f32, number_write_avx2_f64,
      number_write_avx2_rows_f32 },
    { "avx512", CPU_AVX2 | CPU_AVX512 | CPU_AVX512_VBMI2,
      number_read_avx512_f32, number_read_avx512_f64, number_count_avx512,
      number_write_avx512_f32, number_write_avx512_f64,
      number_write_avx2_rows_f32 },
#endif
};

static const char *const ceilings[] = { "portable", "avx2", "avx512", "amx" };

static const struct level *chosen = levels;

/* In the order of the ceilings. NULL: no such word. */
static const char *const *find_ceiling(const char *word)
{
    for (size_t i = 0; i < sizeof ceilings / sizeof *ceilings; i++) {
        if (strcmp(word, ceilings[i]) == 0)
            return &ceilings[i];
    }
    return NULL;
}

bool number_select(uint32_t features, const char *ceiling)
{
    static bool has_layouts; /* the same for every level */
    const char *const *most = find_ceiling(ceiling != NULL ? ceiling : "amx");

    if (most == NULL)
        return false;
    if (!has_layouts)
        number_layouts_make();
    has_layouts = true;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if ((features & levels[i].needs) == levels[i].needs &&
            find_ceiling(levels[i].name) <= most)
            chosen = &levels[i];
    }
    return true;
}

const char *number_selected(void)
{
    return chosen->name;
}

/* From so many numbers on a row is read as a run of its own: looking for
 * brackets as well costs a fifth. */
enum { LONG_ROW_READ = 256 };

/* A level stops for what it can't tell as well as at the run's end: the step
 * finds out which. It also passes the brackets between long rows. */
#define READ_ROWS(NAME, ROWS, TYPE, FORMAT, STEP)                              \
    static void NAME(struct number_run *run, TYPE *out)                        \
    {                                                                          \
        do                                                                     \
            chosen->FORMAT(run, out);                                          \
        while (STEP(run, out));                                                \
    }                                                                          \
                                                                               \
    const char *ROWS(const char *text, const char *end, size_t row, TYPE *out, \
                     size_t room, size_t *count)                               \
    {                                                                          \
        struct number_run run = { text, text, end, row, room, 0 };             \
                                                                               \
        if (row < LONG_ROW_READ)                                               \
            NAME(&run, out);                                                   \
        else                                                                   \
            do {                                                               \
                size_t full = run.count - run.count % row + row;               \
                                                                               \
                run.row = 0;                                                   \
                run.room = full < room ? full : room;                          \
                NAME(&run, out);                                               \
                run.row = row;                                                 \
                run.room = room;                                               \
            } while (run.count % row == 0 && STEP(&run, out));                 \
        *count = run.count;                                                    \
        return run.at;                                                         \
    }

READ_ROWS(read_on_f32, number_read_rows_f32, float, read_f32, step_f32)
READ_ROWS(read_on_f64, number_read_rows_f64, double, read_f64, step_f64)

const char *number_read_run_f32(const char *text, const char *end, float *out,
                                size_t room, size_t *count)
{
    return number_read_rows_f32(text, end, 0, out, room, count);
}

const char *number_read_run_f64(const char *text, const char *end, double *out,
                                size_t room, size_t *count)
{
    return number_read_rows_f64(text, end, 0, out, room, count);
}

const char *number_read(const char *text, const char *end, size_t row,
                        const struct number_place *to, size_t first,
                        size_t *count)
{
    size_t room = to->room - first;

    return to->wide ? number_read_rows_f64(text, end, row,
                                           (double *)to->data + first, room,
                                           count)
                    : number_read_rows_f32(text, end, row,
                                           (float *)to->data + first, room,
                                           count);
}

void number_count(const char *text, const char *end,
                  struct number_tally *tally)
{
    chosen->count(text, end, tally);
}

char *number_write_run_f32(const float *values, size_t count, char *out)
{
    return chosen->write_f32(values, count, out);
}

char *number_write_run_f64(const double *values, size_t count, char *out)
{
    return chosen->write_f64(values, count, out);
}

/* From so many numbers on a row is worth a run of its own. */
enum { LONG_ROW = 32 };

char *number_write_rows_f32(const float *values, size_t count, size_t row,
                            char *out)
{
    return (row < LONG_ROW ? chosen->write_rows_f32 : write_rows_f32)(
        values, count, row, out);
}
