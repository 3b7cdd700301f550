#include "api/openapi.h"

/* The assembler reads the file, from the top of the tree, where make runs. */
__asm__(".pushsection .rodata, \"a\"\n"
        ".globl openapi_json\n"
        ".type openapi_json, @object\n"
        "openapi_json:\n"
        ".incbin \"api/openapi.json\"\n"
        ".Lopenapi_end:\n"
        ".size openapi_json, .Lopenapi_end - openapi_json\n"
        ".balign 8\n"
        ".globl openapi_json_len\n"
        ".type openapi_json_len, @object\n"
        ".size openapi_json_len, 8\n"
        "openapi_json_len:\n"
        ".quad .Lopenapi_end - openapi_json\n"
        ".popsection\n");
