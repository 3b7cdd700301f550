#ifndef TESTS_FUZZ_HTTP_ANSWERS_H
#define TESTS_FUZZ_HTTP_ANSWERS_H

#include "core/error.h"
#include "tests/fuzz/http_requests.h"

#include <assert.h>
#include <jansson.h>
#include <stdlib.h>

/* What holds of every answer, whatever was asked. */

struct plain_answer {
    int status;
    bool closes;
    bool is_ours; /* not one that the HTTP library gives by itself */
    const char *body;
    size_t len;
};

struct plain_fields {
    bool has_length, closes, is_ours, is_packed;
    uint64_t length;
    char type[64];
};

static inline bool is_one_of(int status, const int *list)
{
    while (*list != 0 && *list != status)
        list++;
    return *list != 0;
}

static inline void check_status(const struct plain_answer *answer)
{
    static const int ours[] = { 200, 204, 304, 400, 404, 405,
                                413, 415, 422, 501, 503, 0 };
    static const int library[] = { 400, 413, 414, 431, 505, 0 };

    assert(is_one_of(answer->status, answer->is_ours ? ours : library));
    assert(answer->is_ours || answer->closes);
}

/* NAME ": " VALUE, of what may be printed. */
static inline void read_field(struct plain_line line, struct plain_fields *fields)
{
    const char *colon = memchr(line.text, ':', line.len);
    size_t name = colon == NULL ? 0 : (size_t)(colon - line.text);

    assert(plain_is_token(line.text, name) && line.len > name + 2);
    assert(colon[1] == ' ');
    for (size_t i = 0; i < line.len; i++)
        assert((unsigned char)line.text[i] >= 0x20 && line.text[i] != 0x7f);

    const char *value = colon + 2;
    size_t len = line.len - name - 2;

    assert(!plain_is(line.text, name, "transfer-encoding"));
    if (plain_is(line.text, name, "content-length")) {
        assert(!fields->has_length);
        fields->has_length = true;
        assert(plain_number(value, len, 10, &fields->length));
    } else if (plain_is(line.text, name, "connection")) {
        fields->closes = plain_is(value, len, "close");
        assert(fields->closes || plain_is(value, len, "keep-alive"));
    } else if (plain_is(line.text, name, "x-request-id")) {
        assert(plain_is_token(value, len) && len <= 128 && !fields->is_ours);
        fields->is_ours = true;
    } else if (plain_is(line.text, name, "content-encoding")) {
        fields->is_packed = true;
    } else if (plain_is(line.text, name, "content-type")) {
        assert(len < sizeof fields->type);
        memcpy(fields->type, value, len);
    }
}

static inline bool is_known_code(const char *code)
{
    for (int i = ERR_NONE + 1; code != NULL && i < ERR_COUNT; i++)
        if (strcmp(error_name((enum error_code)i), code) == 0)
            return true;
    return false;
}

static inline const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static inline void check_problem(const struct plain_answer *answer)
{
    json_t *problem = json_loadb(answer->body, answer->len,
                                 JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);

    assert(problem != NULL);
    assert(json_integer_value(json_object_get(problem, "status")) ==
           answer->status);
    assert(is_known_code(text_of(problem, "code")));
    assert(text_of(problem, "detail")[0] != '\0');
    json_decref(problem);
}

static inline void check_body(const struct plain_answer *answer,
                              const struct plain_fields *fields)
{
    bool is_json = strcmp(fields->type, "application/json") == 0;

    if (answer->is_ours && answer->status >= 400)
        assert(strcmp(fields->type, "application/problem+json") == 0);
    if (!answer->is_ours || answer->len == 0 || fields->is_packed)
        return;
    if (answer->status >= 400) {
        check_problem(answer);
    } else if (is_json) {
        json_t *whole = json_loadb(answer->body, answer->len,
                                   JSON_REJECT_DUPLICATES, NULL);

        assert(whole != NULL);
        json_decref(whole);
    }
}

static inline bool has_body(uint64_t status)
{
    return status != 204 && status != 304;
}

/* One that comes before the answer: the service says it to a client that has
 * shut its side and waits for long, to see whether somebody is there. */
static inline void skip_interim(struct plain_reader *in)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";

    while (in->end - in->at >= (ptrdiff_t)sizeof interim - 1 &&
           memcmp(in->at, interim, sizeof interim - 1) == 0)
        in->at += sizeof interim - 1;
}

/* The answer that is next, which must be whole; `to_head`, one without a body.
 * False when there is none. */
static inline bool plain_answer(struct plain_reader *in, bool to_head,
                                struct plain_answer *answer)
{
    struct plain_fields fields = { 0 };
    struct plain_line line;
    uint64_t status;

    skip_interim(in);
    if (in->at == in->end)
        return false;
    assert(plain_line(in, &line) && line.len > 13);
    assert(memcmp(line.text, "HTTP/1.", 7) == 0);
    assert(plain_number(line.text + 9, 3, 10, &status) && line.text[12] == ' ');
    for (;;) {
        assert(plain_line(in, &line));
        if (line.len == 0)
            break;
        read_field(line, &fields);
    }
    *answer = (struct plain_answer){
        .status = (int)status, .closes = fields.closes,
        .is_ours = fields.is_ours, .body = in->at,
    };
    assert(fields.has_length || !has_body(status));
    if (!to_head && has_body(status)) {
        answer->len = (size_t)fields.length;
        assert(plain_skip(in, fields.length));
    }
    check_status(answer);
    check_body(answer, &fields);
    return true;
}

#endif
