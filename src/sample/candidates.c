/* The best `count` of n by one pass with a heap of `count` whose root is the worst one kept. Once
 * the heap is full almost every token fails one comparison with the root: with logits in no
 * particular order the root changes count x ln(n / count) times. */
#include "sample/candidates.h"

#include <math.h>

bool candidates_after(const float *logits, uint32_t a, uint32_t b)
{
    return logits[a] < logits[b] || (logits[a] == logits[b] && a > b);
}

/* Restores the heap (root last in candidate order) where only the entry at `at` may be wrong. */
static void sift_down(const float *logits, uint32_t *heap, uint32_t size, uint32_t at)
{
    const uint32_t moved = heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= size)
            break;
        if (child + 1 < size && candidates_after(logits, heap[child + 1], heap[child]))
            child++;
        if (!candidates_after(logits, heap[child], moved))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/* Takes the root, which is last in candidate order, to the end, again and again. */
static void sort_heap(const float *logits, uint32_t *heap, uint32_t size)
{
    for (uint32_t end = size; end > 1; end--) {
        const uint32_t last = heap[0];
        heap[0] = heap[end - 1];
        heap[end - 1] = last;
        sift_down(logits, heap, end - 1, 0);
    }
}

static void make_heap(const float *logits, uint32_t *heap, uint32_t size)
{
    for (uint32_t at = size / 2; at-- > 0;)
        sift_down(logits, heap, size, at);
}

uint32_t candidates_best(const float *logits, uint32_t n, uint32_t count, uint32_t *best)
{
    uint32_t size = 0, id = 0;
    for (; id < n && size < count; id++) {
        if (logits[id] > -INFINITY)
            best[size++] = id;
    }
    make_heap(logits, best, size);
    for (; id < n && size > 0; id++) {
        /* Of two equal logits the heap's has the lower id, as ids are visited in order. */
        if (logits[id] > logits[best[0]]) {
            best[0] = id;
            sift_down(logits, best, size, 0);
        }
    }
    sort_heap(logits, best, size);
    return size;
}

void candidates_sort(const float *logits, uint32_t *ids, uint32_t n_ids)
{
    make_heap(logits, ids, n_ids);
    sort_heap(logits, ids, n_ids);
}
