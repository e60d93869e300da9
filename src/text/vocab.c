/* Open addressing with linear probing, at most half full. A look-up is bounded by the table's size
 * whatever it holds, since the table may come from a file. */
#include "text/vocab.h"

#include <string.h>

#include "base/hash.h"

uint32_t vocab_find(const struct vocab *vocab, struct str key)
{
    uint32_t slot = (uint32_t)hash_xxh3(key.data, key.size) & vocab->slot_mask;
    for (uint32_t n = 0; n <= vocab->slot_mask; n++) {
        const uint32_t id = vocab->slots[slot];
        if (id == VOCAB_NO_ID)
            break;
        const struct str other = vocab_key(vocab, id);
        if (other.size == key.size && memcmp(other.data, key.data, key.size) == 0)
            return id;
        slot = (slot + 1) & vocab->slot_mask;
    }
    return VOCAB_NO_ID;
}

void vocab_index(const struct vocab *vocab, uint32_t *slots, uint32_t slot_mask)
{
    memset(slots, 0xff, ((size_t)slot_mask + 1) * sizeof slots[0]);
    for (uint32_t id = 0; id < vocab->n_tokens; id++) {
        if (!(vocab->flags[id] & VOCAB_MODEL))
            continue;
        const struct str key = vocab_key(vocab, id);
        uint32_t slot = (uint32_t)hash_xxh3(key.data, key.size) & slot_mask;
        while (slots[slot] != VOCAB_NO_ID)
            slot = (slot + 1) & slot_mask;
        slots[slot] = id;
    }
}
