#include "api/decode.h"

static bool check_limits(const struct wire_format *reply,
                         const struct limits *limits,
                         const struct request *request,
                         const struct mha_plan *plan, struct error *err)
{
    int64_t bytes = reply->bound(request, plan);
    double flops = 0;

    for (int i = 0; i < MHA_STEPS; i++)
        flops += plan->flops[i];
    if (flops > limits->request_flops)
        return error_set(err, ERR_TOO_LARGE, "",
                         "the request takes %.0f floating-point operations, "
                         "more than the %.0f of max_request_flops", flops,
                         limits->request_flops);
    if (bytes > limits->response_bytes)
        return error_set(err, ERR_TOO_LARGE, "",
                         "the answer may take %lld bytes, more than the %lld "
                         "of max_response_bytes", (long long)bytes,
                         (long long)limits->response_bytes);
    return true;
}

bool decode_request(const struct wire_format *format, struct bytes body,
                    const char *query, struct parallel *parallel,
                    struct arena *arena, struct request *request,
                    struct error *err)
{
    return format->decode(body, query, parallel, arena, request, err);
}

/* Everything was checked as it was asked for; what the reply can't say is not
 * computed. None of it changes a bit of the output. */
static void keep_output_alone(struct mha_request *mha)
{
    mha->need_weights = false;
    mha->weights_top_k = 0;
    mha->returns = 0;
    mha->compare_output = (struct named_tensor){ 0 };
    mha->compare_weights = (struct named_tensor){ 0 };
}

bool decode_plan(struct request *request, const struct wire_format *reply,
                 const struct limits *limits, struct mha_plan *plan,
                 struct error *err)
{
    if (!mha_check(&request->mha, plan, err))
        return false;
    if (reply->output_alone) {
        keep_output_alone(&request->mha);
        if (!mha_check(&request->mha, plan, err))
            return false;
    }
    return check_limits(reply, limits, request, plan, err);
}
