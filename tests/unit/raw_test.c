#include "api/raw.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Numbers that every dtype of its width may hold in some way, as bytes in C
 * order and little-endian; NaN and infinity among none. */
enum { MOST = 5000 };

struct source {
    enum dtype dtype;
    int rank;
    int64_t dim[TENSOR_MAX_RANK], count;
    uint8_t bytes[MOST * 8];
};

static void fill(struct source *s, enum dtype dtype, int rank,
                 const int64_t *dim)
{
    *s = (struct source){ .dtype = dtype, .rank = rank };
    memcpy(s->dim, dim, (size_t)rank * sizeof *dim);
    assert_true(tensor_count_dims(dim, rank, &s->count) && s->count <= MOST);
    for (int64_t i = 0; i < s->count; i++) {
        float narrow = (float)(i - 100) / 4;
        double wide = (double)(i - 100) / 3;
        int64_t integer = (i - 100) * 0x0102030405;
        uint16_t half = (uint16_t)(i * 7 % 0x7C00), small = (uint16_t)i;
        uint8_t flag = i % 3 == 0;
        const void *from = dtype == DTYPE_F64   ? (void *)&wide
                           : dtype == DTYPE_F32 ? (void *)&narrow
                           : dtype == DTYPE_F16 ? (void *)&half
                           : dtype == DTYPE_BF16 || dtype == DTYPE_I16 ? &small
                           : dtype == DTYPE_BOOL ? (void *)&flag
                                                 : (void *)&integer;
        size_t size = dtype_size(dtype);

        memcpy(s->bytes + (size_t)i * size, from, size);
    }
}

/* The same elements in another order of bytes, of axes, or both. */
static void reorder(const struct source *s, bool big, bool fortran,
                    uint8_t *out)
{
    size_t size = dtype_size(s->dtype);

    for (int64_t i = 0; i < s->count; i++) {
        int64_t rest = i, index[TENSOR_MAX_RANK], place = 0;

        for (int axis = s->rank - 1; axis >= 0; axis--) {
            index[axis] = rest % s->dim[axis];
            rest /= s->dim[axis];
        }
        for (int axis = s->rank - 1; axis >= 0; axis--)
            place = place * s->dim[axis] + index[axis];
        if (!fortran)
            place = i;
        for (size_t b = 0; b < size; b++)
            out[(size_t)place * size + b] =
                s->bytes[(size_t)i * size + (big ? size - 1 - b : b)];
    }
}

static struct raw raw_of(const struct source *s, const uint8_t *data,
                         enum field_kind kind, enum dtype wide)
{
    struct raw raw = { .data = data, .dtype = s->dtype, .rank = s->rank,
                       .kind = kind, .wide = wide, .where = "/attn_mask" };

    memcpy(raw.dim, s->dim, sizeof raw.dim);
    return raw;
}

static void check(const struct source *s, const struct tensor *t,
                  enum dtype wide)
{
    _Alignas(double) uint8_t want[MOST * 8];
    enum dtype target = s->dtype == DTYPE_BOOL ? DTYPE_BOOL : wide;

    if (target == DTYPE_BOOL)
        memcpy(want, s->bytes, (size_t)s->count);
    else
        tensor_convert(s->bytes, s->dtype, s->count, target, want);
    assert_int_equal(t->dtype, target);
    assert_int_equal(t->rank, s->rank);
    assert_memory_equal(t->dim, s->dim, sizeof t->dim);
    assert_true(tensor_is_packed(t));
    assert_memory_equal(t->data, want, (size_t)s->count * dtype_size(target));
}

static const int64_t shapes[][TENSOR_MAX_RANK] = {
    { 1, 0 },       { 7, 0 },       { 2500, 0 },      { 1, 9, 0 },
    { 9, 1, 0 },    { 33, 65, 0 },  { 3, 5, 7, 0 },   { 1, 5, 1, 0 },
    { 2, 3, 4, 5 }, { 1, 1, 1, 1 }, { 13, 1, 11, 17 },
};

static int rank_of(const int64_t *dim)
{
    int rank = 0;

    while (rank < TENSOR_MAX_RANK && dim[rank] != 0)
        rank++;
    return rank;
}

static void read_each_way(const struct source *s, enum dtype wide)
{
    static _Alignas(64) uint8_t block[MOST * 8 + 1];

    for (int way = 0; way < 8; way++) {
        bool big = way & 1, fortran = way & 2;
        uint8_t *data = block + (way >> 2); /* aligned, or not */
        struct raw raw = raw_of(s, data, FIELD_BIAS, wide);
        struct named_tensor tensor = { .name = "attn_mask" };
        struct error err = { ERR_NONE };
        struct arena arena;

        raw.big_endian = big;
        raw.fortran_order = fortran;
        arena_init(&arena, 1 << 24);
        reorder(s, big, fortran, data);
        assert_true(raw_read(&raw, &arena, &tensor, &err));
        assert_null(tensor.flaw);
        check(s, &tensor.value, wide);
        arena_free(&arena);
    }
}

static void every_dtype_is_read_in_any_order_and_place(void **state)
{
    struct source s;

    (void)state;
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            fill(&s, (enum dtype)dtype, rank_of(shapes[i]), shapes[i]);
            read_each_way(&s, DTYPE_F32);
            read_each_way(&s, DTYPE_F64);
        }
}

/* In place: the tensor is the body's bytes, and the arena stays empty. */
static void what_is_right_already_is_used_where_it_is(void **state)
{
    static const struct {
        enum dtype dtype, wide;
        size_t offset;
        bool in_place;
    } rows[] = {
        { DTYPE_F32, DTYPE_F32, 0, true },  { DTYPE_F32, DTYPE_F32, 4, true },
        { DTYPE_F32, DTYPE_F32, 2, false }, { DTYPE_F64, DTYPE_F64, 8, true },
        { DTYPE_F64, DTYPE_F64, 4, false }, { DTYPE_BOOL, DTYPE_F32, 1, true },
        { DTYPE_F32, DTYPE_F64, 0, false }, { DTYPE_F64, DTYPE_F32, 0, false },
        { DTYPE_I64, DTYPE_F64, 0, false },
    };
    static _Alignas(64) uint8_t block[MOST * 8 + 8];
    const int64_t dim[] = { 30, 40 };
    struct source s;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct named_tensor tensor = { .name = "attn_mask" };
        struct error err = { ERR_NONE };
        struct arena arena;

        fill(&s, rows[i].dtype, 2, dim);
        memcpy(block + rows[i].offset, s.bytes, sizeof s.bytes);
        arena_init(&arena, 1 << 24);

        struct raw raw = raw_of(&s, block + rows[i].offset, FIELD_BIAS,
                                rows[i].wide);

        assert_true(raw_read(&raw, &arena, &tensor, &err));
        check(&s, &tensor.value, rows[i].wide);
        assert_int_equal(tensor.value.data == block + rows[i].offset,
                         rows[i].in_place);
        assert_int_equal(arena.used_bytes == 0, rows[i].in_place);
        arena_free(&arena);
    }
}

static void put(enum dtype dtype, double value, uint8_t *to)
{
    float narrow = (float)value;
    uint8_t byte = (uint8_t)value;

    memcpy(to,
           dtype == DTYPE_F64   ? (void *)&value
           : dtype == DTYPE_F32 ? (void *)&narrow
                                : (void *)&byte,
           dtype_size(dtype));
}

/* Wherever it stands, in a whole block or behind the last. */
static void one_bad_element_is_found_and_told_by_its_place(void **state)
{
    static const struct {
        enum dtype dtype, wide;
        enum field_kind kind;
        double value;
        enum error_code code;
    } rows[] = {
        { DTYPE_F32, DTYPE_F32, FIELD_TENSOR, INFINITY, ERR_NOT_FINITE },
        { DTYPE_F32, DTYPE_F32, FIELD_TENSOR, -INFINITY, ERR_NOT_FINITE },
        { DTYPE_F32, DTYPE_F32, FIELD_BIAS, INFINITY, ERR_NOT_FINITE },
        { DTYPE_F32, DTYPE_F32, FIELD_BIAS, NAN, ERR_NOT_FINITE },
        { DTYPE_F32, DTYPE_F32, FIELD_BIAS, -INFINITY, ERR_NONE },
        { DTYPE_F32, DTYPE_F32, FIELD_PADDING, -INFINITY, ERR_NOT_FINITE },
        { DTYPE_F32, DTYPE_F32, FIELD_TENSOR, 3e38, ERR_NONE },
        { DTYPE_F64, DTYPE_F64, FIELD_TENSOR, NAN, ERR_NOT_FINITE },
        { DTYPE_F64, DTYPE_F64, FIELD_BIAS, -INFINITY, ERR_NONE },
        { DTYPE_F64, DTYPE_F64, FIELD_TENSOR, 1e300, ERR_NONE },
        { DTYPE_F64, DTYPE_F32, FIELD_TENSOR, 1e300, ERR_NOT_FINITE },
        { DTYPE_F64, DTYPE_F32, FIELD_BIAS, -1e300, ERR_NONE },
        { DTYPE_F32, DTYPE_F64, FIELD_TENSOR, INFINITY, ERR_NOT_FINITE },
        { DTYPE_BOOL, DTYPE_F32, FIELD_BIAS, 2, ERR_RANGE },
        { DTYPE_BOOL, DTYPE_F32, FIELD_PADDING, 255, ERR_RANGE },
        { DTYPE_BOOL, DTYPE_F32, FIELD_PADDING, 1, ERR_NONE },
    };
    static const int64_t dim[] = { 3, 1100 }, places[] = { 0, 1, 1023, 1024,
                                                           2047, 3072, 3299 };
    static struct source s;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t j = 0; j < sizeof places / sizeof *places; j++) {
            struct named_tensor tensor = { .name = "attn_mask" };
            struct error err = { ERR_NONE };
            struct arena arena;
            char place[64];

            fill(&s, rows[i].dtype, 2, dim);
            put(rows[i].dtype, rows[i].value,
                s.bytes + (size_t)places[j] * dtype_size(rows[i].dtype));
            arena_init(&arena, 1 << 24);

            struct raw raw = raw_of(&s, s.bytes, rows[i].kind, rows[i].wide);

            assert_true(raw_read(&raw, &arena, &tensor, &err));
            snprintf(place, sizeof place, "attn_mask[%d][%d] is ",
                     (int)(places[j] / 1100), (int)(places[j] % 1100));
            if (rows[i].code == ERR_NONE) {
                assert_null(tensor.flaw);
            } else {
                assert_int_equal(tensor.flaw->code, rows[i].code);
                assert_string_equal(tensor.flaw->where, "/attn_mask");
                assert_ptr_equal(strstr(tensor.flaw->text, place),
                                 tensor.flaw->text);
                assert_int_equal(tensor.value.rank, 0);
            }
            arena_free(&arena);
        }
}

static void booleans_stand_in_masks_only(void **state)
{
    const int64_t dim[] = { 4 };
    struct named_tensor tensor = { .name = "attn_mask" };
    struct error err = { ERR_NONE };
    struct source s;
    struct arena arena;
    struct raw raw;

    (void)state;
    fill(&s, DTYPE_BOOL, 1, dim);
    raw = raw_of(&s, s.bytes, FIELD_TENSOR, DTYPE_F32);
    arena_init(&arena, 1 << 20);
    assert_true(raw_read(&raw, &arena, &tensor, &err));
    assert_int_equal(tensor.flaw->code, ERR_TYPE);
    arena_free(&arena);
}

static void want_of_memory_is_no_flaw(void **state)
{
    const int64_t dim[] = { 40, 40 };
    struct named_tensor tensor = { .name = "attn_mask" };
    struct error err = { ERR_NONE };
    struct source s;
    struct arena arena;
    struct raw raw;

    (void)state;
    fill(&s, DTYPE_F32, 2, dim);
    raw = raw_of(&s, s.bytes, FIELD_TENSOR, DTYPE_F64);
    arena_init(&arena, 0);
    assert_false(raw_read(&raw, &arena, &tensor, &err));
    assert_int_equal(err.code, ERR_OVERLOADED);
    assert_null(tensor.flaw);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_is_read_in_any_order_and_place),
        cmocka_unit_test(what_is_right_already_is_used_where_it_is),
        cmocka_unit_test(one_bad_element_is_found_and_told_by_its_place),
        cmocka_unit_test(booleans_stand_in_masks_only),
        cmocka_unit_test(want_of_memory_is_no_flaw),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
