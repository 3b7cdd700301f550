#ifndef SERVER_COST_H
#define SERVER_COST_H

#include <stddef.h>
#include <stdint.h>

/* What a request will cost a worker, guessed from the length of its body.
 *
 * The same client tends to send the same kind of request, so requests of about
 * one length cost about the same; where two kinds share a length the guess is
 * their mean. It decides who may wait, never who is computed: a wrong guess
 * costs time, not an answer. No lock of its own. */
enum { COST_KINDS = 256 };

struct cost {
    int64_t ns[COST_KINDS]; /* worker time; 0: none of this length was seen */
};

/* 0 when nothing is known. */
int64_t cost_guess(const struct cost *cost, size_t body_len);

void cost_learn(struct cost *cost, size_t body_len, int64_t ns);

#endif
