/* Property: any bytes as a key file are refused with one line that begins with
 * the option and the file, or hold a key; and then too nobody is let in without
 * one, with an empty one, or with what stands in the file. */

#include "server/auth.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void must(bool held)
{
    if (!held)
        abort();
}

static void check_refusal(const struct error *err, const char *path)
{
    char start[64];

    snprintf(start, sizeof start, "--api-keys-file: %s:", path);
    must(err->code == ERR_RANGE);
    must(strncmp(err->text, start, strlen(start)) == 0);
    for (const char *c = err->text; *c != '\0'; c++)
        must((unsigned char)*c >= 0x20 && (unsigned char)*c < 0x7f);
}

static void check_kept_out(struct auth *auth, const char *authorization,
                           const char *api_key)
{
    struct error err = { 0 };

    must(auth_find(auth, authorization, api_key, &err) == NULL);
    must(err.code == ERR_KEY);
}

/* `file` is the file's text, cut at its first zero byte. */
static void check_keys(struct auth *auth, const char *file)
{
    char *bearer = malloc(strlen(file) + 8);
    struct error err = { 0 };

    must(bearer != NULL);
    memcpy(bearer, "Bearer ", 7);
    memcpy(bearer + 7, file, strlen(file) + 1);
    check_kept_out(auth, NULL, NULL);
    check_kept_out(auth, "Bearer ", "");
    check_kept_out(auth, bearer, NULL);
    check_kept_out(auth, NULL, file);
    check_kept_out(auth, file, NULL);
    must(auth_reload(auth, &err));
    free(bearer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    int fd = memfd_create("keys", MFD_CLOEXEC);
    char path[32], *text = malloc(len + 1);
    struct error err = { 0 };
    struct auth *auth;

    must(fd >= 0 && text != NULL && write(fd, data, len) == (ssize_t)len);
    memcpy(text, data, len);
    text[len] = '\0';
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    auth = auth_new(path, 1, &err);
    if (auth == NULL)
        check_refusal(&err, path);
    else
        check_keys(auth, text);
    auth_free(auth);
    free(text);
    close(fd);
    return 0;
}
