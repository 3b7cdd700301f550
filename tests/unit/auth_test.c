#include "server/auth.h"

#include "server/digest.h"
#include "tests/unit/allocations.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* SHA-256 of "alpha-key", "beta-key" and "gamma-key". */
#define ALPHA "677509799af78b2efa2f2af71d0f906e0a0c50c048efd3b515625f788e92b99a"
#define BETA "7a3d637bc601f7000cc2c33141c8c8a7554e02e319fa8b293a0c88c613b77620"
#define GAMMA "36c2c0e2d54b8df7e21c9f9afc50a206f2595fc23531fe933e4788e699e0e59d"
#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static char path[] = "/tmp/attnd_keys_XXXXXX";

static int make_file(void **state)
{
    int fd = mkstemp(path);

    (void)state;
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_bytes(const char *text, size_t len)
{
    FILE *out = fopen(path, "wb");

    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, len, out), len);
    fclose(out);
}

static struct auth *open_with(const char *text, int64_t at_once)
{
    struct error err = { 0 };
    struct auth *auth;

    write_bytes(text, strlen(text));
    auth = auth_new(path, at_once, &err);
    if (auth == NULL)
        fail_msg("%s", err.text);
    return auth;
}

/* The name, or NULL after the one refusal there is. */
static const char *name_of(struct auth *auth, const char *authorization,
                           const char *api_key)
{
    struct error err = { 0 };
    struct auth_client *client = auth_find(auth, authorization, api_key, &err);

    if (client == NULL) {
        assert_int_equal(err.code, ERR_KEY);
        assert_string_equal(err.text,
                            "an API key of this service is needed, as "
                            "Authorization: Bearer KEY or X-API-Key: KEY");
        return NULL;
    }
    auth_leave(client, false);
    return client->name;
}

static void a_key_is_known_by_its_digest_in_either_header(void **state)
{
    static const struct {
        const char *authorization, *api_key, *name;
    } rows[] = {
        { "Bearer alpha-key", NULL, "alpha" },
        { "bearer  alpha-key ", NULL, "alpha" },
        { NULL, "alpha-key", "alpha" },
        { NULL, "\tbeta-key \t", "beta" },
        { "Bearer beta-key", "beta-key", "beta" },
        { "Basic YWxwaGE6eA==", "beta-key", "beta" },
        { NULL, "gamma-key", "alpha" }, /* its second one */
        { NULL, NULL, NULL },
        { "Bearer alpha-key", "beta-key", NULL },
        { "Bearer alpha-key", "wrong", NULL },
        { "Bearer wrong", "alpha-key", NULL },
        { "Bearer alpha-ke", NULL, NULL },
        { "Bearer alpha-key1", NULL, NULL },
        { "Bearer Alpha-key", NULL, NULL },
        { "Bearer", NULL, NULL },
        { "Bearer ", NULL, NULL },
        { "Beareralpha-key", NULL, NULL },
        { "alpha-key", NULL, NULL },
        { "Basic alpha-key", NULL, NULL },
        { "Bearer " ALPHA, NULL, NULL },
        { "Bearer alpha", NULL, NULL },
        { "Bearer alpha-key beta-key", NULL, NULL },
        { "Bearer \xff\xfe\x80", NULL, NULL },
        { NULL, "", NULL },
        { "", "", NULL },
    };
    struct auth *auth = open_with("alpha " ALPHA "\nbeta " BETA
                                  "\nalpha " GAMMA "\n", 0);

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *name = name_of(auth, rows[i].authorization,
                                   rows[i].api_key);

        if ((name == NULL) != (rows[i].name == NULL) ||
            (name != NULL && strcmp(name, rows[i].name) != 0))
            fail_msg("row %zu: %s", i, name == NULL ? "refused" : name);
    }
    auth_free(auth);
}

static void files_may_have_comments_blanks_capitals_and_no_last_line_end(
    void **state)
{
    char upper[] = BETA;
    char text[1024];

    (void)state;
    for (char *c = upper; *c != '\0'; c++)
        *c = (char)(*c >= 'a' ? *c - 'a' + 'A' : *c);
    snprintf(text, sizeof text,
             "# ours\n\n  \t# indented\r\n\talpha\t" ALPHA "\t# the first\r\n"
             "b.e-t_a %s", upper);

    struct auth *auth = open_with(text, 0);

    assert_string_equal(name_of(auth, "Bearer alpha-key", NULL), "alpha");
    assert_string_equal(name_of(auth, "Bearer beta-key", NULL), "b.e-t_a");
    auth_free(auth);
}

/* And says where, but nothing of what stands there. */
static void files_that_are_no_list_of_keys_are_refused_with_their_line(
    void **state)
{
#define ROW(text) text, sizeof(text) - 1
    static const struct {
        const char *text;
        size_t len;
        const char *place;
    } rows[] = {
        { ROW(""), ": there is no key in it" },
        { ROW("\n\n# secret " ALPHA "\n"), ": there is no key in it" },
        { ROW("alpha secret\n"), ":1: not a name" },
        { ROW("alpha " ALPHA "\nsecret\n"), ":2: not a name" },
        { ROW("alpha " ALPHA "0\n"), ":1: not a name" },
        { ROW("alpha " ALPHA "#\n"), ":1: not a name" },
        { ROW("alpha " ALPHA " secret\n"), ":1: not a name" },
        { ROW("alpha" ALPHA "\n"), ":1: not a name" },
        { ROW(ALPHA "  -\n"), ":1: not a name" },
        { ROW("al:pha " ALPHA "\n"), ":1: not a name" },
        { ROW("\xc3\xa4 " ALPHA "\n"), ":1: not a name" },
        { ROW(ALPHA "0 " ALPHA "\n"), ":1: not a name" },
        { ROW("alpha " EMPTY "\n"), ":1: the digest is that of an empty key" },
        { ROW("\na " ALPHA "\nb " ALPHA "\n"),
          ":3: the key is in a line before" },
        { ROW("alpha " ALPHA "\n\0\n"), ":2: a line has a zero byte" },
        { ROW("\0"), ":1: a line has a zero byte" },
    };
#undef ROW

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error err = { 0 };
        char start[128];

        write_bytes(rows[i].text, rows[i].len);
        assert_null(auth_new(path, 0, &err));
        snprintf(start, sizeof start, "--api-keys-file: %s%s", path,
                 rows[i].place);
        if (strncmp(err.text, start, strlen(start)) != 0)
            fail_msg("row %zu: %s", i, err.text);
        assert_null(strstr(err.text, "secret"));
        assert_null(strstr(err.text, "677509799af7"));
    }
}

static void files_that_cannot_be_read_are_refused(void **state)
{
    static const char *const rows[][2] = {
        { "/nowhere/keys", "--api-keys-file: /nowhere/keys: No such file" },
        { "/tmp", "--api-keys-file: /tmp: Is a directory" },
        { "/dev/zero", "--api-keys-file: /dev/zero: over 1 MiB" },
        { "/dev/null", "--api-keys-file: /dev/null: there is no key in it" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error err = { 0 };

        assert_null(auth_new(rows[i][0], 0, &err));
        assert_int_equal(strncmp(err.text, rows[i][1], strlen(rows[i][1])), 0);
    }
}

static void a_file_has_room_for_1024_keys(void **state)
{
    enum { LINE = 80 };
    char *text = malloc((AUTH_KEYS + 1) * LINE);
    struct error err = { 0 };
    size_t len = 0;

    (void)state;
    assert_non_null(text);
    for (int i = 0; i < AUTH_KEYS - 1; i++)
        len += (size_t)snprintf(text + len, LINE, "k%d %064x\n", i, i);
    len += (size_t)snprintf(text + len, LINE, "last " ALPHA "\n");

    struct auth *auth = open_with(text, 0);

    assert_string_equal(name_of(auth, NULL, "alpha-key"), "last");
    snprintf(text + len, LINE, "more " BETA "\n");
    write_bytes(text, strlen(text));
    assert_false(auth_reload(auth, &err));
    assert_non_null(strstr(err.text, ":1025: more than 1024 keys"));
    assert_string_equal(name_of(auth, NULL, "alpha-key"), "last");
    auth_free(auth);
    free(text);
}

static void reloading_changes_the_keys_or_keeps_them_all(void **state)
{
    struct auth *auth = open_with("alpha " ALPHA "\nbeta " BETA "\n", 0);
    struct error err = { 0 };
    const char *bad = "gamma " GAMMA "\nalpha ";

    (void)state;
    write_bytes(bad, strlen(bad));
    assert_false(auth_reload(auth, &err));
    assert_non_null(strstr(err.text, ":2: not a name"));
    assert_string_equal(name_of(auth, NULL, "alpha-key"), "alpha");
    assert_null(name_of(auth, NULL, "gamma-key"));

    const char *good = "gamma " GAMMA "\nbeta " BETA "\n";

    err = (struct error){ 0 };
    write_bytes(good, strlen(good));
    assert_true(auth_reload(auth, &err));
    assert_null(name_of(auth, NULL, "alpha-key"));
    assert_string_equal(name_of(auth, NULL, "beta-key"), "beta");
    assert_string_equal(name_of(auth, NULL, "gamma-key"), "gamma");
    auth_free(auth);
}

static void a_name_may_run_so_many_at_once_and_others_do_not_count(void **state)
{
    struct auth *auth = open_with("alpha " ALPHA "\nbeta " BETA "\n", 2);
    struct error err = { 0 };
    struct auth_client *a[3], *b;

    (void)state;
    for (int i = 0; i < 3; i++)
        a[i] = auth_find(auth, NULL, "alpha-key", &err);
    b = auth_find(auth, NULL, "beta-key", &err);
    assert_true(auth_begin(auth, a[0], &err));
    assert_true(auth_begin(auth, a[1], &err));
    assert_false(auth_begin(auth, a[2], &err));
    assert_int_equal(err.code, ERR_QUOTA);
    assert_true(auth_begin(auth, b, &err));
    auth_leave(a[0], true);
    assert_true(auth_begin(auth, a[2], &err));
    auth_leave(a[1], true);
    auth_leave(a[2], true);
    auth_leave(b, true);
    assert_int_equal(b->running, 0);
    assert_int_equal(a[0]->running, 0);
    auth_free(auth);
}

/* Names come and go for ever; a client that is held keeps its own. */
static void the_room_for_names_is_used_again_but_not_while_it_is_held(
    void **state)
{
    struct auth *auth = open_with("alpha " ALPHA "\n", 0);
    struct error err = { 0 };
    struct auth_client *held = auth_find(auth, NULL, "alpha-key", &err);
    char text[128];

    (void)state;
    for (int i = 0; i < 3 * AUTH_KEYS; i++) {
        snprintf(text, sizeof text, "name%d " BETA "\n", i);
        write_bytes(text, strlen(text));
        assert_true(auth_reload(auth, &err));
        snprintf(text, sizeof text, "name%d", i);
        assert_string_equal(name_of(auth, NULL, "beta-key"), text);
    }
    assert_string_equal(held->name, "alpha");
    auth_leave(held, false);
    auth_free(auth);
}

static void digest_key(const char *key, char text[DIGEST_TEXT_BYTES])
{
    struct digest digest;

    assert_true(digest_begin(&digest));
    digest_add(&digest, key, strlen(key));
    digest_end(&digest, text);
}

/* A file of keys k0, k1, ... under names that only this round has. */
static void write_round(int round)
{
    enum { LINE = 96 };
    char *text = malloc(AUTH_KEYS * LINE), key[16], digest[DIGEST_TEXT_BYTES];
    size_t at = 0;

    assert_non_null(text);
    for (int i = 0; i < AUTH_KEYS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        digest_key(key, digest);
        at += (size_t)snprintf(text + at, LINE, "r%d-%d %s\n", round, i, digest);
    }
    write_bytes(text, at);
    free(text);
}

static void a_file_waits_while_names_of_two_before_it_are_all_in_use(
    void **state)
{
    static struct auth_client *held[2][AUTH_KEYS];
    struct error err = { 0 };
    struct auth *auth;

    (void)state;
    write_round(0);
    auth = auth_new(path, 0, &err);
    assert_non_null(auth);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < AUTH_KEYS; i++) {
            char key[16];

            snprintf(key, sizeof key, "k%d", i);
            held[round][i] = auth_find(auth, NULL, key, &err);
            assert_non_null(held[round][i]);
        }
        write_round(round + 1);
        assert_int_equal(auth_reload(auth, &err), round == 0);
    }
    assert_non_null(strstr(err.text, ": too many names of former files are "
                                     "still in use"));
    assert_string_equal(name_of(auth, NULL, "k7"), "r1-7");
    for (int i = 0; i < AUTH_KEYS; i++)
        auth_leave(held[0][i], false);
    err = (struct error){ 0 };
    assert_true(auth_reload(auth, &err));
    assert_string_equal(name_of(auth, NULL, "k7"), "r2-7");
    assert_string_equal(held[1][7]->name, "r1-7");
    for (int i = 0; i < AUTH_KEYS; i++)
        auth_leave(held[1][i], false);
    auth_free(auth);
}

/* The n-th allocation and all behind it, for every n: a file is refused, a key
 * is not known for want of memory, and never let in. */
static void every_allocation_may_fail(void **state)
{
    bool done = !COUNTS_ALLOCATIONS;

    (void)state;
    write_bytes("alpha " ALPHA "\n", strlen("alpha " ALPHA "\n"));
    for (int n = 1; !done; n++) {
        struct error err = { 0 }, why = { 0 };
        struct auth_client *client = NULL;

        assert_true(n < 100);
        allocations = 0;
        fails_at = n;

        struct auth *auth = auth_new(path, 0, &err);

        if (auth != NULL)
            client = auth_find(auth, NULL, "alpha-key", &why);
        fails_at = 0;
        assert_true(auth != NULL || err.code == ERR_RANGE);
        assert_true(auth == NULL || client != NULL ||
                    why.code == ERR_OVERLOADED);
        done = client != NULL;
        auth_leave(client, false);
        auth_free(auth);
    }
}

/* ---- from several threads ---- */

struct asker {
    pthread_t thread;
    struct auth *auth;
    atomic_bool *done;
    long found, wrong;
};

/* "alpha-key" is always in the file, under one of two names. */
static void *ask_often(void *arg)
{
    struct asker *asker = arg;

    while (!atomic_load(asker->done)) {
        struct error err = { 0 };
        struct auth_client *client =
            auth_find(asker->auth, NULL, "alpha-key", &err);
        bool began = client != NULL && auth_begin(asker->auth, client, &err);

        asker->found += began;
        asker->wrong += !began || (strcmp(client->name, "alpha") != 0 &&
                                   strcmp(client->name, "omega") != 0);
        auth_leave(client, began);
    }
    return NULL;
}

static void requests_find_their_key_while_the_file_is_read_again(void **state)
{
    static const char *const texts[] = { "omega " ALPHA "\nbeta " BETA "\n",
                                         "nonsense\n", "alpha " ALPHA "\n" };
    struct auth *auth = open_with(texts[2], 100);
    struct asker asker[3] = { 0 };
    atomic_bool done = false;
    struct buffer text;

    (void)state;
    for (int i = 0; i < 3; i++) {
        asker[i].auth = auth;
        asker[i].done = &done;
        pthread_create(&asker[i].thread, NULL, ask_often, &asker[i]);
    }
    for (int i = 0; i < 300; i++) {
        struct error err = { 0 };

        write_bytes(texts[i % 3], strlen(texts[i % 3]));
        assert_int_equal(auth_reload(auth, &err), i % 3 != 1);
        buffer_init(&text, 1 << 16);
        auth_write(auth, &text);
        buffer_free(&text);
    }
    atomic_store(&done, true);
    for (int i = 0; i < 3; i++) {
        pthread_join(asker[i].thread, NULL);
        assert_true(asker[i].found > 0);
        assert_int_equal(asker[i].wrong, 0);
    }
    auth_free(auth);
}

static void metrics_have_the_names_of_the_file_and_no_key(void **state)
{
    struct auth *auth = open_with("alpha " ALPHA "\nbeta " BETA "\n", 0);
    struct buffer text;

    (void)state;
    name_of(auth, NULL, "beta-key");
    name_of(auth, NULL, "wrong-key");
    buffer_init(&text, 1 << 16);
    auth_write(auth, &text);
    auth_write(NULL, &text);
    buffer_append(&text, "", 1);
    assert_false(text.failed);

    const char *shown = (const char *)text.data;

    assert_non_null(strstr(shown, "attnd_key_requests_total{key=\"alpha\"} 0\n"));
    assert_non_null(strstr(shown, "attnd_key_requests_total{key=\"beta\"} 1\n"));
    assert_null(strstr(shown, "-key"));
    assert_null(strstr(shown, "677509799af7"));
    buffer_free(&text);
    auth_free(auth);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_is_known_by_its_digest_in_either_header),
        cmocka_unit_test(
            files_may_have_comments_blanks_capitals_and_no_last_line_end),
        cmocka_unit_test(
            files_that_are_no_list_of_keys_are_refused_with_their_line),
        cmocka_unit_test(files_that_cannot_be_read_are_refused),
        cmocka_unit_test(a_file_has_room_for_1024_keys),
        cmocka_unit_test(reloading_changes_the_keys_or_keeps_them_all),
        cmocka_unit_test(
            a_name_may_run_so_many_at_once_and_others_do_not_count),
        cmocka_unit_test(
            the_room_for_names_is_used_again_but_not_while_it_is_held),
        cmocka_unit_test(
            a_file_waits_while_names_of_two_before_it_are_all_in_use),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(requests_find_their_key_while_the_file_is_read_again),
        cmocka_unit_test(metrics_have_the_names_of_the_file_and_no_key),
    };

    return cmocka_run_group_tests(tests, make_file, remove_file);
}
