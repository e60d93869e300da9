/* What tokenizers ask about a code point: one table look-up. Any thread.
 *
 * Classes are those of Unicode 16, normalisation is that of Unicode 9, as in Hugging Face's
 * tokenizers: characters that came after 9 are stable and do not decompose. */
#ifndef CASCADIA_TEXT_UNICODE_TABLE_H
#define CASCADIA_TEXT_UNICODE_TABLE_H

#include <stdint.h>

/* Bits; the order is that of tools/make_unicode_table.mjs. */
enum unicode_property {
    UNICODE_UPPER = 1 << 0,       // Lu, Lt
    UNICODE_LOWER = 1 << 1,       // Ll
    UNICODE_CASELESS = 1 << 2,    // Lm, Lo
    UNICODE_MARK = 1 << 3,        // M
    UNICODE_NUMBER = 1 << 4,      // N
    UNICODE_PUNCTUATION = 1 << 5, // P
    UNICODE_SYMBOL = 1 << 6,      // S
    UNICODE_SPACE = 1 << 7,       // White_Space
    UNICODE_WORD = 1 << 8,        // \w: Alphabetic, M, Nd, Pc, Join_Control
    UNICODE_UNSTABLE = 1 << 9,    // NFC may change it, or any form join it to what is before it
    UNICODE_DECOMPOSES = 1 << 10, // NFKD changes it
    UNICODE_LETTER = UNICODE_UPPER | UNICODE_LOWER | UNICODE_CASELESS,
};

#define UNICODE_BLOCK_CODES 128
extern const uint16_t unicode_sets[];     // bits of each set of properties
extern const uint16_t unicode_block_of[]; // [code point / UNICODE_BLOCK_CODES]
extern const uint8_t unicode_blocks[][UNICODE_BLOCK_CODES];

static inline unsigned unicode_properties(uint32_t code_point) // up to U+10FFFF
{
    const uint8_t *block = unicode_blocks[unicode_block_of[code_point / UNICODE_BLOCK_CODES]];
    return unicode_sets[block[code_point % UNICODE_BLOCK_CODES]];
}

/* The next character of valid UTF-8; *size gets its bytes (1..4). Reads no further than them. */
static inline uint32_t unicode_next(const char *text, unsigned *size)
{
    const uint8_t *p = (const uint8_t *)text;
    if (p[0] < 0x80) {
        *size = 1;
        return p[0];
    }
    if (p[0] < 0xe0) {
        *size = 2;
        return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    }
    if (p[0] < 0xf0) {
        *size = 3;
        return (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    }
    *size = 4;
    return (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
}

#endif
