#include "core/arena.h"

#include "core/pages.h"

#include <stdint.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
enum { RED_ZONE = ARENA_ALIGNMENT }; /* never handed out, so an overrun traps */
#else
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
enum { RED_ZONE = 0 };
#endif

/* Small enough that a tiny request stays tiny, large enough that a request of
 * a hundred options makes one block. */
enum { BLOCK_BYTES = 32 * 1024 };

struct arena_block {
    struct arena_block *next;
    size_t size; /* bytes at data() */
    size_t used;
};

enum {
    HEADER_BYTES = (sizeof(struct arena_block) + ARENA_ALIGNMENT - 1) /
                   ARENA_ALIGNMENT * ARENA_ALIGNMENT
};

static unsigned char *data(struct arena_block *block)
{
    return (unsigned char *)block + HEADER_BYTES;
}

static void free_list(struct arena *arena, struct arena_block *block)
{
    while (block != NULL) {
        struct arena_block *next = block->next;

        UNPOISON(data(block), block->size);
        arena->held_bytes -= HEADER_BYTES + block->size;
        free(block);
        block = next;
    }
}

static void move_to_spare(struct arena *arena, struct arena_block *block)
{
    arena->blocks = block->next;
    block->next = arena->spare;
    block->used = 0;
    POISON(data(block), block->size);
    arena->spare = block;
}

static struct arena_block *take_spare(struct arena *arena, size_t bytes)
{
    for (struct arena_block **link = &arena->spare; *link != NULL;
         link = &(*link)->next) {
        struct arena_block *block = *link;

        if (block->size >= bytes) {
            *link = block->next;
            return block;
        }
    }
    return NULL;
}

static struct arena_block *new_block(struct arena *arena, size_t bytes)
{
    size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
    size_t room = arena->cap_bytes - arena->held_bytes;

    if (room < HEADER_BYTES || bytes > room - HEADER_BYTES)
        return NULL;
    if (size > room - HEADER_BYTES)
        size = bytes;

    struct arena_block *block = pages_alloc(HEADER_BYTES + size);

    if (block == NULL)
        return NULL;
    block->size = size;
    block->used = 0;
    arena->held_bytes += HEADER_BYTES + size;
    POISON(data(block), size);
    return block;
}

void arena_init(struct arena *arena, size_t cap_bytes)
{
    *arena = (struct arena){ .cap_bytes = cap_bytes };
}

void arena_free(struct arena *arena)
{
    arena_reset(arena, 0);
}

void *arena_alloc(struct arena *arena, size_t bytes)
{
    if (arena->failed || bytes > SIZE_MAX / 2) {
        arena->failed = true;
        return NULL;
    }

    size_t need = (bytes + RED_ZONE + ARENA_ALIGNMENT - 1) /
                  ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    struct arena_block *block = arena->blocks;

    if (need == 0)
        need = ARENA_ALIGNMENT;
    if (block == NULL || block->size - block->used < need) {
        block = take_spare(arena, need);
        if (block == NULL)
            block = new_block(arena, need);
        if (block == NULL) {
            arena->failed = true;
            return NULL;
        }
        block->next = arena->blocks;
        arena->blocks = block;
    }

    void *p = data(block) + block->used;

    block->used += need;
    arena->used_bytes += need;
    UNPOISON(p, bytes);
    return p;
}

void *arena_array(struct arena *arena, size_t count, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(count, size, &bytes)) {
        arena->failed = true;
        return NULL;
    }
    return arena_alloc(arena, bytes);
}

bool arena_reserve(struct arena *arena, size_t bytes)
{
    struct arena_mark mark = arena_mark(arena);
    bool good = arena_alloc(arena, bytes) != NULL;

    arena_release(arena, mark);
    return good;
}

struct arena_mark arena_mark(const struct arena *arena)
{
    return (struct arena_mark){
        .block = arena->blocks,
        .block_used = arena->blocks == NULL ? 0 : arena->blocks->used,
        .used_bytes = arena->used_bytes,
    };
}

void arena_release(struct arena *arena, struct arena_mark mark)
{
    while (arena->blocks != mark.block)
        move_to_spare(arena, arena->blocks);
    arena->used_bytes = mark.used_bytes;
    if (mark.block == NULL)
        return;
    POISON(data(mark.block) + mark.block_used,
           mark.block->size - mark.block_used);
    mark.block->used = mark.block_used;
}

void arena_reset(struct arena *arena, size_t keep_bytes)
{
    arena_release(arena, (struct arena_mark){ 0 });
    while (arena->spare != NULL && arena->held_bytes > keep_bytes) {
        struct arena_block *block = arena->spare;

        arena->spare = block->next;
        block->next = NULL;
        free_list(arena, block);
    }
    arena->failed = false;
}

bool arena_failed(const struct arena *arena)
{
    return arena->failed;
}
