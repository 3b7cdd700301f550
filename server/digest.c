#include "server/digest.h"

#include <gnutls/crypto.h>
#include <stdio.h>

enum { SHA256_BYTES = 32 };

bool digest_begin(struct digest *digest)
{
    gnutls_hash_hd_t hash;

    if (gnutls_hash_init(&hash, GNUTLS_DIG_SHA256) < 0)
        return false;
    digest->hash = hash;
    return true;
}

void digest_add(struct digest *digest, const void *data, size_t len)
{
    gnutls_hash(digest->hash, data, len);
}

void digest_end(struct digest *digest, char text[DIGEST_TEXT_BYTES])
{
    unsigned char value[SHA256_BYTES];

    gnutls_hash_deinit(digest->hash, value);
    for (size_t i = 0; i < sizeof value; i++)
        snprintf(text + 2 * i, 3, "%02x", value[i]);
}

bool digest_equals(const char a[DIGEST_TEXT_BYTES],
                   const char b[DIGEST_TEXT_BYTES])
{
    return gnutls_memcmp(a, b, DIGEST_TEXT_BYTES) == 0;
}
