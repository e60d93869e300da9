/* Many small allocations with one lifetime, released at once. Memory is zeroed and 16-byte aligned.
 * Past the ceiling an allocation returns NULL (arena_alloc) and the arena says so. One owner. */
#ifndef CASCADIA_BASE_ARENA_H
#define CASCADIA_BASE_ARENA_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks; // newest first
    size_t used_bytes;
    size_t used_bytes_cap;
};

void arena_init(struct arena *arena, size_t used_bytes_cap);
void arena_release(struct arena *arena); // zeroed values are fine

void *arena_alloc(struct arena *arena, size_t bytes);               // NULL past the ceiling
void *arena_array(struct arena *arena, size_t count, size_t bytes); // product checked
char *arena_strdup(struct arena *arena, struct str s);              // NUL-terminated copy
struct str arena_str(struct arena *arena, struct str s);            // data NULL past the ceiling
char *arena_printf(struct arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
