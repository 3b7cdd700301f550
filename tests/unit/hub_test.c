#include "api/hub.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void config_json_says_how_many_heads(void **state)
{
    static const struct {
        const char *json;
        int64_t heads;
        enum error_code code;
    } rows[] = {
        { "{\"num_attention_heads\": 12, \"n_layer\": 2}", 12, ERR_NONE },
        { "{\"n_head\": 3}", 3, ERR_NONE },
        { "{\"n_heads\": 6, \"dim\": 768}", 6, ERR_NONE },
        { "{\"n_head\": 4, \"num_attention_heads\": 4}", 4, ERR_NONE },
        { "{\"n_head\": null}", 0, ERR_NONE },
        { "{}", 0, ERR_NONE },
        { "{\"n_head\": 4, \"num_attention_heads\": 2}", 0, ERR_CONFLICT },
        { "{\"n_head\": 0}", 0, ERR_RANGE },
        { "{\"n_head\": -2}", 0, ERR_RANGE },
        { "{\"n_head\": 9007199254740993}", 0, ERR_RANGE },
        { "{\"n_head\": \"4\"}", 0, ERR_TYPE },
        { "{\"n_head\": 4.5}", 0, ERR_TYPE },
        { "{\"n_head\": [4]}", 0, ERR_TYPE },
        { "{\"n_head\": 4", 0, ERR_JSON },
        { "{\"n_head\": 4, \"n_head\": 4}", 0, ERR_JSON },
        { "[4]", 0, ERR_JSON },
        { "", 0, ERR_JSON },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bytes json = { (const uint8_t *)rows[i].json,
                              strlen(rows[i].json) };
        struct error err = { 0 };
        struct arena arena;
        int64_t heads = -1;
        bool good;

        arena_init(&arena, 1 << 20);
        good = hub_config_heads(json, &arena, &heads, &err);
        arena_free(&arena);

        if (err.code != rows[i].code || good != (err.code == ERR_NONE))
            fail_msg("%s: %s %s", rows[i].json, error_name(err.code), err.text);
        if (good)
            assert_int_equal(heads, rows[i].heads);
    }
}

static void metadata_says_how_many_heads(void **state)
{
    static const struct {
        const char *text;
        int64_t heads;
        enum error_code code;
    } rows[] = {
        { "3", 3, ERR_NONE },    { "1048576", 1048576, ERR_NONE },
        { "0", 0, ERR_RANGE },   { "1048577", 0, ERR_RANGE },
        { "", 0, ERR_TYPE },     { "03", 0, ERR_TYPE },
        { "-3", 0, ERR_TYPE },   { "3.0", 0, ERR_TYPE },
        { " 3", 0, ERR_TYPE },   { "12345678901234567890", 0, ERR_TYPE },
        { "many", 0, ERR_TYPE },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct safetensors_pair pair = { "num_heads", rows[i].text };
        struct safetensors file = { .metadata = &pair, .metadata_count = 1 };
        struct error err = { 0 };
        int64_t heads = -1;
        bool good = hub_metadata_heads(&file, &heads, &err);

        assert_int_equal(err.code, rows[i].code);
        assert_int_equal(good, err.code == ERR_NONE);
        if (good)
            assert_int_equal(heads, rows[i].heads);
    }

    struct safetensors none = { 0 };
    struct error err = { 0 };
    int64_t heads = -1;

    assert_true(hub_metadata_heads(&none, &heads, &err));
    assert_int_equal(heads, 0);
}

static void an_index_names_each_file_once(void **state)
{
    static const struct {
        const char *json;
        const char *names; /* with a space behind each, or NULL */
        enum error_code code;
    } rows[] = {
        { "{\"metadata\": {}, \"weight_map\": {\"a\": \"m-2.safetensors\","
          "\"b\": \"m-1.safetensors\", \"c\": \"m-2.safetensors\"}}",
          "m-1.safetensors m-2.safetensors ", ERR_NONE },
        { "{\"weight_map\": {\"a\": \"m\", \"b\": \"m\"}}", "m ", ERR_NONE },
        { "{\"weight_map\": {\"a\": \"../m\"}}", NULL, ERR_RANGE },
        { "{\"weight_map\": {\"a\": \"x/m\"}}", NULL, ERR_RANGE },
        { "{\"weight_map\": {\"a\": \"\"}}", NULL, ERR_RANGE },
        { "{\"weight_map\": {\"a\": \".m\"}}", NULL, ERR_RANGE },
        { "{\"weight_map\": {\"a\": 1}}", NULL, ERR_JSON },
        { "{\"weight_map\": {}}", NULL, ERR_JSON },
        { "{\"weight_map\": [\"m\"]}", NULL, ERR_JSON },
        { "{\"weight_map\": {\"a\": \"m\"}, \"b\": tru}", NULL, ERR_JSON },
        { "{\"weight_map\": {\"a\": \"m\"}, \"b\": tru", NULL, ERR_JSON },
        { "{}", NULL, ERR_JSON },
        { "[]", NULL, ERR_JSON },
        { "{", NULL, ERR_JSON },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bytes json = { (const uint8_t *)rows[i].json,
                              strlen(rows[i].json) };
        struct error err = { 0 };
        struct arena arena;
        const char **names;
        char all[100] = "";
        size_t count;

        arena_init(&arena, 1 << 20);
        assert_int_equal(
            hub_index_files(json, &arena, &names, &count, &err),
            rows[i].names != NULL);
        assert_int_equal(err.code, rows[i].code);
        for (size_t j = 0; rows[i].names != NULL && j < count; j++) {
            size_t at = strlen(all);

            snprintf(all + at, sizeof all - at, "%s ", names[j]);
        }
        if (rows[i].names != NULL)
            assert_string_equal(all, rows[i].names);
        arena_free(&arena);
    }
}

/* In every room between none and enough. */
static void an_index_of_forty_files_is_read_or_says_that_there_is_no_memory(
    void **state)
{
    enum { FILES = 40 };
    char json[FILES * 40];
    size_t len = (size_t)snprintf(json, sizeof json, "{\"weight_map\": {"), cap;
    bool read = false;

    (void)state;
    for (int i = FILES - 1; i >= 0; i--)
        len += (size_t)snprintf(json + len, sizeof json - len,
                                "\"%d\": \"m-%02d\"%s", i, i,
                                i == 0 ? "}}" : ", ");
    for (cap = 0; !read; cap += 64) {
        struct error err = { 0 };
        struct arena arena;
        const char **names;
        size_t count;

        arena_init(&arena, cap);
        read = hub_index_files((struct bytes){ (uint8_t *)json, len }, &arena,
                               &names, &count, &err);
        assert_int_equal(err.code, read ? ERR_NONE : ERR_OVERLOADED);
        assert_true(!read || count == FILES);
        for (int i = 0; read && i < FILES; i++) {
            char name[8];

            snprintf(name, sizeof name, "m-%02d", i);
            assert_string_equal(names[i], name);
        }
        arena_free(&arena);
    }
    assert_true(cap > 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_json_says_how_many_heads),
        cmocka_unit_test(metadata_says_how_many_heads),
        cmocka_unit_test(an_index_names_each_file_once),
        cmocka_unit_test(
            an_index_of_forty_files_is_read_or_says_that_there_is_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
