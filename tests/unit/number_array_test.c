#include "api/number.h"
#include "api/number_array.h"
#include "api/number_parts.h"
#include "core/cpu.h"
#include "tests/unit/number_draw.h"
#include "tests/unit/number_singly.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* Every level this processor has, against number_read_*() and number_write_*()
 * one number at a time, bit for bit and byte for byte; those against libc in
 * number_test.c. */

/* Of `bytes`, the last before a page that may not be touched, and the first
 * behind one. */
struct guarded {
    char *pages;
    size_t bytes;
};

static struct guarded guarded_new(size_t least)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = (least + page - 1) / page * page;
    char *pages = mmap(NULL, bytes + 2 * page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(pages, MAP_FAILED);
    assert_int_equal(mprotect(pages, page, PROT_NONE), 0);
    assert_int_equal(mprotect(pages + page + bytes, page, PROT_NONE), 0);
    return (struct guarded){ pages + page, bytes };
}

static void guarded_free(const struct guarded *g)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    munmap(g->pages - page, g->bytes + 2 * page);
}

static char *at_the_end(const struct guarded *g, size_t bytes)
{
    assert_true(bytes <= g->bytes);
    return g->pages + g->bytes - bytes;
}

static const char *read_run(const char *text, const char *end, size_t row,
                            bool wide, void *out, size_t room, size_t *count)
{
    if (row == 0)
        return wide ? number_read_run_f64(text, end, out, room, count)
                    : number_read_run_f32(text, end, out, room, count);
    return wide ? number_read_rows_f64(text, end, row, out, room, count)
                : number_read_rows_f32(text, end, row, out, room, count);
}

/* Both ways, and nothing behind `room`. */
static void expect_same(const char *text, const char *end, size_t row,
                        size_t room, bool wide)
{
    static struct guarded got, want;
    size_t size = wide ? 8 : 4, count = 0, want_count = 0;

    if (got.bytes < room * size) {
        got = guarded_new(room * size);
        want = guarded_new(room * size);
    }

    char *out = at_the_end(&got, room * size), *wanted = want.pages;
    const char *behind = read_run(text, end, row, wide, out, room, &count);
    const char *want_behind = read_singly(text, end, row, wide, wanted, room,
                                          &want_count);

    if (behind != want_behind || count != want_count)
        fail_msg("%s, rows of %zu, room %zu: %zu numbers in %zu bytes, not %zu "
                 "in %zu, of: %.*s", number_selected(), row, room, count,
                 (size_t)(behind - text), want_count,
                 (size_t)(want_behind - text),
                 (int)(end - text < 300 ? end - text : 300), text);
    for (size_t i = 0; i < count; i++) {
        if (memcmp(out + i * size, wanted + i * size, size) != 0)
            fail_msg("%s: number %zu of %zu in: %.300s", number_selected(), i,
                     count, text);
    }
}

static void expect_both(const char *text, const char *end, size_t row,
                        size_t room)
{
    expect_same(text, end, row, room, false);
    expect_same(text, end, row, room, true);
}

/* The level to be tested is the state. */
static void enter_level(void **state)
{
    const char *level = *state;

    assert_true(number_select(cpu_features(), level));
    if (strcmp(number_selected(), level) != 0)
        skip();
    random_state = 20240229;
}

static void a_million_numbers_of_every_shape_read_right(void **state)
{
    enum { PIECE = 4000, PIECES = 256 };
    struct text t = { 0 };

    enter_level(state);
    for (size_t i = 0; i < PIECES; i++) {
        t.len = 0;
        add_run(&t, PIECE, i % (KINDS + 1), 0, i / 4 % SEPARATORS);
        add(&t, "]");
        expect_both(t.data, t.data + t.len, 0, PIECE);
    }
    free(t.data);
}

static void rows_of_any_length_read_right(void **state)
{
    struct text t = { 0 };

    enter_level(state);
    for (size_t row = 1; row <= 300; row += row > 72 && row < 250 ? 11 : 1) {
        for (size_t i = 0; i < 3 * SEPARATORS; i++) {
            size_t count = row * (1 + below(300 / row + 3));

            t.len = 0;
            add_run(&t, count, i % 3 == 0 ? KINDS : i % 3 - 1, row,
                    i % SEPARATORS);
            add(&t, "]], [1");
            add_digits(&t, below(64));
            expect_both(t.data, t.data + t.len, row, count + below(3));
        }
    }
    free(t.data);
}

static void a_row_may_be_longer_than_any_text(void **state)
{
    struct text t = { 0 };

    enter_level(state);
    add_run(&t, 2000, 0, 0, PYTHON);
    expect_both(t.data, t.data + t.len, SIZE_MAX, 2000);
    expect_both(t.data, t.data + t.len, 2000, 2000);
    free(t.data);
}

static void rows_too_long_or_too_short_end_the_run(void **state)
{
    struct text t = { 0 };

    enter_level(state);
    for (size_t row = 1; row <= 700; row += 1 + row / 8) {
        for (size_t i = 0; i < 30; i++) {
            size_t count = row * (1 + below(400 / row + 2));
            size_t other = 1 + (row + 5 + below(8) - 3) % (row + 6);

            t.len = 0;
            add_run(&t, count, i % 4, row, i % SEPARATORS);
            add_separator(&t, i % SEPARATORS, true);
            add_run(&t, 3 * other, i % 4, other, i % SEPARATORS);
            add(&t, "]]");
            expect_both(t.data, t.data + t.len, row, count + 3 * other);
        }
    }
    free(t.data);
}

/* More than a chunk of text, cut short before every byte, the cut at the end of
 * a page; and begun anew at every byte, some of them at the page's start. */
static void runs_cut_at_every_byte_end_there(void **state)
{
    struct text t = { 0 };
    struct guarded pages = guarded_new(3 * 4096);

    enter_level(state);
    for (size_t row = 0; row <= 3; row += 3) {
        t.len = 0;
        add_run(&t, 60, KINDS, row, ANY);
        add_run(&t, 80, 0, row, PYTHON);
        memset(text_room(&t, 4200), ' ', 4200);
        t.len = t.len < 4200 ? 4200 : t.len;
        add_separator(&t, COMPACT, row != 0 && 140 % row == 0);
        add_run(&t, 20, KINDS, row, ANY);
        if (t.len > 2 * 4096)
            t.len = 2 * 4096;
        for (size_t len = 0; len <= t.len; len++) {
            char *at = at_the_end(&pages, len);

            memcpy(at, t.data, len);
            expect_same(at, at + len, row, 256, len % 8 == 1);
        }
        for (size_t skip = 0; skip < t.len; skip++) {
            size_t len = t.len - skip < 1500 ? t.len - skip : 1500;

            memcpy(pages.pages, t.data + skip, len);
            expect_same(pages.pages, pages.pages + len, row, 256,
                        skip % 8 == 1);
        }
    }
    guarded_free(&pages);
    free(t.data);
}

/* What is wrong stands at every place of a chunk, in every state. */
static void mistakes_end_the_run_wherever_they_are(void **state)
{
    static const char *const mistakes[] = {
        "x", "01", "-01", "00", "1.", "1.,2", "1e", "1e,2", "1e+", "1e-,3",
        "--1", "-", "-,", "+1", ",", ",,", ",]", "1 2", "1.5.5", "1e5e5",
        "1e5.5", ".5", "-.5", "1..5", "1-2", "1+2", "e5", "- 1", "1. 5", "1 .5",
        "1e 5", "1 e5", "1,", "]", "[", "[1", "1]", "1[", "1],2", "1,[2", "],[",
        "[[", "1],[,", "\"", "null", "true", "NaN", "Infinity", "-Infinity",
        "1/", "1:", "1_0", "0x1", "\x80", "\xff", "1\xb9", "\xb0", "\x10",
        "\x0b", "\x0c", "\x1f", "1e400", "-1e39",
        "1e5-", "1ee5", "1e-+5", "", " ",
    };
    struct text t = { 0 };

    enter_level(state);
    for (size_t row = 0; row <= 2; row += 2) {
        for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
            for (size_t at = 0; at < 140; at++) {
                t.len = 0;
                add_run(&t, 2 * (at % 3), 5, row, COMPACT);
                if (t.len > 0)
                    add_separator(&t, COMPACT, row != 0);
                add_digits(&t, at + 1);
                *text_room(&t, 1) = ' ';
                t.data[t.len - at - 1] = '1';
                add_separator(&t, at % 2 == 0 ? COMPACT : PYTHON, false);
                add(&t, "%s", mistakes[i]);
                add_separator(&t, COMPACT, row != 0);
                add_run(&t, 40, at % KINDS, row, COMPACT);
                expect_both(t.data, t.data + t.len, row, 64);
            }
        }
    }
    free(t.data);
}

static void any_byte_changed_is_judged_as_one_at_a_time_judges_it(void **state)
{
    static const char bytes[] = "0123456789+-.eE,[] \n\tx\"\x80";
    struct text t = { 0 };

    enter_level(state);
    for (size_t i = 0; i < 600; i++) {
        size_t row = i % 3 == 0 ? 1 + below(6) : 0;

        t.len = 0;
        add_run(&t, 12 * (1 + below(i % 16 == 0 ? 60 : 6)), below(KINDS + 1),
                row, i % SEPARATORS);
        for (size_t j = 0; j < 200; j++) {
            size_t at = below(t.len);
            char was = t.data[at];

            t.data[at] = bytes[below(sizeof bytes - 1)];
            expect_same(t.data, t.data + t.len, row, 720, j % 4 == 3);
            t.data[at] = was;
        }
    }
    free(t.data);
}

/* More digits, or more white space, than a chunk has bytes. */
static void what_is_longer_than_a_chunk_does_not_end_a_run(void **state)
{
    struct text t = { 0 };

    enter_level(state);
    for (size_t i = 0; i < 40; i++) {
        size_t long_one = 3900 + 50 * i;

        t.len = 0;
        add_run(&t, 100, 0, 0, PYTHON);
        add(&t, ",0.");
        add_digits(&t, long_one);
        add(&t, ",");
        memset(text_room(&t, long_one), i % 2 == 0 ? ' ' : '\n', long_one);
        t.len += long_one;
        add_run(&t, 100, KINDS, 0, PYTHON);
        expect_both(t.data, t.data + t.len, 0, 202);
    }
    free(t.data);
}

static void no_more_than_there_is_room_for_are_read(void **state)
{
    struct text t = { 0 };

    enter_level(state);
    add_run(&t, 400, KINDS, 2, ANY);
    for (size_t room = 0; room <= 400; room++)
        expect_both(t.data, t.data + t.len, 2, room);
    free(t.data);
}

static void an_overflow_is_the_last_of_its_run(void **state)
{
    static const char *const rows[] = { "1e39", "-1e400", "3.4028236e38",
                                        "1e309", "-17976931348623159e292" };
    struct text t = { 0 };

    enter_level(state);
    for (size_t i = 0; i < 500; i++) {
        t.len = 0;
        add_run(&t, i / 5, i % 4, 0, COMPACT);
        add(&t, "%s%s", i < 5 ? "" : ",", rows[i % 5]);
        for (size_t j = 0; j < 20; j++)
            add(&t, ",%zu", j);
        expect_both(t.data, t.data + t.len, 0, 128);
    }
    free(t.data);
}

enum { MOST_VALUES = 4096 };

/* Both ways, and nothing behind what may be touched. */
static void expect_same_text(const void *values, size_t count, bool wide)
{
    static struct guarded got, want;
    size_t most = wide ? NUMBER_F64_BYTES : NUMBER_F32_BYTES;

    if (got.bytes == 0) {
        got = guarded_new(MOST_VALUES * NUMBER_F64_BYTES);
        want = guarded_new(MOST_VALUES * NUMBER_F64_BYTES);
    }

    char *out = at_the_end(&got, count * most), *wanted = want.pages;
    size_t len = (size_t)((wide ? number_write_run_f64(values, count, out)
                                : number_write_run_f32(values, count, out)) -
                          out);
    size_t want_len =
        (size_t)(write_singly(values, count, wide, wanted) - wanted);

    for (size_t i = 0; i < want_len; i++) {
        if (i == len || out[i] != wanted[i])
            fail_msg("%s: byte %zu of %zu values: got %.40s want %.40s",
                     number_selected(), i, count, out + i, wanted + i);
    }
    assert_int_equal(len, want_len);
}

/* As many bits as `kept`, so that short texts come up too. */
static float any_float(int kept)
{
    return float_of((uint32_t)random64() & (uint32_t)(INT32_MIN >> kept));
}

static void a_million_floats_of_every_shape_are_written_right(void **state)
{
    float values[MOST_VALUES];

    enter_level(state);
    for (int round = 0; round < 288; round++) {
        for (size_t i = 0; i < MOST_VALUES; i++) {
            double x = (double)(int64_t)random64() * 0x1p-63;

            switch (round % 6) {
            case 0: values[i] = (float)x; break;
            case 1: values[i] = any_float(31); break;
            case 2: values[i] = any_float(round % 24 + 8); break;
            case 3: values[i] = (float)(round * (int)(x * 1000) / 8); break;
            case 4: values[i] = (float)(x * pow(10, 15 * x)); break;
            case 5: values[i] = (float)((int)(x * 1e6) / 1000.0); break;
            }
        }
        expect_same_text(values, MOST_VALUES, false);
    }
}

static void a_million_doubles_of_every_kind_are_written_right(void **state)
{
    double values[MOST_VALUES];

    enter_level(state);
    for (size_t round = 0; round < 32 * (DRAWS + 1); round++) {
        for (size_t i = 0; i < MOST_VALUES; i++)
            values[i] = draw_double(round % (DRAWS + 1));
        expect_same_text(values, MOST_VALUES, true);
    }
}

/* Both sides of every power of two and of ten, where lengths and layouts
 * change; zeros, the least, the largest, what is no number, the 63 beside 1. */
static size_t edges(float *values)
{
    size_t n = 0;

    for (uint32_t exponent = 0; exponent <= 255; exponent++) {
        for (uint32_t i = 0; i < 4; i++)
            values[n++] = float_of((exponent << 23) + i - 2);
        values[n++] = -float_of(exponent << 23);
    }
    for (int q = -46; q <= 38; q++) {
        char text[16];

        for (int digit = 1; digit <= 9; digit += 4) {
            snprintf(text, sizeof text, "%de%d", digit, q);

            float value = strtof(text, NULL);

            values[n++] = value;
            values[n++] = nextafterf(value, 0);
            values[n++] = -nextafterf(value, INFINITY);
        }
    }
    for (uint32_t k = 0; k < 66; k++) {
        values[n++] = float_of(0x3f800000 + k);
        values[n++] = float_of(0xbf800000 + k);
    }
    values[n++] = NAN;
    values[n++] = -INFINITY;
    return n;
}

static void every_layout_is_written_at_every_place(void **state)
{
    float values[MOST_VALUES], turned[2 * 16];
    size_t count = edges(values);

    enter_level(state);
    assert_true(count <= MOST_VALUES);
    expect_same_text(values, count, false);
    for (size_t i = 0; i + 16 < count; i += 3) {
        memcpy(turned, values + i, 16 * sizeof *turned);
        memcpy(turned + 16, turned, 16 * sizeof *turned);
        for (size_t from = 0; from < 16; from++)
            expect_same_text(turned + from, 16, false);
    }
}

/* Every count of digits at every exponent, where the layout is another one in
 * each group of eight that is tried. */
static void every_layout_of_doubles_is_written_at_every_place(void **state)
{
    double values[17 * 40 + 6];
    size_t count = 0;

    enter_level(state);
    for (int e = -16; e < 24; e++) {
        for (int digits = 1; digits <= 17; digits++) {
            char text[32];

            snprintf(text, sizeof text, "%s1.%0*de%d", digits % 3 ? "" : "-",
                     digits - 1, digits > 1, e < -8 ? e * 19 : e);
            values[count++] = strtod(text, NULL);
        }
    }
    for (int i = 0; i < 6; i++)
        values[count++] = (double[]){ 0, -0.0, NAN, -INFINITY, DBL_MAX,
                                      -DBL_MIN }[i];
    for (size_t from = 0; from < count; from++)
        expect_same_text(values + from, count - from, true);
    for (size_t i = 0; i + 9 <= count; i++)
        expect_same_text(values + i, 9, true);
}

static float beside_one(size_t i)
{
    return float_of(0x3f800000 + (uint32_t)i % 64);
}

static void runs_of_every_length_touch_no_more_than_they_may(void **state)
{
    float values[MOST_VALUES];
    double doubles[300];

    enter_level(state);
    for (size_t count = 0; count <= 150; count++) {
        for (int kind = 0; kind < 3; kind++) {
            for (size_t i = 0; i < count; i++)
                values[i] = kind == 0   ? (float)(i % 10)
                            : kind == 1 ? -1.17549435e-38F
                                        : beside_one(i);
            expect_same_text(values, count, false);
        }
    }
    for (size_t count = 0; count <= 300; count++) {
        for (int longest = 0; longest < 2; longest++) {
            for (size_t i = 0; i < count; i++)
                doubles[i] = longest ? -1.2345678901234567e-300
                                     : double_of(random64());
            expect_same_text(doubles, count, true);
        }
    }
}

static void rows_are_written_with_brackets_between_them(void **state)
{
    enum { MOST = 400 };
    static char want[MOST * NUMBER_F32_BYTES];
    float values[MOST];
    struct guarded pages = guarded_new(sizeof want);

    enter_level(state);
    for (size_t row = 1; row <= 40; row++) {
        for (size_t rows = 0; rows <= MOST / row; rows++) {
            size_t count = rows * row;
            char *out = at_the_end(&pages, count * NUMBER_F32_BYTES);
            char *end, *to = want;

            for (size_t i = 0; i < count; i++) {
                values[i] = rows % 3 == 0   ? -1.17549435e-38F
                            : rows % 3 == 1 ? float_of((uint32_t)random64())
                                            : beside_one(i);
                if (i > 0)
                    to = stpcpy(to, i % row == 0 ? "],[" : ",");
                to = write_singly(values + i, 1, false, to);
            }
            end = number_write_rows_f32(values, count, row, out);
            assert_int_equal(end - out, to - want);
            assert_memory_equal(out, want, (size_t)(to - want));
        }
    }
    guarded_free(&pages);
}

static void what_is_written_reads_back(void **state)
{
    static float values[MOST_VALUES], back[MOST_VALUES];
    static char text[MOST_VALUES * NUMBER_F32_BYTES];

    enter_level(state);
    for (int round = 0; round < 100; round++) {
        size_t count = 0;

        for (size_t i = 0; i < MOST_VALUES; i++) {
            do
                values[i] = float_of((uint32_t)random64());
            while (!isfinite(values[i]));
        }

        char *end = number_write_run_f32(values, MOST_VALUES, text);

        assert_ptr_equal(
            number_read_run_f32(text, end, back, MOST_VALUES, &count), end);
        assert_int_equal(count, MOST_VALUES);
        assert_memory_equal(values, back, sizeof values);
    }
}

static void what_stands_between_numbers_is_counted(void **state)
{
    static const char bytes[] = ",,,,[]{}0 \"\xdb\xfb\x80;Z\\";
    struct guarded pages = guarded_new(4096);

    enter_level(state);
    for (size_t len = 0; len <= 600; len++) {
        char *text = at_the_end(&pages, len);
        struct number_tally got = { 7, -3 }, want = got;

        for (size_t i = 0; i < len; i++) {
            text[i] = bytes[below(len % 8 == 0 ? 4 : sizeof bytes - 1)];
            want.commas += text[i] == ',';
            want.open += text[i] == '[' || text[i] == '{';
            want.open -= text[i] == ']' || text[i] == '}';
        }
        number_count(text, text + len, &got);
        assert_int_equal(got.commas, want.commas);
        assert_int_equal(got.open, want.open);
    }
    guarded_free(&pages);
}

/* Against the 128 bits that number_test.c proves. */
static void powers_of_ten_and_what_they_lack_are_right(void **state)
{
    (void)state;
    for (int q = TENS_LOW; q <= TENS_HIGH; q++) {
        const struct power *power = power_of_ten(q);
        double high = number_tens_f64[q - TENS_LOW];
        double rest = number_tens_rest[q - TENS_LOW], want;
        char text[16];
        int exponent;
        u128 bits = (u128)(uint64_t)ldexp(frexp(high, &exponent), 53) << 75;
        u128 all = (u128)power->high << 64 | power->low;

        snprintf(text, sizeof text, "1e%d", q);
        assert_true(high == strtod(text, NULL));
        if (exponent > power_scale(q) + 128) /* rounded up to a power of two */
            bits = 0;
        want = ldexp((double)(__int128)(all - bits), power_scale(q));
        assert_true(fabs(rest - want) <= fabs(want) * 0x1p-52);
    }
}

static void a_ceiling_keeps_what_is_above_it_out(void **state)
{
    (void)state;
    assert_true(number_select(~(uint32_t)0, "portable"));
    assert_string_equal(number_selected(), "portable");
    assert_true(number_select(0, NULL));
    assert_string_equal(number_selected(), "portable");
    assert_false(number_select(cpu_features(), "avx3"));
    assert_true(number_select(cpu_features(), "amx"));
}

#define AT_EACH_LEVEL(test)                                                    \
    { #test ", portable", test, NULL, NULL, (void *)"portable" },              \
    { #test ", avx2", test, NULL, NULL, (void *)"avx2" },                      \
    { #test ", avx512", test, NULL, NULL, (void *)"avx512" }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(powers_of_ten_and_what_they_lack_are_right),
        cmocka_unit_test(a_ceiling_keeps_what_is_above_it_out),
        AT_EACH_LEVEL(a_million_numbers_of_every_shape_read_right),
        AT_EACH_LEVEL(rows_of_any_length_read_right),
        AT_EACH_LEVEL(a_row_may_be_longer_than_any_text),
        AT_EACH_LEVEL(rows_too_long_or_too_short_end_the_run),
        AT_EACH_LEVEL(runs_cut_at_every_byte_end_there),
        AT_EACH_LEVEL(mistakes_end_the_run_wherever_they_are),
        AT_EACH_LEVEL(any_byte_changed_is_judged_as_one_at_a_time_judges_it),
        AT_EACH_LEVEL(what_is_longer_than_a_chunk_does_not_end_a_run),
        AT_EACH_LEVEL(no_more_than_there_is_room_for_are_read),
        AT_EACH_LEVEL(an_overflow_is_the_last_of_its_run),
        AT_EACH_LEVEL(what_stands_between_numbers_is_counted),
        AT_EACH_LEVEL(a_million_floats_of_every_shape_are_written_right),
        AT_EACH_LEVEL(a_million_doubles_of_every_kind_are_written_right),
        AT_EACH_LEVEL(every_layout_is_written_at_every_place),
        AT_EACH_LEVEL(every_layout_of_doubles_is_written_at_every_place),
        AT_EACH_LEVEL(runs_of_every_length_touch_no_more_than_they_may),
        AT_EACH_LEVEL(rows_are_written_with_brackets_between_them),
        AT_EACH_LEVEL(what_is_written_reads_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
