/* Byte-pair merging: of all neighbours that a merge joins, the one of lowest rank, leftmost among
 * equals, is joined, until none is left. Never quadratic: long pieces take n log n.
 *
 * The merges belong to a tokenizer image and are read-only; a scratch belongs to one encoding. */
#ifndef CASCADIA_TEXT_BPE_H
#define CASCADIA_TEXT_BPE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BPE_NO_ID UINT32_MAX

struct bpe_merge {
    uint32_t left, right; // ids of the neighbours; left BPE_NO_ID: an empty slot
    uint32_t rank;        // lower is sooner
    uint32_t id;          // what they become
};

struct bpe {
    const struct bpe_merge *slots; // [slot_mask + 1], open-addressed by hash of the pair
    uint32_t slot_mask;
};

/* The merge of two neighbours, or NULL. */
const struct bpe_merge *bpe_find(const struct bpe *bpe, uint32_t left, uint32_t right);

/* Fills slots[slot_mask + 1] with the merges; the last of equal pairs counts. There must be more
 * slots than merges. */
void bpe_index(const struct bpe_merge *merges, size_t n_merges, struct bpe_merge *slots,
               uint32_t slot_mask);

/* Memory of one encoding, reused from piece to piece. */
struct bpe_scratch {
    struct bpe_pair *heap;
    uint32_t *before, *after; // neighbours of each symbol
    size_t room;              // symbols that fit
};

void bpe_scratch_release(struct bpe_scratch *scratch); // zeroed values are fine

/* Merges ids[n] in place; *n_out gets how many are left. ERR_NO_MEMORY when the piece is longer
 * than memory allows. At most UINT32_MAX / 4 ids. */
bool bpe_apply(const struct bpe *bpe, struct bpe_scratch *scratch, uint32_t *ids, size_t n,
               size_t *n_out, struct err *err);

#endif
