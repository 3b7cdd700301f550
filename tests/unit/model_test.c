#include "core/kernels/kernels.h"
#include "server/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Tests run from the top of the tree. */
#define MODELS "tests/vectors/models/"

/* A whole file in a block of exactly its size; NULL when there is none. */
static struct bytes load(const char *path)
{
    FILE *in = fopen(path, "rb");
    struct bytes bytes = { 0 };
    uint8_t *data;
    long len;

    if (in == NULL)
        return bytes;
    fseek(in, 0, SEEK_END);
    len = ftell(in);
    rewind(in);
    data = malloc((size_t)len);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)len, in), len);
    fclose(in);
    return (struct bytes){ data, (size_t)len };
}

static void unload(struct bytes bytes)
{
    free((void *)(uintptr_t)bytes.data);
}

static struct model *load_model_for(const struct kernels *kernels,
                                    const char *path, const char *config_path)
{
    struct bytes file = load(path);
    struct bytes config = config_path == NULL ? (struct bytes){ 0 }
                                              : load(config_path);
    struct error err = { 0 };
    struct model *model = model_new("m", kernels, &file, 1, config, &err);

    if (model == NULL)
        fail_msg("%s: %s", path, err.text);
    unload(file);
    unload(config);
    return model;
}

static struct model *load_model(const char *path, const char *config_path)
{
    return load_model_for(NULL, path, config_path);
}

static void each_kind_of_checkpoint_becomes_a_model(void **state)
{
    static const struct {
        const char *path, *config;
        enum checkpoint_kind kind;
        enum dtype dtype;
        int64_t layers, heads, ignored;
        const char *last_path;
        bool projects;
    } rows[] = {
        { MODELS "tiny-bert/model.safetensors", MODELS "tiny-bert/config.json",
          CHECKPOINT_BERT, DTYPE_F32, 2, 3, 6, "encoder.layer.1.attention",
          false },
        { MODELS "tiny-gpt2/model.safetensors", MODELS "tiny-gpt2/config.json",
          CHECKPOINT_GPT2, DTYPE_F32, 2, 3, 2, "h.1.attn", true },
        { MODELS "bert-bf16.safetensors", NULL, CHECKPOINT_BERT, DTYPE_BF16, 2,
          3, 6, "bert.encoder.layer.1.attention", false },
        { MODELS "bert-f16.safetensors", NULL, CHECKPOINT_BERT, DTYPE_F16, 2, 3,
          6, "bert.encoder.layer.1.attention", false },
        { MODELS "encoder.safetensors", NULL, CHECKPOINT_TORCH, DTYPE_F32, 3, 2,
          3, "layers.2.self_attn", true },
        { MODELS "mha.safetensors", NULL, CHECKPOINT_TORCH, DTYPE_F32, 1, 0, 0,
          "", true },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model *model = load_model(rows[i].path, rows[i].config);
        struct mha_model layer;
        struct error err = { 0 };

        assert_int_equal(model->kind, rows[i].kind);
        assert_int_equal(model->dtype, rows[i].dtype);
        assert_int_equal(model->layers, rows[i].layers);
        assert_int_equal(model->heads, rows[i].heads);
        assert_int_equal(model->ignored, rows[i].ignored);
        assert_string_equal(model->layer[model->layers - 1].path,
                            rows[i].last_path);
        assert_true(model_find_layer(model, 0, PRECISION_F32, &layer, &err));
        assert_int_equal(layer.num_heads, rows[i].heads);
        assert_int_equal(layer.projects, rows[i].projects);
        assert_int_equal(layer.weights->q.weight.dim[1], 12);
        assert_int_equal(layer.weights->out.weight.dim[0], 12);
        model_release(model);
    }
}

static void a_layer_past_the_end_is_told_with_the_layers_there_are(void **state)
{
    struct model *model = load_model(MODELS "encoder.safetensors", NULL);
    static const int64_t none[] = { 3, -1, INT64_MAX, INT64_MIN };

    (void)state;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        struct mha_model layer;
        struct error err = { 0 };

        assert_false(model_find_layer(model, none[i], PRECISION_F32, &layer,
                                      &err));
        assert_int_equal(err.code, ERR_RANGE);
        assert_string_equal(err.where, "/layer");
        assert_non_null(strstr(err.text, "are 0 to 2"));
    }
    model_release(model);
}

/* ---- files made here ---- */


/* `header` and as much data behind it as its last offset says. */
static struct bytes make(const char *header, size_t data_bytes, uint8_t fill)
{
    uint64_t len = strlen(header);
    uint8_t *data = malloc(8 + len + data_bytes);

    assert_non_null(data);
    memcpy(data, &len, 8);
    memcpy(data + 8, header, len);
    memset(data + 8 + len, fill, data_bytes);
    return (struct bytes){ data, 8 + len + data_bytes };
}

#define T(name, dtype, shape, begin, end)                                      \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape                  \
    "],\"data_offsets\":[" #begin "," #end "]}"
#define HEADS(n) "\"__metadata__\":{\"num_heads\":\"" #n "\"},"

static void what_cannot_be_served_is_refused_with_layer_and_reason(void **state)
{
    static const struct {
        const char *header;
        size_t data_bytes;
        uint8_t fill;
        const char *config, *text;
    } rows[] = {
        { "{" T("conv", "F32", "2,2", 0, 16) "}", 16, 0, NULL,
          "none of its 1 tensors" },
        { "{" T("in_proj_weight", "F32", "5,2", 0, 40) "}", 40, 0, NULL,
          "layer \"\": " },
        { "{" T("layers.0.self_attn.in_proj_weight", "F32", "6,2", 0, 48) ","
          T("layers.0.self_attn.in_proj_bias", "F32", "5", 48, 68) "}", 68, 0,
          NULL, "layer \"layers.0.self_attn\": " },
        { "{" T("in_proj_weight", "F32", "12", 0, 48) "}", 48, 0, NULL,
          "layer \"\": " },
        { "{" T("h.0.attn.c_attn.weight", "F32", "6,2", 0, 48) "}", 48, 0, NULL,
          "layer \"h.0.attn\": " },
        { "{" T("layer.0.attention.self.query.weight", "F32", "2,2", 0, 16) ","
          T("layer.0.attention.self.value.weight", "F32", "2,2", 16, 32) "}",
          32, 0, NULL, "key.weight" },
        { "{" T("in_proj_bias", "F32", "6", 0, 24) "}", 24, 0, NULL,
          "in_proj_weight" },
        { "{" T("in_proj_weight", "F32", "6,2", 0, 48) "}", 48, 0xFF, NULL,
          "in_proj_weight" }, /* NaN */
        { "{" T("in_proj_weight", "F64", "6,2", 0, 96) "}", 96, 0x7E, NULL,
          "in_proj_weight" }, /* beyond float32 */
        { "{" T("in_proj_weight", "I8", "6,2", 0, 12) "}", 12, 0, NULL,
          "not I8" },
        { "{" HEADS(3) T("in_proj_weight", "F32", "6,2", 0, 48) "}", 48, 0, NULL,
          "3 heads do not divide the 2 rows" },
        { "{" HEADS(x) T("in_proj_weight", "F32", "6,2", 0, 48) "}", 48, 0, NULL,
          "num_heads in __metadata__" },
        { "{" HEADS(1) T("in_proj_weight", "F32", "6,2", 0, 48) "}", 48, 0,
          "{\"n_head\": 2}", "2 heads and 1 heads" },
        { "{" T("in_proj_weight", "F32", "6,2", 0, 48) "}", 48, 0, "{\"n_head\"",
          "config.json, line 1" },
        { "{" T("in_proj_weight", "F32", "6,2", 0, 48) "}", 47, 0, NULL,
          "ends at byte 48" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bytes file = make(rows[i].header, rows[i].data_bytes,
                                 rows[i].fill);
        struct bytes config = { (const uint8_t *)rows[i].config,
                                rows[i].config == NULL
                                    ? 0
                                    : strlen(rows[i].config) };
        struct error err = { 0 };

        assert_null(model_new("m", NULL, &file, 1, config, &err));
        if (strstr(err.text, rows[i].text) == NULL)
            fail_msg("%s: %s", rows[i].header, err.text);
        unload(file);
    }
}

static void shards_are_one_checkpoint(void **state)
{
    struct bytes file[2] = {
        make("{" HEADS(2) T("in_proj_weight", "F32", "6,2", 0, 48) "}", 48, 0),
        make("{" T("out_proj.weight", "F32", "2,2", 0, 16) "}", 16, 0),
    };
    struct error err = { 0 };
    struct model *model = model_new("m", NULL, file, 2, (struct bytes){ 0 }, &err);

    (void)state;
    assert_non_null(model);
    assert_int_equal(model->heads, 2);
    assert_int_equal(model->file_bytes, file[0].len + file[1].len);
    assert_int_equal(model->layer[0].weights[0].out.weight.dim[0], 2);
    model_release(model);
    unload(file[0]);
    unload(file[1]);
}

static void a_flipped_bit_of_a_checkpoint_never_crashes(void **state)
{
    struct bytes good = load(MODELS "mha.safetensors");
    uint8_t *bytes = malloc(good.len);
    uint64_t header;
    int refused = 0;

    (void)state;
    assert_non_null(bytes);
    memcpy(&header, good.data, 8);
    for (size_t bit = 0; bit < 8 * (8 + header); bit++) {
        struct bytes file = { bytes, good.len };
        struct error err = { 0 };
        struct model *model;

        memcpy(bytes, good.data, good.len);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        model = model_new("m", NULL, &file, 1, (struct bytes){ 0 }, &err);
        assert_int_equal(model == NULL, err.text[0] != '\0');
        refused += model == NULL;
        model_release(model);
    }
    assert_true(refused > (int)(7 * header));
    free(bytes);
    unload(good);
}

/* ---- second copies ---- */

static struct mha_model find(struct model *model, enum precision precision)
{
    struct mha_model layer;
    struct error err = { 0 };

    if (!model_find_layer(model, 0, precision, &layer, &err))
        fail_msg("%s", err.text);
    return layer;
}

static void another_precision_is_copied_once_and_kept(void **state)
{
    struct model *model = load_model(MODELS "encoder.safetensors", NULL);
    int64_t before = model_memory_bytes(model);
    const float *plain = find(model, PRECISION_F32).weights->q.weight.data;
    struct mha_model wide = find(model, PRECISION_F64);
    struct mha_model rounded = find(model, PRECISION_BF16);
    float first = plain[0];

    (void)state;
    assert_int_equal(wide.weights->q.weight.dtype, DTYPE_F64);
    assert_true(*(double *)wide.weights->q.weight.data == (double)first);
    tensor_round_bf16(&first, 1);
    assert_true(rounded.weights->rounded);
    assert_true(*(float *)rounded.weights->q.weight.data == first);
    assert_true(model_memory_bytes(model) > before);
    assert_ptr_equal(find(model, PRECISION_F64).weights, wide.weights);
    assert_ptr_equal(find(model, PRECISION_BF16).weights, rounded.weights);
    assert_ptr_equal(find(model, PRECISION_F32).weights->q.weight.data, plain);
    model_release(model);
}

static void a_file_of_bfloat16_is_copied_to_make_pairs_alone(void **state)
{
    static const char *const ceilings[] = { NULL, "portable", "avx512" };

    (void)state;
    for (size_t i = 0; i < sizeof ceilings / sizeof *ceilings; i++) {
        struct kernels kernels;

        assert_true(kernels_select(cpu_features(), ceilings[i], &kernels));

        bool pairs = i > 0 && kernels.round_pairs != NULL;
        struct model *model = load_model_for(
            i == 0 ? NULL : &kernels, MODELS "bert-bf16.safetensors", NULL);
        const struct weights *plain = find(model, PRECISION_F32).weights;
        const struct weights *rounded = find(model, PRECISION_BF16).weights;

        assert_true(plain->rounded && rounded->rounded);
        assert_false(plain->q.pairs);
        assert_int_equal(rounded->q.pairs, pairs);
        assert_int_equal(rounded == plain, !pairs);
        model_release(model);
    }
}

static void floats_are_split_once_where_kernels_ask_for_it(void **state)
{
    static const char *const ceilings[] = { "avx512", NULL };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct kernels kernels;

        assert_true(kernels_select(cpu_features(), ceilings[i], &kernels));

        struct model *model = load_model_for(&kernels,
                                             MODELS "bert-bf16.safetensors", NULL);
        int64_t before = model_memory_bytes(model);
        const struct weights *first = find(model, PRECISION_F32).weights;
        int64_t after = model_memory_bytes(model);
        bool split = kernels.split_rows != NULL;

        assert_int_equal(first->q.pieces != NULL, split);
        assert_int_equal(first->v.pieces != NULL, split);
        assert_int_equal(after > before, split);
        assert_ptr_equal(find(model, PRECISION_F32).weights, first);
        assert_null(find(model, PRECISION_BF16).weights->q.pieces);
        model_release(model);
    }
}

static void a_file_of_doubles_keeps_its_doubles(void **state)
{
    struct bytes file =
        make("{" HEADS(1) T("in_proj_weight", "F64", "6,2", 0, 96) "}", 96, 0);
    const double third = 1.0 / 3;
    struct error err = { 0 };
    struct model *model;

    (void)state;
    memcpy((uint8_t *)(uintptr_t)file.data + file.len - 96, &third, 8);
    model = model_new("m", NULL, &file, 1, (struct bytes){ 0 }, &err);
    unload(file);
    assert_non_null(model);
    assert_true(*(double *)find(model, PRECISION_F64).weights->q.weight.data ==
                third);
    assert_true(*(float *)find(model, PRECISION_F32).weights->q.weight.data ==
                (float)third);
    model_release(model);
}

static void names_are_what_the_contract_allows(void **state)
{
    static const char *const good[] = { "a", "tiny-bert", "A.b_c-9", "-", "_" };
    static const char *const bad[] = { "",    ".",    ".a", "..",  "a/b",
                                       "a b", "\xC3", "a\n", "../a", "a%2f" };
    char name[66];

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(model_is_name(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(model_is_name(bad[i]));
    memset(name, 'm', 65);
    name[65] = '\0';
    assert_false(model_is_name(name));
    name[64] = '\0';
    assert_true(model_is_name(name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_checkpoint_becomes_a_model),
        cmocka_unit_test(
            a_layer_past_the_end_is_told_with_the_layers_there_are),
        cmocka_unit_test(
            what_cannot_be_served_is_refused_with_layer_and_reason),
        cmocka_unit_test(shards_are_one_checkpoint),
        cmocka_unit_test(a_flipped_bit_of_a_checkpoint_never_crashes),
        cmocka_unit_test(another_precision_is_copied_once_and_kept),
        cmocka_unit_test(a_file_of_bfloat16_is_copied_to_make_pairs_alone),
        cmocka_unit_test(floats_are_split_once_where_kernels_ask_for_it),
        cmocka_unit_test(a_file_of_doubles_keeps_its_doubles),
        cmocka_unit_test(names_are_what_the_contract_allows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
