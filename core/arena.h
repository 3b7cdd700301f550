#ifndef CORE_ARENA_H
#define CORE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

/* A bump allocator: many allocations, one free.
 *
 * It holds what one request needs from decode to encode, or what one worker
 * needs as scratch. Memory comes in blocks from malloc; nothing is given back
 * before arena_free(), arena_reset() or arena_release(). The cap is the memory
 * limit of whoever owns the arena: a request that would pass it gets NULL, and
 * so does every later one (sticky), so that a caller may check once at the
 * end with arena_failed(). Not thread safe: one owner at a time. */

enum { ARENA_ALIGNMENT = 64 }; /* a cache line, and a zmm register */

struct arena_block;

struct arena {
    struct arena_block *blocks; /* in use, newest first */
    struct arena_block *spare;  /* empty, kept for the next allocation */
    size_t used_bytes;          /* handed out, with alignment */
    size_t held_bytes;          /* taken from malloc */
    size_t cap_bytes;           /* held_bytes never passes it */
    bool failed;                /* an allocation was refused */
};

struct arena_mark {
    struct arena_block *block;
    size_t block_used;
    size_t used_bytes;
};

void arena_init(struct arena *arena, size_t cap_bytes);
void arena_free(struct arena *arena);

/* Uninitialised, aligned to ARENA_ALIGNMENT; NULL when the cap or malloc says
 * no. Zero bytes give a unique pointer. */
void *arena_alloc(struct arena *arena, size_t bytes)
    __attribute__((malloc, alloc_size(2)));

/* `count` elements of `size` bytes, the product checked. */
void *arena_array(struct arena *arena, size_t count, size_t size)
    __attribute__((malloc, alloc_size(2, 3)));

/* Stack discipline for scratch: everything allocated after the mark is gone
 * after the release, but its blocks stay for the next piece of work. */
/* What is allocated next, up to so many bytes with their alignment, comes from
 * one block. False as arena_alloc() is NULL. */
bool arena_reserve(struct arena *arena, size_t bytes);

struct arena_mark arena_mark(const struct arena *arena);
void arena_release(struct arena *arena, struct arena_mark mark);

/* Forgets all allocations and the failure; keeps at most `keep_bytes` of
 * blocks for reuse. */
void arena_reset(struct arena *arena, size_t keep_bytes);

bool arena_failed(const struct arena *arena);

#endif
