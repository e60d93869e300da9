/* Bump allocation in chunks that double, so that a small request touches one chunk and a large one
 * few. Memory comes zeroed: every user wanted that, and calloc gives it for nothing on fresh pages.
 */
#include "base/arena.h"

#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define CHUNK_BYTES_LOW 4096u
#define CHUNK_BYTES_HIGH (1u << 20)

struct arena_chunk {
    struct arena_chunk *next;
    size_t size, used;
    _Alignas(16) unsigned char bytes[];
};

void arena_init(struct arena *arena, size_t used_bytes_cap)
{
    *arena = (struct arena){ .used_bytes_cap = used_bytes_cap };
}

void arena_release(struct arena *arena)
{
    while (arena->chunks) {
        struct arena_chunk *next = arena->chunks->next;
        free(arena->chunks);
        arena->chunks = next;
    }
    arena->used_bytes = 0;
}

static void add_chunk(struct arena *arena, size_t bytes)
{
    size_t size = arena->chunks ? arena->chunks->size * 2 : CHUNK_BYTES_LOW;
    size = size > CHUNK_BYTES_HIGH ? CHUNK_BYTES_HIGH : size;
    size = size < bytes ? bytes : size;
    struct arena_chunk *chunk = xcalloc(1, sizeof *chunk + size);
    chunk->size = size;
    chunk->next = arena->chunks;
    arena->chunks = chunk;
}

void *arena_alloc(struct arena *arena, size_t bytes)
{
    if (bytes > arena->used_bytes_cap)
        return NULL;
    size_t size = size_round_up(bytes ? bytes : 1, 16);
    if (size > arena->used_bytes_cap - arena->used_bytes)
        return NULL;
    if (!arena->chunks || arena->chunks->size - arena->chunks->used < size)
        add_chunk(arena, size);
    struct arena_chunk *chunk = arena->chunks;
    void *block = chunk->bytes + chunk->used;
    chunk->used += size;
    arena->used_bytes += size;
    return block;
}

void *arena_array(struct arena *arena, size_t count, size_t bytes)
{
    size_t total;
    return size_mul(count, bytes, &total) ? arena_alloc(arena, total) : NULL;
}

char *arena_strdup(struct arena *arena, struct str s)
{
    char *copy = s.size == SIZE_MAX ? NULL : arena_alloc(arena, s.size + 1);
    if (copy && s.size)
        memcpy(copy, s.data, s.size);
    return copy;
}

struct str arena_str(struct arena *arena, struct str s)
{
    char *copy = arena_strdup(arena, s);
    return copy ? (struct str){ .data = copy, .size = s.size } : STR_NONE;
}

char *arena_printf(struct arena *arena, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    must(size >= 0);
    char *text = arena_alloc(arena, (size_t)size + 1);
    if (!text)
        return NULL;
    va_start(arguments, format);
    vsnprintf(text, (size_t)size + 1, format, arguments);
    va_end(arguments);
    return text;
}
