#include "api/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The fields that name a model, from a body to a request. */

static bool decode(const char *text, struct request *request,
                   struct arena *arena, struct error *err)
{
    struct bytes body = { (const uint8_t *)text, strlen(text) };

    *err = (struct error){ 0 };
    arena_init(arena, 1 << 20);
    return wire_json.decode(body, NULL, NULL, arena, request, err);
}

static void name_layer_and_choice_arrive_in_the_request(void **state)
{
    struct request r;
    struct arena arena;
    struct error err;

    (void)state;
    assert_true(decode("{\"model\": \"tiny-b\\u0065rt\", \"layer\": 2.0, "
                       "\"output_projection\": true, \"query\": [[1]]}",
                       &r, &arena, &err));
    assert_true(r.mha.has_model);
    assert_string_equal(r.model, "tiny-bert");
    assert_int_equal(r.layer, 2);
    assert_true(r.mha.has_output_projection && r.mha.output_projection);
    arena_free(&arena);
    assert_true(decode("{\"query\": [[1]], \"output_projection\": false}", &r,
                       &arena, &err));
    assert_false(r.mha.has_model);
    assert_int_equal(r.layer, 0);
    assert_true(r.mha.has_output_projection && !r.mha.output_projection);
    arena_free(&arena);
}

static void a_name_too_long_is_cut_to_one_that_no_model_has(void **state)
{
    char body[400] = "{\"query\": [[1]], \"model\": \"";
    size_t begin = strlen(body);
    struct request r;
    struct arena arena;
    struct error err;

    (void)state;
    memset(body + begin, 'm', 300);
    memcpy(body + begin + 300, "\"}", 3);
    assert_true(decode(body, &r, &arena, &err));
    assert_int_equal(strlen(r.model), REQUEST_NAME_BYTES - 1);
    assert_true(strlen(r.model) > 64);
    arena_free(&arena);
}

static void what_is_wrong_is_told_at_its_field_and_in_its_turn(void **state)
{
    static const struct {
        const char *body;
        enum error_code code;
        const char *where;
    } rows[] = {
        { "{\"query\": [[1]], \"model\": 1}", ERR_TYPE, "/model" },
        { "{\"query\": [[1]], \"model\": null}", ERR_TYPE, "/model" },
        { "{\"query\": [[1]], \"model\": [\"a\"]}", ERR_TYPE, "/model" },
        { "{\"query\": [[1]], \"layer\": 0}", ERR_MISSING, "/model" },
        { "{\"query\": [[1]], \"model\": \"a\", \"layer\": -1}", ERR_RANGE,
          "/layer" },
        { "{\"query\": [[1]], \"model\": \"a\", \"layer\": \"1\"}", ERR_TYPE,
          "/layer" },
        { "{\"query\": [[1]], \"model\": \"a\", \"layer\": 0.5}", ERR_TYPE,
          "/layer" },
        { "{\"query\": [[1]], \"model\": \"a\", \"output_projection\": 1}",
          ERR_TYPE, "/output_projection" },
        { "{\"query\": [[1]], \"model\": \"a\", \"state_dict\": {}}",
          ERR_CONFLICT, "/state_dict" },
        { "{\"query\": [[1]], \"model\": 1, \"state_dict\": 1}", ERR_CONFLICT,
          "/state_dict" },
        { "{\"model\": \"a\", \"state_dict\": {}}", ERR_MISSING, "/query" },
        { "{\"query\": [[1]], \"modle\": \"a\"}", ERR_UNKNOWN, "/modle" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct request r;
        struct arena arena;
        struct error err;

        assert_false(decode(rows[i].body, &r, &arena, &err));
        if (err.code != rows[i].code || strcmp(err.where, rows[i].where) != 0)
            fail_msg("%s: %s at \"%s\"", rows[i].body, error_name(err.code),
                     err.where);
        arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(name_layer_and_choice_arrive_in_the_request),
        cmocka_unit_test(a_name_too_long_is_cut_to_one_that_no_model_has),
        cmocka_unit_test(what_is_wrong_is_told_at_its_field_and_in_its_turn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
