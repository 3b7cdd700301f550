#ifndef TESTS_LOAD_ATTENTION_H
#define TESTS_LOAD_ATTENTION_H

#include <stdbool.h>

struct body;

/* A request for POST /attention out of nothing but its shape: `LxExH` is one
 * batch of L queries of width E in H heads, self-attention without weights in
 * the answer. The numbers look like activations and are the same each time.
 * False, and no body, when it is no such shape or would be over 64 MB. */
bool attention_write(const char *shape, struct body *body);

#endif
