/* Two ways to do the same thing, because their costs cross: short pieces, which nearly all are,
 * scan a small array of ranks for each merge; long ones (a megabyte of one letter is one piece)
 * keep a binary heap of candidate pairs over a linked list of symbols. A heap entry remembers the
 * two ids it was made for and is dropped when either has changed meanwhile. Each merge removes a
 * symbol and adds at most two entries, so the heap never holds more than twice the symbols. */
#include "text/bpe.h"

#include <stdlib.h>
#include <string.h>

#define SHORT_PIECE_CAP 32 // symbols; the scan is quadratic below it
#define NO_RANK UINT32_MAX
#define NOWHERE UINT32_MAX

struct bpe_pair {
    uint64_t order; // rank, then position of the left symbol
    uint32_t left, right;
};

static uint32_t pair_hash(uint32_t left, uint32_t right)
{
    uint64_t hash = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
    return (uint32_t)(hash * 0x9e3779b97f4a7c15u >> 32);
}

const struct bpe_merge *bpe_find(const struct bpe *bpe, uint32_t left, uint32_t right)
{
    uint32_t slot = pair_hash(left, right) & bpe->slot_mask;
    for (uint32_t n = 0; n <= bpe->slot_mask; n++) {
        const struct bpe_merge *merge = &bpe->slots[slot];
        if (merge->left == BPE_NO_ID)
            break;
        if (merge->left == left && merge->right == right)
            return merge;
        slot = (slot + 1) & bpe->slot_mask;
    }
    return NULL;
}

void bpe_index(const struct bpe_merge *merges, size_t n_merges, struct bpe_merge *slots,
               uint32_t slot_mask)
{
    memset(slots, 0xff, ((size_t)slot_mask + 1) * sizeof slots[0]);
    for (size_t i = 0; i < n_merges; i++) {
        uint32_t slot = pair_hash(merges[i].left, merges[i].right) & slot_mask;
        while (slots[slot].left != BPE_NO_ID &&
               (slots[slot].left != merges[i].left || slots[slot].right != merges[i].right))
            slot = (slot + 1) & slot_mask;
        slots[slot] = merges[i];
    }
}

void bpe_scratch_release(struct bpe_scratch *scratch)
{
    free(scratch->heap);
    free(scratch->before);
    free(scratch->after);
    *scratch = (struct bpe_scratch){ 0 };
}

static uint32_t rank_of(const struct bpe *bpe, uint32_t left, uint32_t right)
{
    const struct bpe_merge *merge = bpe_find(bpe, left, right);
    return merge ? merge->rank : NO_RANK;
}

static size_t apply_short(const struct bpe *bpe, uint32_t *ids, size_t n)
{
    uint32_t ranks[SHORT_PIECE_CAP]; // ranks[i]: of ids[i] and ids[i + 1]
    for (size_t i = 0; i + 1 < n; i++)
        ranks[i] = rank_of(bpe, ids[i], ids[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++) {
            if (ranks[i] < ranks[best])
                best = i;
        }
        if (ranks[best] == NO_RANK)
            break;
        ids[best] = bpe_find(bpe, ids[best], ids[best + 1])->id;
        n--;
        memmove(&ids[best + 1], &ids[best + 2], (n - best - 1) * sizeof ids[0]);
        memmove(&ranks[best], &ranks[best + 1], (n - best - 1) * sizeof ranks[0]);
        if (best + 1 < n)
            ranks[best] = rank_of(bpe, ids[best], ids[best + 1]);
        if (best > 0)
            ranks[best - 1] = rank_of(bpe, ids[best - 1], ids[best]);
    }
    return n;
}

static bool scratch_grow(struct bpe_scratch *scratch, size_t n, struct err *err)
{
    if (n <= scratch->room)
        return true;
    bpe_scratch_release(scratch);
    scratch->heap = calloc(2 * n, sizeof scratch->heap[0]);
    scratch->before = calloc(n, sizeof scratch->before[0]);
    scratch->after = calloc(n, sizeof scratch->after[0]);
    if (!scratch->heap || !scratch->before || !scratch->after) {
        bpe_scratch_release(scratch);
        return err_set(err, ERR_NO_MEMORY, "no memory to merge a piece of %zu symbols", n);
    }
    scratch->room = n;
    return true;
}

static void sift_down(struct bpe_pair *heap, size_t size, size_t at)
{
    const struct bpe_pair moving = heap[at];
    for (size_t child; (child = 2 * at + 1) < size; at = child) {
        if (child + 1 < size && heap[child + 1].order < heap[child].order)
            child++;
        if (moving.order <= heap[child].order)
            break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

static void sift_up(struct bpe_pair *heap, size_t at)
{
    const struct bpe_pair moving = heap[at];
    while (at > 0 && moving.order < heap[(at - 1) / 2].order) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = moving;
}

/* Adds the pair at `left` behind the heap's end, if a merge joins it. */
static bool add_pair(const struct bpe *bpe, struct bpe_pair *heap, size_t *size,
                     const uint32_t *ids, uint32_t left, uint32_t right)
{
    const uint32_t rank = rank_of(bpe, ids[left], ids[right]);
    if (rank == NO_RANK)
        return false;
    heap[(*size)++] = (struct bpe_pair){ (uint64_t)rank << 32 | left, ids[left], ids[right] };
    return true;
}

static size_t apply_long(const struct bpe *bpe, struct bpe_scratch *scratch, uint32_t *ids,
                         size_t n)
{
    struct bpe_pair *heap = scratch->heap;
    uint32_t *before = scratch->before, *after = scratch->after;
    size_t size = 0;
    for (uint32_t i = 0; i < n; i++) {
        before[i] = i ? i - 1 : NOWHERE;
        after[i] = i + 1 < n ? i + 1 : NOWHERE;
        if (i + 1 < n)
            add_pair(bpe, heap, &size, ids, i, i + 1);
    }
    for (size_t i = size / 2; i-- > 0;)
        sift_down(heap, size, i);

    while (size > 0) {
        const struct bpe_pair best = heap[0];
        heap[0] = heap[--size];
        sift_down(heap, size, 0);
        const uint32_t left = (uint32_t)best.order, right = after[left];
        if (right == NOWHERE || ids[left] != best.left || ids[right] != best.right)
            continue;
        ids[left] = bpe_find(bpe, best.left, best.right)->id;
        ids[right] = BPE_NO_ID;
        after[left] = after[right];
        after[right] = NOWHERE;
        if (after[left] != NOWHERE) {
            before[after[left]] = left;
            if (add_pair(bpe, heap, &size, ids, left, after[left]))
                sift_up(heap, size - 1);
        }
        if (before[left] != NOWHERE && add_pair(bpe, heap, &size, ids, before[left], left))
            sift_up(heap, size - 1);
    }
    size_t n_left = 0;
    for (uint32_t i = 0; i != NOWHERE; i = after[i])
        ids[n_left++] = ids[i];
    return n_left;
}

bool bpe_apply(const struct bpe *bpe, struct bpe_scratch *scratch, uint32_t *ids, size_t n,
               size_t *n_out, struct err *err)
{
    must(n <= UINT32_MAX / 4);
    if (n <= SHORT_PIECE_CAP) {
        *n_out = apply_short(bpe, ids, n);
        return true;
    }
    if (!scratch_grow(scratch, n, err))
        return false;
    *n_out = apply_long(bpe, scratch, ids, n);
    return true;
}
