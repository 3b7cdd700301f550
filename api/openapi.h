#ifndef API_OPENAPI_H
#define API_OPENAPI_H

#include <stddef.h>

/* The contract for machines: api/openapi.json, byte for byte. */

extern const char openapi_json[]; /* not NUL-terminated */
extern const size_t openapi_json_len;

#endif
