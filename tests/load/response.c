#include "tests/load/response.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

void response_begin(struct response *response, bool after_head)
{
    memset(response, 0, offsetof(struct response, line));
    response->after_head = after_head;
}

static void read_status_line(struct response *response)
{
    const char *line = response->line;
    bool is_http = strncmp(line, "HTTP/1.", 7) == 0 &&
                   (line[7] == '0' || line[7] == '1') && line[8] == ' ';

    response->has_status = true;
    response->status = is_http ? (int)strtol(line + 9, NULL, 10) : 0;
    response->closes = is_http && line[7] == '0';
    if (response->status < 100 || response->status > 599)
        response->state = RESPONSE_MALFORMED;
}

static const char *value_of(const char *line, const char *name)
{
    size_t len = strlen(name);

    if (strncasecmp(line, name, len) != 0 || line[len] != ':')
        return NULL;
    line += len + 1;
    return line + strspn(line, " \t");
}

static void read_length(struct response *response, const char *text)
{
    size_t digits = strspn(text, "0123456789");

    if (digits == 0 || digits > 18 || text[digits] != '\0' ||
        response->has_length)
        response->state = RESPONSE_MALFORMED;
    response->has_length = true;
    response->length = strtoll(text, NULL, 10);
}

static void read_header(struct response *response)
{
    const char *length = value_of(response->line, "Content-Length");
    const char *connection = value_of(response->line, "Connection");

    if (length != NULL)
        read_length(response, length);
    if (connection != NULL && strcasecmp(connection, "close") == 0)
        response->closes = true;
    if (value_of(response->line, "Transfer-Encoding") != NULL)
        response->state = RESPONSE_MALFORMED;
}

static void skip_interim(struct response *response)
{
    int64_t taken = response->head_bytes;
    int interim = response->interim + 1;

    response_begin(response, response->after_head);
    response->head_bytes = taken;
    response->interim = interim;
}

static void end_head(struct response *response)
{
    bool empty = response->after_head || response->status == 204 ||
                 response->status == 304;

    if (response->status < 200) {
        skip_interim(response);
        return;
    }
    if (empty)
        response->length = 0;
    else if (!response->has_length && !response->closes)
        response->state = RESPONSE_MALFORMED; /* an end nobody can know */
    if (response->state == RESPONSE_MALFORMED)
        return;
    response->state = empty || (response->has_length && response->length == 0)
                          ? RESPONSE_COMPLETE
                          : RESPONSE_BODY;
}

static void end_line(struct response *response)
{
    size_t len = response->line_len, most = sizeof response->line - 1;

    if (len > most)
        len = most;
    if (len > 0 && response->line[len - 1] == '\r')
        len--;
    response->line[len] = '\0';
    response->line_len = 0;
    if (!response->has_status)
        read_status_line(response);
    else if (len > 0)
        read_header(response);
    else
        end_head(response);
}

/* `left` bytes at most; the line may go on in the next piece. */
static size_t take_line(struct response *response, const char *bytes,
                        size_t left)
{
    const char *end = memchr(bytes, '\n', left);
    size_t len = end == NULL ? left : (size_t)(end - bytes);
    size_t most = sizeof response->line - 1, have = response->line_len;

    if (have < most)
        memcpy(response->line + have, bytes,
               len < most - have ? len : most - have);
    response->line_len += len;
    if (end == NULL) {
        response->head_bytes += (int64_t)len;
        return len;
    }
    response->head_bytes += (int64_t)len + 1;
    end_line(response);
    return len + 1;
}

static size_t take_body(struct response *response, size_t left)
{
    int64_t wanted = response->length - response->body_bytes;
    size_t len = left;

    if (response->has_length && wanted < (int64_t)left)
        len = (size_t)wanted;
    response->body_bytes += (int64_t)len;
    if (response->has_length && response->body_bytes == response->length)
        response->state = RESPONSE_COMPLETE;
    return len;
}

size_t response_take(struct response *response, const char *bytes, size_t len)
{
    size_t taken = 0;

    while (taken < len && response->state < RESPONSE_COMPLETE)
        taken += response->state == RESPONSE_HEAD
                     ? take_line(response, bytes + taken, len - taken)
                     : take_body(response, len - taken);
    return taken;
}

bool response_end(struct response *response)
{
    if (response->state == RESPONSE_BODY && !response->has_length)
        response->state = RESPONSE_COMPLETE;
    return response->state == RESPONSE_COMPLETE;
}
