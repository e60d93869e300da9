/* Open addressing with linear probing, never more than half full, nothing is ever removed. */
#include "weights/name_index.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/memory.h"

struct name_index_slot {
    struct str name;
    uint32_t item;
    bool used;
};

void name_index_init(struct name_index *index, size_t items_cap)
{
    size_t n_slots = 8;
    while (n_slots < 2 * items_cap)
        n_slots *= 2;
    *index = (struct name_index){ xcalloc(n_slots, sizeof(struct name_index_slot)), n_slots };
}

void name_index_release(struct name_index *index)
{
    free(index->slots);
    *index = (struct name_index){ 0 };
}

static struct name_index_slot *find_slot(const struct name_index *index, struct str name)
{
    size_t mask = index->n_slots - 1;
    size_t at = (size_t)hash_xxh3(name.data, name.size) & mask;
    while (index->slots[at].used && !str_equal(index->slots[at].name, name))
        at = (at + 1) & mask;
    return &index->slots[at];
}

bool name_index_add(struct name_index *index, struct str name, uint32_t item)
{
    struct name_index_slot *slot = find_slot(index, name);
    if (slot->used)
        return false;
    *slot = (struct name_index_slot){ name, item, true };
    return true;
}

bool name_index_find(const struct name_index *index, struct str name, uint32_t *item)
{
    if (!index->n_slots)
        return false;
    const struct name_index_slot *slot = find_slot(index, name);
    if (!slot->used)
        return false;
    *item = slot->item;
    return true;
}
