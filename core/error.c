#include "core/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

size_t error_cut(const char *text, size_t len)
{
    size_t lead = len;

    while (lead > 0 && ((unsigned char)text[lead - 1] & 0xC0) == 0x80)
        lead--;
    if (lead == 0)
        return len;

    unsigned char first = (unsigned char)text[lead - 1];
    size_t need = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;

    return lead - 1 + need <= len ? len : lead - 1;
}

static void cut(char *text, size_t size)
{
    text[error_cut(text, strnlen(text, size - 1))] = '\0';
}

bool error_set(struct error *err, enum error_code code, const char *where,
               const char *format, ...)
{
    if (err->code != ERR_NONE)
        return false;

    va_list args;
    va_start(args, format);
    err->code = code;
    snprintf(err->where, sizeof err->where, "%s", where);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    cut(err->where, sizeof err->where);
    cut(err->text, sizeof err->text);
    return false;
}

char *error_pointer(char *out, size_t size, const char *parent,
                    const char *name)
{
    int n = snprintf(out, size, "%s/", parent);
    size_t at = n < 0 ? 0 : (size_t)n;

    for (; *name != '\0' && at + 2 < size; name++) {
        bool escaped = *name == '~' || *name == '/';

        out[at++] = escaped ? '~' : *name;
        if (escaped)
            out[at++] = *name == '~' ? '0' : '1';
    }
    out[at < size ? at : size - 1] = '\0';
    return out;
}

const char *error_name(enum error_code code)
{
    static const char *const names[ERR_COUNT] = {
        [ERR_NONE] = "none",
#define ERROR(code, name, example) [code] = name,
#include "core/error.def"
#undef ERROR
    };

    return names[code];
}
