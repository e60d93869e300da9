/* The vocabulary: what every id is called, and which id a text has.
 *
 * A token has a key, by which the merges' model finds it (raw bytes for byte-level vocabularies,
 * the text with its blank marks for the others), and a text, the bytes that it decodes to. The
 * arrays belong to a tokenizer image (tokenizer_image.h). Read-only: any thread. */
#ifndef CASCADIA_TEXT_VOCAB_H
#define CASCADIA_TEXT_VOCAB_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VOCAB_NO_ID UINT32_MAX

enum vocab_flag {
    VOCAB_MODEL = 1 << 0,   // text becomes this token: its key is in the hash table
    VOCAB_WHOLE = 1 << 1,   // ... and a piece equal to the key is this one token
    VOCAB_SPECIAL = 1 << 2, // not shown to people
    VOCAB_CONTROL = 1 << 3, // never made of a user's text
};

struct vocab {
    uint32_t n_tokens;
    const uint32_t *key_ends;  // [n_tokens + 1]: key of id is bytes [key_ends[id], key_ends[id+1])
    const uint32_t *text_ends; // the same for texts
    const char *bytes;         // keys and texts
    const uint8_t *flags;      // [n_tokens] of enum vocab_flag
    const uint32_t *slots;     // [slot_mask + 1] ids, open-addressed by hash of the key
    uint32_t slot_mask;
};

static inline struct str vocab_key(const struct vocab *vocab, uint32_t id)
{
    const uint32_t first = vocab->key_ends[id];
    return (struct str){ vocab->bytes + first, vocab->key_ends[id + 1] - first };
}

static inline struct str vocab_text(const struct vocab *vocab, uint32_t id)
{
    const uint32_t first = vocab->text_ends[id];
    return (struct str){ vocab->bytes + first, vocab->text_ends[id + 1] - first };
}

/* The VOCAB_MODEL token with this key, or VOCAB_NO_ID. */
uint32_t vocab_find(const struct vocab *vocab, struct str key);

/* Fills slots[slot_mask + 1] with every VOCAB_MODEL token; the first of equal keys is found. There
 * must be more slots than tokens. */
void vocab_index(const struct vocab *vocab, uint32_t *slots, uint32_t slot_mask);

#endif
