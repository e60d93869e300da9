/* Methods that make new values: of strings, dictionaries, sequences and loops; and the look-up. */
#include "text/jinja_internal.h"

#include <string.h>

#include "text/unicode_case.h"

#define METHOD(name)                                                                               \
    static bool name(struct jinja_eval *eval, struct value self, const struct jinja_bound *args,   \
                     struct value *out)

static bool text_arg(struct jinja_eval *eval, struct value self, const struct jinja_bound *args,
                     size_t at, struct value *out)
{
    *out = args->values[at];
    if (out->type != VALUE_STRING)
        return jinja_raise(eval, "argument %zu must be str, not %s", at + 1, jinja_type_name(*out));
    if (!self.markup)
        return true;
    return jinja_escape(eval, *out, out); // methods of markup escape what they are given
}

static bool integer_arg(struct jinja_eval *eval, const struct jinja_bound *args, size_t at,
                        int64_t otherwise, int64_t *out)
{
    *out = otherwise;
    return !args->given[at] || jinja_as_integer(args->values[at], out) ||
           jinja_raise(eval, "'%s' object cannot be interpreted as an integer",
                       jinja_type_name(args->values[at]));
}

/* ---- case ---- */

#define CASE_METHOD(name, how)                                                                     \
    METHOD(name)                                                                                   \
    {                                                                                              \
        (void)args;                                                                                \
        return jinja_change_case(eval, self, how, out);                                            \
    }

CASE_METHOD(text_upper, CASE_UPPER)
CASE_METHOD(text_lower, CASE_LOWER)
CASE_METHOD(text_title, CASE_TITLE)
CASE_METHOD(text_swapcase, CASE_SWAP)
CASE_METHOD(text_casefold, CASE_FOLD)
CASE_METHOD(text_capitalize, CASE_CAPITALIZE)

/* ---- stripping and padding ---- */

static bool strip(struct jinja_eval *eval, struct value self, const struct jinja_bound *args,
                  enum jinja_side side, struct value *out)
{
    if (args->given[0] && args->values[0].type != VALUE_NONE &&
        args->values[0].type != VALUE_STRING)
        return jinja_raise(eval, "strip arg must be None or str, not %s",
                           jinja_type_name(args->values[0]));
    return jinja_strip(eval, self, args->values[0], side, out);
}

METHOD(text_strip)
{
    return strip(eval, self, args, SIDE_BOTH, out);
}

METHOD(text_lstrip)
{
    return strip(eval, self, args, SIDE_LEFT, out);
}

METHOD(text_rstrip)
{
    return strip(eval, self, args, SIDE_RIGHT, out);
}

static bool pad(struct jinja_eval *eval, struct value self, const struct jinja_bound *args,
                enum jinja_side side, struct value *out)
{
    int64_t width, length = (int64_t)jinja_length_points(traced_str(self.string));
    struct value fill = value_none();
    if (!integer_arg(eval, args, 0, 0, &width) ||
        (args->given[1] && !text_arg(eval, self, args, 1, &fill)))
        return false;
    int64_t room = width > length ? width - length : 0;
    int64_t before = side == SIDE_LEFT    ? room
                     : side == SIDE_RIGHT ? 0
                                          : room / 2 + (room & width & 1);
    return jinja_pad(eval, self, (size_t)before, (size_t)(room - before), fill, out);
}

METHOD(text_center)
{
    return pad(eval, self, args, SIDE_BOTH, out);
}

METHOD(text_ljust)
{
    return pad(eval, self, args, SIDE_RIGHT, out);
}

METHOD(text_rjust)
{
    return pad(eval, self, args, SIDE_LEFT, out);
}

METHOD(text_zfill)
{
    int64_t width, length = (int64_t)jinja_length_points(traced_str(self.string));
    struct value zero, sign, rest;
    struct str text = traced_str(self.string);
    size_t signs = text.size > 0 && (text.data[0] == '-' || text.data[0] == '+');
    if (!integer_arg(eval, args, 0, 0, &width) || !jinja_text(eval, STR("0"), &zero))
        return false;
    sign = value_text(jinja_piece(self, 0, signs));
    rest = value_text(jinja_piece(self, signs, text.size));
    size_t room = width > length ? (size_t)(width - length) : 0;
    return jinja_pad(eval, rest, room, 0, zero, &rest) &&
           jinja_arithmetic(eval, TOKEN_ADD, sign, rest, out);
}

/* ---- replacing and joining ---- */

METHOD(text_replace)
{
    struct value old, new;
    int64_t count;
    return text_arg(eval, self, args, 0, &old) && text_arg(eval, self, args, 1, &new) &&
           integer_arg(eval, args, 2, -1, &count) &&
           jinja_replace(eval, self, old, new, count, out);
}

METHOD(text_join)
{
    struct value items;
    if (!jinja_collect(eval, args->values[0], VALUE_LIST, &items))
        return false;
    for (size_t i = 0; self.markup && i < items.list->size; i++)
        if (!jinja_escape(eval, items.list->items[i], &items.list->items[i]))
            return false;
    if (!jinja_join(eval, items, self, out))
        return false;
    out->markup = self.markup;
    return true;
}

static bool remove_affix(struct jinja_eval *eval, struct value self, const struct jinja_bound *args,
                         bool front, struct value *out)
{
    struct value affix;
    struct str text = traced_str(self.string);
    if (!text_arg(eval, self, args, 0, &affix))
        return false;
    struct str part = traced_str(affix.string);
    bool found = front ? str_starts(text, part) : str_ends(text, part);
    size_t cut = found ? part.size : 0;
    *out = value_text(jinja_piece(self, front ? cut : 0, text.size - (front ? 0 : cut)));
    out->markup = self.markup;
    return true;
}

METHOD(text_removeprefix)
{
    return remove_affix(eval, self, args, true, out);
}

METHOD(text_removesuffix)
{
    return remove_affix(eval, self, args, false, out);
}

static bool text_format(struct jinja_eval *eval, struct value self, const struct jinja_args *args,
                        struct value *out)
{
    return jinja_format_braces(eval, self, args, out);
}

/* ---- splitting ---- */

static bool add_piece(struct jinja_eval *eval, struct value self, size_t first, size_t last,
                      struct value *list)
{
    struct value piece = value_text(jinja_piece(self, first, last));
    piece.markup = self.markup;
    return jinja_step(eval) && (value_list_add(&eval->arena, list, piece) || jinja_no_memory(eval));
}

/* Offset behind white space, or behind what is none, from `at`. */
static size_t skip_space(struct str text, size_t at, bool space)
{
    while (at < text.size) {
        size_t next = at;
        if (unicode_is_space(jinja_next_point(text, &next)) != space)
            break;
        at = next;
    }
    return at;
}

static bool split_at_space(struct jinja_eval *eval, struct value self, int64_t count,
                           struct value *list)
{
    struct str text = traced_str(self.string);
    size_t at = skip_space(text, 0, true);
    for (; at < text.size && count != 0; count--) {
        size_t end = skip_space(text, at, false);
        if (!add_piece(eval, self, at, end, list))
            return false;
        at = skip_space(text, end, true);
    }
    return at == text.size || add_piece(eval, self, at, text.size, list);
}

static bool split_at_text(struct jinja_eval *eval, struct value self, struct str separator,
                          int64_t count, struct value *list)
{
    struct str text = traced_str(self.string);
    size_t at = 0;
    for (; count != 0; count--) {
        size_t found = str_find(str_slice(text, at, text.size), separator);
        if (found == SIZE_MAX)
            break;
        if (!add_piece(eval, self, at, at + found, list))
            return false;
        at += found + separator.size;
    }
    return add_piece(eval, self, at, text.size, list);
}

/* Offset of the last occurrence that ends at or before `end`, or SIZE_MAX. */
static size_t find_last(struct str text, size_t end, struct str needle)
{
    for (size_t at = end >= needle.size ? end - needle.size + 1 : 0; at > 0; at--)
        if (memcmp(text.data + at - 1, needle.data, needle.size) == 0)
            return at - 1;
    return SIZE_MAX;
}

static void reverse_list(struct value_list *list)
{
    for (size_t i = 0; i < list->size / 2; i++) {
        struct value item = list->items[i];
        list->items[i] = list->items[list->size - 1 - i];
        list->items[list->size - 1 - i] = item;
    }
}

static bool split_from_right(struct jinja_eval *eval, struct value self, struct str separator,
                             int64_t count, struct value *list)
{
    struct str text = traced_str(self.string);
    size_t end = text.size;
    for (; count != 0; count--) {
        size_t found = find_last(text, end, separator);
        if (found == SIZE_MAX)
            break;
        if (!add_piece(eval, self, found + separator.size, end, list))
            return false;
        end = found;
    }
    if (!add_piece(eval, self, 0, end, list))
        return false;
    reverse_list(list->list);
    return true;
}

/* rsplit() without separator and with a count: words from the right. */
static bool split_words_from_right(struct jinja_eval *eval, struct value self, int64_t count,
                                   struct value *list)
{
    struct value words;
    if (!value_list_new(&eval->arena, VALUE_LIST, &words))
        return jinja_no_memory(eval);
    if (!split_at_space(eval, self, -1, &words))
        return false;
    size_t n = words.list->size;
    if (count < 0 || (uint64_t)count >= n) {
        *list = words;
        return true;
    }
    size_t kept = n - (size_t)count; // words that stay together in front
    size_t last = words.list->items[kept - 1].string.last - self.string.first;
    if (!add_piece(eval, self, 0, last, list))
        return false;
    for (size_t i = kept; i < n; i++)
        if (!value_list_add(&eval->arena, list, words.list->items[i]))
            return jinja_no_memory(eval);
    return true;
}

static bool split(struct jinja_eval *eval, struct value self, const struct jinja_bound *args,
                  bool from_right, struct value *out)
{
    int64_t count;
    struct value list, separator;
    if (!integer_arg(eval, args, 1, -1, &count))
        return false;
    if (!value_list_new(&eval->arena, VALUE_LIST, &list))
        return jinja_no_memory(eval);
    bool ok;
    if (!args->given[0] || args->values[0].type == VALUE_NONE) {
        ok = from_right ? split_words_from_right(eval, self, count, &list)
                        : split_at_space(eval, self, count, &list);
    } else {
        if (!text_arg(eval, self, args, 0, &separator))
            return false;
        struct str text = traced_str(separator.string);
        if (text.size == 0)
            return jinja_raise(eval, "empty separator");
        ok = from_right ? split_from_right(eval, self, text, count, &list)
                        : split_at_text(eval, self, text, count, &list);
    }
    *out = list;
    return ok && jinja_work(eval, traced_size(self.string));
}

METHOD(text_split)
{
    return split(eval, self, args, false, out);
}

METHOD(text_rsplit)
{
    return split(eval, self, args, true, out);
}

METHOD(text_splitlines)
{
    struct str text = traced_str(self.string);
    struct value list;
    bool keep = args->given[0] && jinja_truth(args->values[0]);
    if (!value_list_new(&eval->arena, VALUE_LIST, &list))
        return jinja_no_memory(eval);
    for (size_t at = 0, end_size; at < text.size;) {
        size_t size = jinja_line_size(text, at, &end_size);
        if (!add_piece(eval, self, at, at + size + (keep ? end_size : 0), &list))
            return false;
        at += size + end_size;
    }
    *out = list;
    return jinja_work(eval, text.size);
}

/* (before, separator, behind); when it is not there, (text, "", "") or ("", "", text). */
static bool partition(struct jinja_eval *eval, struct value self, const struct jinja_bound *args,
                      bool from_right, struct value *out)
{
    struct value separator, list;
    struct str text = traced_str(self.string);
    if (!text_arg(eval, self, args, 0, &separator))
        return false;
    struct str needle = traced_str(separator.string);
    if (needle.size == 0)
        return jinja_raise(eval, "empty separator");
    size_t at = from_right ? find_last(text, text.size, needle) : str_find(text, needle);
    size_t first = at != SIZE_MAX ? at : from_right ? 0 : text.size;
    size_t second = at != SIZE_MAX ? at + needle.size : first;
    if (!value_list_new(&eval->arena, VALUE_TUPLE, &list))
        return jinja_no_memory(eval);
    if (!add_piece(eval, self, 0, first, &list) || !add_piece(eval, self, first, second, &list) ||
        !add_piece(eval, self, second, text.size, &list))
        return false;
    *out = list;
    return jinja_work(eval, text.size);
}

METHOD(text_partition)
{
    return partition(eval, self, args, false, out);
}

METHOD(text_rpartition)
{
    return partition(eval, self, args, true, out);
}

static bool text_unsupported(struct jinja_eval *eval, struct value self,
                             const struct jinja_args *args, struct value *out)
{
    (void)self, (void)args, (void)out;
    return err_set(
        eval->err, ERR_UNSUPPORTED,
        "template line %u: encode, translate, maketrans and format_map are not supported",
        eval->line);
}

const struct jinja_method jinja_text_methods[] = {
    { "capitalize", "/", text_capitalize, NULL },
    { "casefold", "/", text_casefold, NULL },
    { "center", "/width fill=", text_center, NULL },
    { "encode", NULL, NULL, text_unsupported },
    { "format", NULL, NULL, text_format },
    { "format_map", NULL, NULL, text_unsupported },
    { "join", "/items", text_join, NULL },
    { "ljust", "/width fill=", text_ljust, NULL },
    { "lower", "/", text_lower, NULL },
    { "lstrip", "/chars=", text_lstrip, NULL },
    { "maketrans", NULL, NULL, text_unsupported },
    { "partition", "/sep", text_partition, NULL },
    { "removeprefix", "/prefix", text_removeprefix, NULL },
    { "removesuffix", "/suffix", text_removesuffix, NULL },
    { "replace", "/old new count=", text_replace, NULL },
    { "rjust", "/width fill=", text_rjust, NULL },
    { "rpartition", "/sep", text_rpartition, NULL },
    { "rsplit", "sep= maxsplit=", text_rsplit, NULL },
    { "rstrip", "/chars=", text_rstrip, NULL },
    { "split", "sep= maxsplit=", text_split, NULL },
    { "splitlines", "keepends=", text_splitlines, NULL },
    { "strip", "/chars=", text_strip, NULL },
    { "swapcase", "/", text_swapcase, NULL },
    { "title", "/", text_title, NULL },
    { "translate", NULL, NULL, text_unsupported },
    { "upper", "/", text_upper, NULL },
    { "zfill", "/width", text_zfill, NULL },
    { NULL, NULL, NULL, NULL },
};

/* ---- the look-up ---- */

static const struct jinja_method *find_in(const struct jinja_method *rows, struct str name)
{
    for (; rows->name; rows++)
        if (str_is(name, rows->name))
            return rows;
    return NULL;
}

const struct jinja_method *jinja_method_find(struct value self, struct str name)
{
    const struct jinja_method *row;
    switch (self.type) {
    case VALUE_STRING:
        row = find_in(jinja_text_methods, name);
        return row ? row : find_in(jinja_find_methods, name);
    case VALUE_DICT:
        return find_in(jinja_dict_methods, name);
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
        row = find_in(jinja_sequence_methods, name);
        return row && self.type != VALUE_LIST && str_is(name, "copy") ? NULL : row;
    case VALUE_LOOP:
        return find_in(jinja_loop_methods, name);
    case VALUE_CYCLER:
        return find_in(jinja_cycler_methods, name);
    default:
        return NULL;
    }
}
