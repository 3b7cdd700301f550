#include "core/kernels/kernels.h"

#include <stddef.h>
#include <string.h>

static const struct level {
    const char *name;
    uint32_t needs; /* every bit must be there */
    void (*add)(struct kernels *set); /* NULL: nothing beyond the one before */
} levels[] = {
    { "portable", 0, kernels_add_portable },
#if defined(__x86_64__)
    { "avx2", CPU_AVX2, kernels_add_avx2 },
    { "avx512", CPU_AVX2 | CPU_AVX512, kernels_add_avx512 },
    { "avx512", CPU_AVX2 | CPU_AVX512 | CPU_AVX512_BF16,
      kernels_add_avx512_bf16 },
    { "amx", CPU_AVX2 | CPU_AVX512 | CPU_AVX512_BF16 | CPU_AMX,
      kernels_add_amx },
#else
    { "avx2", 0, NULL },
    { "avx512", 0, NULL },
    { "amx", 0, NULL },
#endif
};

bool kernels_select(uint32_t features, const char *ceiling,
                    struct kernels *out)
{
    bool known = ceiling == NULL;

    *out = (struct kernels){ 0 };
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        const struct level *level = &levels[i];

        if (ceiling != NULL && strcmp(ceiling, level->name) == 0)
            known = true;
        else if (ceiling != NULL && known)
            break;
        if (level->add != NULL && (features & level->needs) == level->needs) {
            level->add(out);
            out->name = level->name;
        }
    }
    return known;
}
