/* XXH3 and XXH32 of xxHash: this file keeps the library out of every other. */
#include "base/hash.h"

#include "base/err.h"

#include <stdio.h>
#include <xxhash.h>

uint64_t hash_xxh3(const void *bytes, size_t size)
{
    return XXH3_64bits(bytes ? bytes : "", size);
}

uint32_t hash_xxh32(const void *bytes, size_t size)
{
    return XXH32(bytes ? bytes : "", size, 0);
}

static XXH3_state_t *state_of(const struct hash_stream *stream)
{
    return (XXH3_state_t *)(uintptr_t)stream;
}

struct hash_stream *hash_stream_new(void)
{
    XXH3_state_t *state = XXH3_createState();
    must(state);
    XXH3_64bits_reset(state);
    return (struct hash_stream *)(void *)state;
}

void hash_stream_add(struct hash_stream *stream, const void *bytes, size_t size)
{
    if (size)
        XXH3_64bits_update(state_of(stream), bytes, size);
}

uint64_t hash_stream_value(const struct hash_stream *stream)
{
    return XXH3_64bits_digest(state_of(stream));
}

void hash_stream_free(struct hash_stream *stream)
{
    XXH3_freeState(state_of(stream));
}

void hash_hex(uint64_t hash, char out[17])
{
    snprintf(out, 17, "%016llx", (unsigned long long)hash);
}

bool hash_from_hex(struct str hex, uint64_t *out)
{
    uint64_t value = 0;
    if (hex.size != 16)
        return false;
    for (size_t i = 0; i < hex.size; i++) {
        char c = hex.data[i];
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                                : 16;
        if (digit == 16)
            return false;
        value = value << 4 | digit;
    }
    *out = value;
    return true;
}
