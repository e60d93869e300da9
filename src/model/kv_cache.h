/* Keys and values of all sequences, in pages of 64 positions.
 *
 * One pool, sized when the model opens; a page holds its positions for every layer of this stage,
 * for each layer and kv head a K block, then a V block (kernel/kernel.h). Which page belongs to
 * whom is kv_pages' affair. Memory is touched when it is first written. One owner. */
#ifndef CASCADIA_MODEL_KV_CACHE_H
#define CASCADIA_MODEL_KV_CACHE_H

#include "base/err.h"
#include "kernel/kernel.h"
#include "model/kv_pages.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kv_cache {
    struct kv_pages pages;
    struct kv_shape shape; // of one layer
    uint32_t n_layers;
    size_t layer_bytes, page_bytes; // of a page: one layer's part, all of it
    uint8_t *pool;
    size_t pool_bytes;
};

struct kv_cache_options {
    struct kv_shape shape;
    uint32_t n_layers;
    uint32_t ctx_size, max_sequences, max_rows;
    uint64_t
        memory_bytes; // of the pool; 0: what all sequences can fill, within a quarter of memory
};

/* ERR_ARGUMENT: memory_bytes holds no page. ERR_NO_MEMORY. */
bool kv_cache_init(struct kv_cache *cache, const struct kv_cache_options *options, struct err *err);
void kv_cache_release(struct kv_cache *cache); // zeroed values are fine

/* kv_pages_plan, and the copies that it asks for. A commit or abort of cache->pages must follow. */
bool kv_cache_plan(struct kv_cache *cache, const struct kv_row *rows, uint32_t n_rows,
                   struct err *err);

/* The part of layer `layer` (counted from the stage's first) of the page that holds a position. */
static inline void *kv_cache_page(const struct kv_cache *cache, uint32_t layer, uint32_t sequence,
                                  uint32_t position)
{
    return cache->pool +
           (size_t)kv_pages_of(&cache->pages, sequence, position) * cache->page_bytes +
           layer * cache->layer_bytes;
}

/* Fills pages[first .. end) with the pages of a sequence, by page index. */
void kv_cache_view(const struct kv_cache *cache, uint32_t layer, uint32_t sequence, uint32_t first,
                   uint32_t end, const void **pages);

#endif
