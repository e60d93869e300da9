/* Methods that answer questions: finding and counting in strings, kinds of characters; and the few
 * methods of dictionaries, sequences, loops and cyclers. */
#include "text/jinja_internal.h"

#include <string.h>

#include "text/unicode_case.h"

#define METHOD(name)                                                                               \
    static bool name(struct jinja_eval *eval, struct value self, const struct jinja_bound *args,   \
                     struct value *out)

/* ---- finding ---- */

/* The part of the text that start and end (arguments 1 and 2, in code points) leave. `before` is
 * the number of code points in front of it. False in *valid when start lies behind the end. */
static bool window(struct jinja_eval *eval, struct value self, const struct jinja_bound *args,
                   struct str *out, int64_t *before, bool *valid)
{
    struct str text = traced_str(self.string);
    int64_t length = (int64_t)jinja_length_points(text), ends[2] = { 0, length };
    for (size_t i = 0; i < 2; i++) {
        struct value end = args->values[i + 1];
        if (!args->given[i + 1] || end.type == VALUE_NONE)
            continue;
        if (!jinja_as_integer(end, &ends[i]))
            return jinja_raise(eval, "slice indices must be integers or None");
        ends[i] = ends[i] < 0 ? (ends[i] + length < 0 ? 0 : ends[i] + length) : ends[i];
    }
    *valid = ends[0] <= length;
    ends[1] = ends[1] > length ? length : ends[1];
    *valid = *valid && ends[0] <= ends[1];
    *before = ends[0];
    *out = STR_NONE;
    if (!*valid)
        return true;
    size_t first = 0;
    for (int64_t i = 0; i < ends[0]; i++)
        jinja_next_point(text, &first);
    size_t last = first;
    for (int64_t i = ends[0]; i < ends[1]; i++)
        jinja_next_point(text, &last);
    *out = str_slice(text, first, last);
    return jinja_work(eval, text.size);
}

static bool needle_arg(struct jinja_eval *eval, const struct jinja_bound *args, struct str *out)
{
    if (args->values[0].type != VALUE_STRING)
        return jinja_raise(eval, "must be str, not %s", jinja_type_name(args->values[0]));
    *out = traced_str(args->values[0].string);
    return true;
}

static size_t find_last(struct str text, struct str needle)
{
    if (needle.size > text.size)
        return SIZE_MAX;
    for (size_t at = text.size - needle.size + 1; at > 0; at--)
        if (needle.size == 0 || memcmp(text.data + at - 1, needle.data, needle.size) == 0)
            return at - 1;
    return SIZE_MAX;
}

/* Code point index of the needle, or -1. */
static bool find(struct jinja_eval *eval, struct value self, const struct jinja_bound *args,
                 bool from_right, int64_t *index)
{
    struct str text, needle;
    int64_t before;
    bool valid;
    if (!needle_arg(eval, args, &needle) || !window(eval, self, args, &text, &before, &valid))
        return false;
    size_t at = !valid ? SIZE_MAX : from_right ? find_last(text, needle) : str_find(text, needle);
    *index = at == SIZE_MAX ? -1 : before + (int64_t)jinja_length_points(str_slice(text, 0, at));
    return true;
}

METHOD(text_find)
{
    int64_t index;
    if (!find(eval, self, args, false, &index))
        return false;
    *out = value_integer(index);
    return true;
}

METHOD(text_rfind)
{
    int64_t index;
    if (!find(eval, self, args, true, &index))
        return false;
    *out = value_integer(index);
    return true;
}

METHOD(text_index)
{
    return text_find(eval, self, args, out) &&
           (out->integer >= 0 || jinja_raise(eval, "substring not found"));
}

METHOD(text_rindex)
{
    return text_rfind(eval, self, args, out) &&
           (out->integer >= 0 || jinja_raise(eval, "substring not found"));
}

METHOD(text_count)
{
    struct str text, needle;
    int64_t before, count = 0;
    bool valid;
    if (!needle_arg(eval, args, &needle) || !window(eval, self, args, &text, &before, &valid))
        return false;
    if (valid && needle.size == 0)
        count = (int64_t)jinja_length_points(text) + 1;
    for (size_t at = 0; needle.size > 0;) {
        size_t found = str_find(str_slice(text, at, text.size), needle);
        if (found == SIZE_MAX)
            break;
        at += found + needle.size;
        count++;
    }
    *out = value_integer(count);
    return true;
}

/* startswith and endswith: an affix, or a tuple of them. */
static bool has_affix(struct jinja_eval *eval, struct value self, const struct jinja_bound *args,
                      bool front, struct value *out)
{
    struct value one = args->values[0], *affixes = &one;
    size_t n = 1;
    struct str text;
    int64_t before;
    bool valid, found = false;
    if (one.type == VALUE_TUPLE) {
        affixes = one.list->items;
        n = one.list->size;
    }
    if (!window(eval, self, args, &text, &before, &valid))
        return false;
    for (size_t i = 0; i < n && !found; i++) {
        if (affixes[i].type != VALUE_STRING)
            return jinja_raise(eval, "%s first arg must be str or a tuple of str, not %s",
                               front ? "startswith" : "endswith", jinja_type_name(affixes[i]));
        struct str affix = traced_str(affixes[i].string);
        found = valid && (front ? str_starts(text, affix) : str_ends(text, affix));
    }
    *out = value_bool(found);
    return true;
}

METHOD(text_startswith)
{
    return has_affix(eval, self, args, true, out);
}

METHOD(text_endswith)
{
    return has_affix(eval, self, args, false, out);
}

/* ---- kinds of characters ---- */

static bool is_alnum(uint32_t point)
{
    return unicode_is_alpha(point) || unicode_is_decimal(point) || unicode_is_digit(point) ||
           unicode_is_numeric(point);
}

static bool is_ascii(uint32_t point)
{
    return point < 0x80;
}

/* Whether all characters pass; `empty` is the answer for the empty text. */
static bool all_points(struct jinja_eval *eval, struct value self, bool (*is)(uint32_t), bool empty,
                       struct value *out)
{
    struct str text = traced_str(self.string);
    bool all = text.size > 0 || empty;
    for (size_t at = 0; all && at < text.size;)
        all = is(jinja_next_point(text, &at));
    *out = value_bool(all);
    return jinja_work(eval, text.size);
}

#define KIND_METHOD(name, is, empty)                                                               \
    METHOD(name)                                                                                   \
    {                                                                                              \
        (void)args;                                                                                \
        return all_points(eval, self, is, empty, out);                                             \
    }

KIND_METHOD(text_isalnum, is_alnum, false)
KIND_METHOD(text_isalpha, unicode_is_alpha, false)
KIND_METHOD(text_isascii, is_ascii, true)
KIND_METHOD(text_isdecimal, unicode_is_decimal, false)
KIND_METHOD(text_isdigit, unicode_is_digit, false)
KIND_METHOD(text_isnumeric, unicode_is_numeric, false)
KIND_METHOD(text_isprintable, unicode_is_printable, true)
KIND_METHOD(text_isspace, unicode_is_space, false)

METHOD(text_isidentifier)
{
    struct str text = traced_str(self.string);
    bool digit = text.size > 0 && text.data[0] >= '0' && text.data[0] <= '9';
    (void)args;
    if (!all_points(eval, self, unicode_is_word, false, out))
        return false;
    out->boolean = out->boolean && !digit;
    return true;
}

/* No cased character of the other case, and at least one of this. */
static bool one_case(struct jinja_eval *eval, struct value self, bool upper, struct value *out)
{
    struct str text = traced_str(self.string);
    bool seen = false, other = false;
    for (size_t at = 0; !other && at < text.size;) {
        uint32_t point = jinja_next_point(text, &at);
        bool is_upper = unicode_is_upper(point), is_lower = unicode_is_lower(point);
        other = unicode_is_titlecase(point) || (upper ? is_lower : is_upper);
        seen = seen || (upper ? is_upper : is_lower);
    }
    *out = value_bool(seen && !other);
    return jinja_work(eval, text.size);
}

METHOD(text_islower)
{
    (void)args;
    return one_case(eval, self, false, out);
}

METHOD(text_isupper)
{
    (void)args;
    return one_case(eval, self, true, out);
}

/* Upper case only behind what has no case, lower case only behind what has one. */
METHOD(text_istitle)
{
    struct str text = traced_str(self.string);
    bool seen = false, after_cased = false, wrong = false;
    (void)args;
    for (size_t at = 0; !wrong && at < text.size;) {
        uint32_t point = jinja_next_point(text, &at);
        bool upper = unicode_is_upper(point) || unicode_is_titlecase(point);
        bool lower = unicode_is_lower(point);
        wrong = (upper && after_cased) || (lower && !after_cased);
        after_cased = upper || lower;
        seen = seen || after_cased;
    }
    *out = value_bool(seen && !wrong);
    return jinja_work(eval, text.size);
}

const struct jinja_method jinja_find_methods[] = {
    { "count", "/sub start= end=", text_count, NULL },
    { "endswith", "/suffix start= end=", text_endswith, NULL },
    { "find", "/sub start= end=", text_find, NULL },
    { "index", "/sub start= end=", text_index, NULL },
    { "isalnum", "/", text_isalnum, NULL },
    { "isalpha", "/", text_isalpha, NULL },
    { "isascii", "/", text_isascii, NULL },
    { "isdecimal", "/", text_isdecimal, NULL },
    { "isdigit", "/", text_isdigit, NULL },
    { "isidentifier", "/", text_isidentifier, NULL },
    { "islower", "/", text_islower, NULL },
    { "isnumeric", "/", text_isnumeric, NULL },
    { "isprintable", "/", text_isprintable, NULL },
    { "isspace", "/", text_isspace, NULL },
    { "istitle", "/", text_istitle, NULL },
    { "isupper", "/", text_isupper, NULL },
    { "rfind", "/sub start= end=", text_rfind, NULL },
    { "rindex", "/sub start= end=", text_rindex, NULL },
    { "startswith", "/prefix start= end=", text_startswith, NULL },
    { NULL, NULL, NULL, NULL },
};

/* ---- dictionaries ---- */

METHOD(dict_get)
{
    if (!value_hashable(args->values[0]))
        return jinja_raise(eval, "unhashable type: '%s'", jinja_type_name(args->values[0]));
    const struct value *found = value_dict_find(&self, args->values[0]);
    *out = found ? *found : args->given[1] ? args->values[1] : value_none();
    return true;
}

static bool view(struct jinja_eval *eval, struct value self, enum jinja_view kind,
                 struct value *out)
{
    struct value_dict_view *made = arena_alloc(&eval->arena, sizeof *made);
    if (!made)
        return jinja_no_memory(eval);
    *made = (struct value_dict_view){ self.dict, kind };
    *out = (struct value){ .type = VALUE_DICT_VIEW, .view = made };
    return true;
}

METHOD(dict_keys)
{
    (void)args;
    return view(eval, self, VIEW_KEYS, out);
}

METHOD(dict_values)
{
    (void)args;
    return view(eval, self, VIEW_VALUES, out);
}

METHOD(dict_items)
{
    (void)args;
    return view(eval, self, VIEW_ITEMS, out);
}

METHOD(copy)
{
    (void)eval, (void)args;
    *out = self; // nothing that a template can do would tell a copy from the original
    return true;
}

const struct jinja_method jinja_dict_methods[] = {
    { "copy", "/", copy, NULL },          { "get", "/key default=", dict_get, NULL },
    { "items", "/", dict_items, NULL },   { "keys", "/", dict_keys, NULL },
    { "values", "/", dict_values, NULL }, { NULL, NULL, NULL, NULL },
};

/* ---- sequences ---- */

METHOD(sequence_count)
{
    struct jinja_cursor cursor;
    struct value item;
    int64_t count = 0;
    bool more;
    if (!jinja_iterate(eval, self, &cursor))
        return false;
    while (true) {
        if (!jinja_step(eval) || !jinja_next(eval, &cursor, &item, &more))
            return false;
        if (!more)
            break;
        count += value_equal(item, args->values[0]);
    }
    *out = value_integer(count);
    return true;
}

METHOD(sequence_index)
{
    struct jinja_cursor cursor;
    struct value item;
    int64_t length = 0, bounds[2] = { 0, INT64_MAX };
    size_t n = 0;
    bool more;
    if (jinja_length(self, &n))
        length = (int64_t)n;
    for (size_t i = 0; i < 2; i++) {
        if (args->given[i + 1] && !jinja_as_integer(args->values[i + 1], &bounds[i]))
            return jinja_raise(eval, "slice indices must be integers");
        if (bounds[i] < 0)
            bounds[i] = bounds[i] + length < 0 ? 0 : bounds[i] + length;
    }
    if (!jinja_iterate(eval, self, &cursor))
        return false;
    for (int64_t index = 0;; index++) {
        if (!jinja_step(eval) || !jinja_next(eval, &cursor, &item, &more))
            return false;
        if (!more)
            return jinja_raise(eval, "the value is not in the list");
        if (index >= bounds[0] && index < bounds[1] && value_equal(item, args->values[0])) {
            *out = value_integer(index);
            return true;
        }
    }
}

const struct jinja_method jinja_sequence_methods[] = {
    { "copy", "/", copy, NULL },
    { "count", "/value", sequence_count, NULL },
    { "index", "/value start= end=", sequence_index, NULL },
    { NULL, NULL, NULL, NULL },
};

/* ---- loops and cyclers ---- */

static bool loop_cycle(struct jinja_eval *eval, struct value self, const struct jinja_args *args,
                       struct value *out)
{
    if (args->size == 0 || args->n_named > 0)
        return jinja_raise(eval, "no items for cycling given");
    *out = args->items[(size_t)self.loop->index0 % args->size];
    return true;
}

static bool loop_changed(struct jinja_eval *eval, struct value self, const struct jinja_args *args,
                         struct value *out)
{
    struct value_loop *loop = self.loop;
    struct value list;
    if (!value_list_new(&eval->arena, VALUE_TUPLE, &list))
        return jinja_no_memory(eval);
    for (size_t i = 0; i < args->size; i++)
        if (!value_list_add(&eval->arena, &list, args->items[i]))
            return jinja_no_memory(eval);
    *out = value_bool(!loop->has_changed || !value_equal(loop->changed, list));
    loop->changed = list;
    loop->has_changed = true;
    return true;
}

const struct jinja_method jinja_loop_methods[] = {
    { "changed", NULL, NULL, loop_changed },
    { "cycle", NULL, NULL, loop_cycle },
    { NULL, NULL, NULL, NULL },
};

METHOD(cycler_next)
{
    struct value_cycler *cycler = self.cycler;
    (void)eval, (void)args;
    *out = cycler->items->items[cycler->at];
    cycler->at = (cycler->at + 1) % cycler->items->size;
    return true;
}

METHOD(cycler_reset)
{
    (void)eval, (void)args;
    self.cycler->at = 0;
    *out = value_none();
    return true;
}

const struct jinja_method jinja_cycler_methods[] = {
    { "next", "/", cycler_next, NULL },
    { "reset", "/", cycler_reset, NULL },
    { NULL, NULL, NULL, NULL },
};
