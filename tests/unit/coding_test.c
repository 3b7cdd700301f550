#include "api/coding.h"

#include "tests/unit/allocations.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>
#include <zstd.h>

static const enum coding codings[] = { CODING_GZIP, CODING_ZSTD };

#define FOR_EACH_CODING(i) \
    for (size_t i = 0; i < sizeof codings / sizeof *codings; i++)

enum { TEXT_BYTES = 5000, LARGE_BYTES = 1 << 20 };

/* Numbers, as replies have them. */
static size_t write_text(char *out, size_t size)
{
    size_t at = 0;

    for (unsigned x = 1; at + 16 < size; x = x * 1664525 + 1013904223)
        at += (size_t)snprintf(out + at, 16, "0.%u,", x >> 4);
    return at;
}

/* A packed text in a block of exactly its size. */
struct packed {
    char text[TEXT_BYTES];
    size_t text_len;
    uint8_t *data;
    size_t len;
};

static void pack(struct packed *p, enum coding coding)
{
    struct buffer out;
    struct bytes text;
    void *data;

    p->text_len = write_text(p->text, sizeof p->text);
    text = (struct bytes){ (const uint8_t *)p->text, p->text_len };
    buffer_init(&out, SIZE_MAX);
    assert_true(coding_pack(coding, text, true, &out));
    data = buffer_take(&out, &p->len);
    p->data = realloc(data, p->len);
}

/* Unpacks in rooms of `room` bytes. */
static enum coding_state unpack(enum coding coding, const uint8_t *data,
                                size_t len, size_t room, char *out,
                                size_t *out_len, struct error *err)
{
    enum coding_state state = CODING_MORE;
    struct unpacking u;

    *err = (struct error){ ERR_NONE };
    *out_len = 0;
    if (!coding_open(&u, coding, (struct bytes){ data, len }, err))
        return CODING_BAD;
    while (state == CODING_MORE) {
        size_t n;

        assert_true(*out_len <= LARGE_BYTES);
        state = coding_read(&u, (uint8_t *)out + *out_len, room, &n, err);
        assert_true(n <= room && (n == room || state != CODING_MORE));
        *out_len += n;
    }
    coding_close(&u);
    assert_int_equal(state == CODING_END, err->code == ERR_NONE);
    return state;
}

static char unpacked[2 * LARGE_BYTES];

static void what_is_packed_unpacks_in_rooms_of_any_size(void **state)
{
    static const size_t rooms[] = { 1, 2, 7, 100, TEXT_BYTES - 1, TEXT_BYTES,
                                    LARGE_BYTES };

    (void)state;
    FOR_EACH_CODING(i) {
        struct packed p;

        pack(&p, codings[i]);
        assert_true(p.len < p.text_len);
        for (size_t j = 0; j < sizeof rooms / sizeof *rooms; j++) {
            struct error err;
            size_t len;

            assert_int_equal(unpack(codings[i], p.data, p.len, rooms[j],
                                    unpacked, &len, &err), CODING_END);
            assert_int_equal(len, p.text_len);
            assert_memory_equal(unpacked, p.text, len);
        }
        free(p.data);
    }
}

static void check_bad(enum coding coding, const uint8_t *data, size_t len,
                      const char *text)
{
    uint8_t *block = malloc(len);
    struct error err;
    size_t out;

    assert_true(block != NULL || len == 0);
    if (len > 0)
        memcpy(block, data, len);
    assert_int_equal(unpack(coding, block, len, LARGE_BYTES, unpacked, &out,
                            &err), CODING_BAD);
    assert_int_equal(err.code, ERR_REQUEST);
    assert_string_equal(err.where, "");
    if (strstr(err.text, text) == NULL)
        fail_msg("%s instead of %s", err.text, text);
    free(block);
}

static void a_body_that_is_cut_anywhere_is_refused(void **state)
{
    (void)state;
    FOR_EACH_CODING(i) {
        struct packed p;

        pack(&p, codings[i]);
        for (size_t len = 0; len < p.len; len++)
            check_bad(codings[i], p.data, len,
                      codings[i] == CODING_ZSTD && len < 4 ? "begin"
                                                           : "too early");
        free(p.data);
    }
}

static void one_body_is_one_member_and_nothing_behind_it(void **state)
{
    (void)state;
    FOR_EACH_CODING(i) {
        struct packed p;
        uint8_t *twice;

        pack(&p, codings[i]);
        twice = malloc(2 * p.len);
        memcpy(twice, p.data, p.len);
        memcpy(twice + p.len, p.data, p.len);
        check_bad(codings[i], twice, 2 * p.len, "follows its end");
        check_bad(codings[i], twice, p.len + 1, "follows its end");
        twice[p.len] = 0;
        check_bad(codings[i], twice, p.len + 1, "follows its end");
        free(twice);
        free(p.data);
    }
}

/* gzip always has a checksum. Where zstd has none, other bytes may be another
 * body; but reading them ends. */
static void a_damaged_byte_is_noticed(void **state)
{
    (void)state;
    FOR_EACH_CODING(i) {
        struct packed p;

        pack(&p, codings[i]);
        for (size_t at = 0; at < p.len; at++) {
            struct error err;
            size_t len;

            p.data[at] ^= 0x10;

            enum coding_state end = unpack(codings[i], p.data, p.len,
                                           LARGE_BYTES, unpacked, &len, &err);

            p.data[at] ^= 0x10;
            if (codings[i] == CODING_GZIP && end == CODING_END &&
                (len != p.text_len || memcmp(unpacked, p.text, len) != 0))
                fail_msg("gzip, byte %zu", at);
        }
        free(p.data);
    }
}

static void checksum_and_length_are_looked_at(void **state)
{
    struct packed p;

    (void)state;
    pack(&p, CODING_GZIP);
    p.data[p.len - 1]++;
    check_bad(CODING_GZIP, p.data, p.len, "incorrect length check");
    p.data[p.len - 1]--;
    p.data[p.len - 5]++;
    check_bad(CODING_GZIP, p.data, p.len, "incorrect data check");
    free(p.data);

    uint8_t packed[TEXT_BYTES];
    ZSTD_CCtx *z = ZSTD_createCCtx();
    size_t len;

    ZSTD_CCtx_setParameter(z, ZSTD_c_checksumFlag, 1);
    len = ZSTD_compress2(z, packed, sizeof packed, "some text", 9);
    ZSTD_freeCCtx(z);
    packed[len - 1]++;
    check_bad(CODING_ZSTD, packed, len, "checksum");
}

static void what_only_looks_like_it_is_refused(void **state)
{
    static const struct {
        enum coding coding;
        const char *bytes;
        size_t len;
        const char *text;
    } rows[] = {
        { CODING_GZIP, "{\"query\": [[1]]}", 16, "incorrect header check" },
        { CODING_ZSTD, "{\"query\": [[1]]}", 16, "begin" },
        /* zlib's wrapping, which is `deflate`'s; a raw one; a bad method */
        { CODING_GZIP, "\x78\x9c\x03\x00\x00\x00\x00\x01", 8,
          "incorrect header" },
        { CODING_GZIP, "\x1f\x8b\x07\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0", 20,
          "compression method" },
        { CODING_GZIP, "\x1f\x8b\x08\xe0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0", 20,
          "flags" },
        /* A frame to be skipped, zstd 0.1 and 0.7, the other coding */
        { CODING_ZSTD, "\x50\x2a\x4d\x18\x00\x00\x00\x00", 8, "begin" },
        { CODING_ZSTD, "\x1e\xb5\x2f\xfd\x00\x00\x00\x00", 8, "begin" },
        { CODING_ZSTD, "\x27\xb5\x2f\xfd\x00\x00\x00\x00", 8, "begin" },
        { CODING_ZSTD, "\x1f\x8b\x08\0\0\0\0\0\0\0", 10, "begin" },
        /* A frame of nothing that says it is 96 bytes long */
        { CODING_ZSTD, "\x28\xb5\x2f\xfd\x24\x60\1\0\0\x99\xe9\xd8\x51", 13,
          "" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_bad(rows[i].coding, (const uint8_t *)rows[i].bytes, rows[i].len,
                  rows[i].text);
}

/* RFC 9659: no window over 8 MiB in HTTP. */
static void a_window_that_takes_more_memory_is_refused(void **state)
{
    static char text[TEXT_BYTES];
    uint8_t packed[2 * TEXT_BYTES];

    (void)state;
    write_text(text, sizeof text);
    for (int log = 23; log <= 24; log++) {
        ZSTD_CCtx *z = ZSTD_createCCtx();
        ZSTD_inBuffer in = { text, sizeof text, 0 };
        ZSTD_outBuffer out = { packed, sizeof packed, 0 };
        struct error err;
        size_t len;

        ZSTD_CCtx_setParameter(z, ZSTD_c_windowLog, log);
        /* In two steps, so that the length is not known at the start. */
        ZSTD_compressStream2(z, &out, &in, ZSTD_e_flush);
        assert_int_equal(ZSTD_compressStream2(z, &out, &in, ZSTD_e_end), 0);
        ZSTD_freeCCtx(z);
        assert_int_equal(coding_announced(
            CODING_ZSTD, (struct bytes){ packed, out.pos }), 0);
        if (log == 24)
            check_bad(CODING_ZSTD, packed, out.pos, "memory");
        else
            assert_int_equal(unpack(CODING_ZSTD, packed, out.pos, 100, unpacked,
                                    &len, &err), CODING_END);
    }
}

/* The n-th allocation and all behind it, for every n: never the body's fault. */
static void without_memory_a_sound_body_is_not_called_damaged(void **state)
{
    (void)state;
    if (!COUNTS_ALLOCATIONS)
        skip();
    FOR_EACH_CODING(i) {
        struct packed p;
        bool whole = false;
        int n;

        pack(&p, codings[i]);
        for (n = 1; !whole; n++) {
            struct error err;
            size_t len;

            allocations = 0;
            fails_at = n;
            whole = unpack(codings[i], p.data, p.len, LARGE_BYTES, unpacked,
                           &len, &err) == CODING_END;
            fails_at = 0;
            if (!whole && err.code != ERR_OVERLOADED)
                fail_msg("%s, allocation %d: %s", coding_name(codings[i]), n,
                         err.text);
        }
        assert_true(n > 2);
        free(p.data);
    }
}

static void without_memory_a_text_goes_as_it_is(void **state)
{
    static char text[TEXT_BYTES];
    const struct bytes body = { (const uint8_t *)text, sizeof text };

    (void)state;
    if (!COUNTS_ALLOCATIONS)
        skip();
    write_text(text, sizeof text);
    FOR_EACH_CODING(i) {
        bool packed = false;

        for (int n = 1; !packed; n++) {
            struct buffer out;

            buffer_init(&out, SIZE_MAX);
            allocations = 0;
            fails_at = n;
            packed = coding_pack(codings[i], body, true, &out);
            fails_at = 0;
            assert_int_equal(out.len > 0, packed);
            buffer_free(&out);
            assert_true(n < 100);
        }
    }
}

static void a_body_says_how_long_it_is_unless_that_can_not_be(void **state)
{
    static const uint8_t lies[] = { 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0,
                                    3,    0,    0, 0, 0, 0, 0, 0, 0, 0x40 };

    (void)state;
    FOR_EACH_CODING(i) {
        struct packed p;

        pack(&p, codings[i]);
        assert_int_equal(coding_announced(codings[i],
                                          (struct bytes){ p.data, p.len }),
                         p.text_len);
        assert_int_equal(coding_announced(codings[i],
                                          (struct bytes){ p.data, 3 }), 0);
        free(p.data);
    }
    assert_int_equal(coding_announced(CODING_GZIP,
                                      (struct bytes){ lies, sizeof lies }), 0);
}

static void what_does_not_shrink_goes_as_it_is(void **state)
{
    uint8_t noise[300];
    unsigned x = 1;

    (void)state;
    for (size_t i = 0; i < sizeof noise; i++) {
        x = x * 1664525 + 1013904223;
        noise[i] = (uint8_t)(x >> 24);
    }
    FOR_EACH_CODING(i)
        for (int numbers = 0; numbers < 2; numbers++) {
            struct buffer out;

            buffer_init(&out, SIZE_MAX);
            buffer_string(&out, "before");
            assert_false(coding_pack(codings[i],
                                     (struct bytes){ noise, sizeof noise },
                                     numbers, &out));
            assert_int_equal(out.len, 6);
            buffer_free(&out);
        }
}

static void a_large_text_is_packed_whole(void **state)
{
    char *text = malloc(LARGE_BYTES);
    size_t text_len = write_text(text, LARGE_BYTES);

    (void)state;
    FOR_EACH_CODING(i)
        for (int numbers = 0; numbers < 2; numbers++) {
            struct buffer out;
            struct error err;
            size_t len;

            buffer_init(&out, SIZE_MAX);
            assert_true(coding_pack(
                codings[i], (struct bytes){ (uint8_t *)text, text_len },
                numbers, &out));
            assert_int_equal(unpack(codings[i], out.data, out.len, 4096,
                                    unpacked, &len, &err), CODING_END);
            assert_int_equal(len, text_len);
            assert_memory_equal(unpacked, text, len);
            buffer_free(&out);
        }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_packed_unpacks_in_rooms_of_any_size),
        cmocka_unit_test(a_body_that_is_cut_anywhere_is_refused),
        cmocka_unit_test(one_body_is_one_member_and_nothing_behind_it),
        cmocka_unit_test(a_damaged_byte_is_noticed),
        cmocka_unit_test(checksum_and_length_are_looked_at),
        cmocka_unit_test(what_only_looks_like_it_is_refused),
        cmocka_unit_test(a_window_that_takes_more_memory_is_refused),
        cmocka_unit_test(without_memory_a_sound_body_is_not_called_damaged),
        cmocka_unit_test(without_memory_a_text_goes_as_it_is),
        cmocka_unit_test(a_body_says_how_long_it_is_unless_that_can_not_be),
        cmocka_unit_test(what_does_not_shrink_goes_as_it_is),
        cmocka_unit_test(a_large_text_is_packed_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
