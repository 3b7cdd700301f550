/* HAProxy, as config/deploy/haproxy.cfg sets it up, before two instances: what
 * good requests get, and what it says when instances are gone. Bad ones go
 * through it with `make proxy`, from the tables of the other tests, and it
 * installs haproxy: without, this is skipped. */
#include "tests/e2e/daemon.h"
#include "tests/e2e/proxy.h"
#include "tests/faults/raw.h"
#include "tests/faults/witness.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define HOST "Host: a\r\n"
#define CLOSE "Connection: close\r\n"

static struct daemon instance[2];
static struct proxy proxy;

static int start_all(void **state)
{
    (void)state;
    unsetenv("THROUGH"); /* one proxy is enough */
    if (!proxy_is_installed())
        return 0;
    for (int i = 0; i < 2; i++)
        daemon_start(&instance[i], (const char *const[]){
            "--workers", "1", "--drain-delay-ms", "600", NULL });
    proxy_start(&proxy, instance[0].port, instance[1].port);
    return 0;
}

static int stop_all(void **state)
{
    (void)state;
    if (proxy.pid == 0)
        return 0;
    proxy_stop(&proxy);
    for (int i = 0; i < 2; i++)
        daemon_stop(&instance[i], SIGTERM);
    return 0;
}

static int ask(const char *request, struct raw_answer *answer)
{
    raw_say(proxy.port, request, answer);
    return raw_status(answer);
}

static void a_good_request_passes_untouched(void **state)
{
    static const char request[] =
        "POST /attention HTTP/1.1\r\n" HOST CLOSE "X-Request-ID: mine\r\n"
        "Content-Type: application/json\r\nContent-Length: 16\r\n\r\n"
        "{\"query\": [[1]]}";
    struct raw_answer direct, through;
    char id[64];

    (void)state;
    if (proxy.pid == 0)
        skip();
    raw_say(instance[0].port, request, &direct);
    assert_int_equal(ask(request, &through), 200);
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
    if (proxy.pid == 0)
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
        cmocka_unit_test(a_good_request_passes_untouched),
        cmocka_unit_test(one_instance_is_enough_and_none_is_a_503),
    };

    return cmocka_run_group_tests(tests, start_all, stop_all);
}
