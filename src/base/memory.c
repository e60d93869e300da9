/* Memory. Small blocks abort when there is none: no caller could do better, and code that pretends
 * to handle it is never tested. Large ones come straight from mmap, on huge pages when the kernel
 * gives them, because weights and KV are read front to back and 4 KiB pages cost a tenth of the
 * bandwidth. */
#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES (2u << 20)

static _Noreturn void no_memory(size_t bytes)
{
    fprintf(stderr, "cascadia: out of memory (%zu bytes)\n", bytes);
    abort();
}

void *xmalloc(size_t bytes)
{
    void *block = malloc(bytes ? bytes : 1);
    if (!block)
        no_memory(bytes);
    return block;
}

void *xcalloc(size_t count, size_t bytes)
{
    void *block = calloc(count ? count : 1, bytes ? bytes : 1);
    if (!block)
        no_memory(count);
    return block;
}

void *xrealloc(void *old, size_t bytes)
{
    void *block = realloc(old, bytes ? bytes : 1);
    if (!block)
        no_memory(bytes);
    return block;
}

void *xreallocarray(void *old, size_t count, size_t bytes)
{
    size_t total;
    if (!size_mul(count, bytes, &total))
        no_memory(SIZE_MAX);
    return xrealloc(old, total);
}

char *xstrndup(const char *text, size_t bytes)
{
    char *copy = xmalloc(bytes + 1);
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    return copy;
}

char *xstrdup(const char *text)
{
    return xstrndup(text, strlen(text));
}

char *xasprintf(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    must(size >= 0);
    char *text = xmalloc((size_t)size + 1);
    va_start(arguments, format);
    vsnprintf(text, (size_t)size + 1, format, arguments);
    va_end(arguments);
    return text;
}

void *memory_pages(size_t bytes, struct err *err)
{
    size_t size = size_round_up(bytes ? bytes : 1, 4096);
    bool huge = size >= HUGE_PAGE_BYTES;
    size_t span = huge ? size + HUGE_PAGE_BYTES : size;
    uint8_t *pages = span < size ? MAP_FAILED
                                 : mmap(NULL, span, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) {
        err_set(err, ERR_NO_MEMORY, "no room for %.1f MiB", (double)bytes / (1 << 20));
        return NULL;
    }
    if (!huge)
        return pages;
    size_t skip = (HUGE_PAGE_BYTES - (uintptr_t)pages % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    if (skip)
        munmap(pages, skip);
    if (HUGE_PAGE_BYTES - skip)
        munmap(pages + skip + size, HUGE_PAGE_BYTES - skip);
    madvise(pages + skip, size, MADV_HUGEPAGE);
    return pages + skip;
}

void memory_pages_free(void *pages, size_t bytes)
{
    if (pages)
        munmap(pages, size_round_up(bytes ? bytes : 1, 4096));
}

void *xaligned(size_t bytes)
{
    size_t size = size_round_up(bytes ? bytes : 1, 64);
    void *block = aligned_alloc(64, size);
    if (!block)
        no_memory(bytes);
    memset(block, 0, size);
    return block;
}

bool size_mul(size_t a, size_t b, size_t *out)
{
    size_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *out = product;
    return true;
}

bool size_add(size_t a, size_t b, size_t *out)
{
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *out = sum;
    return true;
}

/* The control group's ceiling, or SIZE_MAX when it has none. */
static size_t group_limit_bytes(void)
{
    FILE *file = fopen("/sys/fs/cgroup/memory.max", "re");
    unsigned long long limit = 0;
    if (!file)
        return SIZE_MAX;
    bool found = fscanf(file, "%llu", &limit) == 1;
    fclose(file);
    return found ? (size_t)limit : SIZE_MAX;
}

static size_t meminfo_bytes(const char *key)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    size_t bytes = 0;
    if (!file)
        return 0;
    while (fgets(line, sizeof line, file)) {
        unsigned long long kib;
        if (strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), "%llu", &kib) == 1)
            bytes = (size_t)kib * 1024;
    }
    fclose(file);
    return bytes;
}

size_t memory_available_bytes(void)
{
    size_t available = meminfo_bytes("MemAvailable:"), limit = group_limit_bytes();
    return available < limit ? available : limit;
}
