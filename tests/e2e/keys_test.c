/* API keys on a running daemon: who is let in, who is not, and that neither
 * answers nor log lines nor metrics tell a key. */
#include "tests/e2e/daemon.h"
#include "tests/faults/witness.h"
#include "tests/folder.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define HOST "Host: a\r\n"
#define CLOSE "Connection: close\r\n"
#define ALPHA_KEY "Authorization: Bearer alpha-key\r\n"
#define BETA_KEY "X-API-Key: beta-key\r\n"
#define SMALL "{\"query\": [[1, 2]]}" /* 19 bytes, a request */
#define POST "POST /attention HTTP/1.1\r\n" HOST                               \
             "Content-Type: application/json\r\n"

/* SHA-256 of "alpha-key", "beta-key" and "gamma-key". */
#define ALPHA "alpha 677509799af78b2efa2f2af71d0f906e0a0c50c048efd3b515625f788e92b99a\n"
#define BETA "beta 7a3d637bc601f7000cc2c33141c8c8a7554e02e319fa8b293a0c88c613b77620 # whose\n"
#define GAMMA "gamma 36c2c0e2d54b8df7e21c9f9afc50a206f2595fc23531fe933e4788e699e0e59d\n"

enum { ANSWER_BYTES = 1 << 16 };

static char answer[ANSWER_BYTES];
static char folder[] = "/tmp/attnd_keys_XXXXXX";
static char keys_file[64];

static int set_up(void **state)
{
    (void)state;
    if (folder_make(folder) != 0)
        return -1;
    snprintf(keys_file, sizeof keys_file, "%s/keys", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return folder_remove(folder);
}

/* With two more options, or NULL. */
static void start(struct daemon *daemon, const char *option, const char *value)
{
    const char *options[] = { "--api-keys-file", keys_file, "--workers", "1",
                              option, value, NULL };

    folder_put_text(keys_file, "# who may\n" ALPHA BETA);
    daemon_start(daemon, options);
}

static bool says(const char *text)
{
    return strcasestr(answer, text) != NULL;
}

static int ask(const struct daemon *daemon, const char *line,
               const char *headers)
{
    char text[4096];

    snprintf(text, sizeof text, "%s HTTP/1.1\r\n" HOST CLOSE
             "X-Request-ID: same\r\n%s\r\n", line, headers);
    return daemon_exchange(daemon, text, answer, sizeof answer);
}

/* A POST whose headers announce a body that never comes: what is decided is
 * decided without it. A proxy may wait for it before it closes. */
static int announce(const struct daemon *daemon, const char *headers,
                    const char *more)
{
    size_t size = strlen(headers) + strlen(more) + 1024;
    char *text = malloc(size);
    int fd = daemon_connect(daemon), status;

    assert_true(text != NULL && fd >= 0);
    snprintf(text, size, POST CLOSE "X-Request-ID: same\r\n"
             "Content-Length: 19\r\n%s%s\r\n", headers, more);
    daemon_send(fd, text, strlen(text));
    status = daemon_read_one(fd, answer, sizeof answer);
    close(fd);
    free(text);
    return status;
}

/* ---- what must not let anybody in ---- */

static void no_key_and_every_wrong_one_get_the_same_401_before_the_body(
    void **state)
{
    static const char *const wrong[] = {
        "",
        "Authorization: Bearer wrong\r\n",
        "Authorization: Bearer alpha-ke\r\n",
        "Authorization: Bearer alpha-key1\r\n",
        "Authorization: Bearer \r\n",
        "Authorization: Bearer\r\n",
        "Authorization:\r\n",
        "Authorization: Bearer \xc3\xa4\xff\x80\r\n",
        "Authorization: Basic YWxwaGE6YWxwaGEta2V5\r\n",
        "Authorization: Digest username=\"alpha\"\r\n",
        "Authorization: alpha-key\r\n",
        "X-API-Key: alpha-ke\r\n",
        "X-API-Key:\r\n",
        "X-API-Key: beta-key2\r\n",
        "X-API-Key: \xff\r\n",
        ALPHA_KEY "X-API-Key: beta-key\r\n",
    };
    struct daemon daemon;
    struct witness witness;
    char first[ANSWER_BYTES], *body;

    (void)state;
    start(&daemon, NULL, NULL);
    witness_begin_with(&witness, &daemon, BETA_KEY);
    assert_int_equal(announce(&daemon, "", ""), 401);
    assert_true(says("\r\nWWW-Authenticate: Bearer realm=\"attnd\"\r\n"));
    assert_true(says("\r\nConnection: close\r\n"));
    assert_true(says("\"code\":\"unauthorized\""));
    body = strstr(answer, "\r\n\r\n");
    snprintf(first, sizeof first, "%s", body);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (announce(&daemon, wrong[i], "") != 401 ||
            strcmp(strstr(answer, "\r\n\r\n"), first) != 0)
            fail_msg("%s: %s", wrong[i], answer);
        assert_int_equal(ask(&daemon, "GET /version", wrong[i]), 401);
        assert_string_equal(strstr(answer, "\r\n\r\n"), first);
    }
    witness_end(&witness, WITNESS_SLACK_BYTES, 2 * sizeof wrong / sizeof *wrong);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

static void a_key_of_32_kilobytes_gets_the_same_401(void **state)
{
    enum { SIZE = 32 * 1024 };
    static const char *const heads[] = { "Authorization: Bearer ",
                                         "Authorization: ", "X-API-Key: " };
    char *header = malloc(SIZE + 64), first[ANSWER_BYTES];
    struct daemon daemon;
    struct witness witness;

    (void)state;
    assert_non_null(header);
    start(&daemon, NULL, NULL);
    witness_begin_with(&witness, &daemon, BETA_KEY);
    assert_int_equal(announce(&daemon, "", ""), 401);
    snprintf(first, sizeof first, "%s", strstr(answer, "\r\n\r\n"));
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        size_t len = strlen(heads[i]);

        memcpy(header, heads[i], len);
        memset(header + len, 'k', SIZE);
        memcpy(header + len + SIZE, "\r\n", 3);
        assert_int_equal(announce(&daemon, header, ""), 401);
        assert_string_equal(strstr(answer, "\r\n\r\n"), first);
    }
    free(header);
    witness_end(&witness, WITNESS_SLACK_BYTES, 3);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

static void two_authorization_headers_get_400(void **state)
{
    struct daemon daemon;
    struct witness witness;

    (void)state;
    start(&daemon, NULL, NULL);
    witness_begin_with(&witness, &daemon, BETA_KEY);
    assert_int_equal(announce(&daemon, ALPHA_KEY ALPHA_KEY, ""), 400);
    assert_true(says("more than one Authorization"));
    assert_true(says("\r\nConnection: close\r\n"));
    assert_int_equal(announce(&daemon, BETA_KEY "x-api-key: beta-key\r\n", ""),
                     400);
    assert_int_equal(ask(&daemon, "GET /livez", ALPHA_KEY ALPHA_KEY), 400);
    witness_end(&witness, WITNESS_SLACK_BYTES, 3);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

static void each_path_and_method_without_a_key_gets_401_but_health(void **state)
{
    static const char *const paths[] = {
        "/attention", "/models", "/models/x", "/openapi.json", "/version",
        "/metrics", "/nowhere", "/", "*", "/livez/", "//livez", "/Livez",
    };
    static const char *const methods[] = { "GET", "POST", "PUT", "DELETE",
                                           "OPTIONS", "PATCH", "BREW" };
    struct daemon daemon;
    struct witness witness;
    char line[64];

    (void)state;
    start(&daemon, NULL, NULL);
    witness_begin_with(&witness, &daemon, BETA_KEY);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        for (size_t j = 0; j < sizeof methods / sizeof *methods; j++) {
            snprintf(line, sizeof line, "%s %s", methods[j], paths[i]);
            if (ask(&daemon, line, "") != 401)
                fail_msg("%s: %s", line, answer);
        }
    assert_int_equal(ask(&daemon, "GET /livez", ""), 200);
    assert_int_equal(ask(&daemon, "GET /readyz", ""), 200);
    assert_int_equal(ask(&daemon, "OPTIONS /livez", ""), 204);
    assert_int_equal(ask(&daemon, "POST /livez", ""), 405);
    assert_int_equal(ask(&daemon, "GET /nowhere", ALPHA_KEY), 404);
    assert_int_equal(ask(&daemon, "GET /metrics", BETA_KEY), 200);
    assert_int_equal(ask(&daemon, "GET /livez", "X-API-Key: wrong\r\n"), 200);
    witness_end(&witness, WITNESS_SLACK_BYTES, 84);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);

    start(&daemon, "--no-metrics-need-key", NULL);
    assert_int_equal(ask(&daemon, "GET /metrics", ""), 200);
    assert_int_equal(ask(&daemon, "GET /version", ""), 401);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

static void expect_without_a_key_gets_401_without_the_100(void **state)
{
    struct daemon daemon;
    struct witness witness;

    (void)state;
    start(&daemon, NULL, NULL);
    witness_begin_with(&witness, &daemon, BETA_KEY);
    assert_int_equal(announce(&daemon, "", "Expect: 100-continue\r\n"), 401);
    assert_false(says("100 Continue"));
    assert_true(says("\r\nWWW-Authenticate: Bearer"));
    witness_end(&witness, WITNESS_SLACK_BYTES, 1);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

static void a_key_lets_in_and_its_name_is_in_the_log_and_the_metrics(
    void **state)
{
    struct daemon daemon;

    (void)state;
    start(&daemon, "--no-metrics-need-key", NULL);
    assert_int_equal(daemon_exchange(&daemon,
                                     POST CLOSE ALPHA_KEY
                                     "Content-Length: 19\r\n\r\n" SMALL,
                                     answer, sizeof answer), 200);
    assert_true(says("\"output\""));
    assert_int_equal(ask(&daemon, "GET /models", BETA_KEY), 200);
    assert_int_equal(ask(&daemon, "GET /models", ""), 401);
    assert_true(daemon_logs(&daemon, "\"path\":\"/attention\",\"key\":\"alpha\""
                                     ",\"status\":200"));
    assert_true(daemon_logs(&daemon, "\"path\":\"/models\",\"key\":\"beta\""));
    assert_true(daemon_logs(&daemon, "\"path\":\"/models\",\"status\":401,"
                                     "\"code\":\"unauthorized\""));
    assert_true(daemon_metric(&daemon,
                              "attnd_key_requests_total{key=\"alpha\"}") == 1);
    assert_true(daemon_metric(&daemon,
                              "attnd_key_requests_total{key=\"beta\"}") == 1);
    assert_true(daemon_metric(&daemon, "attnd_rejected_total{reason="
                                       "\"unauthorized\"}") == 1);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

static void keys_are_never_in_logs_metrics_or_errors(void **state)
{
    static const char *const headers[] = {
        ALPHA_KEY, BETA_KEY, "Authorization: Bearer sesame-key\r\n",
        "X-API-Key: sesame-key\r\n", "Authorization: sesame-key\r\n",
        "Authorization : Bearer sesame-key\r\n",
        ALPHA_KEY "Authorization: Bearer sesame-key\r\n",
        "X-API-Key: sesame-key\r\n X: folded sesame-key\r\n",
        "X-API-Key sesame-key\r\n",
    };
    struct daemon daemon;
    char *log;

    (void)state;
    start(&daemon, "--log-level", "debug");
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        ask(&daemon, "GET /version", headers[i]);
        assert_null(strstr(answer, "sesame"));
        assert_null(strstr(answer, "alpha-key"));
    }
    assert_int_equal(ask(&daemon, "GET /metrics", ALPHA_KEY), 200);
    assert_null(strstr(answer, "-key\""));
    assert_true(daemon_logs(&daemon, "\"path\":\"/metrics\""));
    log = daemon_log(&daemon);
    assert_null(strstr(log, "sesame"));
    assert_null(strstr(log, "alpha-key"));
    assert_null(strstr(log, "beta-key"));
    assert_null(strstr(log, "677509799af7"));
    free(log);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

static void a_file_without_keys_or_with_a_bad_line_refuses_to_start(
    void **state)
{
    static const char *const rows[][2] = {
        { "", ": there is no key in it\n" },
        { "# none\n\n", ": there is no key in it\n" },
        { ALPHA "beta secret\n", ":2: not a name" },
    };
    const char *options[] = { "--listen", "127.0.0.1:0", "--api-keys-file",
                              keys_file, NULL };
    const char *check[] = { "--check-config", "--api-keys-file", keys_file,
                            NULL };
    char said[1024], start_of[128];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        folder_put_text(keys_file, rows[i][0]);
        assert_int_not_equal(daemon_run(options, said, sizeof said), 0);
        snprintf(start_of, sizeof start_of, "attnd: --api-keys-file: %s%s",
                 keys_file, rows[i][1]);
        assert_int_equal(strncmp(said, start_of, strlen(start_of)), 0);
        assert_int_equal(strcspn(said, "\n"), strlen(said) - 1);
        assert_null(strstr(said, "secret"));
        assert_int_not_equal(daemon_run(check, said, sizeof said), 0);
        assert_int_equal(strncmp(said, start_of, strlen(start_of)), 0);
    }
    options[3] = check[2] = "/nowhere/keys";
    assert_int_not_equal(daemon_run(options, said, sizeof said), 0);
    assert_string_equal(said, "attnd: --api-keys-file: /nowhere/keys: No such "
                              "file or directory\n");
}

/* ---- the rest ---- */

static void hang_up(struct daemon *daemon, const char *text, const char *event)
{
    char *log = daemon_log(daemon);
    size_t before = strlen(log);
    bool seen = false;

    free(log);
    folder_put_text(keys_file, text);
    kill(daemon->pid, SIGHUP);
    for (int waited = 0; !seen && waited < 5000; waited += 10) {
        log = daemon_log(daemon);
        seen = strstr(log + before, event) != NULL;
        free(log);
        poll(NULL, 0, 10);
    }
    assert_true(seen);
}

static void sighup_reads_the_keys_again_and_a_bad_file_keeps_them(void **state)
{
    struct daemon daemon;

    (void)state;
    start(&daemon, "--no-metrics-need-key", NULL);
    hang_up(&daemon, GAMMA BETA, "\"msg\":\"reloaded\"");
    assert_int_equal(ask(&daemon, "GET /version", ALPHA_KEY), 401);
    assert_int_equal(ask(&daemon, "GET /version", BETA_KEY), 200);
    assert_int_equal(ask(&daemon, "GET /version", "X-API-Key: gamma-key\r\n"),
                     200);
    hang_up(&daemon, "", "\"msg\":\"not reloaded\"");
    hang_up(&daemon, ALPHA "nonsense\n", "keys:2: not a name");
    assert_int_equal(ask(&daemon, "GET /version", ALPHA_KEY), 401);
    assert_int_equal(ask(&daemon, "GET /version", BETA_KEY), 200);
    assert_int_equal(ask(&daemon, "GET /version", ""), 401);
    assert_true(daemon_metric(&daemon, "attnd_reload_failures_total") == 2);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

static void a_name_over_its_limit_gets_429_and_others_do_not(void **state)
{
    static const char half[] = POST ALPHA_KEY "Content-Length: 19\r\n\r\n{";
    struct daemon daemon;
    int fd[2];

    (void)state;
    start(&daemon, "--key-concurrency", "2");
    for (int i = 0; i < 2; i++) {
        fd[i] = daemon_connect(&daemon);
        assert_true(daemon_send(fd[i], half, sizeof half - 1));
    }
    for (int i = 0; ask(&daemon, "GET /metrics", BETA_KEY) == 200 &&
                    !says("attnd_key_running{key=\"alpha\"} 2\n"); i++) {
        assert_true(i < 500);
        poll(NULL, 0, 10);
    }
    assert_int_equal(announce(&daemon, ALPHA_KEY, "Expect: 100-continue\r\n"),
                     429);
    assert_true(says("\r\nRetry-After: 1\r\n"));
    assert_true(says("\"code\":\"quota\""));
    assert_int_equal(ask(&daemon, "GET /version", ALPHA_KEY), 200);
    assert_int_equal(daemon_exchange(&daemon,
                                     POST CLOSE BETA_KEY
                                     "Content-Length: 19\r\n\r\n" SMALL,
                                     answer, sizeof answer), 200);

    assert_true(daemon_send(fd[0], SMALL + 1, 18));
    assert_int_equal(daemon_read_one(fd[0], answer, sizeof answer), 200);
    close(fd[1]); /* the other leaves in the body */
    for (int i = 0; ask(&daemon, "GET /metrics", BETA_KEY) == 200 &&
                    !says("attnd_key_running{key=\"alpha\"} 0\n"); i++) {
        assert_true(i < 500);
        poll(NULL, 0, 10);
    }
    assert_true(says("attnd_key_refused_total{key=\"alpha\"} 1\n"));
    assert_true(says("attnd_rejected_total{reason=\"quota\"} 1\n"));
    close(fd[0]);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            no_key_and_every_wrong_one_get_the_same_401_before_the_body),
        cmocka_unit_test(a_key_of_32_kilobytes_gets_the_same_401),
        cmocka_unit_test(two_authorization_headers_get_400),
        cmocka_unit_test(
            each_path_and_method_without_a_key_gets_401_but_health),
        cmocka_unit_test(expect_without_a_key_gets_401_without_the_100),
        cmocka_unit_test(
            a_key_lets_in_and_its_name_is_in_the_log_and_the_metrics),
        cmocka_unit_test(keys_are_never_in_logs_metrics_or_errors),
        cmocka_unit_test(
            a_file_without_keys_or_with_a_bad_line_refuses_to_start),
        cmocka_unit_test(
            sighup_reads_the_keys_again_and_a_bad_file_keeps_them),
        cmocka_unit_test(a_name_over_its_limit_gets_429_and_others_do_not),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
