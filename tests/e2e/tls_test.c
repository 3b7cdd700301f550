/* TLS on the main listener, and the admin's listener beside it. */
#include "tests/certificate.h"
#include "tests/e2e/daemon.h"
#include "tests/folder.h"

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define HOST "Host: a\r\n"
#define CLOSE "Connection: close\r\n"
#define JSON "Content-Type: application/json\r\n"
#define SMALL "{\"query\": [[1, 2]]}" /* 19 bytes, a request */
#define POST_SMALL                                                             \
    "POST /attention HTTP/1.1\r\n" HOST JSON "Content-Length: 19\r\n\r\n" SMALL
#define GET(path) "GET " path " HTTP/1.1\r\n" HOST CLOSE "\r\n"

#define TLS12 "NORMAL:-VERS-ALL:+VERS-TLS1.2"
#define TLS13 "NORMAL:-VERS-ALL:+VERS-TLS1.3"

enum { ANSWER_BYTES = 1 << 18 };

static char answer[ANSWER_BYTES];
static char folder[] = "/tmp/attnd_tls_XXXXXX";
static char certificate_file[64], key_file[64], keys_file[64];

/* Two pairs; the files hold the first to begin with. */
static struct certificate pairs[2];

/* ---- certificates ---- */

static void write_pair(const char *certificate, const char *key)
{
    folder_put_text(certificate_file, certificate);
    folder_put_text(key_file, key);
}

static int set_up(void **state)
{
    (void)state;
    if (folder_make(folder) != 0 || certificate_make(&pairs[0], 1) != 0 ||
        certificate_make(&pairs[1], 2) != 0)
        return -1;
    snprintf(certificate_file, sizeof certificate_file, "%s/cert.pem", folder);
    snprintf(key_file, sizeof key_file, "%s/key.pem", folder);
    snprintf(keys_file, sizeof keys_file, "%s/keys", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return folder_remove(folder);
}

/* ---- daemons and clients ---- */

/* With the first pair and an admin's listener; up to four options more. `admin`
 * is the same daemon by its other port. */
static void start(struct daemon *daemon, struct daemon *admin,
                  const char *const *more)
{
    static const char at[] = "metrics and health are at 127.0.0.1:";
    const char *options[16] = { "--tls-certificate-file", certificate_file,
                                "--tls-key-file", key_file, "--admin-listen",
                                "127.0.0.1:0", "--workers", "1" };
    char *log, *port;

    for (size_t i = 8; more != NULL && *more != NULL; i++)
        options[i] = *more++;
    write_pair(pairs[0].certificate, pairs[0].key);
    daemon_start(daemon, options);
    log = daemon_log(daemon);
    port = strstr(log, at);
    assert_non_null(port);
    *admin = *daemon;
    admin->port = (uint16_t)strtoul(port + strlen(at), NULL, 10);
    free(log);
}

struct client {
    int fd;
    gnutls_session_t session;
    gnutls_certificate_credentials_t trusted;
};

static void hang_up(struct client *client)
{
    gnutls_deinit(client->session);
    gnutls_certificate_free_credentials(client->trusted);
    close(client->fd);
}

/* Trusts the certificate of `pair` alone. The handshake's result. */
static int try_connect(struct client *client, const struct daemon *daemon,
                       const char *priorities, const struct certificate *pair)
{
    gnutls_datum_t pem = { (unsigned char *)(uintptr_t)pair->certificate,
                           (unsigned)strlen(pair->certificate) };
    int done;

    client->fd = daemon_connect(daemon);
    assert_true(client->fd >= 0);
    assert_int_equal(gnutls_certificate_allocate_credentials(&client->trusted),
                     0);
    assert_int_equal(gnutls_certificate_set_x509_trust_mem(
                         client->trusted, &pem, GNUTLS_X509_FMT_PEM), 1);
    assert_int_equal(gnutls_init(&client->session, GNUTLS_CLIENT), 0);
    assert_int_equal(gnutls_priority_set_direct(client->session, priorities,
                                                NULL), 0);
    gnutls_credentials_set(client->session, GNUTLS_CRD_CERTIFICATE,
                           client->trusted);
    gnutls_session_set_verify_cert(client->session, NULL, 0);
    gnutls_transport_set_int(client->session, client->fd);
    do
        done = gnutls_handshake(client->session);
    while (done == GNUTLS_E_INTERRUPTED);
    return done;
}

static struct client connect_to(const struct daemon *daemon)
{
    struct client client;

    assert_int_equal(try_connect(&client, daemon, TLS13, &pairs[0]), 0);
    return client;
}

static bool say(struct client *client, const void *data, size_t len)
{
    const char *at = data;

    while (len > 0) {
        ssize_t n = gnutls_record_send(client->session, at, len);

        if (n == GNUTLS_E_INTERRUPTED || n == GNUTLS_E_AGAIN)
            continue;
        if (n <= 0)
            return false;
        at += n;
        len -= (size_t)n;
    }
    return true;
}

/* A ticket that comes first is told as GNUTLS_E_AGAIN; later ones are time-outs. */
static ssize_t hear(struct client *client, void *out, size_t size)
{
    ssize_t n;
    int tickets = 0;

    do
        n = gnutls_record_recv(client->session, out, size);
    while (n == GNUTLS_E_INTERRUPTED || (n == GNUTLS_E_AGAIN && tickets++ < 3));
    return n;
}

/* To the end of the connection. GnuTLS's word for the end: 0 for a proper one,
 * or an error. */
static ssize_t hear_all(struct client *client, char *out, size_t size,
                        size_t *len)
{
    ssize_t n = 1;

    *len = 0;
    while (n > 0 && *len < size - 1) {
        n = hear(client, out + *len, size - 1 - *len);
        *len += n > 0 ? (size_t)n : 0;
    }
    out[*len] = '\0';
    return n;
}

/* One answer with a Content-Length, byte by byte at its head. Its status. */
static int hear_one(struct client *client)
{
    size_t len = 0, body = 0;
    const char *length;

    while (len < sizeof answer - 1 &&
           hear(client, answer + len, 1) == 1) {
        answer[++len] = '\0';
        if (len >= 4 && strcmp(answer + len - 4, "\r\n\r\n") == 0)
            break;
    }
    length = strcasestr(answer, "\r\nContent-Length: ");
    if (length != NULL)
        body = strtoul(length + 18, NULL, 10);
    assert_true(body < sizeof answer - len);
    while (body > 0) {
        ssize_t n = hear(client, answer + len, body);

        if (n <= 0)
            return 0;
        len += (size_t)n;
        body -= (size_t)n;
    }
    answer[len] = '\0';
    return len < 12 ? 0 : (int)strtol(answer + 9, NULL, 10);
}

static int exchange(const struct daemon *daemon, const char *text)
{
    struct client client = connect_to(daemon);
    int status;

    say(&client, text, strlen(text));
    status = hear_one(&client);
    hang_up(&client);
    return status;
}

static int ask_admin(const struct daemon *admin, const char *text)
{
    return daemon_exchange(admin, text, answer, sizeof answer);
}

/* ---- the tests ---- */

static void both_versions_of_tls_are_served_and_none_before_them(void **state)
{
    static const char *const served[] = { TLS12, TLS13 };
    struct daemon daemon, admin;
    struct client client;

    (void)state;
    start(&daemon, &admin, NULL);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(try_connect(&client, &daemon, served[i], &pairs[0]),
                         0);
        for (int turn = 0; turn < 3; turn++) { /* kept alive */
            assert_true(say(&client, POST_SMALL, sizeof POST_SMALL - 1));
            assert_int_equal(hear_one(&client), 200);
            assert_string_equal(strstr(answer, "\r\n\r\n") + 4,
                                "{\"output\":[[1,2]],\"weights\":[[1]]}\n");
        }
        hang_up(&client);
    }
    assert_true(try_connect(&client, &daemon,
                            "NORMAL:-VERS-ALL:+VERS-TLS1.1:+VERS-TLS1.0",
                            &pairs[0]) < 0);
    hang_up(&client);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

static void plain_http_on_the_tls_port_is_closed_without_an_answer(void **state)
{
    static const char *const rows[] = { POST_SMALL, "\r\n", "\x16\x03\x01",
                                        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" };
    struct daemon daemon, admin;

    (void)state;
    start(&daemon, &admin, (const char *[]){ "--header-timeout-ms", "500",
                                             NULL });
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(daemon_exchange(&daemon, rows[i], answer,
                                         sizeof answer), 0);
        assert_null(strstr(answer, "HTTP"));
    }
    assert_int_equal(exchange(&daemon, POST_SMALL), 200);
    assert_true(daemon_metric(&admin, "attnd_rejected_total{reason="
                                      "\"unparsed\"}") >= 1);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

static void silent_clients_are_cut_at_the_header_timeout(void **state)
{
    struct daemon daemon, admin;
    int fd;

    (void)state;
    start(&daemon, &admin, (const char *[]){ "--header-timeout-ms", "300",
                                             NULL });
    fd = daemon_connect(&daemon);
    assert_true(daemon_send(fd, "\x16", 1));
    assert_true(daemon_read_all(fd, answer, sizeof answer) >= 0);
    close(fd);

    struct client client = connect_to(&daemon);
    size_t len;
    ssize_t end;

    say(&client, "GET / HT", 8);
    end = hear_all(&client, answer, sizeof answer, &len);
    assert_true(end == 0 || end == GNUTLS_E_PREMATURE_TERMINATION);
    assert_int_equal(len, 0);
    hang_up(&client);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

/* CPU time of all its threads. */
static double cpu_seconds(const struct daemon *daemon)
{
    char path[64], text[1024];
    unsigned long user = 0, system = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)daemon->pid);
    file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_int_equal(sscanf(strrchr(text, ')') + 1,
                            " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu "
                            "%lu", &user, &system), 2);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static void clients_that_stop_in_their_handshake_cost_no_cpu(void **state)
{
    /* The beginning of a ClientHello of 512 bytes. */
    static const char hello[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    struct daemon daemon, admin;
    int fd[8];
    double before;

    (void)state;
    start(&daemon, &admin, NULL);
    for (int i = 0; i < 8; i++) {
        fd[i] = daemon_connect(&daemon);
        assert_true(daemon_send(fd[i], hello, (size_t)i + 1));
    }
    usleep(100000);
    before = cpu_seconds(&daemon);
    usleep(1000000);
    assert_true(cpu_seconds(&daemon) - before < 0.2);
    assert_int_equal(exchange(&daemon, POST_SMALL), 200);
    for (int i = 0; i < 8; i++)
        close(fd[i]);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

/* Its session for the next one; the ticket comes with the first answer. */
static bool resumes(const struct daemon *daemon, gnutls_datum_t *session)
{
    struct client client;
    bool resumed;
    int done;

    client.fd = daemon_connect(daemon);
    gnutls_certificate_allocate_credentials(&client.trusted);
    gnutls_init(&client.session, GNUTLS_CLIENT);
    gnutls_priority_set_direct(client.session, TLS13, NULL);
    gnutls_credentials_set(client.session, GNUTLS_CRD_CERTIFICATE,
                           client.trusted);
    if (session->data != NULL)
        gnutls_session_set_data(client.session, session->data, session->size);
    gnutls_transport_set_int(client.session, client.fd);
    do
        done = gnutls_handshake(client.session);
    while (done == GNUTLS_E_INTERRUPTED);
    assert_int_equal(done, 0);
    assert_true(say(&client, POST_SMALL, sizeof POST_SMALL - 1));
    assert_int_equal(hear_one(&client), 200);
    resumed = gnutls_session_is_resumed(client.session) != 0;
    gnutls_free(session->data);
    assert_int_equal(gnutls_session_get_data2(client.session, session), 0);
    hang_up(&client);
    return resumed;
}

static void tickets_are_good_until_the_certificate_is_read_again(void **state)
{
    struct daemon daemon, admin;
    gnutls_datum_t session = { 0 };

    (void)state;
    start(&daemon, &admin, NULL);
    assert_false(resumes(&daemon, &session));
    assert_true(resumes(&daemon, &session));
    kill(daemon.pid, SIGHUP);
    assert_true(daemon_logs(&daemon, "certificate: read again"));
    assert_false(resumes(&daemon, &session));
    assert_true(resumes(&daemon, &session));
    gnutls_free(session.data);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

/* In plain HTTP it gets a 408 past the library: here that would be a record
 * that is none (GNUTLS_E_UNEXPECTED_PACKET_LENGTH or the like). */
static void late_bodies_are_cut_without_a_word_in_the_clear(void **state)
{
    struct daemon daemon, admin;
    size_t len;
    ssize_t end;

    (void)state;
    start(&daemon, &admin, (const char *[]){ "--body-timeout-ms", "300",
                                             NULL });

    struct client client = connect_to(&daemon);

    say(&client, POST_SMALL, sizeof POST_SMALL - 3);
    end = hear_all(&client, answer, sizeof answer, &len);
    assert_true(end == 0 || end == GNUTLS_E_PREMATURE_TERMINATION);
    assert_int_equal(len, 0);
    hang_up(&client);
    assert_true(daemon_metric(&admin, "attnd_rejected_total{reason="
                                      "\"timeout\"}") == 1);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

static void early_answers_come_encrypted_and_before_the_body(void **state)
{
    static const char head[] = "POST /attention HTTP/1.1\r\n" HOST JSON
                               "Content-Length: 2000\r\n";
    struct daemon daemon, admin;
    size_t len;

    (void)state;
    folder_put_text(keys_file, "a 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f9"
                          "8a5e886266e7ae\n"); /* foo */
    start(&daemon, &admin, (const char *[]){ "--max-body-bytes", "1KiB",
                                             "--api-keys-file", keys_file,
                                             NULL });
    for (int i = 0; i < 4; i++) {
        struct client client = connect_to(&daemon);

        say(&client, head, sizeof head - 1);
        if (i % 2 == 0)
            say(&client, "Expect: 100-continue\r\n", 22);
        if (i < 2)
            say(&client, "X-API-Key: foo\r\n", 16);
        say(&client, "\r\n", 2);
        assert_int_equal(hear_all(&client, answer, sizeof answer, &len), 0);
        assert_int_equal(strncmp(answer, i < 2 ? "HTTP/1.1 413 "
                                               : "HTTP/1.1 401 ", 13), 0);
        assert_null(strstr(answer, "100 Continue"));
        assert_true(i < 2 || strcasestr(answer, "\r\nWWW-Authenticate: Bearer"));
        hang_up(&client);
    }
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

/* Megabytes there and back: the weights of 1500 rows. The same request in plain
 * HTTP gets the same bytes. */
static void large_bodies_and_answers_pass_whole(void **state)
{
    enum { ROWS = 1500, WIDTH = 500, SIZE = 32 << 20 };
    struct daemon daemon, admin, plain;
    char *text = malloc(SIZE), *got[2] = { malloc(SIZE), malloc(SIZE) };
    static const char start_of[] =
        "{\"query\": {\"shape\": [1500, 500], \"data\": [0";
    size_t len[2], at;
    int fd;

    (void)state;
    assert_true(text != NULL && got[0] != NULL && got[1] != NULL);
    start(&daemon, &admin, NULL);
    daemon_start(&plain, NULL);
    at = (size_t)snprintf(text, SIZE, "POST /attention HTTP/1.1\r\n" HOST JSON
                          CLOSE "Content-Length: %zu\r\n\r\n%s",
                          sizeof start_of - 1 + 2 * (ROWS * WIDTH - 1) + 3,
                          start_of);
    for (int i = 1; i < ROWS * WIDTH; i++, at += 2)
        snprintf(text + at, 3, ",%d", i % 3);
    at += (size_t)snprintf(text + at, SIZE - at, "]}}");

    struct client client = connect_to(&daemon);

    fd = daemon_connect(&plain);
    assert_true(daemon_send(fd, text, at));
    assert_true(say(&client, text, at));
    assert_int_equal(hear_all(&client, got[0], SIZE, &len[0]), 0);
    len[1] = (size_t)daemon_read_all(fd, got[1], SIZE);
    assert_int_equal(strncmp(got[0], "HTTP/1.1 200 ", 13), 0);
    assert_true(len[0] > 4 << 20);
    assert_string_equal(strstr(got[0], "\r\n\r\n"), strstr(got[1], "\r\n\r\n"));
    close(fd);
    hang_up(&client);
    for (int i = 0; i < 2; i++)
        free(got[i]);
    free(text);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
    assert_int_equal(daemon_stop(&plain, SIGTERM), 0);
}

static void sighup_changes_the_certificate_of_new_connections(void **state)
{
    struct daemon daemon, admin;
    struct client client;

    (void)state;
    start(&daemon, &admin, NULL);

    struct client old = connect_to(&daemon);

    write_pair(pairs[1].certificate, pairs[1].key);
    kill(daemon.pid, SIGHUP);
    assert_true(daemon_logs(&daemon, "certificate: read again"));
    assert_true(try_connect(&client, &daemon, TLS13, &pairs[0]) < 0);
    hang_up(&client);
    assert_int_equal(try_connect(&client, &daemon, TLS12, &pairs[1]), 0);
    hang_up(&client);
    assert_true(say(&old, POST_SMALL, sizeof POST_SMALL - 1));
    assert_int_equal(hear_one(&old), 200);
    hang_up(&old);

    write_pair(pairs[1].certificate, pairs[0].key);
    kill(daemon.pid, SIGHUP);
    assert_true(daemon_logs(&daemon, "certificate: those of before stay: "
                                     "--tls-key-file: "));
    write_pair("nothing\n", pairs[1].key);
    kill(daemon.pid, SIGHUP);
    assert_true(daemon_logs(&daemon, "certificate: those of before stay: "
                                     "--tls-certificate-file: "));
    assert_int_equal(try_connect(&client, &daemon, TLS13, &pairs[1]), 0);
    hang_up(&client);
    assert_true(daemon_metric(&admin, "attnd_reload_failures_total") == 2);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

static void what_is_no_certificate_and_its_key_refuses_to_start(void **state)
{
    const char *options[] = { "--listen", "127.0.0.1:0",
                              "--tls-certificate-file", certificate_file,
                              "--tls-key-file", key_file, NULL };
    const char *one[] = { "--listen", "127.0.0.1:0", NULL, certificate_file,
                          NULL };
    const struct {
        const char *certificate, *key, *said;
    } rows[] = {
        { "", pairs[0].key, "attnd: --tls-certificate-file: /tmp/" },
        { "nothing", pairs[0].key, "attnd: --tls-certificate-file: /tmp/" },
        { pairs[0].key, pairs[0].key, "attnd: --tls-certificate-file: /tmp/" },
        { pairs[0].certificate, "", "attnd: --tls-key-file: /tmp/" },
        { pairs[0].certificate, pairs[0].certificate,
          "attnd: --tls-key-file: /tmp/" },
        { pairs[0].certificate, pairs[1].key, "attnd: --tls-key-file: /tmp/" },
    };
    char said[1024];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_pair(rows[i].certificate, rows[i].key);
        assert_int_not_equal(daemon_run(options, said, sizeof said), 0);
        if (strncmp(said, rows[i].said, strlen(rows[i].said)) != 0 ||
            strcspn(said, "\n") != strlen(said) - 1)
            fail_msg("row %zu: %s", i, said);
    }
    unlink(key_file);
    assert_int_not_equal(daemon_run(options, said, sizeof said), 0);
    assert_non_null(strstr(said, "key.pem: No such file or directory\n"));
    one[2] = "--tls-certificate-file";
    assert_int_not_equal(daemon_run(one, said, sizeof said), 0);
    assert_string_equal(said,
                        "attnd: --tls-certificate-file: needs --tls-key-file\n");
    one[2] = "--tls-key-file";
    assert_int_not_equal(daemon_run(one, said, sizeof said), 0);
    assert_string_equal(said,
                        "attnd: --tls-key-file: needs --tls-certificate-file\n");
    one[2] = "--admin-listen";
    one[3] = "nowhere";
    assert_int_not_equal(daemon_run(one, said, sizeof said), 0);
    assert_string_equal(said, "attnd: admin_listen nowhere: not HOST:PORT\n");
}

static void healthcheck_asks_in_tls_or_at_the_admins_door(void **state)
{
    struct daemon daemon, admin;
    char address[32], said[512];
    const char *in_tls[] = { "--healthcheck", "--listen", address,
                             "--tls-certificate-file", certificate_file,
                             "--tls-key-file", key_file, NULL };
    const char *plain[] = { "--healthcheck", "--listen", address, NULL };
    const char *at_admin[] = { "--healthcheck", "--admin-listen", address,
                               "--tls-certificate-file", certificate_file,
                               "--tls-key-file", key_file, NULL };

    (void)state;
    start(&daemon, &admin, NULL);
    snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)daemon.port);
    assert_int_equal(daemon_run(in_tls, said, sizeof said), 0);
    assert_int_equal(daemon_run(plain, said, sizeof said), 1);
    snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)admin.port);
    assert_int_equal(daemon_run(at_admin, said, sizeof said), 0);
    assert_int_equal(daemon_run(in_tls, said, sizeof said), 1);
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

static void the_admins_listener_serves_its_four_paths_without_a_key(void **state)
{
    static const struct {
        const char *text;
        int admin, main;
    } rows[] = {
        { GET("/metrics"), 200, 404 },
        { GET("/livez"), 200, 200 },
        { GET("/readyz"), 200, 200 },
        { GET("/version"), 200, 200 },
        { "HEAD /metrics HTTP/1.1\r\n" HOST CLOSE "\r\n", 200, 404 },
        { "OPTIONS /metrics HTTP/1.1\r\n" HOST CLOSE "\r\n", 204, 404 },
        { "POST /metrics HTTP/1.1\r\n" HOST CLOSE "\r\n", 405, 404 },
        { GET("/models"), 404, 200 },
        { GET("/models/x"), 404, 404 },
        { GET("/openapi.json"), 404, 200 },
        { GET("/attention"), 404, 405 },
        { POST_SMALL, 404, 200 },
    };
    struct daemon daemon, admin;

    (void)state;
    start(&daemon, &admin, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int fd = daemon_connect(&admin);

        assert_true(daemon_send(fd, rows[i].text, strlen(rows[i].text)));
        if (strncmp(rows[i].text, "HEAD", 4) == 0)
            assert_int_equal(ask_admin(&admin, rows[i].text), rows[i].admin);
        else
            assert_int_equal(daemon_read_one(fd, answer, sizeof answer),
                             rows[i].admin);
        close(fd);
    }
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);

    folder_put_text(keys_file, "a 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f9"
                          "8a5e886266e7ae\n");
    start(&daemon, &admin, (const char *[]){ "--api-keys-file", keys_file,
                                             NULL });
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512];

        if (strncmp(rows[i].text, "HEAD", 4) == 0)
            continue;
        snprintf(text, sizeof text, "%.*sX-API-Key: foo\r\n%s",
                 (int)(strstr(rows[i].text, HOST) - rows[i].text),
                 rows[i].text, strstr(rows[i].text, HOST));
        assert_int_equal(exchange(&daemon, text), rows[i].main);
    }
    assert_int_equal(exchange(&daemon, GET("/version")), 401);
    assert_int_equal(exchange(&daemon, GET("/metrics")), 401);
    assert_int_equal(exchange(&daemon, GET("/livez")), 200);
    assert_int_equal(ask_admin(&admin, GET("/version")), 200);
    assert_int_equal(ask_admin(&admin, GET("/metrics")), 200);
    assert_non_null(strstr(answer, "attnd_key_requests_total{key=\"a\"}"));
    assert_int_equal(daemon_stop(&daemon, SIGTERM), 0);
}

static void the_admins_listener_stays_while_the_service_drains(void **state)
{
    struct daemon daemon, admin;
    struct client client;

    (void)state;
    start(&daemon, &admin, NULL);
    client = connect_to(&daemon);
    say(&client, POST_SMALL, sizeof POST_SMALL - 3);
    for (int i = 0; daemon_metric(&admin, "attnd_memory_reserved_bytes") == 0;
         i++) { /* it has begun */
        assert_true(i < 500);
        usleep(10000);
    }
    kill(daemon.pid, SIGTERM);
    assert_true(daemon_logs(&daemon, "\"msg\":\"draining\""));
    usleep(200000);
    assert_int_equal(ask_admin(&admin, GET("/readyz")), 503);
    assert_int_equal(ask_admin(&admin, GET("/livez")), 200);
    assert_int_equal(ask_admin(&admin, GET("/metrics")), 200);
    assert_non_null(strstr(answer, "\nattnd_ready 0\n"));
    assert_int_equal(daemon_connect(&daemon), -1);
    assert_true(say(&client, POST_SMALL + sizeof POST_SMALL - 3, 2));
    assert_int_equal(hear_one(&client), 200);
    hang_up(&client);
    assert_int_equal(daemon_wait(&daemon), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_versions_of_tls_are_served_and_none_before_them),
        cmocka_unit_test(
            plain_http_on_the_tls_port_is_closed_without_an_answer),
        cmocka_unit_test(silent_clients_are_cut_at_the_header_timeout),
        cmocka_unit_test(clients_that_stop_in_their_handshake_cost_no_cpu),
        cmocka_unit_test(tickets_are_good_until_the_certificate_is_read_again),
        cmocka_unit_test(late_bodies_are_cut_without_a_word_in_the_clear),
        cmocka_unit_test(early_answers_come_encrypted_and_before_the_body),
        cmocka_unit_test(large_bodies_and_answers_pass_whole),
        cmocka_unit_test(sighup_changes_the_certificate_of_new_connections),
        cmocka_unit_test(what_is_no_certificate_and_its_key_refuses_to_start),
        cmocka_unit_test(healthcheck_asks_in_tls_or_at_the_admins_door),
        cmocka_unit_test(
            the_admins_listener_serves_its_four_paths_without_a_key),
        cmocka_unit_test(the_admins_listener_stays_while_the_service_drains),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
