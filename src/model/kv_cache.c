/* The pool is page after page, and in a page layer after layer: a sequence's memory stays together,
 * and a copy on write is one copy. A step reads a layer of a page as one stream, which is tens of
 * kilobytes, so the jump to the next page costs nothing that shows. */
#include "model/kv_cache.h"

#include <string.h>

#include "base/memory.h"

static uint64_t count_pages(const struct kv_cache_options *options, size_t page_bytes)
{
    /* One more than a sequence fills: a shared page is copied before it is let go. */
    const uint64_t useful = (uint64_t)options->max_sequences *
                            ((options->ctx_size + KV_PAGE_ROWS - 1) / KV_PAGE_ROWS + 1);
    uint64_t memory_bytes = options->memory_bytes;
    if (memory_bytes == 0) {
        const uint64_t one = useful / options->max_sequences * page_bytes;
        memory_bytes = memory_available_bytes() / 4;
        memory_bytes = memory_bytes < one ? one : memory_bytes;
    }
    const uint64_t n_pages = memory_bytes / page_bytes;
    return n_pages < useful ? n_pages : useful;
}

bool kv_cache_init(struct kv_cache *cache, const struct kv_cache_options *options, struct err *err)
{
    *cache = (struct kv_cache){ .shape = options->shape, .n_layers = options->n_layers };
    cache->layer_bytes = kv_page_bytes(&options->shape);
    if (!size_mul(cache->layer_bytes, options->n_layers, &cache->page_bytes))
        return err_set(err, ERR_NO_MEMORY, "a KV page of %u layers", options->n_layers);
    const uint64_t n_pages = count_pages(options, cache->page_bytes);
    if (n_pages == 0) {
        return err_set(err, ERR_ARGUMENT, "a KV memory of %llu bytes holds no page of %zu bytes",
                       (unsigned long long)options->memory_bytes, cache->page_bytes);
    }
    if (n_pages >= KV_PAGE_NONE || !size_mul(cache->page_bytes, n_pages, &cache->pool_bytes)) {
        return err_set(err, ERR_NO_MEMORY, "%llu KV pages of %zu bytes",
                       (unsigned long long)n_pages, cache->page_bytes);
    }
    const size_t available_bytes = memory_available_bytes();
    if (cache->pool_bytes > available_bytes) {
        return err_set(err, ERR_NO_MEMORY,
                       "%llu KV pages need %.1f GiB and this machine has %.1f GiB free: a smaller "
                       "--kv-memory or --ctx-size fits",
                       (unsigned long long)n_pages, (double)cache->pool_bytes / (1 << 30),
                       (double)available_bytes / (1 << 30));
    }
    cache->pool = memory_pages(cache->pool_bytes, err);
    if (cache->pool == NULL)
        return err_wrap(err, "%llu KV pages", (unsigned long long)n_pages);
    kv_pages_init(&cache->pages, (uint32_t)n_pages, options->max_sequences, options->ctx_size,
                  options->max_rows);
    return true;
}

void kv_cache_release(struct kv_cache *cache)
{
    kv_pages_release(&cache->pages);
    memory_pages_free(cache->pool, cache->pool_bytes);
    *cache = (struct kv_cache){ 0 };
}

bool kv_cache_plan(struct kv_cache *cache, const struct kv_row *rows, uint32_t n_rows,
                   struct err *err)
{
    if (!kv_pages_plan(&cache->pages, rows, n_rows, err))
        return false;
    for (uint32_t i = 0; i < cache->pages.n_copies; i++) {
        const struct kv_page_copy copy = cache->pages.copies[i];
        memcpy(cache->pool + copy.to * cache->page_bytes,
               cache->pool + copy.from * cache->page_bytes, cache->page_bytes);
    }
    return true;
}

void kv_cache_view(const struct kv_cache *cache, uint32_t layer, uint32_t sequence, uint32_t first,
                   uint32_t end, const void **pages)
{
    const uint32_t *table = cache->pages.sequences[sequence].table;
    const uint8_t *base = cache->pool + layer * cache->layer_bytes;
    for (uint32_t index = first; index < end; index++)
        pages[index] = base + table[index] * cache->page_bytes;
}
