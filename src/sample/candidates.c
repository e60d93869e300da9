/* The best `count` of n by one pass with a heap of `count` whose root is the worst one kept. Once
 * the heap is full almost every token fails one comparison with the root: with logits in no
 * particular order the root changes count x ln(n / count) times. Sorting everything would cost
 * n x log(n), forty times as much for the 40 best of 150,000. */
#include "sample/candidates.h"

#include <math.h>
#include <stdbool.h>

/* a comes after b in candidate order. */
static bool is_after(const float *logits, uint32_t a, uint32_t b)
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
        if (child + 1 < size && is_after(logits, heap[child + 1], heap[child]))
            child++;
        if (!is_after(logits, heap[child], moved))
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

uint32_t candidates_extend(const float *logits, uint32_t n, uint32_t *order, uint32_t n_ready,
                           uint32_t count)
{
    if (count == 0 || n_ready >= n)
        return n_ready;
    if (count > n - n_ready)
        count = n - n_ready;
    const bool first = n_ready == 0;
    const uint32_t last = first ? 0 : order[n_ready - 1];
    uint32_t *heap = order + n_ready;
    uint32_t size = 0;
    for (uint32_t id = 0; id < n; id++) {
        /* Of two equal logits the heap's has the lower id, as ids are visited in order. */
        if (size == count && !(logits[id] > logits[heap[0]]))
            continue;
        if (logits[id] == -INFINITY || (!first && !is_after(logits, id, last)))
            continue;
        if (size < count) {
            heap[size++] = id;
            if (size == count) {
                for (uint32_t at = size / 2; at-- > 0;)
                    sift_down(logits, heap, size, at);
            }
        } else {
            heap[0] = id;
            sift_down(logits, heap, size, 0);
        }
    }
    if (size < count) {
        for (uint32_t at = size / 2; at-- > 0;)
            sift_down(logits, heap, size, at);
    }
    sort_heap(logits, heap, size);
    return n_ready + size;
}
