/* A growing array of token ids, born with its ceiling. One owner. */
#ifndef CASCADIA_TEXT_TOKEN_LIST_H
#define CASCADIA_TEXT_TOKEN_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct token_list {
    uint32_t *ids;
    size_t n_ids;
    size_t room;      // ids allocated
    size_t n_ids_cap; // the ceiling
    bool overflowed;  // something did not fit
};

void token_list_init(struct token_list *list, size_t n_ids_cap);
void token_list_release(struct token_list *list); // zeroed and NULL values are fine
void token_list_clear(struct token_list *list);   // no ids, overflow forgotten, memory kept
/* Past the ceiling the list stops growing and remembers it; false then. */
bool token_list_add(struct token_list *list, uint32_t id);

#endif
