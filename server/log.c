#include "server/log.h"

#include "server/clock.h"
#include "server/digits.h"
#include "server/metrics.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE_BYTES = PIPE_BUF, /* what a pipe takes whole or not at all ... */
    FILE_BYTES = 64 * 1024, /* ... and a file, of many lines */
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
    size_t most; /* bytes of a write */
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

/* A literal, and numbers without printf: a request's line has ten of them. */
static void put_text(struct line *line, const char *text)
{
    put_bytes(line, text, strlen(text));
}

static void put_number(struct line *line, const char *before, int64_t value)
{
    char text[DIGITS_BYTES];

    put_text(line, before);
    put_bytes(line, text, (size_t)(digits_write(text, value) - text));
}

static void put_ms(struct line *line, const char *before, int64_t ns)
{
    char text[DIGITS_BYTES];

    put_text(line, before);
    put_bytes(line, text, (size_t)(digits_write_ms(text, ns) - text));
}

static bool is_plain(char c)
{
    return c >= 0x20 && c < 0x7F && c != '\\' && c != '"';
}

static void put_escape(struct line *line, unsigned char c)
{
    if (c == '\\' || c == '"')
        put(line, "\\%c", c);
    else
        put(line, log_state.json ? "\\u%04x" : "\\x%02x", c);
}

/* Bytes outside ASCII are shown as the code points of Latin-1: whatever came,
 * the line is valid UTF-8 and one line. */
static void put_escaped(struct line *line, const char *text, size_t max)
{
    const size_t room = sizeof line->text - TAIL_BYTES;
    const char *end = text + strnlen(text, max);

    while (text < end && line->len < room) {
        size_t plain = 0, most = room - line->len;

        if (most > (size_t)(end - text))
            most = (size_t)(end - text);
        while (plain < most && is_plain(text[plain]))
            plain++;
        put_bytes(line, text, plain);
        text += plain;
        if (plain < most)
            put_escape(line, (unsigned char)*text++);
    }
}

/* The text of a second is kept: to make one the C library takes a lock. */
static void put_time(struct line *line)
{
    static _Thread_local struct {
        time_t s;
        char text[32]; /* 2026-01-01T00:00:00 or a year of ten digits */
    } last;
    char ms[DIGITS_BYTES]; /* 0.123 */
    struct timespec now;
    struct tm utc;

    clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec != last.s || last.text[0] == '\0') {
        gmtime_r(&now.tv_sec, &utc);
        strftime(last.text, sizeof last.text, "%Y-%m-%dT%H:%M:%S", &utc);
        last.s = now.tv_sec;
    }
    put_text(line, last.text);
    *digits_write_ms(ms, now.tv_nsec / 1000000 * 1000) = '\0';
    put_text(line, ms + 1);
    put_text(line, "Z");
}

static void put_member(struct line *line, const char *key, const char *value,
                       size_t max)
{
    put_text(line, ",\"");
    put_text(line, key);
    put_text(line, "\":\"");
    put_escaped(line, value, max);
    put_text(line, "\"");
}

static void begin(struct line *line, enum config_log_level level,
                  const char *event)
{
    line->len = 0;
    if (log_state.json)
        put_text(line, "{\"time\":\"");
    put_time(line);
    if (log_state.json) {
        put_text(line, "\",\"level\":\"");
        put_text(line, levels[level]);
        put_text(line, "\"");
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

/* Into the ring, over its end and on from its start. With the mutex held. */
static void copy_in(const char *text, size_t len)
{
    size_t at = log_state.tail % RING_BYTES, first = RING_BYTES - at;

    if (first > len)
        first = len;
    memcpy(log_state.ring + at, text, first);
    memcpy(log_state.ring, text + first, len - first);
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
        copy_in(line->text, line->len);
        if (log_state.tail == log_state.head)
            pthread_cond_signal(&log_state.filled);
        log_state.tail += line->len;
    }
    pthread_mutex_unlock(&log_state.mutex);
}

/* Whole lines, as many as one write takes. With the mutex held. */
static size_t take_lines(char *out)
{
    size_t at = log_state.head % RING_BYTES, first = RING_BYTES - at;
    size_t n = log_state.tail - log_state.head;

    if (n > log_state.most)
        n = log_state.most;
    if (first > n)
        first = n;
    memcpy(out, log_state.ring + at, first);
    memcpy(out + first, log_state.ring, n - first);
    while (n > 0 && out[n - 1] != '\n')
        n--;
    log_state.head += n;
    return n;
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
    char text[FILE_BYTES];

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
    struct stat file;

    log_state.level = level;
    log_state.fd = fd;
    log_state.json = format == CONFIG_FORMAT_JSON ||
                     (format == CONFIG_FORMAT_AUTO && !isatty(fd));
    log_state.most = fstat(fd, &file) == 0 && S_ISREG(file.st_mode)
                         ? FILE_BYTES
                         : LINE_BYTES;
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

static void put_json_request(struct line *line, const struct log_request *r)
{
    put_member(line, "id", r->id, 128);
    put_member(line, "method", r->method, 32);
    put_member(line, "path", r->path, 256);
    if (r->key != NULL)
        put_member(line, "key", r->key, 64);
    put_number(line, ",\"status\":", r->status);
    if (r->code != NULL)
        put_member(line, "code", r->code, 64);
    if (r->aborted)
        put_text(line, ",\"aborted\":true");
    put_number(line, ",\"received_bytes\":", r->received_bytes);
    put_number(line, ",\"sent_bytes\":", r->sent_bytes);
    put_ms(line, ",\"queue_ms\":", r->queue_ns);
    put_ms(line, ",\"decode_ms\":", r->decode_ns);
    put_ms(line, ",\"compute_ms\":", r->compute_ns);
    put_ms(line, ",\"encode_ms\":", r->encode_ns);
    put_ms(line, ",\"total_ms\":", r->total_ns);
    put_member(line, "peer", r->peer, 64);
}

static void put_text_request(struct line *line, const struct log_request *r)
{
    put_escaped(line, r->method, 32);
    put_text(line, " ");
    put_escaped(line, r->path, 256);
    put_number(line, " ", r->status);
    put_text(line, r->aborted ? " aborted " : " ");
    put_text(line, r->code == NULL ? "" : r->code);
    put_ms(line, r->code == NULL ? "" : " ", r->total_ns);
    put_ms(line, " ms (queue ", r->queue_ns);
    put_ms(line, ", decode ", r->decode_ns);
    put_ms(line, ", compute ", r->compute_ns);
    put_ms(line, ", encode ", r->encode_ns);
    put_number(line, "), ", r->received_bytes);
    put_number(line, " bytes in, ", r->sent_bytes);
    put_text(line, " out, id ");
    put_escaped(line, r->id, 128);
    put_text(line, ", peer ");
    put_escaped(line, r->peer, 64);
    if (r->key != NULL) {
        put_text(line, ", key ");
        put_text(line, r->key);
    }
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
