#include "api/problem.h"

#include "api/json_text.h"

static const struct {
    int status;
    const char *title; /* the status in words, as RFC 9457 wants them beside
                          the type about:blank */
} statuses[ERR_COUNT] = {
    [ERR_NONE] = { 200, "OK" },
    [ERR_JSON] = { 400, "Bad Request" },
    [ERR_REQUEST] = { 400, "Bad Request" },
    [ERR_KEY] = { 401, "Unauthorized" },
    [ERR_NOT_FOUND] = { 404, "Not Found" },
    [ERR_METHOD] = { 405, "Method Not Allowed" },
    [ERR_UNKNOWN_METHOD] = { 501, "Not Implemented" },
    [ERR_TIMEOUT] = { 408, "Request Timeout" },
    [ERR_TOO_LARGE] = { 413, "Content Too Large" },
    [ERR_MEDIA] = { 415, "Unsupported Media Type" },
    [ERR_UNKNOWN] = { 422, "Unprocessable Content" },
    [ERR_MISSING] = { 422, "Unprocessable Content" },
    [ERR_CONFLICT] = { 422, "Unprocessable Content" },
    [ERR_TYPE] = { 422, "Unprocessable Content" },
    [ERR_RANGE] = { 422, "Unprocessable Content" },
    [ERR_SHAPE] = { 422, "Unprocessable Content" },
    [ERR_NOT_FINITE] = { 422, "Unprocessable Content" },
    [ERR_OVERLOADED] = { 503, "Service Unavailable" },
    [ERR_DRAINING] = { 503, "Service Unavailable" },
    [ERR_QUOTA] = { 429, "Too Many Requests" },
};

int problem_status(enum error_code code)
{
    return statuses[code].status;
}

const char *problem_title(enum error_code code)
{
    return statuses[code].title;
}

/* `,"name":` and any bytes as a JSON string. */
static void put_string(struct buffer *out, const char *before, const char *text)
{
    buffer_string(out, before);
    json_text_write(text, out);
}

void problem_encode(const struct error *err, const char *request_id,
                    struct buffer *out)
{
    put_string(out, "{\"type\":\"about:blank\",\"title\":",
               statuses[err->code].title);
    buffer_format(out, ",\"status\":%d", statuses[err->code].status);
    put_string(out, ",\"detail\":", err->text);
    put_string(out, ",\"code\":", error_name(err->code));
    put_string(out, ",\"pointer\":", err->where);
    put_string(out, ",\"error\":", err->text);
    put_string(out, ",\"request_id\":", request_id);
    buffer_string(out, "}\n");
}
