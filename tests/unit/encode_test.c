#include "api/encode.h"

#include "api/number.h"
#include "api/number_array.h"
#include "core/cpu.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

/* A response of one head, two queries and two keys, to be changed. */
struct reply {
    struct request request;
    struct mha_plan plan;
    struct mha_response mha;
    struct response response;
    char *text; /* encoded, NUL-terminated */
    size_t len;
};

static float output[] = { 1, -0.5f, 0.1f, 1e-7f };
static float weights[] = { 1, 0, 0.25f, 0.75f };
static float scores[] = { 0, -INFINITY, 1, 2 };

static struct tensor pair(void *data, enum dtype dtype)
{
    return tensor_packed(data, dtype, 2, (const int64_t[]){ 2, 2 });
}

static void start(struct reply *r)
{
    *r = (struct reply){
        .plan = { .N = 1, .L = 2, .S = 2, .T = 2, .E = 2, .H = 1, .G = 1,
                  .D = 2, .Dv = 2, .output_dim = { 2, 2 }, .output_rank = 2 },
        .mha = { .output = pair(output, DTYPE_F32),
                 .weights = pair(weights, DTYPE_F32) },
        .response = { .kernels = "portable" },
    };
    r->request.mha.need_weights = true;
    r->request.mha.average_attn_weights = true;
    r->plan.request = &r->request.mha;
    r->response.mha = &r->mha;
}

static const char *encode(struct reply *r)
{
    struct buffer out;
    int64_t bound = encode_json_bound(&r->request, &r->plan);

    free(r->text);
    buffer_init(&out, SIZE_MAX / 4);
    encode_json(&r->request, &r->plan, &r->response, &out);
    assert_true((int64_t)out.len <= bound);
    buffer_append(&out, "", 1);
    r->text = buffer_take(&out, &r->len);
    assert_non_null(r->text);
    return r->text;
}

static json_t *parse(struct reply *r)
{
    json_error_t why;
    json_t *root = json_loads(encode(r), JSON_REJECT_DUPLICATES, &why);

    if (root == NULL)
        fail_msg("%s: %s", why.text, r->text);
    return root;
}

static void a_reply_is_output_and_weights_in_any_encoding(void **state)
{
    static const char *const want[] = {
        [ENCODING_NESTED] = "{\"output\":[[1,-0.5],[0.1,1e-7]],"
                            "\"weights\":[[1,0],[0.25,0.75]]}\n",
        [ENCODING_FLAT] = "{\"output\":{\"shape\":[2,2],"
                          "\"data\":[1,-0.5,0.1,1e-7]},"
                          "\"weights\":{\"shape\":[2,2],"
                          "\"data\":[1,0,0.25,0.75]}}\n",
        [ENCODING_BASE64] = "{\"output\":{\"shape\":[2,2],\"dtype\":\"F32\","
                            "\"base64\":\"AACAPwAAAL/NzMw9lb/WMw==\"},"
                            "\"weights\":{\"shape\":[2,2],\"dtype\":\"F32\","
                            "\"base64\":\"AACAPwAAAAAAAIA+AABAPw==\"}}\n",
    };
    struct reply r;

    (void)state;
    start(&r);
    for (int i = 0; i < 3; i++) {
        r.request.response_format = (enum encoding)i;
        assert_string_equal(encode(&r), want[i]);
    }
    free(r.text);
}

static void arrays_nest_as_deep_as_the_tensor_has_axes(void **state)
{
    static const char *const want[] = {
        "[1,-0.5,0.1,1e-7]",
        "[[1,-0.5,0.1,1e-7]]",
        "[[[1],[-0.5]],[[0.1],[1e-7]]]",
        "[[[[1,-0.5]],[[0.1,1e-7]]]]",
    };
    static const int64_t dim[][4] = {
        { 4 }, { 1, 4 }, { 2, 2, 1 }, { 1, 2, 1, 2 },
    };
    struct reply r;

    (void)state;
    start(&r);
    r.mha.weights.rank = 0;
    for (int rank = 1; rank <= 4; rank++) {
        r.mha.output = tensor_packed(output, DTYPE_F32, rank, dim[rank - 1]);
        assert_memory_equal(encode(&r) + strlen("{\"output\":"),
                            want[rank - 1], strlen(want[rank - 1]));
    }
    free(r.text);
}

static bool run_backwards(struct parallel *self, int64_t pieces,
                          parallel_piece *piece, void *arg)
{
    (void)self;
    assert_in_range(pieces, 1, 32);
    while (pieces-- > 0)
        assert_true(piece(arg, pieces, NULL));
    return true;
}

static const struct long_array {
    int rank;
    int64_t dim[4];
} long_arrays[] = {
    { 1, { 70000 } },          { 2, { 35000, 2 } },     { 2, { 65537, 1 } },
    { 2, { 300, 300 } },       { 3, { 3, 1, 30000 } },  { 3, { 2, 130, 257 } },
    { 4, { 40000, 1, 1, 1 } }, { 4, { 2, 3, 110, 111 } }, { 4, { 7, 11, 9, 99 } },
    { 2, { 2, 1500000 } },     { 2, { 256, 255 } },     { 4, { 1, 1, 33000, 2 } },
};

/* Every text as long as it can be, or of any length. */
static void fill(struct tensor *t, bool longest)
{
    for (int64_t i = 0; i < tensor_count(t); i++) {
        if (t->dtype == DTYPE_F32)
            ((float *)t->data)[i] = longest ? -1.17549435e-38F
                                            : (float)(i * 7919 % 10007) / 8;
        else if (t->dtype == DTYPE_F64)
            ((double *)t->data)[i] = longest ? -2.2250738585072014e-308
                                             : (double)(i * 7919 % 10007) / 3;
        else
            ((int64_t *)t->data)[i] = longest ? INT64_MIN : i * 7919 % 10007;
    }
}

static void long_arrays_are_the_same_text_in_parts(void **state)
{
    static const enum dtype dtypes[] = { DTYPE_F32, DTYPE_F64, DTYPE_I64 };
    struct parallel backwards = { run_backwards };
    struct reply r;

    (void)state;
    start(&r);
    r.mha.weights.rank = 0;
    for (size_t i = 0; i < sizeof long_arrays / sizeof *long_arrays * 6; i++) {
        const struct long_array *shape = &long_arrays[i / 6];
        struct tensor *t = &r.mha.output;
        struct buffer parts;

        *t = tensor_packed(NULL, dtypes[i % 3], shape->rank, shape->dim);
        t->data = malloc(tensor_bytes(t));
        assert_non_null(t->data);
        fill(t, i % 2);
        r.request.mha.precision = i % 3 == 0 ? PRECISION_F32 : PRECISION_F64;
        r.plan.output_rank = shape->rank;
        memcpy(r.plan.output_dim, shape->dim, sizeof shape->dim);
        r.request.response_format = i % 6 < 3 ? ENCODING_NESTED : ENCODING_FLAT;
        r.response.parallel = NULL;
        encode(&r);
        r.response.parallel = &backwards;
        buffer_init(&parts, SIZE_MAX / 4);
        encode_json(&r.request, &r.plan, &r.response, &parts);
        assert_int_equal(parts.len + 1, r.len);
        assert_memory_equal(parts.data, r.text, parts.len);
        buffer_free(&parts);
        free(t->data);
    }
    free(r.text);
}

static void doubles_are_printed_as_doubles(void **state)
{
    double values[] = { 0.1, 1e-300, -123456.78901234567, 1e22 };
    struct reply r;

    (void)state;
    start(&r);
    r.request.mha.precision = PRECISION_F64;
    r.mha.output = pair(values, DTYPE_F64);
    r.mha.weights.rank = 0;
    assert_string_equal(encode(&r), "{\"output\":[[0.1,1e-300],"
                                    "[-123456.78901234567,1e22]]}\n");
    r.request.response_format = ENCODING_BASE64;
    assert_non_null(strstr(encode(&r), "\"dtype\":\"F64\""));
    free(r.text);
}

static void minus_infinity_is_null_but_in_base64_its_bits(void **state)
{
    struct reply r;

    (void)state;
    start(&r);
    r.request.mha.returns = MHA_RETURN_SCORES | MHA_RETURN_LSE;
    r.mha.scores = pair(scores, DTYPE_F32);
    r.mha.lse = tensor_packed(scores, DTYPE_F32, 1, (const int64_t[]){ 2 });
    assert_non_null(strstr(encode(&r), ",\"scores\":[[0,null],[1,2]]"));
    assert_non_null(strstr(r.text, ",\"lse\":[0,null]"));
    r.request.response_format = ENCODING_BASE64;
    assert_non_null(strstr(encode(&r), "\"AAAAAAAAgP8AAIA/AAAAQA==\""));
    free(r.text);
}

static void what_was_asked_for_stands_in_its_order(void **state)
{
    static const char *const names[] = { "output", "weights", "q", "k", "v",
                                         "scores", "context", "lse" };
    struct reply r;
    const char *last;

    (void)state;
    start(&r);
    r.request.mha.returns = 63;
    r.mha.q = r.mha.k = r.mha.v = r.mha.scores = r.mha.context = r.mha.lse =
        pair(output, DTYPE_F32);
    last = encode(&r);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char member[16] = "\"";

        memcpy(member + 1, names[i], strlen(names[i]));
        memcpy(member + 1 + strlen(names[i]), "\":", 3);
        last = strstr(last, member);
        assert_non_null(last);
    }
    free(r.text);
}

static void the_k_largest_weights_are_indices_values_and_what_they_keep(
    void **state)
{
    int64_t indices[] = { 0, 1 };
    float values[] = { 1, 0.75f };
    struct reply r;

    (void)state;
    start(&r);
    r.request.mha.weights_top_k = 1;
    r.mha.weights.rank = 0;
    r.mha.top_indices =
        tensor_packed(indices, DTYPE_I64, 2, (const int64_t[]){ 2, 1 });
    r.mha.top_values =
        tensor_packed(values, DTYPE_F32, 2, (const int64_t[]){ 2, 1 });
    r.mha.top_kept =
        tensor_packed(values, DTYPE_F32, 1, (const int64_t[]){ 2 });
    assert_non_null(strstr(encode(&r),
                           ",\"weights\":{\"indices\":[[0],[1]],"
                           "\"values\":[[1],[0.75]],\"kept\":[1,0.75]}}\n"));
    r.request.response_format = ENCODING_BASE64;
    assert_non_null(strstr(encode(&r), "\"dtype\":\"I64\",\"base64\":"
                                       "\"AAAAAAAAAAABAAAAAAAAAA==\""));
    free(r.text);
}

static void fully_masked_queries_are_told_when_there_are_any(void **state)
{
    struct reply r;

    (void)state;
    start(&r);
    assert_null(strstr(encode(&r), "fully_masked_queries"));
    r.mha.fully_masked_queries = 3;
    assert_non_null(strstr(encode(&r), ",\"fully_masked_queries\":3}"));
    free(r.text);
}

static void a_comparison_names_its_worst_element(void **state)
{
    struct reply r;

    (void)state;
    start(&r);
    r.mha.compare_weights = (struct comparison){
        .present = true, .max_abs = 0.125, .max_rel = 0.5, .rms = 0.0625,
        .rank = 2, .index = { 1, 0 }, .got = (double)0.1f, .expected = -0.025,
    };
    assert_non_null(strstr(
        encode(&r),
        ",\"comparison\":{\"weights\":{\"max_abs\":0.125,\"max_rel\":0.5,"
        "\"rms\":0.0625,\"worst\":{\"index\":[1,0],\"got\":0.1,"
        "\"expected\":-0.025}}}}"));
    r.mha.compare_output = r.mha.compare_weights;
    r.mha.compare_output.max_rel = INFINITY;
    json_decref(parse(&r));
    assert_non_null(strstr(r.text, "\"comparison\":{\"output\":{"));
    assert_non_null(strstr(r.text, "\"max_rel\":null"));
    assert_non_null(strstr(r.text, "}},\"weights\":{\"max_abs\""));
    free(r.text);
}

static void a_profile_has_the_seven_steps_and_comes_last(void **state)
{
    static const char *const steps[] = {
        "decode", "projections", "similarity", "softmax", "weighted sum",
        "output projection", "encode",
    };
    struct reply r;

    (void)state;
    start(&r);
    r.request.profile = true;
    r.response.decode_ns = 12500;
    r.plan.flops[MHA_SIMILARITY] = 524288;
    r.mha.step_ns[MHA_SIMILARITY] = 1234;

    json_t *root = parse(&r), *profile = json_object_get(root, "profile");
    json_t *list = json_object_get(profile, "steps");

    assert_string_equal(json_string_value(json_object_get(profile, "kernels")),
                        "portable");
    assert_int_equal(json_array_size(list), 7);
    for (size_t i = 0; i < 7; i++)
        assert_string_equal(
            json_string_value(json_object_get(json_array_get(list, i), "name")),
            steps[i]);
    assert_non_null(strstr(r.text, "{\"name\":\"decode\",\"flops\":0,"
                                   "\"us\":12.5}"));
    assert_non_null(strstr(r.text, "{\"name\":\"similarity\",\"flops\":524288,"
                                   "\"us\":1.234}"));
    assert_true(json_number_value(json_object_get(json_array_get(list, 6),
                                                  "us")) > 0);
    assert_string_equal(r.text + r.len - 1 - strlen("]}}\n"), "]}}\n");
    json_decref(root);
    free(r.text);
}

/* 2^20 of each kind, spread over all bit patterns. */
static void no_number_is_longer_than_the_bound_thinks(void **state)
{
    char text[NUMBER_F64_BYTES];
    size_t most_f32 = 0, most_f64 = 0;

    (void)state;
    for (uint32_t i = 0; i < 1 << 20; i++) {
        uint32_t bits = i * 4093u + 0x80000000u;
        uint64_t wide = i * 17592186044399u + 0x8000000000000000u;
        float f;
        double d;
        size_t len;

        memcpy(&f, &bits, sizeof f);
        memcpy(&d, &wide, sizeof d);
        len = isfinite(f) ? number_write_f32(f, text) : 0;
        most_f32 = len > most_f32 ? len : most_f32;
        len = isfinite(d) ? number_write_f64(d, text) : 0;
        most_f64 = len > most_f64 ? len : most_f64;
    }
    assert_in_range(most_f32, 14, 15);
    assert_in_range(most_f64, 23, 24);
    assert_int_equal(number_write_i64(INT64_MIN, text), 20);
}

/* Every member, in the longest numbers there are. */
static void a_reply_never_passes_its_bound(void **state)
{
    enum { N = 2, H = 2, L = 3, T = 3, D = 2 };
    static float longest[N * H * L * T];
    static int64_t index[N * H * L * T];
    struct reply r;

    (void)state;
    for (size_t i = 0; i < sizeof longest / sizeof *longest; i++) {
        longest[i] = -1.17549435e-38f;
        index[i] = INT64_MIN;
    }
    start(&r);
    r.plan.N = N, r.plan.H = H, r.plan.G = H, r.plan.L = L, r.plan.T = T;
    r.plan.D = r.plan.Dv = D;
    r.plan.output_rank = 3;
    memcpy(r.plan.output_dim, (int64_t[]){ N, L, H * D }, 3 * sizeof(int64_t));
    r.mha.output = r.mha.context =
        tensor_packed(longest, DTYPE_F32, 3, r.plan.output_dim);
    r.mha.scores = tensor_packed(longest, DTYPE_F32, 4,
                                 (int64_t[]){ N, H, L, T });
    r.mha.q = r.mha.k = r.mha.v =
        tensor_packed(longest, DTYPE_F32, 4, (int64_t[]){ N, H, L, D });
    r.mha.lse = tensor_packed(longest, DTYPE_F32, 3, (int64_t[]){ N, H, L });
    r.mha.weights = r.mha.scores;
    r.request.mha.average_attn_weights = false;
    r.request.mha.returns = 63;
    r.request.profile = true;
    for (int format = 0; format < 3; format++) {
        r.request.response_format = (enum encoding)format;
        encode(&r);
    }
    r.request.mha.weights_top_k = T;
    r.mha.weights.rank = 0;
    r.mha.top_indices = tensor_packed(index, DTYPE_I64, 4, r.mha.scores.dim);
    r.mha.top_values = r.mha.scores;
    r.mha.top_kept = r.mha.lse;
    for (int format = 0; format < 3; format++) {
        r.request.response_format = (enum encoding)format;
        encode(&r);
    }
    free(r.text);
}

static void a_bound_too_large_to_say_is_saturated(void **state)
{
    struct reply r;

    (void)state;
    start(&r);
    r.plan.N = r.plan.H = r.plan.L = r.plan.T = (int64_t)1 << 40;
    assert_int_equal(encode_json_bound(&r.request, &r.plan), INT64_MAX);
}

static void a_reply_over_the_cap_fails_and_says_so(void **state)
{
    struct buffer out;
    struct reply r;

    (void)state;
    start(&r);
    buffer_init(&out, 20);
    encode_json(&r.request, &r.plan, &r.response, &out);
    assert_true(out.failed && out.over_cap);
    buffer_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reply_is_output_and_weights_in_any_encoding),
        cmocka_unit_test(arrays_nest_as_deep_as_the_tensor_has_axes),
        cmocka_unit_test(long_arrays_are_the_same_text_in_parts),
        cmocka_unit_test(doubles_are_printed_as_doubles),
        cmocka_unit_test(minus_infinity_is_null_but_in_base64_its_bits),
        cmocka_unit_test(what_was_asked_for_stands_in_its_order),
        cmocka_unit_test(the_k_largest_weights_are_indices_values_and_what_they_keep),
        cmocka_unit_test(fully_masked_queries_are_told_when_there_are_any),
        cmocka_unit_test(a_comparison_names_its_worst_element),
        cmocka_unit_test(a_profile_has_the_seven_steps_and_comes_last),
        cmocka_unit_test(no_number_is_longer_than_the_bound_thinks),
        cmocka_unit_test(a_reply_never_passes_its_bound),
        cmocka_unit_test(a_bound_too_large_to_say_is_saturated),
        cmocka_unit_test(a_reply_over_the_cap_fails_and_says_so),
    };

    int failed = cmocka_run_group_tests_name("portable", tests, NULL, NULL);

    assert_true(number_select(cpu_features(), NULL));
    return failed +
           cmocka_run_group_tests_name(number_selected(), tests, NULL, NULL);
}
