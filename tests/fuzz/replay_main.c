/* Replays a corpus through a fuzz target without a fuzzer:
 *
 *     build/tests/fuzz/NAME_fuzz FILE-OR-DIRECTORY...
 *
 * Each path is named on stderr before it runs, so the last one of a log is the
 * one that crashed. The last line counts them; replaying none is a failure.
 * With `clang -fsanitize=fuzzer` this file stays out of the link. */

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static _Noreturn void refuse(const char *path)
{
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    exit(1);
}

/* In a block of exactly its size, so that the sanitizer sees one byte more. */
static size_t replay_file(const char *path, size_t len)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(len);

    if (file == NULL || (data == NULL && len > 0) ||
        fread(data, 1, len, file) != len)
        refuse(path);
    fclose(file);
    fprintf(stderr, "%s\n", path);
    LLVMFuzzerTestOneInput(data, len);
    free(data);
    return 1;
}

static size_t replay(const char *path);

static size_t replay_directory(const char *path)
{
    struct dirent **entry;
    int n = scandir(path, &entry, NULL, alphasort);
    size_t count = 0;

    if (n < 0)
        refuse(path);
    for (int i = 0; i < n; i++) {
        char *inside;

        if (asprintf(&inside, "%s/%s", path, entry[i]->d_name) < 0)
            refuse(path);
        if (entry[i]->d_name[0] != '.')
            count += replay(inside);
        free(inside);
        free(entry[i]);
    }
    free(entry);
    return count;
}

static size_t replay(const char *path)
{
    struct stat st;

    if (stat(path, &st) != 0)
        refuse(path);
    return S_ISDIR(st.st_mode) ? replay_directory(path)
                                 : replay_file(path, (size_t)st.st_size);
}

int main(int argc, char **argv)
{
    size_t count = 0;

    for (int i = 1; i < argc; i++)
        count += replay(argv[i]);
    printf("%s: %zu inputs\n", program_invocation_short_name, count);
    return count > 0 ? 0 : 1;
}
