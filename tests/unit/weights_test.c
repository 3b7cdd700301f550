#include "core/weights.h"

#include "core/kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A state_dict as text: "name 2 3;name 4;" is a (2, 3) and a (4,). Every
 * element of a tensor is found at its own place in `numbers`. */
enum { ITEMS_MAX = 16 };

struct dict {
    struct named_tensor item[ITEMS_MAX];
    struct tensor_list list;
    char text[600];
};

static float numbers[1 << 16];

static struct tensor_list *dict_read(struct dict *d, const char *text)
{
    char *line, *rest;
    float *next = numbers;

    snprintf(d->text, sizeof d->text, "%s", text);
    d->list = (struct tensor_list){ d->item, 0 };
    for (line = strtok_r(d->text, ";", &rest); line != NULL;
         line = strtok_r(NULL, ";", &rest)) {
        char *word, *name = strtok_r(line, " ", &word), *number;
        int64_t dim[4];
        int rank = 0;

        while ((number = strtok_r(NULL, " ", &word)) != NULL)
            dim[rank++] = strtol(number, NULL, 10);
        d->item[d->list.count++] = (struct named_tensor){
            .name = name,
            .value = tensor_packed(next, DTYPE_F32, rank, dim),
        };
        next += 4096;
    }
    return &d->list;
}

/* query's width 4, key's 3, value's 5, unless a row says otherwise. */
static const struct weights_widths WIDE = { 4, 3, 5, 2, 2 };
static const struct weights_widths SQUARE = { 4, 4, 4, 2, 2 };
static const struct weights_widths GROUPED = { 4, 3, 5, 4, 2 };
static const struct weights_widths UNSOUND = { 4, 3, 5, 3, 2 };

#define BERT "query.weight 6 4;key.weight 6 3;value.weight 8 5;"
#define SEPARATE "q_proj_weight 4 4;k_proj_weight 4 3;v_proj_weight 4 5;"
#define PACKED "in_proj_weight 12 4;"

static const struct {
    const char *dict;
    const struct weights_widths *widths;
    enum error_code code; /* ERR_NONE: it is taken */
    const char *where;
} cases[] = {
    { PACKED, &SQUARE, ERR_NONE, "" },
    { PACKED "in_proj_bias 12;out_proj.weight 4 4;out_proj.bias 4;", &SQUARE,
      ERR_NONE, "" },
    { PACKED "bias_k 1 1 4;bias_v 1 1 4;", &SQUARE, ERR_NONE, "" },
    { PACKED "out_proj.weight 7 4;out_proj.bias 7;", &SQUARE, ERR_NONE, "" },
    { SEPARATE "in_proj_bias 12;bias_v 1 1 4;bias_k 1 1 4;", &WIDE, ERR_NONE,
      "" },
    { "q_proj_weight 4 4;k_proj_weight 2 3;v_proj_weight 2 5;in_proj_bias 8;"
      "bias_k 1 1 2;bias_v 1 1 2;out_proj.weight 4 4;", &GROUPED, ERR_NONE,
      "" },
    { BERT, &WIDE, ERR_NONE, "" },
    { BERT "query.bias 6;key.bias 6;value.bias 8;out_proj.weight 3 8;", &WIDE,
      ERR_NONE, "" },
    { "query.weight 8 4;key.weight 4 3;value.weight 6 5;out_proj.weight 9 12;",
      &GROUPED, ERR_NONE, "" },
    { "query.weight 4 4;key.weight 4 3;", &WIDE, ERR_NONE, "" },
    { BERT, &UNSOUND, ERR_NONE, "" }, /* the heads are refused elsewhere */

    /* names */
    { "", &WIDE, ERR_MISSING, "/state_dict" },
    { "out_proj.weight 4 4;", &WIDE, ERR_MISSING, "/state_dict" },
    { "weight 1 1;", &WIDE, ERR_UNKNOWN, "/state_dict" },
    { PACKED "attn.in_proj_weight 12 4;", &SQUARE, ERR_UNKNOWN,
      "/state_dict" },
    { PACKED "In_proj_bias 12;", &SQUARE, ERR_UNKNOWN, "/state_dict" },
    { PACKED "q_proj_weight 4 4;", &SQUARE, ERR_CONFLICT, "/state_dict" },
    { PACKED "query.weight 4 4;", &SQUARE, ERR_CONFLICT, "/state_dict" },
    { BERT "in_proj_bias 12;", &WIDE, ERR_CONFLICT, "/state_dict" },
    { BERT "bias_k 1 1 6;bias_v 1 1 6;", &WIDE, ERR_CONFLICT, "/state_dict" },

    /* partners */
    { PACKED "bias_k 1 1 4;", &SQUARE, ERR_MISSING, "/state_dict/bias_v" },
    { PACKED "bias_v 1 1 4;", &SQUARE, ERR_MISSING, "/state_dict/bias_k" },
    { PACKED "out_proj.bias 4;", &SQUARE, ERR_MISSING,
      "/state_dict/out_proj.weight" },
    { "out_proj.bias 4;", &SQUARE, ERR_MISSING,
      "/state_dict/out_proj.weight" },
    { "in_proj_bias 12;", &SQUARE, ERR_MISSING,
      "/state_dict/in_proj_weight" },
    { "bias_k 1 1 4;bias_v 1 1 4;", &SQUARE, ERR_MISSING,
      "/state_dict/in_proj_weight" },
    { "q_proj_weight 4 4;v_proj_weight 4 5;", &WIDE, ERR_MISSING,
      "/state_dict/k_proj_weight" },
    { "k_proj_weight 4 3;v_proj_weight 4 5;", &WIDE, ERR_MISSING,
      "/state_dict/q_proj_weight" },
    { "q_proj_weight 4 4;k_proj_weight 4 3;in_proj_bias 12;", &WIDE,
      ERR_MISSING, "/state_dict/v_proj_weight" },
    { "query.weight 4 4;", &WIDE, ERR_MISSING, "/state_dict/key.weight" },
    { "key.weight 4 3;query.bias 4;", &WIDE, ERR_MISSING,
      "/state_dict/query.weight" },
    { "query.weight 4 4;key.weight 4 3;value.bias 4;", &WIDE, ERR_MISSING,
      "/state_dict/value.weight" },

    /* shapes */
    { "in_proj_weight 1 2;", &SQUARE, ERR_SHAPE,
      "/state_dict/in_proj_weight" },
    { "in_proj_weight 4 12;", &SQUARE, ERR_SHAPE,
      "/state_dict/in_proj_weight" },
    { "in_proj_weight 9 3;", &SQUARE, ERR_SHAPE,
      "/state_dict/in_proj_weight" },
    { "in_proj_weight 48;", &SQUARE, ERR_SHAPE,
      "/state_dict/in_proj_weight" },
    { PACKED "in_proj_bias 4;", &SQUARE, ERR_SHAPE,
      "/state_dict/in_proj_bias" },
    { PACKED "in_proj_bias 12 1;", &SQUARE, ERR_SHAPE,
      "/state_dict/in_proj_bias" },
    { PACKED "bias_k 4;bias_v 1 1 4;", &SQUARE, ERR_SHAPE,
      "/state_dict/bias_k" },
    { PACKED "bias_k 1 1 4;bias_v 1 2 4;", &SQUARE, ERR_SHAPE,
      "/state_dict/bias_v" },
    { PACKED "out_proj.weight 4 3;", &SQUARE, ERR_SHAPE,
      "/state_dict/out_proj.weight" },
    { PACKED "out_proj.weight 4 4;out_proj.bias 3;", &SQUARE, ERR_SHAPE,
      "/state_dict/out_proj.bias" },
    { "q_proj_weight 2 4;k_proj_weight 4 3;v_proj_weight 4 5;", &WIDE,
      ERR_SHAPE, "/state_dict/q_proj_weight" },
    { "q_proj_weight 4 4;k_proj_weight 4 4;v_proj_weight 4 5;", &WIDE,
      ERR_SHAPE, "/state_dict/k_proj_weight" },
    { "q_proj_weight 4 4;k_proj_weight 4 3;v_proj_weight 4 3;", &WIDE,
      ERR_SHAPE, "/state_dict/v_proj_weight" },
    { SEPARATE, &GROUPED, ERR_SHAPE, "/state_dict/k_proj_weight" },
    { "query.weight 6 3;key.weight 6 3;", &WIDE, ERR_SHAPE,
      "/state_dict/query.weight" },
    { BERT "query.bias 4;", &WIDE, ERR_SHAPE, "/state_dict/query.bias" },
    { "query.weight 6 4;key.weight 4 3;", &WIDE, ERR_SHAPE,
      "/state_dict/key.weight" },
    { BERT "key.bias 8;", &WIDE, ERR_SHAPE, "/state_dict/key.bias" },
    { "query.weight 6 4;key.weight 6 3;value.weight 7 5;", &WIDE, ERR_SHAPE,
      "/state_dict/value.weight" },
    { "query.weight 6 4;key.weight 6 3;value.weight 8 3;", &WIDE, ERR_SHAPE,
      "/state_dict/value.weight" },
    { BERT "value.bias 6;", &WIDE, ERR_SHAPE, "/state_dict/value.bias" },
    { BERT "out_proj.weight 4 6;", &WIDE, ERR_SHAPE,
      "/state_dict/out_proj.weight" },
};

static void every_state_dict_is_taken_or_refused_at_the_right_name(
    void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dict d;
        struct weights w;
        struct error err = { 0 };
        bool taken = weights_read(dict_read(&d, cases[i].dict), DTYPE_F32,
                                  cases[i].widths, &w, &err);

        if (taken != (cases[i].code == ERR_NONE) ||
            err.code != cases[i].code || strcmp(err.where, cases[i].where))
            fail_msg("%s: %s at \"%s\" (%s)", cases[i].dict,
                     error_name(err.code), err.where, err.text);
    }
}

static void a_refusal_names_what_it_would_have_taken(void **state)
{
    struct dict d;
    struct weights w;
    struct error err = { 0 };

    (void)state;
    weights_read(dict_read(&d, "weight 1 1;"), DTYPE_F32, &SQUARE, &w, &err);
    assert_non_null(strstr(err.text, "in_proj_weight"));
    assert_non_null(strstr(err.text, "q_proj_weight"));
    assert_non_null(strstr(err.text, "query.weight"));
    assert_non_null(strstr(err.text, "\"weight\""));

    err = (struct error){ 0 };
    weights_read(dict_read(&d, "in_proj_weight 1 2;"), DTYPE_F32, &SQUARE, &w,
                 &err);
    assert_non_null(strstr(err.text, "(1, 2)"));
    assert_non_null(strstr(err.text, "(12, 4)"));
}

static void packed_weights_and_biases_are_cut_in_three(void **state)
{
    struct dict d;
    struct weights w;
    struct error err = { 0 };

    (void)state;
    assert_true(weights_read(dict_read(&d, PACKED "in_proj_bias 12;"),
                             DTYPE_F32, &SQUARE, &w, &err));
    assert_int_equal(w.kind, WEIGHTS_PACKED);
    assert_ptr_equal(w.q.weight.data, numbers);
    assert_ptr_equal(w.k.weight.data, numbers + 16);
    assert_ptr_equal(w.v.weight.data, numbers + 32);
    assert_int_equal(w.v.weight.dim[0], 4);
    assert_ptr_equal(w.q.bias.data, numbers + 4096);
    assert_ptr_equal(w.k.bias.data, numbers + 4096 + 4);
    assert_ptr_equal(w.v.bias.data, numbers + 4096 + 8);
    assert_int_equal(w.out.weight.rank, 0);
    assert_false(w.shared_kv);
}

static void a_bias_of_grouped_heads_is_cut_where_its_weights_end(void **state)
{
    struct dict d;
    struct weights w;
    struct error err = { 0 };

    (void)state;
    assert_true(weights_read(
        dict_read(&d, "in_proj_bias 8;q_proj_weight 4 4;k_proj_weight 2 3;"
                      "v_proj_weight 2 5;"),
        DTYPE_F32, &GROUPED, &w, &err));
    assert_int_equal(w.kind, WEIGHTS_TORCH);
    assert_ptr_equal(w.k.bias.data, numbers + 4);
    assert_ptr_equal(w.v.bias.data, numbers + 6);
    assert_int_equal(w.v.bias.dim[0], 2);
}

static void without_value_tensors_key_and_value_share_a_layer(void **state)
{
    struct dict d;
    struct weights w;
    struct error err = { 0 };

    (void)state;
    assert_true(weights_read(
        dict_read(&d, "query.weight 4 4;key.weight 4 3;key.bias 4;"),
        DTYPE_F32, &WIDE, &w, &err));
    assert_int_equal(w.kind, WEIGHTS_BERT);
    assert_true(w.shared_kv);
    assert_ptr_equal(w.v.weight.data, w.k.weight.data);
    assert_ptr_equal(w.v.bias.data, w.k.bias.data);
}

static void a_tensors_own_flaw_is_told_in_its_turn(void **state)
{
    struct dict d;
    struct weights w;
    struct error err = { 0 }, flaw = { 0 };
    struct tensor_list *list =
        dict_read(&d, "query.weight 4 4;key.weight 4 9;value.weight 4 5;");

    (void)state;
    error_set(&flaw, ERR_TYPE, "/state_dict/value.weight", "a string");
    list->item[2] = (struct named_tensor){ "value.weight", { 0 }, &flaw };
    weights_read(list, DTYPE_F32, &WIDE, &w, &err);
    assert_string_equal(err.where, "/state_dict/key.weight");

    err = (struct error){ 0 };
    list->item[1].value.dim[1] = 3;
    assert_false(weights_read(list, DTYPE_F32, &WIDE, &w, &err));
    assert_string_equal(err.text, "a string");
}

static void numbers_of_another_type_are_refused(void **state)
{
    struct dict d;
    struct weights w;
    struct error err = { 0 };

    (void)state;
    assert_false(weights_read(dict_read(&d, PACKED), DTYPE_F64, &SQUARE, &w,
                              &err));
    assert_int_equal(err.code, ERR_TYPE);
    assert_string_equal(err.where, "/state_dict/in_proj_weight");
}

#define THIRD 0.333333343f /* of no bfloat16 */

static struct weights read_thirds(struct dict *d, const char *text)
{
    struct weights w;
    struct error err = { 0 };

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        numbers[i] = (float)i + THIRD;
    if (!weights_read(dict_read(d, text), DTYPE_F32, &SQUARE, &w, &err))
        fail_msg("%s", err.text);
    return w;
}

#define EVERYTHING PACKED "in_proj_bias 12;bias_k 1 1 4;bias_v 1 1 4;"         \
                          "out_proj.weight 3 4;out_proj.bias 3;"

static void what_is_packed_owes_nothing_to_what_it_was_made_from(void **state)
{
    struct dict d;
    struct weights from = read_thirds(&d, EVERYTHING), to;
    struct arena arena;

    (void)state;
    arena_init(&arena, SIZE_MAX);
    assert_true(weights_pack(&from, DTYPE_F32, false, NULL, &arena, &to));
    memset(numbers, 0, sizeof numbers);
    assert_int_equal(to.kind, WEIGHTS_PACKED);
    assert_false(to.rounded);
    assert_int_equal(to.k.weight.dim[0], 4);
    assert_true(((float *)to.k.weight.data)[1] == 17 + THIRD);
    assert_true(((float *)to.v.bias.data)[0] == 4096 + 8 + THIRD);
    assert_true(((float *)to.bias_k.data)[3] == 2 * 4096 + 3 + THIRD);
    assert_int_equal(to.bias_v.rank, 3);
    assert_true(((float *)to.out.weight.data)[11] == 4 * 4096 + 11 + THIRD);
    assert_int_equal(to.out.bias.dim[0], 3);
    arena_free(&arena);
}

static void rounding_spares_the_biases(void **state)
{
    struct dict d;
    struct weights from = read_thirds(&d, EVERYTHING), to;
    struct arena arena;

    (void)state;
    arena_init(&arena, SIZE_MAX);
    assert_true(weights_pack(&from, DTYPE_F32, true, NULL, &arena, &to));
    assert_true(to.rounded);
    assert_true(((float *)to.q.weight.data)[1] == 1.3359375f);
    assert_true(((float *)to.out.weight.data)[0] == 16384);
    assert_true(((float *)to.q.bias.data)[1] == 4096 + 1 + THIRD);
    assert_true(((float *)to.bias_v.data)[0] == 3 * 4096 + THIRD);
    arena_free(&arena);
}

static void packed_doubles_hold_the_floats_and_a_shared_layer_stays_shared(
    void **state)
{
    struct dict d;
    struct weights from = read_thirds(&d, "query.weight 4 4;key.weight 4 4;");
    struct weights to;
    struct arena arena;

    (void)state;
    arena_init(&arena, SIZE_MAX);
    assert_true(weights_pack(&from, DTYPE_F64, false, NULL, &arena, &to));
    assert_int_equal(to.q.weight.dtype, DTYPE_F64);
    assert_true(((double *)to.q.weight.data)[3] == (double)(3 + THIRD));
    assert_true(to.shared_kv);
    assert_ptr_equal(to.v.weight.data, to.k.weight.data);
    assert_int_equal(to.out.weight.rank, 0);
    arena_free(&arena);
}

static void expect_same(const struct tensor *a, const struct tensor *b)
{
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(tensor_count(a), tensor_count(b));
    assert_memory_equal(a->data, b->data,
                        (size_t)tensor_count(a) * dtype_size(a->dtype));
}

static void expect_same_layer(const struct linear *a, const struct linear *b)
{
    assert_int_equal(a->pairs, b->pairs);
    if (!a->pairs) {
        expect_same(&a->weight, &b->weight);
        return;
    }
    assert_int_equal(a->weight.dim[0], b->weight.dim[0]);
    assert_int_equal(linear_width(a), linear_width(b));
    assert_memory_equal(a->weight.data, b->weight.data,
                        (size_t)(a->weight.dim[0] * linear_width(a)) *
                            sizeof(float));
}

/* Of a copy that is arranged for the kernels: the same, doubles, rounded. */
static void check_copies(const struct weights *from,
                         const struct kernels *level)
{
    struct arena arena;
    struct weights arranged, again, want;

    arena_init(&arena, SIZE_MAX);
    assert_true(weights_pack(from, DTYPE_F32, false, level, &arena,
                             &arranged));
    assert_true(arranged.q.arranged && arranged.out.arranged);
    for (int i = 0; i < 3; i++) {
        enum dtype dtype = i == 1 ? DTYPE_F64 : DTYPE_F32;

        assert_true(weights_pack(&arranged, dtype, i == 2, level, &arena,
                                 &again));
        assert_true(weights_pack(from, dtype, i == 2, level, &arena, &want));
        assert_int_equal(again.q.arranged, dtype == DTYPE_F32);
        assert_int_equal(again.q.pairs, i == 2 && level->round_pairs != NULL);
        assert_false(again.out.pairs);
        expect_same_layer(&again.q, &want.q);
        expect_same_layer(&again.v, &want.v);
        expect_same_layer(&again.out, &want.out);
        expect_same(&again.q.bias, &want.q.bias);
    }
    arena_free(&arena);
}

static void copies_of_an_arranged_copy_are_copies_of_the_first(void **state)
{
    static const char *const ceilings[] = { "portable", "avx2", "avx512", "amx" };
    struct dict d;
    struct weights from = read_thirds(&d, EVERYTHING);

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct kernels level;

        assert_true(kernels_select(cpu_features(), ceilings[i], &level));
        check_copies(&from, &level);
    }
}

static void packing_without_memory_fails_at_each_tensor(void **state)
{
    struct dict d;
    struct weights from = read_thirds(&d, EVERYTHING), to;
    int refusals = 0;
    bool good = false;

    (void)state;
    for (size_t cap = 0; !good; cap += 64) {
        struct arena arena;

        arena_init(&arena, cap);
        good = weights_pack(&from, DTYPE_F32, false, NULL, &arena, &to);
        refusals += !good;
        arena_free(&arena);
    }
    assert_true(refusals > 10);
}

static void splitting_without_memory_fails_at_each_weight(void **state)
{
    struct dict d;
    struct weights from = read_thirds(&d, EVERYTHING), packed, split;
    struct kernels level;
    struct arena held;
    int refusals = 0;
    bool good = false;

    (void)state;
    assert_true(kernels_select(cpu_features(), NULL, &level));
    if (level.split_rows == NULL)
        skip();
    arena_init(&held, SIZE_MAX);
    assert_true(weights_pack(&from, DTYPE_F32, false, &level, &held, &packed));
    for (size_t cap = 0; !good; cap += 64) {
        struct arena arena;

        arena_init(&arena, cap);
        good = weights_split(&packed, &level, &arena, &split);
        refusals += !good;
        arena_free(&arena);
    }
    assert_true(refusals > 4);
    assert_ptr_equal(split.q.weight.data, packed.q.weight.data);
    arena_free(&held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            every_state_dict_is_taken_or_refused_at_the_right_name),
        cmocka_unit_test(a_refusal_names_what_it_would_have_taken),
        cmocka_unit_test(packed_weights_and_biases_are_cut_in_three),
        cmocka_unit_test(a_bias_of_grouped_heads_is_cut_where_its_weights_end),
        cmocka_unit_test(without_value_tensors_key_and_value_share_a_layer),
        cmocka_unit_test(a_tensors_own_flaw_is_told_in_its_turn),
        cmocka_unit_test(numbers_of_another_type_are_refused),
        cmocka_unit_test(
            what_is_packed_owes_nothing_to_what_it_was_made_from),
        cmocka_unit_test(rounding_spares_the_biases),
        cmocka_unit_test(
            packed_doubles_hold_the_floats_and_a_shared_layer_stays_shared),
        cmocka_unit_test(copies_of_an_arranged_copy_are_copies_of_the_first),
        cmocka_unit_test(packing_without_memory_fails_at_each_tensor),
        cmocka_unit_test(splitting_without_memory_fails_at_each_weight),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
