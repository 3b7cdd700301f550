/* Any bytes as a packed body, the first of them saying how. Properties:
 *   - nothing is read or written out of place (the sanitizer says), and it ends;
 *   - how it ends, and what was read, does not depend on the room for each step;
 *   - a refusal is one of the body's;
 *   - the bytes themselves, packed, unpack to themselves. */

#include "api/coding.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { MOST_BYTES = 1 << 13 };

struct result {
    enum coding_state state;
    size_t len;
    uint8_t bytes[MOST_BYTES];
};

static void unpack(enum coding coding, struct bytes body, size_t room,
                   struct result *result)
{
    struct error err = { ERR_NONE };
    struct unpacking u;

    result->len = 0;
    result->state = CODING_MORE;
    if (!coding_open(&u, coding, body, &err)) {
        assert(err.code == ERR_REQUEST);
        result->state = CODING_BAD;
        return;
    }
    while (result->state == CODING_MORE && result->len < MOST_BYTES) {
        size_t rest = MOST_BYTES - result->len, len;

        result->state = coding_read(&u, result->bytes + result->len,
                                    room < rest ? room : rest, &len, &err);
        assert(len <= room && len <= rest);
        result->len += len;
    }
    coding_close(&u);
    assert((result->state == CODING_BAD) == (err.code == ERR_REQUEST));
    assert(err.code == ERR_NONE || err.code == ERR_REQUEST);
}

static void check_same(const struct result *a, const struct result *b)
{
    /* At our limit, the other may have seen what comes behind it. */
    assert(a->state == b->state || a->len == MOST_BYTES ||
           b->len == MOST_BYTES);
    /* Where it goes bad, one may have read further than the other. */
    assert(a->state == CODING_BAD || b->state == CODING_BAD || a->len == b->len);
    assert(memcmp(a->bytes, b->bytes, a->len < b->len ? a->len : b->len) == 0);
}

static void check_packed(enum coding coding, struct bytes text, bool numbers,
                         struct result *result)
{
    struct buffer out;

    buffer_init(&out, SIZE_MAX);
    if (coding_pack(coding, text, numbers, &out)) {
        assert(out.len <= text.len);
        unpack(coding, (struct bytes){ out.data, out.len }, 4096, result);
        assert(result->state == CODING_END && result->len == text.len);
        assert(memcmp(result->bytes, text.data, text.len) == 0);
    }
    buffer_free(&out);
}

/* A zstd frame whose window would be taken and is over 128 KiB: of all that is
 * done then, most is the sanitizer's work on that memory. Unit tests have them. */
static bool has_large_window(struct bytes body)
{
    enum { SINGLE_SEGMENT = 0x20, LEAST = 17, MOST = 23 };
    int window_log;

    if (body.len < 6 || memcmp(body.data, "\x28\xb5\x2f\xfd", 4) != 0 ||
        (body.data[4] & SINGLE_SEGMENT) != 0)
        return false;
    window_log = 10 + (body.data[5] >> 3);
    return window_log >= LEAST && window_log <= MOST;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct result first, again;
    struct bytes body = { data + 1, len - 1 };
    enum coding coding;

    if (len < 2)
        return 0;
    coding = data[0] & 1 ? CODING_GZIP : CODING_ZSTD;
    if (coding == CODING_ZSTD && has_large_window(body))
        return 0;
    unpack(coding, body, MOST_BYTES, &first);
    unpack(coding, body, 1 + data[0] / 2 * 13u, &again);
    check_same(&first, &again);
    if (body.len < MOST_BYTES && (data[0] & 0x18) == 0) /* it takes longest */
        check_packed(coding, body, data[0] & 2, &first);
    return 0;
}
