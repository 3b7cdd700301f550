#ifndef TESTS_FUZZ_SAFETENSORS_MUTATOR_H
#define TESTS_FUZZ_SAFETENSORS_MUTATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A safetensors file that was mutated has a length in front that no longer is
 * its header's, and data of another size: nothing else of it would be read. */

/* libFuzzer's; not there in a replay, which mutates nothing. */
__attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t *data, size_t len,
                                              size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t len, size_t room,
                               unsigned seed);

/* Behind the object that begins at `at`, or `end`. */
static inline const uint8_t *behind_object(const uint8_t *at, const uint8_t *end)
{
    bool in_string = false;
    int depth = 0;

    for (; at < end; at++) {
        if (*at == '"')
            in_string = !in_string;
        if (in_string)
            continue;
        depth += (*at == '{') - (*at == '}');
        if (depth == 0)
            return at + 1;
    }
    return end;
}

/* The last byte of data that the header speaks of: the second offset that is
 * largest. */
static inline size_t announced_bytes(const uint8_t *header, const uint8_t *end)
{
    static const char name[] = "\"data_offsets\":[";
    size_t most = 0;

    while ((header = memmem(header, (size_t)(end - header), name,
                            sizeof name - 1)) != NULL) {
        size_t bytes = 0;

        header += sizeof name - 1;
        while (header < end && *header != ',' && *header != '}')
            header++;
        for (header++; header < end && *header >= '0' && *header <= '9' &&
                       bytes < 100000;
             header++)
            bytes = bytes * 10 + (size_t)(*header - '0');
        most = bytes > most ? bytes : most;
        if (header >= end)
            break;
    }
    return most;
}

static inline size_t repair_file(uint8_t *data, size_t len, size_t room)
{
    const uint8_t *end = behind_object(data + 8, data + len);
    uint64_t header = (uint64_t)(end - (data + 8));
    size_t want = 8 + header + announced_bytes(data + 8, end);

    memcpy(data, &header, sizeof header);
    if (want > room)
        return len;
    if (want > len)
        memset(data + len, 0, want - len);
    return want;
}

/* Seven times of eight: the rest are to disagree. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t len, size_t room,
                               unsigned seed)
{
    len = LLVMFuzzerMutate(data, len, room);
    return seed % 8 == 0 || len < 10 ? len : repair_file(data, len, room);
}

#endif
