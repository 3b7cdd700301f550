#include "tests/unit/request_text.h"

#define STATE_DICT "state_dict.in_proj_weight 12 4;"
#define BERT "state_dict.query.weight 6 4;state_dict.key.weight 6 4;"

static const struct {
    const char *request;
    enum error_code code; /* ERR_NONE: it is sound */
    const char *where;
} cases[] = {
    { "query 2 4", ERR_NONE, "" },
    { "query 1 2 4;layout 1", ERR_NONE, "" },
    { "query 2 1 4;layout 2;key 3 1 4", ERR_NONE, "" },
    { "query 1 2 3 4;key 1 1 5 4;value 1 1 5 7", ERR_NONE, "" },
    { "query 2 4;key 3 2;num_heads 4;num_kv_heads 2;value 3 6", ERR_NONE, "" },

    /* query */
    { "num_heads 2", ERR_MISSING, "/query" },
    { "query 3", ERR_SHAPE, "/query" },
    { "hidden_states 3", ERR_SHAPE, "/hidden_states" },
    { "query! 2 4;key! 2 4", ERR_TYPE, "/flawed" },
    { "query? 2 4", ERR_TYPE, "/query" },
    { "query 3;layout 1", ERR_SHAPE, "/query" },
    { "query 2 4;layout 1", ERR_SHAPE, "/layout" },
    { "query 2 4;layout 4", ERR_SHAPE, "/layout" },
    { "query 1 2 4;layout 3", ERR_SHAPE, "/layout" },
    { "query 1 2 4;layout 4", ERR_SHAPE, "/layout" },
    { "query 1 1 2 4;layout 2", ERR_SHAPE, "/layout" },

    /* key and value: rank, batch, length; before all that follows */
    { "query 2 4;key 1 2 4", ERR_SHAPE, "/key" },
    { "query 1 2 4;key 2 2 4", ERR_SHAPE, "/key" },
    { "query 2 1 4;key 2 2 4;layout 2", ERR_SHAPE, "/key" },
    { "query 1 2 4;key! 1 2 4;num_heads 3", ERR_TYPE, "/flawed" },
    { "query 2 4;key 2 4;value 1 2", ERR_SHAPE, "/value" },
    { "query 2 4;value 3 4", ERR_SHAPE, "/value" },
    { "query 1 2 4;value 2 2 4;state_dict", ERR_SHAPE, "/value" },
    { "query 2 4;key 3 4;value 3 4;num_heads 3", ERR_SHAPE, "/num_heads" },

    /* state_dict */
    { "query 2 4;state_dict;num_heads 3", ERR_MISSING, "/state_dict" },
    { "query 2 4;state_dict.weight 1 1", ERR_UNKNOWN, "/state_dict" },
    { "query 2 4;state_dict.in_proj_weight 1 2;num_heads 3", ERR_SHAPE,
      "/state_dict/in_proj_weight" },
    { "query 2 4;" STATE_DICT "state_dict.bias_k 1 1 4", ERR_MISSING,
      "/state_dict/bias_v" },
    { "query 2 4;" STATE_DICT "state_dict.out_proj.bias 4", ERR_MISSING,
      "/state_dict/out_proj.weight" },
    { "query 1 1 2 4;" STATE_DICT, ERR_CONFLICT, "/state_dict" },
    { "query 1 1 2 4;layout 4;" STATE_DICT, ERR_CONFLICT, "/state_dict" },
    { "query 2 4;" STATE_DICT "num_heads 2", ERR_NONE, "" },

    /* head counts */
    { "query 2 4;num_heads 3", ERR_SHAPE, "/num_heads" },
    { "query 2 4;num_heads 9223372036854774784", ERR_SHAPE, "/num_heads" },
    { "query 2 4;num_heads 4;num_kv_heads 3", ERR_SHAPE, "/num_kv_heads" },
    { "query 2 4;num_heads 2;num_kv_heads 4", ERR_SHAPE, "/num_kv_heads" },
    { "query 2 4;num_heads 2;num_kv_heads 1", ERR_SHAPE, "/num_kv_heads" },
    { "query 2 4;num_heads 2;num_kv_heads 1;" STATE_DICT, ERR_SHAPE,
      "/num_kv_heads" },
    { "query 2 4;num_heads 3;" STATE_DICT, ERR_SHAPE, "/num_heads" },
    { "query 2 4;num_heads 4;" BERT, ERR_SHAPE, "/num_heads" },
    { "query 2 4;num_heads 3;" BERT, ERR_NONE, "" },
    { "query 1 2 3 4;num_heads 3", ERR_SHAPE, "/num_heads" },
    { "query 1 2 3 4;num_heads 2;num_kv_heads 2", ERR_NONE, "" },
    { "query 1 2 3 4;num_kv_heads 1", ERR_SHAPE, "/num_kv_heads" },
    { "query 1 4 3 4;key 1 3 3 4", ERR_SHAPE, "/key" },
    { "query 1 4 3 4;key 1 3 3 4;num_kv_heads 3", ERR_SHAPE,
      "/num_kv_heads" },

    /* widths */
    { "query 2 4;key 1 2", ERR_SHAPE, "/key" },
    { "query 2 4;key 3 4;num_heads 4;num_kv_heads 2", ERR_SHAPE, "/key" },
    { "query 2 4;value 2 3;num_heads 2", ERR_SHAPE, "/value" },
    { "query 2 4;key 3 3;" STATE_DICT, ERR_SHAPE, "/key" },
    { "query 2 4;value 2 3;" STATE_DICT, ERR_SHAPE, "/value" },
    { "query 2 4;value 2 3;" BERT, ERR_SHAPE, "/value" },
    { "query 2 4;key 3 3;" BERT, ERR_SHAPE, "/state_dict/key.weight" },
    { "query 1 2 3 4;key 1 2 3 5", ERR_SHAPE, "/key" },
    { "query 1 2 3 4;value 1 1 3 4", ERR_SHAPE, "/value" },
    { "query 2 4;num_heads 2;sinks 1", ERR_SHAPE, "/sinks" },
    { "query 2 4;num_heads 2;sinks 2;alibi_slopes 2 1", ERR_SHAPE,
      "/alibi_slopes" },
    { "query 2 4;num_heads 2;sinks! 2", ERR_TYPE, "/flawed" },
    { "query 2 4;weights_top_k 3", ERR_RANGE, "/weights_top_k" },
    { "query 2 4;weights_top_k 3;need_weights 0", ERR_RANGE,
      "/weights_top_k" },
    { "query 2 4;weights_top_k 3;add_zero_attn 1", ERR_NONE, "" },
    { "query 2 4;weights_top_k 3;key_padding_mask? 1", ERR_RANGE,
      "/weights_top_k" },

    /* masks of keys */
    { "query 1 2 4;key_padding_mask? 1 1", ERR_SHAPE, "/key_padding_mask" },
    { "query 2 2 4;key_padding_mask? 1 2", ERR_SHAPE, "/key_padding_mask" },
    { "query 2 4;key_padding_mask? 1 2", ERR_SHAPE, "/key_padding_mask" },
    { "query 1 2 4;key_padding_mask? 2", ERR_SHAPE, "/key_padding_mask" },
    { "query 1 2 4;key_padding_mask 1 2", ERR_RANGE, "/key_padding_mask" },
    { "query 1 2 4;key_padding_mask% 1 2;attention_mask? 1 2", ERR_NONE, "" },
    { "query 1 2 4;attention_mask? 1 3", ERR_SHAPE, "/attention_mask" },
    { "query 1 2 4;attention_mask 1 2", ERR_RANGE, "/attention_mask" },
    { "query 1 2 4;attention_mask! 1 2;attn_mask? 9", ERR_TYPE, "/flawed" },
    { "query 2 4;key_padding_mask? 2;attention_mask% 2;add_zero_attn 1",
      ERR_NONE, "" },
    { "query 2 4;mask_filter_value 1e39;attention_mask% 2", ERR_RANGE,
      "/mask_filter_value" },
    { "query 2 4;mask_filter_value -1e39;attention_mask% 2", ERR_NONE, "" },

    /* attn_mask: N 2, H 3, L 4, S 5 */
#define ROWS "query 2 4 6;key 2 5 6;num_heads 3;attn_mask"
    { ROWS "? 4 5", ERR_NONE, "" },
    { ROWS "- 4 5", ERR_NONE, "" },
    { ROWS "? 5 4", ERR_SHAPE, "/attn_mask" },
    { ROWS "? 1 5", ERR_SHAPE, "/attn_mask" },
    { ROWS "? 4 6;add_zero_attn 1", ERR_SHAPE, "/attn_mask" },
    { ROWS "? 20", ERR_SHAPE, "/attn_mask" },
    { ROWS "? 6 4 5", ERR_NONE, "" },
    { ROWS "? 2 4 5", ERR_NONE, "" },
    { ROWS "? 3 4 5", ERR_SHAPE, "/attn_mask" },
    { ROWS "? 1 4 5", ERR_SHAPE, "/attn_mask" },
    { ROWS "? 3 4 5;conventions 1", ERR_NONE, "" },
    { ROWS "? 3 4 5;conventions 2", ERR_NONE, "" },
    { ROWS "? 3 4 5;conventions 3", ERR_NONE, "" },
    { ROWS "? 3 4 5;conventions 4", ERR_SHAPE, "/attn_mask" },
    { ROWS "? 3 4 5;conventions 5", ERR_NONE, "" },
    { ROWS "? 2 4 5;conventions 4", ERR_NONE, "" },
    { ROWS "? 2 4 5;conventions 2", ERR_SHAPE, "/attn_mask" },
    { ROWS "? 6 4 5;conventions 5", ERR_SHAPE, "/attn_mask" },
    { ROWS "? 1 1 1 1", ERR_NONE, "" },
    { ROWS "? 2 3 4 5", ERR_NONE, "" },
    { ROWS "- 2 1 1 5", ERR_NONE, "" },
    { ROWS "? 1 2 4 5", ERR_SHAPE, "/attn_mask" },
    { ROWS "? 3 3 4 5", ERR_SHAPE, "/attn_mask" },
    { ROWS "? 1 1 4 4", ERR_SHAPE, "/attn_mask" },
    { ROWS "! 1 1 4 4", ERR_TYPE, "/flawed" },
    { "query 2 4;attn_mask 1 3", ERR_SHAPE, "/attn_mask" },
    { "query 2 4;attn_mask 1 2 2", ERR_NONE, "" },
    { "query 2 4;attn_mask 1 3;key_padding_mask? 3", ERR_SHAPE,
      "/key_padding_mask" },

    /* compare_to */
    { "query 2 4;compare_output 1 1", ERR_SHAPE, "/compare_to/output" },
    { "query 2 4;compare_output 2 4;compare_weights 2 2", ERR_NONE, "" },
    { "query 2 4;compare_weights 2 3", ERR_SHAPE, "/compare_to/weights" },
    { "query 2 4;compare_weights 2 3;add_zero_attn 1", ERR_NONE, "" },
    { "query 2 4;compare_weights 2 2;num_heads 2;average_attn_weights 0",
      ERR_SHAPE, "/compare_to/weights" },
    { "query 1 2 4;compare_weights 1 2 2;weights_top_k 1", ERR_NONE, "" },
    { "query 1 2 4;compare_weights 2 2", ERR_SHAPE, "/compare_to/weights" },
    { "query 2 4;compare_output! 1;compare_weights 9", ERR_TYPE, "/flawed" },
    { "query 2 4;value 2 6;compare_output 2 4", ERR_SHAPE,
      "/compare_to/output" },
    { "query 2 4;" STATE_DICT "state_dict.out_proj.weight 7 4;"
      "compare_output 2 7", ERR_NONE, "" },
};

static void every_request_is_taken_or_refused_at_the_right_field(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mha_plan plan;
        struct error err = { 0 };
        bool sound = mha_check(request_read(*state, cases[i].request), &plan,
                               &err);

        if (sound != (cases[i].code == ERR_NONE) ||
            err.code != cases[i].code || strcmp(err.where, cases[i].where))
            fail_msg("%s: %s at \"%s\" (%s)", cases[i].request,
                     error_name(err.code), err.where, err.text);
    }
}

static void a_refusal_tells_what_came_and_what_fits(void **state)
{
    static const struct { const char *request, *words[3]; } told[] = {
        { "query 1 2 4;key 3 2 4", { "key", "(3, 2, 4)", "(1, *, *)" } },
        { "query 2 4;layout 2", { "layout", "LNE", "(2, 4)" } },
        { "query 2 4;num_heads 3", { "num_heads", "3", "4" } },
        { "query 2 4;attn_mask 1 3", { "attn_mask", "(1, 3)", "L = 2" } },
        { "query 1 2 4;attention_mask 1 2",
          { "attention_mask[0][0]", " is ", "0 and 1" } },
        { "query 2 4;weights_top_k 3", { "weights_top_k", "3", "2" } },
        { "query 2 4;compare_output 1 1",
          { "compare_to/output", "(1, 1)", "(2, 4)" } },
        { "query 2 4;state_dict.in_proj_weight 1 2",
          { "in_proj_weight", "(1, 2)", "(12, 4)" } },
    };

    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        struct mha_plan plan;
        struct error err = { 0 };

        mha_check(request_read(*state, told[i].request), &plan, &err);
        for (int j = 0; j < 3; j++) {
            if (strstr(err.text, told[i].words[j]) == NULL)
                fail_msg("no %s in: %s", told[i].words[j], err.text);
        }
    }
}

/* What fits no int would stop BLAS, and with it the process. No number is read
 * before that is known, so none is there. */
static void an_extent_that_blas_cannot_count_is_too_large(void **state)
{
    static const struct {
        enum layout layout;
        int64_t dim[4];
        bool fits;
    } rows[] = {
        { LAYOUT_NLE, { 1, 1, (int64_t)1 << 31 }, false },
        { LAYOUT_NLE, { 1, (int64_t)1 << 31, 1 }, false },
        { LAYOUT_LNE, { 2, 1 << 16, 1 << 15 }, false },
        { LAYOUT_NLE, { 1 << 16, 2, 1 << 15 }, true },
        { LAYOUT_LNE, { 1 << 16, 2, 1 << 15 }, true },
        { LAYOUT_NHLD, { 1 << 16, 1 << 15, 2, 1 }, true },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int rank = rows[i].layout == LAYOUT_NHLD ? 4 : 3;
        struct mha_request request;
        struct mha_plan plan;
        struct error err = { 0 };

        mha_request_init(&request);
        request.layout = rows[i].layout;
        request.query.value = tensor_packed(&request, DTYPE_F32, rank,
                                            rows[i].dim);
        assert_int_equal(mha_check(&request, &plan, &err), rows[i].fits);
        assert_int_equal(err.code, rows[i].fits ? ERR_NONE : ERR_TOO_LARGE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_is_taken_or_refused_at_the_right_field),
        cmocka_unit_test(a_refusal_tells_what_came_and_what_fits),
        cmocka_unit_test(an_extent_that_blas_cannot_count_is_too_large),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
