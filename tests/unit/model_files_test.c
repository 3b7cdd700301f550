#include "server/model_files.h"
#include "tests/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* A folder of the test's own, open. */
struct folder {
    char path[64];
    int fd;
};

static void write_file(const struct folder *f, const char *name,
                       const char *text)
{
    int fd = openat(f->fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void make_folder(const struct folder *f, const char *name)
{
    assert_int_equal(mkdirat(f->fd, name, 0700), 0);
}

static int set_up(void **state)
{
    struct folder *f = calloc(1, sizeof *f);

    if (f == NULL)
        return -1;
    snprintf(f->path, sizeof f->path, "/tmp/attnd_model_files_XXXXXX");
    if (folder_make(f->path) != 0)
        return -1;
    f->fd = open(f->path, O_RDONLY | O_DIRECTORY);
    *state = f;
    return f->fd < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
    struct folder *f = *state;

    close(f->fd);
    folder_remove(f->path);
    free(f);
    return 0;
}

static bool read_entry(const struct folder *f, const char *entry,
                       struct model_files *files, struct error *err)
{
    enum model_entry kind = model_files_kind(f->fd, entry);

    *err = (struct error){ 0 };
    return model_files_read(files, f->fd, kind, entry, NULL, err);
}

static void expect_files(const struct folder *f, const char *entry,
                         const char *const *contents)
{
    struct model_files files;
    struct error err;
    struct digest digest;
    char sha256[DIGEST_TEXT_BYTES];
    size_t i = 0;

    if (!read_entry(f, entry, &files, &err))
        fail_msg("%s: %s", entry, err.text);
    assert_true(digest_begin(&digest));
    for (; contents[i] != NULL; i++) {
        assert_true(i < files.count);
        assert_int_equal(files.file[i].len, strlen(contents[i]));
        assert_memory_equal(files.file[i].data, contents[i],
                            files.file[i].len);
        digest_add(&digest, contents[i], strlen(contents[i]));
    }
    assert_int_equal(files.count, i);
    digest_end(&digest, sha256);
    assert_string_equal(files.sha256, sha256);
    model_files_free(&files);
}

#define CONTENTS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void entries_are_files_folders_or_none(void **state)
{
    const struct folder *f = *state;

    write_file(f, "a.safetensors", "x");
    write_file(f, ".b.safetensors", "x");
    write_file(f, ".safetensors", "x");
    write_file(f, "README.md", "x");
    make_folder(f, "c");
    make_folder(f, "d.safetensors");
    assert_int_equal(symlinkat("a.safetensors", f->fd, "e.safetensors"), 0);
    assert_int_equal(symlinkat("nowhere", f->fd, "f.safetensors"), 0);
    assert_int_equal(model_files_kind(f->fd, "a.safetensors"),
                     MODEL_ENTRY_FILE);
    assert_int_equal(model_files_kind(f->fd, "e.safetensors"),
                     MODEL_ENTRY_FILE);
    assert_int_equal(model_files_kind(f->fd, "c"), MODEL_ENTRY_FOLDER);
    assert_int_equal(model_files_kind(f->fd, "d.safetensors"),
                     MODEL_ENTRY_FOLDER);
    assert_int_equal(model_files_kind(f->fd, ".b.safetensors"),
                     MODEL_ENTRY_NONE);
    assert_int_equal(model_files_kind(f->fd, ".safetensors"),
                     MODEL_ENTRY_NONE);
    assert_int_equal(model_files_kind(f->fd, "README.md"), MODEL_ENTRY_NONE);
    assert_int_equal(model_files_kind(f->fd, "f.safetensors"),
                     MODEL_ENTRY_NONE);
    assert_int_equal(model_files_kind(f->fd, ".."), MODEL_ENTRY_NONE);
}

static void a_file_is_read_alone_and_a_folder_by_name(void **state)
{
    const struct folder *f = *state;
    struct model_files files;
    struct error err;

    write_file(f, "a.safetensors", "alone");
    expect_files(f, "a.safetensors", CONTENTS("alone"));
    make_folder(f, "m");
    write_file(f, "m/2.safetensors", "second");
    write_file(f, "m/1.safetensors", "first");
    write_file(f, "m/.3.safetensors", "hidden");
    write_file(f, "m/vocab.txt", "other");
    expect_files(f, "m", CONTENTS("first", "second"));
    assert_true(read_entry(f, "m", &files, &err));
    assert_null(files.config.data);
    model_files_free(&files);
    write_file(f, "m/config.json", "{}");
    assert_true(read_entry(f, "m", &files, &err));
    assert_int_equal(files.config.len, 2);
    model_files_free(&files);
}

static void an_index_says_which_files_are_read(void **state)
{
    const struct folder *f = *state;
    struct model_files files;
    struct error err;

    make_folder(f, "m");
    write_file(f, "m/1.safetensors", "first");
    write_file(f, "m/2.safetensors", "second");
    write_file(f, "m/model.safetensors.index.json",
               "{\"weight_map\": {\"a\": \"2.safetensors\"}}");
    expect_files(f, "m", CONTENTS("second"));
    write_file(f, "m/model.safetensors.index.json",
               "{\"weight_map\": {\"a\": \"3.safetensors\"}}");
    assert_false(read_entry(f, "m", &files, &err));
    assert_string_equal(err.text, "3.safetensors: No such file or directory");
    model_files_free(&files);
    write_file(f, "m/model.safetensors.index.json", "{");
    assert_false(read_entry(f, "m", &files, &err));
    assert_int_equal(err.code, ERR_JSON);
    model_files_free(&files);
}

/* As large as `bytes` says, without a block on the disk. */
static void write_hole(const struct folder *f, const char *name, off_t bytes)
{
    write_file(f, name, "");

    int fd = openat(f->fd, name, O_WRONLY);

    assert_int_equal(ftruncate(fd, bytes), 0);
    close(fd);
}

static void a_folder_that_is_unfit_is_refused_by_the_file(void **state)
{
    const struct folder *f = *state;
    struct model_files files;
    struct error err;

    make_folder(f, "m");
    write_file(f, "m/1.safetensors", "x");
    write_hole(f, "m/config.json", (16 << 20) + 1);
    assert_false(read_entry(f, "m", &files, &err));
    assert_string_equal(err.text, "config.json has 16777217 bytes, over the "
                                  "16777216 that one may have");
    model_files_free(&files);
    assert_int_equal(unlinkat(f->fd, "m/config.json", 0), 0);
    assert_int_equal(symlinkat("config.json", f->fd, "m/config.json"), 0);
    assert_false(read_entry(f, "m", &files, &err));
    assert_string_equal(err.text,
                        "config.json: Too many levels of symbolic links");
    model_files_free(&files);
    assert_int_equal(unlinkat(f->fd, "m/config.json", 0), 0);
    make_folder(f, "m/model.safetensors.index.json");
    assert_false(read_entry(f, "m", &files, &err));
    assert_string_equal(err.text,
                        "model.safetensors.index.json is no regular file");
    model_files_free(&files);
    err = (struct error){ 0 };
    assert_false(model_files_look(&files, f->fd, MODEL_ENTRY_FOLDER, "gone",
                                  &err));
    assert_string_equal(err.text, "gone: No such file or directory");
    model_files_free(&files);
}

static void a_folder_without_checkpoint_has_no_files(void **state)
{
    const struct folder *f = *state;
    struct model_files files;
    struct error err = { 0 };

    make_folder(f, "m");
    write_file(f, "m/notes.txt", "x");
    assert_true(model_files_look(&files, f->fd, MODEL_ENTRY_FOLDER, "m", &err));
    assert_int_equal(files.count, 0);
    model_files_free(&files);
}

static void a_pipe_is_refused_without_waiting(void **state)
{
    const struct folder *f = *state;
    struct model_files files;
    struct error err;

    assert_int_equal(mkfifoat(f->fd, "a.safetensors", 0600), 0);
    assert_false(read_entry(f, "a.safetensors", &files, &err));
    assert_string_equal(err.text, "a.safetensors is no regular file");
    model_files_free(&files);
}

static uint64_t stamp(const struct folder *f, const char *entry)
{
    struct model_files files;
    struct error err = { 0 };
    uint64_t stamp;

    if (!model_files_look(&files, f->fd, model_files_kind(f->fd, entry), entry,
                          &err))
        fail_msg("%s", err.text);
    stamp = files.stamp;
    model_files_free(&files);
    return stamp;
}

static void the_stamp_changes_with_any_file_that_is_replaced(void **state)
{
    const struct folder *f = *state;
    uint64_t first, second, third;

    make_folder(f, "m");
    write_file(f, "m/1.safetensors", "same");
    write_file(f, "m/2.safetensors", "same");
    first = stamp(f, "m");
    assert_true(stamp(f, "m") == first);
    write_file(f, "new", "same");
    assert_int_equal(renameat(f->fd, "new", f->fd, "m/2.safetensors"), 0);
    second = stamp(f, "m");
    assert_true(second != first);
    write_file(f, "m/config.json", "{}");
    third = stamp(f, "m");
    assert_true(third != second);
    assert_int_equal(unlinkat(f->fd, "m/1.safetensors", 0), 0);
    assert_true(stamp(f, "m") != third);
}

static void reading_stops_when_the_service_does(void **state)
{
    const struct folder *f = *state;
    atomic_bool stop = true;
    struct model_files files;
    struct error err = { 0 };

    write_file(f, "a.safetensors", "x");
    assert_false(model_files_read(&files, f->fd, MODEL_ENTRY_FILE,
                                  "a.safetensors", &stop, &err));
    assert_int_equal(err.code, ERR_DRAINING);
    model_files_free(&files);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(entries_are_files_folders_or_none),
        TEST(a_file_is_read_alone_and_a_folder_by_name),
        TEST(an_index_says_which_files_are_read),
        TEST(a_folder_that_is_unfit_is_refused_by_the_file),
        TEST(a_folder_without_checkpoint_has_no_files),
        TEST(a_pipe_is_refused_without_waiting),
        TEST(the_stamp_changes_with_any_file_that_is_replaced),
        TEST(reading_stops_when_the_service_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
