#ifndef CORE_ATTENTION_SOFTMAX_H
#define CORE_ATTENTION_SOFTMAX_H

#include "core/attention_row.h"

/* The softmax of an F32 row, by the kernels: from scale * q . k to exp(score -
 * maximum), with what lies between. It says where float32 ends and leaves the
 * row to attention_row there. */
enum attention_softmax {
    SOFTMAX_LIVE,      /* done */
    SOFTMAX_DEAD,      /* no key is visible; the parts hold nothing of use */
    SOFTMAX_SHIFT,     /* the masks on every visible key are so large that they
                          swallow a float's bits: again, from scale * q . k,
                          with *shift as it is now taken off them */
    SOFTMAX_IN_DOUBLE, /* a visible score is not finite, or the masks are so
                          large that a shift would say more than doubles */
};

/* *shift is 0 at first, and what SOFTMAX_SHIFT left there when it is called
 * again; scores are stored the first time, where asked, before anything is taken
 * off. For a live row stores lse where asked, leaves exp(score - max) after
 * dropout in `seen` and `appended`, and in *factor what makes weights of them,
 * or output of their product with V. What a mask hides has no say in any of
 * it. */
enum attention_softmax attention_softmax_row(const struct attention *a,
                                             const struct kernels *kernels,
                                             const struct attention_row *row,
                                             float *seen, float *appended,
                                             double *shift, float *factor);

#endif
