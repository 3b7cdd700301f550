#ifndef API_ACCEPT_H
#define API_ACCEPT_H

#include <stdbool.h>
#include <stddef.h>

/* A client's preferences, as Accept and Accept-Encoding list them (RFC 9110,
 * 12.4.2): "application/json;q=0.5, application/x-npy". What is served, and what
 * is done when nothing of it is wanted, is its reader's business. */
struct preference {
    int quality; /* q in thousandths; 0: not acceptable */
    int close;   /* 3: named as it is, 2: "type/" and a star, 1: all, 0: not */
    size_t place; /* which element of the list said so */
};

/* How much `header` (NULL: none came) wants `name`: the element that names it
 * most closely counts, the first of several. Case and parameters other than q
 * mean nothing; an element that is not well-formed is passed over. */
struct preference accept_find(const char *header, const char *name);

/* Whether `a` is to be chosen before `b`: the higher q, the closer name, the
 * earlier place. */
bool accept_is_better(struct preference a, struct preference b);

#endif
