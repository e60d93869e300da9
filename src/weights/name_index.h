/* From names to item numbers: the look-up table of a file's tensors or keys. Names are borrowed and
 * must outlive the index. Read-only after filling: any thread. */
#ifndef CASCADIA_WEIGHTS_NAME_INDEX_H
#define CASCADIA_WEIGHTS_NAME_INDEX_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct name_index {
    struct name_index_slot *slots; // a power of two of them, at least twice the items
    size_t n_slots;
};

void name_index_init(struct name_index *index, size_t items_cap);
void name_index_release(struct name_index *index); // zeroed values are fine

/* False when the name is there already. At most items_cap times. */
bool name_index_add(struct name_index *index, struct str name, uint32_t item);
bool name_index_find(const struct name_index *index, struct str name, uint32_t *item);

#endif
