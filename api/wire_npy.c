#include "api/npy.h"
#include "api/query.h"
#include "api/raw.h"
#include "api/reply.h"
#include "api/walk.h"
#include "api/wire.h"

#include <string.h>

/* One array is the query. Everything else a request can say stands in the URL,
 * each field as its JSON text; a small mask may stand there, too. */

static bool fail_array(const struct raw *raw, struct walk *w,
                       const struct npy *array)
{
    struct named_tensor *query = &w->request->mha.query;
    struct arena *arena = w->json.arena;

    if (array->dtype == DTYPE_COUNT)
        return raw_flaw(raw, arena, query, w->json.err, ERR_RANGE,
                        "'s descr is '%s', not one of <f2, <f4, <f8, |b1, |u1, "
                        "|i1, <i2, <i4, <i8 and their big-endian forms",
                        array->descr);
    if (array->rank < 1 || array->rank > TENSOR_MAX_RANK)
        return raw_flaw(raw, arena, query, w->json.err, ERR_SHAPE,
                        " has %llu dimensions, not 1 to %d",
                        (unsigned long long)array->rank, TENSOR_MAX_RANK);
    return raw_flaw(raw, arena, query, w->json.err, ERR_SHAPE,
                    " has a dimension of 0, or more elements than any memory "
                    "holds");
}

static bool read_array(struct walk *w, const struct npy *array)
{
    struct named_tensor *query = &w->request->mha.query;
    struct raw raw = {
        .data = array->data,
        .dtype = array->dtype,
        .big_endian = array->big_endian,
        .fortran_order = array->fortran_order,
        .rank = (int)array->rank,
        .kind = FIELD_TENSOR,
        .wide = w->wide,
        .where = "/query",
    };
    int64_t count;

    query->name = "query";
    memcpy(raw.dim, array->dim, sizeof raw.dim);
    if (array->dtype == DTYPE_COUNT || array->rank < 1 ||
        array->rank > TENSOR_MAX_RANK ||
        !tensor_count_dims(raw.dim, raw.rank, &count))
        return fail_array(&raw, w, array);
    return raw_read(&raw, w->json.arena, query, w->json.err);
}

/* A field twice is two requests in one, as it is in JSON. */
static bool read_pair(struct walk *w, const struct query_pair *pair)
{
    enum field_id id = fields_find_name(pair->name);

    if (id != FIELD_COUNT && w->fields.given[id])
        return error_set(w->json.err, ERR_REQUEST, "",
                         id == FIELD_ID_query
                             ? "%s is the array in the body and can't stand in "
                               "the URL as well"
                             : "%s is twice in the URL", pair->name);
    return walk_text(w, pair->name, pair->value);
}

/* What numbers become is known before any is read. */
static bool read_pairs(struct walk *w, const struct query *query)
{
    const char *precision = fields_table[FIELD_ID_precision].name;

    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < query->count; i++)
            if ((strcmp(query->pair[i].name, precision) == 0) == (turn == 0) &&
                !read_pair(w, &query->pair[i]))
                return false;
        if (fields_precision(&w->fields) == PRECISION_F64)
            w->wide = DTYPE_F64;
    }
    return true;
}

static bool decode(struct bytes body, const char *query,
                   struct parallel *parallel, struct arena *arena,
                   struct request *request, struct error *err)
{
    struct npy array;
    struct query pairs;
    struct walk w;

    (void)parallel;
    walk_begin(&w, "", 0, DTYPE_F32, arena, request, err);
    w.fields.given[FIELD_ID_query] = true;
    return npy_decode(body, &array, err) &&
           query_decode(query, arena, &pairs, err) && read_pairs(&w, &pairs) &&
           read_array(&w, &array) && walk_end(&w);
}

/* Bytes become doubles at most. In the URL "1," does, and a name has its pair. */
static int64_t need(struct bytes body, const char *query)
{
    size_t len = query == NULL ? 0 : strlen(query);

    return reply_bound(8 * (double)body.len + 32 * (double)len);
}

static void place(const struct request *request, struct mha_response *mha,
                  struct buffer *out)
{
    char header[NPY_HEADER_BYTES];
    size_t len = npy_write_header(&mha->output, header);
    uint8_t *room = buffer_room(out, len + tensor_bytes(&mha->output));

    (void)request;
    if (room != NULL)
        mha->output.data = room + len;
}

static void encode(const struct request *request, const struct mha_plan *plan,
                   const struct response *response, struct buffer *out)
{
    const struct tensor *output = &response->mha->output;
    char header[NPY_HEADER_BYTES];
    size_t len = npy_write_header(output, header);

    (void)request;
    (void)plan;
    buffer_room(out, len + tensor_bytes(output));
    buffer_append(out, header, len);
    reply_append(out, output);
}

static int64_t bound(const struct request *request,
                     const struct mha_plan *plan)
{
    struct reply_shape shape[REPLY_MOST_TENSORS];

    reply_shapes(request, plan, shape);
    return reply_bound(NPY_HEADER_BYTES +
                       reply_count(&shape[0]) *
                           (double)dtype_size(shape[0].dtype));
}

const struct wire_format wire_npy = {
    .media_type = "application/x-npy",
    .output_alone = true,
    .decode = decode,
    .need = need,
    .place = place,
    .encode = encode,
    .bound = bound,
};
