/* Hashes of content, for checksums and tables; none withstands an adversary. Any thread; a stream
 * has one owner. */
#ifndef CASCADIA_BASE_HASH_H
#define CASCADIA_BASE_HASH_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint64_t hash_xxh3(const void *bytes, size_t size);
uint32_t hash_xxh32(const void *bytes, size_t size);

/* In pieces. */
struct hash_stream;
struct hash_stream *hash_stream_new(void);
void hash_stream_add(struct hash_stream *stream, const void *bytes, size_t size);
uint64_t hash_stream_value(const struct hash_stream *stream);
void hash_stream_free(struct hash_stream *stream);

/* 16 lower-case hex digits and a NUL; and back (false on anything else). */
void hash_hex(uint64_t hash, char out[17]);
bool hash_from_hex(struct str hex, uint64_t *out);

#endif
