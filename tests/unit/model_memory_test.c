#include "server/model.h"
#include "server/model_files.h"
#include "tests/unit/allocations.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

/* Reading a model with every allocation failing in turn. */

static struct model *read_model(int folder, struct error *err)
{
    struct model_files files;
    struct model *model = NULL;

    if (model_files_read(&files, folder, MODEL_ENTRY_FOLDER, "tiny-bert", NULL,
                         err))
        model = model_new("tiny-bert", NULL, files.file, files.count, files.config,
                          err);
    model_files_free(&files);
    return model;
}

static void a_model_that_finds_no_memory_says_so_and_leaves_nothing(
    void **state)
{
    int folder = open("tests/vectors/models", O_RDONLY | O_DIRECTORY);
    bool read = false;

    (void)state;
    assert_true(folder >= 0);
    for (int n = 1; !read; n++) {
        struct error err = { 0 };
        struct model *model;

        allocations = 0;
        fails_at = COUNTS_ALLOCATIONS ? n : 0;
        model = read_model(folder, &err);
        fails_at = 0;
        read = model != NULL;
        if (!read && err.code != ERR_OVERLOADED)
            fail_msg("allocation %d: %s", n, err.text);
        model_release(model);
    }
    assert_true(allocations > 10 || !COUNTS_ALLOCATIONS);
    close(folder);
}

static void a_copy_that_finds_no_memory_is_made_later(void **state)
{
    int folder = open("tests/vectors/models", O_RDONLY | O_DIRECTORY);
    struct error err = { 0 };
    struct model *model = read_model(folder, &err);
    bool made = false;

    (void)state;
    close(folder);
    assert_non_null(model);
    for (int n = 1; !made; n++) {
        struct mha_model layer;

        err = (struct error){ 0 };
        allocations = 0;
        fails_at = COUNTS_ALLOCATIONS ? n : 0;
        made = model_find_layer(model, 1, PRECISION_F64, &layer, &err);
        fails_at = 0;
        assert_int_equal(err.code, made ? ERR_NONE : ERR_OVERLOADED);
    }
    model_release(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_model_that_finds_no_memory_says_so_and_leaves_nothing),
        cmocka_unit_test(a_copy_that_finds_no_memory_is_made_later),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
