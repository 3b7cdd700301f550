#include "server/log.h"

#include "server/clock.h"
#include "server/metrics.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE_BYTES = PIPE_BUF, /* what a pipe takes whole or not at all */
    /* Kept free by what clients chose for what we say after it: quotes, keys
     * and numbers of a line, fewer than this. */
    TAIL_BYTES = 512,
    RING_BYTES = 256 * 1024,
    /* Woken by the first line, the thread lets others gather: one write for
     * many, and no wake-up for each. */
    GATHER_NS = 2 * CLOCK_NS_PER_MS,
    PATIENCE_MS = 100
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t filled;
    pthread_t thread;
    bool running, stopping;
    int64_t last_try_ns; /* of log_stop(): when to give up */
    enum config_log_level level;
    bool json;
    int fd;
    size_t head, tail; /* bytes ever taken out, ever put in */
    char ring[RING_BYTES];
} log_state = { .mutex = PTHREAD_MUTEX_INITIALIZER,
                .filled = PTHREAD_COND_INITIALIZER,
                .level = CONFIG_LEVEL_INFO,
                .fd = STDERR_FILENO };

static const char *const levels[] = {
#define WORD(enumerator, text) [enumerator] = text,
#define WORDS(field, words) WORDS_##field(words)
#define WORDS_log_level(...) __VA_ARGS__
#define WORDS_log_format(...)
#include "config/options.def"
#undef WORD
};

/* A line under construction; what does not fit is cut. */
struct line {
    size_t len;
    char text[LINE_BYTES];
};

static void put_bytes(struct line *line, const char *text, size_t len)
{
    size_t room = sizeof line->text - 2 - line->len; /* commit() adds two */

    if (len > room)
        len = room;
    memcpy(line->text + line->len, text, len);
    line->len += len;
}

static void put(struct line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void put(struct line *line, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put_bytes(line, text, strlen(text));
}

/* Bytes outside ASCII are shown as the code points of Latin-1: whatever came,
 * the line is valid UTF-8 and one line. */
static void put_escaped(struct line *line, const char *text, size_t max)
{
    for (size_t i = 0; text[i] != '\0' && i < max &&
                       line->len < sizeof line->text - TAIL_BYTES; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c < 0x20 || c >= 0x7F)
            put(line, log_state.json ? "\\u%04x" : "\\x%02x", c);
        else if (c == '\\' || c == '"')
            put(line, "\\%c", c);
        else
            put_bytes(line, &text[i], 1);
    }
}

static void put_time(struct line *line)
{
    struct timespec now;
    struct tm utc;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    put(line, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", utc.tm_year + 1900,
        utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
        (int)(now.tv_nsec / 1000000));
}

static void put_member(struct line *line, const char *key, const char *value,
                       size_t max)
{
    put(line, ",\"%s\":\"", key);
    put_escaped(line, value, max);
    put_bytes(line, "\"", 1);
}

static void begin(struct line *line, enum config_log_level level,
                  const char *event)
{
    line->len = 0;
    if (log_state.json)
        put_bytes(line, "{\"time\":\"", 9);
    put_time(line);
    if (log_state.json) {
        put(line, "\",\"level\":\"%s\"", levels[level]);
        put_member(line, "msg", event, 64);
    } else {
        put(line, " %-5s ", levels[level]);
    }
}

static void write_through(const char *text, size_t len)
{
    ssize_t n = write(log_state.fd, text, len);

    (void)n; /* there is nobody left to tell */
}

/* Ends the line and hands it to the thread. */
static void commit(struct line *line)
{
    if (log_state.json)
        line->text[line->len++] = '}';
    line->text[line->len++] = '\n';

    pthread_mutex_lock(&log_state.mutex);
    if (!log_state.running) {
        write_through(line->text, line->len);
    } else if (line->len > RING_BYTES - (log_state.tail - log_state.head)) {
        metrics_add(METRIC_log_dropped_total, 1);
    } else {
        for (size_t i = 0; i < line->len; i++)
            log_state.ring[(log_state.tail + i) % RING_BYTES] = line->text[i];
        if (log_state.tail == log_state.head)
            pthread_cond_signal(&log_state.filled);
        log_state.tail += line->len;
    }
    pthread_mutex_unlock(&log_state.mutex);
}

/* Whole lines, as many as one write takes. With the mutex held. */
static size_t take_lines(char out[LINE_BYTES])
{
    size_t n = 0, whole = 0;

    while (n < LINE_BYTES && log_state.head + n < log_state.tail) {
        out[n] = log_state.ring[(log_state.head + n) % RING_BYTES];
        n++;
        if (out[n - 1] == '\n')
            whole = n;
    }
    log_state.head += whole;
    return whole;
}

static bool gave_up(void)
{
    bool late;

    pthread_mutex_lock(&log_state.mutex);
    late = log_state.stopping && clock_ns() > log_state.last_try_ns;
    pthread_mutex_unlock(&log_state.mutex);
    return late;
}

static void count_lost(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        metrics_add(METRIC_log_dropped_total, text[i] == '\n');
}

/* poll() first: a pipe that is writable takes PIPE_BUF bytes without waiting,
 * and the file may be shared with others who do not want it non-blocking. */
static void write_out(const char *text, size_t len)
{
    while (len > 0) {
        struct pollfd ready = { .fd = log_state.fd, .events = POLLOUT };
        bool last_try = gave_up();
        int n = poll(&ready, 1, last_try ? 0 : PATIENCE_MS);
        ssize_t done = n > 0 ? write(log_state.fd, text, len) : -1;

        if (done < 0 && (n <= 0 || errno == EINTR || errno == EAGAIN) &&
            !last_try)
            continue;
        if (done <= 0) {
            count_lost(text, len);
            return;
        }
        text += done;
        len -= (size_t)done;
    }
}

static void *run(void *arg)
{
    char text[LINE_BYTES];

    (void)arg;
    pthread_mutex_lock(&log_state.mutex);
    for (;;) {
        bool was_empty = log_state.tail == log_state.head;

        if (was_empty && log_state.stopping)
            break;
        if (was_empty)
            pthread_cond_wait(&log_state.filled, &log_state.mutex);
        if (was_empty && !log_state.stopping) {
            pthread_mutex_unlock(&log_state.mutex);
            clock_sleep_ns(GATHER_NS);
            pthread_mutex_lock(&log_state.mutex);
        }

        size_t len = take_lines(text);

        pthread_mutex_unlock(&log_state.mutex);
        write_out(text, len);
        pthread_mutex_lock(&log_state.mutex);
    }
    pthread_mutex_unlock(&log_state.mutex);
    return NULL;
}

bool log_start(enum config_log_level level, enum config_log_format format,
               int fd)
{
    log_state.level = level;
    log_state.fd = fd;
    log_state.json = format == CONFIG_FORMAT_JSON ||
                     (format == CONFIG_FORMAT_AUTO && !isatty(fd));
    log_state.stopping = false;
    log_state.running = pthread_create(&log_state.thread, NULL, run, NULL) == 0;
    return log_state.running;
}

void log_stop(void)
{
    if (!log_state.running)
        return;
    pthread_mutex_lock(&log_state.mutex);
    log_state.stopping = true;
    log_state.last_try_ns = clock_ns() + CLOCK_NS_PER_S;
    pthread_cond_signal(&log_state.filled);
    pthread_mutex_unlock(&log_state.mutex);
    pthread_join(log_state.thread, NULL);
    /* After a start that failed, others may still log. */
    pthread_mutex_lock(&log_state.mutex);
    log_state.running = false;
    pthread_mutex_unlock(&log_state.mutex);
}

void log_event(enum config_log_level level, const char *event, const char *key,
               const char *value, const char *format, ...)
{
    char sentence[1024];
    struct line line;
    va_list args;

    if (level > log_state.level)
        return;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    begin(&line, level, event);
    if (log_state.json) {
        if (key != NULL)
            put_member(&line, key, value, 512);
        put_member(&line, "detail", sentence, sizeof sentence);
    } else {
        put_escaped(&line, sentence, sizeof sentence);
    }
    commit(&line);
}

static double ms(int64_t ns)
{
    return (double)ns / 1e6;
}

static void put_json_request(struct line *line, const struct log_request *r)
{
    put_member(line, "id", r->id, 128);
    put_member(line, "method", r->method, 32);
    put_member(line, "path", r->path, 256);
    if (r->key != NULL)
        put_member(line, "key", r->key, 64);
    put(line, ",\"status\":%d", r->status);
    if (r->code != NULL)
        put_member(line, "code", r->code, 64);
    if (r->aborted)
        put(line, ",\"aborted\":true");
    put(line,
        ",\"received_bytes\":%lld,\"sent_bytes\":%lld,\"queue_ms\":%.3f,"
        "\"decode_ms\":%.3f,\"compute_ms\":%.3f,\"encode_ms\":%.3f,"
        "\"total_ms\":%.3f",
        (long long)r->received_bytes, (long long)r->sent_bytes,
        ms(r->queue_ns), ms(r->decode_ns), ms(r->compute_ns), ms(r->encode_ns),
        ms(r->total_ns));
    put_member(line, "peer", r->peer, 64);
}

static void put_text_request(struct line *line, const struct log_request *r)
{
    put_escaped(line, r->method, 32);
    put_bytes(line, " ", 1);
    put_escaped(line, r->path, 256);
    put(line, " %d%s%s%s", r->status, r->aborted ? " aborted" : "",
        r->code == NULL ? "" : " ", r->code == NULL ? "" : r->code);
    put(line,
        " %.3f ms (queue %.3f, decode %.3f, compute %.3f, encode %.3f), "
        "%lld bytes in, %lld out, id ",
        ms(r->total_ns), ms(r->queue_ns), ms(r->decode_ns), ms(r->compute_ns),
        ms(r->encode_ns), (long long)r->received_bytes,
        (long long)r->sent_bytes);
    put_escaped(line, r->id, 128);
    put_bytes(line, ", peer ", 7);
    put_escaped(line, r->peer, 64);
    if (r->key != NULL)
        put(line, ", key %s", r->key);
}

void log_request(const struct log_request *request)
{
    struct line line;

    if (CONFIG_LEVEL_INFO > log_state.level)
        return;
    begin(&line, CONFIG_LEVEL_INFO, "request");
    if (log_state.json)
        put_json_request(&line, request);
    else
        put_text_request(&line, request);
    commit(&line);
}
