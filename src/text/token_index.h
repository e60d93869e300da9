/* Texts to their numbers, while a tokenizer is being loaded. One owner. */
#ifndef CASCADIA_TEXT_TOKEN_INDEX_H
#define CASCADIA_TEXT_TOKEN_INDEX_H

#include "base/str.h"

#include <stddef.h>
#include <stdint.h>

#define TOKEN_INDEX_NONE UINT32_MAX

struct token_index {
    const struct str *texts; // borrowed
    uint32_t *slots;
    uint32_t slot_mask;
};

/* Entries with data NULL are left out; the first of equal texts is found. */
void token_index_init(struct token_index *index, const struct str *texts, size_t n_texts);
void token_index_release(struct token_index *index); // zeroed values are fine

uint32_t token_index_find(const struct token_index *index, struct str text);

/* The number of the text that is a and b joined. */
uint32_t token_index_find_joined(const struct token_index *index, struct str a, struct str b);

#endif
