#include "server/log.h"

#include "server/clock.h"

#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { TEXT_BYTES = 1 << 20 };

static int sink;
static char text[TEXT_BYTES];

static void open_log(enum config_log_level level, enum config_log_format format)
{
    sink = memfd_create("log", MFD_CLOEXEC);
    assert_true(sink >= 0);
    assert_true(log_start(level, format, sink));
}

static const char *close_log(void)
{
    ssize_t n;

    log_stop();
    n = pread(sink, text, sizeof text - 1, 0);
    assert_true(n >= 0);
    text[n] = '\0';
    close(sink);
    return text;
}

static struct log_request a_request(void)
{
    return (struct log_request){ .id = "id-1", .method = "POST",
                                 .path = "/attention", .peer = "127.0.0.1:9",
                                 .status = 200, .received_bytes = 12,
                                 .sent_bytes = 34, .total_ns = 5000000 };
}

static void a_request_is_one_json_object(void **state)
{
    struct log_request request = a_request();

    (void)state;
    open_log(CONFIG_LEVEL_INFO, CONFIG_FORMAT_JSON);
    log_request(&request);
    close_log();
    assert_memory_equal(text, "{\"time\":\"2", 10);
    assert_int_equal(text[28], '.');
    assert_in_range(strspn(text + 29, "0123456789"), 3, 3);
    assert_memory_equal(text + 32, "Z\",", 3);
    assert_non_null(strstr(text, "\"msg\":\"request\",\"id\":\"id-1\","
                                 "\"method\":\"POST\",\"path\":\"/attention\","
                                 "\"status\":200,\"received_bytes\":12,"
                                 "\"sent_bytes\":34,"));
    assert_non_null(strstr(text, "\"total_ms\":5.000"));
    assert_string_equal(text + strlen(text) - 2, "}\n");
}

static void a_request_is_one_line_of_text(void **state)
{
    struct log_request request = a_request();

    (void)state;
    open_log(CONFIG_LEVEL_INFO, CONFIG_FORMAT_TEXT);
    request.aborted = true;
    log_request(&request);
    close_log();
    assert_non_null(strstr(text, " info  POST /attention 200 aborted 5.000 ms"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static void the_key_the_code_and_the_end_are_told_when_there_are_any(
    void **state)
{
    struct log_request request = a_request();

    (void)state;
    request.key = "laptop";
    request.code = "timeout";
    request.aborted = true;
    open_log(CONFIG_LEVEL_INFO, CONFIG_FORMAT_JSON);
    log_request(&request);
    close_log();
    assert_non_null(strstr(text, "\"path\":\"/attention\",\"key\":\"laptop\","
                                 "\"status\":200,\"code\":\"timeout\","
                                 "\"aborted\":true,\"received_bytes\":12"));
    open_log(CONFIG_LEVEL_INFO, CONFIG_FORMAT_TEXT);
    log_request(&request);
    close_log();
    assert_non_null(strstr(text, "/attention 200 aborted timeout 5.000 ms"));
    assert_non_null(strstr(text, ", peer 127.0.0.1:9, key laptop\n"));
}

static void a_terminal_gets_text_and_a_file_json_where_nobody_chose(
    void **state)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY), terminal;
    char line[200] = "";

    (void)state;
    assert_true(master >= 0);
    assert_int_equal(grantpt(master) | unlockpt(master), 0);
    terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0);
    assert_true(log_start(CONFIG_LEVEL_INFO, CONFIG_FORMAT_AUTO, terminal));
    log_event(CONFIG_LEVEL_INFO, "n", NULL, NULL, "x");
    log_stop();
    assert_true(read(master, line, sizeof line - 1) > 0);
    assert_non_null(strstr(line, " info  x\r\n"));
    close(terminal);
    close(master);

    open_log(CONFIG_LEVEL_INFO, CONFIG_FORMAT_AUTO);
    log_event(CONFIG_LEVEL_INFO, "n", NULL, NULL, "x");
    close_log();
    assert_non_null(strstr(text, "\"msg\":\"n\",\"detail\":\"x\"}\n"));
}

static void what_comes_behind_the_end_is_written_at_once(void **state)
{
    char line[200] = "";

    (void)state;
    open_log(CONFIG_LEVEL_INFO, CONFIG_FORMAT_TEXT);
    log_stop();
    log_event(CONFIG_LEVEL_INFO, "n", NULL, NULL, "late");
    assert_true(pread(sink, line, sizeof line - 1, 0) > 0);
    assert_non_null(strstr(line, " info  late\n"));
    close_log();
}

static void whatever_a_client_chose_is_escaped(void **state)
{
    struct log_request request = a_request();

    (void)state;
    request.path = "/a\"\\\n\x1b[31m\xff";
    open_log(CONFIG_LEVEL_INFO, CONFIG_FORMAT_JSON);
    log_request(&request);
    close_log();
    assert_non_null(strstr(text,
                           "\"path\":\"/a\\\"\\\\\\u000a\\u001b[31m\\u00ff\""));
    open_log(CONFIG_LEVEL_INFO, CONFIG_FORMAT_TEXT);
    log_request(&request);
    close_log();
    assert_non_null(strstr(text, "/a\\\"\\\\\\x0a\\x1b[31m\\xff"));
}

static void a_long_path_is_cut_and_the_line_stays_whole(void **state)
{
    struct log_request request = a_request();
    static char path[70000];

    (void)state;
    memset(path, '\x01', sizeof path - 1);
    request.path = path;
    open_log(CONFIG_LEVEL_INFO, CONFIG_FORMAT_JSON);
    log_request(&request);
    log_event(CONFIG_LEVEL_INFO, "next", NULL, NULL, "%s", path);
    close_log();
    assert_true(strchr(text, '\n') - text < PIPE_BUF);
    assert_non_null(strstr(text, "\"peer\":\"127.0.0.1:9\"}\n{\"time\""));
    assert_string_equal(text + strlen(text) - 3, "\"}\n");
}

static void lines_below_the_level_are_not_written(void **state)
{
    struct log_request request = a_request();

    (void)state;
    open_log(CONFIG_LEVEL_WARN, CONFIG_FORMAT_JSON);
    log_request(&request);
    log_event(CONFIG_LEVEL_INFO, "no", NULL, NULL, "not this");
    log_event(CONFIG_LEVEL_ERROR, "yes", "key", "value", "but this");
    close_log();
    assert_non_null(strstr(text, "\"level\":\"error\",\"msg\":\"yes\","
                                 "\"key\":\"value\",\"detail\":\"but this\"}"));
    assert_null(strstr(text, "not this"));
    assert_null(strstr(text, "request"));
}

static void every_line_arrives_in_order(void **state)
{
    enum { LINES = 5000 };
    char *at = text;

    (void)state;
    open_log(CONFIG_LEVEL_INFO, CONFIG_FORMAT_TEXT);
    for (int i = 0; i < LINES; i++) {
        log_event(CONFIG_LEVEL_INFO, "n", NULL, NULL, "line %d.", i);
        if (i % 1000 == 999)
            clock_sleep_ns(20 * CLOCK_NS_PER_MS); /* let the ring empty */
    }
    close_log();
    for (int i = 0; i < LINES; i++) {
        char wanted[32];

        snprintf(wanted, sizeof wanted, "line %d.\n", i);
        at = strstr(at, wanted);
        assert_non_null(at);
    }
}

static void a_reader_that_stands_still_stops_nobody(void **state)
{
    int ends[2];
    int64_t before = clock_ns();

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_true(log_start(CONFIG_LEVEL_INFO, CONFIG_FORMAT_JSON, ends[1]));
    for (int i = 0; i < 20000; i++) /* 2 MB: more than pipe and ring hold */
        log_event(CONFIG_LEVEL_INFO, "n", NULL, NULL, "%064d", i);
    assert_true(clock_ns() - before < 5 * (int64_t)CLOCK_NS_PER_S);
    log_stop();
    assert_true(clock_ns() - before < 10 * (int64_t)CLOCK_NS_PER_S);
    close(ends[0]);
    close(ends[1]);
}

static void a_full_disk_or_a_closed_file_stops_nobody(void **state)
{
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

    (void)state;
    assert_true(full >= 0);
    assert_true(log_start(CONFIG_LEVEL_INFO, CONFIG_FORMAT_JSON, full));
    for (int i = 0; i < 1000; i++)
        log_event(CONFIG_LEVEL_INFO, "n", NULL, NULL, "%d", i);
    log_stop();
    close(full);
    assert_true(log_start(CONFIG_LEVEL_INFO, CONFIG_FORMAT_JSON, full));
    log_event(CONFIG_LEVEL_INFO, "n", NULL, NULL, "nobody reads this");
    log_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_one_json_object),
        cmocka_unit_test(a_request_is_one_line_of_text),
        cmocka_unit_test(
            the_key_the_code_and_the_end_are_told_when_there_are_any),
        cmocka_unit_test(
            a_terminal_gets_text_and_a_file_json_where_nobody_chose),
        cmocka_unit_test(what_comes_behind_the_end_is_written_at_once),
        cmocka_unit_test(whatever_a_client_chose_is_escaped),
        cmocka_unit_test(a_long_path_is_cut_and_the_line_stays_whole),
        cmocka_unit_test(lines_below_the_level_are_not_written),
        cmocka_unit_test(every_line_arrives_in_order),
        cmocka_unit_test(a_reader_that_stands_still_stops_nobody),
        cmocka_unit_test(a_full_disk_or_a_closed_file_stops_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
