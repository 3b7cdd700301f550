#ifndef TESTS_FUZZ_HTTP_LENGTH_H
#define TESTS_FUZZ_HTTP_LENGTH_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* libFuzzer's; not there in a replay, which mutates nothing. */
__attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t *data, size_t len,
                                              size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t len, size_t room,
                               unsigned seed);

/* Has the last Content-Length say how long the body is: of a body that is as
 * long as before by chance alone, nothing is learnt. */
static inline size_t repair_length(uint8_t *data, size_t len, size_t room)
{
    static const char name[] = "Content-Length: ";
    uint8_t *at = NULL, *next = data, *body, *end;
    char digits[24];
    size_t new_len;
    int n;

    while ((next = memmem(next, len - (size_t)(next - data), name,
                          sizeof name - 1)) != NULL)
        at = next += sizeof name - 1;
    if (at == NULL || (end = memchr(at, '\r', len - (size_t)(at - data))) == NULL)
        return len;
    body = memmem(end, len - (size_t)(end - data), "\r\n\r\n", 4);
    if (body == NULL)
        return len;
    n = snprintf(digits, sizeof digits, "%zu",
                 len - (size_t)(body + 4 - data));
    new_len = len - (size_t)(end - at) + (size_t)n;
    if (new_len > room)
        return len;
    memmove(at + n, end, len - (size_t)(end - data));
    memcpy(at, digits, (size_t)n);
    return new_len;
}

/* Three times of four: the rest are to disagree. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t len, size_t room,
                               unsigned seed)
{
    len = LLVMFuzzerMutate(data, len, room);
    return seed % 4 == 0 ? len : repair_length(data, len, room);
}

#endif
