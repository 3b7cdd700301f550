#include "api/encode.h"

#include "api/base64.h"
#include "api/number.h"
#include "api/number_array.h"
#include "api/reply.h"
#include "core/stopwatch.h"

#include <string.h>

static char *write_i64(const int64_t *values, size_t count, char *out)
{
    for (size_t i = 0; i < count; i++) {
        out += number_write_i64(values[i], out);
        *out++ = ',';
    }
    return out - (count > 0);
}

/* Room is asked for by the piece, not by the number. */
enum { PIECE = 256, MOST_TEXT = NUMBER_F64_BYTES + 1 };

/* "1,2,3": up to a piece of the elements from `first`. */
static char *write_piece(const struct tensor *t, int64_t first, size_t count,
                         char *out)
{
    if (t->dtype == DTYPE_F32)
        return number_write_run_f32((const float *)t->data + first, count, out);
    if (t->dtype == DTYPE_F64)
        return number_write_run_f64((const double *)t->data + first, count,
                                    out);
    return write_i64((const int64_t *)t->data + first, count, out);
}

static void put_row(struct buffer *out, const struct tensor *t, int64_t first,
                    int64_t count)
{
    for (int64_t i = 0; i < count; i += PIECE) {
        size_t n = (size_t)(count - i < PIECE ? count - i : PIECE);
        char *room = buffer_room(out, n * MOST_TEXT);

        if (room == NULL)
            return;
        buffer_added(out, (size_t)(write_piece(t, first + i, n, room) - room));
        if (i + PIECE < count)
            buffer_append(out, ",", 1);
    }
}

/* "[1,2],[3,4]": `count` elements from `first` in rows shorter than a piece. */
static void put_rows(struct buffer *out, const struct tensor *t, int64_t first,
                     int64_t count, int64_t row)
{
    int64_t piece = PIECE / row * row;

    for (int64_t i = 0; i < count; i += piece) {
        size_t n = (size_t)(count - i < piece ? count - i : piece);
        char *room = buffer_room(out, n * MOST_TEXT + 3), *at = room;

        if (room == NULL)
            return;
        *at++ = '[';
        at = number_write_rows_f32((const float *)t->data + first + i, n,
                                   (size_t)row, at);
        *at++ = ']';
        if (i + piece < count)
            *at++ = ',';
        buffer_added(out, (size_t)(at - room));
    }
}

/* The part of a nested array that is along `axis` and begins at element
 * `*next`, which moves behind it. */
static void put_axis(struct buffer *out, const struct tensor *t, int axis,
                     int64_t *next)
{
    int last = t->rank - 1;

    buffer_append(out, "[", 1);
    if (axis == last) {
        put_row(out, t, *next, t->dim[axis]);
        *next += t->dim[axis];
    } else if (axis == last - 1 && t->dtype == DTYPE_F32 &&
               t->dim[last] < PIECE) {
        put_rows(out, t, *next, t->dim[axis] * t->dim[last], t->dim[last]);
        *next += t->dim[axis] * t->dim[last];
    } else {
        for (int64_t i = 0; i < t->dim[axis]; i++) {
            if (i > 0)
                buffer_append(out, ",", 1);
            put_axis(out, t, axis + 1, next);
        }
    }
    buffer_append(out, "]", 1);
}

static void put_shape(struct buffer *out, const struct tensor *t)
{
    buffer_string(out, "{\"shape\":[");
    for (int i = 0; i < t->rank; i++)
        buffer_format(out, i == 0 ? "%lld" : ",%lld", (long long)t->dim[i]);
    buffer_string(out, "],");
}

static void put_base64(struct buffer *out, const struct tensor *t)
{
    size_t bytes = tensor_bytes(t);
    char *room;

    buffer_format(out, "\"dtype\":\"%s\",\"base64\":\"", dtype_name(t->dtype));
    room = buffer_room(out, base64_length(bytes));
    if (room != NULL)
        buffer_added(out, base64_encode(t->data, bytes, room));
    buffer_string(out, "\"}");
}

static void put_tensor(struct buffer *out, const struct tensor *t,
                       enum encoding encoding)
{
    int64_t next = 0;

    switch (encoding) {
    case ENCODING_NESTED:
        put_axis(out, t, 0, &next);
        break;
    case ENCODING_FLAT:
        put_shape(out, t);
        buffer_string(out, "\"data\":[");
        put_row(out, t, 0, tensor_count(t));
        buffer_string(out, "]}");
        break;
    case ENCODING_BASE64:
        put_shape(out, t);
        put_base64(out, t);
        break;
    }
}

/* `,"name":` and the tensor, unless it is absent. */
static void put_member(struct buffer *out, const char *name,
                       const struct tensor *t, enum encoding encoding)
{
    if (t->rank == 0)
        return;
    buffer_format(out, ",\"%s\":", name);
    put_tensor(out, t, encoding);
}

static void put_weights(struct buffer *out, const struct mha_response *mha,
                        enum encoding encoding)
{
    put_member(out, "weights", &mha->weights, encoding);
    if (mha->top_indices.rank == 0)
        return;
    buffer_string(out, ",\"weights\":{\"indices\":");
    put_tensor(out, &mha->top_indices, encoding);
    put_member(out, "values", &mha->top_values, encoding);
    put_member(out, "kept", &mha->top_kept, encoding);
    buffer_string(out, "}");
}

/* One allocation instead of many that grow; pages that stay unused are never
 * touched. */
static void reserve(const struct request *request,
                    const struct mha_plan *plan, struct buffer *out)
{
    int64_t bound = encode_json_bound(request, plan);
    size_t most = (uint64_t)bound < out->cap_bytes ? (size_t)bound
                                                   : out->cap_bytes;

    buffer_room(out, most + PIECE * MOST_TEXT);
}

/* Last comes the profile, so that encoding is nearly over when its time is
 * taken. */
static void put_rest(struct buffer *out, const struct request *request,
                     const struct mha_plan *plan,
                     const struct response *response, int64_t began_ns)
{
    const struct mha_response *mha = response->mha;

    if (mha->fully_masked_queries > 0)
        buffer_format(out, ",\"fully_masked_queries\":%lld",
                      (long long)mha->fully_masked_queries);
    if (reply_is_compared(mha)) {
        buffer_string(out, ",\"comparison\":");
        reply_comparison(mha, out);
    }
    if (request->profile) {
        buffer_string(out, ",\"profile\":");
        reply_profile(plan, response, began_ns, out);
    }
}

void encode_json(const struct request *request, const struct mha_plan *plan,
                 const struct response *response, struct buffer *out)
{
    const struct mha_response *mha = response->mha;
    enum encoding encoding = request->response_format;
    int64_t began_ns = stopwatch_ns();

    reserve(request, plan, out);
    buffer_string(out, "{\"output\":");
    put_tensor(out, &mha->output, encoding);
    put_weights(out, mha, encoding);
    put_member(out, "q", &mha->q, encoding);
    put_member(out, "k", &mha->k, encoding);
    put_member(out, "v", &mha->v, encoding);
    put_member(out, "scores", &mha->scores, encoding);
    put_member(out, "context", &mha->context, encoding);
    put_member(out, "lse", &mha->lse, encoding);
    put_rest(out, request, plan, response, began_ns);
    buffer_string(out, "}\n");
}

/* A tensor object's members and its name are in 256. */
static double tensor_bound(enum encoding encoding,
                           const struct reply_shape *shape)
{
    double text = shape->dtype == DTYPE_F32   ? NUMBER_F32_TEXT
                  : shape->dtype == DTYPE_F64 ? NUMBER_F64_TEXT
                                              : NUMBER_I64_TEXT;
    double count = 1, brackets = 0;

    for (int i = 0; i < shape->rank; i++) {
        brackets += 3 * count; /* "[],": so many arrays begin on this axis */
        count *= shape->dim[i];
    }
    if (encoding == ENCODING_BASE64)
        return 256 + 4 * (count * (double)dtype_size(shape->dtype) / 3 + 1);
    return 256 + count * (text + 1) +
           (encoding == ENCODING_NESTED ? brackets : 0);
}

int64_t encode_json_bound(const struct request *request,
                          const struct mha_plan *plan)
{
    struct reply_shape shape[REPLY_MOST_TENSORS];
    int count = reply_shapes(request, plan, shape);
    double bytes = REPLY_REST_BYTES;

    for (int i = 0; i < count; i++)
        bytes += tensor_bound(request->response_format, &shape[i]);
    return reply_bound(bytes);
}
