#ifndef TESTS_FAULTS_POST_H
#define TESTS_FAULTS_POST_H

#include <stddef.h>

/* Requests as texts, for tests that send them by hand. The caller frees what it
 * gets; no memory fails the running test. */

#define POST_JSON                                                              \
    "POST /attention HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
#define POST_SMALL "{\"query\": [[1, 2]]}" /* 19 bytes, a request */

/* The whole request around `len` bytes of body; its length in *total. With
 * `headers` beside the usual ones, each with its CR LF. */
char *post_text(const char *headers, const void *body, size_t len,
                size_t *total);

/* A body whose query is `rows` x `width` of small numbers, with these members
 * before it, each with its comma; "" for none. */
char *post_body(int rows, int width, const char *members);

#endif
