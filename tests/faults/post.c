#include "tests/faults/post.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

char *post_text(const char *headers, const void *body, size_t len,
                size_t *total)
{
    size_t size = strlen(headers) + len + 256, at;
    char *text = malloc(size);

    assert_non_null(text);
    at = (size_t)snprintf(text, size, POST_JSON "%sContent-Length: %zu\r\n\r\n",
                          headers, len);
    memcpy(text + at, body, len);
    text[at + len] = '\0';
    *total = at + len;
    return text;
}

char *post_body(int rows, int width, const char *members)
{
    size_t count = (size_t)rows * (size_t)width;
    size_t size = count * 3 + strlen(members) + 128, at;
    char *text = malloc(size);

    assert_non_null(text);
    at = (size_t)snprintf(text, size, "{%s\"query\": {\"shape\": [%d, %d], "
                                      "\"data\": [", members, rows, width);
    for (size_t i = 0; i < count; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%zu",
                               i == 0 ? "" : ",", i * 7919 % 97);
    snprintf(text + at, size - at, "]}}");
    return text;
}
