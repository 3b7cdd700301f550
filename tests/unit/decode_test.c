#include "api/decode.h"
#include "api/encode.h"
#include "tests/unit/allocations.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct limits generous = { .response_bytes = INT64_MAX,
                                        .request_flops = 1e300 };

struct decoded {
    struct arena arena;
    struct request request;
    struct mha_plan plan;
    struct error err;
    bool ok;
};

static void decode_for(struct decoded *d, const char *body,
                       const struct wire_format *reply,
                       const struct limits *limits)
{
    struct bytes bytes = { (const uint8_t *)body, strlen(body) };

    d->err.code = ERR_NONE;
    arena_init(&d->arena, (size_t)1 << 30);
    d->ok = decode_request(&wire_json, bytes, NULL, NULL, &d->arena, &d->request,
                           &d->err) &&
            decode_plan(&d->request, reply, limits, &d->plan, &d->err);
    assert_int_equal(d->ok, d->err.code == ERR_NONE);
}

static void decode(struct decoded *d, const char *body,
                   const struct limits *limits)
{
    decode_for(d, body, &wire_json, limits);
}

static void a_sound_request_becomes_a_plan(void **state)
{
    struct decoded d;

    (void)state;
    decode(&d, "{\"query\": [[1, 2], [3, 4], [5, 6]], \"num_heads\": 2}",
           &generous);
    assert_true(d.ok);
    assert_ptr_equal(d.plan.request, &d.request.mha);
    assert_int_equal(d.plan.L, 3);
    assert_int_equal(d.plan.S, 3);
    assert_int_equal(d.plan.H, 2);
    assert_int_equal(d.plan.D, 1);
    arena_free(&d.arena);
}

static void decode_tells_before_check_and_check_before_limits(void **state)
{
    static const struct limits tight = { .response_bytes = 1,
                                         .request_flops = 1 };
    static const struct {
        const char *body, *where;
        enum error_code code;
    } rows[] = {
        { "{\"query\": [[1, 2]], \"num_heads\": 3", "", ERR_JSON },
        { "{\"query\": [[1, 2]], \"attn_mask\": [[tru]]}", "", ERR_JSON },
        { "{\"query\": [[1, 2]], \"attn_mask\": [[true, fals]]}", "", ERR_JSON },
        { "{\"query\": [[1, 2]], \"attn_mask\": [[f", "", ERR_JSON },
        { "{\"query\": [[1, 2]], \"num_heads\": 3, \"x\": 1}", "/x",
          ERR_UNKNOWN },
        { "{\"query\": [[1, 2]], \"num_heads\": 3}", "/num_heads", ERR_SHAPE },
        { "{\"query\": [[1, 2], [3]], \"num_heads\": 3}", "/query",
          ERR_SHAPE },
        { "{\"query\": [[1, 2]], \"num_heads\": 2}", "", ERR_TOO_LARGE },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct decoded d;

        decode(&d, rows[i].body, &tight);
        assert_int_equal(d.err.code, rows[i].code);
        assert_string_equal(d.err.where, rows[i].where);
        arena_free(&d.arena);
    }
}

static void work_over_the_limit_is_refused_with_both_figures(void **state)
{
    static const char body[] = "{\"query\": [[1, 2], [3, 4]]}";
    struct limits limits = generous;
    struct decoded d;
    double flops = 0;

    (void)state;
    decode(&d, body, &limits);
    for (int i = 0; i < MHA_STEPS; i++)
        flops += d.plan.flops[i];
    arena_free(&d.arena);
    assert_true(flops > 8);

    limits.request_flops = flops;
    decode(&d, body, &limits);
    assert_true(d.ok);
    arena_free(&d.arena);

    limits.request_flops = 8;
    decode(&d, body, &limits);
    assert_int_equal(d.err.code, ERR_TOO_LARGE);
    assert_string_equal(d.err.where, "");
    assert_non_null(strstr(d.err.text, "the 8 of max_request_flops"));
    arena_free(&d.arena);
}

/* 20 KB that ask for weights of 20000 x 20000. */
static void a_huge_answer_to_a_small_body_is_refused_by_its_shape(
    void **state)
{
    enum { L = 19998 };
    static char body[256 + L / 3 * 4];
    struct limits limits = generous;
    struct decoded d;
    size_t len = (size_t)snprintf(body, 128,
                                  "{\"query\": {\"shape\": [%d, 1], \"dtype\": "
                                  "\"I8\", \"base64\": \"", L);

    (void)state;
    memset(body + len, 'A', L / 3 * 4);
    memcpy(body + len + L / 3 * 4, "\"}}", 4);
    limits.response_bytes = 1 << 28;
    decode(&d, body, &limits);
    assert_int_equal(d.err.code, ERR_TOO_LARGE);
    assert_string_equal(d.err.where, "");
    assert_non_null(strstr(d.err.text, "268435456 of max_response_bytes"));
    assert_true(d.arena.held_bytes < 1 << 20);
    arena_free(&d.arena);

    memcpy(body + len + L / 3 * 4, "\"}, \"need_weights\": false}", 27);
    decode(&d, body, &limits);
    assert_true(d.ok);
    arena_free(&d.arena);
}

static int64_t bound_of_a_gigabyte(const struct request *request,
                                   const struct mha_plan *plan)
{
    (void)request, (void)plan;
    return 1 << 30;
}

static void the_bound_is_that_of_the_format_of_the_reply(void **state)
{
    static const struct wire_format large = { .bound = bound_of_a_gigabyte };
    struct limits limits = generous;
    struct decoded d;

    (void)state;
    limits.response_bytes = (1 << 30) - 1;
    decode_for(&d, "{\"query\": [[1]]}", &large, &limits);
    assert_int_equal(d.err.code, ERR_TOO_LARGE);
    arena_free(&d.arena);
    limits.response_bytes = 1 << 30;
    decode_for(&d, "{\"query\": [[1]]}", &large, &limits);
    assert_true(d.ok);
    arena_free(&d.arena);
}

/* Refused for what it asks, though the reply would not have it. */
static void an_npy_reply_computes_the_output_alone(void **state)
{
    struct decoded d;

    (void)state;
    decode_for(&d, "{\"query\": [[1], [2]], \"weights_top_k\": 3}", &wire_npy,
               &generous);
    assert_string_equal(d.err.where, "/weights_top_k");
    arena_free(&d.arena);
    decode_for(&d, "{\"query\": [[1], [2]], \"compare_to\": {\"output\": "
                   "[[1]]}}", &wire_npy, &generous);
    assert_string_equal(d.err.where, "/compare_to/output");
    arena_free(&d.arena);
    decode_for(&d, "{\"query\": [[1], [2]], \"weights_top_k\": 1, \"return\": "
                   "[\"q\"], \"compare_to\": {\"output\": [[1], [2]]}}",
               &wire_npy, &generous);
    assert_true(d.ok);
    assert_false(d.request.mha.need_weights);
    assert_int_equal(d.request.mha.returns, 0);
    assert_int_equal(d.request.mha.compare_output.value.rank, 0);
    arena_free(&d.arena);
}

enum { L = 128, E = 64 };

/* L x E numbers of 17 digits and a mask, as a client would send them. */
static char *large_body(void)
{
    char *body = malloc(L * E * 24 + 256);
    size_t len;

    assert_non_null(body);
    len = (size_t)snprintf(body, 64, "{\"num_heads\": 4, \"query\": [");
    for (int i = 0; i < L; i++) {
        for (int j = 0; j < E; j++)
            len += (size_t)snprintf(body + len, 32, "%s%.17g",
                                    j == 0 ? "[" : ", ",
                                    (double)(i * E + j) / 7 - 500);
        len += (size_t)snprintf(body + len, 8, i == L - 1 ? "]" : "], ");
    }
    snprintf(body + len, 64, "], \"is_causal\": true, \"return\": [\"lse\"]}");
    return body;
}

/* Decodes and encodes; what mha_run would compute is made up. */
static bool serve(const char *body, size_t *reply_bytes)
{
    static float output[L * E], weights[L * L];
    struct decoded d;
    struct buffer out;
    struct mha_response mha = {
        .output = tensor_packed(output, DTYPE_F32, 2, (int64_t[]){ L, E }),
        .weights = tensor_packed(weights, DTYPE_F32, 2, (int64_t[]){ L, L }),
    };
    struct response response = { .mha = &mha };
    size_t len;

    decode(&d, body, &generous);
    if (!d.ok) {
        assert_int_equal(d.err.code, ERR_OVERLOADED);
        arena_free(&d.arena);
        return false;
    }
    buffer_init(&out, SIZE_MAX / 4);
    encode_json(&d.request, &d.plan, &response, &out);
    arena_free(&d.arena);

    void *reply = buffer_take(&out, &len);

    *reply_bytes = len;
    free(reply);
    buffer_free(&out);
    return reply != NULL;
}

static void a_request_of_128_by_64_makes_few_allocations(void **state)
{
    char *body = large_body();
    size_t len;

    (void)state;
    allocations = 0;
    assert_true(serve(body, &len));
    if (COUNTS_ALLOCATIONS)
        assert_in_range(allocations, 2, 6);
    assert_true(len > L * L);
    free(body);
}

static void any_allocation_may_fail_and_the_next_request_is_served(
    void **state)
{
    char *body;
    size_t len;

    (void)state;
    if (!COUNTS_ALLOCATIONS)
        skip();
    body = large_body();
    for (int n = 1;; n++) {
        allocations = 0;
        fails_at = n;

        bool ok = serve(body, &len);

        fails_at = 0;
        if (ok)
            break;
        assert_true(n < 100);
        assert_true(serve(body, &len));
    }
    free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_request_becomes_a_plan),
        cmocka_unit_test(decode_tells_before_check_and_check_before_limits),
        cmocka_unit_test(work_over_the_limit_is_refused_with_both_figures),
        cmocka_unit_test(a_huge_answer_to_a_small_body_is_refused_by_its_shape),
        cmocka_unit_test(the_bound_is_that_of_the_format_of_the_reply),
        cmocka_unit_test(an_npy_reply_computes_the_output_alone),
        cmocka_unit_test(a_request_of_128_by_64_makes_few_allocations),
        cmocka_unit_test(any_allocation_may_fail_and_the_next_request_is_served),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
