#ifndef TESTS_UNIT_REQUEST_TEXT_H
#define TESTS_UNIT_REQUEST_TEXT_H

#include "core/mha.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A request as one line of text, so that a table can hold it and a failure can
 * print it: "query 2 5 4;num_heads 2;attn_mask? 5 5" is two tensors (random
 * numbers; '?' random booleans, '%' random zeros and ones, '-' numbers some of
 * which are -inf, '!' a flaw) and an option. */
enum { ITEMS_MAX = 12, NUMBERS_MAX = 1 << 20, TEXT_MAX = 1500 };

struct fixture {
    struct mha_request r;
    struct named_tensor item[ITEMS_MAX];
    char text[TEXT_MAX];
    void *numbers;
    size_t used_bytes;
    struct error flaw;
};

static unsigned seed;

static unsigned draw(unsigned below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

static double draw_number(void)
{
    return (double)draw(1 << 16) / (1 << 15) - 1;
}

static void fill(struct tensor *t, char kind)
{
    int64_t count = tensor_count(t);

    for (int64_t i = 0; i < count; i++) {
        double x = kind == '?' || kind == '%' ? draw(4) == 0 : draw_number();

        if (kind == '-' && draw(4) == 0)
            x = -INFINITY;
        if (t->dtype == DTYPE_BOOL)
            ((uint8_t *)t->data)[i] = x != 0;
        else if (t->dtype == DTYPE_F64)
            ((double *)t->data)[i] = x;
        else
            ((float *)t->data)[i] = (float)x;
    }
}

#define FIELD(name) { #name, offsetof(struct mha_request, name) }

static const struct field {
    const char *name;
    size_t offset;
} tensors[] = {
    FIELD(query), FIELD(key), FIELD(value), FIELD(alibi_slopes), FIELD(sinks),
    FIELD(key_padding_mask), FIELD(attention_mask), FIELD(attn_mask),
    FIELD(compare_output), FIELD(compare_weights),
    { "hidden_states", offsetof(struct mha_request, query) },
};

static const struct field doubles[] = {
    FIELD(scale), FIELD(softcap), FIELD(dropout_p), FIELD(mask_filter_value),
};

static const struct field counts[] = {
    FIELD(num_heads), FIELD(num_kv_heads), FIELD(weights_top_k), FIELD(seed),
};

static const struct field flags[] = {
    FIELD(has_scale), FIELD(add_zero_attn), FIELD(is_causal),
    FIELD(has_window), FIELD(need_weights), FIELD(average_attn_weights),
    FIELD(has_output_projection), FIELD(output_projection),
};

static const struct field enums[] = {
    FIELD(layout), FIELD(precision), FIELD(causal_alignment),
    FIELD(conventions), FIELD(returns),
};

#define FIND(table, name) find(table, sizeof table / sizeof *table, name)

static const struct field *find(const struct field *table, size_t count,
                                const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    }
    return NULL;
}

static struct named_tensor read_tensor(struct fixture *f, const char *name,
                                       char kind, const double *n, int rank)
{
    enum dtype dtype = kind == '?' ? DTYPE_BOOL
                       : f->r.precision == PRECISION_F64 ? DTYPE_F64
                                                         : DTYPE_F32;
    struct named_tensor t = { .name = name };
    int64_t dim[4];

    for (int i = 0; i < rank; i++)
        dim[i] = (int64_t)n[i];
    t.value = tensor_packed((char *)f->numbers + f->used_bytes, dtype, rank,
                            dim);
    f->used_bytes += ((size_t)tensor_count(&t.value) * 8 + 63) / 64 * 64;
    assert_true(f->used_bytes <= NUMBERS_MAX * sizeof(double));
    fill(&t.value, kind);
    if (kind == '!') {
        f->flaw = (struct error){ ERR_TYPE, "/flawed", "flawed" };
        t = (struct named_tensor){ name, { 0 }, &f->flaw };
    }
    return t;
}

static void read_option(struct mha_request *r, const char *name,
                        const double *n)
{
    char *base = (char *)r;
    const struct field *field;

    if ((field = FIND(doubles, name)) != NULL)
        *(double *)(void *)(base + field->offset) = n[0];
    else if ((field = FIND(counts, name)) != NULL)
        *(int64_t *)(void *)(base + field->offset) = (int64_t)n[0];
    else if ((field = FIND(flags, name)) != NULL)
        *(bool *)(base + field->offset) = n[0] != 0;
    else if ((field = FIND(enums, name)) != NULL)
        *(unsigned *)(void *)(base + field->offset) = (unsigned)n[0];
    else if (strcmp(name, "window") == 0)
        memcpy(r->window, (int64_t[]){ (int64_t)n[0], (int64_t)n[1] },
               sizeof r->window);
    else
        fail_msg("the test does not know %s", name);
    r->has_scale = r->has_scale || strcmp(name, "scale") == 0;
    r->has_window = r->has_window || strcmp(name, "window") == 0;
}

static void read_field(struct fixture *f, char *line)
{
    char *rest, *name = strtok_r(line, " ", &rest), *word;
    char kind = name[strlen(name) - 1];
    double n[8];
    int count = 0;
    const struct field *field;

    if (strchr("?%-!", kind) != NULL)
        name[strlen(name) - 1] = '\0';
    while ((word = strtok_r(NULL, " ", &rest)) != NULL)
        n[count++] = strtod(word, NULL);
    if ((field = FIND(tensors, name)) != NULL) {
        *(struct named_tensor *)(void *)((char *)&f->r + field->offset) =
            read_tensor(f, name, kind, n, count);
        return;
    }
    if (strncmp(name, "state_dict", 10) != 0) {
        read_option(&f->r, name, n);
        return;
    }
    f->r.has_state_dict = true;
    f->r.state_dict.item = f->item;
    if (name[10] != '\0')
        f->item[f->r.state_dict.count++] =
            read_tensor(f, name + 11, kind, n, count);
}

/* Fields are read in order: `precision` comes before tensors. */
static const struct mha_request *request_read(struct fixture *f,
                                              const char *text)
{
    char *rest;

    f->used_bytes = 0;
    mha_request_init(&f->r);
    snprintf(f->text, sizeof f->text, "%s", text);
    for (char *line = strtok_r(f->text, ";", &rest); line != NULL;
         line = strtok_r(NULL, ";", &rest))
        read_field(f, line);
    return &f->r;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    if (f == NULL)
        return -1;
    f->numbers = calloc(NUMBERS_MAX, sizeof(double));
    seed = 7;
    *state = f;
    return f->numbers == NULL ? -1 : 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    free(f->numbers);
    free(f);
    return 0;
}

#endif
