#include "server/auth.h"

#include "core/buffer.h"
#include "server/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum {
    DIGITS = DIGEST_TEXT_BYTES - 1,
    /* Names of the file, and of files before it whose requests still run. */
    CLIENTS = 2 * AUTH_KEYS
};

struct key {
    char digest[DIGEST_TEXT_BYTES];
    char name[AUTH_NAME_BYTES];
    struct auth_client *client;
};

struct keys {
    size_t count;
    struct key each[AUTH_KEYS];
};

struct auth {
    const char *path;
    int64_t at_once;
    pthread_rwlock_t lock; /* of `keys` and of each client's `listed` */
    struct keys *keys;
    struct auth_client client[CLIENTS]; /* named by the thread that reloads */
};

/* ---- the file ---- */

static const char blanks[] = " \t\r";

/* 1 to 64 characters that neither a label nor a log line escapes. */
static const char *read_name(const char *at, char name[AUTH_NAME_BYTES])
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t len = strspn(at, allowed);

    if (len == 0 || len >= AUTH_NAME_BYTES)
        return NULL;
    memcpy(name, at, len);
    name[len] = '\0';
    return at + len;
}

static const char *read_digest(const char *at, char digest[DIGEST_TEXT_BYTES])
{
    if (strspn(at, "0123456789abcdefABCDEF") != DIGITS)
        return NULL;
    for (size_t i = 0; i < DIGITS; i++)
        digest[i] = (char)(at[i] | (at[i] >= 'A' ? 0x20 : 0));
    digest[DIGITS] = '\0';
    return at + DIGITS;
}

static bool read_key(const char *line, struct key *key)
{
    const char *at = read_name(line, key->name);

    if (at == NULL || strspn(at, blanks) == 0)
        return false;
    at = read_digest(at + strspn(at, blanks), key->digest);
    if (at == NULL)
        return false;
    line = at + strspn(at, blanks);
    return *line == '\0' || (*line == '#' && line > at);
}

/* What is wrong with a key beside those before it, or NULL. */
static const char *flaw_of(const struct keys *keys, const struct key *key)
{
    static const char empty[] =
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    if (keys->count == AUTH_KEYS)
        return "more than 1024 keys";
    if (strcmp(key->digest, empty) == 0)
        return "the digest is that of an empty key";
    for (size_t i = 0; i < keys->count; i++)
        if (strcmp(key->digest, keys->each[i].digest) == 0)
            return "the key is in a line before already";
    return NULL;
}

static bool read_line(struct keys *keys, const char *line, const char **why)
{
    struct key key = { 0 };

    line += strspn(line, blanks);
    if (*line == '\0' || *line == '#')
        return true;
    *why = read_key(line, &key)
               ? flaw_of(keys, &key)
               : "not a name (1 to 64 of A-Z a-z 0-9 . _ -) and the 64 "
                 "hexadecimal digits of a SHA-256";
    if (*why != NULL)
        return false;
    keys->each[keys->count++] = key;
    return true;
}

static bool complain(struct error *err, const char *path, const char *why)
{
    return error_set(err, ERR_RANGE, "", "--api-keys-file: %.300s: %s", path,
                     why);
}

static bool parse(struct keys *keys, const char *path, char *text, size_t len,
                  struct error *err)
{
    long number = 0;

    for (size_t at = 0; at < len;) {
        size_t end = at + strcspn(text + at, "\n");
        const char *why = NULL;
        bool cut = end < len && text[end] == '\0';

        text[end] = '\0';
        number++;
        if (cut)
            why = "a line has a zero byte";
        if (cut || !read_line(keys, text + at, &why))
            return error_set(err, ERR_RANGE, "",
                             "--api-keys-file: %.300s:%ld: %s", path, number,
                             why);
        at = end + 1;
    }
    return keys->count > 0 || complain(err, path, "there is no key in it");
}

/* False with errno. A FIFO must not stop the start. */
static bool read_file(const char *path, struct buffer *text)
{
    enum { PIECE_BYTES = 4096 };
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = 1;
    int why;

    if (fd < 0)
        return false;
    while (n > 0 && !text->failed) {
        void *room = buffer_room(text, PIECE_BYTES);

        n = room == NULL ? 0 : read(fd, room, PIECE_BYTES);
        buffer_added(text, n > 0 ? (size_t)n : 0);
    }
    why = errno;
    close(fd);
    errno = why;
    return n >= 0;
}

static bool read_keys(struct keys *keys, const char *path, struct error *err)
{
    struct buffer text;
    char why[128];
    bool good = false;

    buffer_init(&text, AUTH_FILE_BYTES + 1);
    if (!read_file(path, &text)) {
        complain(err, path, strerror_r(errno, why, sizeof why));
    } else {
        buffer_append(&text, "", 1); /* the last line's end */
        if (text.failed)
            complain(err, path, text.over_cap ? "over 1 MiB" : "out of memory");
        else
            good = parse(keys, path, (char *)text.data, text.len - 1, err);
    }
    buffer_free(&text);
    return good;
}

/* ---- who they are ---- */

/* The name's own, else one that nobody needs any more. Only listed ones are
 * seen by other threads, so no lock is needed to name another. */
static struct auth_client *client_of(struct auth *auth, const char *name)
{
    struct auth_client *unused = NULL;

    for (size_t i = 0; i < CLIENTS; i++) {
        struct auth_client *client = &auth->client[i];

        if (strcmp(client->name, name) == 0)
            return client;
        if (unused == NULL && !client->listed &&
            atomic_load_explicit(&client->holds, memory_order_acquire) == 0)
            unused = client;
    }
    if (unused == NULL)
        return NULL;
    memcpy(unused->name, name, strlen(name) + 1);
    atomic_store_explicit(&unused->requests, 0, memory_order_relaxed);
    atomic_store_explicit(&unused->refused, 0, memory_order_relaxed);
    return unused;
}

static void let_go(struct keys *keys, size_t count)
{
    for (size_t i = 0; i < count; i++)
        auth_leave(keys->each[i].client, false);
}

/* A client that was given to a name is held until it is listed, as if a request
 * had it, so that no other name takes it. */
static bool find_clients(struct auth *auth, struct keys *keys)
{
    for (size_t i = 0; i < keys->count; i++) {
        struct key *key = &keys->each[i];

        key->client = client_of(auth, key->name);
        if (key->client == NULL) {
            let_go(keys, i);
            return false;
        }
        atomic_fetch_add_explicit(&key->client->holds, 1,
                                  memory_order_relaxed);
    }
    return true;
}

static void exchange(struct auth *auth, struct keys *keys)
{
    struct keys *old;

    pthread_rwlock_wrlock(&auth->lock);
    old = auth->keys;
    auth->keys = keys;
    for (size_t i = 0; i < CLIENTS; i++)
        auth->client[i].listed = false;
    for (size_t i = 0; i < keys->count; i++)
        keys->each[i].client->listed = true;
    pthread_rwlock_unlock(&auth->lock);
    let_go(keys, keys->count);
    free(old);
}

bool auth_reload(struct auth *auth, struct error *err)
{
    struct keys *keys = calloc(1, sizeof *keys);

    if (keys == NULL)
        return complain(err, auth->path, "out of memory");
    if (read_keys(keys, auth->path, err) &&
        (find_clients(auth, keys) ||
         complain(err, auth->path, "too many names of former files are still "
                                   "in use"))) {
        exchange(auth, keys);
        return true;
    }
    free(keys);
    return false;
}

struct auth *auth_new(const char *path, int64_t at_once, struct error *err)
{
    struct auth *auth = calloc(1, sizeof *auth);

    if (auth == NULL) {
        complain(err, path, "out of memory");
        return NULL;
    }
    auth->path = path;
    auth->at_once = at_once;
    pthread_rwlock_init(&auth->lock, NULL);
    if (auth_reload(auth, err))
        return auth;
    auth_free(auth);
    return NULL;
}

void auth_free(struct auth *auth)
{
    if (auth == NULL)
        return;
    pthread_rwlock_destroy(&auth->lock);
    free(auth->keys);
    free(auth);
}

/* ---- requests ---- */

/* All keys are looked at, wherever the right one stands. */
static struct auth_client *scan(const struct keys *keys, const char *digest)
{
    struct auth_client *found = NULL;

    for (size_t i = 0; i < keys->count; i++)
        if (digest_equals(keys->each[i].digest, digest))
            found = keys->each[i].client;
    return found;
}

/* `len` bytes at the text's start, without blanks around. False when there is
 * no memory for their digest. */
static bool digest_of(const char *text, char out[DIGEST_TEXT_BYTES])
{
    struct digest digest;
    size_t len;

    text += strspn(text, blanks);
    len = strlen(text);
    while (len > 0 && strchr(blanks, text[len - 1]) != NULL)
        len--;
    if (!digest_begin(&digest))
        return false;
    digest_add(&digest, text, len);
    digest_end(&digest, out);
    return true;
}

/* The credentials of the one scheme that is served, or NULL. */
static const char *bearer_of(const char *authorization)
{
    static const char scheme[] = "Bearer";
    size_t len = sizeof scheme - 1;

    if (authorization == NULL ||
        strncasecmp(authorization, scheme, len) != 0 ||
        authorization[len] != ' ')
        return NULL;
    return authorization + len;
}

/* Of one name or, where two keys are given, of the same twice. */
static struct auth_client *agree(const struct keys *keys, const char *digest[2])
{
    struct auth_client *found[2] = { 0 };

    for (int i = 0; i < 2; i++)
        if (digest[i] != NULL)
            found[i] = scan(keys, digest[i]);
    if (digest[0] == NULL || digest[1] == NULL)
        return digest[0] == NULL ? found[1] : found[0];
    return found[0] == found[1] ? found[0] : NULL;
}

static struct auth_client *hold(struct auth *auth, const char *digest[2])
{
    struct auth_client *client;

    pthread_rwlock_rdlock(&auth->lock);
    client = agree(auth->keys, digest);
    if (client != NULL) {
        atomic_fetch_add_explicit(&client->holds, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&client->requests, 1, memory_order_relaxed);
    }
    pthread_rwlock_unlock(&auth->lock);
    return client;
}

struct auth_client *auth_find(struct auth *auth, const char *authorization,
                              const char *api_key, struct error *err)
{
    const char *given[2] = { bearer_of(authorization), api_key };
    const char *digest[2] = { NULL, NULL };
    char text[2][DIGEST_TEXT_BYTES];
    struct auth_client *client;

    for (int i = 0; i < 2; i++) {
        if (given[i] == NULL)
            continue;
        if (!digest_of(given[i], text[i])) {
            error_set(err, ERR_OVERLOADED, "", "out of memory");
            return NULL;
        }
        digest[i] = text[i];
    }
    client = hold(auth, digest);
    if (client == NULL)
        error_set(err, ERR_KEY, "",
                  "an API key of this service is needed, as Authorization: "
                  "Bearer KEY or X-API-Key: KEY");
    return client;
}

bool auth_begin(struct auth *auth, struct auth_client *client,
                struct error *err)
{
    int64_t before = atomic_fetch_add_explicit(&client->running, 1,
                                               memory_order_relaxed);

    if (auth->at_once == 0 || before < auth->at_once)
        return true;
    atomic_fetch_sub_explicit(&client->running, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&client->refused, 1, memory_order_relaxed);
    return error_set(err, ERR_QUOTA, "",
                     "%lld requests of this key are in progress, which is all "
                     "that it may have", (long long)auth->at_once);
}

void auth_leave(struct auth_client *client, bool began)
{
    if (client == NULL)
        return;
    if (began)
        atomic_fetch_sub_explicit(&client->running, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&client->holds, 1, memory_order_release);
}

/* ---- metrics ---- */

static void write_metric(struct auth *auth, struct buffer *out,
                         const char *name, const char *kind, size_t offset,
                         const char *help)
{
    buffer_format(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
    for (size_t i = 0; i < CLIENTS; i++) {
        struct auth_client *client = &auth->client[i];
        _Atomic int64_t *cell =
            (_Atomic int64_t *)(void *)((char *)client + offset);

        if (client->listed)
            buffer_format(out, "%s{key=\"%s\"} %lld\n", name, client->name,
                          (long long)atomic_load_explicit(
                              cell, memory_order_relaxed));
    }
}

void auth_write(struct auth *auth, struct buffer *out)
{
    if (auth == NULL)
        return;
    pthread_rwlock_rdlock(&auth->lock);
    write_metric(auth, out, "attnd_key_requests_total", "counter",
                 offsetof(struct auth_client, requests),
                 "Requests with a key of this name.");
    write_metric(auth, out, "attnd_key_refused_total", "counter",
                 offsetof(struct auth_client, refused),
                 "Those refused by key_concurrency.");
    write_metric(auth, out, "attnd_key_running", "gauge",
                 offsetof(struct auth_client, running),
                 "Those that key_concurrency counts now.");
    pthread_rwlock_unlock(&auth->lock);
}
