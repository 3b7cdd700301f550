/* The rows of bad HTTP through HAProxy, as config/deploy/haproxy.cfg sets it up
 * before two instances. It answers more of them than attnd does, and makes some
 * good; whoever answers, it is as the contract says, but for what its parser
 * closes with a 400 of its own. Skipped where there is no
 * haproxy: `make proxy` installs it. */
#include "tests/e2e/daemon.h"
#include "tests/faults/raw.h"
#include "tests/faults/witness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define HOST "Host: a\r\n"
#define JSON "Content-Type: application/json\r\n"
#define CLOSE "Connection: close\r\n"
#define BODY "{\"query\": [[1]]}"
#define HIDDEN "GET /hidden HTTP/1.1\r\n" HOST "\r\n"

static struct daemon instance[2], proxy;
static bool has_proxy;

static uint16_t free_port(void)
{
    struct sockaddr_in any = { .sin_family = AF_INET };
    socklen_t size = sizeof any;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_return_code(bind(fd, (struct sockaddr *)&any, size), errno);
    getsockname(fd, (struct sockaddr *)&any, &size);
    close(fd);
    return ntohs(any.sin_port);
}

static void set_address(const char *variable, uint16_t port)
{
    char text[32];

    snprintf(text, sizeof text, "127.0.0.1:%u", port);
    setenv(variable, text, 1);
}

static int ask(const char *request, struct raw_answer *answer)
{
    raw_say(proxy.port, request, answer);
    return raw_status(answer);
}

static bool is_ready(void)
{
    struct raw_answer answer;
    int fd = daemon_connect(&proxy), status;

    if (fd < 0)
        return false;
    close(fd);
    status = ask("GET /readyz HTTP/1.1\r\n" HOST CLOSE "\r\n", &answer);
    raw_free(&answer);
    return status == 200;
}

static void start_proxy(void)
{
    proxy.port = free_port();
    set_address("ATTND_BIND", proxy.port);
    set_address("ATTND_ONE", instance[0].port);
    set_address("ATTND_TWO", instance[1].port);
    proxy.pid = fork();
    assert_true(proxy.pid >= 0);
    if (proxy.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        execlp("haproxy", "haproxy", "-db", "-f", "config/deploy/haproxy.cfg",
               (char *)NULL);
        _exit(127);
    }
    for (int waited = 0; !is_ready(); waited += 20) {
        assert_true(waited < 10000);
        poll(NULL, 0, 20);
    }
}

static int start_all(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    has_proxy = system("command -v haproxy >/dev/null") == 0;
    if (!has_proxy)
        return 0;
    for (int i = 0; i < 2; i++)
        daemon_start(&instance[i], (const char *const[]){
            "--workers", "1", "--drain-delay-ms", "600", NULL });
    start_proxy();
    return 0;
}

static int stop_all(void **state)
{
    (void)state;
    if (!has_proxy)
        return 0;
    kill(proxy.pid, SIGTERM);
    waitpid(proxy.pid, NULL, 0);
    for (int i = 0; i < 2; i++)
        daemon_stop(&instance[i], SIGTERM);
    return 0;
}

/* ---- rows ---- */

static const struct row {
    const char *name, *request;
    int status, or; /* `or`: made good by the proxy, where it can be */
} rows[] = {
    { "a line that is no header", "GET /livez HTTP/1.1\r\n" HOST "nonsense\r\n\r\n", 400, 0 },
    { "a space before the colon", "GET /livez HTTP/1.1\r\n" HOST "A : b\r\n\r\n", 400, 0 },
    { "no Host", "GET /livez HTTP/1.1\r\n" CLOSE "\r\n", 400, 0 },
    { "two Hosts", "GET /livez HTTP/1.1\r\n" HOST "Host: b\r\n\r\n", 400, 0 },
    { "a folded header", "GET /livez HTTP/1.1\r\n" HOST "A: b\r\n c\r\n" CLOSE "\r\n", 400, 200 },
    { "an encoded NUL", "GET /livez%00 HTTP/1.1\r\n" HOST CLOSE "\r\n", 400, 0 },
    { "a version that is none", "GET /livez HTTP/9.9\r\n" HOST CLOSE "\r\n", 400, 200 },
    { "two equal lengths", "POST /attention HTTP/1.1\r\n" HOST JSON CLOSE
      "Content-Length: 16\r\nContent-Length: 16\r\n\r\n" BODY, 400, 200 },
    { "two lengths", "POST /attention HTTP/1.1\r\n" HOST JSON CLOSE
      "Content-Length: 16\r\nContent-Length: 4\r\n\r\n" BODY HIDDEN, 400, 0 },
    { "a length that is no number", "POST /attention HTTP/1.1\r\n" HOST JSON
      "Content-Length: ten\r\n\r\n" HIDDEN, 400, 0 },
    { "a length over 64 bits", "POST /attention HTTP/1.1\r\n" HOST JSON
      "Content-Length: 99999999999999999999\r\n\r\n", 400, 413 },
    { "a length and chunks", "POST /attention HTTP/1.1\r\n" HOST JSON CLOSE
      "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
      "10\r\n" BODY "\r\n0\r\n\r\n" HIDDEN, 400, 200 },
    { "an unknown transfer coding", "POST /attention HTTP/1.1\r\n" HOST JSON
      "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" HIDDEN, 400, 422 },
    { "chunks in HTTP/1.0", "POST /attention HTTP/1.0\r\n" HOST JSON
      "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" HIDDEN, 400, 0 },
    { "a broken chunk", "POST /attention HTTP/1.1\r\n" HOST JSON
      "Transfer-Encoding: chunked\r\n\r\nzz\r\n" HIDDEN, 400, 0 },
    { "a wrong path", "GET /nowhere HTTP/1.1\r\n" HOST CLOSE "\r\n", 404, 0 },
    { "a wrong method", "DELETE /attention HTTP/1.1\r\n" HOST CLOSE "\r\n", 405, 0 },
    { "an absolute target", "GET http://a/livez HTTP/1.1\r\n" HOST CLOSE "\r\n", 200, 0 },
    { "an ID that is none", "GET /livez HTTP/1.1\r\n" HOST CLOSE
      "X-Request-ID: a b\r\n\r\n", 200, 0 },
};

static double hidden_requests(void)
{
    return daemon_metric(&instance[0], "attnd_requests_total"
                                       "{route=\"other\",code=\"404\"}") +
           daemon_metric(&instance[1], "attnd_requests_total"
                                       "{route=\"other\",code=\"404\"}");
}

/* HAProxy's own, word for word, which it offers no setting for. */
static bool is_from_parser(const struct raw_answer *answer)
{
    return strncmp(answer->bytes, "HTTP/1.1 400 Bad request\r\n", 26) == 0 &&
           strstr(answer->bytes, "Your browser sent an invalid request.") !=
               NULL;
}

static void check_row(const struct row *row)
{
    struct raw_answer answer;
    double before = hidden_requests();
    int status = ask(row->request, &answer);
    bool hides = strstr(row->request, HIDDEN) != NULL;
    char id[256];

    if (status != row->status && (row->or == 0 || status != row->or))
        fail_msg("%s: %d\n%s", row->name, status, answer.bytes);
    if (is_from_parser(&answer)) {
        assert_true(answer.closed);
    } else {
        if (status >= 400)
            witness_problem(&answer.reply[0], NULL);
        assert_non_null(raw_header(&answer.reply[0], "X-Request-ID", id,
                                   sizeof id));
        assert_null(strchr(id, ' '));
    }
    if (hides && hidden_requests() > before)
        fail_msg("%s: a hidden request was executed", row->name);
    raw_free(&answer);
}

static void every_row_gets_its_status_and_a_problem(void **state)
{
    (void)state;
    if (!has_proxy)
        skip();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_row(&rows[i]);
}

static void headers_that_are_too_long_are_refused(void **state)
{
    static char request[200 * 1024];
    struct raw_answer answer;
    int len = snprintf(request, sizeof request,
                       "GET /livez HTTP/1.1\r\n" HOST "A: ");

    (void)state;
    if (!has_proxy)
        skip();
    memset(request + len, 'a', 150 * 1024);
    memcpy(request + len + 150 * 1024, "\r\n\r\n", 5);
    assert_int_equal(ask(request, &answer), 400);
    assert_true(is_from_parser(&answer) && answer.closed);
    raw_free(&answer);
}

static void a_good_request_passes_untouched(void **state)
{
    static const char format[] = "POST /attention HTTP/1.1\r\n" HOST JSON CLOSE
                                 "X-Request-ID: mine\r\n"
                                 "Content-Length: 16\r\n\r\n" BODY " ";
    struct raw_answer direct, through;
    char id[64];

    (void)state;
    if (!has_proxy)
        skip();
    raw_say(instance[0].port, format, &direct);
    assert_int_equal(ask(format, &through), 200);
    assert_int_equal(direct.reply[0].body_len, through.reply[0].body_len);
    assert_memory_equal(direct.reply[0].body, through.reply[0].body,
                        direct.reply[0].body_len);
    assert_string_equal(raw_header(&through.reply[0], "X-Request-ID", id,
                                   sizeof id), "mine");
    raw_free(&direct);
    raw_free(&through);
}

/* Last: the instances are gone afterwards. */
static void one_instance_is_enough_and_none_is_a_503(void **state)
{
    static const char livez[] = "GET /livez HTTP/1.1\r\n" HOST CLOSE "\r\n";
    struct raw_answer answer;

    (void)state;
    if (!has_proxy)
        skip();
    kill(instance[0].pid, SIGTERM);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(ask(livez, &answer), 200);
        raw_free(&answer);
        poll(NULL, 0, 10);
    }
    kill(instance[1].pid, SIGKILL);
    assert_int_equal(ask(livez, &answer), 503);
    witness_problem(&answer.reply[0], "overloaded");
    raw_free(&answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_gets_its_status_and_a_problem),
        cmocka_unit_test(headers_that_are_too_long_are_refused),
        cmocka_unit_test(a_good_request_passes_untouched),
        cmocka_unit_test(one_instance_is_enough_and_none_is_a_503),
    };

    return cmocka_run_group_tests(tests, start_all, stop_all);
}
