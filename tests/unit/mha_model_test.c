#include "core/kernels/kernels.h"
#include "tests/unit/request_text.h"

#include <math.h>

/* Weights that are held, beside the same weights sent: a request is read with
 * its state_dict, which is then packed and taken away. */

static struct kernels kernels;

struct held {
    struct arena arena;
    struct weights weights;
};

static void hold(struct held *held, struct mha_request *r)
{
    struct mha_plan plan;
    struct error err = { 0 };
    bool round = r->precision == PRECISION_BF16;

    if (!mha_check(r, &plan, &err))
        fail_msg("%s", err.text);
    arena_init(&held->arena, SIZE_MAX);
    assert_true(weights_pack(&plan.weights, plan.dtype, round, &kernels, &held->arena,
                             &held->weights));
    r->has_state_dict = false;
    r->state_dict.count = 0;
    r->has_model = true;
    r->model = (struct mha_model){ .weights = &held->weights,
                                   .num_heads = r->num_heads,
                                   .projects = true };
}

struct answer {
    struct mha_plan plan;
    struct mha_response response;
    struct arena arena;
};

static void answer(struct answer *a, const struct mha_request *r)
{
    struct arena scratch;
    struct parallel_serial serial;
    struct error err = { 0 };

    arena_init(&a->arena, SIZE_MAX);
    arena_init(&scratch, SIZE_MAX);
    parallel_serial_init(&serial, &scratch);
    a->response = (struct mha_response){ 0 };
    if (!mha_check(r, &a->plan, &err) ||
        !mha_run(&a->plan, &kernels, &serial.parallel, &a->arena, &a->response,
                 &err))
        fail_msg("%s", err.text);
    arena_free(&scratch);
}

static void expect_same(const struct tensor *a, const struct tensor *b)
{
    assert_int_equal(a->rank, b->rank);
    assert_int_equal(tensor_count(a), tensor_count(b));
    assert_memory_equal(a->data, b->data,
                        (size_t)tensor_count(a) * dtype_size(a->dtype));
}

#define TORCH                                                                  \
    "state_dict.in_proj_weight 12 4;state_dict.in_proj_bias 12;"               \
    "state_dict.out_proj.weight 3 4;state_dict.out_proj.bias 3;"
#define BERT                                                                   \
    "state_dict.query.weight 6 4;state_dict.query.bias 6;"                     \
    "state_dict.key.weight 6 4;state_dict.value.weight 6 4;"

static void held_weights_give_the_bytes_of_sent_ones(void **state)
{
    static const char *const requests[] = {
        "query 2 5 4;num_heads 2;" TORCH,
        "precision 1;query 2 5 4;num_heads 2;" TORCH,
        "precision 2;query 2 5 4;num_heads 2;" TORCH,
        "query 5 4;num_heads 2;key 7 4;" TORCH
        "state_dict.bias_k 1 1 4;state_dict.bias_v 1 1 4",
        "hidden_states 2 5 4;num_heads 3;is_causal 1;" BERT,
        "query 5 2 4;layout 2;num_heads 3;" BERT,
        "query 2 5 4;num_heads 3;state_dict.query.weight 6 4;"
        "state_dict.key.weight 6 4",
        "query 1 4;num_heads 2;" TORCH,
        "query 9 70;num_heads 2;state_dict.in_proj_weight 210 70;"
        "state_dict.in_proj_bias 210;state_dict.out_proj.weight 81 70",
        "precision 2;query 2 300;num_heads 2;state_dict.query.weight 66 300;"
        "state_dict.key.weight 66 300;state_dict.key.bias 66",
        "precision 2;query 1 71;key 9 3;num_heads 2;"
        "state_dict.query.weight 258 71;state_dict.key.weight 258 3;"
        "state_dict.key.bias 258;state_dict.out_proj.weight 81 258",
    };
    enum { COUNT = sizeof requests / sizeof *requests };
    static const char *const ceilings[] = { "portable", "avx2", "avx512",
                                            "amx" };

    for (size_t j = 0; j < 4 * COUNT; j++) {
        size_t i = j % COUNT;

        assert_true(kernels_select(cpu_features(), ceilings[j / COUNT],
                                   &kernels));

        struct fixture *f = *state;
        struct answer sent, from_model;
        struct held held;

        request_read(f, requests[i]);
        answer(&sent, &f->r);
        hold(&held, &f->r);
        answer(&from_model, &f->r);
        expect_same(&sent.response.output, &from_model.response.output);
        expect_same(&sent.response.weights, &from_model.response.weights);
        arena_free(&sent.arena);
        arena_free(&from_model.arena);
        arena_free(&held.arena);
    }
    assert_true(kernels_select(0, NULL, &kernels));
}

static void expect_close(const struct tensor *a, const struct tensor *b)
{
    const float *x = a->data, *y = b->data;

    assert_int_equal(tensor_count(a), tensor_count(b));
    for (int64_t i = 0; i < tensor_count(a); i++)
        assert_true(fabsf(x[i] - y[i]) <= 1e-5f * (1 + fabsf(y[i])));
}

/* From 16 rows on by pieces, whose sums differ in their last bits; below, by
 * the floats. */
static void weights_in_pieces_give_what_the_floats_give(void **state)
{
    static const struct {
        const char *request;
        bool split;
    } rows[] = {
        { "query 2 20 6;num_heads 2;state_dict.in_proj_weight 18 6;"
          "state_dict.in_proj_bias 18;state_dict.out_proj.weight 6 6", true },
        { "query 16 6;key 3 6;num_heads 2;state_dict.in_proj_weight 18 6;"
          "state_dict.out_proj.weight 70 6;state_dict.out_proj.bias 70", true },
        { "query 3 70;key 17 33;value 17 34;num_heads 2;"
          "state_dict.q_proj_weight 70 70;state_dict.k_proj_weight 70 33;"
          "state_dict.v_proj_weight 70 34;state_dict.in_proj_bias 210;"
          "state_dict.out_proj.weight 70 70", true },
        { "layout 2;hidden_states 9 2 4;num_heads 3;" BERT, true },
        { "query 2 17 4;num_heads 3;state_dict.query.weight 6 4;"
          "state_dict.key.weight 6 4", true },
        { "query 2 9 4;num_heads 2;add_zero_attn 1;" TORCH
          "state_dict.bias_k 1 1 4;state_dict.bias_v 1 1 4", true },
        { "query 15 4;num_heads 2;" TORCH, false },
    };
    struct fixture *f = *state;

    assert_true(kernels_select(cpu_features(), NULL, &kernels));
    if (kernels.split_rows == NULL) {
        assert_true(kernels_select(0, NULL, &kernels));
        skip();
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct answer floats, pieces;
        struct weights split;
        struct held held;

        request_read(f, rows[i].request);
        hold(&held, &f->r);
        answer(&floats, &f->r);
        assert_true(weights_split(&held.weights, &kernels, &held.arena, &split));
        f->r.model.weights = &split;
        answer(&pieces, &f->r);
        expect_close(&pieces.response.output, &floats.response.output);
        expect_close(&pieces.response.weights, &floats.response.weights);
        assert_int_equal(pieces.plan.arena_bytes > floats.plan.arena_bytes,
                         rows[i].split);
        if (!rows[i].split)
            expect_same(&pieces.response.output, &floats.response.output);
        arena_free(&floats.arena);
        arena_free(&pieces.arena);
        arena_free(&held.arena);
    }
    assert_true(kernels_select(0, NULL, &kernels));
}

static const struct {
    const char *request;
    int64_t heads; /* that the model says */
    enum error_code code;
    const char *where;
} cases[] = {
    { "query 2 4;num_heads 2", 2, ERR_NONE, "" },
    { "query 2 4", 2, ERR_NONE, "" },
    { "query 2 4;num_heads 4", 0, ERR_NONE, "" },
    { "query 2 4", 0, ERR_MISSING, "/num_heads" },
    { "query 2 4;num_heads 4", 2, ERR_CONFLICT, "/num_heads" },
    { "query 2 4;num_heads 3", 0, ERR_SHAPE, "/num_heads" },
    { "query 2 4;num_kv_heads 1", 2, ERR_SHAPE, "/num_kv_heads" },
    { "query 2 4;num_kv_heads 2", 2, ERR_NONE, "" },
    { "query 2 5;num_heads 4", 2, ERR_SHAPE, "/query" },
    { "hidden_states 1 2 3", 2, ERR_SHAPE, "/hidden_states" },
    { "query 2 4;key 2 3", 2, ERR_SHAPE, "/key" },
    { "query 2 4;value 2 3", 2, ERR_SHAPE, "/value" },
    { "query 1 2 2 4;num_heads 1", 2, ERR_CONFLICT, "/model" },
    { "query 3", 0, ERR_SHAPE, "/query" },
    { "query 2 4;attn_mask 1 3", 0, ERR_MISSING, "/num_heads" },
    { "query 2 4;compare_output 2 3", 2, ERR_NONE, "" },
    { "query 2 4;compare_output 2 4;has_output_projection 1", 2, ERR_NONE, "" },
    { "query 2 4;compare_output 2 3;has_output_projection 1;"
      "output_projection 1", 2, ERR_NONE, "" },
};

static void a_request_of_a_model_is_taken_or_refused_at_the_right_field(
    void **state)
{
    struct fixture *f = *state;
    struct held held;

    request_read(f, "query 2 4;num_heads 2;" TORCH);
    hold(&held, &f->r);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mha_plan plan;
        struct error err = { 0 };

        request_read(f, cases[i].request);
        f->r.has_model = true;
        f->r.model = (struct mha_model){ &held.weights, cases[i].heads, true };
        mha_check(&f->r, &plan, &err);
        if (err.code != cases[i].code || strcmp(err.where, cases[i].where) != 0)
            fail_msg("%s: %s at \"%s\" (%s)", cases[i].request,
                     error_name(err.code), err.where, err.text);
    }
    arena_free(&held.arena);
}

static void the_models_own_flaw_comes_after_the_query_and_before_heads(
    void **state)
{
    static const struct {
        const char *request;
        const char *where;
    } rows[] = {
        { "query 3", "/query" },
        { "query 2 4;key 1 1 1", "/key" },
        { "query 2 4;num_heads 3", "/model" },
        { "query 2 4;attn_mask 9 9", "/model" },
    };
    struct fixture *f = *state;
    struct error flaw = { ERR_NOT_FOUND, "/model", "no such model" };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mha_plan plan;
        struct error err = { 0 };

        request_read(f, rows[i].request);
        f->r.has_model = true;
        f->r.model_flaw = &flaw;
        assert_false(mha_check(&f->r, &plan, &err));
        assert_string_equal(err.where, rows[i].where);
    }
}

static void a_model_that_is_not_held_is_not_found(void **state)
{
    struct fixture *f = *state;
    struct mha_plan plan;
    struct error err = { 0 };

    request_read(f, "query 2 4;num_heads 3");
    f->r.has_model = true;
    assert_false(mha_check(&f->r, &plan, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_string_equal(err.where, "/model");
}

/* -1: not given. */
static void expect_output(struct fixture *f, bool projects, int given,
                          int64_t width)
{
    struct mha_plan plan;
    struct error err = { 0 };

    f->r.model.projects = projects;
    f->r.has_output_projection = given >= 0;
    f->r.output_projection = given == 1;
    if (mha_check(&f->r, &plan, &err))
        assert_int_equal(plan.output_dim[1], width);
    else
        assert_string_equal(err.where, width == 0 ? "/output_projection" : "?");
}

static void the_output_projection_is_the_modules_own_unless_it_is_asked_for(
    void **state)
{
    struct fixture *f = *state;
    struct held held;

    request_read(f, "query 2 4;num_heads 2;" TORCH);
    hold(&held, &f->r);
    expect_output(f, true, -1, 3);
    expect_output(f, false, -1, 4);
    expect_output(f, true, 0, 4);
    expect_output(f, false, 1, 3);
    arena_free(&held.arena);
    request_read(f, "query 2 4;num_heads 3;" BERT);
    hold(&held, &f->r);
    expect_output(f, true, -1, 6);
    expect_output(f, false, 0, 6);
    expect_output(f, true, 1, 0);
    arena_free(&held.arena);
}

static void a_state_dicts_output_projection_can_be_left_out(void **state)
{
    struct fixture *f = *state;

    request_read(f, "query 2 4;num_heads 2;" TORCH);
    expect_output(f, false, -1, 3);
    expect_output(f, false, 1, 3);
    expect_output(f, false, 0, 4);
    request_read(f, "query 2 4;num_heads 2");
    expect_output(f, false, 0, 4);
    expect_output(f, false, 1, 0);
}

/* 1024 x 256 weights beside two rows: what the request takes, in each
 * precision, is a matter of its rows alone. */
static void memory_of_a_request_does_not_grow_with_held_weights(void **state)
{
    static const char *const precisions[] = { "precision 0;", "precision 1;",
                                              "precision 2;" };
    struct fixture *f = *state;

    for (size_t i = 0; i < 3; i++) {
        char text[TEXT_MAX];
        struct held held;
        struct mha_plan plan;
        struct error err = { 0 };

        snprintf(text, sizeof text,
                 "%squery 2 256;num_heads 2;state_dict.in_proj_weight 768 256;"
                 "state_dict.out_proj.weight 256 256", precisions[i]);
        request_read(f, text);
        hold(&held, &f->r);
        assert_true(mha_check(&f->r, &plan, &err));
        assert_true(plan.arena_bytes < 64 * 1024);
        assert_true(held.arena.used_bytes >= 4 * 256 * 256 * sizeof(float));
        arena_free(&held.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held_weights_give_the_bytes_of_sent_ones),
        cmocka_unit_test(weights_in_pieces_give_what_the_floats_give),
        cmocka_unit_test(
            a_request_of_a_model_is_taken_or_refused_at_the_right_field),
        cmocka_unit_test(
            the_models_own_flaw_comes_after_the_query_and_before_heads),
        cmocka_unit_test(a_model_that_is_not_held_is_not_found),
        cmocka_unit_test(
            the_output_projection_is_the_modules_own_unless_it_is_asked_for),
        cmocka_unit_test(a_state_dicts_output_projection_can_be_left_out),
        cmocka_unit_test(memory_of_a_request_does_not_grow_with_held_weights),
    };

    if (!kernels_select(0, NULL, &kernels))
        return 1;
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
