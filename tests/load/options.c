#include "tests/load/options.h"

#include "tests/load/attention.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

const char options_help[] =
    "usage: load [option value ...] URL\n"
    "Sends HTTP/1.1 requests to this machine and tells how long the answers took,\n"
    "counted from when each request should have been sent.\n"
    "\n"
    "  --rate LIST         runs, one after another: requests a second (200);\n"
    "                      `closed`, each connection sends when its answer has\n"
    "                      come; `closed:8`, on so many connections; a share of\n"
    "                      what the closed run before reached (50%); closed\n"
    "  --connections N     most open at a time; 64\n"
    "  --idle N            further connections that only stay open; 0\n"
    "  --duration S        seconds of sending for each rate, up to 86400; 10\n"
    "  --warmup S          of them, not counted, in each round; 0\n"
    "  --rounds N          all rates in turn so often, each for its part of the\n"
    "                      duration, since a machine's pace may drift; 1\n"
    "  --random yes        gaps between requests as of clients that know nothing of\n"
    "                      each other, instead of even ones; no\n"
    "  --count N           most requests for each rate; 10^12\n"
    "  --timeout MS        for an answer, or for a free connection; 10000\n"
    "  --attention LxExH   post random queries of this length, width and heads;\n"
    "                      given twice or more: in turn\n"
    "  --body FILE         post this file instead; likewise\n"
    "  --method NAME       POST with a body, GET without\n"
    "  --header LINE       `Name: value`, as often as needed\n"
    "  --reconnect yes     a connection for each request; no\n"
    "  --bad PERCENT       of requests have a body cut short; 0\n"
    "  --abort PERCENT     of requests are left by their client; 0\n"
    "  --seed N            of the choice between those, and of the gaps; 1\n"
    "  --watch PID         report this process's memory and open files\n"
    "  --flat MIB          exit 1 when, after the first quarter of a run, files stay\n"
    "                      open, or memory grows by more than this an hour (runs\n"
    "                      of ten minutes and more)\n"
    "  --judge yes         compare with the closed run and the 100% run; exit 1\n"
    "                      when overload costs more than it must; no\n"
    "  --json FILE         write the whole report there as well\n";

struct complaint {
    char *text;
    size_t size;
};

static bool complain(struct complaint why, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool complain(struct complaint why, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why.text, why.size, format, args);
    va_end(args);
    return false;
}

static bool read_number(const char *text, double least, double most,
                        double *value)
{
    char *end;

    *value = strtod(text, &end);
    return end != text && *end == '\0' && *value >= least && *value <= most;
}

/* Literal addresses only: a name might be resolved to anywhere. */
static bool read_address(struct options *options, const char *host,
                         unsigned port)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&options->address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&options->address;

    if (strcmp(host, "localhost") == 0)
        host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        options->address_len = sizeof *v4;
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    }
    if (strcmp(host, "[::1]") != 0)
        return false;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)port);
    v6->sin6_addr = in6addr_loopback;
    options->address_len = sizeof *v6;
    return true;
}

static bool read_url(struct options *options, const char *url,
                     struct complaint why)
{
    char host[48];
    unsigned port = 80;
    const char *at = url + 7, *slash = url;
    size_t len;

    if (strncmp(url, "http://", 7) != 0)
        return complain(why, "%s: not http://ADDRESS:PORT/PATH", url);
    slash = at + strcspn(at, "/?#");
    len = *at == '[' ? strcspn(at, "]") + 1 : strcspn(at, ":/?#");
    if (len >= sizeof host || at + len > slash)
        return complain(why, "%s: not http://ADDRESS:PORT/PATH", url);
    snprintf(host, sizeof host, "%.*s", (int)len, at);
    if (at[len] == ':') {
        char *end;
        unsigned long number = strtoul(at + len + 1, &end, 10);

        if (end != slash || number < 1 || number > 65535)
            return complain(why, "%s: no such port", url);
        port = (unsigned)number;
    } else if (at + len != slash) {
        return complain(why, "%s: not http://ADDRESS:PORT/PATH", url);
    }
    if (strlen(slash) >= sizeof options->path - 1 ||
        strlen(url) >= sizeof options->url)
        return complain(why, "the URL is too long");
    snprintf(options->url, sizeof options->url, "%s", url);
    snprintf(options->path, sizeof options->path, "%s%s",
             *slash == '/' ? "" : "/", slash);
    snprintf(options->host, sizeof options->host, "%s:%u", host, port);
    return read_address(options, host, port) ||
           complain(why,
                    "%s: not loopback: load is sent to 127.x.x.x, [::1] or "
                    "localhost alone", host);
}

static bool read_rate(struct rate *rate, const char *text)
{
    size_t len = strlen(text);
    bool share = len > 1 && text[len - 1] == '%';
    char number[32];

    *rate = (struct rate){ .kind = share ? RATE_OF_CLOSED : RATE_FIXED };
    if (strncmp(text, "closed", 6) == 0) {
        rate->kind = RATE_CLOSED;
        return text[6] == '\0' ||
               (text[6] == ':' &&
                read_number(text + 7, 1, 200000, &rate->value));
    }
    snprintf(number, sizeof number, "%.*s", (int)(share ? len - 1 : len), text);
    if (!read_number(number, 0.001, 1e7, &rate->value))
        return false;
    rate->value /= share ? 100 : 1;
    return true;
}

static bool read_rates(struct options *options, const char *text,
                       struct complaint why)
{
    bool has_closed = false;

    options->rates = 0;
    for (size_t len; *text != '\0'; text += len + (text[len] == ',')) {
        char one[32];
        struct rate *rate = &options->rate[options->rates];

        len = strcspn(text, ",");
        if (options->rates == OPTIONS_RATES || len >= sizeof one)
            return complain(why, "--rate: more than %d runs, or no number",
                            OPTIONS_RATES);
        snprintf(one, sizeof one, "%.*s", (int)len, text);
        if (!read_rate(rate, one))
            return complain(why, "--rate %s: not a rate, a share or `closed`",
                            one);
        if (rate->kind == RATE_OF_CLOSED && !has_closed)
            return complain(why, "--rate %s: a share of a closed run, and none "
                                 "comes before it", one);
        has_closed = has_closed || rate->kind == RATE_CLOSED;
        options->rates++;
    }
    return options->rates > 0 || complain(why, "--rate: none");
}

static bool read_file(const char *name, struct body *body)
{
    FILE *file = fopen(name, "rb");
    struct stat stat;

    if (file == NULL)
        return false;
    if (fstat(fileno(file), &stat) == 0 && S_ISREG(stat.st_mode)) {
        body->len = (size_t)stat.st_size;
        body->bytes = malloc(body->len + 1);
    }
    if (body->bytes != NULL &&
        fread(body->bytes, 1, body->len, file) != body->len) {
        free(body->bytes);
        body->bytes = NULL;
    }
    fclose(file);
    return body->bytes != NULL;
}

static bool add_body(struct options *options, const char *name,
                     const char *value, struct complaint why)
{
    struct body *body = &options->body[options->bodies];

    if (options->bodies == OPTIONS_BODIES)
        return complain(why, "%s: more than %d bodies", name, OPTIONS_BODIES);
    if (strcmp(name, "--body") == 0 ? !read_file(value, body)
                                    : !attention_write(value, body))
        return complain(why, "%s %s: %s", name, value,
                        strcmp(name, "--body") == 0
                            ? "cannot be read"
                            : "not LxExH, with H dividing E, up to 64 MB");
    options->bodies++;
    return true;
}

static bool add_header(struct options *options, const char *line,
                       struct complaint why)
{
    size_t have = strlen(options->headers);
    const char *colon = strchr(line, ':');

    if (colon == NULL || colon == line || strpbrk(line, "\r\n") != NULL ||
        have + strlen(line) + 3 > sizeof options->headers)
        return complain(why, "--header %.*s: not `Name: value`, or too long",
                        (int)strcspn(line, "\r\n"), line);
    snprintf(options->headers + have, sizeof options->headers - have,
             "%s\r\n", line);
    return true;
}

static bool read_text(struct options *options, const char *name,
                      const char *value, struct complaint why)
{
    const struct {
        const char *name;
        bool *place;
    } switches[] = {
        { "--random", &options->is_random },
        { "--reconnect", &options->reconnects },
        { "--judge", &options->judges },
    };
    bool yes = strcmp(value, "yes") == 0;

    if (strcmp(name, "--rate") == 0)
        return read_rates(options, value, why);
    if (strcmp(name, "--body") == 0 || strcmp(name, "--attention") == 0)
        return add_body(options, name, value, why);
    if (strcmp(name, "--header") == 0)
        return add_header(options, value, why);
    if (strcmp(name, "--json") == 0) {
        options->json = value;
        return true;
    }
    if (strcmp(name, "--method") == 0) {
        snprintf(options->method, sizeof options->method, "%s", value);
        return strpbrk(value, " \r\n") == NULL ||
               complain(why, "--method: not a word");
    }
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        if (strcmp(name, switches[i].name) != 0)
            continue;
        *switches[i].place = yes;
        return yes || strcmp(value, "no") == 0 ||
               complain(why, "%s %s: neither yes nor no", name, value);
    }
    return complain(why, "%s: no such option", name);
}

static bool read_option(struct options *options, const char *name,
                        const char *value, struct complaint why)
{
    double connections = options->connections, idle = options->idle;
    double count = (double)options->count, pid = options->watched;
    double timeout_ms = (double)options->timeout_ns / 1e6;
    double bad = options->bad * 100, aborting = options->aborting * 100;
    double seed = (double)options->seed, rounds = options->rounds;
    const struct {
        const char *name;
        double least, most;
        double *place;
    } numbers[] = {
        { "--connections", 1, 200000, &connections },
        { "--idle", 0, 200000, &idle },
        { "--duration", 0.01, 86400, &options->duration_s },
        { "--warmup", 0, 86400, &options->warmup_s },
        { "--rounds", 1, 1000, &rounds },
        { "--count", 1, 1e12, &count },
        { "--timeout", 1, 3600000, &timeout_ms },
        { "--bad", 0, 100, &bad },
        { "--abort", 0, 100, &aborting },
        { "--seed", 0, 1e15, &seed },
        { "--watch", 1, 1e9, &pid },
        { "--flat", 0.001, 1e6, &options->flat_mib },
    };
    size_t i = 0;

    while (i < sizeof numbers / sizeof *numbers &&
           strcmp(name, numbers[i].name) != 0)
        i++;
    if (i == sizeof numbers / sizeof *numbers)
        return read_text(options, name, value, why);
    if (!read_number(value, numbers[i].least, numbers[i].most,
                     numbers[i].place))
        return complain(why, "%s %s: not a number from %g to %g", name, value,
                        numbers[i].least, numbers[i].most);
    options->connections = (int)connections;
    options->idle = (int)idle;
    options->count = (int64_t)count;
    options->timeout_ns = (int64_t)(timeout_ms * 1e6);
    options->bad = bad / 100;
    options->aborting = aborting / 100;
    options->seed = (uint64_t)seed;
    options->rounds = (int)rounds;
    options->watched = (pid_t)pid;
    return true;
}

/* What follows from the rest. */
static bool complete(struct options *options, struct complaint why)
{
    bool has_body = options->bodies > 0;

    options->bodies += !has_body; /* an empty one */
    if (options->method[0] == '\0')
        snprintf(options->method, sizeof options->method, "%s",
                 has_body ? "POST" : "GET");
    if (has_body && strcasestr(options->headers, "Content-Type:") == NULL &&
        !add_header(options, "Content-Type: application/json", why))
        return false;
    if (options->bad > 0 && !has_body)
        return complain(why, "--bad: there is no body to cut");
    if (options->bad + options->aborting > 1)
        return complain(why, "--bad and --abort: more than all");
    if (options->flat_mib > 0 && options->watched == 0)
        return complain(why, "--flat: needs --watch");
    if (options->warmup_s * options->rounds >= options->duration_s)
        return complain(why, "--warmup: not shorter than --duration, or its part "
                             "of each round");
    return true;
}

bool options_read(struct options *options, int argc, char **argv, char *text,
                  size_t size)
{
    struct complaint why = { text, size };
    bool good = true;
    int i = 1;

    *options = (struct options){ .connections = 64, .duration_s = 10, .rounds = 1,
                                 .count = 1000000000000, .seed = 1,
                                 .timeout_ns = 10000000000,
                                 .rate = { { RATE_CLOSED, 0 } }, .rates = 1 };
    for (; good && i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2)
        good = read_option(options, argv[i], argv[i + 1], why);
    if (good && i + 1 != argc)
        good = complain(why, "one URL comes last: --help tells more");
    if (good && read_url(options, argv[i], why) && complete(options, why))
        return true;
    options_free(options);
    return false;
}

void options_free(struct options *options)
{
    for (int i = 0; i < options->bodies; i++)
        free(options->body[i].bytes);
}
