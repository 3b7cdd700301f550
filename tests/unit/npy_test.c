#include "api/npy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A file in a block of exactly its size, so that a sanitizer sees one byte
 * more, and what reading it gave. */
struct reading {
    uint8_t *block;
    size_t len;
    struct npy out;
    struct error err;
};

static bool decode(struct reading *r, int version, const char *header,
                   size_t data_bytes)
{
    size_t text = strlen(header), length_bytes = version == 1 ? 2 : 4;
    size_t start = 8 + length_bytes;
    bool good;

    *r = (struct reading){ .len = start + text + data_bytes };
    r->block = malloc(r->len);
    assert_non_null(r->block);
    memcpy(r->block, "\x93NUMPY", 6);
    r->block[6] = (uint8_t)version;
    r->block[7] = 0;
    for (size_t i = 0; i < length_bytes; i++)
        r->block[8 + i] = (uint8_t)(text >> 8 * i);
    memcpy(r->block + start, header, text);
    memset(r->block + start + text, 7, data_bytes);
    good = npy_decode((struct bytes){ r->block, r->len }, &r->out, &r->err);
    assert_int_equal(good, r->err.code == ERR_NONE);
    if (good)
        assert_ptr_equal(r->out.data, r->block + start + text);
    return good;
}

static void what_numpy_writes_is_read(void **state)
{
    static const struct {
        const char *header;
        size_t data_bytes;
        enum dtype dtype;
        bool big, fortran;
        uint64_t rank;
        int64_t first;
    } rows[] = {
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n",
          24, DTYPE_F32, false, false, 2, 2 },
        { "{'descr': '>f8', 'fortran_order': True, 'shape': (3,), }\n", 24,
          DTYPE_F64, true, true, 1, 3 },
        { "{\"shape\":(1,2,3,4),\"descr\":\"<f2\",\"fortran_order\":False}\n",
          48, DTYPE_F16, false, false, 4, 1 },
        { "\t{ 'descr' : '|b1' ,'fortran_order':False,'shape' : ( 5 , ) }\n",
          5, DTYPE_BOOL, false, false, 1, 5 },
        { "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2,)}\n", 4,
          DTYPE_U8, false, false, 2, 2 },
        { "{'descr': '>i1', 'fortran_order': False, 'shape': (1,)}\n", 1,
          DTYPE_I8, true, false, 1, 1 },
        { "{'descr': '<i2', 'fortran_order': False, 'shape': (1,)}\n", 2,
          DTYPE_I16, false, false, 1, 1 },
        { "{'descr': '>i4', 'fortran_order': False, 'shape': (1,)}\n", 4,
          DTYPE_I32, true, false, 1, 1 },
        { "{'descr': '<i8', 'fortran_order': False, 'shape': (1,)}\n", 8,
          DTYPE_I64, false, false, 1, 1 },

        /* Sound, though nothing here has a use for it. */
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (), }\n", 4,
          DTYPE_F32, false, false, 0, 0 },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 3)}\n", 0,
          DTYPE_F32, false, false, 2, 0 },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': "
          "(9223372036854775807, 9223372036854775807, 0)}\n", 0,
          DTYPE_F32, false, false, 3, INT64_MAX },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1)}\n",
          4, DTYPE_F32, false, false, 5, 1 },
        { "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}\n", 99,
          DTYPE_COUNT, false, false, 1, 2 },
        { "{'descr': '<U7', 'fortran_order': False, 'shape': (2,)}\n", 56,
          DTYPE_COUNT, false, false, 1, 2 },
        { "{'descr': '<c8', 'fortran_order': False, 'shape': (2,)}\n", 16,
          DTYPE_COUNT, false, false, 1, 2 },
        { "{'descr': '<u4', 'fortran_order': False, 'shape': (2,)}\n", 8,
          DTYPE_COUNT, false, false, 1, 2 },
        { "{'descr': '|f4', 'fortran_order': False, 'shape': (2,)}\n", 8,
          DTYPE_COUNT, false, false, 1, 2 },
        { "{'descr': '=f4', 'fortran_order': False, 'shape': (2,)}\n", 8,
          DTYPE_COUNT, false, false, 1, 2 },
        { "{'descr': 'f4', 'fortran_order': False, 'shape': (2,)}\n", 8,
          DTYPE_COUNT, false, false, 1, 2 },
        { "{'descr': '', 'fortran_order': False, 'shape': (2,)}\n", 8,
          DTYPE_COUNT, false, false, 1, 2 },
        { "{'descr': [('a', '<f4'), ('b]', '<i4', (2,))], "
          "'fortran_order': False, 'shape': (2,)}\n", 24,
          DTYPE_COUNT, false, false, 1, 2 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int version = 1; version <= 3; version++) {
            struct reading r;

            if (!decode(&r, version, rows[i].header, rows[i].data_bytes))
                fail_msg("%s: %s", rows[i].header, r.err.text);
            assert_int_equal(r.out.dtype, rows[i].dtype);
            if (rows[i].dtype != DTYPE_COUNT)
                assert_int_equal(r.out.big_endian, rows[i].big);
            assert_int_equal(r.out.fortran_order, rows[i].fortran);
            assert_int_equal(r.out.rank, rows[i].rank);
            assert_int_equal(r.out.dim[0], rows[i].first);
            free(r.block);
        }
    }
}

#define SHAPED(shape) "{'descr': '<f4', 'fortran_order': False, 'shape': " shape "}\n"

static void what_breaks_the_formats_rules_is_refused(void **state)
{
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *text; /* a part of the sentence */
    } rows[] = {
        { "", 0, "byte 0: '{'" },
        { "{", 0, "a string in quotes" },
        { "{}\n", 0, "descr is missing" },
        { "{'descr': '<f4', 'shape': (1,)}\n", 4, "fortran_order is missing" },
        { "{'descr': '<f4', 'fortran_order': False}\n", 4, "shape is missing" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4,
          "newline" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x\n", 4,
          "newline" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}\n\n", 4,
          "follows the newline" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}\n",
          4, "'x' is none of" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), "
          "'descr': '<f4'}\n", 4, "'descr' comes twice" },
        { "{'descr' '<f4', 'fortran_order': False, 'shape': (1,)}\n", 4,
          "':'" },
        { "{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}\n", 4,
          "',' or '}'" },
        { "{,'descr': '<f4', 'fortran_order': False, 'shape': (1,)}\n", 4,
          "a string in quotes" },
        { "{'descr': '<f4', 'fortran_order': false, 'shape': (1,)}\n", 4,
          "True or False" },
        { "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}\n", 4,
          "True or False" },
        { "{'descr': <f4, 'fortran_order': False, 'shape': (1,)}\n", 4,
          "a string in quotes" },
        { "{'descr': u'<f4', 'fortran_order': False, 'shape': (1,)}\n", 4,
          "a string in quotes" },
        { "{'descr': '<f4\", 'fortran_order': False, 'shape': (1,)}\n", 4,
          "byte" },
        { "{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (1,)}\n", 4,
          "no type's name" },
        { "{'descr': '<f4", 4, "no end" },
        { "{'descr': [('a', '<f4'), 'fortran_order': False, 'shape': (1,)}\n",
          4, "no end" },
        { "{'descr': [('a'], 'fortran_order': False, 'shape': (1,)}\n", 4,
          "do not match" },
        { "{'descr': [('a, 'fortran_order': False, 'shape': (1,)}\n", 4,
          "no end" },
        { "{'descr': [[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]], 'shape': (1,)}\n", 4,
          "nested deeper" },
        { "\"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}\"\n", 4,
          "'{'" },
        { SHAPED("(1)"), 4, "no tuple" },
        { SHAPED("1"), 4, "'('" },
        { SHAPED("[1]"), 4, "'('" },
        { SHAPED("(,)"), 4, "in digits" },
        { SHAPED("(1,,)"), 4, "in digits" },
        { SHAPED("(1 1)"), 4, "',' or ')'" },
        { SHAPED("(-1,)"), 4, "in digits" },
        { SHAPED("(+1,)"), 4, "in digits" },
        { SHAPED("(1.0,)"), 4, "',' or ')'" },
        { SHAPED("(1L,)"), 4, "',' or ')'" },
        { SHAPED("(01,)"), 4, "begin with 0" },
        { SHAPED("(1_0,)"), 40, "',' or ')'" },
        { SHAPED("(0x1,)"), 4, "',' or ')'" },
        { SHAPED("(True,)"), 4, "in digits" },
        { SHAPED("(1:,)"), 4, "',' or ')'" },
        { SHAPED("(9223372036854775808,)"), 4, "is over" },
        { SHAPED("(1,"), 4, "in digits" },

        /* The data is as long as dtype and shape say. */
        { SHAPED("(2, 3)"), 23, "23 bytes follow" },
        { SHAPED("(2, 3)"), 25, "25 bytes follow" },
        { SHAPED("(2, 3)"), 0, "0 bytes follow" },
        { SHAPED("()"), 0, "0 bytes follow" },
        { SHAPED("(0,)"), 1, "1 bytes follow" },
        { SHAPED("(4611686018427387905, 1)"), 4, "4 bytes follow" },
        { SHAPED("(4294967296, 4294967296)"), 0, "0 bytes follow" },
        { SHAPED("(9223372036854775807, 9223372036854775807)"), 4,
          "4 bytes follow" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int version = 1; version <= 3; version++) {
            struct reading r;

            if (decode(&r, version, rows[i].header, rows[i].data_bytes) ||
                strstr(r.err.text, rows[i].text) == NULL)
                fail_msg("%s: %s", rows[i].header, r.err.text);
            assert_int_equal(r.err.code, ERR_REQUEST);
            assert_string_equal(r.err.where, "");
            free(r.block);
        }
    }
}

static void check_refused(const uint8_t *bytes, size_t len, const char *text)
{
    uint8_t *block = malloc(len);
    struct error err = { ERR_NONE };
    struct npy out;

    assert_true(block != NULL || len == 0);
    if (len > 0)
        memcpy(block, bytes, len);
    assert_false(npy_decode((struct bytes){ block, len }, &out, &err));
    assert_int_equal(err.code, ERR_REQUEST);
    if (strstr(err.text, text) == NULL)
        fail_msg("%s", err.text);
    free(block);
}

static void a_file_may_end_anywhere(void **state)
{
    struct reading r;

    (void)state;
    for (int version = 1; version <= 3; version++) {
        assert_true(decode(&r, version, SHAPED("(2, 3)"), 24));
        for (size_t len = 0; len < r.len; len++)
            check_refused(r.block, len, len < 8 ? "does not begin" : "bytes");
        free(r.block);
    }
}

/* The header alone, whose length says where it ends. */
static void a_header_that_ends_anywhere_is_refused(void **state)
{
    static const char *const whole[] = {
        SHAPED("(2, 30)"), SHAPED("( 12 , )"),
        "{'descr': [('a', '<f4')], 'fortran_order': True, 'shape': ()}\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        for (size_t len = 0; len < strlen(whole[i]); len++) {
            char header[100];
            struct reading r;

            snprintf(header, sizeof header, "%.*s", (int)len, whole[i]);
            if (decode(&r, 1, header, 0))
                fail_msg("%s", header);
            assert_int_equal(r.err.code, ERR_REQUEST);
            free(r.block);
        }
}

static void only_three_versions_are_known(void **state)
{
    static const uint8_t versions[][2] = { { 0, 0 }, { 1, 1 }, { 4, 0 },
                                           { 2, 255 } };
    struct reading r;

    (void)state;
    assert_true(decode(&r, 1, SHAPED("(2, 3)"), 24));
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        memcpy(r.block + 6, versions[i], 2);
        check_refused(r.block, r.len, "version");
    }
    r.block[0] = 'x';
    check_refused(r.block, r.len, "does not begin");
    free(r.block);
}

static void a_header_that_is_written_is_read(void **state)
{
    static const int64_t dims[][TENSOR_MAX_RANK] = {
        { 3 }, { 2, 3 }, { 1, 2, 3 }, { 1, 2, 3, 4 },
        { 1000000, 1000000, 1, 1 },
    };

    (void)state;
    for (int wide = 0; wide < 2; wide++)
        for (size_t i = 0; i < 4; i++) {
            char header[NPY_HEADER_BYTES];
            struct tensor t = tensor_packed(NULL, wide ? DTYPE_F64 : DTYPE_F32,
                                            (int)i + 1, dims[i]);
            size_t len = npy_write_header(&t, header);
            size_t bytes = (size_t)tensor_count(&t) * dtype_size(t.dtype);
            uint8_t *file = calloc(1, len + bytes);
            struct error err = { ERR_NONE };
            struct npy out;

            assert_true(len <= NPY_HEADER_BYTES && len % 64 == 0);
            memcpy(file, header, len);
            if (!npy_decode((struct bytes){ file, len + bytes }, &out, &err))
                fail_msg("%s", err.text);
            assert_int_equal(out.dtype, t.dtype);
            assert_int_equal(out.rank, t.rank);
            assert_memory_equal(out.dim, t.dim, sizeof t.dim);
            assert_false(out.big_endian || out.fortran_order);
            free(file);
        }
}

static void the_largest_header_fits(void **state)
{
    const int64_t most = INT64_MAX;
    struct tensor t = { .dtype = DTYPE_F32, .rank = 4,
                        .dim = { most, most, most, most } };
    char header[NPY_HEADER_BYTES];

    (void)state;
    assert_int_equal(npy_write_header(&t, header) % 64, 0);
    assert_non_null(memmem(header, sizeof header, "5807), }", 8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_numpy_writes_is_read),
        cmocka_unit_test(what_breaks_the_formats_rules_is_refused),
        cmocka_unit_test(a_file_may_end_anywhere),
        cmocka_unit_test(a_header_that_ends_anywhere_is_refused),
        cmocka_unit_test(only_three_versions_are_known),
        cmocka_unit_test(a_header_that_is_written_is_read),
        cmocka_unit_test(the_largest_header_fits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
