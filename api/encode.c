#include "api/encode.h"

#include "api/base64.h"
#include "api/number.h"
#include "api/number_array.h"
#include "api/reply.h"
#include "core/stopwatch.h"

#include <assert.h>
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

/* "1,2],[3,4": whole rows, each shorter than a piece. */
static void put_rows(struct buffer *out, const struct tensor *t, int64_t first,
                     int64_t count, int64_t row)
{
    int64_t piece = PIECE / row * row;

    for (int64_t i = 0; i < count; i += piece) {
        size_t n = (size_t)(count - i < piece ? count - i : piece);
        char *room = buffer_room(out, n * MOST_TEXT + 3), *at = room;

        if (room == NULL)
            return;
        at = number_write_rows_f32((const float *)t->data + first + i, n,
                                   (size_t)row, at);
        if (i + piece < count)
            at = stpcpy(at, "],[");
        buffer_added(out, (size_t)(at - room));
    }
}

/* What stands before element `i`: a comma, unless it is the first, and the
 * brackets of the arrays that end and begin there. */
static void put_border(struct buffer *out, const struct tensor *t, int64_t i)
{
    static const char closed[] = "]]]", open[] = "[[[[";
    size_t arrays = i == 0;
    int64_t block = 1;

    for (int axis = t->rank - 1; axis > 0; axis--) {
        block *= t->dim[axis];
        arrays += i % block == 0;
    }
    if (i > 0) {
        buffer_append(out, closed, arrays);
        buffer_append(out, ",", 1);
    }
    buffer_append(out, open, arrays);
}

/* Elements first to last - 1 of a nested array, each with what stands before it.
 * Both are at a row's border where rows are short. */
static void put_range(struct buffer *out, const struct tensor *t, int64_t first,
                      int64_t last)
{
    int64_t row = t->dim[t->rank - 1], n;

    for (int64_t i = first; i < last; i += n) {
        put_border(out, t, i);
        if (t->rank > 1 && row < PIECE && t->dtype == DTYPE_F32) {
            int64_t rows = row * t->dim[t->rank - 2], left = rows - i % rows;

            n = left < last - i ? left : last - i;
            put_rows(out, t, i, n, row);
        } else {
            n = row - i % row < last - i ? row - i % row : last - i;
            put_row(out, t, i, n);
        }
    }
}

/* ---- a long array, by several threads ---- */

enum {
    PART = 32 * 1024, /* elements: 110 us of writing */
    WAVE = 32         /* parts at once */
};

struct wave {
    const struct tensor *t;
    int64_t first, last; /* elements */
    int64_t step;        /* of them in a part */
    char *room;          /* for each part as much as it can need */
    size_t room_bytes;   /* of one */
    size_t len[WAVE];    /* of the text */
};

static bool put_part(void *arg, int64_t i, struct arena *scratch)
{
    struct wave *w = arg;
    int64_t first = w->first + i * w->step, left = w->last - first;
    struct buffer out = { .data = (uint8_t *)w->room + (size_t)i * w->room_bytes,
                          .size = w->room_bytes,
                          .cap_bytes = w->room_bytes };

    (void)scratch;
    put_range(&out, w->t, first, first + (left < w->step ? left : w->step));
    assert(!out.failed);
    w->len[i] = out.len;
    return true;
}

static size_t text_bytes(enum dtype dtype)
{
    return dtype == DTYPE_F32   ? NUMBER_F32_TEXT
           : dtype == DTYPE_F64 ? NUMBER_F64_TEXT
                                : NUMBER_I64_TEXT;
}

static size_t part_bytes(const struct tensor *t, int64_t count)
{
    size_t bytes = (size_t)count * (text_bytes(t->dtype) + 1) + TENSOR_MAX_RANK;
    int64_t block = 1;

    for (int axis = t->rank - 1; axis > 0; axis--) {
        block *= t->dim[axis];
        bytes += 2 * (size_t)(count / block + 1); /* brackets */
    }
    return bytes + PIECE * MOST_TEXT;
}

/* Elements of a part. */
static int64_t part_step(const struct tensor *t)
{
    int64_t row = t->dim[t->rank - 1];

    return row < PART ? (PART + row - 1) / row * row : PART;
}

/* Each part is written where it would be if all texts were as long as they can
 * be, and then moved up, which takes a twentieth of the time. All parts at once
 * would touch memory for the longest text, and move what has left the cache. */
static void put_wave(struct buffer *out, struct wave *w,
                     struct parallel *parallel)
{
    int64_t parts = (w->last - w->first + w->step - 1) / w->step;

    w->room = buffer_room(out, (size_t)parts * w->room_bytes);
    if (w->room == NULL)
        return;
    parallel->run(parallel, parts, put_part, w);
    for (int64_t i = 0; i < parts; i++) {
        char *to = buffer_room(out, w->len[i]);

        if (to == NULL)
            return;
        memmove(to, w->room + (size_t)i * w->room_bytes, w->len[i]);
        buffer_added(out, w->len[i]);
    }
}

static void put_waves(struct buffer *out, const struct tensor *t,
                      int64_t count, struct parallel *parallel)
{
    int64_t step = part_step(t);
    struct wave w = { .t = t, .step = step,
                      .room_bytes = part_bytes(t, step) };

    for (; w.first < count; w.first = w.last) {
        int64_t left = count - w.first;

        w.last = w.first + (left < WAVE * step ? left : WAVE * step);
        put_wave(out, &w, parallel);
    }
}

static void put_nested(struct buffer *out, const struct tensor *t,
                       struct parallel *parallel)
{
    int64_t count = tensor_count(t);

    if (parallel != NULL && count > PART)
        put_waves(out, t, count, parallel);
    else
        put_range(out, t, 0, count);
    buffer_append(out, "]]]]", (size_t)t->rank);
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

static void put_flat(struct buffer *out, const struct tensor *t,
                     struct parallel *parallel)
{
    const int64_t count = tensor_count(t);
    const struct tensor row = tensor_packed(t->data, t->dtype, 1, &count);

    put_shape(out, t);
    buffer_string(out, "\"data\":");
    put_nested(out, &row, parallel);
    buffer_string(out, "}");
}

struct form {
    enum encoding encoding;
    struct parallel *parallel; /* NULL: nobody helps */
};

static void put_tensor(struct buffer *out, const struct tensor *t,
                       const struct form *form)
{
    switch (form->encoding) {
    case ENCODING_NESTED:
        put_nested(out, t, form->parallel);
        break;
    case ENCODING_FLAT:
        put_flat(out, t, form->parallel);
        break;
    case ENCODING_BASE64:
        put_shape(out, t);
        put_base64(out, t);
        break;
    }
}

/* `,"name":` and the tensor, unless it is absent. */
static void put_member(struct buffer *out, const char *name,
                       const struct tensor *t, const struct form *form)
{
    if (t->rank == 0)
        return;
    buffer_format(out, ",\"%s\":", name);
    put_tensor(out, t, form);
}

static void put_weights(struct buffer *out, const struct mha_response *mha,
                        const struct form *form)
{
    put_member(out, "weights", &mha->weights, form);
    if (mha->top_indices.rank == 0)
        return;
    buffer_string(out, ",\"weights\":{\"indices\":");
    put_tensor(out, &mha->top_indices, form);
    put_member(out, "values", &mha->top_values, form);
    put_member(out, "kept", &mha->top_kept, form);
    buffer_string(out, "}");
}

/* One allocation instead of many that grow; pages that stay unused are never
 * touched. */
static void reserve(int64_t bound, size_t spare, struct buffer *out)
{
    size_t most = (uint64_t)bound < out->cap_bytes ? (size_t)bound
                                                   : out->cap_bytes;

    buffer_room(out, most + spare);
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
    int64_t bound = encode_json_bound(request, plan);
    bool is_long = bound > PART * NUMBER_F32_TEXT;
    const struct form form = { request->response_format,
                               is_long ? response->parallel : NULL };
    int64_t began_ns = stopwatch_ns();

    reserve(bound, (form.parallel != NULL ? WAVE : 1) * PIECE * MOST_TEXT, out);
    buffer_string(out, "{\"output\":");
    put_tensor(out, &mha->output, &form);
    put_weights(out, mha, &form);
    put_member(out, "q", &mha->q, &form);
    put_member(out, "k", &mha->k, &form);
    put_member(out, "v", &mha->v, &form);
    put_member(out, "scores", &mha->scores, &form);
    put_member(out, "context", &mha->context, &form);
    put_member(out, "lse", &mha->lse, &form);
    put_rest(out, request, plan, response, began_ns);
    buffer_string(out, "}\n");
    if (form.parallel != NULL)
        buffer_trim(out);
}

/* A tensor object's members and its name are in 256. */
static double tensor_bound(enum encoding encoding,
                           const struct reply_shape *shape)
{
    double text = (double)text_bytes(shape->dtype);
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
