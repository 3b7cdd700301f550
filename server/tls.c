#include "server/tls.h"

#include "server/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES = 1 << 20, CHAIN = 16 };

/* A ticket that comes before the answer is told as GNUTLS_E_AGAIN; so is a
 * time-out, but later. */
#define TICKETS_NS (2 * CLOCK_NS_PER_S)

struct tls_pair {
    atomic_long references;
    gnutls_pcert_st chain[CHAIN];
    unsigned count;
    gnutls_privkey_t key;
    gnutls_datum_t tickets; /* the key of theirs */
};

static struct {
    const char *certificate_file, *key_file;
    pthread_rwlock_t lock;
    struct tls_pair *pair; /* one reference is here */
} tls = { .lock = PTHREAD_RWLOCK_INITIALIZER };

void tls_release(struct tls_pair *pair)
{
    if (pair == NULL || atomic_fetch_sub_explicit(&pair->references, 1,
                                                  memory_order_acq_rel) > 1)
        return;
    for (unsigned i = 0; i < pair->count; i++)
        gnutls_pcert_deinit(&pair->chain[i]);
    gnutls_privkey_deinit(pair->key);
    if (pair->tickets.data != NULL)
        gnutls_memset(pair->tickets.data, 0, pair->tickets.size);
    gnutls_free(pair->tickets.data);
    free(pair);
}

/* ---- files ---- */

struct pem {
    gnutls_datum_t certificate, key;
};

static void forget(struct pem *pem)
{
    if (pem->key.data != NULL)
        explicit_bzero(pem->key.data, pem->key.size);
    free(pem->key.data);
    free(pem->certificate.data);
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

/* Whether the key is that of the certificate. */
static int check(const struct pem *pem)
{
    gnutls_certificate_credentials_t both = NULL;
    int why = gnutls_certificate_allocate_credentials(&both);

    if (why < 0)
        return why;
    why = gnutls_certificate_set_x509_key_mem2(
        both, &pem->certificate, &pem->key, GNUTLS_X509_FMT_PEM, NULL, 0);
    gnutls_certificate_free_credentials(both);
    return why;
}

/* Reading is for the start and for SIGHUP: without memory libtasn1 4.19 does not
 * fail here but ends the process, which no handshake shall. */
static bool import(struct tls_pair *pair, const struct pem *pem,
                   struct error *err)
{
    unsigned count = CHAIN;
    int why = gnutls_pcert_list_import_x509_raw(
        pair->chain, &count, &pem->certificate, GNUTLS_X509_FMT_PEM, 0);

    if (why < 0)
        return complain(err, "certificate", tls.certificate_file,
                        gnutls_strerror(why));
    pair->count = count;
    why = gnutls_privkey_init(&pair->key);
    if (why >= 0)
        why = gnutls_privkey_import_x509_raw(pair->key, &pem->key,
                                             GNUTLS_X509_FMT_PEM, NULL, 0);
    if (why >= 0)
        why = check(pem);
    if (why >= 0)
        why = gnutls_session_ticket_key_generate(&pair->tickets);
    return why >= 0 || complain(err, "key", tls.key_file, gnutls_strerror(why));
}

static void exchange_pair(struct tls_pair *pair)
{
    struct tls_pair *old;

    pthread_rwlock_wrlock(&tls.lock);
    old = tls.pair;
    tls.pair = pair;
    pthread_rwlock_unlock(&tls.lock);
    tls_release(old);
}

bool tls_reload(struct error *err)
{
    struct tls_pair *pair = calloc(1, sizeof *pair);
    struct pem pem = { 0 };
    bool good;

    if (pair == NULL)
        return complain(err, "key", tls.key_file, "out of memory");
    atomic_init(&pair->references, 1);
    good = read_file("certificate", tls.certificate_file, &pem.certificate,
                     err) &&
           read_file("key", tls.key_file, &pem.key, err) &&
           import(pair, &pem, err);
    forget(&pem);
    if (good)
        exchange_pair(pair);
    else
        tls_release(pair);
    return good;
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
    exchange_pair(NULL);
}

/* ---- the server's side ---- */

int tls_choose(gnutls_session_t session, const struct gnutls_cert_retr_st *info,
               gnutls_pcert_st **certs, unsigned *certs_length,
               gnutls_ocsp_data_st **ocsp, unsigned *ocsp_length,
               gnutls_privkey_t *privkey, unsigned *flags)
{
    struct tls_pair *pair = gnutls_session_get_ptr(session);

    (void)info;
    if (pair == NULL)
        return GNUTLS_E_INSUFFICIENT_CREDENTIALS;
    *certs = pair->chain;
    *certs_length = pair->count;
    *ocsp = NULL;
    *ocsp_length = 0;
    *privkey = pair->key;
    *flags = 0; /* they stay ours */
    return 0;
}

static struct tls_pair *hold(void)
{
    struct tls_pair *pair;

    pthread_rwlock_rdlock(&tls.lock);
    pair = tls.pair;
    if (pair != NULL)
        atomic_fetch_add_explicit(&pair->references, 1, memory_order_relaxed);
    pthread_rwlock_unlock(&tls.lock);
    return pair;
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

struct tls_pair *tls_prepare(void *session)
{
    struct tls_pair *pair = hold();
    int yes = 1;

    setsockopt(gnutls_transport_get_int(session), IPPROTO_TCP, TCP_NODELAY,
               &yes, sizeof yes);
    gnutls_handshake_set_hook_function(session, GNUTLS_HANDSHAKE_FINISHED,
                                       GNUTLS_HOOK_POST, acknowledge);
    gnutls_session_set_ptr(session, pair);
    if (pair != NULL)
        gnutls_session_ticket_enable_server(session, &pair->tickets);
    return pair;
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
