#include "config/address.h"
#include "config/config.h"
#include "config/config_file.h"
#include "config/flags.h"

#include <glob.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Tests run from the top of the tree. */
#define COMMITTED "config/attnd.conf"
#define CORPUS "tests/fuzz/corpus/config"

#define ARGS(...) ((char *[]){ "attnd", ##__VA_ARGS__, NULL })
#define VARIABLES(...) ((char *[]){ "HOME=/", "ATTNDX=1", ##__VA_ARGS__, NULL })

enum { SETTING_BYTES = OPTION_NAME_BYTES + OPTION_TEXT_BYTES + 8 };

struct outcome {
    bool good;
    struct config config;
    enum config_action action;
    struct error err;
};

static struct outcome load(char **argv, char **envp)
{
    struct outcome outcome = { 0 };
    int argc = 0;

    while (argv[argc] != NULL)
        argc++;
    outcome.good = config_load(&outcome.config, &outcome.action, argc, argv,
                               envp, &outcome.err);
    assert_int_equal(outcome.good, outcome.err.code == ERR_NONE);
    assert_null(strchr(outcome.err.text, '\n'));
    return outcome;
}

static void expect_refusal(struct outcome outcome, const char *text)
{
    assert_false(outcome.good);
    assert_string_equal(outcome.err.text, text);
}

/* One file of the test's own, rewritten by each test that needs it. */
static char path[] = "/tmp/attnd_config_test_XXXXXX";

static char *file_with(const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    return path;
}

/* That a file of this text is refused with "PATH:" and `refusal`. */
static void expect_file_refusal(const char *text, const char *refusal)
{
    char expected[600];

    snprintf(expected, sizeof expected, "%s:%s", path, refusal);
    expect_refusal(load(ARGS("--config", file_with(text)), VARIABLES()),
                   expected);
}

static bool has_field(const struct option *option)
{
    return option->kind != OPTION_FILE && option->kind != OPTION_ACTION;
}

/* A legal value that is not the default. */
static const char *other_value(const struct option *option)
{
    static char text[32];

    switch (option->kind) {
    case OPTION_TEXT:
        return "avx2";
    case OPTION_ADDRESS:
        return "[::1]:9";
    case OPTION_WORD:
        return option->words[strcmp(option->initial, option->words[0]) == 0];
    case OPTION_SWITCH:
        return strcmp(option->initial, "no") == 0 ? "yes" : "no";
    default:
        snprintf(text, sizeof text, "%" PRId64, option->max);
        return text;
    }
}

/* ATTND_NAME=value, --name=value, or name=value. Returns out. */
static char *setting(const struct option *option, enum option_source source,
                     const char *value, char out[SETTING_BYTES])
{
    char name[OPTION_NAME_BYTES];

    options_spell(option, source, name);
    snprintf(out, SETTING_BYTES, "%s=%s", name, value);
    return out;
}

/* That `outcome` is the defaults but for `option`, which has `value`. */
static void expect_only(struct outcome outcome, const struct option *option,
                        const char *value)
{
    struct origin origin = { OPTION_IN_FLAG, NULL, 0 };
    struct config expected;
    struct error err = { 0 };

    if (!outcome.good)
        fail_msg("%s", outcome.err.text);
    config_init(&expected);
    assert_true(options_set(&expected, option, value, &origin, &err));
    assert_memory_equal(&outcome.config, &expected, sizeof expected);
}

static void nothing_given_means_the_defaults(void **state)
{
    struct outcome outcome = load(ARGS(), VARIABLES());

    (void)state;
    assert_true(outcome.good);
    assert_int_equal(outcome.action, CONFIG_RUN);
    assert_string_equal(outcome.config.listen, "127.0.0.1:8080");
    assert_int_equal(outcome.config.workers, 0);
    assert_int_equal(outcome.config.max_body_bytes, 64 << 20);
    assert_int_equal(outcome.config.max_response_bytes, 256 << 20);
    assert_int_equal(outcome.config.max_request_flops, 10000000000000);
    assert_int_equal(outcome.config.request_deadline_ms, 30000);
    assert_int_equal(outcome.config.log_level, CONFIG_LEVEL_INFO);
    assert_int_equal(outcome.config.log_format, CONFIG_FORMAT_AUTO);
    assert_string_equal(outcome.config.kernels, "");
    assert_true(load(ARGS(), NULL).good);
}

static void every_option_is_set_by_flag_variable_and_file(void **state)
{
    char flag[SETTING_BYTES], variable[SETTING_BYTES], line[SETTING_BYTES];
    char name[OPTION_NAME_BYTES];

    (void)state;
    for (size_t i = 0; i < config_options.count; i++) {
        const struct option *option = &config_options.row[i];

        if (!has_field(option))
            continue;

        char *value = strdup(other_value(option));

        options_spell(option, OPTION_IN_FLAG, name);
        setting(option, OPTION_IN_FLAG, value, flag);
        setting(option, OPTION_IN_ENVIRONMENT, value, variable);
        setting(option, OPTION_IN_FILE, value, line);
        expect_only(load(ARGS(flag), NULL), option, value);
        expect_only(load(ARGS(name, value), NULL), option, value);
        expect_only(load(ARGS(), VARIABLES(variable)), option, value);
        expect_only(load(ARGS("--config", file_with(line)), NULL), option,
                    value);
        free(value);
    }
}

static void a_flag_beats_a_variable_and_a_variable_the_file(void **state)
{
    char flag[SETTING_BYTES], variable[SETTING_BYTES], line[SETTING_BYTES];

    (void)state;
    for (size_t i = 0; i < config_options.count; i++) {
        const struct option *option = &config_options.row[i];

        if (!has_field(option))
            continue;

        char *other = strdup(other_value(option));

        file_with(setting(option, OPTION_IN_FILE, other, line));
        setting(option, OPTION_IN_ENVIRONMENT, option->initial, variable);
        expect_only(load(ARGS("--config", path), VARIABLES(variable)), option,
                    option->initial);
        setting(option, OPTION_IN_FLAG, option->initial, flag);
        expect_only(load(ARGS("--config", path, flag), NULL), option,
                    option->initial);
        setting(option, OPTION_IN_ENVIRONMENT, other, variable);
        expect_only(load(ARGS(flag), VARIABLES(variable)), option,
                    option->initial);
        free(other);
    }
}

static void bounds_are_legal_and_one_beyond_is_not(void **state)
{
    char flag[SETTING_BYTES], value[32];

    (void)state;
    for (size_t i = 0; i < config_options.count; i++) {
        const struct option *option = &config_options.row[i];
        int64_t ends[] = { option->min, option->max };

        if (option->kind != OPTION_NUMBER && option->kind != OPTION_BYTES)
            continue;
        for (int64_t end = 0; end < 2; end++) {
            snprintf(value, sizeof value, "%" PRId64, ends[end]);
            setting(option, OPTION_IN_FLAG, value, flag);
            assert_true(load(ARGS(flag), NULL).good);
            snprintf(value, sizeof value, "%" PRIu64,
                     (uint64_t)ends[end] + (end == 0 ? -1UL : 1UL));
            if (ends[end] == 0)
                snprintf(value, sizeof value, "-1");
            setting(option, OPTION_IN_FLAG, value, flag);
            assert_false(load(ARGS(flag), NULL).good);
        }
    }
}

static void sizes_take_binary_suffixes(void **state)
{
    static const struct {
        char *text;
        int64_t bytes;
    } good[] = {
        { "2048", 2048 },      { "3KiB", 3072 },         { "3K", 3072 },
        { "3 MiB", 3 << 20 },  { "5m", 5 << 20 },        { "1GiB", 1 << 30 },
        { "1g", 1 << 30 },     { "0000002048", 2048 },
    };
    static char *const bad[] = { "",      "64MB",   "KiB", "1.5GiB", "0x800",
                                 "2048 ", " 2048",  "-1K", "+2048",  "2_048",
                                 "2e9",   "1KiBiB", "9999999999999999999",
                                 "9007199254740993K" };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct outcome outcome =
            load(ARGS("--max-body-bytes", good[i].text), NULL);

        assert_true(outcome.good);
        assert_int_equal(outcome.config.max_body_bytes, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(load(ARGS("--max-body-bytes", bad[i]), NULL).good);
}

static void numbers_are_plain_decimals(void **state)
{
    static char *const bad[] = { "",    " ",   "abc", "4 ",  " 4",  "4.0",
                                 "4e1", "0x4", "+4",  "4K",  "--4", "-",
                                 "9223372036854775808" };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(load(ARGS("--workers", bad[i]), NULL).good);
    assert_int_equal(load(ARGS("--workers", "007"), NULL).config.workers, 7);
}

static void an_address_is_a_host_and_a_port(void **state)
{
    static const struct {
        char *text, *host;
        int port;
    } good[] = {
        { "127.0.0.1:8080", "127.0.0.1", 8080 },
        { "localhost:0", "localhost", 0 },
        { "a-b.example_1:65535", "a-b.example_1", 65535 },
        { "[::]:80", "::", 80 },
        { "[::ffff:1.2.3.4]:1", "::ffff:1.2.3.4", 1 },
        { "[fe80::1%eth0]:1", "fe80::1%eth0", 1 },
    };
    static char *const bad[] = {
        "",           "8080",       ":8080",       "localhost",  "localhost:",
        "h:65536",    "h:123456",   "h:-1",        "h:8o",       "h: 1",
        "::1:80",     "[::1]",      "[::1]80",     "[:::1]:80",  "[1.2.3.4]:80",
        "[]:80",      "[::1%]:80",  "[::1%a b]:1", "1.2.3:80",   "1.2.3.256:80",
        "-h:80",      ".h:80",      "a b:80",      "http://h:80", "h\n:80",
        "[::1:80",    "::1]:80",    "a]:80",
        "[1111:2222:3333:4444:5555:6666:7777:8888:9999:0000]:80",
    };
    struct address address;
    char long_host[OPTION_TEXT_BYTES + 3];

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(load(ARGS("--listen", good[i].text), NULL).good);
        assert_true(address_parse(good[i].text, &address));
        assert_string_equal(address.host, good[i].host);
        assert_int_equal(address.port, good[i].port);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (load(ARGS("--listen", bad[i]), NULL).good)
            fail_msg("took \"%s\"", bad[i]);
    memset(long_host, 'a', sizeof long_host);
    memcpy(long_host + 253, ":1", sizeof ":1");
    assert_true(address_parse(long_host, &address));
    memcpy(long_host + 253, "a:1", sizeof "a:1");
    assert_false(address_parse(long_host, &address));
    memset(long_host, 'a', sizeof long_host);
    memcpy(long_host + sizeof long_host - 3, ":1", sizeof ":1");
    assert_false(load(ARGS("--listen", long_host), NULL).good);
}

static void a_text_is_one_line_without_blanks_around_it(void **state)
{
    (void)state;
    assert_true(load(ARGS("--kernels", ""), NULL).good);
    assert_true(load(ARGS("--kernels="), NULL).good);
    assert_false(load(ARGS("--kernels", " "), NULL).good);
    assert_false(load(ARGS("--kernels", "avx2 "), NULL).good);
    assert_false(load(ARGS("--kernels", "av\tx2"), NULL).good);
    assert_false(load(ARGS("--kernels", "a name of thirty-three characters"),
                      NULL)
                     .good);
}

static void a_refusal_names_the_option_its_value_and_what_it_should_be(
    void **state)
{
    (void)state;
    expect_refusal(load(ARGS("--workers", "abc"), NULL),
                   "--workers is \"abc\", not a number from 0 to 1024");
    expect_refusal(load(ARGS(), VARIABLES("ATTND_IO_THREADS=0")),
                   "ATTND_IO_THREADS is \"0\", not a number from 1 to 64");
    expect_refusal(load(ARGS("--max-body-bytes=64MB"), NULL),
                   "--max-body-bytes is \"64MB\", not a size from 1KiB to "
                   "1024GiB in bytes, KiB, MiB or GiB");
    expect_refusal(load(ARGS("--log-level", "loud"), NULL),
                   "--log-level is \"loud\", not error, warn, info or debug");
    expect_refusal(load(ARGS("--listen", "80"), NULL),
                   "--listen is \"80\", not HOST:PORT or [IPv6]:PORT");
    expect_refusal(load(ARGS("--workers", "a\nb\x1b"), NULL),
                   "--workers is \"a?b?\", not a number from 0 to 1024");
    expect_refusal(
        load(ARGS("--workers", "1234567890123456789012345678901234567890"
                               "123456789012345678901234567890123456\u00e4\u00e4"),
             NULL),
        "--workers is \"12345678901234567890123456789012345678901234567890123"
        "45678901234567890123456...\", not a number from 0 to 1024");
    expect_refusal(
        load(ARGS("--workers", "1234567890123456789012345678901234567890"
                               "12345678901234567890123456789012345\u00e4\u00e4x"),
             NULL),
        "--workers is \"12345678901234567890123456789012345678901234567890123"
        "4567890123456789012345...\", not a number from 0 to 1024");
    expect_refusal(load(ARGS("--workers"), NULL),
                   "--workers needs a value: THREADS");
    expect_refusal(load(ARGS("--help=1"), NULL), "--help takes no value");
}

static void a_refusal_from_a_file_names_file_and_line(void **state)
{
    (void)state;
    expect_file_refusal("# one\n\nworkers = many\n",
                        "3: workers is \"many\", not a number from 0 to 1024");
    expect_file_refusal("workers = 1\n \tqueue_lenght=3",
                        "2: queue_lenght is not a configuration key; did you "
                        "mean queue_length?");
    expect_file_refusal("workers 4\n",
                        "1: \"workers 4\" is not a line `key = value`");
    expect_file_refusal("= 4\n", "1: \"= 4\" is not a line `key = value`");
    expect_file_refusal("workers = 1\n\nworkers = 2\n",
                        "3: workers = \"2\": already set on line 1");
    expect_file_refusal("help = 1\n", "1: help is not a configuration key; see "
                                      "attnd --help");
    expect_file_refusal("config = /etc/x\n", "1: config is not a configuration "
                                             "key; see attnd --help");
    expect_file_refusal("Workers = 1\n", "1: Workers is not a configuration "
                                         "key; did you mean workers?");
}

static void an_overridden_bad_value_is_still_refused(void **state)
{
    (void)state;
    assert_false(load(ARGS("--workers=1", "--config", file_with("workers = x")),
                      NULL)
                     .good);
    assert_false(load(ARGS("--workers=1"), VARIABLES("ATTND_WORKERS=")).good);
}

static void a_file_may_have_blanks_comments_and_windows_line_ends(void **state)
{
    struct outcome outcome =
        load(ARGS("--config", file_with("\r\n  # workers = 9\r\n\tworkers\t=  "
                                        "4 \r\n\nkernels =\nlisten=[::1]:1")),
             NULL);

    (void)state;
    assert_true(outcome.good);
    assert_int_equal(outcome.config.workers, 4);
    assert_string_equal(outcome.config.kernels, "");
    assert_string_equal(outcome.config.listen, "[::1]:1");
}

static void a_file_that_is_no_text_is_refused_at_its_line(void **state)
{
    static const char with_nul[] = "workers = 1\nio_threads = 2\0\n";
    char text[CONFIG_FILE_LINE_BYTES + 1];
    struct config config;
    struct error err = { 0 };

    (void)state;
    config_init(&config);
    assert_false(
        config_file_parse(&config, with_nul, sizeof with_nul, "f", &err));
    assert_string_equal(err.text, "f:2: \"io_threads = 2\" is not a line `key "
                                  "= value`");

    memset(text, '#', sizeof text);
    err = (struct error){ 0 };
    assert_true(
        config_file_parse(&config, text, sizeof text - 2, "f", &err));
    assert_false(config_file_parse(&config, text, sizeof text, "f", &err));
}

static void files_of_the_corpus_are_taken_or_not_as_their_names_say(
    void **state)
{
    glob_t good, bad;

    (void)state;
    assert_int_equal(glob(CORPUS "/y_*", 0, NULL, &good), 0);
    assert_int_equal(glob(CORPUS "/n_*", 0, NULL, &bad), 0);
    for (size_t i = 0; i < good.gl_pathc; i++)
        if (!load(ARGS("--config", good.gl_pathv[i]), NULL).good)
            fail_msg("refused %s", good.gl_pathv[i]);
    for (size_t i = 0; i < bad.gl_pathc; i++)
        if (load(ARGS("--config", bad.gl_pathv[i]), NULL).good)
            fail_msg("took %s", bad.gl_pathv[i]);
    globfree(&good);
    globfree(&bad);
}

static void a_file_that_cannot_be_read_is_named(void **state)
{
    (void)state;
    expect_refusal(load(ARGS("--config", "/nowhere/attnd.conf"), NULL),
                   "configuration file \"/nowhere/attnd.conf\": No such file "
                   "or directory");
    expect_refusal(load(ARGS("--config=/tmp"), NULL),
                   "configuration file \"/tmp\": Is a directory");
    expect_refusal(load(ARGS(), VARIABLES("ATTND_CONFIG=/dev/zero")),
                   "configuration file \"/dev/zero\" is larger than 1 MiB");
}

static void a_flag_names_another_file_than_the_variable(void **state)
{
    struct outcome outcome =
        load(ARGS("--config", file_with("workers = 3")),
             VARIABLES("ATTND_CONFIG=/nowhere/attnd.conf"));

    (void)state;
    assert_true(outcome.good);
    assert_int_equal(outcome.config.workers, 3);
}

static void an_unknown_name_gets_the_nearest_one(void **state)
{
    (void)state;
    expect_refusal(load(ARGS("--worker", "1"), NULL),
                   "--worker is not a flag of attnd; did you mean --workers?");
    expect_refusal(load(ARGS("--max_body_bytes=1"), NULL),
                   "--max_body_bytes is not a flag of attnd; did you mean "
                   "--max-body-bytes?");
    expect_refusal(load(ARGS("--max-body=1"), NULL),
                   "--max-body is not a flag of attnd; did you mean "
                   "--max-body-bytes?");
    expect_refusal(load(ARGS("--print-conf"), NULL),
                   "--print-conf is not a flag of attnd; did you mean "
                   "--print-config?");
    expect_refusal(load(ARGS("--no-workers"), NULL),
                   "--no-workers is not a flag of attnd; did you mean "
                   "--workers?");
    expect_refusal(load(ARGS(), VARIABLES("ATTND_QUEUE_LEN=1")),
                   "ATTND_QUEUE_LEN is not a variable of attnd; did you mean "
                   "ATTND_QUEUE_LENGTH?");
    expect_refusal(load(ARGS(), VARIABLES("ATTND_workers=1")),
                   "ATTND_workers is not a variable of attnd; did you mean "
                   "ATTND_WORKERS?");
}

static void a_name_like_no_other_gets_no_suggestion(void **state)
{
    char long_name[3000];

    (void)state;
    expect_refusal(load(ARGS("start"), NULL),
                   "start is not a flag of attnd; see attnd --help");
    expect_refusal(load(ARGS("-h"), NULL),
                   "-h is not a flag of attnd; see attnd --help");
    expect_refusal(load(ARGS(""), NULL),
                   " is not a flag of attnd; see attnd --help");
    expect_refusal(load(ARGS("--"), NULL),
                   "-- is not a flag of attnd; see attnd --help");
    expect_refusal(load(ARGS(), VARIABLES("ATTND_PORT=80")),
                   "ATTND_PORT is not a variable of attnd; see attnd --help");
    memset(long_name, 'x', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    assert_false(load(ARGS(long_name), NULL).good);
    memcpy(long_name, "ATTND_", 6);
    long_name[2000] = '=';
    assert_false(load(ARGS(), VARIABLES(long_name)).good);
}

static void what_kubernetes_says_of_a_service_named_attnd_is_ignored(
    void **state)
{
    (void)state;
    assert_true(load(ARGS(),
                     VARIABLES("ATTND_SERVICE_HOST=10.0.0.7",
                               "ATTND_SERVICE_PORT=8080",
                               "ATTND_SERVICE_PORT_HTTP=8080",
                               "ATTND_PORT=tcp://10.0.0.7:8080",
                               "ATTND_PORT_8080_TCP=tcp://10.0.0.7:8080",
                               "ATTND_PORT_8080_TCP_PROTO=tcp",
                               "ATTND_PORT_8080_TCP_PORT=8080",
                               "ATTND_PORT_8080_TCP_ADDR=10.0.0.7",
                               "ATTND_CANARY_SERVICE_HOST=10.0.0.8",
                               "ATTND_CANARY_PORT=tcp://10.0.0.8:8080"))
                    .good);
    assert_false(load(ARGS(), VARIABLES("ATTND_PORT_NAME=http")).good);
}

static void a_variable_without_a_value_is_nobodys(void **state)
{
    (void)state;
    assert_true(load(ARGS(), VARIABLES("ATTND_WORKERS", "ATTND_NAME")).good);
    assert_false(load(ARGS(), VARIABLES("ATTND_WORKERS=")).good);
}

static void an_action_is_reported_beside_the_configuration(void **state)
{
    static const struct {
        char *flag;
        enum config_action action;
    } actions[] = {
        { "--help", CONFIG_HELP },
        { "--version", CONFIG_VERSION },
        { "--print-config", CONFIG_PRINT },
        { "--check-config", CONFIG_CHECK },
        { "--healthcheck", CONFIG_HEALTHCHECK },
    };

    (void)state;
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        struct outcome outcome = load(ARGS(actions[i].flag), NULL);

        assert_true(outcome.good);
        assert_int_equal(outcome.action, actions[i].action);
    }
    assert_int_equal(
        load(ARGS("--healthcheck", "--workers=5"), NULL).config.workers, 5);
    assert_true(load(ARGS("--healthcheck", "--healthcheck"), NULL).good);
    expect_refusal(load(ARGS("--check-config", "--print-config"), NULL),
                   "--print-config: only one of --check-config, --print-config "
                   "and --healthcheck at a time");
}

static void help_and_version_come_first_whatever_else_is_wrong(void **state)
{
    (void)state;
    assert_int_equal(load(ARGS("--help", "--bogus"), NULL).action, CONFIG_HELP);
    assert_int_equal(load(ARGS("--check-config", "--version"),
                          VARIABLES("ATTND_X=1"))
                         .action,
                     CONFIG_VERSION);
    assert_int_equal(load(ARGS("--config=/nowhere", "--help"), NULL).action,
                     CONFIG_HELP);
}

/* ---- switches: on a table of the test's own, the real one has none ---- */

struct house {
    bool door;
    int64_t rooms;
};

static const struct option house_rows[] = {
    { "front_door", OPTION_SWITCH, offsetof(struct house, door), "no", 0, 0,
      "SWITCH", "Open it.", NULL, 0 },
    { "rooms", OPTION_NUMBER, offsetof(struct house, rooms), "1", 1, 9,
      "ROOMS", "Count them.", NULL, 0 },
};

static bool furnish(struct house *house, char **arguments, struct error *err)
{
    static const struct options options = { house_rows, 2 };
    struct flags flags = { &options, arguments };
    struct origin origin = { OPTION_IN_FLAG, NULL, 0 };
    struct flag flag;

    while (flags_next(&flags, &flag, err)) {
        if (flag.option == NULL)
            return true;
        if (!options_set(house, flag.option, flag.value, &origin, err))
            return false;
    }
    return false;
}

static void a_switch_is_a_flag_alone_negated_or_with_a_value(void **state)
{
    static const struct {
        char *arguments[4];
        bool door;
    } good[] = {
        { { "--front-door", NULL }, true },
        { { "--front-door", "--rooms=2", NULL }, true },
        { { "--front-door", "no", "--rooms=2", NULL }, false },
        { { "--front-door=yes", NULL }, true },
        { { "--front-door=true", NULL }, true },
        { { "--front-door", "false", NULL }, false },
        { { "--front-door", "--no-front-door", NULL }, false },
    };
    static char *bad[][3] = {
        { "--front-door", "perhaps", NULL },
        { "--front-door=", NULL, NULL },
        { "--no-front-door=no", NULL, NULL },
        { "--no-rooms", NULL, NULL },
    };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct house house = { !good[i].door, 0 };
        struct error err = { 0 };

        assert_true(furnish(&house, (char **)good[i].arguments, &err));
        assert_int_equal(house.door, good[i].door);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct house house = { 0 };
        struct error err = { 0 };

        assert_false(furnish(&house, bad[i], &err));
    }
}

static void a_switch_prints_the_word_it_reads(void **state)
{
    struct origin origin = { OPTION_IN_FILE, "f", 1 };
    struct house house = { false, 1 };
    struct error err = { 0 };
    char value[OPTION_TEXT_BYTES];

    (void)state;
    assert_string_equal(options_value(&house, house_rows, value), "no");
    assert_true(options_set(&house, house_rows, "yes", &origin, &err));
    assert_string_equal(options_value(&house, house_rows, value), "yes");
    assert_false(options_set(&house, house_rows, "Yes", &origin, &err));
    assert_string_equal(err.text, "f:1: front_door is \"Yes\", not yes or no");
}

/* ---- what is printed ---- */

static char *printed(const struct config *config)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    assert_non_null(out);
    assert_true(config == NULL ? config_help(out) : config_print(config, out));
    assert_int_equal(fclose(out), 0);
    return text;
}

static void what_is_printed_reads_back_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < config_options.count; i++) {
        const struct option *option = &config_options.row[i];
        char flag[SETTING_BYTES];

        if (!has_field(option))
            continue;
        setting(option, OPTION_IN_FLAG, other_value(option), flag);

        struct outcome first = load(ARGS(flag), NULL);
        char *text = printed(&first.config);
        struct outcome second = load(ARGS("--config", file_with(text)), NULL);

        assert_true(second.good);
        assert_memory_equal(&first.config, &second.config,
                            sizeof first.config);
        free(text);
    }
}

static void the_committed_file_is_what_print_config_prints(void **state)
{
    char committed[1 << 16];
    FILE *file = fopen(COMMITTED, "r");
    struct config config;

    (void)state;
    assert_non_null(file);
    committed[fread(committed, 1, sizeof committed - 1, file)] = '\0';
    fclose(file);
    config_init(&config);

    char *text = printed(&config);

    if (strcmp(text, committed) != 0)
        fail_msg("run: build/attnd --print-config > " COMMITTED);
    free(text);
}

static void help_lists_every_flag_with_its_help(void **state)
{
    char *text = printed(NULL);
    char name[OPTION_NAME_BYTES];

    (void)state;
    for (size_t i = 0; i < config_options.count; i++) {
        const struct option *option = &config_options.row[i];

        options_spell(option, OPTION_IN_FLAG, name);
        assert_non_null(strstr(text, name));
        assert_non_null(strstr(text, option->help));
        assert_null(strchr(option->help, '\n'));
        assert_true(strlen(option->help) > 10);
    }
    free(text);
}

static void printing_to_a_full_disk_fails(void **state)
{
    FILE *full = fopen("/dev/full", "w");
    struct config config;

    (void)state;
    assert_non_null(full);
    config_init(&config);
    assert_false(config_print(&config, full));
    assert_false(config_help(full));
    fclose(full);
}

static int make_path(void **state)
{
    (void)state;

    int fd = mkstemp(path);

    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_given_means_the_defaults),
        cmocka_unit_test(every_option_is_set_by_flag_variable_and_file),
        cmocka_unit_test(a_flag_beats_a_variable_and_a_variable_the_file),
        cmocka_unit_test(bounds_are_legal_and_one_beyond_is_not),
        cmocka_unit_test(sizes_take_binary_suffixes),
        cmocka_unit_test(numbers_are_plain_decimals),
        cmocka_unit_test(an_address_is_a_host_and_a_port),
        cmocka_unit_test(a_text_is_one_line_without_blanks_around_it),
        cmocka_unit_test(
            a_refusal_names_the_option_its_value_and_what_it_should_be),
        cmocka_unit_test(a_refusal_from_a_file_names_file_and_line),
        cmocka_unit_test(an_overridden_bad_value_is_still_refused),
        cmocka_unit_test(a_file_may_have_blanks_comments_and_windows_line_ends),
        cmocka_unit_test(a_file_that_is_no_text_is_refused_at_its_line),
        cmocka_unit_test(
            files_of_the_corpus_are_taken_or_not_as_their_names_say),
        cmocka_unit_test(a_file_that_cannot_be_read_is_named),
        cmocka_unit_test(a_flag_names_another_file_than_the_variable),
        cmocka_unit_test(an_unknown_name_gets_the_nearest_one),
        cmocka_unit_test(a_name_like_no_other_gets_no_suggestion),
        cmocka_unit_test(
            what_kubernetes_says_of_a_service_named_attnd_is_ignored),
        cmocka_unit_test(a_variable_without_a_value_is_nobodys),
        cmocka_unit_test(an_action_is_reported_beside_the_configuration),
        cmocka_unit_test(help_and_version_come_first_whatever_else_is_wrong),
        cmocka_unit_test(a_switch_is_a_flag_alone_negated_or_with_a_value),
        cmocka_unit_test(a_switch_prints_the_word_it_reads),
        cmocka_unit_test(what_is_printed_reads_back_the_same),
        cmocka_unit_test(the_committed_file_is_what_print_config_prints),
        cmocka_unit_test(help_lists_every_flag_with_its_help),
        cmocka_unit_test(printing_to_a_full_disk_fails),
    };

    return cmocka_run_group_tests(tests, make_path, remove_path);
}
