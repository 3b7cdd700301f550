#include "api/checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- names ---- */

static void a_name_tells_family_role_and_number_under_any_prefix(void **state)
{
    static const struct {
        const char *name;
        enum checkpoint_kind kind;
        const char *role;
        int64_t number;
        const char *prefix; /* before what numbers the layers */
    } rows[] = {
        { "encoder.layer.0.attention.self.query.weight", CHECKPOINT_BERT,
          "query.weight", 0, "encoder." },
        { "bert.encoder.layer.11.attention.self.value.bias", CHECKPOINT_BERT,
          "value.bias", 11, "bert.encoder." },
        { "layer.3.attention.output.dense.weight", CHECKPOINT_BERT,
          "out_proj.weight", 3, "" },
        { "distilbert.transformer.layer.5.attention.q_lin.weight",
          CHECKPOINT_DISTILBERT, "query.weight", 5, "distilbert.transformer." },
        { "transformer.layer.0.attention.out_lin.bias", CHECKPOINT_DISTILBERT,
          "out_proj.bias", 0, "transformer." },
        { "h.0.attn.c_attn.weight", CHECKPOINT_GPT2, "in_proj_weight", 0, "" },
        { "transformer.h.10.attn.c_proj.bias", CHECKPOINT_GPT2, "out_proj.bias",
          10, "transformer." },
        { "in_proj_weight", CHECKPOINT_TORCH, "in_proj_weight", -1, "" },
        { "x.y.k_proj_weight", CHECKPOINT_TORCH, "k_proj_weight", -1, "x.y." },
        { "self_attn.bias_k", CHECKPOINT_TORCH, "bias_k", -1, "self_attn." },
        { "layers.2.self_attn.out_proj.weight", CHECKPOINT_TORCH,
          "out_proj.weight", 2, "" },
        { "model.encoder.layers.2.self_attn.in_proj_bias", CHECKPOINT_TORCH,
          "in_proj_bias", 2, "model.encoder." },
        { "decoder.layers.7.multihead_attn.in_proj_weight", CHECKPOINT_TORCH,
          "in_proj_weight", 7, "decoder." },
        { "visual.resblocks.4.attn.in_proj_weight", CHECKPOINT_TORCH,
          "in_proj_weight", -1, "visual.resblocks.4.attn." },
    };
    struct checkpoint_match match;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!checkpoint_match(rows[i].name, &match))
            fail_msg("%s does not match", rows[i].name);
        assert_int_equal(match.kind, rows[i].kind);
        assert_string_equal(match.role, rows[i].role);
        assert_int_equal(match.number, rows[i].number);
        assert_int_equal(match.prefix_len, strlen(rows[i].prefix));
        assert_int_equal(match.second,
                         strstr(rows[i].name, "multihead_attn") != NULL);
        assert_memory_equal(rows[i].name, rows[i].prefix, match.prefix_len);
    }
}

static void a_name_that_only_looks_like_attention_is_none(void **state)
{
    static const char *const names[] = {
        "", ".", "weight", "query.weight", "in_proj", "xin_proj_weight",
        "in_proj_weight.", "in_proj_weight2",
        "encoder.layer.0.crossattention.self.query.weight",
        "encoder.layer.0.attention.output.LayerNorm.weight",
        "encoder.layer.0.attention.self.xquery.weight",
        "encoder.layer..attention.self.query.weight",
        "encoder.layer.x.attention.self.query.weight",
        "encoder.layer.-1.attention.self.query.weight",
        "encoder.layer.01.attention.self.query.weight",
        "encoder.layer.9999999999.attention.self.query.weight",
        "encoder.xlayer.0.attention.self.query.weight",
        "encoder.layer.0.intermediate.dense.weight",
        "h.0.mlp.c_proj.weight", "h.0.attn.bias", "h.0.attn.masked_bias",
        "h.0.crossattention.c_attn.weight", "transformer.xh.0.attn.c_attn.bias",
        "layers.0.self_attn.q_proj.weight", "layers.0.norm1.weight",
        "transformer.layer.0.ffn.lin1.weight",
    };
    struct checkpoint_match match;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (checkpoint_match(names[i], &match))
            fail_msg("%s matches", names[i]);
    }
}

/* ---- checkpoints ---- */

enum { FILES_MAX = 2 };

struct model {
    struct safetensors_tensor tensor[FILES_MAX][64];
    struct safetensors file[FILES_MAX];
    struct arena arena;
    struct checkpoint out;
    struct error err;
};

static float zeros[64];

static void begin(struct model *m)
{
    *m = (struct model){ 0 };
    arena_init(&m->arena, SIZE_MAX);
    for (size_t i = 0; i < FILES_MAX; i++)
        m->file[i].tensor = m->tensor[i];
}

static struct safetensors_tensor *add(struct model *m, size_t file,
                                      const char *name)
{
    struct safetensors_tensor *t = &m->tensor[file][m->file[file].count++];

    *t = (struct safetensors_tensor){
        .name = name, .dtype = DTYPE_F32, .dtype_name = "F32", .rank = 2,
        .dim = { 2, 3 }, .data = (const uint8_t *)zeros, .bytes = 24,
    };
    return t;
}

static bool read_model(struct model *m)
{
    m->err = (struct error){ 0 };
    bool good = checkpoint_read(m->file, FILES_MAX, &m->arena, &m->out,
                                &m->err);

    assert_int_equal(good, m->err.code == ERR_NONE);
    return good;
}

static void expect_layers(struct model *m, const char *const *paths)
{
    int64_t i = 0;

    if (!read_model(m))
        fail_msg("%s", m->err.text);
    for (; paths[i] != NULL; i++) {
        assert_true(i < m->out.layers);
        assert_string_equal(m->out.layer[i].path, paths[i]);
    }
    assert_int_equal(m->out.layers, i);
    arena_free(&m->arena);
}

#define PATHS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void expect_refusal(struct model *m, enum error_code code,
                           const char *text)
{
    assert_false(read_model(m));
    if (m->err.code != code || strstr(m->err.text, text) == NULL)
        fail_msg("%s: \"%s\" instead of \"%s\"", error_name(m->err.code),
                 m->err.text, text);
    arena_free(&m->arena);
}

static void a_layer_has_its_tensors_under_the_names_of_a_state_dict(void **state)
{
    struct model m;

    (void)state;
    begin(&m);
    add(&m, 0, "h.0.ln_1.weight");
    add(&m, 0, "h.0.attn.c_proj.weight");
    add(&m, 1, "h.0.attn.c_attn.weight");
    assert_true(read_model(&m));
    assert_int_equal(m.out.kind, CHECKPOINT_GPT2);
    assert_int_equal(m.out.ignored, 1);
    assert_int_equal(m.out.layers, 1);

    const struct checkpoint_layer *layer = m.out.layer;

    assert_string_equal(layer->path, "h.0.attn");
    assert_int_equal(layer->tensors.count, 2);
    assert_string_equal(layer->tensors.item[0].name, "in_proj_weight");
    assert_string_equal(layer->tensors.item[1].name, "out_proj.weight");
    assert_int_equal(layer->tensors.item[0].value.dim[0], 3);
    assert_int_equal(layer->tensors.item[0].value.dim[1], 2);
    arena_free(&m.arena);
}

static void layers_are_numbered_as_their_names_are(void **state)
{
    static char names[12][64];
    struct model m;

    (void)state;
    begin(&m);
    for (int i = 11; i >= 0; i--) {
        snprintf(names[i], sizeof names[i],
                 "encoder.layer.%d.attention.self.query.weight", i);
        add(&m, (size_t)i % 2, names[i]);
    }
    assert_true(read_model(&m));
    assert_int_equal(m.out.layers, 12);
    for (int64_t i = 0; i < 12; i++)
        assert_int_equal(m.out.layer[i].match.number, i);
    arena_free(&m.arena);
}

static void second_attentions_come_after_all_others(void **state)
{
    struct model m;

    (void)state;
    begin(&m);
    add(&m, 0, "decoder.layers.0.multihead_attn.in_proj_weight");
    add(&m, 0, "decoder.layers.0.self_attn.in_proj_weight");
    add(&m, 0, "decoder.layers.1.multihead_attn.in_proj_weight");
    add(&m, 0, "decoder.layers.1.self_attn.in_proj_weight");
    add(&m, 0, "encoder.layers.0.self_attn.in_proj_weight");
    expect_layers(&m, PATHS("decoder.layers.0.self_attn",
                            "decoder.layers.1.self_attn",
                            "encoder.layers.0.self_attn",
                            "decoder.layers.0.multihead_attn",
                            "decoder.layers.1.multihead_attn"));
    begin(&m);
    add(&m, 0, "multihead_attn.in_proj_weight");
    add(&m, 0, "self_attn.in_proj_weight");
    expect_layers(&m, PATHS("self_attn", "multihead_attn"));
}

static void modules_without_a_number_follow_their_paths(void **state)
{
    struct model m;

    (void)state;
    begin(&m);
    add(&m, 0, "resblocks.10.attn.in_proj_weight");
    add(&m, 0, "resblocks.9.attn.in_proj_weight");
    add(&m, 0, "resblocks.9.attn.in_proj_bias");
    add(&m, 0, "in_proj_weight");
    expect_layers(&m, PATHS("", "resblocks.9.attn", "resblocks.10.attn"));
}

static void an_output_projection_alone_is_ignored(void **state)
{
    struct model m;

    (void)state;
    begin(&m);
    add(&m, 0, "classifier.out_proj.weight");
    add(&m, 0, "classifier.out_proj.bias");
    add(&m, 0, "encoder.layer.0.attention.self.query.weight");
    assert_true(read_model(&m));
    assert_int_equal(m.out.kind, CHECKPOINT_BERT);
    assert_int_equal(m.out.layers, 1);
    assert_int_equal(m.out.ignored, 2);
    arena_free(&m.arena);
}

static void a_checkpoint_that_cannot_be_served_says_why(void **state)
{
    struct model m;

    (void)state;
    begin(&m);
    add(&m, 0, "conv1.weight");
    expect_refusal(&m, ERR_MISSING, "none of its 1 tensors");
    begin(&m);
    expect_refusal(&m, ERR_MISSING, "none of its 0 tensors");

    begin(&m);
    add(&m, 0, "a.layers.0.self_attn.in_proj_weight");
    add(&m, 0, "b.layers.0.self_attn.in_proj_weight");
    add(&m, 0, "b.layers.2.self_attn.in_proj_weight");
    expect_refusal(&m, ERR_MISSING,
                   "layer 1 is missing before b.layers.2.self_attn");
    begin(&m);
    add(&m, 0, "h.1.attn.c_attn.weight");
    expect_refusal(&m, ERR_MISSING, "layer 0 is missing");

    begin(&m);
    add(&m, 0, "h.0.attn.c_attn.weight");
    add(&m, 0, "in_proj_weight");
    expect_refusal(&m, ERR_CONFLICT, "it mixes torch () with gpt2 (h.0.attn)");

    begin(&m);
    add(&m, 0, "h.0.attn.c_attn.weight");
    add(&m, 1, "h.0.attn.c_attn.weight");
    expect_refusal(&m, ERR_CONFLICT,
                   "two files have the tensor h.0.attn.c_attn.weight");
}

static void what_no_weight_can_be_is_refused(void **state)
{
    struct model m;
    struct safetensors_tensor *t;

    (void)state;
    begin(&m);
    t = add(&m, 0, "in_proj_weight");
    t->dtype = DTYPE_I8;
    t->dtype_name = "I8";
    expect_refusal(&m, ERR_TYPE, "not I8 as in in_proj_weight");
    begin(&m);
    t = add(&m, 0, "in_proj_weight");
    t->dtype = DTYPE_COUNT;
    t->dtype_name = "F8_E4M3";
    expect_refusal(&m, ERR_TYPE, "not F8_E4M3");
    begin(&m);
    add(&m, 0, "in_proj_weight")->dim[1] = 0;
    expect_refusal(&m, ERR_TYPE, "one of length 0, as in_proj_weight");
    begin(&m);
    add(&m, 0, "in_proj_weight")->rank = 0;
    expect_refusal(&m, ERR_TYPE, "no weight has 0 axes");
    begin(&m);
    add(&m, 0, "in_proj_weight")->rank = 5;
    expect_refusal(&m, ERR_TYPE, "no weight has 5 axes");
    begin(&m);
    add(&m, 0, "h.0.attn.c_attn.weight")->rank = 1;
    expect_refusal(&m, ERR_TYPE, "no weight has 1 axes");
}

static void without_memory_reading_says_so(void **state)
{
    bool good = false;

    (void)state;
    for (size_t cap = 0; !good; cap += 64) {
        struct model m;

        begin(&m);
        m.arena.cap_bytes = cap;
        add(&m, 0, "layers.0.self_attn.in_proj_weight");
        add(&m, 0, "layers.1.self_attn.in_proj_weight");
        good = read_model(&m);
        if (!good)
            assert_int_equal(m.err.code, ERR_OVERLOADED);
        arena_free(&m.arena);
    }
}

static void kinds_say_their_family_and_whether_they_project(void **state)
{
    (void)state;
    assert_string_equal(checkpoint_kind_name(CHECKPOINT_BERT), "bert");
    assert_string_equal(checkpoint_kind_name(CHECKPOINT_GPT2), "gpt2");
    assert_string_equal(checkpoint_kind_name(CHECKPOINT_TORCH), "torch");
    assert_false(checkpoint_kind_projects(CHECKPOINT_BERT));
    assert_true(checkpoint_kind_projects(CHECKPOINT_DISTILBERT));
    assert_true(checkpoint_kind_projects(CHECKPOINT_GPT2));
    assert_true(checkpoint_kind_projects(CHECKPOINT_TORCH));
}

/* ---- numbers ---- */

/* Around the edges of a tile, from an odd address. */
static void a_conv1d_is_transposed_whatever_its_size(void **state)
{
    static const int64_t sizes[] = { 1, 2, 31, 32, 33, 64, 70 };
    enum { SIZES = sizeof sizes / sizeof *sizes };
    static unsigned char block[1 + 70 * 70 * 4];
    static double out[70 * 70];

    (void)state;
    for (int n = 0; n < SIZES * SIZES; n++) {
        int64_t in = sizes[n / SIZES], rows = sizes[n % SIZES];
        struct model m;

        for (int64_t i = 0; i < in * rows; i++)
            memcpy(block + 1 + 4 * i, &(float){ (float)i }, 4);
        begin(&m);
        struct safetensors_tensor *t = add(&m, 0, "h.0.attn.c_attn.weight");

        t->dim[0] = in;
        t->dim[1] = rows;
        t->data = block + 1;
        assert_true(read_model(&m));
        checkpoint_convert(&m.out.layer[0].tensors.item[0].value, DTYPE_F64,
                           out);
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t c = 0; c < in; c++)
                assert_true(out[r * in + c] == (double)(c * rows + r));
        }
        arena_free(&m.arena);
    }
}

static void each_dtype_of_a_weight_becomes_float32(void **state)
{
    const struct {
        enum dtype dtype;
        const void *bytes; /* 1, -2 */
    } rows[] = {
        { DTYPE_F32, (const float[]){ 1, -2 } },
        { DTYPE_F64, (const double[]){ 1, -2 } },
        { DTYPE_F16, (const uint16_t[]){ 0x3C00, 0xC000 } },
        { DTYPE_BF16, (const uint16_t[]){ 0x3F80, 0xC000 } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model m;
        float out[2] = { 0 };

        begin(&m);
        struct safetensors_tensor *t = add(&m, 0, "in_proj_weight");

        t->dtype = rows[i].dtype;
        t->dim[0] = 1;
        t->dim[1] = 2;
        t->data = rows[i].bytes;
        assert_true(read_model(&m));
        checkpoint_convert(&m.out.layer[0].tensors.item[0].value, DTYPE_F32,
                           out);
        assert_true(out[0] == 1 && out[1] == -2);
        arena_free(&m.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_tells_family_role_and_number_under_any_prefix),
        cmocka_unit_test(a_name_that_only_looks_like_attention_is_none),
        cmocka_unit_test(
            a_layer_has_its_tensors_under_the_names_of_a_state_dict),
        cmocka_unit_test(layers_are_numbered_as_their_names_are),
        cmocka_unit_test(second_attentions_come_after_all_others),
        cmocka_unit_test(modules_without_a_number_follow_their_paths),
        cmocka_unit_test(an_output_projection_alone_is_ignored),
        cmocka_unit_test(a_checkpoint_that_cannot_be_served_says_why),
        cmocka_unit_test(what_no_weight_can_be_is_refused),
        cmocka_unit_test(without_memory_reading_says_so),
        cmocka_unit_test(kinds_say_their_family_and_whether_they_project),
        cmocka_unit_test(a_conv1d_is_transposed_whatever_its_size),
        cmocka_unit_test(each_dtype_of_a_weight_becomes_float32),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
