/* The instructions of core/kernels/amx.c on a processor that lacks them, by
 * Intel's manual, volume 2: what a program that is linked with this runs into
 * as illegal is decoded, done in software and stepped over. Linked with
 * --wrap=cpu_features, the program then chooses the level as if it were there.
 *
 * As the manual has it: a tile's rows beyond those it is shaped for are zeros,
 * loads zero what a row does not fill, denormals are zeros everywhere, and
 * whatever a processor would refuse ends the program. */

#include "core/cpu.h"

#include <immintrin.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#define ISA __attribute__((target("avx512f")))

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64 };

struct shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

static _Thread_local struct shapes shapes;
static _Thread_local _Alignas(64) unsigned char
    tiles[TILES][ROWS][ROW_BYTES];

static _Noreturn void refuse(const char *why)
{
    const char *parts[] = { "emulated AMX: ", why, "\n" };

    for (int i = 0; i < 3; i++)
        if (write(STDERR_FILENO, parts[i], strlen(parts[i])) < 0)
            break;
    abort();
}

static void require(bool good, const char *why)
{
    if (!good)
        refuse(why);
}

/* ---- the instructions ---- */

static void configure(const struct shapes *wanted)
{
    static const unsigned char none[14];

    require(wanted->palette == 1 && wanted->start_row == 0 &&
                memcmp(wanted->reserved, none, sizeof none) == 0,
            "LDTILECFG of another palette, or of reserved bits");
    for (int i = 0; i < 16; i++) {
        int rows = wanted->rows[i], bytes = wanted->row_bytes[i];

        require(i < TILES || (rows == 0 && bytes == 0),
                "LDTILECFG of more than 8 tiles");
        require(rows <= ROWS && bytes <= ROW_BYTES && (rows == 0) == (bytes == 0),
                "LDTILECFG of a shape that no tile has");
    }
    shapes = *wanted;
    memset(tiles, 0, sizeof tiles);
}

static void release(void)
{
    memset(&shapes, 0, sizeof shapes);
    memset(tiles, 0, sizeof tiles);
}

static void check_tile(int tile)
{
    require(shapes.palette == 1 && tile < TILES && shapes.rows[tile] > 0,
            "a tile that has no shape");
}

static void load_tile(int tile, const unsigned char *from, int64_t step)
{
    check_tile(tile);
    memset(tiles[tile], 0, sizeof tiles[tile]);
    for (int i = 0; i < shapes.rows[tile]; i++)
        memcpy(tiles[tile][i], from + i * step, shapes.row_bytes[tile]);
}

static void store_tile(int tile, unsigned char *to, int64_t step)
{
    check_tile(tile);
    for (int i = 0; i < shapes.rows[tile]; i++)
        memcpy(to + i * step, tiles[tile][i], shapes.row_bytes[tile]);
}

/* sum += a.b of 16 rows of pairs of b and one of a. */
ISA static void multiply_row(const uint32_t *a, int pairs,
                             unsigned char (*b)[ROW_BYTES], float *sum)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000);
    __m512 even = _mm512_setzero_ps(), odd = even;

    for (int k = 0; k < pairs; k++) {
        __m512i x = _mm512_set1_epi32((int)a[k]), y = _mm512_load_si512(b[k]);

        even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                               _mm512_castsi512_ps(_mm512_slli_epi32(y, 16)),
                               even);
        odd = _mm512_fmadd_ps(
            _mm512_castsi512_ps(_mm512_and_si512(x, high)),
            _mm512_castsi512_ps(_mm512_and_si512(y, high)), odd);
    }
    _mm512_store_ps(sum, _mm512_add_ps(_mm512_load_ps(sum),
                                       _mm512_add_ps(even, odd)));
}

static void multiply_tiles(int c, int a, int b)
{
    unsigned int saved = _mm_getcsr();

    check_tile(a);
    check_tile(b);
    check_tile(c);
    require(a != b && b != c && c != a, "TDPBF16PS of one tile twice");
    require(shapes.rows[c] == shapes.rows[a] &&
                shapes.row_bytes[c] == shapes.row_bytes[b] &&
                shapes.row_bytes[a] == 4 * shapes.rows[b],
            "TDPBF16PS of shapes that do not fit");
    _mm_setcsr(0x9fc0); /* denormals are zeros, to nearest, all masked */
    for (int i = 0; i < shapes.rows[c]; i++)
        multiply_row((const uint32_t *)(const void *)tiles[a][i],
                     shapes.rows[b], tiles[b],
                     (float *)(void *)tiles[c][i]);
    _mm_setcsr(saved);
}

/* ---- decoding: a VEX prefix of three bytes, one of opcode, ModRM ---- */

struct instruction {
    const unsigned char *at;
    int prefix;            /* pp: none, 66, F3, F2 */
    int second;            /* register in vvvv */
    int opcode, mod, reg, rm;
    int index_bit, base_bit; /* VEX.X and VEX.B, as an eighth more */
    int length;            /* with what an address takes */
};

static const int64_t *register_of(const ucontext_t *context, int number)
{
    static const int order[] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX,
                                 REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                 REG_R8,  REG_R9,  REG_R10, REG_R11,
                                 REG_R12, REG_R13, REG_R14, REG_R15 };

    return (const int64_t *)&context->uc_mcontext.gregs[order[number]];
}

static bool decode(const unsigned char *at, struct instruction *in)
{
    if (at[0] != 0xc4 || (at[1] & 0x1f) != 2 || (at[2] & 0x84) != 0)
        return false;
    *in = (struct instruction){
        .at = at, .prefix = at[2] & 3, .second = ~(at[2] >> 3) & 15,
        .opcode = at[3], .mod = at[4] >> 6, .reg = at[4] >> 3 & 7,
        .rm = at[4] & 7, .length = 5,
        .index_bit = (at[1] & 0x40) != 0 ? 0 : 8,
        .base_bit = (at[1] & 0x20) != 0 ? 0 : 8,
    };
    return true;
}

static int64_t displacement(struct instruction *in)
{
    int8_t small;
    int32_t large;

    if (in->mod == 1) {
        memcpy(&small, in->at + in->length, sizeof small);
        in->length += 1;
        return small;
    }
    if (in->mod == 0)
        return 0;
    memcpy(&large, in->at + in->length, sizeof large);
    in->length += 4;
    return large;
}

/* The address that ModRM asks for; *step is what its index adds. */
static unsigned char *address(struct instruction *in,
                              const ucontext_t *context, int64_t *step)
{
    int base = in->rm, index = 4, scale = 0;

    if (base == 4) {
        int sib = in->at[in->length++];

        base = sib & 7;
        index = (sib >> 3 & 7) + in->index_bit;
        scale = sib >> 6;
    }
    require(in->mod != 0 || base != 5, "an address without a base");
    *step = index == 4 ? 0 : *register_of(context, index) << scale;
    return (unsigned char *)(*register_of(context, base + in->base_bit) +
                             displacement(in));
}

static bool run_memory(struct instruction *in, const ucontext_t *context)
{
    enum { NONE, OPERAND, REPEAT, REPEAT_NOT };
    int64_t step;
    unsigned char *at = address(in, context, &step);

    if (in->opcode == 0x49 && in->prefix == NONE)
        configure((const struct shapes *)(const void *)(at + step));
    else if (in->opcode == 0x4b && in->prefix == REPEAT_NOT && in->rm == 4)
        load_tile(in->reg, at, step);
    else if (in->opcode == 0x4b && in->prefix == REPEAT && in->rm == 4)
        store_tile(in->reg, at, step);
    else
        return false;
    return true;
}

static bool run_registers(const struct instruction *in)
{
    enum { NONE, OPERAND, REPEAT, REPEAT_NOT };

    if (in->opcode == 0x5c && in->prefix == REPEAT) {
        multiply_tiles(in->reg, in->rm, in->second);
    } else if (in->opcode == 0x49 && in->prefix == REPEAT_NOT && in->rm == 0) {
        check_tile(in->reg);
        memset(tiles[in->reg], 0, sizeof tiles[in->reg]);
    } else if (in->opcode == 0x49 && in->prefix == NONE && in->rm == 0 &&
               in->reg == 0) {
        release();
    } else {
        return false;
    }
    return true;
}

static void on_illegal(int number, siginfo_t *info, void *context)
{
    ucontext_t *at = context;
    const unsigned char *code =
        (const unsigned char *)at->uc_mcontext.gregs[REG_RIP];
    struct instruction in;

    (void)info;
    if (!decode(code, &in) ||
        !(in.mod == 3 ? run_registers(&in) : run_memory(&in, at))) {
        const struct sigaction usual = { .sa_handler = SIG_DFL };

        sigaction(number, &usual, NULL); /* none of ours: once more, in earnest */
        return;
    }
    at->uc_mcontext.gregs[REG_RIP] += in.length;
}

/* ---- the program ---- */

uint32_t __real_cpu_features(void);
uint32_t __wrap_cpu_features(void);

/* Where the processor has tiles, nothing is illegal and nothing gets here. */
uint32_t __wrap_cpu_features(void)
{
    uint32_t features = __real_cpu_features();

    return (features & CPU_AVX512_BF16) != 0 ? features | CPU_AMX : features;
}

/* libc's, but that cmocka, which catches what is illegal too, does not get to. */
void (*signal(int number, void (*handler)(int)))(int)
{
    const struct sigaction action = { .sa_handler = handler,
                                      .sa_flags = SA_RESTART };
    struct sigaction before = { 0 };

    if (number != SIGILL && sigaction(number, &action, &before) != 0)
        return SIG_ERR;
    return before.sa_handler;
}

__attribute__((constructor)) static void catch_illegal(void)
{
    struct sigaction action = { .sa_sigaction = on_illegal,
                                .sa_flags = SA_SIGINFO | SA_NODEFER };

    sigemptyset(&action.sa_mask);
    sigaction(SIGILL, &action, NULL);
}
