#ifndef SERVER_TLS_H
#define SERVER_TLS_H

#include "core/error.h"

#include <gnutls/abstract.h>

/* The certificate of the service, and the little of TLS that the HTTP library
 * does not do by itself. GnuTLS does the rest, inside that library.
 *
 * There is one certificate a process, and a version of it for each time it was
 * read. A connection holds the version with which it began, so that reloading
 * waits for none of them; I/O threads shake hands, one thread reloads. */
struct tls_pair;

/* TLS 1.2 and 1.3. In the client's order: with %SERVER_PRECEDENCE one that sends
 * a share for X25519 alone, as OpenSSL does, is asked for another first. */
#define TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

/* Reads both files, PEM: the certificate with those that sign it behind it, and
 * its key, without a password. On false what was read before stays, and the
 * error's text is one line: option, file, reason. The paths are kept. */
bool tls_load(const char *certificate_file, const char *key_file,
              struct error *err);

/* The same files again. Tickets that were given before are worth nothing now. */
bool tls_reload(struct error *err);

/* Forgets what was read; connections keep what they hold. */
void tls_free(void);

/* For MHD_OPTION_HTTPS_CERT_CALLBACK2: what the session holds. */
gnutls_certificate_retrieve_function3 tls_choose;

/* Before its handshake: lets the library's session give tickets, with which a
 * client comes back without a signature, and keeps Nagle's algorithm, here or
 * there, from adding 40 ms. What it returns is held for the session, whose
 * pointer (gnutls_session_set_ptr) it is, until tls_release() after its end. */
struct tls_pair *tls_prepare(void *session);
void tls_release(struct tls_pair *pair); /* NULL is fine */

/* The last bytes that this side sends on the library's session, on the thread
 * that owns it. What is not taken at once is lost. */
void tls_send_last(void *session, const void *data, size_t len);

/* As a client, on a connected socket whose reads and writes give up: sends the
 * question and reads `size` bytes of the answer. Believes any certificate, for
 * it asks this very machine. */
bool tls_ask(int fd, const void *question, size_t len, void *answer,
             size_t size);

#endif
