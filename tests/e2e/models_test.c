/* The folder of models while the daemon runs: what is new, changed, broken or
 * gone, and that no request notices more than one version. */
#include "tests/e2e/client.h"
#include "tests/e2e/daemon.h"
#include "tests/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MODELS "tests/vectors/models/"

enum { PATIENCE_MS = 5000, ANSWER_BYTES = 1 << 16 };

/* A folder of the test's own and a daemon that holds it. */
struct fixture {
    char folder[64];
    struct daemon daemon;
    bool runs;
};

static void put(const struct fixture *f, const char *name, struct file file)
{
    char path[200];

    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    folder_put(path, file.data, file.len);
}

static void put_copy(const struct fixture *f, const char *name,
                     const char *path)
{
    struct file file = folder_get(path);

    put(f, name, file);
    free(file.data);
}

/* The same checkpoint with the sign of every number turned, which gives other
 * answers: those of the output's bias stay turned. */
static struct file negated(const char *path)
{
    struct file file = folder_get(path);
    uint64_t header;

    memcpy(&header, file.data, sizeof header);
    for (size_t i = 8 + header + 3; i < file.len; i += 4)
        file.data[i] = (char)(file.data[i] ^ 0x80);
    return file;
}

static void start(struct fixture *f)
{
    const char *options[] = { "--models", f->folder, "--workers", "2", NULL };

    daemon_start(&f->daemon, options);
    f->runs = true;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    if (f == NULL)
        return -1;
    snprintf(f->folder, sizeof f->folder, "/tmp/attnd_models_XXXXXX");
    *state = f;
    return folder_make(f->folder);
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    int status = f->runs ? daemon_stop(&f->daemon, SIGTERM) : 0;

    folder_remove(f->folder);
    free(f);
    return status;
}

static void hang_up(const struct fixture *f)
{
    assert_int_equal(kill(f->daemon.pid, SIGHUP), 0);
}

static void expect_metric(const struct fixture *f, const char *series,
                          double value)
{
    for (int waited = 0; waited < PATIENCE_MS; waited += 5) {
        if (daemon_metric(&f->daemon, series) == value)
            return;
        usleep(5000);
    }
    fail_msg("%s is %g, not %g", series, daemon_metric(&f->daemon, series),
             value);
}

static long status_of(const struct fixture *f, const char *path)
{
    struct reply reply;

    client_get(f->daemon.port, path, &reply);
    free(reply.body);
    return reply.status;
}

#define QUESTION                                                               \
    "{\"query\": [[1,2,3,4,5,6,7,8,9,10,11,12], [1,0,0,0,0,0,0,0,0,0,0,0]], " \
    "\"num_heads\": 2, \"model\": \"m\"}"

/* The answer to QUESTION; free(). */
static char *answer(const struct fixture *f)
{
    struct reply reply;

    client_post(f->daemon.port, "/attention", QUESTION, strlen(QUESTION),
                &reply);
    if (reply.status != 200)
        fail_msg("%ld: %s", reply.status, reply.body);
    return reply.body;
}

/* ---- what it says of them ---- */

static int get(const struct fixture *f, const char *path, const char *header,
               char *out)
{
    char text[400];

    snprintf(text, sizeof text,
             "GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n%s\r\n", path,
             header);
    return daemon_exchange(&f->daemon, text, out, ANSWER_BYTES);
}

static void models_are_listed_with_a_tag_that_follows_them(void **state)
{
    static const char *const paths[] = { "/models", "/models/m" };
    static char out[ANSWER_BYTES];
    struct fixture *f = *state;

    put_copy(f, "m.safetensors", MODELS "mha.safetensors");
    start(f);
    for (size_t i = 0; i < 2; i++) {
        char header[100], *tag;

        assert_int_equal(get(f, paths[i], "", out), 200);
        assert_non_null(strstr(out, "\"name\": \"m\", \"kind\": \"torch\", "
                                    "\"layers\": 1, \"heads\": null"));
        assert_non_null(strstr(
            out, "\"9d4a1a6f3851a52125ae744b4713aa08"
                 "c861bc4115581a333f6c7034eb2b86d9\""));
        tag = strcasestr(out, "\r\nETag: ");
        assert_non_null(tag);
        snprintf(header, sizeof header, "If-None-Match: %.18s\r\n", tag + 8);
        assert_int_equal(get(f, paths[i], header, out), 304);
        put_copy(f, "m.safetensors", MODELS "encoder.safetensors");
        hang_up(f);
        expect_metric(f, "attnd_model_loads_total", (double)(2 * i + 2));
        assert_int_equal(get(f, paths[i], header, out), 200);
        assert_non_null(strstr(out, "\"layers\": 3, \"heads\": 2"));
        put_copy(f, "m.safetensors", MODELS "mha.safetensors");
        hang_up(f);
        expect_metric(f, "attnd_model_loads_total", (double)(2 * i + 3));
    }
}

static void what_is_not_held_is_not_found(void **state)
{
    static const char *const paths[] = { "/models/n", "/models/", "/models/M",
                                         "/models/m/", "/models/../m",
                                         "/models/m.safetensors" };
    struct fixture *f = *state;

    put_copy(f, "m.safetensors", MODELS "mha.safetensors");
    start(f);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        static char out[ANSWER_BYTES];

        assert_int_equal(get(f, paths[i], "", out), 404);
        if (strcmp(paths[i], "/models/") != 0) /* no such path at all */
            assert_non_null(strstr(out, "\"pointer\":\"/model\""));
    }
}

static void requests_are_counted_by_model_and_layer(void **state)
{
    struct fixture *f = *state;

    put_copy(f, "m.safetensors", MODELS "encoder.safetensors");
    start(f);
    free(answer(f));
    free(answer(f));
    expect_metric(f, "attnd_models", 1);
    expect_metric(
        f, "attnd_model_requests_total{model=\"m\",layer=\"0\"}", 2);
    expect_metric(f, "attnd_model_rows_total{model=\"m\",layer=\"0\"}", 4);
    expect_metric(f, "attnd_model_rows_total{model=\"m\",layer=\"1\"}", 0);
    assert_true(daemon_metric(&f->daemon, "attnd_model_flops_total{model=\"m\","
                                          "layer=\"0\"}") > 2 * 2 * 2 * 4 * 144);
}

/* ---- at the start ---- */

static void a_folder_that_is_not_there_ends_it_with_one_line(void **state)
{
    static const char *const options[] = { "--listen", "127.0.0.1:0",
                                           "--models", "tests/nowhere", NULL };
    char out[1000];

    (void)state;
    assert_int_equal(daemon_run(options, out, sizeof out), 1);
    assert_string_equal(
        out, "attnd: --models: tests/nowhere: No such file or directory\n");
}

static bool replace(struct file *file, const char *from, const char *to)
{
    char *at = memmem(file->data, file->len, from, strlen(from));

    if (at != NULL)
        memcpy(at, to, strlen(to)); /* as long as `from` */
    return at != NULL;
}

static size_t times_logged(const struct fixture *f, const char *text)
{
    char *log = daemon_log(&f->daemon);
    size_t times = 0;

    for (const char *at = log; (at = strstr(at, text)) != NULL; at++)
        times++;
    free(log);
    return times;
}

/* A file of each kind of damage: bytes of the good one replaced, and bytes
 * added at the end or taken away. */
static const struct {
    const char *name, *from, *to;
    int added;
} damaged[] = {
    { "cut", "", "", -1 },
    { "cut-in-the-header", "", "", -2600 },
    { "empty", "", "", -2832 },
    { "trailing", "", "", 1 },
    { "no-object", "{\"in_proj", " \"in_proj", 0 },
    { "no-json", "\"shape\":", "\"shape\"x", 0 },
    { "no-utf8", "in_proj_weight", "in_proj\xffweight", 0 },
    { "twice", "\"shape\": [36]", "\"dtype\": \"U8\"", 0 },
    { "dtype", "\"F32\"", "\"F99\"", 0 },
    { "shape", "[36, 12]", "[36, 13]", 0 },
    { "negative", "[36, 12]", "[36,-12]", 0 },
    { "hole", "[1728, 1872]", "[1729, 1873]", 0 },
    { "overlap", "[1728, 1872]", "[1727, 1871]", 0 },
    { "backwards", "[1728, 1872]", "[1872, 1728]", 0 },
    { "unrecognised", "in_proj_weight", "xn_proj_weight", 0 },
    { "alone", "in_proj_weight\":", "q_proj_weight\" :", 0 },
};

static void damage(struct fixture *f, size_t i)
{
    struct file file = folder_get(MODELS "mha.safetensors");
    char name[80];

    assert_true(replace(&file, damaged[i].from, damaged[i].to));
    file.len = (size_t)((int)file.len + damaged[i].added);
    snprintf(name, sizeof name, "%s.safetensors", damaged[i].name);
    put(f, name, file);
    free(file.data);
}

static void each_broken_model_is_named_once_and_the_others_load(void **state)
{
    enum { COUNT = sizeof damaged / sizeof *damaged };
    struct fixture *f = *state;

    for (size_t i = 0; i < COUNT; i++)
        damage(f, i);
    put_copy(f, "good.safetensors", MODELS "mha.safetensors");
    put_copy(f, "bad name.safetensors", MODELS "mha.safetensors");
    put_copy(f, "README.md", MODELS "mha.safetensors");
    start(f);
    expect_metric(f, "attnd_model_failures_total", COUNT);
    expect_metric(f, "attnd_models", 1);
    assert_int_equal(status_of(f, "/models/good"), 200);
    assert_true(daemon_logs(&f->daemon, "bad name.safetensors is ignored"));
    for (size_t i = 0; i < COUNT; i++) {
        char line[100];

        snprintf(line, sizeof line, "model %s is not loaded: ",
                 damaged[i].name);
        if (times_logged(f, line) != 1)
            fail_msg("%s: %zu times", line, times_logged(f, line));
    }
}

static void put_text(const struct fixture *f, const char *name,
                     const char *text)
{
    put(f, name, (struct file){ (char *)(uintptr_t)text, strlen(text) });
}

static void make_folder(const struct fixture *f, const char *name)
{
    char path[200];

    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void a_folder_is_a_model_by_its_index_or_by_all_its_files(void **state)
{
    static char out[ANSWER_BYTES];
    struct fixture *f = *state;

    make_folder(f, "all");
    put_copy(f, "all/a.safetensors", MODELS "encoder.safetensors");
    put_copy(f, "all/b.safetensors", MODELS "mha.safetensors");
    make_folder(f, "m");
    put_copy(f, "m/a.safetensors", MODELS "encoder.safetensors");
    put_copy(f, "m/b.safetensors", MODELS "mha.safetensors");
    put_text(f, "m/model.safetensors.index.json",
             "{\"weight_map\": {\"in_proj_weight\": \"b.safetensors\"}}");
    put_text(f, "m/config.json", "{\"num_attention_heads\": 2}");
    make_folder(f, "other");
    put_text(f, "other/vocab.txt", "x");
    put_copy(f, "twice.safetensors", MODELS "mha.safetensors");
    make_folder(f, "twice");
    put_copy(f, "twice/a.safetensors", MODELS "encoder.safetensors");
    start(f);
    expect_metric(f, "attnd_models", 3);
    assert_int_equal(get(f, "/models/all", "", out), 200);
    assert_non_null(strstr(out, "\"layers\": 4, \"heads\": 2"));
    assert_int_equal(get(f, "/models/m", "", out), 200);
    assert_non_null(strstr(out, "\"layers\": 1, \"heads\": 2"));
    assert_int_equal(get(f, "/models/twice", "", out), 200);
    assert_non_null(strstr(out, "\"layers\": 1, \"heads\": null"));
    assert_true(daemon_logs(&f->daemon, "twice is ignored"));
    assert_int_equal(status_of(f, "/models/other"), 404);
    free(answer(f));
}

/* ---- later ---- */

static void a_changed_model_is_read_again_and_the_same_one_is_not(void **state)
{
    struct fixture *f = *state;
    struct file other = negated(MODELS "mha.safetensors");
    char *before, *after;

    put_copy(f, "m.safetensors", MODELS "mha.safetensors");
    put_copy(f, "n.safetensors", MODELS "mha.safetensors");
    start(f);
    before = answer(f);
    put(f, "m.safetensors", other);
    put_copy(f, "o.safetensors", MODELS "mha.safetensors");
    hang_up(f);
    expect_metric(f, "attnd_model_loads_total", 4);
    expect_metric(f, "attnd_models", 3);
    after = answer(f);
    assert_string_not_equal(before, after);
    free(before);
    free(after);
    free(other.data);
}

static void a_model_that_breaks_keeps_its_old_version(void **state)
{
    struct fixture *f = *state;
    struct file broken = folder_get(MODELS "mha.safetensors");
    char *before, *after;

    put_copy(f, "m.safetensors", MODELS "mha.safetensors");
    start(f);
    before = answer(f);
    broken.len /= 2;
    put(f, "m.safetensors", broken);
    hang_up(f);
    expect_metric(f, "attnd_model_failures_total", 1);
    assert_true(daemon_logs(&f->daemon, "model m keeps its old version: "));
    after = answer(f);
    assert_string_equal(before, after);
    put_copy(f, "m.safetensors", MODELS "encoder.safetensors");
    hang_up(f);
    expect_metric(f, "attnd_model_loads_total", 2);
    free(before);
    free(after);
    free(broken.data);
}

static void a_model_whose_files_are_gone_is_dropped(void **state)
{
    struct fixture *f = *state;
    char path[200];

    put_copy(f, "m.safetensors", MODELS "mha.safetensors");
    put_copy(f, "n.safetensors", MODELS "mha.safetensors");
    start(f);
    snprintf(path, sizeof path, "%s/m.safetensors", f->folder);
    assert_int_equal(unlink(path), 0);
    hang_up(f);
    expect_metric(f, "attnd_models", 1);
    assert_int_equal(status_of(f, "/models/m"), 404);
    assert_int_equal(status_of(f, "/models/n"), 200);
}

static void a_folder_that_is_gone_changes_nothing(void **state)
{
    struct fixture *f = *state;
    char moved[80];

    put_copy(f, "m.safetensors", MODELS "mha.safetensors");
    start(f);
    snprintf(moved, sizeof moved, "%s.moved", f->folder);
    assert_int_equal(rename(f->folder, moved), 0);
    hang_up(f);
    expect_metric(f, "attnd_model_failures_total", 1);
    free(answer(f));
    assert_int_equal(rename(moved, f->folder), 0);
}

static void a_signal_without_a_folder_is_harmless(void **state)
{
    struct fixture *f = *state;

    daemon_start(&f->daemon, NULL);
    f->runs = true;
    hang_up(f);
    assert_int_equal(status_of(f, "/models"), 200);
}

/* ---- under load ---- */

/* Asks until its parent closes the pipe; every answer is one of the two. */
static int ask_until_closed(const struct fixture *f, int pipe_end,
                            const char *const *versions)
{
    char byte;
    int seen[2] = { 0, 0 };

    while (read(pipe_end, &byte, 1) != 0) {
        struct reply reply;
        int version;

        client_post(f->daemon.port, "/attention", QUESTION, strlen(QUESTION),
                    &reply);
        version = strcmp(reply.body, versions[0]) == 0   ? 0
                  : strcmp(reply.body, versions[1]) == 0 ? 1
                                                         : -1;
        if (reply.status != 200 || version < 0)
            return 1;
        seen[version]++;
        free(reply.body);
    }
    return seen[0] > 0 && seen[1] > 0 ? 0 : 2;
}

static pid_t start_client(const struct fixture *f, int pipe_ends[2],
                          const char *const *versions)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    close(pipe_ends[1]);
    _exit(ask_until_closed(f, pipe_ends[0], versions));
}

static void learn_versions(struct fixture *f, const struct file *files,
                           const char **versions)
{
    for (int i = 0; i < 2; i++) {
        double loads = daemon_metric(&f->daemon, "attnd_model_loads_total");

        put(f, "m.safetensors", files[i]);
        hang_up(f);
        expect_metric(f, "attnd_model_loads_total", loads + 1);
        versions[i] = answer(f);
    }
    assert_string_not_equal(versions[0], versions[1]);
}

static void end_clients(pid_t *clients, int count)
{
    for (int i = 0; i < count; i++) {
        int status;

        assert_int_equal(waitpid(clients[i], &status, 0), clients[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

static void a_thousand_signals_under_load_harm_no_request(void **state)
{
    enum { SIGNALS = 1000, CLIENTS = 3 };
    struct fixture *f = *state;
    struct file files[2] = { folder_get(MODELS "mha.safetensors"),
                             negated(MODELS "mha.safetensors") };
    const char *versions[2];
    int ends[2];
    pid_t clients[CLIENTS];
    double files_open, memory;

    put(f, "m.safetensors", files[0]);
    start(f);
    learn_versions(f, files, versions);
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = start_client(f, ends, versions);
    close(ends[0]);
    files_open = daemon_metric(&f->daemon, "process_open_fds");
    memory = daemon_metric(&f->daemon, "attnd_models_memory_bytes");
    for (int i = 0; i < SIGNALS; i++) {
        put(f, "m.safetensors", files[i % 2]);
        hang_up(f);
        usleep(500);
    }
    close(ends[1]);
    end_clients(clients, CLIENTS);
    expect_metric(f, "attnd_model_failures_total", 0);
    expect_metric(f, "attnd_models_memory_bytes", memory);
    assert_true(daemon_metric(&f->daemon, "process_open_fds") <= files_open);
    for (int i = 0; i < 2; i++) {
        free((void *)(uintptr_t)versions[i]);
        free(files[i].data);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(models_are_listed_with_a_tag_that_follows_them),
        TEST(what_is_not_held_is_not_found),
        TEST(requests_are_counted_by_model_and_layer),
        cmocka_unit_test(a_folder_that_is_not_there_ends_it_with_one_line),
        TEST(each_broken_model_is_named_once_and_the_others_load),
        TEST(a_folder_is_a_model_by_its_index_or_by_all_its_files),
        TEST(a_changed_model_is_read_again_and_the_same_one_is_not),
        TEST(a_model_that_breaks_keeps_its_old_version),
        TEST(a_model_whose_files_are_gone_is_dropped),
        TEST(a_folder_that_is_gone_changes_nothing),
        TEST(a_signal_without_a_folder_is_harmless),
        TEST(a_thousand_signals_under_load_harm_no_request),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
