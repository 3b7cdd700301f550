/* Every case of the contract over HTTP: requests with the answer they must get,
 * computed in float64, those of models among them. Each is told in three encodings,
 * as safetensors and, where it fits, as npy, to a daemon with one worker and to one
 * with many; all the answers hold the same bytes, and the same numbers as answers
 * in the other formats. */
#include "tests/e2e/client.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/retell.h"
#include "tests/e2e/retell_binary.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

static const char *const folders[] = { "tests/vectors/cases",
                                       "tests/vectors/models_cases" };
#define MODELS "--models=tests/vectors/models"

enum { DAEMONS = 2, MAX_CASES = 2000 };

static struct daemon daemons[DAEMONS];

/* ---- one answer against what is expected ---- */

static double number_at(const struct told_tensor *t, size_t i)
{
    return t->data[i];
}

static void tensor_holds(const json_t *want, const json_t *got, double tol,
                         bool exact, const char *path)
{
    struct told_tensor w, g;

    assert_true(told_read(want, &w));
    if (!told_read(got, &g))
        fail_msg("%s: no tensor", path);
    if (w.rank != g.rank || memcmp(w.dim, g.dim, sizeof w.dim) != 0)
        fail_msg("%s: another shape, %zu numbers instead of %zu", path, g.count,
                 w.count);
    for (size_t i = 0; i < w.count; i++) {
        double a = number_at(&w, i), b = number_at(&g, i);
        bool same = isinf(a) ? a == b
                             : fabs(a - b) <= tol * fmax(1, fabs(a));

        if (!same || (exact && (float)a != (float)b))
            fail_msg("%s[%zu]: %.17g instead of %.17g", path, i, b, a);
    }
    told_free(&w);
    told_free(&g);
}

static void value_holds(const json_t *want, const json_t *got, double tol,
                        bool exact, const char *path)
{
    const char *key;
    json_t *member;

    if (got == NULL)
        fail_msg("no %s", path);
    if (json_is_integer(want)) {
        assert_int_equal(json_integer_value(want), json_integer_value(got));
        return;
    }
    if (json_object_get(want, "data") != NULL) {
        tensor_holds(want, got, tol, exact, path);
        return;
    }
    json_object_foreach((json_t *)want, key, member) {
        char longer[200];

        snprintf(longer, sizeof longer, "%s/%s", path, key);
        value_holds(member, json_object_get(got, key), tol, exact, longer);
    }
}

static void answer_holds(const json_t *c, const json_t *answer)
{
    static const char *const optional[] = { "weights", "fully_masked_queries",
                                            "comparison" };
    const json_t *want = json_object_get(c, "response");
    const char *key;
    json_t *member;

    json_object_foreach((json_t *)want, key, member)
        value_holds(member, json_object_get(answer, key),
                    json_number_value(json_object_get(c, "tolerance")),
                    json_is_true(json_object_get(c, "exact")), key);
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
        if (json_object_get(want, optional[i]) == NULL &&
            json_object_get(answer, optional[i]) != NULL)
            fail_msg("%s was not asked for", optional[i]);
}

static void refusal_holds(const json_t *c, const json_t *answer,
                          const struct reply *reply)
{
    const char *code = json_string_value(json_object_get(c, "code"));

    assert_string_equal(reply->content_type, "application/problem+json");
    assert_string_equal(json_string_value(json_object_get(answer, "pointer")),
                        json_string_value(json_object_get(c, "pointer")));
    if (code != NULL)
        assert_string_equal(json_string_value(json_object_get(answer, "code")),
                            code);
    assert_true(json_string_length(json_object_get(answer, "detail")) > 0);
    assert_string_equal(json_string_value(json_object_get(answer, "detail")),
                        json_string_value(json_object_get(answer, "error")));
}

static void reply_holds(const json_t *c, const struct reply *reply)
{
    long status = (long)json_integer_value(json_object_get(c, "status"));
    json_t *answer = json_loadb(reply->body, reply->len, 0, NULL);

    if (reply->status != status)
        fail_msg("status %ld instead of %ld: %.300s", reply->status, status,
                 reply->body);
    assert_non_null(answer);
    if (status == 200)
        answer_holds(c, answer);
    else
        refusal_holds(c, answer, reply);
    json_decref(answer);
}

/* ---- an answer in two formats ---- */

static void same_numbers(const json_t *a, const json_t *b, bool doubles,
                         const char *path)
{
    struct told_tensor x, y;

    if (!told_read(a, &x) || !told_read(b, &y))
        fail_msg("%s: no tensor", path);
    if (x.rank != y.rank || memcmp(x.dim, y.dim, sizeof x.dim) != 0)
        fail_msg("%s: another shape", path);
    for (size_t i = 0; i < x.count; i++) {
        bool same = doubles ? x.data[i] == y.data[i]
                            : (float)x.data[i] == (float)y.data[i];

        if (!same || signbit(x.data[i]) != signbit(y.data[i]))
            fail_msg("%s[%zu]: %.17g and %.17g", path, i, x.data[i],
                     y.data[i]);
    }
    told_free(&x);
    told_free(&y);
}

/* `other` has flat tensors where `json` has nested ones. */
static void same_answer(const json_t *json, const json_t *other, bool doubles,
                        const char *path)
{
    const char *key;
    json_t *member;

    if (json_object_get(other, "data") != NULL) {
        same_numbers(json, other, doubles, path);
        return;
    }
    if (!json_is_object(json)) {
        if (!json_equal(json, other))
            fail_msg("%s differs", path);
        return;
    }
    assert_int_equal(json_object_size(json), json_object_size(other));
    json_object_foreach((json_t *)json, key, member) {
        char longer[200];

        snprintf(longer, sizeof longer, "%s/%s", path, key);
        if (json_object_get(other, key) == NULL)
            fail_msg("no %s", longer);
        same_answer(member, json_object_get(other, key), doubles, longer);
    }
}

/* ---- one case, all ways ---- */

/* A request told in one way. */
struct telling {
    const char *content_type, *path;
    const void *bytes;
    size_t len;
};

/* A good answer is kept in *first; the next ones must be the same bytes. */
static void post_and_compare(const json_t *c, const struct telling *t,
                             char **first)
{
    for (int d = 0; d < DAEMONS; d++) {
        struct reply reply;

        client_send(daemons[d].port, t->path, t->content_type, NULL, t->bytes,
                    t->len, &reply);
        reply_holds(c, &reply);
        if (reply.status == 200 && *first != NULL)
            assert_string_equal(reply.body, *first);
        if (reply.status != 200 || *first != NULL)
            free(reply.body);
        else
            *first = reply.body;
    }
}

static bool asks_for_double(const json_t *request)
{
    const char *precision =
        json_string_value(json_object_get(request, "precision"));

    return precision != NULL && strcmp(precision, "float64") == 0;
}

/* Asks for the answer in a binary format, and compares with the first. */
static void answer_in(const struct telling *t, const char *accept,
                      const char *first, bool doubles)
{
    bool is_npy = strcmp(accept, "application/x-npy") == 0;
    json_t *json = json_loads(first, 0, NULL), *other, *output;
    struct reply reply;

    client_send(daemons[0].port, t->path, t->content_type, accept, t->bytes,
                t->len, &reply);
    assert_int_equal(reply.status, 200);
    assert_string_equal(reply.content_type, accept);
    other = is_npy ? retell_npy_reply(reply.body, reply.len)
                   : retell_safetensors_reply(reply.body, reply.len);
    assert_non_null(other);
    output = json_pack("{s:O}", "output", json_object_get(json, "output"));
    same_answer(is_npy ? output : json, other, doubles, accept);
    json_decref(output);
    json_decref(json);
    json_decref(other);
    free(reply.body);
}

static void told_in_json(const json_t *c, enum told told, char **first)
{
    json_t *request = json_deep_copy(json_object_get(c, "request"));
    bool good = json_integer_value(json_object_get(c, "status")) == 200;

    retell_request(request, told);
    /* The answer in one encoding whatever the question's; a request that must
     * fail keeps the words it was written with. */
    if (good)
        json_object_set_new(request, "response_format", json_string("nested"));

    char *body = json_dumps(request, JSON_REAL_PRECISION(17));
    struct telling t = { "application/json", "/attention", body, strlen(body) };

    post_and_compare(c, &t, first);
    if (good && told == TOLD_NESTED) {
        answer_in(&t, "application/x-safetensors", *first,
                  asks_for_double(request));
        answer_in(&t, "application/x-npy", *first, asks_for_double(request));
    }
    free(body);
    json_decref(request);
}

static void told_in_bytes(const json_t *c, const char *content_type,
                          struct told_body *body, char **first)
{
    struct telling t = { content_type, body->path, body->bytes, body->len };
    const json_t *request = json_object_get(c, "request");

    post_and_compare(c, &t, first);
    if (json_integer_value(json_object_get(c, "status")) == 200)
        answer_in(&t, "application/vnd.safetensors", *first,
                  asks_for_double(request));
    free(body->bytes);
    free(body->path);
}

static void case_holds(void **state)
{
    const char *file = *state;
    json_t *c = json_load_file(file, 0, NULL);
    json_t *request = json_object_get(c, "request");
    const char *raw = json_string_value(json_object_get(c, "body"));
    static unsigned variant;
    struct told_body body;
    char *first = NULL;

    assert_non_null(c);
    if (raw != NULL) {
        struct telling t = { "application/json", "/attention", raw,
                             strlen(raw) };

        post_and_compare(c, &t, &first);
    }
    for (int told = 0; raw == NULL && told < TOLD_COUNT; told++)
        told_in_json(c, (enum told)told, &first);
    if (raw == NULL) {
        if (json_integer_value(json_object_get(c, "status")) == 200)
            json_object_set_new(request, "response_format",
                                json_string("nested"));
        retell_safetensors(request, &body);
        told_in_bytes(c, "application/x-safetensors", &body, &first);
        if (retell_npy(request, variant++, &body))
            told_in_bytes(c, "application/x-npy", &body, &first);
    }
    free(first);
    json_decref(c);
}

/* ---- all cases ---- */

static int start(void **state)
{
    static const char *const one[] = { "--workers=1", MODELS, NULL };
    static const char *const many[] = { "--workers=8", MODELS, NULL };

    (void)state;
    daemon_start(&daemons[0], one);
    daemon_start(&daemons[1], many);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    return daemon_stop(&daemons[0], SIGTERM) | daemon_stop(&daemons[1], SIGTERM);
}

static int is_case(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');

    return dot != NULL && strcmp(dot, ".json") == 0;
}

/* Adds the cases of a folder behind the first `count`; the new count. */
static int add_folder(const char *folder, struct CMUnitTest *tests, int count)
{
    static char files[MAX_CASES][300];
    struct dirent **entries;
    int found = scandir(folder, &entries, is_case, alphasort);

    if (found <= 0 || count + found > MAX_CASES) {
        fprintf(stderr, "no cases in %s, or too many\n", folder);
        exit(1);
    }
    for (int i = 0; i < found; i++) {
        snprintf(files[count + i], sizeof files[0], "%s/%s", folder,
                 entries[i]->d_name);
        tests[count + i] = (struct CMUnitTest){
            .name = files[count + i],
            .test_func = case_holds,
            .initial_state = files[count + i],
        };
        free(entries[i]);
    }
    free(entries);
    return count + found;
}

int main(void)
{
    static struct CMUnitTest tests[MAX_CASES];
    int count = 0;

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        count = add_folder(folders[i], tests, count);
    return _cmocka_run_group_tests("vectors", tests, (size_t)count, start,
                                   stop);
}
