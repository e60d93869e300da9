/* Everything that Python can iterate, behind one cursor.
 *
 * Generators of Python are iterators here: their items are all made when the first one is asked
 * for. What they cannot do (no length, no index, true even when empty, empty the second time) is
 * kept, because templates depend on it. */
#include "text/jinja_internal.h"

bool jinja_is_iterable(struct value value)
{
    switch (value.type) {
    case VALUE_UNDEFINED:
    case VALUE_STRING:
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_DICT:
    case VALUE_RANGE:
    case VALUE_ITERATOR:
    case VALUE_DICT_VIEW:
        return true;
    default:
        return false;
    }
}

bool jinja_iterate(struct jinja_eval *eval, struct value subject, struct jinja_cursor *cursor)
{
    if (!jinja_is_iterable(subject))
        return jinja_raise(eval, "'%s' object is not iterable", jinja_type_name(subject));
    *cursor = (struct jinja_cursor){ .subject = subject };
    return true;
}

static bool make_items(struct jinja_eval *eval, struct value_iterator *iterator)
{
    if (iterator->made)
        return true;
    if (iterator->making)
        return jinja_raise(eval, "generator already executing");
    iterator->making = true;
    if (!iterator->make(eval, iterator, &iterator->items))
        return false;
    iterator->made = true;
    return true;
}

static bool view_item(struct jinja_eval *eval, const struct value_dict_view *view, size_t at,
                      struct value *out)
{
    const struct value_entry *entry = &view->dict->entries[at];
    if (view->view != VIEW_ITEMS) {
        *out = view->view == VIEW_KEYS ? entry->key : entry->value;
        return true;
    }
    return (value_list_new(&eval->arena, VALUE_TUPLE, out) &&
            value_list_add(&eval->arena, out, entry->key) &&
            value_list_add(&eval->arena, out, entry->value)) ||
           jinja_no_memory(eval);
}

static bool next_of_iterator(struct jinja_eval *eval, struct value_iterator *iterator,
                             struct value *item, bool *more)
{
    if (!make_items(eval, iterator))
        return false;
    *more = iterator->at < iterator->items.list->size;
    if (*more)
        *item = iterator->items.list->items[iterator->at++];
    return true;
}

bool jinja_next(struct jinja_eval *eval, struct jinja_cursor *cursor, struct value *item,
                bool *more)
{
    struct value subject = cursor->subject;
    size_t length;
    if (subject.type == VALUE_ITERATOR)
        return next_of_iterator(eval, subject.iterator, item, more);
    if (subject.type == VALUE_STRING) { // `at` is a byte offset
        size_t first = cursor->at;
        *more = first < traced_size(subject.string);
        if (!*more)
            return true;
        jinja_next_point(traced_str(subject.string), &cursor->at);
        *item = value_text(jinja_piece(subject, first, cursor->at));
        return true;
    }
    *more = jinja_length(subject, &length) && cursor->at < length;
    return !*more || jinja_item_at(eval, subject, cursor->at++, item);
}

int64_t jinja_range_at(const struct value_range *range, int64_t at)
{
    return (int64_t)((uint64_t)range->first + (uint64_t)at * (uint64_t)range->step);
}

bool jinja_item_at(struct jinja_eval *eval, struct value value, size_t at, struct value *out)
{
    switch (value.type) {
    case VALUE_LIST:
    case VALUE_TUPLE:
        *out = value.list->items[at];
        return true;
    case VALUE_DICT:
        *out = value.dict->entries[at].key;
        return true;
    case VALUE_RANGE:
        *out = value_integer(jinja_range_at(value.range, (int64_t)at));
        return true;
    default:
        return view_item(eval, value.view, at, out);
    }
}

bool jinja_length(struct value value, size_t *out)
{
    switch (value.type) {
    case VALUE_UNDEFINED:
        *out = 0;
        return true;
    case VALUE_STRING:
        *out = jinja_length_points(traced_str(value.string));
        return true;
    case VALUE_LIST:
    case VALUE_TUPLE:
        *out = value.list->size;
        return true;
    case VALUE_DICT:
        *out = value.dict->size;
        return true;
    case VALUE_RANGE:
        *out = (size_t)value.range->size;
        return true;
    case VALUE_DICT_VIEW:
        *out = value.view->dict->size;
        return true;
    default:
        return false;
    }
}

bool jinja_collect(struct jinja_eval *eval, struct value subject, enum value_type type,
                   struct value *out)
{
    struct jinja_cursor cursor;
    struct value list, item;
    bool more;
    if (!jinja_iterate(eval, subject, &cursor))
        return false;
    if (!value_list_new(&eval->arena, type, &list))
        return jinja_no_memory(eval);
    while (true) {
        if (!jinja_next(eval, &cursor, &item, &more))
            return false;
        if (!more)
            break;
        if (!value_list_add(&eval->arena, &list, item))
            return jinja_no_memory(eval);
    }
    *out = list;
    return jinja_steps(eval, list.list->size / 8);
}

bool jinja_iterator_new(struct jinja_eval *eval,
                        bool (*make)(struct jinja_eval *, struct value_iterator *, struct value *),
                        struct value subject, const struct jinja_args *args, struct value *out)
{
    struct value_iterator *iterator = arena_alloc(&eval->arena, sizeof *iterator);
    if (!iterator)
        return jinja_no_memory(eval);
    iterator->make = make;
    iterator->subject = subject;
    if (args)
        iterator->args = *args;
    *out = (struct value){ .type = VALUE_ITERATOR, .iterator = iterator };
    return true;
}

bool jinja_iterator_over(struct jinja_eval *eval, struct value list, struct value *out)
{
    if (!jinja_iterator_new(eval, NULL, list, NULL, out))
        return false;
    out->iterator->items = list;
    out->iterator->made = true;
    return true;
}
