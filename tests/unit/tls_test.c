#include "server/tls.h"

#include <gnutls/x509.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/attnd_pem_XXXXXX";
static char certificate_file[64], key_file[64];
static char certificate[8192], key[8192];

static void write_text(const char *path, const char *text)
{
    FILE *out = fopen(path, "wb");

    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    fclose(out);
}

/* A certificate that signs itself. */
static int set_up(void **state)
{
    gnutls_x509_privkey_t pair;
    gnutls_x509_crt_t crt;
    size_t key_bytes = sizeof key - 1, crt_bytes = sizeof certificate - 1;
    unsigned bits = GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1);
    bool made;

    (void)state;
    if (mkdtemp(folder) == NULL || gnutls_x509_privkey_init(&pair) < 0 ||
        gnutls_x509_crt_init(&crt) < 0)
        return -1;
    snprintf(certificate_file, sizeof certificate_file, "%s/cert", folder);
    snprintf(key_file, sizeof key_file, "%s/key", folder);
    made = gnutls_x509_privkey_generate(pair, GNUTLS_PK_ECDSA, bits,
                                        0) >= 0 &&
           gnutls_x509_crt_set_version(crt, 3) >= 0 &&
           gnutls_x509_crt_set_serial(crt, "\1", 1) >= 0 &&
           gnutls_x509_crt_set_activation_time(crt, time(NULL) - 60) >= 0 &&
           gnutls_x509_crt_set_expiration_time(crt, time(NULL) + 3600) >= 0 &&
           gnutls_x509_crt_set_dn(crt, "CN=a", NULL) >= 0 &&
           gnutls_x509_crt_set_key(crt, pair) >= 0 &&
           gnutls_x509_crt_sign2(crt, crt, pair, GNUTLS_DIG_SHA256, 0) >= 0 &&
           gnutls_x509_crt_export(crt, GNUTLS_X509_FMT_PEM, certificate,
                                  &crt_bytes) >= 0 &&
           gnutls_x509_privkey_export(pair, GNUTLS_X509_FMT_PEM, key,
                                      &key_bytes) >= 0;
    gnutls_x509_crt_deinit(crt);
    gnutls_x509_privkey_deinit(pair);
    return made ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    tls_free();
    unlink(certificate_file);
    unlink(key_file);
    return rmdir(folder);
}

/* What a handshake would be given: how many certificates, 0 for none. */
static unsigned choose(void)
{
    gnutls_session_t session;
    gnutls_pcert_st *chain = NULL;
    gnutls_ocsp_data_st *ocsp = NULL;
    gnutls_privkey_t chosen = NULL;
    unsigned count = 0, ocsp_count = 0, flags = 0;
    struct tls_pair *pair;

    assert_int_equal(gnutls_init(&session, GNUTLS_SERVER), 0);
    gnutls_transport_set_int(session, -1);
    pair = tls_prepare(session);
    if (tls_choose(session, NULL, &chain, &count, &ocsp, &ocsp_count, &chosen,
                   &flags) < 0)
        count = 0;
    assert_int_equal(flags, 0);
    assert_int_equal(ocsp_count, 0);
    assert_true(count == 0 || (chain != NULL && chosen != NULL));
    gnutls_deinit(session);
    tls_release(pair);
    return count;
}

static void a_chain_is_given_in_the_order_of_its_file(void **state)
{
    struct error err = { 0 };
    char chain[2 * sizeof certificate];

    (void)state;
    write_text(certificate_file, certificate);
    write_text(key_file, key);
    assert_true(tls_load(certificate_file, key_file, &err));
    assert_int_equal(choose(), 1);
    snprintf(chain, sizeof chain, "%s%s", certificate, certificate);
    write_text(certificate_file, chain);
    assert_true(tls_reload(&err));
    assert_int_equal(choose(), 2);
    tls_free();
    assert_int_equal(choose(), 0);
}

static void what_was_read_stays_when_the_files_are_unfit(void **state)
{
    static const char *const bad[] = { "", "nothing",
                                       "-----BEGIN CERTIFICATE-----\n" };
    struct error err = { 0 };

    (void)state;
    write_text(certificate_file, certificate);
    write_text(key_file, key);
    assert_true(tls_load(certificate_file, key_file, &err));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (struct error){ 0 };
        write_text(certificate_file, bad[i]);
        assert_false(tls_reload(&err));
        assert_int_equal(strncmp(err.text, "--tls-certificate-file: /tmp/", 29),
                         0);
        write_text(certificate_file, certificate);
        err = (struct error){ 0 };
        write_text(key_file, bad[i]);
        assert_false(tls_reload(&err));
        assert_int_equal(strncmp(err.text, "--tls-key-file: /tmp/", 21), 0);
        write_text(key_file, key);
        assert_int_equal(choose(), 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_is_given_in_the_order_of_its_file),
        cmocka_unit_test(what_was_read_stays_when_the_files_are_unfit),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
