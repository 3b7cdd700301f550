#ifndef TESTS_FOLDER_H
#define TESTS_FOLDER_H

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A folder of the test's own, and whole files in and out of it. Making and
 * removing are for set-ups: 0 or -1. Files fail the running test. */

/* The last six characters of `path` become others, each time it is called. */
static inline int folder_make(char *path)
{
    memcpy(path + strlen(path) - 6, "XXXXXX", 6);
    return mkdtemp(path) == NULL ? -1 : 0;
}

static inline int folder_remove_one(const char *path, const struct stat *st,
                                    int type, struct FTW *walk)
{
    (void)st;
    (void)type;
    (void)walk;
    return remove(path);
}

/* With all that is in it. */
static inline int folder_remove(const char *path)
{
    return nftw(path, folder_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Beside it first, then by rename, as whoever deploys does. */
static inline void folder_put(const char *path, const void *bytes, size_t len)
{
    char beside[256];
    FILE *out;

    snprintf(beside, sizeof beside, "%s.new", path);
    out = fopen(beside, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, len, out), len);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(rename(beside, path), 0);
}

static inline void folder_put_text(const char *path, const char *text)
{
    folder_put(path, text, strlen(text));
}

struct file {
    char *data; /* free() */
    size_t len; /* at most 1 MiB */
};

static inline struct file folder_get(const char *path)
{
    FILE *in = fopen(path, "rb");
    struct file file = { malloc(1 << 20), 0 };

    assert_non_null(in);
    assert_non_null(file.data);
    file.len = fread(file.data, 1, 1 << 20, in);
    fclose(in);
    return file;
}

#endif
