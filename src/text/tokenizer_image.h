/* The content of a tokenizer.bin: one block of bytes with a header, sections and no pointers.
 * The layout is in docs/shard-format.md's words: little-endian, sections 64-byte aligned.
 * tokenizer_compile writes it, tokenizer_open_image checks it and points into it. */
#ifndef CASCADIA_TEXT_TOKENIZER_IMAGE_H
#define CASCADIA_TEXT_TOKENIZER_IMAGE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/str.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/tokenizer_spec.h"
#include "text/vocab.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKENIZER_IMAGE_MAGIC 0x314b4f5441435343u // "CSCATOK1"
#define TOKENIZER_IMAGE_VERSION 1u
#define TOKENIZER_IMAGE_ALIGN 64u

enum tokenizer_section {
    SECTION_KEY_ENDS,     // u32[n_tokens + 1] into SECTION_BYTES
    SECTION_TEXT_ENDS,    // u32[n_tokens + 1] into SECTION_BYTES
    SECTION_FLAGS,        // u8[n_tokens], enum vocab_flag
    SECTION_SLOTS,        // u32[a power of two], hash table of keys
    SECTION_MERGES,       // struct bpe_merge[a power of two], hash table of pairs
    SECTION_ADDED,        // struct added_token[], found in raw text
    SECTION_ADDED_NORMAL, // struct added_token[], found in normalised text
    SECTION_NORMALIZERS,  // struct tokenizer_image_rule[]
    SECTION_PRETOKENS,    // struct tokenizer_image_rule[]
    SECTION_BEFORE,       // u32[]: ids before a text
    SECTION_BEHIND,       // u32[]: ids behind a text
    SECTION_END_IDS,      // u32[], ascending
    SECTION_BYTES,        // all strings
    SECTION_COUNT,
};

enum tokenizer_image_flag {
    TOKENIZER_IMAGE_BYTE_LEVEL = 1 << 0,
    TOKENIZER_IMAGE_BYTE_FALLBACK = 1 << 1,
    TOKENIZER_IMAGE_FUSE_UNKNOWN = 1 << 2,
    TOKENIZER_IMAGE_CUT_AT_MARKS = 1 << 3, // no token has U+2581 behind another character
    TOKENIZER_IMAGE_FLAGS = (1 << 4) - 1,
};

struct tokenizer_image_rule {
    uint32_t kind;
    uint32_t detail; // NORMALIZER_STRIP: 1 left, 2 right. Pretoken: behaviour | invert << 8 |
                     // prefix << 16
    uint32_t find_first, find_size; // `find` or `pattern`, in SECTION_BYTES
    uint32_t with_first, with_size; // `with`
};

struct tokenizer_image_section {
    uint32_t first, size; // bytes from the start of the image
};

struct tokenizer_image_header {
    uint64_t magic;
    uint64_t hash; // XXH3 of everything behind this field
    uint64_t source_hash;
    uint32_t version;
    uint32_t size; // bytes of the image
    uint32_t n_tokens;
    uint32_t bos_id, unknown_id; // VOCAB_NO_ID when there is none
    uint32_t flags;              // enum tokenizer_image_flag
    uint32_t start;              // enum tokenizer_start
    uint32_t n_strip;
    struct tokenizer_image_section sections[SECTION_COUNT];
};

/* Compiles a spec into an image. ERR_FORMAT when it contradicts itself. */
bool tokenizer_compile(const struct tokenizer_spec *spec, struct buf *image, struct err *err);

/* A tokenizer over an image, which it owns from now on, on failure too: memory from buf_take, or
 * a map. NULL on failure. */
struct tokenizer *tokenizer_open_memory(char *image, size_t size, struct err *err);
struct tokenizer *tokenizer_open_map(struct file_map map, struct err *err);

/* A spec to a tokenizer: what the loaders end with. NULL on failure. */
struct tokenizer *tokenizer_open_spec(const struct tokenizer_spec *spec, struct err *err);

/* The bytes of the image. */
struct str tokenizer_image(const struct tokenizer *tokenizer);

/* The value that header.hash must have. */
uint64_t tokenizer_image_hash(const uint8_t *image, size_t size);

#endif
