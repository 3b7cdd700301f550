#ifndef API_MESSAGE_H
#define API_MESSAGE_H

#include "core/mha.h"

/* What a request asks and what a reply says, between bytes and meaning. Plain
 * structs: decode fills a request, encode reads a response, neither keeps
 * anything. */

/* How tensors are spelled in JSON. */
enum encoding { ENCODING_NESTED, ENCODING_FLAT, ENCODING_BASE64 };

/* A model's name is shorter: one that was cut is the name of none. */
enum { REQUEST_NAME_BYTES = 80 };

struct request {
    struct mha_request mha;
    /* With mha.has_model. Who holds the models finds mha.model by these, or
     * says why not in mha.model_flaw. */
    char model[REQUEST_NAME_BYTES];
    int64_t layer;
    enum encoding response_format; /* the query's own unless given */
    bool profile;
};

/* What the server adds to a computed response. Times are of this request. */
struct response {
    const struct mha_response *mha;
    const char *kernels; /* name of the set that ran */
    int64_t decode_ns;
    struct parallel *parallel; /* helps with long texts; NULL: nobody does, and
                                  they take a twentieth less of one thread */
};

/* The bounds of one request; from the configuration. */
struct limits {
    int64_t response_bytes;
    double request_flops;
};

#endif
