#include "server/tls.h"

#include "server/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES = 1 << 20, CHAIN = 16 };

/* A ticket that comes before the answer is told as GNUTLS_E_AGAIN; so is a
 * time-out, but later. */
#define TICKETS_NS (2 * CLOCK_NS_PER_S)

struct pem {
    gnutls_datum_t certificate, key;
    gnutls_datum_t tickets; /* the key of theirs; GnuTLS's memory */
};

static struct {
    const char *certificate_file, *key_file;
    pthread_rwlock_t lock;
    struct pem pem;
} tls = { .lock = PTHREAD_RWLOCK_INITIALIZER };

/* ---- files ---- */

static void forget(struct pem *pem)
{
    if (pem->key.data != NULL)
        explicit_bzero(pem->key.data, pem->key.size);
    free(pem->key.data);
    free(pem->certificate.data);
    if (pem->tickets.data != NULL)
        gnutls_memset(pem->tickets.data, 0, pem->tickets.size);
    gnutls_free(pem->tickets.data);
    *pem = (struct pem){ 0 };
}

static bool complain(struct error *err, const char *option, const char *path,
                     const char *why)
{
    return error_set(err, ERR_RANGE, "", "--tls-%s-file: %.300s: %s", option,
                     path, why);
}

static ssize_t read_all(int fd, unsigned char *data, size_t size)
{
    size_t len = 0;
    ssize_t n = 1;

    while (n > 0 && len < size) {
        n = read(fd, data + len, size - len);
        len += n > 0 ? (size_t)n : 0;
    }
    return n < 0 ? -1 : (ssize_t)len;
}

static bool read_file(const char *option, const char *path,
                      gnutls_datum_t *out, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char why[128];
    ssize_t len;

    if (fd < 0)
        return complain(err, option, path,
                        strerror_r(errno, why, sizeof why));
    out->data = malloc(FILE_BYTES);
    len = out->data == NULL ? -1 : read_all(fd, out->data, FILE_BYTES);
    if (len < 0)
        complain(err, option, path, strerror_r(errno, why, sizeof why));
    else if (len == FILE_BYTES)
        complain(err, option, path, "over 1 MiB");
    close(fd);
    out->size = len < 0 ? 0 : (unsigned)len;
    return len >= 0 && len < FILE_BYTES;
}

/* Whether the library would take them. */
static bool check(const struct pem *pem, struct error *err)
{
    gnutls_certificate_credentials_t all = NULL;
    gnutls_pcert_st chain[CHAIN];
    unsigned count = CHAIN;
    gnutls_privkey_t key = NULL;
    int why = gnutls_certificate_allocate_credentials(&all);

    if (why >= 0)
        why = gnutls_pcert_list_import_x509_raw(chain, &count,
                                                &pem->certificate,
                                                GNUTLS_X509_FMT_PEM, 0);
    if (why < 0) {
        gnutls_certificate_free_credentials(all);
        return complain(err, "certificate", tls.certificate_file,
                        gnutls_strerror(why));
    }
    for (unsigned i = 0; i < count; i++)
        gnutls_pcert_deinit(&chain[i]);
    why = gnutls_privkey_init(&key);
    if (why >= 0)
        why = gnutls_privkey_import_x509_raw(key, &pem->key,
                                             GNUTLS_X509_FMT_PEM, NULL, 0);
    if (why >= 0)
        why = gnutls_certificate_set_x509_key_mem2(
            all, &pem->certificate, &pem->key, GNUTLS_X509_FMT_PEM, NULL, 0);
    gnutls_privkey_deinit(key);
    gnutls_certificate_free_credentials(all);
    return why >= 0 || complain(err, "key", tls.key_file, gnutls_strerror(why));
}

static bool make_tickets(struct pem *pem, struct error *err)
{
    return gnutls_session_ticket_key_generate(&pem->tickets) >= 0 ||
           complain(err, "key", tls.key_file, "out of memory");
}

bool tls_reload(struct error *err)
{
    struct pem pem = { 0 }, old;
    bool good = read_file("certificate", tls.certificate_file,
                          &pem.certificate, err) &&
                read_file("key", tls.key_file, &pem.key, err) &&
                check(&pem, err) && make_tickets(&pem, err);

    if (!good) {
        forget(&pem);
        return false;
    }
    pthread_rwlock_wrlock(&tls.lock);
    old = tls.pem;
    tls.pem = pem;
    pthread_rwlock_unlock(&tls.lock);
    forget(&old);
    return true;
}

bool tls_load(const char *certificate_file, const char *key_file,
              struct error *err)
{
    tls.certificate_file = certificate_file;
    tls.key_file = key_file;
    if (certificate_file[0] == '\0')
        return error_set(err, ERR_RANGE, "",
                         "--tls-key-file: needs --tls-certificate-file");
    if (key_file[0] == '\0')
        return error_set(err, ERR_RANGE, "",
                         "--tls-certificate-file: needs --tls-key-file");
    return tls_reload(err);
}

void tls_free(void)
{
    forget(&tls.pem);
}

/* ---- the server's side ---- */

/* Read from the text at each handshake: what GnuTLS holds of a certificate
 * can't be shared by two sessions of which one outlives it, and this takes a
 * small part of what signing does. */
int tls_choose(gnutls_session_t session, const struct gnutls_cert_retr_st *info,
               gnutls_pcert_st **certs, unsigned *certs_length,
               gnutls_ocsp_data_st **ocsp, unsigned *ocsp_length,
               gnutls_privkey_t *privkey, unsigned *flags)
{
    gnutls_pcert_st *chain = gnutls_calloc(CHAIN, sizeof *chain);
    gnutls_privkey_t key = NULL;
    unsigned count = CHAIN;
    int why = chain == NULL ? GNUTLS_E_MEMORY_ERROR : 0;

    (void)session;
    (void)info;
    pthread_rwlock_rdlock(&tls.lock);
    if (why >= 0)
        why = gnutls_privkey_init(&key);
    if (why >= 0)
        why = gnutls_privkey_import_x509_raw(key, &tls.pem.key,
                                             GNUTLS_X509_FMT_PEM, NULL, 0);
    if (why >= 0)
        why = gnutls_pcert_list_import_x509_raw(chain, &count,
                                                &tls.pem.certificate,
                                                GNUTLS_X509_FMT_PEM, 0);
    pthread_rwlock_unlock(&tls.lock);
    if (why < 0) {
        gnutls_privkey_deinit(key);
        gnutls_free(chain);
        return why;
    }
    *certs = chain;
    *certs_length = count;
    *ocsp = NULL;
    *ocsp_length = 0;
    *privkey = key;
    *flags = GNUTLS_CERT_RETR_DEINIT_ALL;
    return 0;
}

/* A client that has Nagle's algorithm keeps its first request back until the end
 * of its handshake is acknowledged. There is nothing to send that would do so:
 * the kernel has to be told. */
static int acknowledge(gnutls_session_t session, unsigned type, unsigned when,
                       unsigned incoming, const gnutls_datum_t *message)
{
    int yes = 1;

    (void)type;
    (void)when;
    (void)message;
    if (incoming)
        setsockopt(gnutls_transport_get_int(session), IPPROTO_TCP,
                   TCP_QUICKACK, &yes, sizeof yes);
    return 0;
}

void tls_prepare(void *session)
{
    int yes = 1;

    setsockopt(gnutls_transport_get_int(session), IPPROTO_TCP, TCP_NODELAY,
               &yes, sizeof yes);
    gnutls_handshake_set_hook_function(session, GNUTLS_HANDSHAKE_FINISHED,
                                       GNUTLS_HOOK_POST, acknowledge);
    pthread_rwlock_rdlock(&tls.lock);
    gnutls_session_ticket_enable_server(session, &tls.pem.tickets);
    pthread_rwlock_unlock(&tls.lock);
}

void tls_send_last(void *session, const void *data, size_t len)
{
    (void)!gnutls_record_send(session, data, len);
    gnutls_bye(session, GNUTLS_SHUT_WR);
}

/* ---- the client's side ---- */

static bool exchange(gnutls_session_t session, const void *question, size_t len,
                     char *answer, size_t size)
{
    size_t got = 0;
    ssize_t n;

    do
        n = gnutls_handshake(session);
    while (n == GNUTLS_E_INTERRUPTED || n == GNUTLS_E_WARNING_ALERT_RECEIVED);
    if (n < 0 || gnutls_record_send(session, question, len) != (ssize_t)len)
        return false;
    for (int64_t start = clock_ns(); got < size;) {
        n = gnutls_record_recv(session, answer + got, size - got);
        if (n > 0)
            got += (size_t)n;
        else if (n != GNUTLS_E_INTERRUPTED &&
                 (n != GNUTLS_E_AGAIN || clock_ns() - start > TICKETS_NS))
            return false;
    }
    return true;
}

bool tls_ask(int fd, const void *question, size_t len, void *answer,
             size_t size)
{
    gnutls_certificate_credentials_t any = NULL;
    gnutls_session_t session = NULL;
    bool good = gnutls_certificate_allocate_credentials(&any) >= 0 &&
                gnutls_init(&session, GNUTLS_CLIENT) >= 0 &&
                gnutls_priority_set_direct(session, TLS_PRIORITIES, NULL) >=
                    0 &&
                gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, any) >=
                    0;

    if (good) {
        gnutls_transport_set_int(session, fd);
        good = exchange(session, question, len, answer, size);
    }
    if (session != NULL)
        gnutls_deinit(session);
    if (any != NULL)
        gnutls_certificate_free_credentials(any);
    return good;
}
