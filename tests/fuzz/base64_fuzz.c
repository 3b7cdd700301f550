/* Any bytes as base64 and as what it is made from; the first says how far from
 * alignment both lie. Properties, at every level that the processor has:
 *   - nothing is read or written out of place (the sanitizer says);
 *   - a text is decoded, or refused at a character, as a plain reader does it;
 *   - bytes are written as the plain reader wants them, and read back. */

#include "api/base64.h"
#include "api/number_array.h"
#include "core/cpu.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { MOST_OFFSET = 64 };

/* `bytes` bytes at an odd place, with nothing behind them. */
struct block {
    uint8_t *base, *data;
};

static struct block block_new(size_t offset, const void *from, size_t bytes)
{
    uint8_t *base = malloc(offset + bytes);

    assert(base != NULL || offset + bytes == 0);
    if (from != NULL && bytes > 0)
        memcpy(base + offset, from, bytes);
    return (struct block){ base, base + offset };
}

/* -1: none. */
static int plain_value(int c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* The place of the first character that can't stand where it does, or all. */
static size_t decode_plainly(const uint8_t *text, size_t bytes, uint8_t *out)
{
    size_t characters = (bytes * 8 + 5) / 6, at = 0;
    unsigned bits = 0, count = 0;

    for (size_t i = 0; i < characters; i++) {
        int value = plain_value(text[i]);

        if (value < 0)
            return i;
        bits = bits << 6 | (unsigned)value;
        count += 6;
        if (count >= 8) {
            count -= 8;
            out[at++] = (uint8_t)(bits >> count);
        }
    }
    if ((bits & ((1u << count) - 1)) != 0)
        return characters - 1;
    while (characters % 4 != 0 && text[characters] == '=')
        characters++;
    return characters % 4 == 0 ? base64_length(bytes) : characters;
}

static void check_decoding(const uint8_t *text, size_t bytes, size_t offset)
{
    size_t characters = base64_length(bytes);
    struct block from = block_new(offset, text, characters);
    struct block want = block_new(0, NULL, bytes);
    struct block got = block_new(offset, NULL, bytes);
    size_t wrong = decode_plainly(text, bytes, want.data);
    const char *end = base64_decode((const char *)from.data, bytes, got.data);

    assert((end == NULL) == (wrong == characters));
    assert(end == NULL || end == (const char *)from.data + wrong);
    assert(end != NULL || memcmp(got.data, want.data, bytes) == 0);
    free(from.base);
    free(want.base);
    free(got.base);
}

static void check_encoding(const uint8_t *data, size_t bytes, size_t offset)
{
    size_t characters = base64_length(bytes);
    struct block from = block_new(offset, data, bytes);
    struct block text = block_new(offset, NULL, characters);
    struct block back = block_new(0, NULL, bytes);

    assert(base64_encode(from.data, bytes, (char *)text.data) == characters);
    assert(decode_plainly(text.data, bytes, back.data) == characters);
    assert(memcmp(back.data, data, bytes) == 0);
    assert(base64_decode((const char *)text.data, bytes, back.data) == NULL);
    assert(memcmp(back.data, data, bytes) == 0);
    free(from.base);
    free(text.base);
    free(back.base);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const char *const levels[] = { "portable", "avx2", "avx512" };
    static uint32_t features; /* asked for once: a hypervisor makes it slow */
    size_t offset, bytes;

    if (len == 0)
        return 0;
    if (features == 0)
        features = cpu_features();
    offset = data[0] % MOST_OFFSET;
    bytes = (len - 1) / 4 * 3;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        /* Not above what the processor has. */
        assert(number_select(features, levels[i]));
        assert(base64_select(number_selected()));
        for (size_t less = 0; less < 3 && less < bytes; less++)
            check_decoding(data + 1, bytes - less, offset);
        check_encoding(data + 1, len - 1, offset);
    }
    return 0;
}
