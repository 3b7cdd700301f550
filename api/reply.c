#include "api/reply.h"

#include "api/number.h"
#include "api/number_array.h"
#include "core/stopwatch.h"

#include <stddef.h>
#include <string.h>

static const struct member {
    const char *name;
    size_t offset;
} members[] = {
    { "weights.indices", offsetof(struct mha_response, top_indices) },
    { "output", offsetof(struct mha_response, output) },
    { "weights", offsetof(struct mha_response, weights) },
    { "weights.values", offsetof(struct mha_response, top_values) },
    { "weights.kept", offsetof(struct mha_response, top_kept) },
    { "q", offsetof(struct mha_response, q) },
    { "k", offsetof(struct mha_response, k) },
    { "v", offsetof(struct mha_response, v) },
    { "scores", offsetof(struct mha_response, scores) },
    { "context", offsetof(struct mha_response, context) },
    { "lse", offsetof(struct mha_response, lse) },
};

enum { MEMBERS = sizeof members / sizeof *members };

int reply_tensors(const struct mha_response *mha,
                  struct reply_tensor out[REPLY_MOST_TENSORS])
{
    int count = 0;

    for (int i = 0; i < MEMBERS; i++) {
        const void *t = (const char *)mha + members[i].offset;
        const struct tensor *tensor = t;

        if (tensor->rank != 0)
            out[count++] = (struct reply_tensor){ members[i].name, *tensor };
    }
    return count;
}

void reply_place(struct mha_response *mha, uint8_t *at)
{
    for (int i = 0; i < MEMBERS; i++) {
        void *t = (char *)mha + members[i].offset;
        struct tensor *tensor = t;

        tensor->data = at;
        at += tensor_bytes(tensor);
    }
}

void reply_append(struct buffer *out, const struct tensor *t)
{
    size_t bytes = tensor_bytes(t);
    void *room = buffer_room(out, bytes);

    if (room == NULL)
        return;
    if (room != t->data)
        memcpy(room, t->data, bytes);
    buffer_added(out, bytes);
}

/* ---- sizes ---- */

static enum dtype dtype_of(const struct request *request)
{
    return request->mha.precision == PRECISION_F64 ? DTYPE_F64 : DTYPE_F32;
}

static int add_weights(const struct request *request,
                       const struct mha_plan *plan, struct reply_shape *out)
{
    const struct mha_request *mha = &request->mha;
    double k = (double)mha->weights_top_k;
    double heads = mha->average_attn_weights ? 1 : (double)plan->H;
    struct reply_shape rows = {
        dtype_of(request), 4,
        { (double)plan->N, heads, (double)plan->L, k > 0 ? k : (double)plan->T },
    };

    if (!mha->need_weights)
        return 0;
    out[0] = rows;
    if (k == 0)
        return 1;
    out[1] = out[2] = rows;
    out[0].dtype = DTYPE_I64;
    out[2].rank = 3; /* kept */
    return 3;
}

static int add_returns(const struct request *request,
                       const struct mha_plan *plan, struct reply_shape *out)
{
    double N = (double)plan->N, H = (double)plan->H, G = (double)plan->G;
    double L = (double)plan->L, T = (double)plan->T, D = (double)plan->D;
    double Dv = (double)plan->Dv;
    enum dtype dtype = dtype_of(request);
    const struct {
        unsigned flag;
        struct reply_shape shape;
    } returns[] = {
        { MHA_RETURN_Q, { dtype, 4, { N, H, L, D } } },
        { MHA_RETURN_K, { dtype, 4, { N, G, T, D } } },
        { MHA_RETURN_V, { dtype, 4, { N, G, T, Dv } } },
        { MHA_RETURN_SCORES, { dtype, 4, { N, H, L, T } } },
        { MHA_RETURN_CONTEXT, { dtype, 4, { N, H, L, Dv } } },
        { MHA_RETURN_LSE, { dtype, 3, { N, H, L } } },
    };
    int count = 0;

    for (size_t i = 0; i < sizeof returns / sizeof *returns; i++)
        if (request->mha.returns & returns[i].flag)
            out[count++] = returns[i].shape;
    return count;
}

int reply_shapes(const struct request *request, const struct mha_plan *plan,
                 struct reply_shape out[REPLY_MOST_TENSORS])
{
    int count = 1;

    out[0] = (struct reply_shape){ dtype_of(request), plan->output_rank,
                                    { 0 } };
    for (int i = 0; i < plan->output_rank; i++)
        out[0].dim[i] = (double)plan->output_dim[i];
    count += add_weights(request, plan, out + count);
    return count + add_returns(request, plan, out + count);
}

double reply_count(const struct reply_shape *shape)
{
    double count = 1;

    for (int i = 0; i < shape->rank; i++)
        count *= shape->dim[i];
    return count;
}

int64_t reply_bound(double bytes)
{
    return bytes < 0x1p62 ? (int64_t)bytes : INT64_MAX;
}

/* ---- members that are no tensors ---- */

static void put_number(struct buffer *out, const char *before, double value,
                       enum dtype dtype)
{
    float narrow = (float)value;
    char *room, *end;

    buffer_string(out, before);
    room = buffer_room(out, NUMBER_F64_BYTES + 1);
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

bool reply_is_compared(const struct mha_response *mha)
{
    return mha->compare_output.present || mha->compare_weights.present;
}

void reply_comparison(const struct mha_response *mha, struct buffer *out)
{
    enum dtype dtype = mha->output.dtype;
    bool output = mha->compare_output.present;

    buffer_string(out, "{");
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

void reply_profile(const struct mha_plan *plan,
                   const struct response *response, int64_t began_ns,
                   struct buffer *out)
{
    static const char *const names[MHA_STEPS] = {
        [MHA_PROJECTIONS] = "projections",
        [MHA_SIMILARITY] = "similarity",
        [MHA_SOFTMAX] = "softmax",
        [MHA_WEIGHTED_SUM] = "weighted sum",
        [MHA_OUTPUT_PROJECTION] = "output projection",
    };

    buffer_format(out, "{\"kernels\":\"%s\",\"steps\":[", response->kernels);
    put_step(out, "", "decode", 0, response->decode_ns);
    for (int i = 0; i < MHA_STEPS; i++)
        put_step(out, ",", names[i], plan->flops[i],
                 response->mha->step_ns[i]);
    put_step(out, ",", "encode", 0, stopwatch_ns() - began_ns);
    buffer_string(out, "]}");
}
