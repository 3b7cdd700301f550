#ifndef API_KEYS_H
#define API_KEYS_H

#include "api/json_text.h"
#include "core/arena.h"

/* The keys of the objects that are open, to find one that comes twice.
 *
 * A stack, because objects close in reverse order, with a hash table over it.
 * Linear in the keys' bytes, whatever they are: the hash is a polynomial at a
 * point that the kernel drew when the process started, so nobody can choose
 * keys that collide. Up to 64 keys take nothing from the arena, more of them 32
 * to 64 bytes each. */
struct keys {
    const char *body; /* keys are kept as offsets from here */
    struct arena *arena;
    uint64_t *item; /* 24 bits of hash, 40 of offset */
    size_t count;
    uint32_t *slot; /* 1 + index of an item; 0: free */
    size_t slots;   /* a power of two, at least twice the count */
    uint64_t first_item[64];
    uint32_t first_slot[128];
};

enum keys_result { KEYS_NEW, KEYS_TWICE, KEYS_TOO_MANY, KEYS_NO_MEMORY };

void keys_init(struct keys *keys, const char *body, struct arena *arena);

/* Adds a key to the object whose first key is, or will be, item `object`:
 * keys.count when it was opened. */
enum keys_result keys_add(struct keys *keys, size_t object,
                          struct json_text key);

/* Forgets the keys of the object opened last. */
void keys_close(struct keys *keys, size_t object);

#endif
