#include "api/encode.h"

#include "api/base64.h"
#include "api/number.h"
#include "api/number_array.h"

#include <string.h>
#include <time.h>

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

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

/* The part of a nested array that is along `axis` and begins at element
 * `*next`, which moves behind it. */
static void put_axis(struct buffer *out, const struct tensor *t, int axis,
                     int64_t *next)
{
    buffer_append(out, "[", 1);
    if (axis == t->rank - 1) {
        put_row(out, t, *next, t->dim[axis]);
        *next += t->dim[axis];
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
    size_t bytes = (size_t)tensor_count(t) * dtype_size(t->dtype);
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

static void put_number(struct buffer *out, const char *before, double value,
                       enum dtype dtype)
{
    float narrow = (float)value;
    char *room, *end;

    buffer_string(out, before);
    room = buffer_room(out, MOST_TEXT);
    if (room == NULL)
        return;
    end = dtype == DTYPE_F32 ? number_write_run_f32(&narrow, 1, room)
                             : number_write_run_f64(&value, 1, room);
    buffer_added(out, (size_t)(end - room));
}

/* Differences are doubles; `got` and `expected` are what was compared. */
static void put_comparison(struct buffer *out, const char *before,
                           const struct comparison *c, enum dtype dtype)
{
    buffer_string(out, before);
    put_number(out, "{\"max_abs\":", c->max_abs, DTYPE_F64);
    put_number(out, ",\"max_rel\":", c->max_rel, DTYPE_F64);
    put_number(out, ",\"rms\":", c->rms, DTYPE_F64);
    buffer_string(out, ",\"worst\":{\"index\":[");
    for (int i = 0; i < c->rank; i++)
        buffer_format(out, i == 0 ? "%lld" : ",%lld", (long long)c->index[i]);
    put_number(out, "],\"got\":", c->got, dtype);
    put_number(out, ",\"expected\":", c->expected, dtype);
    buffer_string(out, "}}");
}

static void put_comparisons(struct buffer *out, const struct mha_response *mha,
                            enum dtype dtype)
{
    bool output = mha->compare_output.present;

    if (!output && !mha->compare_weights.present)
        return;
    buffer_string(out, ",\"comparison\":{");
    if (output)
        put_comparison(out, "\"output\":", &mha->compare_output, dtype);
    if (mha->compare_weights.present)
        put_comparison(out, output ? ",\"weights\":" : "\"weights\":",
                       &mha->compare_weights, dtype);
    buffer_string(out, "}");
}

static void put_step(struct buffer *out, const char *before, const char *name,
                     double flops, int64_t ns)
{
    buffer_format(out, "%s{\"name\":\"%s\"", before, name);
    put_number(out, ",\"flops\":", flops, DTYPE_F64);
    put_number(out, ",\"us\":", (double)ns / 1000, DTYPE_F64);
    buffer_string(out, "}");
}

/* Last, so that encoding is nearly over when its time is taken. */
static void put_profile(struct buffer *out, const struct mha_plan *plan,
                        const struct response *response, int64_t began_ns)
{
    static const char *const names[MHA_STEPS] = {
        [MHA_PROJECTIONS] = "projections",
        [MHA_SIMILARITY] = "similarity",
        [MHA_SOFTMAX] = "softmax",
        [MHA_WEIGHTED_SUM] = "weighted sum",
        [MHA_OUTPUT_PROJECTION] = "output projection",
    };

    buffer_format(out, ",\"profile\":{\"kernels\":\"%s\",\"steps\":[",
                  response->kernels);
    put_step(out, "", "decode", 0, response->decode_ns);
    for (int i = 0; i < MHA_STEPS; i++)
        put_step(out, ",", names[i], plan->flops[i],
                 response->mha->step_ns[i]);
    put_step(out, ",", "encode", 0, now_ns() - began_ns);
    buffer_string(out, "]}");
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

void encode_json(const struct request *request, const struct mha_plan *plan,
                 const struct response *response, struct buffer *out)
{
    const struct mha_response *mha = response->mha;
    enum encoding encoding = request->response_format;
    int64_t began_ns = now_ns();

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
    if (mha->fully_masked_queries > 0)
        buffer_format(out, ",\"fully_masked_queries\":%lld",
                      (long long)mha->fully_masked_queries);
    put_comparisons(out, mha, mha->output.dtype);
    if (request->profile)
        put_profile(out, plan, response, began_ns);
    buffer_string(out, "}\n");
}

/* Bytes as a double: exact where they matter, and nothing overflows. `dim`
 * holds `rank` of them; a tensor object's members and its name are in 256. */
static double tensor_bound(enum encoding encoding, enum dtype dtype, int rank,
                           const double *dim)
{
    double text = dtype == DTYPE_F32 ? NUMBER_F32_TEXT
                  : dtype == DTYPE_F64 ? NUMBER_F64_TEXT : NUMBER_I64_TEXT;
    double count = 1, brackets = 0;

    for (int i = 0; i < rank; i++) {
        brackets += 3 * count; /* "[],": so many arrays begin on this axis */
        count *= dim[i];
    }
    if (encoding == ENCODING_BASE64)
        return 256 + 4 * (count * (double)dtype_size(dtype) / 3 + 1);
    return 256 + count * (text + 1) +
           (encoding == ENCODING_NESTED ? brackets : 0);
}

static double weights_bound(const struct request *request,
                            const struct mha_plan *plan, enum dtype dtype)
{
    const struct mha_request *mha = &request->mha;
    enum encoding encoding = request->response_format;
    double k = (double)mha->weights_top_k;
    double heads = mha->average_attn_weights ? 1 : (double)plan->H;
    double dim[] = { (double)plan->N, heads, (double)plan->L,
                     k > 0 ? k : (double)plan->T };

    if (!mha->need_weights)
        return 0;
    if (k == 0)
        return tensor_bound(encoding, dtype, 4, dim);
    return tensor_bound(encoding, DTYPE_I64, 4, dim) +
           tensor_bound(encoding, dtype, 4, dim) +
           tensor_bound(encoding, dtype, 3, dim);
}

static double returns_bound(const struct request *request,
                            const struct mha_plan *plan, enum dtype dtype)
{
    double N = (double)plan->N, H = (double)plan->H, G = (double)plan->G;
    double L = (double)plan->L, T = (double)plan->T, D = (double)plan->D;
    double Dv = (double)plan->Dv, bytes = 0;
    const struct {
        unsigned flag;
        int rank;
        double dim[4];
    } returns[] = {
        { MHA_RETURN_Q, 4, { N, H, L, D } },
        { MHA_RETURN_K, 4, { N, G, T, D } },
        { MHA_RETURN_V, 4, { N, G, T, Dv } },
        { MHA_RETURN_SCORES, 4, { N, H, L, T } },
        { MHA_RETURN_CONTEXT, 4, { N, H, L, Dv } },
        { MHA_RETURN_LSE, 3, { N, H, L } },
    };

    for (size_t i = 0; i < sizeof returns / sizeof *returns; i++) {
        if (request->mha.returns & returns[i].flag)
            bytes += tensor_bound(request->response_format, dtype,
                                  returns[i].rank, returns[i].dim);
    }
    return bytes;
}

/* Braces, fully_masked_queries, two comparisons and a profile. */
enum { REST_BYTES = 4096 };

int64_t encode_json_bound(const struct request *request,
                          const struct mha_plan *plan)
{
    enum dtype dtype = request->mha.precision == PRECISION_F64 ? DTYPE_F64
                                                               : DTYPE_F32;
    double output[TENSOR_MAX_RANK] = { 0 };

    for (int i = 0; i < plan->output_rank; i++)
        output[i] = (double)plan->output_dim[i];

    double bytes = REST_BYTES +
                   tensor_bound(request->response_format, dtype,
                                plan->output_rank, output) +
                   weights_bound(request, plan, dtype) +
                   returns_bound(request, plan, dtype);

    return bytes < 0x1p62 ? (int64_t)bytes : INT64_MAX;
}
