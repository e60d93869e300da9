/* Filters on sequences. Those that are generators in Jinja2 give iterators, whose work is done when
 * the first item is asked for: `none | map('upper')` is then no error, as it is none there. */
#include "text/jinja_internal.h"

#define FILTER(name)                                                                               \
    static bool name(struct jinja_eval *eval, struct value subject,                                \
                     const struct jinja_bound *args, struct value *out)

#define MAKER(name)                                                                                \
    static bool name(struct jinja_eval *eval, struct value_iterator *iterator, struct value *out)

static bool add(struct jinja_eval *eval, struct value *list, struct value item)
{
    return value_list_add(&eval->arena, list, item) || jinja_no_memory(eval);
}

static bool new_list(struct jinja_eval *eval, struct value *list)
{
    return value_list_new(&eval->arena, VALUE_LIST, list) || jinja_no_memory(eval);
}

/* ---- sorting ---- */

/* Merges [first, middle) and [middle, last) of `from` into `to`. */
static bool merge(struct jinja_eval *eval, const struct value *keys, bool reverse,
                  const size_t *from, size_t *to, const size_t bounds[3])
{
    size_t left = bounds[0], right = bounds[1];
    for (size_t at = bounds[0]; at < bounds[2]; at++) {
        bool take_right = left == bounds[1];
        if (left < bounds[1] && right < bounds[2]) {
            struct value a = keys[from[reverse ? left : right]];
            struct value b = keys[from[reverse ? right : left]];
            if (!jinja_less(eval, a, b, &take_right))
                return false;
        }
        to[at] = from[take_right ? right++ : left++];
    }
    return true;
}

bool jinja_sort(struct jinja_eval *eval, const struct value *keys, size_t n_keys, bool reverse,
                size_t **order)
{
    size_t *from = arena_array(&eval->arena, n_keys + 1, sizeof *from);
    size_t *to = arena_array(&eval->arena, n_keys + 1, sizeof *to);
    if (!from || !to)
        return jinja_no_memory(eval);
    for (size_t i = 0; i < n_keys; i++)
        from[i] = i;
    for (size_t width = 1; width < n_keys; width *= 2) {
        for (size_t first = 0; first < n_keys; first += 2 * width) {
            size_t middle = first + width < n_keys ? first + width : n_keys;
            size_t last = middle + width < n_keys ? middle + width : n_keys;
            if (!merge(eval, keys, reverse, from, to, (size_t[3]){ first, middle, last }))
                return false;
        }
        size_t *swapped = from;
        from = to;
        to = swapped;
    }
    *order = from;
    return true;
}

/* What case-insensitive filters compare: strings in lower case. */
static bool fold(struct jinja_eval *eval, bool case_sensitive, struct value *key)
{
    return case_sensitive || key->type != VALUE_STRING ||
           jinja_change_case(eval, *key, CASE_LOWER, key);
}

/* The key by which `sort` compares an item: a list, one part for each attribute of "a,b". */
static bool sort_key(struct jinja_eval *eval, struct value item, struct value attribute,
                     bool case_sensitive, struct value *out)
{
    struct value keys, key;
    if (!new_list(eval, &keys))
        return false;
    if (attribute.type != VALUE_STRING) {
        *out = keys;
        return jinja_get_path(eval, item, attribute, NULL, &key) &&
               fold(eval, case_sensitive, &key) && add(eval, &keys, key);
    }
    struct str all = traced_str(attribute.string), rest = all, part;
    while (str_split(&rest, ',', &part)) {
        size_t first = (size_t)(part.data - all.data);
        struct value path = value_text(jinja_piece(attribute, first, first + part.size));
        if (!jinja_get_path(eval, item, path, NULL, &key) || !fold(eval, case_sensitive, &key) ||
            !add(eval, &keys, key))
            return false;
    }
    *out = keys;
    return true;
}

static bool reorder(struct jinja_eval *eval, struct value items, const struct value *keys,
                    bool reverse, struct value *out)
{
    size_t *order;
    struct value sorted;
    if (!jinja_sort(eval, keys, items.list->size, reverse, &order) || !new_list(eval, &sorted))
        return false;
    for (size_t i = 0; i < items.list->size; i++)
        if (!add(eval, &sorted, items.list->items[order[i]]))
            return false;
    *out = sorted;
    return true;
}

static bool truth_arg(const struct jinja_bound *args, size_t at)
{
    return args->given[at] && jinja_truth(args->values[at]);
}

/* An argument, or none when it is left out. */
static struct value arg_or_none(const struct jinja_bound *args, size_t at)
{
    return args->given[at] ? args->values[at] : value_none();
}

FILTER(filter_sort)
{
    struct value items;
    if (!jinja_collect(eval, subject, VALUE_LIST, &items))
        return false;
    struct value *keys = arena_array(&eval->arena, items.list->size + 1, sizeof *keys);
    if (!keys)
        return jinja_no_memory(eval);
    for (size_t i = 0; i < items.list->size; i++)
        if (!sort_key(eval, items.list->items[i], arg_or_none(args, 2), truth_arg(args, 1),
                      &keys[i]))
            return false;
    return reorder(eval, items, keys, truth_arg(args, 0), out);
}

static bool dict_items(struct jinja_eval *eval, const struct value_dict *dict, struct value *out)
{
    struct value_dict_view view = { dict, VIEW_ITEMS };
    return jinja_collect(eval, (struct value){ .type = VALUE_DICT_VIEW, .view = &view }, VALUE_LIST,
                         out);
}

FILTER(filter_dictsort)
{
    struct value items;
    struct str by = args->given[1] && args->values[1].type == VALUE_STRING
                        ? traced_str(args->values[1].string)
                        : STR("key");
    if (!str_is(by, "key") && !str_is(by, "value"))
        return jinja_raise(eval, "You can only sort by either \"key\" or \"value\"");
    if (subject.type == VALUE_UNDEFINED)
        return jinja_raise_undefined(eval, subject);
    if (subject.type != VALUE_DICT)
        return jinja_raise(eval, "'%s' object has no attribute 'items'", jinja_type_name(subject));
    if (!dict_items(eval, subject.dict, &items))
        return false;
    struct value *keys = arena_array(&eval->arena, items.list->size + 1, sizeof *keys);
    if (!keys)
        return jinja_no_memory(eval);
    for (size_t i = 0; i < items.list->size; i++) {
        keys[i] = items.list->items[i].list->items[str_is(by, "value")];
        if (!fold(eval, truth_arg(args, 0), &keys[i]))
            return false;
    }
    return reorder(eval, items, keys, truth_arg(args, 2), out);
}

/* ---- reductions ---- */

FILTER(filter_length)
{
    size_t length;
    (void)args;
    if (!jinja_length(subject, &length))
        return jinja_raise(eval, "object of type '%s' has no len()", jinja_type_name(subject));
    *out = value_integer((int64_t)length);
    return subject.type != VALUE_STRING || jinja_work(eval, traced_size(subject.string));
}

FILTER(filter_first)
{
    struct jinja_cursor cursor;
    bool more;
    (void)args;
    if (!jinja_iterate(eval, subject, &cursor) || !jinja_next(eval, &cursor, out, &more))
        return false;
    if (!more)
        *out = jinja_undefined("No first item, sequence was empty.");
    return true;
}

FILTER(filter_last)
{
    size_t length;
    (void)args;
    if (!jinja_length(subject, &length))
        return jinja_raise(eval, "'%s' object is not reversible", jinja_type_name(subject));
    if (length == 0) {
        *out = jinja_undefined("No last item, sequence was empty.");
        return true;
    }
    if (subject.type == VALUE_STRING)
        return jinja_get_item(eval, subject, value_integer(-1), out);
    return jinja_item_at(eval, subject, length - 1, out);
}

FILTER(filter_list)
{
    (void)args;
    return jinja_collect(eval, subject, VALUE_LIST, out);
}

FILTER(filter_join)
{
    struct value items = subject, separator, attribute = arg_or_none(args, 1);
    if (!jinja_text(eval, STR_NONE, &separator) ||
        (args->given[0] && !jinja_to_text(eval, args->values[0], &separator)))
        return false;
    if (attribute.type != VALUE_NONE) {
        if (!jinja_collect(eval, subject, VALUE_LIST, &items))
            return false;
        for (size_t i = 0; i < items.list->size; i++)
            if (!jinja_get_path(eval, items.list->items[i], attribute, NULL, &items.list->items[i]))
                return false;
    }
    struct value texts;
    if (!jinja_collect(eval, items, VALUE_LIST, &texts))
        return false;
    for (size_t i = 0; i < texts.list->size; i++)
        if (!jinja_to_text(eval, texts.list->items[i], &texts.list->items[i]))
            return false;
    return jinja_join(eval, texts, separator, out);
}

FILTER(filter_sum)
{
    struct value items, sum = args->given[1] ? args->values[1] : value_integer(0);
    struct value attribute = arg_or_none(args, 0);
    if (sum.type == VALUE_STRING)
        return jinja_raise(eval, "sum() can't sum strings [use ''.join(seq) instead]");
    if (!jinja_collect(eval, subject, VALUE_LIST, &items))
        return false;
    for (size_t i = 0; i < items.list->size; i++) {
        struct value item = items.list->items[i];
        if (!jinja_get_path(eval, item, attribute, NULL, &item) ||
            !jinja_arithmetic(eval, TOKEN_ADD, sum, item, &sum))
            return false;
    }
    *out = sum;
    return true;
}

/* The first of the smallest (or largest) items. */
static bool extreme(struct jinja_eval *eval, struct value subject, const struct jinja_bound *args,
                    bool largest, struct value *out)
{
    struct value items, best = { 0 };
    if (!jinja_collect(eval, subject, VALUE_LIST, &items))
        return false;
    *out = jinja_undefined("No aggregated item, sequence was empty.");
    for (size_t i = 0; i < items.list->size; i++) {
        struct value item = items.list->items[i], key;
        bool better = i == 0;
        if (!jinja_get_path(eval, item, arg_or_none(args, 1), NULL, &key) ||
            !fold(eval, truth_arg(args, 0), &key))
            return false;
        if (i > 0 && !jinja_less(eval, largest ? best : key, largest ? key : best, &better))
            return false;
        if (better) {
            best = key;
            *out = item;
        }
    }
    return true;
}

FILTER(filter_min)
{
    return extreme(eval, subject, args, false, out);
}

FILTER(filter_max)
{
    return extreme(eval, subject, args, true, out);
}

/* ---- generators ---- */

MAKER(make_items)
{
    struct value subject = iterator->subject;
    if (subject.type == VALUE_UNDEFINED)
        return new_list(eval, out);
    if (subject.type != VALUE_DICT)
        return jinja_raise(eval, "Can only get item pairs from a mapping.");
    return dict_items(eval, subject.dict, out);
}

FILTER(filter_items)
{
    (void)args;
    return jinja_iterator_new(eval, make_items, subject, NULL, out);
}

FILTER(filter_reverse)
{
    struct value items, reversed;
    size_t length;
    (void)args;
    if (subject.type == VALUE_STRING) {
        struct value_slice backwards = { value_none(), value_none(), value_integer(-1) };
        return jinja_slice(eval, subject, &backwards, out);
    }
    if (!jinja_collect(eval, subject, VALUE_LIST, &items) || !new_list(eval, &reversed))
        return false;
    for (size_t i = items.list->size; i > 0; i--)
        if (!add(eval, &reversed, items.list->items[i - 1]))
            return false;
    *out = reversed; // Python cannot walk a generator backwards, so there it makes a list
    return !jinja_length(subject, &length) || jinja_iterator_over(eval, reversed, out);
}

MAKER(make_unique)
{
    const struct jinja_args *args = &iterator->args; // case_sensitive, attribute
    struct jinja_cursor cursor;
    struct value seen, item, key;
    bool more;
    if (!jinja_iterate(eval, iterator->subject, &cursor) || !new_list(eval, out))
        return false;
    if (!value_dict_new(&eval->arena, &seen))
        return jinja_no_memory(eval);
    while (true) {
        if (!jinja_step(eval) || !jinja_next(eval, &cursor, &item, &more))
            return false;
        if (!more)
            return true;
        if (!jinja_get_path(eval, item, args->items[1], NULL, &key) ||
            !fold(eval, args->items[0].boolean, &key))
            return false;
        if (!value_hashable(key))
            return jinja_raise(eval, "unhashable type: '%s'", jinja_type_name(key));
        if (value_dict_find(&seen, key))
            continue;
        if (!value_dict_set(&eval->arena, &seen, key, value_none()))
            return jinja_no_memory(eval);
        if (!add(eval, out, item))
            return false;
    }
}

FILTER(filter_unique)
{
    struct jinja_args kept = { .size = 2 };
    kept.items = arena_array(&eval->arena, 2, sizeof *kept.items);
    if (!kept.items)
        return jinja_no_memory(eval);
    kept.items[0] = value_bool(truth_arg(args, 0));
    kept.items[1] = arg_or_none(args, 1);
    return jinja_iterator_new(eval, make_unique, subject, &kept, out);
}

static bool find_named(const struct jinja_args *args, const char *name, struct value *out)
{
    for (size_t i = 0; i < args->n_named; i++)
        if (str_is(args->named[i].name, name)) {
            *out = args->named[i].value;
            return true;
        }
    return false;
}

/* map(attribute='a', default=0): the attribute of each item. */
static bool map_attribute(struct jinja_eval *eval, const struct jinja_args *args,
                          struct value attribute, struct value item, struct value *out)
{
    struct value otherwise = value_none();
    bool has_default = find_named(args, "default", &otherwise);
    if (args->n_named != (has_default ? 2u : 1u))
        return jinja_raise(eval, "map got an unexpected keyword argument");
    return jinja_get_path(eval, item, attribute, &otherwise, out);
}

/* map('name', ...): the filter `name` on each item. */
static bool map_filter(struct jinja_eval *eval, const struct jinja_args *args, struct value item,
                       struct value *out)
{
    if (args->size == 0)
        return jinja_raise(eval, "map requires a filter argument");
    struct value name = args->items[0];
    struct str text = name.type == VALUE_STRING ? traced_str(name.string) : STR_NONE;
    const struct jinja_filter *filter = jinja_filter_find(text);
    if (!filter)
        return jinja_raise(eval, "No filter named '%.*s'.", STR_ARG(text));
    struct jinja_args rest = *args;
    rest.items++;
    rest.size--;
    return jinja_apply_filter(eval, filter, item, &rest, out);
}

MAKER(make_map)
{
    const struct jinja_args *args = &iterator->args;
    struct jinja_cursor cursor;
    struct value item, attribute;
    bool more, by_attribute = args->size == 0 && find_named(args, "attribute", &attribute);
    if (!new_list(eval, out))
        return false;
    if (!jinja_truth(iterator->subject))
        return true;
    if (!jinja_iterate(eval, iterator->subject, &cursor))
        return false;
    while (true) {
        if (!jinja_step(eval) || !jinja_next(eval, &cursor, &item, &more))
            return false;
        if (!more)
            return true;
        if (by_attribute ? !map_attribute(eval, args, attribute, item, &item)
                         : !map_filter(eval, args, item, &item))
            return false;
        if (!add(eval, out, item))
            return false;
    }
}

static bool filter_map(struct jinja_eval *eval, struct value subject, const struct jinja_args *args,
                       struct value *out)
{
    return jinja_iterator_new(eval, make_map, subject, args, out);
}

/* Whether select and its kin keep an item: by its truth, or by the test that args name. */
static bool holds(struct jinja_eval *eval, const struct jinja_args *args, struct value item,
                  bool *out)
{
    if (args->size == 0) {
        *out = jinja_truth(item);
        return true;
    }
    struct value name = args->items[0];
    struct str text = name.type == VALUE_STRING ? traced_str(name.string) : STR_NONE;
    const struct jinja_test *test = jinja_test_find(text);
    if (!test)
        return jinja_raise(eval, "No test named '%.*s'.", STR_ARG(text));
    struct jinja_args rest = *args;
    rest.items++;
    rest.size--;
    return jinja_apply_test(eval, test, item, &rest, out);
}

static bool select_items(struct jinja_eval *eval, struct value_iterator *iterator,
                         bool by_attribute, bool wanted, struct value *out)
{
    struct jinja_args args = iterator->args;
    struct jinja_cursor cursor;
    struct value item, tested, attribute = value_none();
    bool more, is;
    if (!new_list(eval, out))
        return false;
    if (!jinja_truth(iterator->subject))
        return true;
    if (by_attribute) {
        if (args.size == 0)
            return jinja_raise(eval, "Missing parameter for attribute name");
        attribute = args.items[0];
        args.items++;
        args.size--;
    }
    if (!jinja_iterate(eval, iterator->subject, &cursor))
        return false;
    while (true) {
        if (!jinja_step(eval) || !jinja_next(eval, &cursor, &item, &more))
            return false;
        if (!more)
            return true;
        if (!jinja_get_path(eval, item, attribute, NULL, &tested) ||
            !holds(eval, &args, tested, &is) || (is == wanted && !add(eval, out, item)))
            return false;
    }
}

MAKER(make_select)
{
    return select_items(eval, iterator, false, true, out);
}

MAKER(make_reject)
{
    return select_items(eval, iterator, false, false, out);
}

MAKER(make_selectattr)
{
    return select_items(eval, iterator, true, true, out);
}

MAKER(make_rejectattr)
{
    return select_items(eval, iterator, true, false, out);
}

#define GENERATOR(name)                                                                            \
    static bool filter_##name(struct jinja_eval *eval, struct value subject,                       \
                              const struct jinja_args *args, struct value *out)                    \
    {                                                                                              \
        return jinja_iterator_new(eval, make_##name, subject, args, out);                          \
    }

GENERATOR(select)
GENERATOR(reject)
GENERATOR(selectattr)
GENERATOR(rejectattr)

const struct jinja_filter jinja_sequence_filters[] = {
    { "count", "", filter_length, NULL },
    { "dictsort", "case_sensitive= by= reverse=", filter_dictsort, NULL },
    { "first", "", filter_first, NULL },
    { "items", "", filter_items, NULL },
    { "join", "d= attribute=", filter_join, NULL },
    { "last", "", filter_last, NULL },
    { "length", "", filter_length, NULL },
    { "list", "", filter_list, NULL },
    { "map", NULL, NULL, filter_map },
    { "max", "case_sensitive= attribute=", filter_max, NULL },
    { "min", "case_sensitive= attribute=", filter_min, NULL },
    { "reject", NULL, NULL, filter_reject },
    { "rejectattr", NULL, NULL, filter_rejectattr },
    { "reverse", "", filter_reverse, NULL },
    { "select", NULL, NULL, filter_select },
    { "selectattr", NULL, NULL, filter_selectattr },
    { "sort", "reverse= case_sensitive= attribute=", filter_sort, NULL },
    { "sum", "attribute= start=", filter_sum, NULL },
    { "unique", "case_sensitive= attribute=", filter_unique, NULL },
    { NULL, NULL, NULL, NULL },
};
