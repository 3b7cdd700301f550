/* The document at /openapi.json against the server that serves it: each of its
 * request examples gets its own response example, its fields are the server's,
 * its paths answer, its codes are those of core/error.def. */

#include "api/coding.h"
#include "api/fields.h"
#include "api/wire.h"
#include "core/error.h"
#include "tests/e2e/daemon.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <curl/curl.h>
#include <jansson.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Relative where a number is over 1. The instruction set that wrote the document
 * and the one that runs may round differently; one step of a float32 is at most
 * 1.2e-7 of the number, and the examples are a few sums long. */
#define TOLERANCE 1e-6

static struct daemon server;
static json_t *document;

/* ---- one exchange ---- */

struct reply {
    long status;
    char *body;
    size_t len;
    char etag[128], allow[128];
};

static size_t take_body(char *data, size_t size, size_t n, void *to)
{
    struct reply *reply = to;

    reply->body = realloc(reply->body, reply->len + size * n + 1);
    assert_non_null(reply->body);
    memcpy(reply->body + reply->len, data, size * n);
    reply->len += size * n;
    reply->body[reply->len] = '\0';
    return size * n;
}

/* Copies the value of a header line that starts with `name`. */
static void take_value(const char *line, size_t len, const char *name,
                       char value[128])
{
    size_t at = strlen(name);

    if (len <= at || strncasecmp(line, name, at) != 0)
        return;
    snprintf(value, 128, "%.*s", (int)(len - at), line + at);
    value[strcspn(value, "\r\n")] = '\0';
}

static size_t take_header(char *line, size_t size, size_t n, void *to)
{
    struct reply *reply = to;

    take_value(line, size * n, "ETag: ", reply->etag);
    take_value(line, size * n, "Allow: ", reply->allow);
    return size * n;
}

/* `header` may be NULL, and so may `body`. The body's memory is the caller's. */
static struct reply ask(const char *method, const char *path,
                        const char *header, const char *body)
{
    struct reply reply = { 0 };
    char url[256];
    CURL *curl = curl_easy_init();
    struct curl_slist *headers =
        curl_slist_append(NULL, "Content-Type: application/json");

    if (header != NULL)
        headers = curl_slist_append(headers, header);
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", server.port, path);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    if (body != NULL)
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    if (strcmp(method, "HEAD") == 0)
        curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    else
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &reply);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, &reply);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, 20L);
    assert_int_equal(curl_easy_perform(curl), CURLE_OK);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &reply.status);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return reply;
}

/* ---- the document ---- */

/* A member by its path of names; NULL when it is not there. */
static json_t *find(json_t *from, const char *const *names)
{
    for (; *names != NULL && from != NULL; names++)
        from = json_object_get(from, *names);
    return from;
}

#define FIND(from, ...) find(from, (const char *const[]){ __VA_ARGS__, NULL })

/* Follows "$ref": "#/a/b", where there is one. */
static json_t *resolve(json_t *node)
{
    const char *ref = json_string_value(json_object_get(node, "$ref"));
    json_t *at = document;
    char copy[256], *rest = copy;

    if (ref == NULL)
        return node;
    snprintf(copy, sizeof copy, "%s", ref + strlen("#/"));
    for (char *name; (name = strsep(&rest, "/")) != NULL;)
        at = json_object_get(at, name);
    assert_non_null(at);
    return at;
}

static json_t *operation(void)
{
    return FIND(document, "paths", "/attention", "post");
}

static json_t *request_examples(void)
{
    return FIND(operation(), "requestBody", "content", "application/json",
                "examples");
}

/* The example `name` of any response of POST /attention, and its status. */
static json_t *find_answer(const char *name, long *status)
{
    json_t *found = NULL, *response, *media;
    const char *code, *type;

    json_object_foreach(json_object_get(operation(), "responses"), code,
                        response)
        json_object_foreach(json_object_get(resolve(response), "content"),
                            type, media) {
            json_t *value = FIND(media, "examples", name, "value");

            if (value == NULL)
                continue;
            if (found != NULL)
                fail_msg("two responses have an example %s", name);
            found = value;
            *status = atol(code);
        }
    return found;
}

/* ---- the same, to the last digits ---- */

/* What differs from one run to the next: only its type is compared. */
static bool varies(const char *member)
{
    return strcmp(member, "us") == 0 || strcmp(member, "kernels") == 0 ||
           strcmp(member, "request_id") == 0;
}

/* The bytes of a base64 text; `out` holds three for each four characters. */
static size_t base64_bytes(const char *text, unsigned char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "abcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned bits = 0, held = 0;
    size_t len = 0;

    for (; *text != '\0' && *text != '='; text++) {
        bits = bits << 6 | (unsigned)(strchr(digits, *text) - digits);
        held += 6;
        if (held >= 8)
            out[len++] = (unsigned char)(bits >> (held -= 8));
    }
    return len;
}

static void compare(json_t *want, json_t *got, const char *where);

/* Both are F32 tensors in base64. */
static void compare_base64(const char *want, const char *got, const char *where)
{
    unsigned char bytes[2][1024];
    float number[2][256];
    size_t len = base64_bytes(want, bytes[0]);

    assert_true(strlen(want) < 1024 && strlen(got) == strlen(want));
    assert_int_equal(base64_bytes(got, bytes[1]), len);
    memcpy(number[0], bytes[0], len);
    memcpy(number[1], bytes[1], len);
    for (size_t i = 0; i < len / sizeof(float); i++)
        if (!(fabsf(number[0][i] - number[1][i]) <= (float)TOLERANCE))
            fail_msg("%s[%zu]: %.9g, the document says %.9g", where, i,
                     (double)number[1][i], (double)number[0][i]);
}

static void compare_objects(json_t *want, json_t *got, const char *where)
{
    const char *name;
    json_t *value;

    json_object_foreach(got, name, value)
        if (json_object_get(want, name) == NULL)
            fail_msg("%s/%s is not in the document", where, name);
    json_object_foreach(want, name, value) {
        char at[512];
        json_t *other = json_object_get(got, name);

        snprintf(at, sizeof at, "%s/%s", where, name);
        if (other == NULL)
            fail_msg("%s is only in the document", at);
        else if (strcmp(name, "base64") == 0)
            compare_base64(json_string_value(value), json_string_value(other),
                           at);
        else if (varies(name))
            assert_int_equal(json_is_number(value), json_is_number(other));
        else
            compare(value, other, at);
    }
}

static void compare_arrays(json_t *want, json_t *got, const char *where)
{
    size_t i;
    json_t *value;

    if (json_array_size(want) != json_array_size(got))
        fail_msg("%s: %zu elements, the document says %zu", where,
                 json_array_size(got), json_array_size(want));
    json_array_foreach(want, i, value) {
        char at[512];

        snprintf(at, sizeof at, "%s/%zu", where, i);
        compare(value, json_array_get(got, i), at);
    }
}

static void compare(json_t *want, json_t *got, const char *where)
{
    if (json_is_number(want) && json_is_number(got)) {
        double w = json_number_value(want), g = json_number_value(got);

        if (!(fabs(w - g) <= TOLERANCE * fmax(1, fabs(w))))
            fail_msg("%s: %.9g, the document says %.9g", where, g, w);
    } else if (json_is_object(want) && json_is_object(got)) {
        compare_objects(want, got, where);
    } else if (json_is_array(want) && json_is_array(got)) {
        compare_arrays(want, got, where);
    } else if (!json_equal(want, got)) {
        fail_msg("%s: not what the document says", where);
    }
}

/* ---- the tests ---- */

static void every_request_example_gets_the_response_example_of_its_name(void **state)
{
    const char *name;
    json_t *example;

    (void)state;
    assert_true(json_object_size(request_examples()) > 0);
    json_object_foreach(request_examples(), name, example) {
        json_t *value = json_object_get(example, "value");
        long status = 0;
        json_t *want = find_answer(name, &status);
        char *body = json_is_string(value) /* what JSON cannot say, as text */
                         ? strdup(json_string_value(value))
                         : json_dumps(value, 0);
        struct reply reply = ask("POST", "/attention", NULL, body);
        json_t *got = json_loads(reply.body, 0, NULL);

        if (want == NULL)
            fail_msg("no response example %s", name);
        if (reply.status != status)
            fail_msg("%s: %ld, the document says %ld", name, reply.status,
                     status);
        compare(want, got, name);
        json_decref(got);
        free(reply.body);
        free(body);
    }
}

/* null is no value of any field, so the code says whether the name is known. */
static bool is_known(const char *field)
{
    json_t *request = json_pack("{s:n}", field);
    char *body = json_dumps(request, 0);
    struct reply reply = ask("POST", "/attention", NULL, body);
    json_t *problem = json_loads(reply.body, 0, NULL);
    const char *code = json_string_value(json_object_get(problem, "code"));

    assert_int_equal(reply.status, 422);
    assert_non_null(code);

    bool known = strcmp(code, "unknown_field") != 0;

    json_decref(problem);
    json_decref(request);
    free(reply.body);
    free(body);
    return known;
}

static void every_field_of_the_schema_is_known_and_no_other(void **state)
{
    json_t *schema = resolve(FIND(operation(), "requestBody", "content",
                                  "application/json", "schema"));
    json_t *fields = json_object_get(schema, "properties"), *field;
    const char *name;

    (void)state;
    assert_true(json_is_false(json_object_get(schema, "additionalProperties")));
    json_object_foreach(fields, name, field)
        if (!is_known(name))
            fail_msg("%s is not a field of the server", name);
    for (size_t i = 0; i < FIELD_COUNT; i++)
        if (json_object_get(fields, fields_table[i].name) == NULL)
            fail_msg("%s is not in the document", fields_table[i].name);
    assert_false(is_known("is_casual"));
}

/* Each type of a list like Accept-Post's is a member of `content`, and there is
 * no other. */
static void check_types(json_t *content, const char *types)
{
    size_t count = 0;
    char copy[256], *rest = copy;

    assert_non_null(content);
    snprintf(copy, sizeof copy, "%s", types);
    for (char *type; (type = strsep(&rest, ",")) != NULL; count++) {
        type += strspn(type, " ");
        if (json_object_get(content, type) == NULL)
            fail_msg("%s is not in the document", type);
    }
    assert_int_equal(json_object_size(content), count);
}

static void requests_and_replies_have_the_media_types_that_are_served(
    void **state)
{
    (void)state;
    check_types(FIND(operation(), "requestBody", "content"),
                wire_media_types());
    check_types(FIND(operation(), "responses", "200", "content"),
                wire_media_types());
}

static void the_codings_of_a_request_are_those_that_are_served(void **state)
{
    json_t *words = FIND(document, "components", "parameters",
                         "Content-Encoding", "schema", "enum");
    char text[64] = "";
    size_t i;
    json_t *word;

    (void)state;
    json_array_foreach(words, i, word) {
        strncat(text, i == 0 ? "" : ", ", sizeof text - strlen(text) - 1);
        strncat(text, json_string_value(word),
                sizeof text - strlen(text) - 1);
    }
    assert_string_equal(text, coding_names());
}

static bool lists(json_t *words, const char *word)
{
    size_t i;
    json_t *value;

    json_array_foreach(words, i, value)
        if (strcmp(json_string_value(value), word) == 0)
            return true;
    return false;
}

static void the_codes_are_those_of_the_error_table(void **state)
{
    json_t *codes = FIND(document, "components", "schemas", "Problem",
                         "properties", "code", "enum"), *code;
    json_t *names = json_array();
    size_t i;

    (void)state;
    for (int error = ERR_NONE + 1; error < ERR_COUNT; error++) {
        const char *name = error_name((enum error_code)error);

        json_array_append_new(names, json_string(name));
        if (!lists(codes, name))
            fail_msg("the document has no code %s", name);
    }
    json_array_foreach(codes, i, code)
        if (!lists(names, json_string_value(code)))
            fail_msg("no error has the code %s", json_string_value(code));
    json_decref(names);
}

/* Those that are there whatever the options. */
static size_t count_methods(json_t *methods)
{
    const char *method;
    json_t *described;
    size_t count = 0;

    json_object_foreach(methods, method, described)
        count += json_object_get(described, "x-option") == NULL;
    return count;
}

/* Every method that the document lists for a path, but for one that an option
 * brings, is in its Allow, and no other; and what has no parameters is answered as the document says. */
static void every_path_answers_the_methods_it_lists(void **state)
{
    const char *path, *method;
    json_t *methods, *described;

    (void)state;
    json_object_foreach(json_object_get(document, "paths"), path, methods) {
        struct reply options = ask("OPTIONS", path, NULL, NULL);
        size_t listed = 1;

        for (const char *c = options.allow; *c != '\0'; c++)
            listed += *c == ',';
        assert_int_equal(listed, count_methods(methods));
        free(options.body);
        json_object_foreach(methods, method, described) {
            char upper[16] = "", status[8];

            if (json_object_get(described, "x-option") != NULL)
                continue;
            for (size_t i = 0; method[i] != '\0'; i++)
                upper[i] = (char)(method[i] - 'a' + 'A');
            if (strstr(options.allow, upper) == NULL)
                fail_msg("%s does not answer %s", path, upper);
            if (strcmp(upper, "POST") == 0)
                continue;

            struct reply reply = ask(upper, path, NULL, NULL);

            snprintf(status, sizeof status, "%ld", reply.status);
            if (FIND(described, "responses", status) == NULL)
                fail_msg("%s %s: %s is not in the document", upper, path,
                         status);
            free(reply.body);
        }
    }
}

/* A route that ends in '/' is in the document with the name of what follows. */
static void expect_path(const json_t *paths, const char *route)
{
    bool has_name = route[strlen(route) - 1] == '/';
    char path[100];

    snprintf(path, sizeof path, "%s%s", route, has_name ? "{name}" : "");
    if (json_object_get(paths, path) == NULL)
        fail_msg("%s is not in the document", path);
}

static void every_route_is_in_the_document_and_no_other_path(void **state)
{
    json_t *paths = json_object_get(document, "paths");
    size_t routes = 0;

    (void)state;
#define ROUTE(name, path, methods, key, door, answer)                               \
    routes++;                                                                  \
    expect_path(paths, path);
#include "server/routes.def"
#undef ROUTE
    assert_int_equal(json_object_size(paths), routes);
}

static void the_document_served_is_the_one_in_api(void **state)
{
    struct reply reply = ask("GET", "/openapi.json", NULL, NULL);
    FILE *file = fopen("api/openapi.json", "r");
    char *text = malloc(reply.len + 2);

    (void)state;
    assert_non_null(file);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, reply.len + 1, file), reply.len);
    assert_memory_equal(text, reply.body, reply.len);
    fclose(file);
    free(text);
    free(reply.body);
}

static void a_client_that_has_the_document_gets_304(void **state)
{
    struct reply first = ask("GET", "/openapi.json", NULL, NULL);
    char header[160];

    (void)state;
    assert_int_equal(first.status, 200);
    assert_true(first.etag[0] == '"');
    snprintf(header, sizeof header, "If-None-Match: %s", first.etag);

    struct reply second = ask("GET", "/openapi.json", header, NULL);
    struct reply other = ask("GET", "/openapi.json", "If-None-Match: \"x\"",
                             NULL);

    assert_int_equal(second.status, 304);
    assert_int_equal(second.len, 0);
    assert_string_equal(second.etag, first.etag);
    assert_int_equal(other.status, 200);
    assert_int_equal(other.len, first.len);
    free(first.body);
    free(second.body);
    free(other.body);
}

static int start(void **state)
{
    struct reply reply;

    (void)state;
    curl_global_init(CURL_GLOBAL_DEFAULT);
    daemon_start(&server, NULL);
    reply = ask("GET", "/openapi.json", NULL, NULL);
    document = json_loads(reply.body, JSON_REJECT_DUPLICATES, NULL);
    free(reply.body);
    return document == NULL;
}

static int stop(void **state)
{
    (void)state;
    json_decref(document);
    curl_global_cleanup();
    return daemon_stop(&server, SIGTERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_example_gets_the_response_example_of_its_name),
        cmocka_unit_test(every_field_of_the_schema_is_known_and_no_other),
        cmocka_unit_test(requests_and_replies_have_the_media_types_that_are_served),
        cmocka_unit_test(the_codings_of_a_request_are_those_that_are_served),
        cmocka_unit_test(the_codes_are_those_of_the_error_table),
        cmocka_unit_test(every_route_is_in_the_document_and_no_other_path),
        cmocka_unit_test(every_path_answers_the_methods_it_lists),
        cmocka_unit_test(the_document_served_is_the_one_in_api),
        cmocka_unit_test(a_client_that_has_the_document_gets_304),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
