/* Traced text: a view of UTF-8 bytes that know where they came from, the template or the request.
 *
 * The origin decides what may become a control token: only bytes of the template may. It is kept
 * through every operation of the interpreter, because all of them are built from the few below.
 * Bytes live in stores inside an arena; a traced text is a window on one, so slices and trims cost
 * nothing. A text is immutable. Appending to the text that was written last grows its store in
 * place, so a loop that concatenates is linear; other views of the store are not disturbed.
 * A store has one owner, the thread that renders; stores that a compiled template owns are sealed
 * and may be read by any thread. */
#ifndef CASCADIA_TEXT_TRACED_H
#define CASCADIA_TEXT_TRACED_H

#include "base/arena.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

/* Bytes up to `end` (and from the run before) that share an origin. */
struct traced_run {
    size_t end; // offset behind the last byte
    bool from_template;
};

struct traced_store {
    char *bytes;
    size_t used, room; // bytes; room 0: sealed, never appended to
    struct traced_run *runs;
    size_t n_runs, runs_room;
};

struct traced {
    struct traced_store *store; // NULL: empty
    size_t first, last;         // bytes [first, last) of the store
};

#define TRACED_EMPTY ((struct traced){ NULL, 0, 0 })

/* A sealed text over bytes that outlive it (not copied). False past the arena's ceiling. */
bool traced_view(struct arena *arena, struct str bytes, bool from_template, struct traced *out);

static inline size_t traced_size(struct traced text)
{
    return text.last - text.first;
}

static inline struct str traced_str(struct traced text)
{
    return text.store ? (struct str){ text.store->bytes + text.first, text.last - text.first }
                      : STR_NONE;
}

/* Bytes [first, last) of the text. */
static inline struct traced traced_slice(struct traced text, size_t first, size_t last)
{
    return (struct traced){ text.store, text.first + first, text.first + last };
}

/* a then b. False past the arena's ceiling. */
bool traced_concat(struct arena *arena, struct traced a, struct traced b, struct traced *out);

/* The run that holds byte `offset` of the text: its origin, and in *end the offset in the text at
 * which it ends (at most the text's size). */
bool traced_origin(struct traced text, size_t offset, size_t *end);

/* Writes a text front to back. The functions never fail one by one: past the arena's ceiling or
 * `size_cap` the builder remembers it, and traced_finish says so. */
struct traced_builder {
    struct arena *arena;
    struct traced_store *store;
    size_t size_cap; // bytes of the text
    bool overflowed; // size_cap would have been passed
    bool exhausted;  // the arena was full
};

void traced_begin(struct traced_builder *builder, struct arena *arena, size_t size_cap);
/* Room for what is known to come, so that it is allocated once. */
void traced_reserve(struct traced_builder *builder, size_t size);
void traced_add(struct traced_builder *builder, struct str bytes, bool from_template);
void traced_add_text(struct traced_builder *builder, struct traced text);
void traced_add_point(struct traced_builder *builder, uint32_t code_point, bool from_template);
bool traced_finish(struct traced_builder *builder, struct traced *out);

#endif
