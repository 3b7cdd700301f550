#ifndef SERVER_DIGEST_H
#define SERVER_DIGEST_H

#include <stdbool.h>
#include <stddef.h>

/* SHA-256, piece by piece, by GnuTLS. */

enum { DIGEST_TEXT_BYTES = 65 };

struct digest {
    void *hash;
};

/* False when the library gives none; then nothing is to be ended. */
bool digest_begin(struct digest *digest);

void digest_add(struct digest *digest, const void *data, size_t len);

/* 64 hexadecimal digits. Frees what begin took. */
void digest_end(struct digest *digest, char text[DIGEST_TEXT_BYTES]);

/* In a time that does not tell where they differ. */
bool digest_equals(const char a[DIGEST_TEXT_BYTES],
                   const char b[DIGEST_TEXT_BYTES]);

#endif
