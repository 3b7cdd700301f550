#include "server/tls.h"
#include "tests/certificate.h"
#include "tests/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/attnd_pem_XXXXXX";
static char certificate_file[64], key_file[64];
static struct certificate own;

static int set_up(void **state)
{
    (void)state;
    if (folder_make(folder) != 0)
        return -1;
    snprintf(certificate_file, sizeof certificate_file, "%s/cert", folder);
    snprintf(key_file, sizeof key_file, "%s/key", folder);
    return certificate_make(&own, 1);
}

static int tear_down(void **state)
{
    (void)state;
    tls_free();
    return folder_remove(folder);
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
    char chain[2 * CERTIFICATE_PEM_BYTES];

    (void)state;
    folder_put_text(certificate_file, own.certificate);
    folder_put_text(key_file, own.key);
    assert_true(tls_load(certificate_file, key_file, &err));
    assert_int_equal(choose(), 1);
    snprintf(chain, sizeof chain, "%s%s", own.certificate, own.certificate);
    folder_put_text(certificate_file, chain);
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
    folder_put_text(certificate_file, own.certificate);
    folder_put_text(key_file, own.key);
    assert_true(tls_load(certificate_file, key_file, &err));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (struct error){ 0 };
        folder_put_text(certificate_file, bad[i]);
        assert_false(tls_reload(&err));
        assert_int_equal(strncmp(err.text, "--tls-certificate-file: /tmp/", 29),
                         0);
        folder_put_text(certificate_file, own.certificate);
        err = (struct error){ 0 };
        folder_put_text(key_file, bad[i]);
        assert_false(tls_reload(&err));
        assert_int_equal(strncmp(err.text, "--tls-key-file: /tmp/", 21), 0);
        folder_put_text(key_file, own.key);
        assert_int_equal(choose(), 1);
    }
}

static void files_that_cannot_be_read_are_told_by_name_and_why(void **state)
{
    static char large[(1 << 20) + 1];
    const struct {
        const char *certificate, *key, *why;
    } rows[] = {
        { "/nowhere/cert", key_file, "No such file" },
        { folder, key_file, "Is a directory" },
        { certificate_file, folder, "Is a directory" },
        { key_file, key_file, "over 1 MiB" },
        { "", key_file, "needs --tls-certificate-file" },
        { certificate_file, "", "needs --tls-key-file" },
    };

    (void)state;
    folder_put_text(certificate_file, own.certificate);
    folder_put(key_file, large, sizeof large);
    tls_free();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct error err = { 0 };

        assert_false(tls_load(rows[i].certificate, rows[i].key, &err));
        assert_int_equal(err.code, ERR_RANGE);
        if (strstr(err.text, rows[i].why) == NULL)
            fail_msg("row %zu: %s", i, err.text);
        assert_int_equal(choose(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_is_given_in_the_order_of_its_file),
        cmocka_unit_test(what_was_read_stays_when_the_files_are_unfit),
        cmocka_unit_test(files_that_cannot_be_read_are_told_by_name_and_why),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
