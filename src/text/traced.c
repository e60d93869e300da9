/* Stores and windows on them. A store remembers origins as runs, not as a flag a byte: almost every
 * store has one run, and the longest prompts have a few per message.
 *
 * The in-place append is what keeps `ns.text = ns.text + part` linear: a text that ends where its
 * store ends may grow there, because nobody can see the bytes behind it. A second append to the
 * same text finds the store longer than the text and copies, so values stay immutable. */
#include "text/traced.h"

#include <string.h>

#define STORE_ROOM_LOW 32

static struct traced_store *store_new(struct arena *arena, size_t room)
{
    struct traced_store *store = arena_alloc(arena, sizeof *store);
    if (!store)
        return NULL;
    store->bytes = arena_alloc(arena, room);
    if (!store->bytes)
        return NULL;
    store->room = room;
    return store;
}

static bool store_reserve(struct arena *arena, struct traced_store *store, size_t size)
{
    if (store->room - store->used >= size)
        return true;
    size_t room = store->used + size;
    room += room / 2 + STORE_ROOM_LOW;
    char *bytes = arena_alloc(arena, room);
    if (!bytes)
        return false;
    memcpy(bytes, store->bytes, store->used);
    store->bytes = bytes;
    store->room = room;
    return true;
}

static bool store_add_run(struct arena *arena, struct traced_store *store, bool from_template)
{
    if (store->n_runs == store->runs_room) {
        size_t room = store->runs_room ? store->runs_room * 2 : 1;
        struct traced_run *runs = arena_array(arena, room, sizeof *runs);
        if (!runs)
            return false;
        if (store->n_runs > 0)
            memcpy(runs, store->runs, store->n_runs * sizeof *runs);
        store->runs = runs;
        store->runs_room = room;
    }
    store->runs[store->n_runs++] = (struct traced_run){ store->used, from_template };
    return true;
}

/* Appends bytes that share an origin. `bytes` may lie in this very store. */
static bool store_add(struct arena *arena, struct traced_store *store, struct str bytes,
                      bool from_template)
{
    if (bytes.size == 0)
        return true;
    const char *old = store->bytes;
    bool inside = bytes.data >= old && bytes.data < old + store->used;
    size_t offset = inside ? (size_t)(bytes.data - old) : 0;
    if (!store_reserve(arena, store, bytes.size))
        return false;
    if (store->n_runs == 0 || store->runs[store->n_runs - 1].from_template != from_template)
        if (!store_add_run(arena, store, from_template))
            return false;
    memcpy(store->bytes + store->used, inside ? store->bytes + offset : bytes.data, bytes.size);
    store->used += bytes.size;
    store->runs[store->n_runs - 1].end = store->used;
    return true;
}

static bool store_add_text(struct arena *arena, struct traced_store *store, struct traced text)
{
    for (size_t at = 0, end; at < traced_size(text); at = end) {
        bool from_template = traced_origin(text, at, &end);
        struct str piece = { text.store->bytes + text.first + at, end - at };
        if (!store_add(arena, store, piece, from_template))
            return false;
    }
    return true;
}

bool traced_view(struct arena *arena, struct str bytes, bool from_template, struct traced *out)
{
    if (bytes.size == 0) {
        *out = TRACED_EMPTY;
        return true;
    }
    struct {
        struct traced_store store;
        struct traced_run run;
    } *sealed = arena_alloc(arena, sizeof *sealed);
    if (!sealed)
        return false;
    sealed->run = (struct traced_run){ bytes.size, from_template };
    /* A sealed store is never written to: its room is 0. */
    union {
        const char *view;
        char *bytes;
    } borrowed = { .view = bytes.data };
    sealed->store = (struct traced_store){ .bytes = borrowed.bytes,
                                           .used = bytes.size,
                                           .runs = &sealed->run,
                                           .n_runs = 1,
                                           .runs_room = 1 };
    *out = (struct traced){ &sealed->store, 0, bytes.size };
    return true;
}

bool traced_concat(struct arena *arena, struct traced a, struct traced b, struct traced *out)
{
    size_t size_a = traced_size(a), size_b = traced_size(b);
    if (size_a == 0 || size_b == 0) {
        *out = size_a == 0 ? b : a;
        return true;
    }
    struct traced_store *store = a.store;
    bool in_place = store->room > 0 && a.last == store->used;
    if (!in_place) {
        size_t size = size_a + size_b;
        store = store_new(arena, size + size / 2 + STORE_ROOM_LOW);
        if (!store || !store_add_text(arena, store, a))
            return false;
        a = (struct traced){ store, 0, size_a };
    }
    if (!store_add_text(arena, store, b))
        return false;
    *out = (struct traced){ store, a.first, a.last + size_b };
    return true;
}

bool traced_origin(struct traced text, size_t offset, size_t *end)
{
    const struct traced_store *store = text.store;
    size_t at = text.first + offset;
    size_t low = 0, high = store->n_runs - 1; // the first run that ends behind `at`
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (store->runs[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    size_t run_end = store->runs[low].end < text.last ? store->runs[low].end : text.last;
    *end = run_end - text.first;
    return store->runs[low].from_template;
}

void traced_begin(struct traced_builder *builder, struct arena *arena, size_t size_cap)
{
    *builder = (struct traced_builder){ .arena = arena, .size_cap = size_cap };
}

/* True when `size` more bytes may be written. */
static bool builder_ready(struct traced_builder *builder, size_t size)
{
    if (builder->overflowed || builder->exhausted)
        return false;
    size_t used = builder->store ? builder->store->used : 0;
    if (size > builder->size_cap - used) {
        builder->overflowed = true;
        return false;
    }
    if (!builder->store) {
        builder->store = store_new(builder->arena, STORE_ROOM_LOW);
        builder->exhausted = !builder->store;
    }
    return !builder->exhausted;
}

void traced_reserve(struct traced_builder *builder, size_t size)
{
    if (!builder->store && size > STORE_ROOM_LOW && size <= builder->size_cap) {
        builder->store = store_new(builder->arena, size);
        builder->exhausted = !builder->store;
    }
}

void traced_add(struct traced_builder *builder, struct str bytes, bool from_template)
{
    if (bytes.size > 0 && builder_ready(builder, bytes.size))
        builder->exhausted = !store_add(builder->arena, builder->store, bytes, from_template);
}

void traced_add_text(struct traced_builder *builder, struct traced text)
{
    if (traced_size(text) > 0 && builder_ready(builder, traced_size(text)))
        builder->exhausted = !store_add_text(builder->arena, builder->store, text);
}

void traced_add_point(struct traced_builder *builder, uint32_t code_point, bool from_template)
{
    char bytes[4];
    size_t size = utf8_write(code_point, bytes);
    traced_add(builder, (struct str){ bytes, size }, from_template);
}

bool traced_finish(struct traced_builder *builder, struct traced *out)
{
    if (builder->overflowed || builder->exhausted)
        return false;
    *out =
        builder->store ? (struct traced){ builder->store, 0, builder->store->used } : TRACED_EMPTY;
    return true;
}
