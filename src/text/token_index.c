/* Open addressing, at most half full. The hash is one of bytes in a row (FNV-1a, 64 bits, mixed at
 * the end), so that a joined text needs no copy. */
#include "text/token_index.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static uint64_t hash_more(uint64_t hash, struct str text)
{
    for (size_t i = 0; i < text.size; i++)
        hash = (hash ^ (uint8_t)text.data[i]) * 0x100000001b3u;
    return hash;
}

static uint32_t hash_end(uint64_t hash)
{
    hash ^= hash >> 32;
    return (uint32_t)(hash * 0x9e3779b97f4a7c15u >> 32);
}

#define HASH_BEGIN 0xcbf29ce484222325u

void token_index_init(struct token_index *index, const struct str *texts, size_t n_texts)
{
    uint32_t n_slots = 16;
    while (n_slots < 2 * n_texts)
        n_slots *= 2;
    *index = (struct token_index){ .texts = texts, .slot_mask = n_slots - 1 };
    index->slots = xcalloc(n_slots, sizeof index->slots[0]);
    memset(index->slots, 0xff, n_slots * sizeof index->slots[0]);
    for (size_t i = 0; i < n_texts; i++) {
        if (!texts[i].data || token_index_find(index, texts[i]) != TOKEN_INDEX_NONE)
            continue;
        uint32_t slot = hash_end(hash_more(HASH_BEGIN, texts[i])) & index->slot_mask;
        while (index->slots[slot] != TOKEN_INDEX_NONE)
            slot = (slot + 1) & index->slot_mask;
        index->slots[slot] = (uint32_t)i;
    }
}

void token_index_release(struct token_index *index)
{
    free(index->slots);
    *index = (struct token_index){ 0 };
}

uint32_t token_index_find_joined(const struct token_index *index, struct str a, struct str b)
{
    uint32_t slot = hash_end(hash_more(hash_more(HASH_BEGIN, a), b)) & index->slot_mask;
    for (; index->slots[slot] != TOKEN_INDEX_NONE; slot = (slot + 1) & index->slot_mask) {
        const struct str text = index->texts[index->slots[slot]];
        if (text.size == a.size + b.size && str_starts(text, a) && str_ends(text, b))
            return index->slots[slot];
    }
    return TOKEN_INDEX_NONE;
}

uint32_t token_index_find(const struct token_index *index, struct str text)
{
    return token_index_find_joined(index, text, STR(""));
}
