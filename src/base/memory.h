/* Memory that aborts when it is small and fails when it is large.
 *
 * x-functions are for small things whose size does not come from outside: out of memory there ends
 * the program. memory_pages is for weights, KV and whatever input sizes: it can fail. Any thread.
 */
#ifndef CASCADIA_BASE_MEMORY_H
#define CASCADIA_BASE_MEMORY_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *xmalloc(size_t bytes);               // caller frees with free()
void *xcalloc(size_t count, size_t bytes); // zeroed, product checked
void *xrealloc(void *old, size_t bytes);
void *xreallocarray(void *old, size_t count, size_t bytes); // product checked
char *xstrdup(const char *text);
char *xstrndup(const char *text, size_t bytes); // copies at most `bytes`, adds the NUL
char *xasprintf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Zeroed pages, 2 MiB aligned when large, huge pages asked for. Released with memory_pages_free
 * and the same size. ERR_NO_MEMORY with the size in the sentence. */
void *memory_pages(size_t bytes, struct err *err);
void memory_pages_free(void *pages, size_t bytes); // NULL is fine

/* Zeroed, 64-byte aligned; aborts when there is none. Free with free(). */
void *xaligned(size_t bytes);

/* False when the result does not fit; *out is then untouched. */
bool size_mul(size_t a, size_t b, size_t *out);
bool size_add(size_t a, size_t b, size_t *out);

static inline size_t size_round_up(size_t n, size_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* Bytes of memory that this machine has free now, or this control group may have at all if that is
 * less. */
size_t memory_available_bytes(void);

#endif
