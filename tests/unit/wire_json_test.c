#include "api/encode.h"
#include "api/json_text.h"
#include "api/number_array.h"
#include "api/wire.h"
#include "core/cpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* One body decoded; the body is a block of its own size, so that the sanitizer
 * sees one byte more. */
struct decoded {
    struct arena arena;
    char *body;
    struct request request;
    struct error err;
    bool ok;
};

static void decode_bytes(struct decoded *d, const char *body, size_t len,
                         const char *query)
{
    *d = (struct decoded){ .body = malloc(len) };
    assert_true(d->body != NULL || len == 0);
    if (len > 0)
        memcpy(d->body, body, len);
    arena_init(&d->arena, (size_t)1 << 30);
    d->ok = wire_json.decode(
        (struct bytes){ (const uint8_t *)d->body, len }, query, NULL, &d->arena,
        &d->request, &d->err);
    assert_int_equal(d->ok, d->err.code == ERR_NONE);
}

static struct decoded *decode(struct decoded *d, const char *body)
{
    decode_bytes(d, body, strlen(body), NULL);
    return d;
}

static struct mha_request *accept(struct decoded *d, const char *body)
{
    decode(d, body);
    if (!d->ok)
        fail_msg("%.200s: %s", body, d->err.text);
    return &d->request.mha;
}

static void drop(struct decoded *d)
{
    arena_free(&d->arena);
    free(d->body);
}

/* What is told in the end: by decode, or by what it left to mha_check. */
static void tell(struct decoded *d, const char *body)
{
    struct mha_plan plan;

    decode(d, body);
    if (d->ok)
        mha_check(&d->request.mha, &plan, &d->err);
}

struct refusal {
    const char *body;
    enum error_code code;
    const char *where, *text; /* text: a part of the sentence */
};

static void check_refusals(const struct refusal *row, size_t rows)
{
    int wrong = 0;

    for (size_t i = 0; i < rows; i++) {
        struct decoded d;

        tell(&d, row[i].body);
        if (d.err.code != row[i].code ||
            strcmp(d.err.where, row[i].where) != 0 ||
            strstr(d.err.text, row[i].text) == NULL) {
            print_error("%s: %s at \"%s\": %s\n", row[i].body,
                        error_name(d.err.code), d.err.where, d.err.text);
            wrong++;
        }
        drop(&d);
    }
    assert_int_equal(wrong, 0);
}

#define CHECK_REFUSALS(table) \
    check_refusals(table, sizeof table / sizeof *table)

static void what_is_no_json_is_refused_whatever_else_is_wrong(void **state)
{
    static const struct refusal table[] = {
        { "", ERR_JSON, "", "line 1, column 1 (byte 0): the body has no" },
        { "  \n ", ERR_JSON, "", "line 2, column 2 (byte 4)" },
        { "[]", ERR_JSON, "", "(byte 0): a request is a JSON object" },
        { "1", ERR_JSON, "", "(byte 0)" },
        { "\"query\"", ERR_JSON, "", "(byte 0)" },
        { "null", ERR_JSON, "", "(byte 0)" },
        { "\xEF\xBB\xBF{}", ERR_JSON, "", "byte-order mark" },
        { "{\"query\": [[1]]} {}", ERR_JSON, "", "(byte 17)" },
        { "{\"query\": [[1]]} x", ERR_JSON, "", "(byte 17)" },
        { "{\"query\": [[1, 2,], [3, 4]]}", ERR_JSON, "", "(byte 17)" },
        { "{\"query\": [[01]]}", ERR_JSON, "", "(byte 12)" },
        { "{\"query\": [[1.]]}", ERR_JSON, "", "(byte 14)" },
        { "{\"query\": [[1.5.2]]}", ERR_JSON, "", "(byte 15)" },
        { "{\"query\": [[1 2]]}", ERR_JSON, "", "(byte 14)" },
        { "{\"query\": [[1}}", ERR_JSON, "", "(byte 13)" },
        { "{\"query\": [[NaN]]}", ERR_JSON, "", "(byte 12): NaN" },
        { "{\"query\": [[1, Infinity]]}", ERR_JSON, "", "(byte 15)" },
        { "{\"query\": [[-Infinity]]}", ERR_JSON, "", "(byte 12)" },
        { "{\"attn_mask\": [[NaN]]}", ERR_JSON, "", "(byte 16)" },
        { "{\"attn_mask\": [[Infinity]]}", ERR_JSON, "", "(byte 16)" },
        { "{\"attn_mask\": -Infinity}", ERR_JSON, "", "(byte 14)" },
        { "{\"attn_mask\": [{\"a\": -Infinity}]}", ERR_JSON, "", "(byte 21)" },
        { "{\"attn_mask\": {\"shape\": [-Infinity]}}", ERR_JSON, "", "(byte 25)" },
        { "{\"key_padding_mask\": [-Infinity]}", ERR_JSON, "", "(byte 22)" },
        { "{\"scale\": -Infinity}", ERR_JSON, "", "(byte 10)" },
        { "{\"mask_filter_value\": [-Infinity]}", ERR_JSON, "", "(byte 23)" },
        { "{\"mask_filter_value\": NaN}", ERR_JSON, "", "(byte 22)" },
        { "{\"nonsense\": NaN}", ERR_JSON, "", "(byte 13)" },

        /* Behind what is 422 by itself. */
        { "{\"nonsense\": 1, \"query\": [[1}", ERR_JSON, "", "(byte 28)" },
        { "{\"query\": [[\"x\", 1], [2 3]]}", ERR_JSON, "", "(byte 24)" },
        { "{\"query\": [[1], [2, 3], [4,]]}", ERR_JSON, "", "(byte 27)" },
        { "{\"query\": null, \"num_heads\": 1.5.}", ERR_JSON, "", "(byte 32)" },
        { "{\"num_heads\": \"8\", \"x\": tru}", ERR_JSON, "", "(byte 24)" },
        { "{\"query\": [[true]], \"seed\": \"\x80\"}", ERR_JSON, "",
          "(byte 29): this is not valid UTF-8" },

        /* A key twice, at any level, as whatever it is written. */
        { "{\"query\": [[1]], \"query\": [[1]]}", ERR_JSON, "",
          "(byte 17): the key \"query\" comes twice" },
        { "{\"query\": [[1]], \"\\u0071uery\": [[1]]}", ERR_JSON, "",
          "(byte 17): the key \"\\u0071uery\" comes twice" },
        { "{\"x\": 1, \"x\": 2}", ERR_JSON, "", "(byte 9)" },
        { "{\"x\": {\"y\": 1, \"y\": 2}}", ERR_JSON, "", "(byte 15)" },
        { "{\"query\": {\"shape\": [1], \"shape\": [1]}}", ERR_JSON, "",
          "(byte 25)" },
        { "{\"state_dict\": {\"a\": [1], \"a\": [1]}}", ERR_JSON, "",
          "(byte 26)" },
        { "{\"compare_to\": {\"output\": [1], \"output\": [1]}}", ERR_JSON, "",
          "(byte 31)" },
        { "{\"query\": [[{\"a\": 1, \"a\": 2}]]}", ERR_JSON, "", "(byte 21)" },
        { "{\"return\": [{\"a\": 1, \"a\": 2}]}", ERR_JSON, "", "(byte 21)" },
    };

    (void)state;
    CHECK_REFUSALS(table);
}

#define Q "\"query\": [[1, 2], [3, 4]], "

static void unknown_missing_and_conflicting_fields_come_before_options(
    void **state)
{
    static const struct refusal table[] = {
        { "{" Q "\"is_casual\": true}", ERR_UNKNOWN, "/is_casual",
          "the nearest is \"is_causal\"" },
        { "{\"num_head\": 0, " Q "\"layout\": 1}", ERR_UNKNOWN, "/num_head",
          "\"num_heads\"" },
        { "{\"Query\": [[1]]}", ERR_UNKNOWN, "/Query", "\"query\"" },
        { "{\"mask\": 1, \"num_heads\": 0, \"nonsense\": 2}", ERR_UNKNOWN,
          "/mask", "\"mask\" is no field" },
        { "{\"a/b~c\": 1}", ERR_UNKNOWN, "/a~1b~0c", "\"a/b~c\" is no field" },
        { "{\"\": 1}", ERR_UNKNOWN, "/", "\"\" is no field" },
        { "{\"query\\u0000\": [[1]]}", ERR_UNKNOWN, "/query\uFFFD",
          "the nearest is \"query\"" },
        { "{\"\\u00e9\": 1}", ERR_UNKNOWN, "/\u00E9", "is no field" },
        { "{\"x\": null, \"y\": 1}", ERR_UNKNOWN, "/x", "is no field" },

        { "{}", ERR_MISSING, "/query", "query (or hidden_states" },
        { "{\"num_heads\": \"2\"}", ERR_MISSING, "/query", "is missing" },
        { "{\"key\": [[1]], \"layout\": 5}", ERR_MISSING, "/query", "" },
        { "{" Q "\"hidden_states\": [[1]]}", ERR_CONFLICT, "/hidden_states",
          "query" },
        { "{\"hidden_states\": [[1]], \"key\": 1}", ERR_CONFLICT,
          "/hidden_states", "beside key" },
        { "{\"hidden_states\": [], \"value\": null, \"scale\": null}",
          ERR_CONFLICT, "/hidden_states", "beside value" },
    };

    (void)state;
    CHECK_REFUSALS(table);
}

static void options_are_refused_in_the_order_of_the_table(void **state)
{
    static const struct refusal table[] = {
        { "{" Q "\"precision\": 1, \"scale\": true, \"num_heads\": 0}",
          ERR_RANGE, "/num_heads", "num_heads is 0, not an integer of at" },
        { "{" Q "\"precision\": 1, \"scale\": true}", ERR_TYPE, "/scale",
          "scale is true" },
        { "{" Q "\"precision\": 1}", ERR_TYPE, "/precision",
          "precision is 1, not \"float32\", \"float64\" or \"bfloat16\"" },

        /* Before what is wrong in tensors. */
        { "{\"query\": [[\"x\"]], \"profile\": 1}", ERR_TYPE, "/profile", "" },
        { "{\"query\": 5, \"attn_mask\": 5, \"seed\": -1}", ERR_RANGE,
          "/seed", "" },
    };

    (void)state;
    CHECK_REFUSALS(table);
}

static const struct {
    const char *name;
    bool zero; /* may be 0 */
} integers[] = { { "num_heads", false }, { "num_kv_heads", false },
                 { "weights_top_k", false }, { "seed", true } };

static const struct {
    const char *text;
    enum error_code code;
} integer_texts[] = {
    { "-1", ERR_RANGE },
    { "-9223372036854775808", ERR_RANGE },
    { "9223372036854775808", ERR_RANGE },
    { "18446744073709551616", ERR_RANGE },
    { "1e19", ERR_RANGE },
    { "1e999", ERR_RANGE },
    { "1.5", ERR_TYPE },
    { "1e-1", ERR_TYPE },
    { "\"1\"", ERR_TYPE },
    { "true", ERR_TYPE },
    { "false", ERR_TYPE },
    { "null", ERR_TYPE },
    { "[1]", ERR_TYPE },
    { "{}", ERR_TYPE },
};

static void an_integer_is_one_whatever_stands_there_instead(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        char body[128], where[32];
        struct decoded d;

        snprintf(where, sizeof where, "/%s", integers[i].name);
        for (size_t j = 0; j < sizeof integer_texts / sizeof *integer_texts;
             j++) {
            snprintf(body, sizeof body, "{" Q "\"%s\": %s}", integers[i].name,
                     integer_texts[j].text);
            decode(&d, body);
            assert_int_equal(d.err.code, integer_texts[j].code);
            assert_string_equal(d.err.where, where);
            drop(&d);
        }
        snprintf(body, sizeof body, "{" Q "\"%s\": 0}", integers[i].name);
        assert_int_equal(decode(&d, body)->ok, integers[i].zero);
        drop(&d);
    }
}

static void an_integer_may_be_spelled_as_a_real(void **state)
{
    static const char *const spellings[] = {
        "2", "2.0", "2e0", "20e-1", "0.2E+1", "2.000000000000000000000000000",
    };

    (void)state;
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        char body[128];
        struct decoded d;

        snprintf(body, sizeof body, "{" Q "\"num_heads\": %s}", spellings[i]);
        assert_int_equal(accept(&d, body)->num_heads, 2);
        drop(&d);
    }
}

static void large_integers_are_exact(void **state)
{
    static const struct {
        const char *text;
        uint64_t value;
    } seeds[] = {
        { "2147483648", 2147483648u },
        { "4294967296", 4294967296u },
        { "9007199254740993", 9007199254740993u },
        { "9223372036854775807", 9223372036854775807u },
        { "9.223372036854775807e18", 9223372036854775807u },
        { "-0", 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        char body[128];
        struct decoded d;

        snprintf(body, sizeof body, "{" Q "\"seed\": %s}", seeds[i].text);
        assert_true(accept(&d, body)->seed == seeds[i].value);
        drop(&d);
    }
}

static void scalars_are_float32_unless_the_precision_is_float64(void **state)
{
    struct decoded d;
    const struct mha_request *request;

    (void)state;
    request = accept(&d, "{" Q "\"scale\": 0.1, \"mask_filter_value\": -1e39}");
    assert_true(request->scale == (double)0.1f);
    assert_true(request->mask_filter_value == (double)-INFINITY);
    drop(&d);
    request = accept(&d, "{" Q "\"scale\": 1e39, \"mask_filter_value\": -1e39,"
                         "\"softcap\": 0.1, \"precision\": \"float64\"}");
    assert_true(request->scale == 1e39 && request->softcap == 0.1);
    assert_true(request->mask_filter_value == -1e39);
    drop(&d);
}

static void options_of_other_kinds_are_refused_by_name(void **state)
{
    static const struct refusal table[] = {
        { "{" Q "\"scale\": 1e999}", ERR_RANGE, "/scale", "1e999" },
        { "{" Q "\"scale\": -1e309}", ERR_RANGE, "/scale", "" },
        { "{" Q "\"scale\": 1e39}", ERR_RANGE, "/scale", "float32" },
        { "{" Q "\"softcap\": 1e-46}", ERR_RANGE, "/softcap", "" },
        { "{" Q "\"mask_filter_value\": 1e39}", ERR_RANGE,
          "/mask_filter_value", "" },
        { "{" Q "\"scale\": \"1\"}", ERR_TYPE, "/scale", "scale is \"1\"" },
        { "{" Q "\"scale\": null}", ERR_TYPE, "/scale", "scale is null" },
        { "{" Q "\"softcap\": 0}", ERR_RANGE, "/softcap", "above 0" },
        { "{" Q "\"softcap\": 1e-999}", ERR_RANGE, "/softcap", "" },
        { "{" Q "\"softcap\": -1.0}", ERR_RANGE, "/softcap", "" },
        { "{" Q "\"softcap\": [50]}", ERR_TYPE, "/softcap", "[50]" },
        { "{" Q "\"dropout_p\": 1.0}", ERR_RANGE, "/dropout_p", "below 1" },
        { "{" Q "\"dropout_p\": -0.1}", ERR_RANGE, "/dropout_p", "" },
        { "{" Q "\"dropout_p\": true}", ERR_TYPE, "/dropout_p", "" },
        { "{" Q "\"is_causal\": 1}", ERR_TYPE, "/is_causal", "true or false" },
        { "{" Q "\"is_causal\": \"true\"}", ERR_TYPE, "/is_causal", "" },
        { "{" Q "\"add_zero_attn\": null}", ERR_TYPE, "/add_zero_attn", "" },
        { "{" Q "\"need_weights\": {}}", ERR_TYPE, "/need_weights", "" },
        { "{" Q "\"average_attn_weights\": []}", ERR_TYPE,
          "/average_attn_weights", "" },
        { "{" Q "\"profile\": 0}", ERR_TYPE, "/profile", "" },
        { "{" Q "\"layout\": \"NEL\"}", ERR_RANGE, "/layout",
          "not \"NLE\", \"LNE\", \"LE\" or \"NHLD\"" },
        { "{" Q "\"layout\": \"LE\\u0000\"}", ERR_RANGE, "/layout", "" },
        { "{" Q "\"layout\": null}", ERR_TYPE, "/layout", "" },
        { "{" Q "\"causal_alignment\": \"top\"}", ERR_RANGE,
          "/causal_alignment", "" },
        { "{" Q "\"conventions\": \"tensorflow\"}", ERR_RANGE,
          "/conventions", "or \"flash_attn\"" },
        { "{" Q "\"response_format\": \"csv\"}", ERR_RANGE,
          "/response_format", "" },
        { "{" Q "\"precision\": \"fp16\"}", ERR_RANGE, "/precision", "" },
        { "{" Q "\"precision\": null}", ERR_TYPE, "/precision", "" },
        { "{" Q "\"mask_filter_value\": null}", ERR_TYPE,
          "/mask_filter_value", "" },
        { "{" Q "\"mask_filter_value\": \"Infinity\"}", ERR_TYPE,
          "/mask_filter_value", "" },
        { "{" Q "\"mask_filter_value\": 1e999}", ERR_RANGE,
          "/mask_filter_value", "" },

        { "{" Q "\"window\": [1]}", ERR_SHAPE, "/window", "[1], not two" },
        { "{" Q "\"window\": []}", ERR_SHAPE, "/window", "" },
        { "{" Q "\"window\": [1, 2, 3]}", ERR_SHAPE, "/window", "" },
        { "{" Q "\"window\": [-2, 0]}", ERR_RANGE, "/window", "" },
        { "{" Q "\"window\": [0, 1.5]}", ERR_TYPE, "/window", "" },
        { "{" Q "\"window\": [0, null]}", ERR_TYPE, "/window", "" },
        { "{" Q "\"window\": [[0], 1]}", ERR_TYPE, "/window", "" },
        { "{" Q "\"window\": [0, 9223372036854775808]}", ERR_RANGE,
          "/window", "" },
        { "{" Q "\"window\": 3}", ERR_TYPE, "/window", "" },
        { "{" Q "\"window\": {\"left\": 1}}", ERR_TYPE, "/window", "" },

        { "{" Q "\"return\": [\"logits\"]}", ERR_RANGE, "/return/0",
          "return[0] is \"logits\", not \"q\"" },
        { "{" Q "\"return\": [\"q\", \"k\", 3]}", ERR_TYPE, "/return/2", "" },
        { "{" Q "\"return\": [\"q\", [\"k\"]]}", ERR_TYPE, "/return/1",
          "an array" },
        { "{" Q "\"return\": [null]}", ERR_TYPE, "/return/0", "" },
        { "{" Q "\"return\": \"q\"}", ERR_TYPE, "/return", "" },
    };

    (void)state;
    CHECK_REFUSALS(table);
}

static void options_left_out_are_the_defaults_of_the_contract(void **state)
{
    struct decoded d;
    struct mha_request *mha = accept(&d, "{\"query\": [[1, 2]]}");

    (void)state;
    assert_int_equal(mha->layout, LAYOUT_BY_RANK);
    assert_int_equal(mha->num_heads, 0);
    assert_int_equal(mha->num_kv_heads, 0);
    assert_false(mha->has_state_dict || mha->has_scale || mha->has_window);
    assert_false(mha->add_zero_attn || mha->is_causal);
    assert_true(mha->need_weights && mha->average_attn_weights);
    assert_true(isinf(mha->mask_filter_value) && mha->mask_filter_value < 0);
    assert_int_equal(mha->causal_alignment, ALIGNMENT_BY_CONVENTION);
    assert_int_equal(mha->conventions, CONVENTIONS_TORCH_MHA);
    assert_int_equal(mha->precision, PRECISION_F32);
    assert_int_equal(mha->returns, 0);
    assert_int_equal(mha->key.value.rank, 0);
    assert_null(mha->key.flaw);
    assert_int_equal(d.request.response_format, ENCODING_NESTED);
    assert_false(d.request.profile);
    drop(&d);
}

static void every_option_reaches_its_member(void **state)
{
    struct decoded d;
    struct mha_request *mha = accept(
        &d,
        "{\"query\": [[1, 2]], \"layout\": \"LE\", \"num_heads\": 6, "
        "\"num_kv_heads\": 3, \"scale\": -0.125, \"softcap\": 50, "
        "\"add_zero_attn\": true, \"dropout_p\": 0.25, \"seed\": 7, "
        "\"mask_filter_value\": -10000, \"is_causal\": true, "
        "\"window\": [-1, 4.0], \"causal_alignment\": \"bottom_right\", "
        "\"conventions\": \"ker\\u0061s\", \"need_weights\": false, "
        "\"average_attn_weights\": false, \"weights_top_k\": 5, "
        "\"return\": [\"q\", \"lse\", \"q\"], \"profile\": true, "
        "\"response_format\": \"base64\", \"precision\": \"bfloat16\"}");

    (void)state;
    assert_int_equal(mha->layout, LAYOUT_LE);
    assert_int_equal(mha->num_heads, 6);
    assert_int_equal(mha->num_kv_heads, 3);
    assert_true(mha->has_scale && mha->scale == -0.125 && mha->softcap == 50);
    assert_true(mha->add_zero_attn && mha->is_causal);
    assert_true(mha->dropout_p == 0.25 && mha->seed == 7);
    assert_true(mha->mask_filter_value == -10000);
    assert_true(mha->has_window);
    assert_int_equal(mha->window[0], -1);
    assert_int_equal(mha->window[1], 4);
    assert_int_equal(mha->causal_alignment, ALIGNMENT_BOTTOM_RIGHT);
    assert_int_equal(mha->conventions, CONVENTIONS_KERAS);
    assert_false(mha->need_weights || mha->average_attn_weights);
    assert_int_equal(mha->weights_top_k, 5);
    assert_int_equal(mha->returns, MHA_RETURN_Q | MHA_RETURN_LSE);
    assert_true(d.request.profile);
    assert_int_equal(d.request.response_format, ENCODING_BASE64);
    assert_int_equal(mha->precision, PRECISION_BF16);
    drop(&d);
}

static void minus_infinity_may_be_the_filter_in_all_its_spellings(
    void **state)
{
    static const char *const spellings[] = { "-Infinity", "\"-Infinity\"",
                                             "\"-\\u0049nfinity\"",
                                             "-1e999" };

    (void)state;
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        char body[128];
        struct decoded d;

        snprintf(body, sizeof body, "{" Q "\"mask_filter_value\": %s}",
                 spellings[i]);
        assert_true(accept(&d, body)->mask_filter_value == -INFINITY);
        drop(&d);
    }
}

static void a_query_string_is_no_place_for_fields_of_a_json_request(
    void **state)
{
    static const char body[] = "{\"query\": [[1, 2]]}";
    struct decoded d;

    (void)state;
    decode_bytes(&d, body, sizeof body - 1, "num_heads=3&x=1");
    assert_int_equal(d.err.code, ERR_UNKNOWN);
    assert_string_equal(d.err.where, "/num_heads");
    drop(&d);
    decode_bytes(&d, body, sizeof body - 1, "");
    assert_true(d.ok);
    drop(&d);
    decode_bytes(&d, body, 5, "num_heads=3");
    assert_int_equal(d.err.code, ERR_JSON);
    drop(&d);
}

static void assert_floats(const struct named_tensor *t, int rank,
                          const int64_t *dim, const float *want)
{
    if (t->flaw != NULL)
        fail_msg("%s", t->flaw->text);
    assert_int_equal(t->value.rank, rank);
    assert_int_equal(t->value.dtype, DTYPE_F32);
    assert_memory_equal(t->value.dim, dim, (size_t)rank * sizeof *dim);
    assert_true(tensor_is_packed(&t->value));
    assert_memory_equal(t->value.data, want,
                        (size_t)tensor_count(&t->value) * sizeof *want);
}

static void a_tensor_may_be_nested_flat_or_base64_in_any_order(void **state)
{
    static const struct {
        const char *text;
        enum encoding encoding;
    } spellings[] = {
        { "[[1, -2.5], [3e0, 4], [5, 6]]", ENCODING_NESTED },
        { "\n[[1,-2.5],\t[3,4] , [ 5 , 6 ]]", ENCODING_NESTED },
        { "{\"shape\": [3, 2], \"data\": [1, -2.5, 3, 4, 5, 6]}",
          ENCODING_FLAT },
        { "{\"data\": [1,-2.5,3,4,5,6], \"shape\": [3.0, 2e0]}",
          ENCODING_FLAT },
        { "{\"shape\": [3, 2], \"dtype\": \"F32\", "
          "\"base64\": \"AACAPwAAIMAAAEBAAACAQAAAoEAAAMBA\"}",
          ENCODING_BASE64 },
        { "{\"base64\": \"AACAPwAAIMAAAEBAAACAQAAAoEAAAMBA\", "
          "\"shape\": [3, 2], \"dtype\": \"F32\"}", ENCODING_BASE64 },
        { "{\"dtype\": \"F16\", \"shape\": [3, 2], "
          "\"base64\": \"ADwAwQBCAEQARQBG\"}", ENCODING_BASE64 },
        { "{\"dtype\": \"BF16\", \"shape\": [3, 2], "
          "\"base64\": \"gD8gwEBAgECgQMBA\"}", ENCODING_BASE64 },
        { "{\"dtype\": \"F64\", \"shape\": [3, 2], \"base64\": "
          "\"AAAAAAAA8D8AAAAAAAAEwAAAAAAAAAhAAAAAAAAAEEAAAAAAAAAUQAAAAAAAABhA\"}",
          ENCODING_BASE64 },
    };
    static const float want[] = { 1, -2.5f, 3, 4, 5, 6 };

    (void)state;
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        char body[256];
        struct decoded d;

        snprintf(body, sizeof body, "{\"query\": %s}", spellings[i].text);
        assert_floats(&accept(&d, body)->query, 2, (int64_t[]){ 3, 2 }, want);
        assert_int_equal(d.request.response_format, spellings[i].encoding);
        drop(&d);
    }
}

static void base64_may_be_any_dtype_and_escaped(void **state)
{
    static const struct {
        const char *dtype, *base64;
        float want[2];
    } rows[] = {
        { "I64", "//////////8AAAAAAAEAAA==", { -1, 1099511627776 } },
        { "I32", "AAAAgP///38=", { -2147483648, 2147483648 } },
        { "I16", "AID/fw==", { -32768, 32767 } },
        { "I8", "gH8=", { -128, 127 } },
        { "U8", "AP8=", { 0, 255 } },
        { "F64", "mpmZmZmZuT8AAAAAAAAAgA==", { 0.1f, -0.0f } },
        { "I8", "\\/\\/8\\u003d", { -1, -1 } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char body[256];
        struct decoded d;

        snprintf(body, sizeof body,
                 "{\"query\": {\"shape\": [1, 2], \"dtype\": \"%s\", "
                 "\"base64\": \"%s\"}}", rows[i].dtype, rows[i].base64);
        assert_floats(&accept(&d, body)->query, 2, (int64_t[]){ 1, 2 },
                      rows[i].want);
        drop(&d);
    }
}

#define QUERY(text) "{\"query\": " text "}"
#define RAW(shape, dtype, base64)                                             \
    "{\"shape\": " shape ", \"dtype\": \"" dtype "\", \"base64\": \"" base64  \
    "\"}"

static const struct refusal tensor_flaws[] = {
    { QUERY("null"), ERR_TYPE, "/query", "query is null, not a tensor" },
    { QUERY("1"), ERR_TYPE, "/query", "query is 1, not a tensor" },
    { QUERY("\"x\""), ERR_TYPE, "/query", "query is \"x\"" },
    { QUERY("[]"), ERR_SHAPE, "/query", "query is empty" },
    { QUERY("[[]]"), ERR_SHAPE, "/query", "query[0] is empty" },
    { QUERY("[[1], []]"), ERR_SHAPE, "/query", "query[1] is empty" },
    { QUERY("[[], [1]]"), ERR_SHAPE, "/query", "query[0] is empty" },
    { QUERY("[[1, 2, 3], [4, 5]]"), ERR_SHAPE, "/query",
      "query[1] has 2 elements, where those before it have 3" },
    { QUERY("[[[1], [2]], [[3]]]"), ERR_SHAPE, "/query",
      "query[1] has 1 elements, where those before it have 2" },
    { QUERY("[[[1, 2], [3]], [[4, 5]]]"), ERR_SHAPE, "/query",
      "query[0][1] has 1 elements" },
    { QUERY("[1, [2]]"), ERR_SHAPE, "/query",
      "query[1] is an array, where numbers stand before it" },
    { QUERY("[[1], 2]"), ERR_SHAPE, "/query",
      "query[1] is a number, where arrays stand before it" },
    { QUERY("[[1, 2], [3, [4]]]"), ERR_SHAPE, "/query",
      "query[1][1] is an array" },
    { QUERY("[[[[[1]]]]]"), ERR_SHAPE, "/query",
      "query[0][0][0][0] is an array" },
    { QUERY("[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]"), ERR_SHAPE, "/query",
      "query[0][0][0][0] is an array" },
    { QUERY("[[1, \"x\"], [2, 3]]"), ERR_TYPE, "/query",
      "query[0][1] is \"x\", not a number" },
    { QUERY("[[1, 2], [3, null]]"), ERR_TYPE, "/query",
      "query[1][1] is null, not a number" },
    { QUERY("[[true]]"), ERR_TYPE, "/query", "query[0][0] is true" },
    { QUERY("[[1, 2, false]]"), ERR_TYPE, "/query", "query[0][2] is fal" },
    { QUERY("[[1, {}]]"), ERR_TYPE, "/query", "query[0][1] is {}" },
    { QUERY("[{\"shape\": [1], \"data\": [1]}]"), ERR_TYPE, "/query",
      "query[0] is {\"shape\"" },
    { QUERY("[[1, \"-Infinity\"]]"), ERR_TYPE, "/query", "query[0][1]" },
    { QUERY("[[1, 2], [3, 4], [5, 6, 7]]"), ERR_SHAPE, "/query",
      "query[2] has 3 elements, where those before it have 2" },
    { QUERY("[[1, 2], [3, 4], [5, 6], [7], [8, 9]]"), ERR_SHAPE, "/query",
      "query[3] has 1 elements, where those before it have 2" },
    { QUERY("[[1, 2], [3, 4], []]"), ERR_SHAPE, "/query",
      "query[2] is empty" },
    { QUERY("[[1, 2], [3, 4], 5]"), ERR_SHAPE, "/query",
      "query[2] is a number, where arrays stand before it" },
    { QUERY("[[1, 2], [3, 4], [5, [6]]]"), ERR_SHAPE, "/query",
      "query[2][1] is an array" },
    { QUERY("[[[1], [2]], [[3], [4], [5]], [[6]]]"), ERR_SHAPE, "/query",
      "query[1] has 3 elements, where those before it have 2" },
    { QUERY("[[1, 2], [3, 4], [5, \"x\"]]"), ERR_TYPE, "/query",
      "query[2][1] is \"x\", not a number" },
    { QUERY("[[1, 2], [3, 4], [5, 1e39], [6]]"), ERR_NOT_FINITE, "/query",
      "query[2][1] is 1e39, which is not finite in float32" },
    { QUERY("[[[1], [2]], [[3], [ -1e39 ]]]"), ERR_NOT_FINITE, "/query",
      "query[1][1][0] is -1e39, which is not finite in float32" },
    { QUERY("[[1], [1e39]]"), ERR_NOT_FINITE, "/query",
      "query[1][0] is 1e39, which is not finite in float32" },
    { QUERY("[[3.4028236e38]]"), ERR_NOT_FINITE, "/query", "query[0][0]" },
    { QUERY("[[-1e999]]"), ERR_NOT_FINITE, "/query", "query[0][0]" },
    { QUERY("[[1e39, \"x\"]]"), ERR_NOT_FINITE, "/query", "[0][0]" },
    { QUERY("[[1, 2], [3, 4], [5, 6], [7, 1e39]]"), ERR_NOT_FINITE, "/query",
      "query[3][1] is 1e39" },
    { QUERY("[[[1, 2], [3, 4]], [[5, 6], [-1e39, 8]]]"), ERR_NOT_FINITE,
      "/query", "query[1][1][0] is -1e39" },
    { QUERY("[[1, 2], [3, 4], [5, 6, 7], [8, 9]]"), ERR_SHAPE, "/query",
      "query[2] has 3 elements" },
    { QUERY("[[1, 2], [3, 4], [5], [8, 9]]"), ERR_SHAPE, "/query",
      "query[2] has 1 elements" },
    { QUERY("[[1, 2], [3, 4], [5, \"6\"], [8, 9]]"), ERR_TYPE, "/query",
      "query[2][1] is \"6\"" },
    { QUERY("[[1, 2], [3, 4], 5, [6, 7]]"), ERR_SHAPE, "/query",
      "query[2] is a number" },
    { QUERY("[[[1, 2], [3, 4]], [[5, 6], [7, 8], [9, 0]]]"), ERR_SHAPE,
      "/query", "query[1] has 3 elements" },
    { QUERY("[[[1, 2]], [[3, 4]], [5, 6]]"), ERR_SHAPE, "/query",
      "query[2][0] is a number" },

    { QUERY("{}"), ERR_MISSING, "/query", "query has no shape; a tensor" },
    { QUERY("{\"shape\": [1, 1]}"), ERR_MISSING, "/query", "too few" },
    { QUERY("{\"data\": [1]}"), ERR_MISSING, "/query", "no shape" },
    { QUERY("{\"shape\": [1], \"base64\": \"AA==\"}"), ERR_MISSING,
      "/query", "too few members" },
    { QUERY("{\"shape\": [1], \"dtype\": \"U8\"}"), ERR_MISSING,
      "/query", "too few members" },
    { QUERY("{\"shape\": [1], \"dtype\": \"F32\", \"data\": [1]}"),
      ERR_CONFLICT, "/query", "too many members" },
    { QUERY("{\"shape\": [1], \"data\": [1], \"strides\": [1]}"),
      ERR_UNKNOWN, "/query", "query has a member \"strides\"" },
    { QUERY("{\"shape\": [2, 3], \"data\": [1, 2, 3, 4, 5]}"), ERR_SHAPE,
      "/query", "query has 5 elements in data, where its shape (2, 3) "
      "takes 6" },
    { QUERY("{\"shape\": [1, 1], \"data\": [1, 2]}"), ERR_SHAPE,
      "/query", "2 elements" },
    { QUERY("{\"shape\": [1, 1], \"data\": []}"), ERR_SHAPE, "/query",
      "query.data is empty" },
    { QUERY("{\"shape\": [1, 1], \"data\": [[1]]}"), ERR_SHAPE, "/query",
      "query.data[0] is an array" },
    { QUERY("{\"shape\": [1, 1], \"data\": 1}"), ERR_TYPE, "/query",
      "query.data is 1, not an array" },
    { QUERY("{\"shape\": [1, 2], \"data\": [1, \"2\"]}"), ERR_TYPE,
      "/query", "query.data[1] is \"2\"" },
    { QUERY("{\"shape\": [1, 2], \"data\": [1, 1e40]}"), ERR_NOT_FINITE,
      "/query", "query.data[1] is 1e40" },

    { QUERY("{\"shape\": 4, \"data\": [1]}"), ERR_TYPE, "/query",
      "query.shape is 4, not an array of integers" },
    { QUERY("{\"shape\": [], \"data\": [1]}"), ERR_SHAPE, "/query",
      "query.shape has 0 dimensions" },
    { QUERY("{\"shape\": [1, 1, 1, 1, 1], \"data\": [1]}"), ERR_SHAPE,
      "/query", "query.shape has 5 dimensions" },
    { QUERY("{\"shape\": [0, 3], \"data\": []}"), ERR_RANGE, "/query",
      "query.shape[0] is 0, not an integer of at least 1" },
    { QUERY("{\"shape\": [2, -1], \"data\": [1]}"), ERR_RANGE, "/query",
      "query.shape[1] is -1" },
    { QUERY("{\"shape\": [1.5], \"data\": [1]}"), ERR_TYPE, "/query",
      "query.shape[0] is 1.5" },
    { QUERY("{\"shape\": [\"1\"], \"data\": [1]}"), ERR_TYPE, "/query",
      "query.shape[0] is \"1\"" },
    { QUERY("{\"shape\": [null], \"data\": [1]}"), ERR_TYPE, "/query",
      "query.shape[0] is null" },
    { QUERY("{\"shape\": [[1]], \"data\": [1]}"), ERR_TYPE, "/query",
      "query.shape[0] is [1]" },
    { QUERY("{\"shape\": [1e30], \"data\": [1]}"), ERR_RANGE, "/query",
      "query.shape[0] is 1e30" },
    { QUERY("{\"shape\": [9223372036854775808], \"data\": [1]}"),
      ERR_RANGE, "/query", "query.shape[0]" },
    { QUERY("{\"shape\": [4294967296, 4294967296], \"data\": [1]}"),
      ERR_RANGE, "/query",
      "query has shape (4294967296, 4294967296), which no memory holds" },
    { QUERY("{\"shape\": [2147483648, 2, 2147483648, 2], \"data\": [1]}"),
      ERR_RANGE, "/query", "no memory" },
    { QUERY(RAW("[4294967296, 1073741824]", "I8", "AA==")), ERR_RANGE,
      "/query", "no memory" },
    { QUERY(RAW("[1073741824, 536870912]", "F32", "AAAAAA==")),
      ERR_SHAPE, "/query", "elements of F32 take 3074457345618258604" },

    { QUERY(RAW("[1, 1]", "F8_E4M3", "AA==")), ERR_RANGE, "/query",
      "query.dtype is \"F8_E4M3\", not one of F64" },
    { QUERY(RAW("[1, 1]", "f32", "AAAAAA==")), ERR_RANGE, "/query",
      "query.dtype is \"f32\"" },
    { QUERY("{\"shape\": [1], \"dtype\": 5, \"base64\": \"AA==\"}"),
      ERR_TYPE, "/query", "query.dtype is 5" },
    { QUERY("{\"shape\": [1], \"dtype\": \"U8\", \"base64\": 5}"),
      ERR_TYPE, "/query", "query.base64 is 5" },
    { QUERY(RAW("[1, 1]", "BOOL", "AQ==")), ERR_TYPE, "/query",
      "query.dtype is BOOL, which only masks have" },
    { QUERY(RAW("[2, 1]", "F32", "AACAPw==")), ERR_SHAPE, "/query",
      "query has 8 characters of base64, where 2 elements of F32 take "
      "12" },
    { QUERY(RAW("[1, 1]", "F32", "AACAPwA=")), ERR_TYPE, "/query",
      "query.base64 is no base64" },
    { QUERY(RAW("[1, 1]", "F32", "AACAPwAA")), ERR_TYPE, "/query", "" },
    { QUERY(RAW("[1, 1]", "F32", "AACAPw=")), ERR_SHAPE, "/query", "" },
    { QUERY(RAW("[1, 1]", "F32", "AACAPx==")), ERR_TYPE, "/query",
      "at character 5" },
    { QUERY(RAW("[1, 1]", "F32", "AAC-Pw==")), ERR_TYPE, "/query",
      "at character 3" },
    { QUERY(RAW("[1, 1]", "F32", "AACA\\nw==")), ERR_TYPE, "/query",
      "at character 4" },
    { QUERY(RAW("[1, 1]", "F32", "\u00E9ACAPw=")), ERR_TYPE, "/query",
      "at character 0" },
    { QUERY(RAW("[1, 2]", "F32", "AACAPwAAwH8=")), ERR_NOT_FINITE, "/query",
      "query[0][1] is not finite" },
    { QUERY(RAW("[1, 2]", "F64", "AAAAAAAA8D+cdQCIPOQ3fg==")), ERR_NOT_FINITE, "/query",
      "query[0][1] is not finite" },
    { QUERY(RAW("[2, 1, 1]", "F16", "ADwAfA==")), ERR_NOT_FINITE,
      "/query", "query[1][0][0] is not finite" },
};

static void a_flaw_in_a_tensor_names_the_element(void **state)
{
    (void)state;
    CHECK_REFUSALS(tensor_flaws);
}

#define MASKS(text) "{" Q "\"attn_mask\": " text "}"
#define PADDING(text) "{\"query\": [[1], [2]], \"key_padding_mask\": " text "}"

static void masks_take_what_their_rows_of_the_contract_say(void **state)
{
    static const struct refusal table[] = {
        { MASKS("[[true, 0.0], [false, 1.0]]"), ERR_TYPE, "/attn_mask",
          "attn_mask[0][1] is a number among booleans" },
        { MASKS("[[0, 0], [0, true]]"), ERR_TYPE, "/attn_mask",
          "attn_mask[1][1] is a boolean among numbers" },
        { MASKS("[[true, null], [false, true]]"), ERR_TYPE, "/attn_mask",
          "attn_mask[0][1] is a number among booleans" },
        { MASKS("[[true, 0], [-Infinity, 0]]"), ERR_TYPE, "/attn_mask",
          "attn_mask[0][1]" },
        { MASKS("[[0, \"Infinity\"], [0, 0]]"), ERR_TYPE, "/attn_mask",
          "attn_mask[0][1] is \"Infinity\", not a boolean, a number or" },
        { MASKS("[[0, \"-inf\"], [0, 0]]"), ERR_TYPE, "/attn_mask", "-inf" },
        { MASKS("[[0, 1e39], [0, 0]]"), ERR_NOT_FINITE, "/attn_mask",
          "attn_mask[0][1] is 1e39" },
        { MASKS("null"), ERR_TYPE, "/attn_mask", "attn_mask is null" },
        { MASKS("\"-Infinity\""), ERR_TYPE, "/attn_mask", "not a tensor" },
        { MASKS(RAW("[2, 2]", "F32", "AAAAAAAAgP8AAMB/AAAAAA==")), ERR_NOT_FINITE,
          "/attn_mask", "attn_mask[1][0] is not finite" },
        { MASKS(RAW("[2, 2]", "F32", "AAAAAAAAgP8AAAAAAACAfw==")), ERR_NOT_FINITE,
          "/attn_mask", "attn_mask[1][1] is not finite" },
        { MASKS(RAW("[2, 2]", "BOOL", "AAECAQ==")), ERR_RANGE, "/attn_mask",
          "attn_mask[1][0] is a boolean that is not 0 or 1" },

        { PADDING("[1, null]"), ERR_TYPE, "/key_padding_mask",
          "key_padding_mask[1] is null, not a boolean or a number" },
        { PADDING("[1, \"-Infinity\"]"), ERR_TYPE, "/key_padding_mask", "" },
        { PADDING("[true, 1]"), ERR_TYPE, "/key_padding_mask",
          "key_padding_mask[1] is a number among booleans" },
        { PADDING("[0.5, 1]"), ERR_RANGE, "/key_padding_mask", "0.5" },
        { PADDING("[-1e99, 1]"), ERR_NOT_FINITE, "/key_padding_mask", "" },
        { PADDING(RAW("[2]", "F32", "AACA/wAAAAA=")), ERR_NOT_FINITE,
          "/key_padding_mask", "key_padding_mask[0] is not finite" },
        { "{" Q "\"sinks\": [true]}", ERR_TYPE, "/sinks", "sinks[0] is true" },
        { "{" Q "\"alibi_slopes\": [\"-Infinity\"]}", ERR_TYPE,
          "/alibi_slopes", "alibi_slopes[0]" },
    };

    (void)state;
    CHECK_REFUSALS(table);
}

static void minus_infinity_may_be_in_attn_mask_in_all_its_spellings(
    void **state)
{
    static const float want[] = { 0, -INFINITY, -INFINITY, -INFINITY,
                                  -INFINITY, -1e38f };
    static const char *const masks[] = {
        "[[0, -Infinity, \"-Infinity\"], [null, -1e39, -1e38]]",
        "[[0,-Infinity,\"\\u002dInfinity\"],[null,-1e999,-1e38]]",
        "{\"shape\": [2, 3], \"data\": [0, -Infinity, \"-Infinity\", null, "
        "-1e39, -1e38]}",
        RAW("[2, 3]", "F32", "AAAAAAAAgP8AAID/AACA/wAAgP+Zdpb+"),
        RAW("[2, 3]", "F64", "AAAAAAAAAAAAAAAAAADw/wAAAAAAAPD/AAAAAAAA8P+cdQCIPOQ3/rGhFirTztLH"),
    };

    (void)state;
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        char body[512];
        struct decoded d;

        snprintf(body, sizeof body, "{" Q "\"attn_mask\": %s}", masks[i]);
        assert_floats(&accept(&d, body)->attn_mask, 2, (int64_t[]){ 2, 3 },
                      want);
        drop(&d);
    }
}

/* And in runs of every length. */
static void masks_mix_numbers_and_words_in_any_order(void **state)
{
    static const struct {
        const char *text;
        float value;
    } tokens[] = {
        { "0", 0 }, { "-Infinity", -INFINITY }, { "0.0", 0 },
        { "null", -INFINITY }, { "-0.5", -0.5f }, { "-1e39", -INFINITY },
        { "\"-Infinity\"", -INFINITY }, { "1.5e-3", 1.5e-3f },
    };
    static const char *const commas[] = { ",", ", ", " ,", ",\n  ", "\t, \r" };
    enum { ROWS = 40, COLUMNS = 60 };
    static char body[ROWS * COLUMNS * 24 + 64];
    static float want[ROWS * COLUMNS];

    (void)state;
    for (unsigned draw = 1, round = 0; round < 40; round++) {
        size_t len = (size_t)snprintf(body, sizeof body, "{" Q "\"attn_mask\": [");
        struct decoded d;

        for (size_t i = 0; i < ROWS * COLUMNS; i++) {
            size_t token;

            draw = draw * 1103515245 + 12345;
            /* the fewer kinds, the longer their runs */
            token = round % 4 == 0 ? i / (1 + round) % 8 : (draw >> 16) % 8;
            token = token < 8 - round / 6 ? token : 0;
            want[i] = tokens[token].value;
            len += (size_t)snprintf(
                body + len, sizeof body - len, "%s%s",
                i == 0 ? "[" : i % COLUMNS == 0 ? "], [" : commas[draw / 65536 % 5],
                tokens[token].text);
        }
        snprintf(body + len, sizeof body - len, "]]}");

        const struct tensor *t = &accept(&d, body)->attn_mask.value;

        assert_int_equal(t->dim[0], ROWS);
        assert_int_equal(t->dim[1], COLUMNS);
        assert_memory_equal(t->data, want, sizeof want);
        drop(&d);
    }
}

static void masks_of_booleans_are_bytes(void **state)
{
    static const char *const masks[] = {
        "[[true, false], [false, true]]",
        "{\"data\": [true, false, false, true], \"shape\": [2, 2]}",
        RAW("[2, 2]", "BOOL", "AQAAAQ=="),
    };
    static const uint8_t want[] = { 1, 0, 0, 1 };

    (void)state;
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        char body[512];
        struct decoded d;
        const struct tensor *t;

        snprintf(body, sizeof body,
                 "{" Q "\"key_padding_mask\": %s, \"attn_mask\": %s}",
                 masks[i], masks[i]);
        t = &accept(&d, body)->attn_mask.value;
        assert_int_equal(t->dtype, DTYPE_BOOL);
        assert_memory_equal(t->data, want, sizeof want);
        t = &d.request.mha.key_padding_mask.value;
        assert_int_equal(t->dtype, DTYPE_BOOL);
        assert_int_equal(t->rank, 2);
        assert_memory_equal(t->data, want, sizeof want);
        drop(&d);
    }
}

static void numbers_are_the_nearest_float32(void **state)
{
    static const char body[] =
        "{\"query\": [[1.00000017881393432617187499, 7.0064923216240854e-46, "
        "-1e-999, -0.0, -0, 16777217.0000000001, 1e-45, "
        "340282346638528859811704183484516925440.000, 0.1]]}";
    static const float want[] = { 1.00000011920928955078125f, 0x1p-149f, -0.0f,
                                  -0.0f, -0.0f, 16777218, 0x1p-149f,
                                  0x1.fffffep127f, 0.1f };
    struct decoded d;

    (void)state;
    assert_floats(&accept(&d, body)->query, 2, (int64_t[]){ 1, 9 }, want);
    drop(&d);
}

static void absurdly_long_numbers_take_linear_time(void **state)
{
    enum { DIGITS = 1 << 20 };
    char *body = malloc(2 * DIGITS + 64);
    struct decoded d;
    size_t len;

    (void)state;
    assert_non_null(body);
    len = (size_t)snprintf(body, 64, "{\"query\": [[0.");
    memset(body + len, '3', DIGITS);
    len += DIGITS;
    len += (size_t)snprintf(body + len, 16, ", 1e-");
    memset(body + len, '9', 100000);
    len += 100000;
    memcpy(body + len, "]]}", 4);
    assert_floats(&accept(&d, body)->query, 2, (int64_t[]){ 1, 2 },
                  (float[]){ 1.0f / 3, 0 });
    drop(&d);
    free(body);
}

static char *build(const char *head, const char *piece, size_t times,
                   const char *tail)
{
    size_t h = strlen(head), n = strlen(piece), t = strlen(tail);
    char *text = malloc(h + n * times + t + 1);

    assert_non_null(text);
    memcpy(text, head, h);
    for (size_t i = 0; i < times; i++)
        memcpy(text + h + i * n, piece, n);
    memcpy(text + h + n * times, tail, t + 1);
    return text;
}

static void float64_means_doubles_wherever_it_is_said(void **state)
{
    static const char *const bodies[] = {
        "{\"precision\": \"float64\", %s}",
        "{%s, \"precision\": \"float64\"}",
        "{%s, \"precision\": \"flo\\u0061t64\"}",
    };
    static const char fields[] =
        "\"query\": [[0.1, 1e39]], \"attn_mask\": [[-1e39]], "
        "\"sinks\": {\"shape\": [1], \"data\": [1e300]}, "
        "\"state_dict\": {\"in_proj_weight\": [[1e-320]]}, "
        "\"mask_filter_value\": -1e300";

    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        char body[512];
        struct decoded d;
        struct mha_request *mha;
        const double *query;

        snprintf(body, sizeof body, bodies[i], fields);
        mha = accept(&d, body);
        assert_int_equal(mha->precision, PRECISION_F64);
        query = mha->query.value.data;
        assert_int_equal(mha->query.value.dtype, DTYPE_F64);
        assert_true(query[0] == 0.1 && query[1] == 1e39);
        assert_true(*(double *)mha->attn_mask.value.data == -1e39);
        assert_true(*(double *)mha->sinks.value.data == 1e300);
        assert_true(*(double *)mha->state_dict.item[0].value.data == 1e-320);
        assert_int_equal(mha->state_dict.count, 1);
        assert_true(mha->mask_filter_value == -1e300);
        drop(&d);
    }
}

static void float64_is_found_between_large_tensors(void **state)
{
    char *rest = build("\"key\": [[0.1", ",0.1", 9999, "]]}");
    char *body = build("{\"query\": [[0.1", ",0.1", 9999,
                       "]], \"precision\": \"float64\", ");
    char *whole = build(body, rest, 1, "");
    struct decoded d;
    struct mha_request *mha = accept(&d, whole);

    (void)state;
    assert_int_equal(mha->query.value.dtype, DTYPE_F64);
    assert_int_equal(mha->key.value.dtype, DTYPE_F64);
    assert_true(((double *)mha->query.value.data)[9999] == 0.1);
    assert_true(((double *)mha->key.value.data)[9999] == 0.1);
    drop(&d);
    free(whole);
    free(body);
    free(rest);
}

static void the_word_float64_alone_does_not_make_doubles(void **state)
{
    struct decoded d;
    struct mha_request *mha = accept(
        &d, "{\"query\": [[0.1, 2]], \"state_dict\": {\"float64\": [1]}}");

    (void)state;
    assert_int_equal(mha->query.value.dtype, DTYPE_F32);
    assert_int_equal(mha->state_dict.item[0].value.dtype, DTYPE_F32);
    assert_int_equal(mha->state_dict.count, 1);
    drop(&d);
}

static void overflow_is_judged_in_the_precision_asked_for(void **state)
{
    static const struct refusal table[] = {
        { "{\"query\": [[1e309]], \"precision\": \"float64\"}",
          ERR_NOT_FINITE, "/query", "not finite in float64" },
        { "{\"query\": [[1e39]], \"precision\": \"bfloat16\"}",
          ERR_NOT_FINITE, "/query", "not finite in float32" },
    };

    (void)state;
    CHECK_REFUSALS(table);
}

static void hidden_states_is_the_query_by_another_name(void **state)
{
    struct decoded d;
    struct mha_request *mha =
        accept(&d, "{\"hidden_states\": {\"shape\": [1, 2], \"data\": [1, 2]}}");

    (void)state;
    assert_string_equal(mha->query.name, "hidden_states");
    assert_floats(&mha->query, 2, (int64_t[]){ 1, 2 }, (float[]){ 1, 2 });
    assert_int_equal(d.request.response_format, ENCODING_FLAT);
    drop(&d);
    tell(&d, "{\"hidden_states\": [[1], [2, 3]]}");
    assert_string_equal(d.err.where, "/hidden_states");
    assert_non_null(strstr(d.err.text, "hidden_states[1] has 2"));
    drop(&d);
}

static void a_state_dict_keeps_its_names_and_its_flaws(void **state)
{
    struct decoded d;
    struct mha_request *mha = accept(
        &d, "{" Q "\"state_dict\": {\"in_proj_weight\": [[1, 2]], "
            "\"a/b.\\u0063\": [[1], [2, 3]], "
            "\"bias\\u0000\": {\"shape\": [2], \"data\": [3, 4]}}}");
    const struct named_tensor *item = mha->state_dict.item;

    (void)state;
    assert_true(mha->has_state_dict);
    assert_null(mha->state_dict_flaw);
    assert_int_equal(mha->state_dict.count, 3);
    assert_string_equal(item[0].name, "in_proj_weight");
    assert_floats(&item[0], 2, (int64_t[]){ 1, 2 }, (float[]){ 1, 2 });
    assert_string_equal(item[1].name, "a/b.c");
    assert_int_equal(item[1].value.rank, 0);
    assert_int_equal(item[1].flaw->code, ERR_SHAPE);
    assert_string_equal(item[1].flaw->where, "/state_dict/a~1b.c");
    assert_string_equal(item[1].flaw->text,
                        "a/b.c[1] has 2 elements, where those before it "
                        "have 1");
    assert_string_equal(item[2].name, "bias\uFFFD");
    assert_floats(&item[2], 1, (int64_t[]){ 2 }, (float[]){ 3, 4 });
    drop(&d);
}

static void state_dict_and_compare_to_are_objects_of_tensors(void **state)
{
    static const struct refusal table[] = {
        { "{" Q "\"state_dict\": null}", ERR_TYPE, "/state_dict",
          "state_dict is null, not an object of tensors" },
        { "{" Q "\"state_dict\": [[1]]}", ERR_TYPE, "/state_dict", "[[1]]" },
        { "{" Q "\"state_dict\": {}}", ERR_MISSING, "/state_dict", "" },
        { "{" Q "\"state_dict\": {\"in_proj_weight\": [[1, \"2\"]]}}",
          ERR_TYPE, "/state_dict/in_proj_weight", "in_proj_weight[0][1] is" },
        { "{" Q "\"compare_to\": null}", ERR_TYPE, "/compare_to",
          "compare_to is null" },
        { "{" Q "\"compare_to\": {}}", ERR_MISSING, "/compare_to", "neither" },
        { "{" Q "\"compare_to\": {\"lse\": [1]}}", ERR_UNKNOWN,
          "/compare_to/lse", "output and weights, not \"lse\"" },
        { "{" Q "\"compare_to\": {\"output\": [[1]], \"a/b\": 1}}",
          ERR_UNKNOWN, "/compare_to/a~1b", "" },
        { "{" Q "\"compare_to\": {\"output\": null}}", ERR_TYPE,
          "/compare_to/output", "compare_to.output is null" },
        { "{" Q "\"compare_to\": {\"weights\": [[1, 1e39], [1, 1]]}}",
          ERR_NOT_FINITE, "/compare_to/weights",
          "compare_to.weights[0][1] is 1e39" },
    };

    (void)state;
    CHECK_REFUSALS(table);
}

static void what_is_wrong_is_told_in_the_order_of_the_contract(void **state)
{
    /* Each line is wrong where the next is, and once more before it. */
    static const struct refusal table[] = {
        { "{" Q "\"compare_to\": {\"output\": [[9]]}}", ERR_SHAPE,
          "/compare_to/output", "" },
        { "{" Q "\"compare_to\": {\"output\": [[9]]}, \"attn_mask\": [[1]]}",
          ERR_SHAPE, "/attn_mask", "" },
        { "{" Q "\"compare_to\": 1, \"attn_mask\": 1, \"num_heads\": 3}",
          ERR_SHAPE, "/num_heads", "" },
        { "{" Q "\"attn_mask\": 1, \"num_heads\": 3, \"state_dict\": 1}",
          ERR_TYPE, "/state_dict", "" },
        { "{" Q "\"attn_mask\": 1, \"state_dict\": 1, \"value\": 1}",
          ERR_TYPE, "/value", "" },
        { "{" Q "\"state_dict\": 1, \"value\": 1, \"key\": 1}", ERR_TYPE,
          "/key", "" },
        { "{\"query\": 1, \"key\": 1, \"value\": 1}", ERR_TYPE, "/query",
          "" },
    };

    (void)state;
    CHECK_REFUSALS(table);
}

static void a_good_body_cut_at_any_byte_is_no_json(void **state)
{
    static const char body[] =
        "{\"query\": [[1, -2.5e+3], [3, 4]], \"scale\": -0.5, \"key\": "
        "{\"shape\": [2, 2], \"data\": [1, 2, 3, 4]}, \"value\": {\"shape\": "
        "[2, 1], \"dtype\": \"U8\", \"base64\": \"AQI=\"}, \"attn_mask\": "
        "[[0, \"-Infinity\"], [null, -Infinity]], \"is_causal\": false, "
        "\"return\": [\"q\", \"\\u006b\"], \"state_dict\": {\"a\": [1], "
        "\"\u00E9\": null}, \"compare_to\": {\"output\": [true]}, "
        "\"mask_filter_value\": -Infinity, \"precision\": \"float64\"}";
    struct decoded d;

    (void)state;
    accept(&d, body);
    drop(&d);
    for (size_t len = 0; len < sizeof body - 1; len++) {
        decode_bytes(&d, body, len, NULL);
        assert_int_equal(d.err.code, ERR_JSON);
        assert_string_equal(d.err.where, "");
        assert_non_null(strstr(d.err.text, "(byte "));
        drop(&d);
    }
}

/* `head`, `times` pieces, and `tail`. */
static void a_million_of_what_is_no_number_is_refused_at_the_first(
    void **state)
{
    static const struct {
        const char *piece, *text;
    } pieces[] = {
        { "{},", "query[0][0] is {}" },
        { "[],", "query[0][0] is empty" },
        { "\"\",", "query[0][0] is \"\"" },
        { "null,", "query[0][0] is null" },
        { "[[[[]]]],", "query[0][0][0][0] is an array" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        char *body = build("{\"query\": [[", pieces[i].piece, 1000000, "1]]}");
        struct decoded d;

        tell(&d, body);
        assert_string_equal(d.err.where, "/query");
        assert_non_null(strstr(d.err.text, pieces[i].text));
        assert_true(strlen(body) + d.arena.held_bytes < 8 * strlen(body));
        drop(&d);
        free(body);
    }
}

static void hostile_objects_hold_little(void **state)
{
    static const struct {
        const char *head, *tail, *where;
        enum error_code code;
    } bodies[] = {
        { "{\"query\": [[1, 2]], \"state_dict\": {", "\"x\": 1}}", "/state_dict", ERR_UNKNOWN },
        { "{", "\"query\": [[1]]}", "/0", ERR_UNKNOWN },
        { "{\"query\": {", "\"shape\": [1]}}", "/query",
          ERR_UNKNOWN },
        { "{\"query\": [[1, 2]], \"compare_to\": {", "\"output\": [1]}}", "/compare_to/0", ERR_UNKNOWN },
    };
    enum { MEMBERS = 200000 };

    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        char *body = malloc(MEMBERS * 16 + 256);
        size_t len;
        struct decoded d;

        assert_non_null(body);
        len = (size_t)snprintf(body, 64, "%s", bodies[i].head);
        for (size_t j = 0; j < MEMBERS; j++)
            len += (size_t)snprintf(body + len, 16, "\"%zu\":1,", j);
        snprintf(body + len, 64, "%s", bodies[i].tail);
        tell(&d, body);
        assert_int_equal(d.err.code, bodies[i].code);
        assert_string_equal(d.err.where, bodies[i].where);
        assert_true(d.arena.held_bytes < 7 * strlen(body));
        drop(&d);
        free(body);
    }
}

static void ten_million_numbers_peak_under_four_times_the_body(void **state)
{
    char *body = build("{\"query\": {\"shape\": [10000, 1001], \"data\": [",
                       "1,", 10009999, "1]}}");
    struct decoded d;

    (void)state;
    assert_int_equal(accept(&d, body)->query.value.dim[1], 1001);
    assert_true(strlen(body) + d.arena.held_bytes < 4 * strlen(body));
    drop(&d);
    free(body);
}

static void a_shape_of_a_million_dimensions_is_only_counted(void **state)
{
    char *body = build("{\"query\": {\"data\": [1], \"shape\": [", "1,",
                       1000000, "1]}}");
    struct decoded d;

    (void)state;
    tell(&d, body);
    assert_int_equal(d.err.code, ERR_SHAPE);
    assert_non_null(strstr(d.err.text, "1000001 dimensions"));
    assert_true(d.arena.held_bytes < 65536);
    drop(&d);
    free(body);
}

static void assert_utf8(const char *text)
{
    for (const char *p = text; *p != '\0';) {
        size_t len = json_text_character(p, p + strlen(p));

        assert_int_not_equal(len, 0);
        p += len;
    }
}

static void an_escaped_name_is_compared_to_its_end(void **state)
{
    static const struct {
        const char *name;
        enum error_code code;
    } rows[] = {
        { "nee\\u0064_weights", ERR_NONE },
        { "need_weights\\u0000", ERR_UNKNOWN },
        { "need_weight\\u0073s", ERR_UNKNOWN },
        { "\\u006e", ERR_UNKNOWN },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char body[128];
        struct decoded d;

        snprintf(body, sizeof body, "{" Q "\"%s\": false}", rows[i].name);
        tell(&d, body);
        assert_int_equal(d.err.code, rows[i].code);
        drop(&d);
    }
}

static void a_long_word_or_name_is_cut_in_what_is_told(void **state)
{
    static const char *const bodies[][2] = {
        { "{" Q "\"layout\": \"", "\"}" },
        { "{\"query\": [[\"", "\"]]}" },
        { "{\"", "\": 1}" },
        { "{" Q "\"state_dict\": {\"", "\": null}}" },
        { "{" Q "\"compare_to\": {\"", "\": null}}" },
        { "{\"query\": {\"", "\": 1}}" },
        { "{\"query\": {\"dtype\": \"", "\"}}" },
    };

    (void)state;
    for (size_t i = 0; i < 5 * sizeof bodies / sizeof *bodies; i++) {
        char head[64]; /* moves the characters by 0 to 4 bytes */
        char *body;
        struct decoded d;

        snprintf(head, sizeof head, "%s%.*s", bodies[i / 5][0], (int)(i % 5),
                 "xxxx");
        body = build(head, "\u20AC\u00E9", 100000, bodies[i / 5][1]);
        tell(&d, body);
        assert_int_not_equal(d.err.code, ERR_NONE);
        assert_int_not_equal(d.err.code, ERR_JSON);
        assert_utf8(d.err.text);
        assert_utf8(d.err.where);
        drop(&d);
        free(body);
    }
}

/* A reply whose output is `t`; returns {"query": <the text of output>}. */
static char *body_of(const struct tensor *t, enum encoding encoding)
{
    struct request request = { .response_format = encoding };
    struct mha_plan plan = { .output_rank = t->rank };
    struct mha_response mha = { .output = *t };
    struct response response = { .mha = &mha };
    struct buffer out;
    size_t len;

    memcpy(plan.output_dim, t->dim, sizeof plan.output_dim);
    buffer_init(&out, SIZE_MAX / 4);
    encode_json(&request, &plan, &response, &out);
    if (t->dtype == DTYPE_F64)
        out.len -= strlen("}\n");
    buffer_string(&out, t->dtype == DTYPE_F64 ? ",\"precision\":\"float64\"}"
                                              : "");
    buffer_append(&out, "", 1);

    char *text = buffer_take(&out, &len);

    assert_non_null(text);
    memcpy(text, "{\"query\" :", strlen("{\"query\" :"));
    return text;
}

static void check_round_trip(const struct tensor *t)
{
    for (int encoding = 0; encoding < 3; encoding++) {
        char *body = body_of(t, (enum encoding)encoding);
        struct decoded d;
        const struct tensor *got = &accept(&d, body)->query.value;

        assert_int_equal(got->dtype, t->dtype);
        assert_int_equal(got->rank, t->rank);
        assert_memory_equal(got->dim, t->dim, sizeof t->dim);
        assert_memory_equal(got->data, t->data,
                            (size_t)tensor_count(t) * dtype_size(t->dtype));
        assert_int_equal(d.request.response_format, encoding);
        drop(&d);
        free(body);
    }
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* All bit patterns that are numbers: denormals, zeros of both signs. */
static void what_is_printed_reads_back_to_the_same_bits(void **state)
{
    static float narrow[3 * 5 * 7 * 64];
    static double wide[3 * 5 * 7 * 64];
    const int64_t dim[] = { 3, 5, 7, 64 };
    uint64_t seed = 20240607;
    struct tensor t;

    (void)state;
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++) {
        do {
            uint64_t bits = next_random(&seed);

            memcpy(&narrow[i], &bits, sizeof *narrow);
            memcpy(&wide[i], &bits, sizeof *wide);
        } while (!isfinite(narrow[i]) || !isfinite(wide[i]));
    }
    narrow[0] = -0.0f, narrow[1] = 0x1p-149f, narrow[2] = 0x1.fffffep127f;
    wide[0] = -0.0, wide[1] = 0x1p-1074, wide[2] = 0x1.fffffffffffffp1023;
    t = tensor_packed(narrow, DTYPE_F32, 4, dim);
    check_round_trip(&t);
    t = tensor_packed(wide, DTYPE_F64, 4, dim);
    check_round_trip(&t);
    for (int rank = 1; rank < 4; rank++) {
        t = tensor_packed(narrow, DTYPE_F32, rank, dim);
        check_round_trip(&t);
    }
}

/* Rows as short as one number, and longer than what is read at once. */
static void rows_of_every_length_come_back(void **state)
{
    static float values[5 * 80];

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        values[i] = (float)i * -0.37f;
    for (int64_t row = 1; row <= 80; row++) {
        for (int64_t rows = 1; rows <= 5; rows++) {
            struct tensor t = tensor_packed(values, DTYPE_F32, 2,
                                            (int64_t[]){ rows, row });

            check_round_trip(&t);
        }
    }
}

/* Each cap between nothing and enough. */
static void a_full_arena_is_told_as_overload_at_every_size(void **state)
{
    static const char body[] =
        "{\"query\": [[1, 2], [3, 4]], \"key\": {\"shape\": [2, 2], \"data\": "
        "[1, 2, 3, 4]}, \"value\": {\"shape\": [2, 2], \"dtype\": \"U8\", "
        "\"base64\": \"AQID\\u0042A==\"}, \"attn_mask\": [[true, 1]], "
        "\"state_dict\": {\"a\": [1], \"b\": 5}, \"compare_to\": {\"x\": 1}}";
    struct bytes bytes = { (const uint8_t *)body, sizeof body - 1 };
    size_t cap = 0;
    bool ok = false;

    (void)state;
    for (int refused = 0; !ok; cap += 64) {
        struct request request;
        struct error err = { ERR_NONE };
        struct arena arena;

        arena_init(&arena, cap);
        ok = wire_json.decode(bytes, NULL, NULL, &arena, &request, &err);
        assert_int_equal(err.code, ok ? ERR_NONE : ERR_OVERLOADED);
        arena_free(&arena);
        refused += !ok;
        assert_true(refused < 1000);
    }
    assert_true(cap > 4096);
}

static void media_types_are_found_whatever_their_case_and_parameters(
    void **state)
{
    static const char *const good[] = {
        "application/json", "Application/JSON", "application/json;charset=x",
        " application/json ; charset=utf-8",
    };
    static const char *const bad[] = { "", "application/jsonx", "text/json",
                                       "application", "application/json/x",
                                       "*/*" };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_ptr_equal(wire_find(good[i]), &wire_json);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_null(wire_find(bad[i]));
    assert_non_null(strstr(wire_media_types(), "application/json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_json_is_refused_whatever_else_is_wrong),
        cmocka_unit_test(unknown_missing_and_conflicting_fields_come_before_options),
        cmocka_unit_test(options_are_refused_in_the_order_of_the_table),
        cmocka_unit_test(an_integer_is_one_whatever_stands_there_instead),
        cmocka_unit_test(an_integer_may_be_spelled_as_a_real),
        cmocka_unit_test(large_integers_are_exact),
        cmocka_unit_test(scalars_are_float32_unless_the_precision_is_float64),
        cmocka_unit_test(options_of_other_kinds_are_refused_by_name),
        cmocka_unit_test(options_left_out_are_the_defaults_of_the_contract),
        cmocka_unit_test(every_option_reaches_its_member),
        cmocka_unit_test(minus_infinity_may_be_the_filter_in_all_its_spellings),
        cmocka_unit_test(a_query_string_is_no_place_for_fields_of_a_json_request),
        cmocka_unit_test(a_tensor_may_be_nested_flat_or_base64_in_any_order),
        cmocka_unit_test(base64_may_be_any_dtype_and_escaped),
        cmocka_unit_test(a_flaw_in_a_tensor_names_the_element),
        cmocka_unit_test(masks_take_what_their_rows_of_the_contract_say),
        cmocka_unit_test(minus_infinity_may_be_in_attn_mask_in_all_its_spellings),
        cmocka_unit_test(masks_mix_numbers_and_words_in_any_order),
        cmocka_unit_test(masks_of_booleans_are_bytes),
        cmocka_unit_test(numbers_are_the_nearest_float32),
        cmocka_unit_test(absurdly_long_numbers_take_linear_time),
        cmocka_unit_test(float64_means_doubles_wherever_it_is_said),
        cmocka_unit_test(float64_is_found_between_large_tensors),
        cmocka_unit_test(the_word_float64_alone_does_not_make_doubles),
        cmocka_unit_test(overflow_is_judged_in_the_precision_asked_for),
        cmocka_unit_test(hidden_states_is_the_query_by_another_name),
        cmocka_unit_test(a_state_dict_keeps_its_names_and_its_flaws),
        cmocka_unit_test(state_dict_and_compare_to_are_objects_of_tensors),
        cmocka_unit_test(what_is_wrong_is_told_in_the_order_of_the_contract),
        cmocka_unit_test(a_good_body_cut_at_any_byte_is_no_json),
        cmocka_unit_test(a_million_of_what_is_no_number_is_refused_at_the_first),
        cmocka_unit_test(hostile_objects_hold_little),
        cmocka_unit_test(ten_million_numbers_peak_under_four_times_the_body),
        cmocka_unit_test(a_shape_of_a_million_dimensions_is_only_counted),
        cmocka_unit_test(an_escaped_name_is_compared_to_its_end),
        cmocka_unit_test(a_long_word_or_name_is_cut_in_what_is_told),
        cmocka_unit_test(what_is_printed_reads_back_to_the_same_bits),
        cmocka_unit_test(rows_of_every_length_come_back),
        cmocka_unit_test(a_full_arena_is_told_as_overload_at_every_size),
        cmocka_unit_test(media_types_are_found_whatever_their_case_and_parameters),
    };

    int failed = cmocka_run_group_tests_name("portable", tests, NULL, NULL);

    assert_true(number_select(cpu_features(), NULL));
    return failed +
           cmocka_run_group_tests_name(number_selected(), tests, NULL, NULL);
}
