#include "api/keys.h"

#include <string.h>
#include <sys/auxv.h>

enum { HASH_BITS = 24, OFFSET_BITS = 40 };

/* What 24 bits of hash serve well: at least 8 bytes each, it is a body of
 * 64 MiB full of keys. */
#define KEYS_MAX ((size_t)1 << (HASH_BITS - 1))

static const uint64_t prime = ((uint64_t)1 << 61) - 1;

/* Where the polynomial is evaluated: 8 of the bytes that the kernel gives each
 * process for such purposes. */
static uint64_t secret_point(void)
{
    const char *random = (const char *)getauxval(AT_RANDOM);
    uint64_t point = 0;

    if (random != NULL)
        memcpy(&point, random + 8, sizeof point);
    return point % (prime - 0x10000) + 0x10000;
}

/* Two different keys of at most n characters agree in it with a chance of
 * n / 2^23 over the secret. */
static uint64_t hash(struct json_text key)
{
    uint64_t point = secret_point(), h = 1;
    const char *at = key.at;

    for (;;) {
        uint32_t c = json_text_next(&at);

        if (c == JSON_TEXT_END)
            return h & (((uint64_t)1 << HASH_BITS) - 1);

        unsigned __int128 product = (unsigned __int128)h * point + c + 1;
        uint64_t folded = (uint64_t)(product & prime) +
                          (uint64_t)(product >> 61);

        h = folded >= prime ? folded - prime : folded;
    }
}

static bool same_key(const char *a, const char *b)
{
    for (;;) {
        uint32_t c = json_text_next(&a);

        if (c != json_text_next(&b))
            return false;
        if (c == JSON_TEXT_END)
            return true;
    }
}

static size_t home(const struct keys *keys, uint64_t item)
{
    return (item >> OFFSET_BITS) & (keys->slots - 1);
}

static size_t next(const struct keys *keys, size_t slot)
{
    return (slot + 1) & (keys->slots - 1);
}

static void place(struct keys *keys, size_t index)
{
    size_t slot = home(keys, keys->item[index]);

    while (keys->slot[slot] != 0)
        slot = next(keys, slot);
    keys->slot[slot] = (uint32_t)index + 1;
}

static bool grow(struct keys *keys)
{
    uint64_t *item = arena_array(keys->arena, keys->slots, sizeof *item);
    uint32_t *slot = arena_array(keys->arena, 2 * keys->slots, sizeof *slot);

    if (item == NULL || slot == NULL)
        return false;
    keys->item = memcpy(item, keys->item, keys->count * sizeof *item);
    keys->slots *= 2;
    keys->slot = memset(slot, 0, keys->slots * sizeof *slot);
    for (size_t i = 0; i < keys->count; i++)
        place(keys, i);
    return true;
}

void keys_init(struct keys *keys, const char *body, struct arena *arena)
{
    keys->body = body;
    keys->arena = arena;
    keys->item = keys->first_item;
    keys->count = 0;
    keys->slot = memset(keys->first_slot, 0, sizeof keys->first_slot);
    keys->slots = sizeof keys->first_slot / sizeof *keys->first_slot;
}

enum keys_result keys_add(struct keys *keys, size_t object,
                          struct json_text key)
{
    uint64_t offset = (uint64_t)(key.at - keys->body);
    uint64_t item = hash(key) << OFFSET_BITS | offset;

    for (size_t slot = home(keys, item); keys->slot[slot] != 0;
         slot = next(keys, slot)) {
        size_t index = keys->slot[slot] - 1;
        uint64_t other = keys->item[index];

        if (index >= object && other >> OFFSET_BITS == item >> OFFSET_BITS &&
            same_key(key.at,
                     keys->body + (other & (((uint64_t)1 << OFFSET_BITS) - 1))))
            return KEYS_TWICE;
    }
    if (keys->count == KEYS_MAX || offset >> OFFSET_BITS != 0)
        return KEYS_TOO_MANY;
    if (2 * keys->count == keys->slots && !grow(keys))
        return KEYS_NO_MEMORY;
    keys->item[keys->count] = item;
    place(keys, keys->count++);
    return KEYS_NEW;
}

/* Last in, first out: what was placed after a key is gone when its own slot is
 * freed, so no chain of slots is cut. */
void keys_close(struct keys *keys, size_t object)
{
    while (keys->count > object) {
        size_t slot = home(keys, keys->item[--keys->count]);

        while (keys->slot[slot] != keys->count + 1)
            slot = next(keys, slot);
        keys->slot[slot] = 0;
    }
}
