/* Any bytes as a run of numbers, and as floats. Properties, at every level that
 * the processor has:
 *   - nothing is read or written out of place (the sanitizer says);
 *   - a run, or rows of 1 to 8 as the first byte says, gives what one number at
 *     a time gives, and ends there;
 *   - floats are written as one at a time writes them, and read back. */

#include "api/number_array.h"
#include "core/cpu.h"
#include "tests/unit/number_singly.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Of exactly its size. */
static void *block(size_t bytes)
{
    void *p = malloc(bytes);

    assert(p != NULL || bytes == 0);
    return p;
}

static void check_reading(const char *text, const char *end, size_t row,
                          bool wide)
{
    size_t room = (size_t)(end - text) / 2 + 1, size = wide ? 8 : 4;
    size_t count, want_count;
    void *got = block(room * size), *want = block(room * size);
    const char *behind =
        wide ? number_read_rows_f64(text, end, row, got, room, &count)
             : number_read_rows_f32(text, end, row, got, room, &count);

    assert(behind ==
           read_singly(text, end, row, wide, want, room, &want_count));
    assert(count == want_count && memcmp(got, want, count * size) == 0);
    free(got);
    free(want);
}

static void check_reading_back(const float *values, size_t count,
                               const char *text, const char *end)
{
    float *back = block(count * sizeof *back);

    for (size_t i = 0, n; i < count; i += n, text++) {
        if (!isfinite(values[i])) {
            assert(memcmp(text, "null", 4) == 0);
            text += 4;
            n = 1;
            continue;
        }
        text = number_read_run_f32(text, end, back, count - i, &n);
        assert(n > 0 && memcmp(values + i, back, n * sizeof *back) == 0);
    }
    free(back);
}

static void check_writing(const void *values, size_t count, bool wide)
{
    size_t most = count * (wide ? NUMBER_F64_BYTES : NUMBER_F32_BYTES);
    char *got = block(most), *want = block(most);
    char *end = wide ? number_write_run_f64(values, count, got)
                     : number_write_run_f32(values, count, got);
    char *want_end = write_singly(values, count, wide, want);

    assert(end - got == want_end - want);
    assert(memcmp(got, want, (size_t)(end - got)) == 0);
    if (!wide)
        check_reading_back(values, count, got, end);
    free(got);
    free(want);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const char *const levels[] = { "portable", "avx2", "avx512" };
    static uint32_t features; /* asked for once: a hypervisor makes it slow */
    size_t row = len > 0 ? data[0] % 9 : 0;
    double *values = block(len / 8 * 8);

    if (features == 0)
        features = cpu_features();
    if (len >= 8)
        memcpy(values, data, len / 8 * 8);
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        const char *text = (const char *)data, *end = text + len;

        assert(number_select(features, levels[i]));
        for (int wide = 0; wide < 2; wide++) {
            check_reading(text + (len > 0), end, row, wide);
            check_writing(values, len / 8 * (wide ? 1 : 2), wide);
        }
    }
    free(values);
    return 0;
}
