#include "core/tensor.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void names_and_dtypes_find_each_other(void **state)
{
    enum dtype dtype;

    (void)state;
    for (int i = 0; i < DTYPE_COUNT; i++) {
        assert_true(dtype_find(dtype_name((enum dtype)i), &dtype));
        assert_int_equal(dtype, i);
    }
    assert_false(dtype_find("F8_E4M3", &dtype));
    assert_false(dtype_find("f32", &dtype));
    assert_int_equal(dtype_size(DTYPE_BF16), 2);
    assert_int_equal(dtype_size(DTYPE_I64), 8);
}

static void a_product_of_dimensions_is_refused_before_it_overflows(void **state)
{
    static const struct {
        int rank;
        int64_t dim[4];
        bool fits;
    } cases[] = {
        { 1, { INT64_MAX / 8 }, true },
        { 1, { INT64_MAX / 8 + 1 }, false },
        { 2, { INT64_C(1) << 32, INT64_C(1) << 32 }, false },
        { 4, { 1 << 15, 1 << 15, 1 << 15, 1 << 14 }, true },
        { 4, { 1 << 15, 1 << 15, 1 << 15, 1 << 15 }, false },
        { 2, { 3, 0 }, false },
        { 2, { -2, -3 }, false },
        { 2, { 0, INT64_MAX }, false },
    };
    int64_t count;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(tensor_count_dims(cases[i].dim, cases[i].rank, &count),
                         cases[i].fits);
}

static void a_packed_view_knows_that_it_is_packed(void **state)
{
    float data[24];
    const int64_t dim[] = { 2, 3, 4 };
    struct tensor t = tensor_packed(data, DTYPE_F32, 3, dim), absent = { 0 };

    (void)state;
    assert_int_equal(t.step[0], 12);
    assert_int_equal(t.step[1], 4);
    assert_int_equal(t.step[2], 1);
    assert_int_equal(tensor_count(&t), 24);
    assert_int_equal(tensor_count(&absent), 0);
    assert_true(tensor_is_packed(&t));
    t.step[0] = 0;
    assert_false(tensor_is_packed(&t));
}

static void a_shape_is_written_as_python_does(void **state)
{
    char out[TENSOR_SHAPE_BYTES], small[6];
    const int64_t dim[] = { 2, 3, INT64_MAX / 8, 1 };
    struct tensor t = { .rank = 2, .dim = { 2, 3 } };

    (void)state;
    assert_string_equal(tensor_shape(&t, out, sizeof out), "(2, 3)");
    assert_string_equal(tensor_shape(&t, small, sizeof small), "(2, 3");
    t.rank = 1;
    assert_string_equal(tensor_shape(&t, out, sizeof out), "(2,)");
    t.rank = 4;
    memcpy(t.dim, dim, sizeof dim);
    assert_string_equal(tensor_shape(&t, out, sizeof out),
                        "(2, 3, 1152921504606846975, 1)");
}

/* Bits and the number they stand for, by IEEE 754 and by bfloat16's being the
 * upper half of a float32. */
static const struct {
    enum dtype dtype;
    uint16_t bits;
    float value;
} halves[] = {
    { DTYPE_F16, 0x0000, 0.0f },
    { DTYPE_F16, 0x3C00, 1.0f },
    { DTYPE_F16, 0xC000, -2.0f },
    { DTYPE_F16, 0x3555, 0x1.554p-2f },
    { DTYPE_F16, 0x7BFF, 65504.0f },
    { DTYPE_F16, 0x0400, 0x1p-14f },
    { DTYPE_F16, 0x03FF, 0x1.FF8p-15f },
    { DTYPE_F16, 0x0001, 0x1p-24f },
    { DTYPE_F16, 0x8001, -0x1p-24f },
    { DTYPE_F16, 0x7C00, INFINITY },
    { DTYPE_F16, 0xFC00, -INFINITY },
    { DTYPE_BF16, 0x3F80, 1.0f },
    { DTYPE_BF16, 0xBFC0, -1.5f },
    { DTYPE_BF16, 0x7F7F, 0x1.FEp127f },
    { DTYPE_BF16, 0x0001, 0x1p-133f },
    { DTYPE_BF16, 0xFF80, -INFINITY },
};

static void half_floats_become_exactly_what_they_stand_for(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++) {
        unsigned char unaligned[3];
        float f;
        double d;

        memcpy(unaligned + 1, &halves[i].bits, 2);
        tensor_convert(unaligned + 1, halves[i].dtype, 1, DTYPE_F32, &f);
        tensor_convert(unaligned + 1, halves[i].dtype, 1, DTYPE_F64, &d);
        assert_memory_equal(&f, &halves[i].value, sizeof f);
        assert_true(d == (double)f);
    }

    const uint16_t nan = 0x7E00, minus_zero = 0x8000;
    float f;

    tensor_convert(&nan, DTYPE_F16, 1, DTYPE_F32, &f);
    assert_true(isnan(f));
    tensor_convert(&minus_zero, DTYPE_F16, 1, DTYPE_F32, &f);
    assert_true(f == 0 && signbit(f));
}

/* The value of a half float's bits, by their definition. */
static double half_value(enum dtype dtype, uint32_t bits)
{
    int width = dtype == DTYPE_F16 ? 10 : 7;
    int top = dtype == DTYPE_F16 ? 31 : 255, bias = top / 2;
    int exponent = (int)(bits >> width) & top;
    double mantissa = ldexp((double)(bits & ((1u << width) - 1)), -width);
    double size = exponent == top ? (mantissa == 0 ? HUGE_VAL : (double)NAN)
                  : exponent == 0 ? ldexp(mantissa, 1 - bias)
                                  : ldexp(1 + mantissa, exponent - bias);

    return bits & 0x8000 ? -size : size;
}

/* All 65536 of either kind, in vectors and beside them. */
static void every_half_float_is_a_float_and_a_double(void **state)
{
    static uint16_t bits[65536 + 3];
    static float f[65536];
    static double d[65536];
    static const enum dtype dtypes[] = { DTYPE_F16, DTYPE_BF16 };

    (void)state;
    for (uint32_t i = 0; i < 65536; i++)
        bits[i] = (uint16_t)i;
    for (int which = 0; which < 2; which++)
        for (int64_t part = 65536; part >= 1; part = part == 65536 ? 5 : part - 2) {
            for (int64_t i = 0; i < 65536; i += part) {
                int64_t n = 65536 - i < part ? 65536 - i : part;

                tensor_convert(bits + i, dtypes[which], n, DTYPE_F32, f + i);
                tensor_convert(bits + i, dtypes[which], n, DTYPE_F64, d + i);
            }
            for (uint32_t i = 0; i < 65536; i++) {
                double want = half_value(dtypes[which], i);

                if (isnan(want))
                    assert_true(isnan(f[i]) && isnan(d[i]));
                else
                    assert_true(d[i] == want && (double)f[i] == want &&
                                !signbit(f[i]) == !signbit(want));
            }
        }
}

static void doubles_and_integers_round_to_the_nearest_float(void **state)
{
    const double d[] = { 0.1, 16777217.0, 16777219.0, 1e39, -1e-50 };
    const float want[] = { 0.1f, 16777216.0f, 16777220.0f, INFINITY, -0.0f };
    const int64_t i64[] = { INT64_MAX, -16777217 };
    const int8_t i8[] = { -128, 127 };
    const uint8_t u8[] = { 255, 1 };
    float f[5];
    double wide[2];

    (void)state;
    tensor_convert(d, DTYPE_F64, 5, DTYPE_F32, f);
    assert_memory_equal(f, want, sizeof want);
    tensor_convert(i64, DTYPE_I64, 2, DTYPE_F32, f);
    assert_true(f[0] == 0x1p63f && f[1] == -16777216.0f);
    tensor_convert(i64, DTYPE_I64, 2, DTYPE_F64, wide);
    assert_true(wide[0] == 0x1p63 && wide[1] == -16777217.0);
    tensor_convert(i8, DTYPE_I8, 2, DTYPE_F32, f);
    assert_true(f[0] == -128 && f[1] == 127);
    tensor_convert(u8, DTYPE_U8, 2, DTYPE_F32, f);
    assert_true(f[0] == 255 && f[1] == 1);
    tensor_convert(u8 + 1, DTYPE_BOOL, 1, DTYPE_F32, f);
    assert_true(f[0] == 1);
}

static void rounding_to_bfloat16_takes_ties_to_even_and_never_overflows(
    void **state)
{
    static const struct { float from, to; } cases[] = {
        { 1.0f, 1.0f },
        { 0x1.01p0f, 0x1.00p0f },      /* a tie, to even below */
        { 0x1.03p0f, 0x1.04p0f },      /* a tie, to even above */
        { 0x1.010002p0f, 0x1.02p0f },  /* just past a tie */
        { 0x1.00FFFEp0f, 0x1.00p0f },  /* just before it */
        { -0x1.03p0f, -0x1.04p0f },
        { 0x1.FFp0f, 0x1p1f },         /* into the next binade */
        { FLT_MAX, 0x1.FEp127f },      /* would be infinity */
        { -FLT_MAX, -0x1.FEp127f },
        { 0x1p-149f, 0.0f },
        { 0x1.8p-134f, 0x1p-132f * 0.5f },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float x[9];

        for (int j = 0; j < 9; j++) /* in a vector's lanes and outside */
            x[j] = cases[i].from;
        tensor_round_bf16(x, 9);
        for (int j = 0; j < 9; j++)
            assert_memory_equal(&x[j], &cases[i].to, sizeof *x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_dtypes_find_each_other),
        cmocka_unit_test(a_product_of_dimensions_is_refused_before_it_overflows),
        cmocka_unit_test(a_packed_view_knows_that_it_is_packed),
        cmocka_unit_test(a_shape_is_written_as_python_does),
        cmocka_unit_test(half_floats_become_exactly_what_they_stand_for),
        cmocka_unit_test(every_half_float_is_a_float_and_a_double),
        cmocka_unit_test(doubles_and_integers_round_to_the_nearest_float),
        cmocka_unit_test(
            rounding_to_bfloat16_takes_ties_to_even_and_never_overflows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
