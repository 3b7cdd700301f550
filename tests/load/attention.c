#include "tests/load/attention.h"

#include "tests/load/options.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_BYTES = 64 << 20, NUMBER_BYTES = 10 };

static double next_number(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(*state >> 32) * 0x1p-30 - 2; /* -2 to 2 */
}

bool attention_write(const char *shape, struct body *body)
{
    unsigned rows, width, heads;
    uint64_t state = 1;
    size_t size, at;
    char end;

    if (sscanf(shape, "%5ux%5ux%5u%c", &rows, &width, &heads, &end) != 3 ||
        rows < 1 || width < 1 || heads < 1 || width % heads != 0 ||
        (size_t)rows * width > MOST_BYTES / NUMBER_BYTES)
        return false;
    size = (size_t)rows * width * NUMBER_BYTES + 256;
    body->bytes = malloc(size);
    if (body->bytes == NULL)
        return false;
    at = (size_t)snprintf(body->bytes, size,
                          "{\"num_heads\": %u, \"need_weights\": false, "
                          "\"query\": {\"shape\": [1, %u, %u], \"data\": [",
                          heads, rows, width);
    for (size_t i = 0; i < (size_t)rows * width; i++)
        at += (size_t)snprintf(body->bytes + at, size - at, "%s%.5f",
                               i == 0 ? "" : ",", next_number(&state));
    at += (size_t)snprintf(body->bytes + at, size - at, "]}}");
    body->len = at;
    return true;
}
