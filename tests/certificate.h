#ifndef TESTS_CERTIFICATE_H
#define TESTS_CERTIFICATE_H

#include <gnutls/x509.h>
#include <stdbool.h>
#include <time.h>

/* A certificate of 127.0.0.1 that signs itself, and its key, as PEM. For tests:
 * valid for a day. */

enum { CERTIFICATE_PEM_BYTES = 8192 };

struct certificate {
    char certificate[CERTIFICATE_PEM_BYTES], key[CERTIFICATE_PEM_BYTES];
};

static inline bool certificate_sign(gnutls_x509_crt_t crt,
                                    gnutls_x509_privkey_t key,
                                    unsigned char serial)
{
    static const unsigned char loopback[] = { 127, 0, 0, 1 };
    unsigned bits = GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1);
    time_t now = time(NULL);

    return gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA, bits, 0) >= 0 &&
           gnutls_x509_crt_set_version(crt, 3) >= 0 &&
           gnutls_x509_crt_set_serial(crt, &serial, 1) >= 0 &&
           gnutls_x509_crt_set_activation_time(crt, now - 3600) >= 0 &&
           gnutls_x509_crt_set_expiration_time(crt, now + 86400) >= 0 &&
           gnutls_x509_crt_set_dn(crt, "CN=attnd test", NULL) >= 0 &&
           gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_IPADDRESS,
                                                loopback, sizeof loopback,
                                                GNUTLS_FSAN_SET) >= 0 &&
           gnutls_x509_crt_set_key(crt, key) >= 0 &&
           gnutls_x509_crt_sign2(crt, crt, key, GNUTLS_DIG_SHA256, 0) >= 0;
}

/* Another each time. 0 or -1, as set-ups have it. */
static inline int certificate_make(struct certificate *out,
                                   unsigned char serial)
{
    size_t bytes[2] = { CERTIFICATE_PEM_BYTES, CERTIFICATE_PEM_BYTES };
    gnutls_x509_privkey_t key = NULL;
    gnutls_x509_crt_t crt = NULL;
    bool made = gnutls_x509_privkey_init(&key) >= 0 &&
                gnutls_x509_crt_init(&crt) >= 0 &&
                certificate_sign(crt, key, serial) &&
                gnutls_x509_crt_export(crt, GNUTLS_X509_FMT_PEM,
                                       out->certificate, &bytes[0]) >= 0 &&
                gnutls_x509_privkey_export(key, GNUTLS_X509_FMT_PEM, out->key,
                                           &bytes[1]) >= 0;

    gnutls_x509_crt_deinit(crt);
    gnutls_x509_privkey_deinit(key);
    return made ? 0 : -1;
}

#endif
