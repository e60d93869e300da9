/* Doubling growth up to the ceiling; the first id that does not fit sets `overflowed`. */
#include "text/token_list.h"

#include <stdlib.h>

#include "base/memory.h"

void token_list_init(struct token_list *list, size_t n_ids_cap)
{
    *list = (struct token_list){ .n_ids_cap = n_ids_cap };
}

void token_list_release(struct token_list *list)
{
    if (!list)
        return;
    free(list->ids);
    *list = (struct token_list){ 0 };
}

void token_list_clear(struct token_list *list)
{
    list->n_ids = 0;
    list->overflowed = false;
}

bool token_list_add(struct token_list *list, uint32_t id)
{
    if (list->n_ids == list->n_ids_cap) {
        list->overflowed = true;
        return false;
    }
    if (list->n_ids == list->room) {
        size_t room = list->room ? list->room * 2 : 64;
        if (room > list->n_ids_cap)
            room = list->n_ids_cap;
        list->ids = xreallocarray(list->ids, room, sizeof list->ids[0]);
        list->room = room;
    }
    list->ids[list->n_ids++] = id;
    return true;
}
