/* PUT and DELETE /models/NAME: models that requests bring and take away. */
#include "tests/e2e/daemon.h"
#include "tests/folder.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MODELS "tests/vectors/models/"
#define HOST "Host: a\r\n"
#define CLOSE "Connection: close\r\n"
#define KEY "X-API-Key: alpha-key\r\n"
#define ALPHA "alpha 677509799af78b2efa2f2af71d0f906e0a0c50c048efd3b515625f788e92b99a\n"
/* Rows of width 12 with 3 heads: what tiny-bert and its like take. */
#define ASK "{\"model\": \"%s\", \"num_heads\": 3, \"need_weights\": false, "  \
            "\"query\": {\"shape\": [2, 12], \"data\": [1,0,0,1,0,2,1,0,1,1,"  \
            "0,2,0,1,0,0,1,2,0,1,1,0,2,0]}}"

enum { ANSWER_BYTES = 1 << 20 };

static char answer[ANSWER_BYTES];
static char folder[] = "/tmp/attnd_upload_XXXXXX";
static char keys_file[64], models_folder[64];
static struct daemon shared;

/* The same checkpoint with the sign of every F32 turned. */
static struct file negated(struct file from)
{
    struct file file = { malloc(from.len), from.len };
    uint64_t header;

    assert_non_null(file.data);
    memcpy(file.data, from.data, from.len);
    memcpy(&header, file.data, sizeof header);
    for (size_t i = 8 + header + 3; i < file.len; i += 4)
        file.data[i] = (char)(file.data[i] ^ 0x80);
    return file;
}

static int set_up(void **state)
{
    (void)state;
    if (folder_make(folder) != 0)
        return -1;
    snprintf(keys_file, sizeof keys_file, "%s/keys", folder);
    snprintf(models_folder, sizeof models_folder, "%s/models", folder);
    folder_put_text(keys_file, ALPHA);
    return mkdir(models_folder, 0700);
}

static int tear_down(void **state)
{
    (void)state;
    return folder_remove(folder);
}

static void start(struct daemon *daemon, const char *option, const char *value)
{
    const char *options[] = { "--api-keys-file", keys_file, "--model-upload",
                              "--models", models_folder, "--workers", "2",
                              "--no-metrics-need-key", option, value, NULL };

    daemon_start(daemon, options);
}

static int start_shared(void **state)
{
    (void)state;
    start(&shared, NULL, NULL);
    return 0;
}

static int stop_shared(void **state)
{
    (void)state;
    return daemon_stop(&shared, SIGTERM);
}

static bool says(const char *text)
{
    return strcasestr(answer, text) != NULL;
}

static const char *body_of(const char *text)
{
    return strstr(text, "\r\n\r\n") + 4;
}

/* `name` goes onto the request line as it is. */
static int send_to(const struct daemon *daemon, const char *method,
                   const char *name, const char *headers, struct file file,
                   char *out, size_t size)
{
    char head[1024];
    int fd = daemon_connect(daemon), status;

    assert_true(fd >= 0);
    snprintf(head, sizeof head, "%s /models/%s HTTP/1.1\r\n" HOST CLOSE
             "%sContent-Length: %zu\r\n\r\n", method, name, headers, file.len);
    assert_true(daemon_send(fd, head, strlen(head)));
    daemon_send(fd, file.data, file.len);
    assert_true(daemon_read_all(fd, out, size) >= 0);
    status = strncmp(out, "HTTP/1.1 ", 9) == 0 ? (int)strtol(out + 9, NULL, 10)
                                               : 0;
    close(fd);
    return status;
}

static int put(const char *name, struct file file)
{
    return send_to(&shared, "PUT", name, KEY, file, answer, sizeof answer);
}

static int ask(const struct daemon *daemon, const char *line)
{
    char text[512];

    snprintf(text, sizeof text, "%s HTTP/1.1\r\n" HOST CLOSE KEY "\r\n", line);
    return daemon_exchange(daemon, text, answer, sizeof answer);
}

static int delete(const struct daemon *daemon, const char *name)
{
    char line[128];

    snprintf(line, sizeof line, "DELETE /models/%s", name);
    return ask(daemon, line);
}

static int attend(const struct daemon *daemon, const char *name, char *out,
                  size_t size)
{
    char body[1024], text[2048];

    snprintf(body, sizeof body, ASK, name);
    snprintf(text, sizeof text, "POST /attention HTTP/1.1\r\n" HOST CLOSE KEY
             "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    return daemon_exchange(daemon, text, out, size);
}

static void a_model_that_was_put_answers_as_get_says_and_is_used(void **state)
{
    struct file file = folder_get(MODELS "bert-f16.safetensors");
    char *first = malloc(ANSWER_BYTES);

    (void)state;
    assert_non_null(first);
    assert_int_equal(ask(&shared, "GET /models/put"), 404);
    assert_int_equal(put("put", file), 201);
    assert_true(says("Content-Type: application/json"));
    assert_true(says("\"name\": \"put\""));
    snprintf(first, ANSWER_BYTES, "%s", body_of(answer));
    assert_int_equal(ask(&shared, "GET /models/put"), 200);
    assert_string_equal(body_of(answer), first);
    assert_int_equal(put("put", file), 200);
    assert_string_equal(body_of(answer), first);
    assert_int_equal(attend(&shared, "put", answer, sizeof answer), 200);
    assert_true(daemon_logs(&shared, "\"msg\":\"model uploaded\""));

    assert_int_equal(ask(&shared, "DELETE /models/put"), 204);
    assert_int_equal(ask(&shared, "DELETE /models/put"), 404);
    assert_int_equal(ask(&shared, "GET /models/put"), 404);
    assert_int_equal(attend(&shared, "put", answer, sizeof answer), 404);
    assert_true(says("\"pointer\":\"/model\""));
    assert_true(daemon_metric(&shared, "attnd_uploads_reserved_bytes") == 0);
    free(first);
    free(file.data);
}

static void what_is_no_model_is_refused_and_the_old_version_stays(void **state)
{
    struct file file = folder_get(MODELS "mha.safetensors");
    struct file cut = { file.data, file.len - 1 };
    struct file none = { "{}", 2 };
    struct file empty = { "", 0 };

    (void)state;
    assert_int_equal(put("kept", file), 201);
    assert_int_equal(put("kept", cut), 400);
    assert_true(says("\"code\":\"malformed_request\""));
    assert_int_equal(put("kept", none), 400);
    assert_int_equal(put("kept", empty), 400);
    assert_int_equal(put("other", cut), 400);
    for (size_t i = 8; i < 200; i++) { /* the header, byte by byte */
        char was = file.data[i];

        file.data[i] = (char)(was ^ 1);
        put("flipped", file);
        assert_true(says("HTTP/1.1 4") || says("HTTP/1.1 20"));
        file.data[i] = was;
    }
    ask(&shared, "DELETE /models/flipped");
    assert_int_equal(ask(&shared, "GET /models/kept"), 200);
    assert_int_equal(ask(&shared, "GET /models/other"), 404);
    assert_int_equal(ask(&shared, "DELETE /models/kept"), 204);
    assert_true(daemon_metric(&shared, "attnd_uploads_reserved_bytes") == 0);
    free(file.data);
}

/* The header alone would take 24 times the memory of the file. */
static void a_file_that_is_all_header_is_refused_before_it_is_read(void **state)
{
    enum { BYTES = 256 * 1024 };
    const uint64_t header = BYTES - sizeof header;
    struct file file = { malloc(BYTES), BYTES };

    (void)state;
    assert_non_null(file.data);
    memset(file.data, ' ', BYTES);
    memcpy(file.data, &header, sizeof header);
    assert_int_equal(put("header", file), 413);
    assert_true(says("a header of 262136 bytes is too much for a file of "
                     "262144"));
    assert_true(daemon_metric(&shared, "attnd_uploads_reserved_bytes") == 0);
    free(file.data);
}

static void names_reach_no_file_and_are_of_few_characters(void **state)
{
    static const char *const bad[] = {
        ".hidden", "..", ".", "../keys", "a/b", "%2e%2e%2fkeys", "a%2fb", "a b",
        "\xc3\xa4", "a\\b", "a:b", "a*", "~",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    };
    struct file file = folder_get(MODELS "mha.safetensors");
    struct stat before, after;
    static const char longest[] =
        "A.b_c-0aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    (void)state;
    assert_int_equal(strlen(longest), 64);
    assert_int_equal(stat(models_folder, &before), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int status = put(bad[i], file);

        if (status != 422 && status != 400) /* a space ends the target */
            fail_msg("%s: %d", bad[i], status);
    }
    assert_int_equal(put("", file), 404);
    assert_int_equal(put(longest, file), 201);
    assert_int_equal(stat(models_folder, &after), 0);
    assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
    assert_int_equal(delete(&shared, longest), 204);
    free(file.data);
}

static void media_types_that_are_no_checkpoint_get_415(void **state)
{
    struct file file = folder_get(MODELS "mha.safetensors");

    (void)state;
    assert_int_equal(send_to(&shared, "PUT", "typed",
                             KEY "Content-Type: application/json\r\n", file,
                             answer, sizeof answer), 415);
    assert_true(says("\r\nAccept: application/x-safetensors\r\n"));
    assert_int_equal(send_to(&shared, "PUT", "typed",
                             KEY "Content-Encoding: br\r\n", file, answer,
                             sizeof answer), 415);
    assert_int_equal(send_to(&shared, "PUT", "typed",
                             KEY "Content-Type: Application/X-Safetensors; "
                             "v=1\r\n", file, answer, sizeof answer), 201);
    assert_int_equal(send_to(&shared, "PUT", "typed",
                             KEY "Content-Type: application/octet-stream\r\n"
                             "Expect: 100-continue\r\n", file, answer,
                             sizeof answer), 100);
    assert_true(says("HTTP/1.1 200 "));
    assert_int_equal(ask(&shared, "DELETE /models/typed"), 204);
    free(file.data);
}

static void allow_has_put_and_delete_only_where_they_are_on(void **state)
{
    const char *options[] = { "--api-keys-file", keys_file, NULL };
    struct daemon off;
    struct file file = folder_get(MODELS "mha.safetensors");

    (void)state;
    assert_int_equal(ask(&shared, "OPTIONS /models/a"), 204);
    assert_true(says("\r\nAllow: GET, HEAD, PUT, DELETE, OPTIONS\r\n"));
    assert_int_equal(ask(&shared, "POST /models/a"), 405);
    assert_true(says("\r\nAllow: GET, HEAD, PUT, DELETE, OPTIONS\r\n"));
    assert_int_equal(ask(&shared, "PUT /models"), 405);
    assert_true(says("\r\nAllow: GET, HEAD, OPTIONS\r\n"));
    assert_int_equal(send_to(&shared, "PUT", "a", "", file, answer,
                             sizeof answer), 401);

    daemon_start(&off, options);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ask(&off, i == 0 ? "PUT /models/a"
                                          : "DELETE /models/a"), 405);
        assert_true(says("\r\nAllow: GET, HEAD, OPTIONS\r\n"));
    }
    assert_int_equal(ask(&off, "OPTIONS *"), 204);
    assert_true(says("\r\nAllow: GET, HEAD, POST, OPTIONS\r\n"));
    assert_int_equal(daemon_stop(&off, SIGTERM), 0);
    free(file.data);
}

static void uploading_without_keys_refuses_to_start(void **state)
{
    const char *options[] = { "--listen", "127.0.0.1:0", "--model-upload",
                              NULL };
    char said[512];

    (void)state;
    assert_int_not_equal(daemon_run(options, said, sizeof said), 0);
    assert_string_equal(said,
                        "attnd: --model-upload: needs --api-keys-file\n");
}

static void memory_and_size_are_bounded_by_options(void **state)
{
    struct file file = folder_get(MODELS "mha.safetensors");
    struct daemon daemon;
    char name[16];
    int held = 0;

    (void)state;
    start(&daemon, "--max-model-bytes", "2KiB");
    assert_int_equal(send_to(&daemon, "PUT", "a", KEY, file, answer,
                             sizeof answer), 413);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);

    /* Room for the file, and none for the answer. */
    start(&daemon, "--memory-bytes", "1MiB");
    assert_int_equal(send_to(&daemon, "PUT", "a", KEY, file, answer,
                             sizeof answer), 503);
    assert_true(daemon_metric(&daemon, "attnd_models") == 0);
    assert_true(daemon_metric(&daemon, "attnd_memory_reserved_bytes") == 0);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);

    start(&daemon, "--model-memory-bytes", "5MiB");
    for (int i = 0, status = 201; status == 201; i++) {
        assert_true(i < 100);
        snprintf(name, sizeof name, "m%d", i);
        status = send_to(&daemon, "PUT", name, KEY, file, answer,
                         sizeof answer);
        held += status == 201;
        assert_true(status == 201 || status == 413);
    }
    assert_true(held > 2);
    assert_true(says("uploaded models hold "));
    assert_true(daemon_metric(&daemon, "attnd_uploads_reserved_bytes") <=
                5 << 20);
    assert_true(daemon_metric(&daemon, "attnd_models") == held);
    for (int i = 0; i < held; i++) {
        snprintf(name, sizeof name, "m%d", i);
        assert_int_equal(delete(&daemon, name), 204);
    }
    assert_true(daemon_metric(&daemon, "attnd_uploads_reserved_bytes") == 0);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);

    start(&daemon, "--model-memory-bytes", "16GiB");
    for (int i = 0; i <= 1000; i++) {
        snprintf(name, sizeof name, "m%d", i);
        assert_int_equal(send_to(&daemon, "PUT", name, KEY, file, answer,
                                 sizeof answer), i < 1000 ? 201 : 413);
    }
    assert_true(says("1000 uploaded models are held, which is all that may be"));
    assert_int_equal(send_to(&daemon, "PUT", "m7", KEY, file, answer,
                             sizeof answer), 200);
    assert_true(daemon_metric(&daemon, "attnd_models") == 1000);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
    free(file.data);
}

static void look_again(struct daemon *daemon, double loads)
{
    kill(daemon->pid, SIGHUP);
    for (int i = 0; daemon_metric(daemon, "attnd_model_loads_total") < loads;
         i++) {
        assert_true(i < 500);
        usleep(10000);
    }
}

/* A name's upload stands before its file until it is deleted; nothing of it is
 * left after the end of the process. */
static void sighup_leaves_uploads_alone_and_finds_files_after_they_go(
    void **state)
{
    struct file a = folder_get(MODELS "mha.safetensors");
    struct file b = folder_get(MODELS "bert-f16.safetensors");
    char path[128], other[128];
    struct daemon daemon;

    (void)state;
    snprintf(path, sizeof path, "%s/both.safetensors", models_folder);
    snprintf(other, sizeof other, "%s/new.safetensors", models_folder);
    folder_put(path, a.data, a.len);
    start(&daemon, NULL, NULL);
    assert_int_equal(ask(&daemon, "GET /models/both"), 200);
    assert_true(says("\"kind\": \"torch\""));
    assert_int_equal(send_to(&daemon, "PUT", "both", KEY, b, answer,
                             sizeof answer), 200);
    assert_true(says("\"kind\": \"bert\""));
    assert_int_equal(send_to(&daemon, "PUT", "alone", KEY, b, answer,
                             sizeof answer), 201);
    folder_put(other, a.data, a.len);
    look_again(&daemon, 4); /* both, both, alone, new */
    assert_int_equal(ask(&daemon, "GET /models/both"), 200);
    assert_true(says("\"kind\": \"bert\""));
    assert_int_equal(ask(&daemon, "GET /models/alone"), 200);

    assert_int_equal(ask(&daemon, "DELETE /models/both"), 204);
    assert_int_equal(ask(&daemon, "DELETE /models/new"), 204);
    assert_int_equal(ask(&daemon, "GET /models/new"), 404);
    look_again(&daemon, 6);
    assert_int_equal(ask(&daemon, "GET /models/both"), 200);
    assert_true(says("\"kind\": \"torch\""));
    assert_int_equal(ask(&daemon, "GET /models/new"), 200);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);

    start(&daemon, NULL, NULL);
    assert_int_equal(ask(&daemon, "GET /models/alone"), 404);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
    unlink(path);
    unlink(other);
    free(a.data);
    free(b.data);
}

/* ---- under load ---- */

enum { CLIENTS = 3, TURNS = 60 };

struct client {
    pthread_t thread;
    const char *good[2];
    int bad;
};

static void *attend_often(void *arg)
{
    struct client *client = arg;
    char *text = malloc(ANSWER_BYTES);

    for (int i = 0; text != NULL && i < TURNS; i++) {
        bool good = attend(&shared, "swapped", text, ANSWER_BYTES) == 200 &&
                    (strcmp(body_of(text), client->good[0]) == 0 ||
                     strcmp(body_of(text), client->good[1]) == 0);

        client->bad += !good;
    }
    free(text);
    return NULL;
}

static void requests_meet_one_version_or_the_other_while_models_are_swapped(
    void **state)
{
    struct file first = folder_get(MODELS "tiny-bert/model.safetensors");
    struct file version[2] = { first, negated(first) };
    struct client client[CLIENTS] = { 0 };
    char *good[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(put("swapped", version[i]), i == 0 ? 201 : 200);
        assert_int_equal(attend(&shared, "swapped", answer, sizeof answer),
                         200);
        good[i] = strdup(body_of(answer));
    }
    assert_string_not_equal(good[0], good[1]);
    for (int i = 0; i < CLIENTS; i++) {
        memcpy(client[i].good, good, sizeof good);
        pthread_create(&client[i].thread, NULL, attend_often, &client[i]);
    }
    for (int i = 0; i < TURNS; i++) {
        assert_int_equal(put("swapped", version[i % 2]), 200);
        if (i % 10 == 0)
            kill(shared.pid, SIGHUP);
    }
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(client[i].thread, NULL);
        assert_int_equal(client[i].bad, 0);
    }
    assert_int_equal(ask(&shared, "DELETE /models/swapped"), 204);
    assert_true(daemon_metric(&shared, "attnd_uploads_reserved_bytes") == 0);
    for (int i = 0; i < 2; i++) {
        free(version[i].data);
        free(good[i]);
    }
}

#define SHARED(test) cmocka_unit_test_setup_teardown(test, start_shared,       \
                                                     stop_shared)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SHARED(a_model_that_was_put_answers_as_get_says_and_is_used),
        SHARED(what_is_no_model_is_refused_and_the_old_version_stays),
        SHARED(a_file_that_is_all_header_is_refused_before_it_is_read),
        SHARED(names_reach_no_file_and_are_of_few_characters),
        SHARED(media_types_that_are_no_checkpoint_get_415),
        SHARED(allow_has_put_and_delete_only_where_they_are_on),
        cmocka_unit_test(uploading_without_keys_refuses_to_start),
        cmocka_unit_test(memory_and_size_are_bounded_by_options),
        cmocka_unit_test(
            sighup_leaves_uploads_alone_and_finds_files_after_they_go),
        SHARED(
            requests_meet_one_version_or_the_other_while_models_are_swapped),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
