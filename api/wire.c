#include "api/wire.h"

#include "api/accept.h"

#include <string.h>
#include <strings.h>

/* A format may have several media types: a row each, and all of them in what
 * Accept-Post says. */
#define MEDIA_TYPES(ROW)                                                       \
    ROW("application/json", wire_json)                                         \
    ROW("application/x-safetensors", wire_safetensors)                         \
    ROW("application/vnd.safetensors", wire_vnd_safetensors)                   \
    ROW("application/x-npy", wire_npy)

static const struct {
    const char *media_type;
    const struct wire_format *format;
} media_types[] = {
#define ROW(media_type, format) { media_type, &format },
    MEDIA_TYPES(ROW)
#undef ROW
};

const struct wire_format *wire_find(const char *media_type)
{
    media_type += strspn(media_type, " \t");

    size_t len = strcspn(media_type, "; \t");

    for (size_t i = 0; i < sizeof media_types / sizeof *media_types; i++) {
        const char *name = media_types[i].media_type;

        if (strlen(name) == len && strncasecmp(name, media_type, len) == 0)
            return media_types[i].format;
    }
    return NULL;
}

const struct wire_format *wire_accept(const char *accept)
{
    const struct wire_format *format = &wire_json;
    struct preference best = { 0 };

    for (size_t i = 0; i < sizeof media_types / sizeof *media_types; i++) {
        struct preference p = accept_find(accept, media_types[i].media_type);

        if (p.quality > 0 && accept_is_better(p, best)) {
            best = p;
            format = media_types[i].format;
        }
    }
    return format;
}

const char *wire_media_types(void)
{
#define ROW(media_type, format) ", " media_type
    return MEDIA_TYPES(ROW) + strlen(", ");
#undef ROW
}
