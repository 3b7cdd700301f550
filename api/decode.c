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
                    const char *query, struct arena *arena,
                    struct request *request, struct error *err)
{
    return format->decode(body, query, arena, request, err);
}

bool decode_plan(const struct request *request,
                 const struct wire_format *reply, const struct limits *limits,
                 struct mha_plan *plan, struct error *err)
{
    return mha_check(&request->mha, plan, err) &&
           check_limits(reply, limits, request, plan, err);
}
