#include "tests/fuzz/safetensors_property.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* A file in a block of exactly its size, so that a sanitizer sees one byte
 * more, and what reading it gave. */
struct reading {
    uint8_t *block;
    struct bytes file;
    struct arena arena;
    struct safetensors out;
    struct error err;
    bool good;
};

static void begin(struct reading *r, size_t len)
{
    *r = (struct reading){ .block = malloc(len), .file.len = len };
    assert_true(r->block != NULL || len == 0);
    r->file.data = r->block;
    arena_init(&r->arena, SIZE_MAX);
}

static bool decode(struct reading *r)
{
    r->good = safetensors_decode(r->file, &r->arena, &r->out, &r->err);
    assert_int_equal(r->good, r->err.code == ERR_NONE);
    if (r->good)
        assert_true(property_holds(r->file, &r->out));
    else
        assert_string_equal(r->err.where, "");
    return r->good;
}

static void end(struct reading *r)
{
    arena_free(&r->arena);
    free(r->block);
}

/* `data_bytes` of data: 1, 2, 3, ... */
static void fill(struct reading *r, const char *header, size_t header_bytes,
                 size_t data_bytes)
{
    uint64_t len = header_bytes;

    begin(r, 8 + header_bytes + data_bytes);
    memcpy(r->block, &len, 8);
    memcpy(r->block + 8, header, header_bytes);
    for (size_t i = 0; i < data_bytes; i++)
        r->block[8 + header_bytes + i] = (uint8_t)(i + 1);
}

static struct reading read_file(const char *header, size_t data_bytes)
{
    struct reading r;

    fill(&r, header, strlen(header), data_bytes);
    decode(&r);
    return r;
}

/* Six bytes; the second of them is stored first. */
#define SMALL                                                                  \
    "{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[4,6]},"          \
    "\"__metadata__\":{\"num_heads\":\"3\",\"format\":\"pt\"},"                \
    "\"a\\u00e9\":{\"shape\":[1,2],\"data_offsets\":[0,4],\"dtype\":\"F16\"}}" \
    "  "
enum { SMALL_DATA = 6 };

static void a_good_file_is_a_list_of_views(void **state)
{
    struct reading r = read_file(SMALL, SMALL_DATA);
    const struct safetensors_tensor *t = r.out.tensor;

    (void)state;
    assert_true(r.good);
    assert_int_equal(r.out.count, 2);
    assert_string_equal(t[0].name, "a\xC3\xA9");
    assert_int_equal(t[0].dtype, DTYPE_F16);
    assert_int_equal(t[0].rank, 2);
    assert_int_equal(t[0].dim[0], 1);
    assert_int_equal(t[0].dim[1], 2);
    assert_int_equal(t[0].bytes, 4);
    assert_memory_equal(t[0].data, "\1\2\3\4", 4);
    assert_string_equal(t[1].name, "b");
    assert_string_equal(t[1].dtype_name, "U8");
    assert_memory_equal(t[1].data, "\5\6", 2);
    end(&r);
}

static void metadata_is_found_by_its_key(void **state)
{
    struct reading r = read_file(SMALL, SMALL_DATA);

    (void)state;
    assert_int_equal(r.out.metadata_count, 2);
    assert_string_equal(safetensors_find_metadata(&r.out, "num_heads"), "3");
    assert_string_equal(safetensors_find_metadata(&r.out, "format"), "pt");
    assert_null(safetensors_find_metadata(&r.out, "a"));
    end(&r);
    r = read_file("{}", 0);
    assert_null(safetensors_find_metadata(&r.out, "format"));
    end(&r);
}

#define T(dtype, shape, begin, end)                                            \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape                                \
    ",\"data_offsets\":[" #begin "," #end "]}"

static void every_dtype_of_the_format_has_its_size(void **state)
{
    static const struct {
        const char *name;
        unsigned eighths; /* bytes of eight elements */
        enum dtype dtype;
    } rows[] = {
        { "F64", 64, DTYPE_F64 },         { "F32", 32, DTYPE_F32 },
        { "F16", 16, DTYPE_F16 },         { "BF16", 16, DTYPE_BF16 },
        { "I64", 64, DTYPE_I64 },         { "I32", 32, DTYPE_I32 },
        { "I16", 16, DTYPE_I16 },         { "I8", 8, DTYPE_I8 },
        { "U8", 8, DTYPE_U8 },            { "BOOL", 8, DTYPE_BOOL },
        { "U16", 16, DTYPE_COUNT },       { "U32", 32, DTYPE_COUNT },
        { "U64", 64, DTYPE_COUNT },       { "C64", 64, DTYPE_COUNT },
        { "F8_E4M3", 8, DTYPE_COUNT },    { "F8_E5M2", 8, DTYPE_COUNT },
        { "F8_E8M0", 8, DTYPE_COUNT },    { "F8_E4M3FNUZ", 8, DTYPE_COUNT },
        { "F8_E5M2FNUZ", 8, DTYPE_COUNT }, { "F6_E2M3", 6, DTYPE_COUNT },
        { "F6_E3M2", 6, DTYPE_COUNT },    { "F4", 4, DTYPE_COUNT },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char header[128];
        struct tensor view;

        snprintf(header, sizeof header,
                 "{\"x\":{\"dtype\":\"%s\",\"shape\":[8],"
                 "\"data_offsets\":[0,%u]}}", rows[i].name, rows[i].eighths);

        struct reading r = read_file(header, rows[i].eighths);

        assert_true(r.good);
        assert_int_equal(r.out.tensor[0].dtype, rows[i].dtype);
        assert_string_equal(r.out.tensor[0].dtype_name, rows[i].name);
        assert_int_equal(safetensors_view(r.out.tensor, &view),
                         rows[i].dtype != DTYPE_COUNT);
        end(&r);
    }
}

static void valid_files_of_odd_forms_are_accepted(void **state)
{
    static const struct {
        const char *header;
        size_t data_bytes, count;
    } rows[] = {
        { "{}", 0, 0 },
        { "{ }\n\t\r ", 0, 0 },
        { "{\"__metadata__\":{}}", 0, 0 },
        { "{\"__metadata__\":{\"\":\"\"}}", 0, 0 },
        { "{\"\":" T("F32", "[]", 0, 4) "}", 4, 1 },
        { "{\"x\":" T("F32", "[0]", 0, 0) "}", 0, 1 },
        { "{\"x\":" T("F32", "[0,9223372036854775807]", 0, 0) "}", 0, 1 },
        { "{\"z\":" T("U8", "[1]", 0, 1) ",\"e\":" T("F64", "[3,0]", 1, 1)
          ",\"a\":" T("U8", "[1]", 1, 2) "}", 2, 3 },
        { "{\"x\":" T("U8", "[1,1,1,1,1,2]", 0, 2) "}", 2, 1 },
        { "{\"x\":" T("F4", "[2]", 0, 1) "}", 1, 1 },
        { "{ \"x\" : { \"shape\" : [ 1 , 2 ] , \"dtype\" : \"U8\" , "
          "\"data_offsets\" : [ 0 , 2 ] } }", 2, 1 },
        { "{\"\\ud83d\\ude00\\\"\\\\\":" T("U8", "[1]", 0, 1) "}", 1, 1 },
        { "{\"__metadata__\":{\"x\":\"{[,\"},\"x\":" T("U8", "[1]", 0, 1) "}",
          1, 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct reading r = read_file(rows[i].header, rows[i].data_bytes);

        if (!r.good)
            fail_msg("%s: %s", rows[i].header, r.err.text);
        assert_int_equal(r.out.count, rows[i].count);
        end(&r);
    }
}

static void what_has_no_view_is_listed_all_the_same(void **state)
{
    static const char *const headers[] = {
        "{\"x\":" T("F32", "[]", 0, 4) "}",
        "{\"x\":" T("F32", "[1,1,1,1,1]", 0, 4) "}",
        "{\"x\":" T("U32", "[1]", 0, 4) "}",
        "{\"a\":" T("F32", "[0]", 0, 0) ",\"x\":" T("F32", "[1]", 0, 4) "}",
    };
    struct tensor view;

    (void)state;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        struct reading r = read_file(headers[i], 4);

        assert_true(r.good);
        assert_false(safetensors_view(&r.out.tensor[0], &view));
        end(&r);
    }
}

static void a_view_has_the_shape_and_the_bytes(void **state)
{
    struct reading r =
        read_file("{\"x\":" T("I16", "[2,3]", 0, 12) "}", 12);
    struct tensor view;

    (void)state;
    assert_true(safetensors_view(r.out.tensor, &view));
    assert_ptr_equal(view.data, r.out.tensor[0].data);
    assert_int_equal(view.dtype, DTYPE_I16);
    assert_int_equal(view.rank, 2);
    assert_int_equal(view.step[0], 3);
    assert_true(tensor_is_packed(&view));
    end(&r);
}

#define X(rest) "{\"x\":" rest "}"

static const struct {
    const char *header;
    size_t data_bytes;
    enum error_code code;
    const char *text; /* somewhere in the sentence */
} damaged[] = {
    { "", 0, ERR_JSON, "byte 0): an object should stand" },
    { " {}", 0, ERR_JSON, "byte 0): an object should stand" },
    { "[]", 0, ERR_JSON, "byte 0): an object should stand" },
    { "\xEF\xBB\xBF{}", 0, ERR_JSON, "byte 0): an object should stand" },
    { "{", 0, ERR_JSON, "byte 1): the body ends" },
    { "{}}", 0, ERR_JSON, "byte 2): '}' stands where the end" },
    { "{},", 0, ERR_JSON, "byte 2): ',' stands where the end" },
    { "{\"x\"}", 0, ERR_JSON, "byte 4): '}' stands where ':'" },
    { "{\"x", 0, ERR_JSON, "the string does not end" },
    { "{\"x\\", 0, ERR_JSON, "no escape" },
    { "{\"x\\\"", 0, ERR_JSON, "the string does not end" },
    { "{\"x\xff\":" T("U8", "[1]", 0, 1) "}", 1, ERR_JSON,
      "byte 3): this is not valid UTF-8" },
    { "{\"\xC0\x80\":" T("U8", "[1]", 0, 1) "}", 1, ERR_JSON, "UTF-8" },
    { "{\"\\ud800\":" T("U8", "[1]", 0, 1) "}", 1, ERR_JSON, "escape" },
    { "{\"\\q\":" T("U8", "[1]", 0, 1) "}", 1, ERR_JSON, "escape" },
    { "{\"\\u0000\":" T("U8", "[1]", 0, 1) "}", 1, ERR_JSON, "holds a NUL" },
    { "{\"a\nb\":" T("U8", "[1]", 0, 1) "}", 1, ERR_JSON, "control" },
    { X("1"), 0, ERR_JSON, "an object should stand" },
    { X("null"), 0, ERR_JSON, "an object should stand" },
    { X("{}"), 0, ERR_REQUEST, "\"x\" has no dtype" },
    { X("{\"dtype\":\"U8\",\"data_offsets\":[0,0]}"), 0, ERR_REQUEST,
      "\"x\" has no shape" },
    { X("{\"dtype\":\"U8\",\"shape\":[0]}"), 0, ERR_REQUEST,
      "\"x\" has no data_offsets" },
    { X("{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],"
        "\"strides\":[1]}"), 0, ERR_REQUEST, "a member \"strides\"" },
    { X("{\"dtype\":\"U8\",\"dtype\":\"U8\"}"), 0, ERR_JSON,
      "the key \"dtype\" comes twice" },
    { X("{\"shape\":[],\"sh\\u0061pe\":[]}"), 0, ERR_JSON,
      "comes twice" },
    { X("{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],}"), 1,
      ERR_JSON, "stands where a" },
    { X("{,\"dtype\":\"U8\"}"), 1, ERR_JSON, "stands where a" },
    { X("{\"dtype\":\"U8\" \"shape\":[1]}"), 1, ERR_JSON,
      "stands where ',' or '}'" },
    { X(T("U9", "[1]", 0, 1)), 1, ERR_REQUEST, "dtype \"U9\"" },
    { X(T("f32", "[1]", 0, 4)), 4, ERR_REQUEST, "dtype \"f32\"" },
    { X(T("", "[1]", 0, 4)), 4, ERR_REQUEST, "dtype \"\"" },
    { X("{\"dtype\":5}"), 0, ERR_JSON, "stands where a" },
    { X(T("U8", "1", 0, 1)), 1, ERR_JSON, "byte 27): an array should stand" },
    { X(T("U8", "[-1]", 0, 1)), 1, ERR_JSON, "a whole number should stand" },
    { X(T("U8", "[1.0]", 0, 1)), 1, ERR_JSON,
      "byte 29): a whole number has digits" },
    { X(T("U8", "[1e0]", 0, 1)), 1, ERR_JSON,
      "byte 29): a whole number has digits" },
    { X(T("U8", "[01]", 0, 1)), 1, ERR_JSON, "may not begin with 0" },
    { X(T("U8", "[\"1\"]", 0, 1)), 1, ERR_JSON, "a whole number should stand" },
    { X(T("U8", "[true]", 0, 1)), 1, ERR_JSON, "a whole number should stand" },
    { X(T("U8", "[1,]", 0, 1)), 1, ERR_JSON, "a whole number should stand" },
    { X(T("U8", "[[1]]", 0, 1)), 1, ERR_JSON, "a whole number should stand" },
    { X(T("U8", "[9223372036854775808]", 0, 1)), 1, ERR_JSON,
      "over 9223372036854775807" },
    { X(T("U8", "[99999999999999999999999999]", 0, 1)), 1, ERR_JSON,
      "over 9223372036854775807" },
    { X(T("U8", "[4294967296,4294967296]", 0, 0)), 0, ERR_REQUEST,
      "product overflows" },
    { X(T("U8", "[4294967296,4294967296,0]", 0, 0)), 0, ERR_REQUEST,
      "product overflows" },
    { X(T("F64", "[4294967296,134217728]", 0, 0)), 0, ERR_REQUEST,
      "size that overflows" },
    { X(T("U8", "[1]", 0, 1)), 0, ERR_REQUEST,
      "ends at byte 1 of the data, of which there are 0" },
    { X(T("U8", "[1]", 1, 0)), 1, ERR_REQUEST, "ends before it begins" },
    { X(T("U8", "[1]", 0, 9223372036854775807)), 1, ERR_REQUEST,
      "ends at byte 9223372036854775807" },
    { X("{\"data_offsets\":[0]}"), 0, ERR_REQUEST, "fewer than two" },
    { X("{\"data_offsets\":[0,1,2]}"), 0, ERR_REQUEST, "more than two" },
    { X("{\"data_offsets\":{}}"), 0, ERR_JSON, "an array should stand" },
    { X(T("F32", "[2]", 0, 4)), 4, ERR_REQUEST,
      "spans 4 bytes, but its shape in F32 takes 8" },
    { X(T("F32", "[0]", 0, 4)), 4, ERR_REQUEST, "takes 0" },
    { X(T("F4", "[1]", 0, 1)), 1, ERR_REQUEST, "the end of a byte" },
    { X(T("U8", "[2]", 1, 3)), 3, ERR_REQUEST, "leaves a hole" },
    { X(T("U8", "[2]", 0, 2)), 3, ERR_REQUEST,
      "has 3 bytes, of which 2 belong" },
    { "{}", 1, ERR_REQUEST, "has 1 bytes, of which 0 belong" },
    { "{\"x\":" T("U8", "[2]", 0, 2) ",\"y\":" T("U8", "[2]", 1, 3) "}", 3,
      ERR_REQUEST, "\"y\" begins at byte 1 of the data, which leaves an "
      "overlap" },
    { "{\"x\":" T("U8", "[2]", 0, 2) ",\"y\":" T("U8", "[2]", 0, 2) "}", 2,
      ERR_REQUEST, "overlap" },
    { "{\"x\":" T("U8", "[2]", 0, 2) ",\"y\":" T("U8", "[0]", 1, 1) "}", 2,
      ERR_REQUEST, "overlap" },
    { "{\"x\":" T("U8", "[1]", 0, 1) ",\"y\":" T("U8", "[1]", 2, 3) "}", 3,
      ERR_REQUEST, "\"y\" begins at byte 2 of the data, which leaves a "
      "hole" },
    { "{\"x\":" T("U8", "[1]", 0, 1) ",\"x\":" T("U8", "[1]", 1, 2) "}", 2,
      ERR_JSON, "byte 53): the key" },
    { "{\"x\":" T("U8", "[1]", 0, 1) ",\"\\u0078\":" T("U8", "[1]", 1, 2)
      "}", 2, ERR_JSON, "byte 53): the key" },
    { "{\"__metadata__\":{\"a\":\"1\",\"b\":\"\",\"a\":\"1\"}}", 0,
      ERR_JSON, "the key \"a\" comes twice" },
    { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, ERR_JSON,
      "the key \"__metadata__\" comes twice" },
    { "{\"__metadata__\":{\"a\":1}}", 0, ERR_JSON, "stands where a" },
    { "{\"__metadata__\":{\"a\":{}}}", 0, ERR_JSON, "stands where a" },
    { "{\"__metadata__\":{\"a\\u0000\":\"b\"}}", 0, ERR_JSON, "holds a NUL" },
    { "{\"__metadata__\":{\"a\":\"b\\u0000\"}}", 0, ERR_JSON, "holds a NUL" },
    { "{\"__metadata__\":null}", 0, ERR_JSON, "an object should stand" },
    { "{\"__metadata__\":[]}", 0, ERR_JSON, "an object should stand" },
};

static void each_kind_of_damage_is_refused_with_its_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        struct reading r = read_file(damaged[i].header, damaged[i].data_bytes);

        if (r.good || r.err.code != damaged[i].code ||
            strstr(r.err.text, damaged[i].text) == NULL)
            fail_msg("%s: %s \"%s\"", damaged[i].header,
                     error_name(r.err.code), r.err.text);
        end(&r);
    }
}

static void a_length_that_cannot_be_is_refused(void **state)
{
    static const struct {
        uint64_t len;
        const char *text;
    } rows[] = {
        { 3, "does not fit in the 2 that follow" },
        { 100000000, "does not fit" },
        { 100000001, "over the format's limit" },
        { (uint64_t)INT64_MAX, "over the format's limit" },
        { UINT64_MAX, "over the format's limit" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct reading r;

        fill(&r, "{}", 2, 0);
        memcpy(r.block, &rows[i].len, 8);
        assert_false(decode(&r));
        assert_int_equal(r.err.code, ERR_REQUEST);
        assert_non_null(strstr(r.err.text, rows[i].text));
        end(&r);
    }
}

static void a_file_cut_at_any_byte_is_refused(void **state)
{
    size_t whole = 8 + strlen(SMALL) + SMALL_DATA;

    (void)state;
    for (size_t len = 0; len < whole; len++) {
        struct reading full, r;

        fill(&full, SMALL, strlen(SMALL), SMALL_DATA);
        begin(&r, len);
        memcpy(r.block, full.block, len);
        assert_false(decode(&r));
        end(&r);
        end(&full);
    }
}

static void a_header_that_ends_anywhere_is_refused(void **state)
{
    size_t whole = strlen(SMALL) - 2; /* two spaces */

    (void)state;
    for (size_t len = 0; len < whole; len++) {
        struct reading r;

        fill(&r, SMALL, len, SMALL_DATA);
        assert_false(decode(&r));
        assert_int_equal(r.err.code, ERR_JSON);
        end(&r);
    }
}

/* decode() checks that whatever is accepted is a valid file, though another:
 * a name, a value of the metadata and the order of equals may change. */
static void a_flipped_bit_is_refused_or_makes_another_valid_file(void **state)
{
    size_t header = 8 + strlen(SMALL);
    int refused = 0;

    (void)state;
    for (size_t bit = 0; bit < 8 * header; bit++) {
        struct reading r;

        fill(&r, SMALL, strlen(SMALL), SMALL_DATA);
        r.block[bit / 8] ^= (uint8_t)(1u << bit % 8);
        refused += !decode(&r);
        end(&r);
    }
    assert_true(refused > (int)(7 * header));
}

static void any_alignment_of_the_file_reads_the_same(void **state)
{
    (void)state;
    for (size_t shift = 0; shift < 8; shift++) {
        struct reading full, r;

        fill(&full, SMALL, strlen(SMALL), SMALL_DATA);
        begin(&r, shift + full.file.len);
        memcpy(r.block + shift, full.block, full.file.len);
        r.file = (struct bytes){ r.block + shift, full.file.len };
        assert_true(decode(&r));
        assert_memory_equal(r.out.tensor[0].data, "\1\2\3\4", 4);
        end(&r);
        end(&full);
    }
}

/* A header of many equal pieces with a number in each, opened and closed. */
static void fill_repeated(struct reading *r, const char *open,
                          const char *piece, const char *close, int count)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    assert_non_null(out);
    fputs(open, out);
    for (int i = 0; i < count; i++) {
        for (const char *c = piece; *c != '\0'; c++) {
            if (*c == '#')
                fprintf(out, "%d", i);
            else
                fputc(*c, out);
        }
    }
    fputs(close, out);
    fclose(out);
    fill(r, text, len, 0);
    free(text);
}

static void memory_is_bounded_by_the_header_whatever_it_says(void **state)
{
    static const struct {
        const char *open, *piece, *close;
        bool good;
    } rows[] = {
        { "{", "\"#\":" T("U8", "[0]", 0, 0) ",",
          "\"\":" T("U8", "[0]", 0, 0) "}", true },
        { "{\"__metadata__\":{", "\"#\":\"\",", "\"\":\"\"}}", true },
        { "{\"__metadata__\":{\"", "\\u00e9", "\":\"\"}}", true },
        { "{\"x\":{\"shape\":[", "0,", "0]}}", false },
        { "{\"x\":", "[", "", false },
        { "{", "\"\":{},", "", false },
        { "{", "\"\":[{", "", false },
        { "", "{\"a\":", "", false },
        { "{\"", "\\", "\"}", false },
        { "{", "\"", "", false },
        { "{", " ", "}", true },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct reading r;

        fill_repeated(&r, rows[i].open, rows[i].piece, rows[i].close, 100000);
        assert_int_equal(decode(&r), rows[i].good);
        assert_true(r.arena.held_bytes < 24 * r.file.len + 65536);
        end(&r);
    }
}

static void without_memory_it_says_so(void **state)
{
    bool good = false;

    (void)state;
    for (size_t cap = 0; !good; cap += 512) {
        struct reading r;

        fill(&r, SMALL, strlen(SMALL), SMALL_DATA);
        r.arena.cap_bytes = cap;
        good = decode(&r);
        if (!good)
            assert_int_equal(r.err.code, ERR_OVERLOADED);
        end(&r);
    }
}

static void a_long_name_is_cut_in_the_sentence_between_characters(void **state)
{
    struct reading r;

    (void)state;
    fill_repeated(&r, "{\"x", "\xC3\xA9", "\":{}}", 1000);
    assert_false(decode(&r));
    assert_non_null(strstr(r.err.text, "\xC3\xA9\" has no dtype"));
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_file_is_a_list_of_views),
        cmocka_unit_test(metadata_is_found_by_its_key),
        cmocka_unit_test(every_dtype_of_the_format_has_its_size),
        cmocka_unit_test(valid_files_of_odd_forms_are_accepted),
        cmocka_unit_test(what_has_no_view_is_listed_all_the_same),
        cmocka_unit_test(a_view_has_the_shape_and_the_bytes),
        cmocka_unit_test(each_kind_of_damage_is_refused_with_its_reason),
        cmocka_unit_test(a_length_that_cannot_be_is_refused),
        cmocka_unit_test(a_file_cut_at_any_byte_is_refused),
        cmocka_unit_test(a_header_that_ends_anywhere_is_refused),
        cmocka_unit_test(a_flipped_bit_is_refused_or_makes_another_valid_file),
        cmocka_unit_test(any_alignment_of_the_file_reads_the_same),
        cmocka_unit_test(memory_is_bounded_by_the_header_whatever_it_says),
        cmocka_unit_test(without_memory_it_says_so),
        cmocka_unit_test(a_long_name_is_cut_in_the_sentence_between_characters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
