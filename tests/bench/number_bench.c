#include "api/json_tensor.h"
#include "api/number.h"
#include "api/number_array.h"
#include "tests/bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Million numbers a second, one thread: runs of a million at every level the
 * processor has, beside libc one at a time; and the elements of masks, as they
 * are read from JSON. */

enum { NUMBERS = 1000000, TEXT_BYTES = NUMBERS * 40, LEVELS_MAX = 3 };

static char text[TEXT_BYTES], out[TEXT_BYTES];
static float floats[NUMBERS];
static double doubles[NUMBERS];
static size_t text_len;
static const char *levels[LEVELS_MAX];
static int level_count;

static uint64_t random64(void)
{
    static uint64_t state = 1;

    state = state * 6364136223846793005U + 1442695040888963407U;
    return (state ^ state >> 29) * 0xbf58476d1ce4e5b9U;
}

/* About what activations look like: a bell around 0, width near 1. */
static double activation(void)
{
    double sum = -2;

    for (int j = 0; j < 4; j++)
        sum += (double)(random64() >> 11) * 0x1p-53;
    return sum * 1.7;
}

/* Above zero and mostly small, as what a softmax gives; half of them hidden. */
static double weight(void)
{
    return (random64() & 1) != 0 ? 0 : exp(3 * activation() - 6);
}

static double any_bits(void)
{
    uint32_t bits = (uint32_t)(random64() >> 32);
    float value;

    memcpy(&value, &bits, sizeof value);
    return isfinite(value) ? (double)value : 0;
}

/* ---- reading ---- */

static const struct spelling {
    const char *name, *format, *between;
    size_t row; /* numbers in a row of a nested array; 0: no rows */
    bool wide;
    bool exponents; /* in half of them */
} spellings[] = {
    { "17 digits", "%.17g", ", ", 0, false, false },
    { "17 digits, compact", "%.17g", ",", 0, false, false },
    { "17 digits, a line each", "%.17g", ",\n", 0, false, false },
    { "17 digits, half e-05", "%.17g", ", ", 0, false, true },
    { "17 digits, rows of 64", "%.17g", ", ", 64, false, false },
    { "17 digits, rows of 4", "%.17g", ", ", 4, false, false },
    { "8 digits", "%.8g", ", ", 0, false, false },
    { "9 digits", "%.9g", ", ", 0, false, false },
    { "3 digits", "%.3g", ", ", 0, false, false },
    { "17 digits, to float64", "%.17g", ", ", 0, true, false },
};

static void spell(const struct spelling *s)
{
    text_len = 0;
    for (size_t i = 0; i < NUMBERS; i++) {
        bool row_ends = s->row != 0 && i % s->row == 0 && i > 0;
        double value = activation();

        if (i > 0)
            text_len += (size_t)snprintf(text + text_len, 8, "%s%s%s",
                                         row_ends ? "]" : "", s->between,
                                         row_ends ? "[" : "");
        if (s->exponents && (random64() & 1) != 0)
            text_len += (size_t)snprintf(text + text_len, 40, "%.16e",
                                         value * 1e-5);
        else
            text_len += (size_t)snprintf(text + text_len, 40, s->format, value);
    }
    text[text_len] = '\0';
}

struct work {
    const char *level; /* NULL: libc */
    const struct spelling *spelling;
    const struct values *values;
    const struct mask *mask;
};

static bool read_libc(const struct spelling *s)
{
    char *p = text;

    for (size_t i = 0; i < NUMBERS; i++) {
        if (s->wide)
            doubles[i] = strtod(p, &p);
        else
            floats[i] = strtof(p, &p);
        p += strspn(p, ", \n[]");
    }
    return p == text + text_len;
}

static bool read_all(void *arg)
{
    const struct work *work = arg;
    const struct spelling *s = work->spelling;
    const char *end = text + text_len;
    size_t count = 0;

    if (work->level == NULL)
        return read_libc(s);
    number_select(cpu_features(), work->level);
    if (s->wide)
        number_read_run_f64(text, end, doubles, NUMBERS, &count);
    else if (s->row != 0)
        number_read_rows_f32(text, end, s->row, floats, NUMBERS, &count);
    else
        number_read_run_f32(text, end, floats, NUMBERS, &count);
    return count == NUMBERS;
}

/* ---- writing ---- */

static const struct values {
    const char *name;
    double (*draw)(void);
    bool wide;
} values[] = {
    { "activations", activation, false },
    { "weights, half zero", weight, false },
    { "any bits", any_bits, false },
    { "activations, float64", activation, true },
};

static bool write_libc(const struct values *v)
{
    char *p = out;

    for (size_t i = 0; i < NUMBERS; i++)
        p += snprintf(p, 32, v->wide ? "%.17g," : "%.9g,",
                      v->wide ? doubles[i] : (double)floats[i]);
    return p > out;
}

static bool write_all(void *arg)
{
    const struct work *work = arg;

    if (work->level == NULL)
        return write_libc(work->values);
    number_select(cpu_features(), work->level);
    return work->values->wide
               ? number_write_run_f64(doubles, NUMBERS, out) > out
               : number_write_run_f32(floats, NUMBERS, out) > out;
}

/* ---- masks ---- */

enum { MASK_ROW = 1000 };

static bool hides_half(size_t i)
{
    (void)i;
    return (random64() & 1) != 0;
}

static bool hides_later(size_t i)
{
    return i % MASK_ROW > i / MASK_ROW;
}

static const struct mask {
    const char *name, *shown, *hidden;
    bool (*hides)(size_t i);
    enum field_kind kind;
} masks[] = {
    { "true or false, mixed", "false", "true", hides_half, FIELD_PADDING },
    { "true or false, causal", "false", "true", hides_later, FIELD_BIAS },
    { "1 or 0, mixed", "1", "0", hides_half, FIELD_PADDING },
    { "0 or null, mixed", "0", "null", hides_half, FIELD_BIAS },
    { "0 or null, causal", "0", "null", hides_later, FIELD_BIAS },
    { "0.0 or -Infinity, mixed", "0.0", "-Infinity", hides_half, FIELD_BIAS },
    { "0.0 or -Infinity, causal", "0.0", "-Infinity", hides_later, FIELD_BIAS },
    { "0 or -10000, mixed", "0", "-10000", hides_half, FIELD_BIAS },
};

/* As Python writes it: a space behind each comma. */
static void spell_mask(const struct mask *m)
{
    char *p = text;

    *p++ = '[';
    for (size_t i = 0; i < NUMBERS; i++) {
        if (i % MASK_ROW == 0)
            p = stpcpy(p, i > 0 ? "], [" : "[");
        else
            p = stpcpy(p, ", ");
        p = stpcpy(p, m->hides(i) ? m->hidden : m->shown);
    }
    p = stpcpy(p, "]]");
    text_len = (size_t)(p - text);
}

static bool read_mask(void *arg)
{
    static struct arena arena;
    const struct work *work = arg;
    struct json_tensor how = { .kind = work->mask->kind, .wide = DTYPE_F32,
                               .where = "" };
    struct named_tensor tensor = { .name = "mask" };
    struct error err = { ERR_NONE };
    enum encoding encoding;
    struct cursor json;

    number_select(cpu_features(), work->level);
    arena_reset(&arena, SIZE_MAX);
    arena.cap_bytes = SIZE_MAX;
    cursor_init(&json, text, text_len, &arena, &err);
    return json_tensor_read(&json, &how, &tensor, &encoding) &&
           tensor.flaw == NULL;
}

/* ---- the table ---- */

static void find_levels(void)
{
    static const char *const names[] = { "portable", "avx2", "avx512" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        number_select(cpu_features(), names[i]);
        if (strcmp(number_selected(), names[i]) == 0)
            levels[level_count++] = names[i];
    }
}

/* Behind each level's speed, how many times libc's it is; NULL: libc has no
 * such thing. */
static void race(const char *what, const char *name, const char *libc,
                 bool (*run)(void *), const struct work *common)
{
    struct work work[LEVELS_MAX + 1];
    struct bench_contender contenders[LEVELS_MAX + 1];
    int count = level_count + (libc != NULL);

    for (int i = 0; i < count; i++) {
        work[i] = *common;
        work[i].level = i < level_count ? levels[i] : NULL;
        contenders[i] = (struct bench_contender){
            .name = i < level_count ? levels[i] : libc,
            .run = run,
            .arg = &work[i],
        };
    }
    bench_race(contenders, count);
    bench_json_begin();
    bench_json_text("what", what);
    bench_json_text("numbers", name);
    printf("  %-6s%-26s", what, name);
    for (int i = 0; i < count; i++) {
        double speed = NUMBERS / contenders[i].seconds * 1e-6;

        bench_json_number(contenders[i].name, speed);
        printf("%7.1f", speed);
        if (i < level_count && libc != NULL)
            printf(" (%4.1f)", contenders[level_count].seconds /
                                   contenders[i].seconds);
        else
            printf("%7s", "");
    }
    printf("\n");
    bench_json_end();
}

int main(void)
{
    find_levels();
    printf("million numbers a second, and times libc's (strtof, strtod, "
           "snprintf)\n  %-32s", "");
    for (int i = 0; i < level_count; i++)
        printf("%14s", levels[i]);
    printf("%7s\n", "libc");
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        const struct spelling *s = &spellings[i];

        spell(s);
        race("read", s->name, s->wide ? "strtod" : "strtof", read_all,
             &(struct work){ .spelling = s });
    }
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        for (size_t j = 0; j < NUMBERS; j++) {
            doubles[j] = values[i].draw();
            floats[j] = (float)doubles[j];
        }
        race("write", values[i].name, "snprintf", write_all,
             &(struct work){ .values = &values[i] });
    }
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        spell_mask(&masks[i]);
        race("mask", masks[i].name, NULL, read_mask,
             &(struct work){ .mask = &masks[i] });
    }
    return 0;
}
