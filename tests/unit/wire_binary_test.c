#include "api/encode.h"
#include "api/npy.h"
#include "api/reply.h"
#include "api/safetensors.h"
#include "api/wire.h"
#include "tests/unit/allocations.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- bodies ---- */

enum { MOST_BODY = 1 << 16 };

/* A body in a block of exactly its size, aligned as malloc aligns, and what
 * reading it gave. */
struct decoded {
    struct arena arena;
    uint8_t *body;
    size_t len;
    struct request request;
    struct mha_plan plan;
    struct error err;
    bool ok;
};

static void decode(struct decoded *d, const struct wire_format *format,
                   const uint8_t *body, size_t len, const char *query)
{
    struct bytes bytes;

    *d = (struct decoded){ .body = malloc(len), .len = len };
    assert_non_null(d->body);
    memcpy(d->body, body, len);
    bytes = (struct bytes){ d->body, len };
    arena_init(&d->arena, (size_t)format->need(bytes, query) + 64 * 1024);
    d->ok = format->decode(bytes, query, NULL, &d->arena, &d->request, &d->err);
    assert_int_equal(d->ok, d->err.code == ERR_NONE);
}

static void drop(struct decoded *d)
{
    arena_free(&d->arena);
    free(d->body);
}

/* Zeros are sound in every dtype; the header is padded to a multiple of 8. */
static size_t write_safetensors(uint8_t *out, const char *header,
                                const void *data, size_t bytes)
{
    uint64_t len = (strlen(header) + 7) / 8 * 8;

    assert_true(8 + len + bytes <= MOST_BODY);
    memcpy(out, &len, 8);
    memset(out + 8, ' ', len);
    memcpy(out + 8, header, strlen(header));
    if (data == NULL)
        memset(out + 8 + len, 0, bytes);
    else
        memcpy(out + 8 + len, data, bytes);
    return 8 + (size_t)len + bytes;
}

static void decode_safetensors(struct decoded *d, const char *header,
                               const void *data, size_t bytes)
{
    static uint8_t body[MOST_BODY];
    size_t len = write_safetensors(body, header, data, bytes);

    decode(d, &wire_safetensors, body, len, NULL);
}

static size_t write_npy(uint8_t *out, const char *descr, const char *shape,
                        const void *data, size_t bytes)
{
    int len = snprintf((char *)out + 10, MOST_BODY - 10,
                       "{'descr': %s, 'fortran_order': False, 'shape': %s, }\n",
                       descr, shape);

    memcpy(out, "\x93NUMPY\1\0", 8);
    out[8] = (uint8_t)len;
    out[9] = (uint8_t)(len >> 8);
    if (data == NULL)
        memset(out + 10 + len, 0, bytes);
    else
        memcpy(out + 10 + len, data, bytes);
    return 10 + (size_t)len + bytes;
}

static void decode_npy(struct decoded *d, const char *descr, const char *shape,
                       const void *data, size_t bytes, const char *query)
{
    static uint8_t body[MOST_BODY];
    size_t len = write_npy(body, descr, shape, data, bytes);

    decode(d, &wire_npy, body, len, query);
}

/* What is told in the end: by decode, or by what it left to mha_check. */
static void check_told(struct decoded *d, enum error_code code,
                       const char *where, const char *text, const char *of)
{
    if (d->ok)
        mha_check(&d->request.mha, &d->plan, &d->err);
    if (d->err.code != code || strcmp(d->err.where, where) != 0 ||
        strstr(d->err.text, text) == NULL)
        fail_msg("%s: %s at \"%s\": %s", of, error_name(d->err.code),
                 d->err.where, d->err.text);
    drop(d);
}

/* ---- the same request in JSON ---- */

static void check_tensor(const struct named_tensor *a,
                         const struct named_tensor *b)
{
    const struct tensor *x = &a->value, *y = &b->value;

    assert_true(a->flaw == NULL && b->flaw == NULL);
    assert_int_equal(x->rank, y->rank);
    if (x->rank == 0)
        return;
    assert_string_equal(a->name, b->name);
    assert_int_equal(x->dtype, y->dtype);
    assert_memory_equal(x->dim, y->dim, sizeof x->dim);
    assert_memory_equal(x->step, y->step, sizeof x->step);
    assert_memory_equal(x->data, y->data,
                        (size_t)tensor_count(x) * dtype_size(x->dtype));
}

/* The options are compared as bytes, once the pointers are out of the way. */
static void check_options(struct mha_request a, struct mha_request b)
{
    struct named_tensor none = { .name = NULL };
    struct mha_request *each[] = { &a, &b };

    for (int i = 0; i < 2; i++) {
        struct mha_request *r = each[i];

        r->query = r->key = r->value = r->alibi_slopes = r->sinks = none;
        r->key_padding_mask = r->attention_mask = r->attn_mask = none;
        r->compare_output = r->compare_weights = none;
        r->state_dict.item = NULL;
    }
    assert_memory_equal(&a, &b, sizeof a);
}

static void check_same(const struct request *a, const struct request *b)
{
    const struct mha_request *x = &a->mha, *y = &b->mha;

    check_tensor(&x->query, &y->query);
    check_tensor(&x->key, &y->key);
    check_tensor(&x->value, &y->value);
    check_tensor(&x->alibi_slopes, &y->alibi_slopes);
    check_tensor(&x->sinks, &y->sinks);
    check_tensor(&x->key_padding_mask, &y->key_padding_mask);
    check_tensor(&x->attention_mask, &y->attention_mask);
    check_tensor(&x->attn_mask, &y->attn_mask);
    check_tensor(&x->compare_output, &y->compare_output);
    check_tensor(&x->compare_weights, &y->compare_weights);
    assert_int_equal(x->state_dict.count, y->state_dict.count);
    for (int64_t i = 0; i < x->state_dict.count; i++)
        check_tensor(&x->state_dict.item[i], &y->state_dict.item[i]);
    check_options(*x, *y);
    assert_string_equal(a->model, b->model);
    assert_int_equal(a->layer, b->layer);
    assert_int_equal(a->profile, b->profile);
    assert_int_equal(a->response_format, b->response_format);
}

static void check_as_json(struct decoded *d, const char *json)
{
    struct decoded told;

    if (!d->ok)
        fail_msg("%s", d->err.text);
    decode(&told, &wire_json, (const uint8_t *)json, strlen(json), NULL);
    if (!told.ok)
        fail_msg("%s: %s", json, told.err.text);
    check_same(&d->request, &told.request);
    drop(&told);
    drop(d);
}

#define ENTRY(name, dtype, shape, from, to)                                    \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape                  \
    "],\"data_offsets\":[" #from "," #to "]}"
#define WITH(metadata) "{\"__metadata__\":{" metadata "},"
#define QUERY ENTRY("query", "F32", "1,2", 0, 8) "}"

static void a_safetensors_request_is_what_json_would_have_been(void **state)
{
    static const struct {
        float query[2], key[2], weight[2], expected[2];
        uint16_t mask[2]; /* halves: 0 and minus infinity */
        uint8_t padding[2];
    } data = {
        { 1.5f, -2 }, { 0.25f, 3 }, { 7, 8 }, { 9, 10 }, { 0, 0xFC00 },
        { 0, 1 },
    };
    struct decoded d;

    (void)state;
    decode_safetensors(
        &d,
        WITH("\"num_heads\":\"2\",\"layout\":\"LE\",\"is_causal\":\"true\","
             "\"scale\":\" 0.5 \",\"window\":\"[-1, 0]\",\"seed\":\"7e0\","
             "\"return\":\"[\\\"lse\\\", \\\"q\\\"]\",\"profile\":\"true\","
             "\"mask_filter_value\":\"-Infinity\",\"conventions\":"
             "\"\\\"keras\\\"\",\"response_format\":\"flat\"")
        ENTRY("query", "F32", "1,2", 0, 8) ","
        ENTRY("key", "F32", "1,2", 8, 16) ","
        ENTRY("state_dict.out_proj.weight", "F32", "2,1", 16, 24) ","
        ENTRY("compare_to.output", "F32", "1,2", 24, 32) ","
        ENTRY("attn_mask", "F16", "1,2", 32, 36) ","
        ENTRY("key_padding_mask", "BOOL", "2", 36, 38) "}",
        &data, 38);
    check_as_json(
        &d, "{\"num_heads\": 2, \"layout\": \"LE\", \"is_causal\": true, "
            "\"scale\": 0.5, \"window\": [-1, 0], \"seed\": 7, "
            "\"return\": [\"lse\", \"q\"], \"profile\": true, "
            "\"mask_filter_value\": -Infinity, \"conventions\": \"keras\", "
            "\"response_format\": \"flat\", \"query\": [[1.5, -2]], "
            "\"key\": [[0.25, 3]], \"state_dict\": {\"out_proj.weight\": "
            "[[7], [8]]}, \"compare_to\": {\"output\": [[9, 10]]}, "
            "\"attn_mask\": [[0, -Infinity]], \"key_padding_mask\": "
            "[false, true]}");
}

/* Doubles, whatever follows them; what is no tensor in the file is one in the
 * metadata. */
static void fields_may_stand_in_the_metadata_as_json(void **state)
{
    static const double query[] = { 0.1, 0.2 };
    struct decoded d;

    (void)state;
    decode_safetensors(
        &d,
        WITH("\"key\":\"[[0.1, 1e300]]\",\"attn_mask\":\"[[-Infinity]]\","
             "\"scale\":\"0.1\",\"state_dict\":\"{\\\"bias_k\\\": [1]}\","
             "\"compare_to\":\"{\\\"weights\\\": [[1]]}\",\"layer\":\"1\","
             "\"model\":\"tiny \\\\\\\"\\u00e4\\n\",\"precision\":\"float64\"")
        ENTRY("query", "F64", "1,2", 0, 16) "}",
        query, 16);
    /* Both would be refused later for what they combine. */
    assert_int_equal(d.err.code, ERR_CONFLICT);
    drop(&d);
    decode_safetensors(
        &d,
        WITH("\"key\":\"[[0.1, 1e300]]\",\"attn_mask\":\"[[-Infinity]]\","
             "\"scale\":\"0.1\",\"compare_to\":\"{\\\"weights\\\": [[1]]}\","
             "\"model\":\"tiny \\\\\\\"\\u00e4\\n\",\"precision\":\"float64\"")
        ENTRY("query", "F64", "1,2", 0, 16) "}",
        query, 16);
    check_as_json(&d, "{\"key\": [[0.1, 1e300]], \"attn_mask\": [[null]], "
                      "\"scale\": 0.1, \"compare_to\": {\"weights\": [[1]]}, "
                      "\"model\": \"tiny \\\\\\\"\\u00e4\\n\", \"precision\": "
                      "\"float64\", \"query\": [[0.1, 0.2]]}");
}

static void an_npy_request_is_what_json_would_have_been(void **state)
{
    static const float query[] = { 1.5f, -2, 0.25f, 3, 4, 5 };
    struct decoded d;

    (void)state;
    decode_npy(&d, "'<f4'", "(1, 3, 2)", query, 24,
               "num_heads=2&is_causal=true&model=tiny-bert&window=%5B-1%2C0%5D"
               "&return=[%22q%22]&key_padding_mask=[[false,true,+false]]"
               "&mask_filter_value=-1e4&layout=NLE");
    check_as_json(&d, "{\"query\": [[[1.5, -2], [0.25, 3], [4, 5]]], "
                      "\"num_heads\": 2, \"is_causal\": true, \"model\": "
                      "\"tiny-bert\", \"window\": [-1, 0], \"return\": [\"q\"], "
                      "\"key_padding_mask\": [[false, true, false]], "
                      "\"mask_filter_value\": -10000, \"layout\": \"NLE\"}");
    decode_npy(&d, "'<f4'", "(3, 2)", query, 24,
               "attn_mask=[[0.1,-Infinity]]&precision=float64");
    check_as_json(&d, "{\"query\": [[1.5, -2], [0.25, 3], [4, 5]], "
                      "\"attn_mask\": [[0.1, null]], \"precision\": "
                      "\"float64\"}");
    decode_npy(&d, "'<f4'", "(3, 2)", query, 24, NULL);
    check_as_json(&d, "{\"query\": [[1.5, -2], [0.25, 3], [4, 5]]}");
}

static void aligned_floats_are_used_where_they_are(void **state)
{
    static const float query[] = { 1, 2 };
    struct decoded d;
    const uint8_t *data;

    (void)state;
    decode_safetensors(&d, "{" QUERY, query, 8);
    assert_true(d.ok);
    data = d.request.mha.query.value.data;
    assert_ptr_equal(data, d.body + d.len - 8);
    drop(&d);
    decode_npy(&d, "'<f4'", "(1, 2)   ", query, 8, NULL);
    assert_true(d.ok);
    data = d.request.mha.query.value.data;
    assert_int_equal(data == d.body + d.len - 8, (d.len - 8) % 4 == 0);
    drop(&d);
}

/* ---- refusals ---- */

/* long: one table */
static void a_safetensors_request_is_refused_where_it_is_wrong(void **state)
{
    static const struct {
        const char *header;
        size_t bytes;
        enum error_code code;
        const char *where, *text;
    } rows[] = {
        /* The format's own rules: more of them in safetensors_test.c. */
        { "{" ENTRY("query", "F32", "1,2", 0, 8) "}", 9, ERR_REQUEST, "",
          "belong" },
        { "{" ENTRY("query", "F32", "1,2", 0, 7) "}", 7, ERR_REQUEST, "",
          "spans 7 bytes" },
        { "{" ENTRY("query", "F33", "1,2", 0, 8) "}", 8, ERR_REQUEST, "",
          "F33" },
        { "{\"query\":1}", 0, ERR_JSON, "", "an object" },
        { "{" ENTRY("query", "F32", "1,2", 0, 8) "," QUERY, 8, ERR_JSON, "",
          "comes twice" },
        { WITH("\"a\":1") QUERY, 8, ERR_JSON, "", "a string" },
        { WITH("\"seed\":\"1\",\"seed\":\"1\"") QUERY, 8, ERR_JSON, "",
          "comes twice" },

        /* The same field, told twice in two ways. */
        { WITH("\"query\":\"[[1]]\"") QUERY, 8, ERR_REQUEST, "",
          "query is in the file twice" },
        { WITH("\"state_dict\":\"{}\"")
          ENTRY("state_dict.a", "F32", "1,2", 0, 8) "}", 8, ERR_REQUEST, "",
          "state_dict is in the file twice" },
        { WITH("\"compare_to\":\"{}\"")
          ENTRY("compare_to.output", "F32", "1,2", 0, 8) "}", 8, ERR_REQUEST,
          "", "compare_to is in the file twice" },

        /* In the contract's order: unknown, missing, options, tensors. */
        { "{" ENTRY("quary", "F32", "1,2", 0, 8) "}", 8, ERR_UNKNOWN, "/quary",
          "the nearest is \"query\"" },
        { WITH("\"num_head\":\"x\",\"seed\":\"x\"") QUERY, 8, ERR_UNKNOWN,
          "/num_head", "num_heads" },
        { WITH("\"format\":\"pt\"") QUERY, 8, ERR_UNKNOWN, "/format", "" },
        { "{" ENTRY("state_dict", "F32", "1,2", 0, 8) ","
          ENTRY("query", "F32", "1,2", 8, 16) "}", 16, ERR_TYPE, "/state_dict",
          "state_dict is an array, not an object" },
        { "{\"__metadata__\":{}}", 0, ERR_MISSING, "/query", "missing" },
        { "{}", 0, ERR_MISSING, "/query", "missing" },
        { "{" ENTRY("hidden_states", "F32", "1,2", 0, 8) ","
          ENTRY("query", "F32", "1,2", 8, 16) "}", 16, ERR_CONFLICT,
          "/hidden_states", "can't stand beside query" },
        { WITH("\"num_heads\":\"two\"") QUERY, 8, ERR_TYPE, "/num_heads",
          "num_heads is \"two\", not an integer" },
        { WITH("\"num_heads\":\"\"") QUERY, 8, ERR_TYPE, "/num_heads",
          "num_heads is \"\"" },
        { WITH("\"num_heads\":\"2 2\"") QUERY, 8, ERR_TYPE, "/num_heads",
          "num_heads is \"2 2\"" },
        { WITH("\"num_heads\":\"null\"") QUERY, 8, ERR_TYPE, "/num_heads",
          "num_heads is null" },
        { WITH("\"is_causal\":\"True\"") QUERY, 8, ERR_TYPE, "/is_causal",
          "is_causal is \"True\", not true or false" },
        { WITH("\"dropout_p\":\"1\"") QUERY, 8, ERR_RANGE, "/dropout_p", "" },
        { WITH("\"scale\":\"NaN\"") QUERY, 8, ERR_TYPE, "/scale", "\"NaN\"" },
        { WITH("\"window\":\"[1\"") QUERY, 8, ERR_TYPE, "/window", "" },
        { WITH("\"layout\":\"XYZ\"") QUERY, 8, ERR_RANGE, "/layout", "XYZ" },
        { WITH("\"model\":\"3\"") QUERY, 8, ERR_TYPE, "/model", "a string" },
        { WITH("\"return\":\"[\\\"z\\\"]\"") QUERY, 8, ERR_RANGE, "/return/0",
          "" },
        { WITH("\"attn_mask\":\"[[NaN]]\"") QUERY, 8, ERR_TYPE, "/attn_mask",
          "\"[[NaN]]\"" },
        { WITH("\"key\":\"x\"") QUERY, 8, ERR_TYPE, "/key", "a tensor" },
        { WITH("\"state_dict\":\"x\"") QUERY, 8, ERR_TYPE, "/state_dict", "" },
        { "{" ENTRY("num_heads", "I64", "1", 0, 8) ","
          ENTRY("query", "F32", "1,2", 8, 16) "}", 16, ERR_TYPE, "/num_heads",
          "num_heads is an array, not an integer" },
        { "{" ENTRY("return", "I64", "1", 0, 8) ","
          ENTRY("query", "F32", "1,2", 8, 16) "}", 16, ERR_TYPE, "/return/0",
          "" },
        { "{" ENTRY("query", "BOOL", "1,2", 0, 2) "}", 2, ERR_TYPE, "/query",
          "query is BOOL, which only masks have" },
        { "{" ENTRY("query", "U16", "1,2", 0, 4) "}", 4, ERR_RANGE, "/query",
          "query is U16, not one of F64" },
        { "{" ENTRY("query", "F32", "", 0, 4) "}", 4, ERR_SHAPE, "/query",
          "query has 0 dimensions" },
        { "{" ENTRY("query", "F32", "1,1,1,1,1", 0, 4) "}", 4, ERR_SHAPE,
          "/query", "query has 5 dimensions" },
        { "{" ENTRY("query", "F32", "1,0", 0, 0) "}", 0, ERR_SHAPE, "/query",
          "query has a dimension of 0" },
        { "{" ENTRY("state_dict.nonsense", "F32", "1,2", 0, 8) ","
          ENTRY("query", "F32", "1,2", 8, 16) "}", 16, ERR_UNKNOWN,
          "/state_dict", "" },
        { "{" ENTRY("state_dict.", "F32", "1,2", 0, 8) ","
          ENTRY("query", "F32", "1,2", 8, 16) "}", 16, ERR_UNKNOWN,
          "/state_dict", "" },
        { "{" ENTRY("state_dict.in_proj_weight", "F32", "6,0", 0, 0) ","
          ENTRY("query", "F32", "1,2", 0, 8) "}", 8, ERR_SHAPE,
          "/state_dict/in_proj_weight", "in_proj_weight has a dimension" },
        { "{" ENTRY("compare_to.outputs", "F32", "1,2", 0, 8) ","
          ENTRY("query", "F32", "1,2", 8, 16) "}", 16, ERR_UNKNOWN,
          "/compare_to/outputs", "not \"outputs\"" },
        { "{" ENTRY("compare_to.output", "F32", "2,2", 0, 16) ","
          ENTRY("query", "F32", "1,2", 16, 24) "}", 24, ERR_SHAPE,
          "/compare_to/output", "" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct decoded d;

        decode_safetensors(&d, rows[i].header, NULL, rows[i].bytes);
        check_told(&d, rows[i].code, rows[i].where, rows[i].text,
                   rows[i].header);
    }
}

static void elements_that_may_not_stand_are_told_by_their_place(void **state)
{
    static const float query[] = { 1, INFINITY, NAN };
    static const uint8_t mask[] = { 0, 1, 2 };
    struct decoded d;

    (void)state;
    decode_safetensors(&d, "{" ENTRY("query", "F32", "1,3", 0, 12) "}", query,
                       12);
    check_told(&d, ERR_NOT_FINITE, "/query", "query[0][1] is not finite",
               "query");
    decode_safetensors(&d, "{" ENTRY("state_dict.out_proj.weight", "F32", "3,1",
                                     0, 12) "}", query, 12);
    assert_int_equal(d.err.code, ERR_MISSING);
    drop(&d);
    decode_safetensors(&d, WITH("\"query\":\"[[1], [2], [3]]\"")
                       ENTRY("key_padding_mask", "BOOL", "3", 0, 3) "}", mask,
                       3);
    check_told(&d, ERR_RANGE, "/key_padding_mask",
               "key_padding_mask[2] is a boolean that is not 0 or 1", "mask");
    decode_npy(&d, "'<f4'", "(3, 1)", query, 12, "num_heads=1");
    check_told(&d, ERR_NOT_FINITE, "/query", "query[1][0] is not finite",
               "query");
}

static void an_npy_request_is_refused_where_it_is_wrong(void **state)
{
    static const struct {
        const char *descr, *shape;
        size_t bytes;
        const char *query;
        enum error_code code;
        const char *where, *text;
    } rows[] = {
        { "'<f4'", "(1, 2)", 7, NULL, ERR_REQUEST, "", "7 bytes follow" },
        { "'<f4'", "(1, 2)", 8, "a=%", ERR_REQUEST, "", "query string" },
        { "'<f4'", "(1, 2)", 8, "seed=1&seed=1", ERR_REQUEST, "",
          "seed is twice in the URL" },
        { "'<f4'", "(1, 2)", 8, "query=[[1]]", ERR_REQUEST, "",
          "query is the array in the body" },
        { "'<f4'", "(1, 2)", 8, "x=1&num_heads=x", ERR_UNKNOWN, "/x", "" },
        { "'<f4'", "(1, 2)", 8, "num_head=1", ERR_UNKNOWN, "/num_head",
          "num_heads" },
        { "'<f4'", "(1, 2)", 8, "hidden_states=[[1]]", ERR_CONFLICT,
          "/hidden_states", "" },
        { "'<f4'", "(1, 2)", 8, "num_heads", ERR_TYPE, "/num_heads",
          "num_heads is \"\"" },
        { "'<f4'", "(1, 2)", 8, "num_heads=x", ERR_TYPE, "/num_heads",
          "num_heads is \"x\"" },
        { "'<f4'", "(1, 2)", 8, "num_heads=3", ERR_SHAPE, "/num_heads", "" },
        { "'<f4'", "(1, 2)", 8, "key=[[1,2,3]]", ERR_SHAPE, "/key", "" },
        { "'|b1'", "(1, 2)", 2, NULL, ERR_TYPE, "/query", "only masks" },
        { "'<u2'", "(1, 2)", 4, NULL, ERR_RANGE, "/query",
          "descr is '<u2', not one of <f2" },
        { "'|O'", "(1, 2)", 4, NULL, ERR_RANGE, "/query", "'|O'" },
        { "[('a', '<f4')]", "(1, 2)", 8, NULL, ERR_RANGE, "/query",
          "'[...]'" },
        { "'<f4'", "()", 4, NULL, ERR_SHAPE, "/query", "0 dimensions" },
        { "'<f4'", "(1, 1, 1, 1, 1)", 4, NULL, ERR_SHAPE, "/query",
          "5 dimensions" },
        { "'<f4'", "(2,)", 8, NULL, ERR_SHAPE, "/query", "" },
        { "'<f4'", "(0, 2)", 0, NULL, ERR_SHAPE, "/query",
          "a dimension of 0" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct decoded d;

        decode_npy(&d, rows[i].descr, rows[i].shape, NULL, rows[i].bytes,
                   rows[i].query);
        check_told(&d, rows[i].code, rows[i].where, rows[i].text,
                   rows[i].query == NULL ? rows[i].descr : rows[i].query);
    }
}

static void fields_of_other_formats_are_not_in_the_url(void **state)
{
    static uint8_t body[MOST_BODY];
    size_t len = write_safetensors(body, "{" QUERY, NULL, 8);
    struct decoded d;

    (void)state;
    decode(&d, &wire_safetensors, body, len, "num_heads=1");
    check_told(&d, ERR_UNKNOWN, "/num_heads", "in the URL", "safetensors");
}

/* ---- memory ---- */

/* Whatever fits in the room that need() asks for is read within it. */
static void what_need_says_is_enough(void **state)
{
    static char header[MOST_BODY / 2];
    struct decoded d;
    size_t at = 0;

    (void)state;
    at += (size_t)snprintf(header, sizeof header,
                           "{\"__metadata__\":{\"precision\":\"float64\","
                           "\"key\":\"[[0");
    while (at < 20000)
        at += (size_t)snprintf(header + at, 8, ",1");
    snprintf(header + at, sizeof header - at, "]]\"}," QUERY);
    decode_safetensors(&d, header, NULL, 8);
    assert_true(d.ok);
    drop(&d);

    at = (size_t)snprintf(header, sizeof header, "{\"__metadata__\":{");
    for (int i = 0; at < 20000; i++)
        at += (size_t)snprintf(header + at, 32, "%s\"%d\":\"\"",
                               i == 0 ? "" : ",", i);
    snprintf(header + at, sizeof header - at, "}," QUERY);
    decode_safetensors(&d, header, NULL, 8);
    check_told(&d, ERR_UNKNOWN, "/0", "", "many");

    at = (size_t)snprintf(header, sizeof header, "{" QUERY);
    at--;
    for (int i = 0; at < 20000; i++)
        at += (size_t)snprintf(header + at, 128, "," ENTRY("state_dict.%d",
                               "I8", "0", 0, 0), i);
    snprintf(header + at, sizeof header - at, "}");
    decode_safetensors(&d, header, NULL, 8);
    check_told(&d, ERR_UNKNOWN, "/state_dict", "", "many");
}

/* Every fourth cap between nothing and enough. */
static void check_full_arena(const struct wire_format *format,
                             const uint8_t *body, size_t len, const char *query)
{
    bool ok = false;
    size_t cap = 0;

    for (; !ok; cap += 4) {
        struct error err = { ERR_NONE };
        struct request request;
        struct arena arena;

        assert_true(cap < MOST_BODY);
        arena_init(&arena, cap);
        ok = format->decode((struct bytes){ body, len }, query, NULL, &arena,
                            &request, &err);
        if (err.code != (ok ? ERR_NONE : ERR_OVERLOADED))
            fail_msg("%zu bytes: %s", cap, err.text);
        arena_free(&arena);
    }
    assert_true(cap > 1024);
}

/* Each kind of value that takes memory: copies, flaws, texts, JSON in a text. */
static void a_full_arena_is_told_as_overload_at_every_size(void **state)
{
    static const struct {
        const char *header;
        size_t bytes;
    } files[] = {
        { WITH("\"precision\":\"float64\",\"attn_mask\":\"[[-Infinity]]\","
               "\"conventions\":\"keras\",\"return\":\"[\\\"q\\\"]\"")
          ENTRY("state_dict.a", "F32", "1,2", 0, 8) ","
          ENTRY("compare_to.output", "F32", "1,2", 8, 16) ","
          ENTRY("query", "BF16", "1,2", 16, 20) "}", 20 },
        { WITH("\"state_dict\":\"{\\\"a\\\": [1], \\\"b\\\": 2}\","
               "\"compare_to\":\"{\\\"c\\\": 1}\",\"key\":\"[x]\"")
          ENTRY("attn_mask", "U16", "1", 0, 2) ","
          ENTRY("query", "BOOL", "1,2", 2, 4) "}", 4 },
    };
    static uint8_t body[MOST_BODY];
    size_t len;

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        len = write_safetensors(body, files[i].header, NULL, files[i].bytes);
        check_full_arena(&wire_safetensors, body, len, NULL);
    }
    len = write_npy(body, "'>f8'", "(1, 2)", NULL, 16);
    check_full_arena(&wire_npy, body, len,
                     "num_heads=1&compare_to={}&state_dict={%22a%22:[[1]]}&"
                     "conventions=keras&key=[[1,2]]");
}

/* ---- replies ---- */

/* A response with every member, of numbers that tell them apart. */
struct made {
    struct request request;
    struct mha_plan plan;
    struct mha_response mha;
    struct response response;
    struct arena arena;
};

static struct tensor number(struct made *m, enum dtype dtype, int rank,
                            const int64_t *dim)
{
    static int next;
    struct tensor t = tensor_packed(NULL, dtype, rank, dim);
    int64_t count = tensor_count(&t);

    t.data = arena_array(&m->arena, (size_t)count, dtype_size(dtype));
    for (int64_t i = 0; i < count; i++) {
        if (dtype == DTYPE_F32)
            ((float *)t.data)[i] = (float)next++ / 8;
        else if (dtype == DTYPE_F64)
            ((double *)t.data)[i] = next++ / 3.0;
        else
            ((int64_t *)t.data)[i] = next++;
    }
    return t;
}

static void make(struct made *m, enum precision precision, bool everything)
{
    enum dtype dtype = precision == PRECISION_F64 ? DTYPE_F64 : DTYPE_F32;
    const int64_t NLE[] = { 1, 3, 2 }, NLk[] = { 1, 3, 1 }, NL[] = { 1, 3 };
    const int64_t NHLD[] = { 1, 1, 3, 2 }, NHLS[] = { 1, 1, 3, 3 };
    const int64_t NHL[] = { 1, 1, 3 };

    *m = (struct made){ 0 };
    arena_init(&m->arena, 1 << 20);
    mha_request_init(&m->request.mha);
    m->request.mha.precision = precision;
    m->plan = (struct mha_plan){ .dtype = dtype, .N = 1, .L = 3, .S = 3,
                                 .T = 3, .E = 2, .H = 1, .G = 1, .D = 2,
                                 .Dv = 2, .output_dim = { 1, 3, 2 },
                                 .output_rank = 3 };
    m->mha.output = number(m, dtype, 3, NLE);
    m->response = (struct response){ .mha = &m->mha, .kernels = "portable" };
    if (!everything) {
        m->request.mha.need_weights = false;
        return;
    }
    m->request.profile = true;
    m->request.mha.weights_top_k = 1;
    m->request.mha.returns = 63;
    m->mha.top_indices = number(m, DTYPE_I64, 3, NLk);
    m->mha.top_values = number(m, dtype, 3, NLk);
    m->mha.top_kept = number(m, dtype, 2, NL);
    m->mha.q = number(m, dtype, 4, NHLD);
    m->mha.k = number(m, dtype, 4, NHLD);
    m->mha.v = number(m, dtype, 4, NHLD);
    m->mha.scores = number(m, dtype, 4, NHLS);
    ((uint8_t *)m->mha.scores.data)[0] = 1;
    m->mha.context = number(m, dtype, 3, NLE);
    m->mha.lse = number(m, dtype, 3, NHL);
    m->mha.fully_masked_queries = 2;
    m->mha.compare_output = (struct comparison){ .present = true, .rank = 3,
                                                 .max_abs = 0.1 };
    m->mha.compare_weights = m->mha.compare_output;
}

static const struct safetensors_tensor *
find_tensor(const struct safetensors *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++)
        if (strcmp(file->tensor[i].name, name) == 0)
            return &file->tensor[i];
    return NULL;
}

static void check_file(const struct made *m, const struct safetensors *file)
{
    struct reply_tensor want[REPLY_MOST_TENSORS];
    int count = reply_tensors(&m->mha, want);

    assert_int_equal(file->count, count);
    for (int i = 0; i < count; i++) {
        const struct safetensors_tensor *got = find_tensor(file, want[i].name);
        const struct tensor *t = &want[i].value;
        size_t bytes = (size_t)tensor_count(t) * dtype_size(t->dtype);

        assert_non_null(got);
        assert_int_equal(got->dtype, t->dtype);
        assert_int_equal(got->rank, t->rank);
        assert_memory_equal(got->dim, t->dim, sizeof t->dim);
        assert_int_equal(got->bytes, bytes);
        assert_memory_equal(got->data, t->data, bytes);
        assert_int_equal((uintptr_t)got->data % dtype_size(t->dtype), 0);
    }
}

/* A copy in a block of its own size; checked against the bound. */
static struct bytes encode(const struct made *m,
                           const struct wire_format *format)
{
    struct buffer out;
    int64_t bound = format->bound(&m->request, &m->plan);
    struct bytes file;
    void *data;

    buffer_init(&out, (size_t)bound);
    format->encode(&m->request, &m->plan, &m->response, &out);
    assert_false(out.failed);
    data = buffer_take(&out, &file.len);
    assert_true((int64_t)file.len <= bound);
    file.data = realloc(data, file.len);
    return file;
}

static void a_safetensors_reply_has_all_that_json_has(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct made m;
        struct safetensors file;
        struct error err = { ERR_NONE };
        struct bytes bytes;
        bool everything = i & 1;

        make(&m, i & 2 ? PRECISION_F64 : PRECISION_F32, everything);
        bytes = encode(&m, &wire_safetensors);
        if (!safetensors_decode(bytes, &m.arena, &file, &err))
            fail_msg("%s", err.text);
        check_file(&m, &file);
        assert_int_equal(file.metadata_count, everything ? 3 : 0);
        if (everything) {
            assert_string_equal(
                safetensors_find_metadata(&file, "fully_masked_queries"), "2");
            assert_ptr_equal(
                strstr(safetensors_find_metadata(&file, "comparison"),
                       "{\"output\":{\"max_abs\":0.1,"),
                safetensors_find_metadata(&file, "comparison"));
            assert_non_null(strstr(safetensors_find_metadata(&file, "profile"),
                                   "{\"name\":\"encode\",\"flops\":0,"));
        }
        free((void *)(uintptr_t)bytes.data);
        arena_free(&m.arena);
    }
}

static void an_npy_reply_is_the_output_alone(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct made m;
        struct npy file;
        struct error err = { ERR_NONE };
        struct bytes bytes;

        make(&m, i ? PRECISION_F64 : PRECISION_F32, true);
        bytes = encode(&m, &wire_npy);
        assert_true(npy_decode(bytes, &file, &err));
        assert_int_equal(file.dtype, i ? DTYPE_F64 : DTYPE_F32);
        assert_int_equal(file.rank, 3);
        assert_memory_equal(file.dim, m.mha.output.dim, sizeof file.dim);
        assert_memory_equal(file.data, m.mha.output.data,
                            6 * dtype_size(file.dtype));
        free((void *)(uintptr_t)bytes.data);
        arena_free(&m.arena);
    }
}

static const struct wire_format *const formats[] = {
    &wire_json, &wire_safetensors, &wire_npy
};

/* As if it had been computed there. */
static void move(const struct made *m, struct mha_response *to)
{
    struct reply_tensor from[REPLY_MOST_TENSORS], there[REPLY_MOST_TENSORS];
    int count = reply_tensors(&m->mha, from);

    reply_tensors(to, there);
    for (int i = 0; i < count; i++)
        if (there[i].value.data != from[i].value.data)
            memcpy(there[i].value.data, from[i].value.data,
                   tensor_bytes(&from[i].value));
}

/* One tensor that was computed elsewhere all the same. */
static void a_reply_in_which_results_were_computed_is_the_same(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        const struct wire_format *format = i & 4 ? &wire_npy
                                                 : &wire_safetensors;
        struct made m;
        struct buffer out;
        struct bytes want;

        make(&m, i & 2 ? PRECISION_F64 : PRECISION_F32, i & 1);
        m.request.profile = false;
        want = encode(&m, format);

        struct mha_response mha = m.mha;
        struct response response = { .mha = &mha };

        buffer_init(&out, want.len);
        format->place(&m.request, &mha, &out);
        mha.context.data = m.mha.context.data;
        move(&m, &mha);
        assert_int_equal((uintptr_t)mha.output.data % (i & 1 ? 8 : 64), 0);
        format->encode(&m.request, &m.plan, &response, &out);
        assert_false(out.failed);
        assert_true((uint8_t *)mha.output.data > out.data &&
                    (uint8_t *)mha.output.data < out.data + out.len);
        assert_int_equal(out.len, want.len);
        assert_memory_equal(out.data, want.data, want.len);
        buffer_free(&out);
        free((void *)(uintptr_t)want.data);
        arena_free(&m.arena);
    }
}

enum { FORMATS = sizeof formats / sizeof *formats };

/* Every cap that is less than enough. */
static void a_reply_without_room_fails_and_is_not_cut(void **state)
{
    struct made m;

    (void)state;
    make(&m, PRECISION_F32, true);
    for (size_t i = 0; i < FORMATS; i++) {
        bool whole = false;

        for (size_t cap = 0; !whole; cap++) {
            struct buffer out;

            buffer_init(&out, cap);
            formats[i]->encode(&m.request, &m.plan, &m.response, &out);
            whole = !out.failed;
            assert_int_equal(out.over_cap, !whole);
            assert_true(!whole || (out.len > 100 && out.len <= cap));
            buffer_free(&out);
        }
    }
    arena_free(&m.arena);
}

/* The n-th allocation and all behind it, for every n. */
static void a_reply_without_memory_fails_and_is_not_cut(void **state)
{
    struct made m;

    (void)state;
    if (!COUNTS_ALLOCATIONS)
        skip();
    make(&m, PRECISION_F32, true);
    for (size_t i = 0; i < FORMATS; i++) {
        bool whole = false;

        for (int n = 1; !whole; n++) {
            struct buffer out;

            buffer_init(&out, SIZE_MAX / 4);
            allocations = 0;
            fails_at = n;
            formats[i]->encode(&m.request, &m.plan, &m.response, &out);
            fails_at = 0;
            whole = !out.failed;
            assert_false(out.over_cap);
            assert_true(!whole || n > 1);
            buffer_free(&out);
        }
    }
    arena_free(&m.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_safetensors_request_is_what_json_would_have_been),
        cmocka_unit_test(fields_may_stand_in_the_metadata_as_json),
        cmocka_unit_test(an_npy_request_is_what_json_would_have_been),
        cmocka_unit_test(aligned_floats_are_used_where_they_are),
        cmocka_unit_test(a_safetensors_request_is_refused_where_it_is_wrong),
        cmocka_unit_test(elements_that_may_not_stand_are_told_by_their_place),
        cmocka_unit_test(an_npy_request_is_refused_where_it_is_wrong),
        cmocka_unit_test(fields_of_other_formats_are_not_in_the_url),
        cmocka_unit_test(what_need_says_is_enough),
        cmocka_unit_test(a_full_arena_is_told_as_overload_at_every_size),
        cmocka_unit_test(a_safetensors_reply_has_all_that_json_has),
        cmocka_unit_test(an_npy_reply_is_the_output_alone),
        cmocka_unit_test(a_reply_in_which_results_were_computed_is_the_same),
        cmocka_unit_test(a_reply_without_room_fails_and_is_not_cut),
        cmocka_unit_test(a_reply_without_memory_fails_and_is_not_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
