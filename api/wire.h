#ifndef API_WIRE_H
#define API_WIRE_H

#include "api/message.h"
#include "core/buffer.h"

struct bytes {
    const uint8_t *data; /* not NUL-terminated */
    size_t len;
};

/* One format of request and reply bodies. The request's is picked by
 * Content-Type, the reply's by Accept; nothing else in the service is a table
 * of functions but core/kernels. */
struct wire_format {
    const char *media_type; /* "application/json" */
    bool output_alone; /* that is all a reply has */

    /* Body and query string (NULL: none) to a request. Views into the body
     * where layout allows, else memory from `arena`; both outlive the request.
     * `parallel` helps where it is worth it and changes nothing; NULL: nobody.
     * Errors: ERR_JSON, ERR_REQUEST (the body breaks its format's rules, a field
     * comes twice; where ""), ERR_UNKNOWN, ERR_MISSING, ERR_CONFLICT, ERR_TYPE,
     * ERR_RANGE, ERR_SHAPE (of a window), ERR_OVERLOADED (arena), ERR_TOO_LARGE
     * (more keys than can be checked for duplicates). Errors inside tensors wait
     * as flaws for mha_check(). */
    bool (*decode)(struct bytes body, const char *query,
                   struct parallel *parallel, struct arena *arena,
                   struct request *request, struct error *err);

    /* The most that decode() takes from its arena, but for a few KiB of options
     * and names; saturated. */
    int64_t (*need)(struct bytes body, const char *query);

    /* Takes the reply's memory in `out`, which is empty, and points the tensors
     * that mha_shape() told to where they will stand in it, so that they are
     * computed there. A failure is the buffer's. NULL: the format has them in
     * another form. */
    void (*place)(const struct request *request, struct mha_response *mha,
                  struct buffer *out);

    /* Appends the reply; a failure is the buffer's. */
    void (*encode)(const struct request *request, const struct mha_plan *plan,
                   const struct response *response, struct buffer *out);

    /* The most bytes that encode() can append, from the shapes alone. */
    int64_t (*bound)(const struct request *request,
                     const struct mha_plan *plan);
};

extern const struct wire_format wire_json, wire_safetensors, wire_npy;
extern const struct wire_format wire_vnd_safetensors; /* another media type */

/* By media type, case and parameters ignored ("; charset=utf-8"); NULL when it
 * is not served. */
const struct wire_format *wire_find(const char *media_type);

/* By an Accept header (NULL: none came): what it prefers of what is served, JSON
 * when it wants nothing of it or all the same. */
const struct wire_format *wire_accept(const char *accept);

/* "application/json, ...": what Accept-Post says. */
const char *wire_media_types(void);

#endif
