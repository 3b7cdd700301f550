#ifndef SERVER_AUTH_H
#define SERVER_AUTH_H

#include "core/buffer.h"
#include "core/error.h"

#include <stdatomic.h>
#include <stdint.h>

/* Who may ask: the API keys of a file, each by its SHA-256 alone.
 *
 * A line of the file is a name and the 64 hexadecimal digits of its key's
 * digest; blank lines and what follows a '#' are skipped. Several keys may have
 * one name, which is how a key is exchanged for the next. The line for a key:
 *
 *     printf 'NAME %s\n' "$(printf %s "$key" | sha256sum | cut -d' ' -f1)"
 *
 * A file without keys is refused, for it must never mean that anybody may ask.
 * Keys themselves are kept nowhere and told to nobody; names go into the log
 * and the metrics. Requests look up from any thread; one thread reloads. */
struct auth;

enum {
    AUTH_NAME_BYTES = 65,
    AUTH_KEYS = 1024, /* in a file */
    AUTH_FILE_BYTES = 1 << 20
};

/* A name, and what is asked under it. It stays as long as a request holds it,
 * though its keys be gone from the file. */
struct auth_client {
    char name[AUTH_NAME_BYTES];
    bool listed;           /* in the file as it was last read */
    _Atomic int64_t holds; /* requests that point here        */
    _Atomic int64_t running, requests, refused;
};

/* Reads the file. `at_once` is how many requests of a name may run, 0 any
 * number. NULL with an error whose text is one line: option, file, line, and
 * nothing of what stands there. */
struct auth *auth_new(const char *path, int64_t at_once, struct error *err);
void auth_free(struct auth *auth);

/* Reads the file again. On false the keys are those of before. */
bool auth_reload(struct auth *auth, struct error *err);

/* Whose key a request has in `authorization` (Bearer) or `api_key`, the values
 * of Authorization and X-API-Key or NULL; both must be keys of one name. The
 * client is held, until auth_leave(). NULL: ERR_KEY, with the same sentence
 * whatever was wrong; ERR_OVERLOADED when there is no memory. Takes the same
 * time for every wrong key of a length. */
struct auth_client *auth_find(struct auth *auth, const char *authorization,
                              const char *api_key, struct error *err);

/* One more that runs, or ERR_QUOTA. */
bool auth_begin(struct auth *auth, struct auth_client *client,
                struct error *err);

/* Ends the hold, and what auth_begin() began. NULL is fine. */
void auth_leave(struct auth_client *client, bool began);

/* Prometheus's text: requests of each name in the file. NULL writes nothing. */
void auth_write(struct auth *auth, struct buffer *out);

#endif
