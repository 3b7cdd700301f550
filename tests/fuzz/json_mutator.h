#ifndef TESTS_FUZZ_JSON_MUTATOR_H
#define TESTS_FUZZ_JSON_MUTATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Puts a whole value of a text in place of another, so that what comes out may
 * still be JSON, and tensors of another rank or kind stand where some stood. */

/* libFuzzer's; not there in a replay, which mutates nothing. */
__attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t *data, size_t len,
                                              size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t len, size_t room,
                               unsigned seed);

struct json_piece {
    size_t at, len;
};

static inline size_t value_length(const uint8_t *text, size_t len)
{
    bool in_string = false;
    int depth = 0;

    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"')
            in_string = !in_string;
        if (in_string)
            continue;
        depth += text[i] == '[' || text[i] == '{';
        if (depth == 0 && (text[i] == ',' || text[i] == ']' || text[i] == '}'))
            return i;
        depth -= text[i] == ']' || text[i] == '}';
    }
    return len;
}

/* The value, or member, that begins behind the first `[`, `{`, `,` or `:` from
 * `from` on, or nothing. */
static inline struct json_piece value_from(const uint8_t *text, size_t len,
                                           size_t from)
{
    while (from < len && memchr("[{,:", text[from], 4) == NULL)
        from++;
    if (from >= len)
        return (struct json_piece){ len, 0 };
    return (struct json_piece){ from + 1,
                                value_length(text + from + 1, len - from - 1) };
}

static inline size_t replace_value(uint8_t *data, size_t len, size_t room,
                                   unsigned seed)
{
    struct json_piece from = value_from(data, len, seed / 2 % len);
    struct json_piece to = value_from(data, len, seed / 2 / len % len);
    size_t behind = to.at + to.len;
    uint8_t *copy;

    if (from.len == 0 || len - to.len + from.len > room)
        return LLVMFuzzerMutate(data, len, room);
    copy = malloc(from.len);
    if (copy == NULL)
        return len;
    memcpy(copy, data + from.at, from.len);
    memmove(data + to.at + from.len, data + behind, len - behind);
    memcpy(data + to.at, copy, from.len);
    free(copy);
    return len - to.len + from.len;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t len, size_t room,
                               unsigned seed)
{
    if (seed % 2 == 0 || len == 0)
        return LLVMFuzzerMutate(data, len, room);
    return replace_value(data, len, room, seed);
}

#endif
