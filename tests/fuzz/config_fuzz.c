/* Property: a configuration file that is accepted, printed and read again gives
 * the same struct, byte for byte; one that is refused says why in one line that
 * begins with its name and the line's number. */

#include "config/config.h"
#include "config/config_file.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void must(bool held)
{
    if (!held)
        abort();
}

static void check_round_trip(const struct config *first)
{
    struct config second;
    struct error err = { 0 };
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    must(out != NULL && config_print(first, out) && fclose(out) == 0);
    config_init(&second);
    must(config_file_parse(&second, text, len, "printed", &err));
    must(memcmp(first, &second, sizeof second) == 0);
    free(text);
}

static void check_refusal(const struct error *err)
{
    char *end;

    must(err->code != ERR_NONE && strncmp(err->text, "input:", 6) == 0);
    must(strtol(err->text + 6, &end, 10) > 0 && *end == ':');
    for (const char *c = err->text; *c != '\0'; c++)
        must((unsigned char)*c >= 0x20 && *c != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct config config;
    struct error err = { 0 };

    config_init(&config);
    if (config_file_parse(&config, (const char *)data, len, "input", &err))
        check_round_trip(&config);
    else
        check_refusal(&err);
    return 0;
}
