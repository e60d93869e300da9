/* value.name and value[key], as the sandbox of Jinja2 resolves them.
 *
 * A dot tries the attribute first, then the key; brackets the key first, then, for a string, the
 * attribute. Attributes are the rows of the method tables and the few properties below; all else is
 * undefined, among it everything that would change a list or a dictionary. */
#include "text/jinja_internal.h"

/* Attributes that exist in Python, hide a key of the same name, and that the sandbox refuses. */
static bool is_refused(struct value object, struct str name)
{
    static const char *const dict_names[] = { "clear",      "pop",    "popitem",
                                              "setdefault", "update", "fromkeys" };
    if (object.type != VALUE_DICT)
        return false;
    for (size_t i = 0; i < sizeof dict_names / sizeof dict_names[0]; i++)
        if (str_is(name, dict_names[i]))
            return true;
    return str_starts(name, STR("__")) && str_ends(name, STR("__"));
}

struct value jinja_no_attribute(struct jinja_eval *eval, struct value object, struct str name)
{
    const char *what = object.type == VALUE_NONE ? "None" : jinja_type_name(object);
    return jinja_undefined(arena_printf(&eval->arena, "'%s%s' has no attribute '%.*s'", what,
                                        object.type == VALUE_NONE ? "" : " object", STR_ARG(name)));
}

static bool macro_attribute(struct jinja_eval *eval, const struct jinja_macro *macro,
                            struct str name, struct value *out, bool *found)
{
    *found = true;
    if (str_is(name, "name"))
        return jinja_text(eval, macro->name, out);
    if (str_is(name, "catch_kwargs"))
        *out = value_bool(macro->uses_kwargs);
    else if (str_is(name, "catch_varargs"))
        *out = value_bool(macro->uses_varargs);
    else if (str_is(name, "caller"))
        *out = value_bool(macro->uses_caller);
    else if (str_is(name, "arguments")) {
        struct value argument;
        if (!value_list_new(&eval->arena, VALUE_TUPLE, out))
            return jinja_no_memory(eval);
        for (size_t i = 0; i < macro->n_parameters; i++)
            if (!jinja_text(eval, macro->parameter_names[i], &argument) ||
                (!value_list_add(&eval->arena, out, argument) && !jinja_no_memory(eval)))
                return false;
    } else {
        *found = false;
    }
    return true;
}

static bool method_value(struct jinja_eval *eval, struct value self, struct str name,
                         struct value *out, bool *found)
{
    const struct jinja_method *row = jinja_method_find(self, name);
    *found = row != NULL;
    if (!row)
        return true;
    struct value_method *method = arena_alloc(&eval->arena, sizeof *method);
    if (!method)
        return jinja_no_memory(eval);
    *method = (struct value_method){ self, row };
    *out = (struct value){ .type = VALUE_METHOD, .method = method };
    return true;
}

bool jinja_own_attribute(struct jinja_eval *eval, struct value object, struct str name,
                         struct value *out, bool *found)
{
    *found = false;
    if (object.type == VALUE_NAMESPACE) {
        const struct value *value = value_dict_get(&object.space->attributes, name);
        *found = value != NULL;
        if (value)
            *out = *value;
        return true;
    }
    if (object.type == VALUE_MACRO)
        return macro_attribute(eval, object.macro->node, name, out, found);
    if (object.type == VALUE_LOOP) {
        if (!jinja_loop_attribute(eval, object.loop, name, out, found))
            return false;
        if (*found)
            return true;
    }
    if (object.type == VALUE_CYCLER && str_is(name, "current")) {
        *found = true;
        *out = object.cycler->items->items[object.cycler->at];
        return true;
    }
    if (is_refused(object, name)) {
        *found = true;
        *out = jinja_undefined(arena_printf(&eval->arena,
                                            "access to attribute '%.*s' of '%s' object is unsafe.",
                                            STR_ARG(name), jinja_type_name(object)));
        return true;
    }
    return method_value(eval, object, name, out, found);
}

bool jinja_get_attribute(struct jinja_eval *eval, struct value object, struct str name,
                         struct value *out)
{
    bool found;
    if (object.type == VALUE_UNDEFINED)
        return jinja_raise_undefined(eval, object);
    if (!jinja_own_attribute(eval, object, name, out, &found))
        return false;
    if (found)
        return true;
    const struct value *item = value_dict_get(&object, name);
    *out = item ? *item : jinja_no_attribute(eval, object, name);
    return true;
}

/* Offset of a code point; `text` has more than `n` of them. */
static size_t point_offset(struct str text, size_t n)
{
    size_t at = 0;
    for (; n > 0; n--)
        jinja_next_point(text, &at);
    return at;
}

static bool index_value(struct jinja_eval *eval, struct value object, int64_t index,
                        struct value *out, bool *found)
{
    size_t length;
    *found = false;
    if (object.type == VALUE_DICT || object.type == VALUE_DICT_VIEW ||
        object.type == VALUE_UNDEFINED || !jinja_length(object, &length))
        return true;
    if (index < 0)
        index += (int64_t)length;
    if (index < 0 || (uint64_t)index >= length)
        return true;
    *found = true;
    if (object.type != VALUE_STRING)
        return jinja_item_at(eval, object, (size_t)index, out);
    struct str text = traced_str(object.string);
    size_t first = point_offset(text, (size_t)index), last = first;
    jinja_next_point(text, &last);
    *out = value_text(jinja_piece(object, first, last));
    out->markup = object.markup;
    return jinja_work(eval, text.size);
}

/* What Python's object[key] gives; not found where it raises a TypeError or LookupError, which the
 * sandbox takes as undefined. Slices do not pass through the sandbox, so theirs are raised. */
static bool own_item(struct jinja_eval *eval, struct value object, struct value key,
                     struct value *out, bool *found)
{
    int64_t index;
    *found = false;
    if (object.type == VALUE_DICT && key.type != VALUE_SLICE) {
        const struct value *item = value_dict_find(&object, key);
        *found = item != NULL;
        if (item)
            *out = *item;
        return true;
    }
    if (key.type == VALUE_SLICE) {
        *found = true;
        return jinja_slice(eval, object, key.slice, out);
    }
    return !jinja_as_integer(key, &index) || index_value(eval, object, index, out, found);
}

bool jinja_get_item(struct jinja_eval *eval, struct value object, struct value key,
                    struct value *out)
{
    bool found;
    if (object.type == VALUE_UNDEFINED)
        return jinja_raise_undefined(eval, object);
    if (!own_item(eval, object, key, out, &found))
        return false;
    if (found)
        return true;
    if (key.type == VALUE_STRING) {
        struct str name = traced_str(key.string);
        if (!jinja_own_attribute(eval, object, name, out, &found))
            return false;
        if (!found)
            *out = jinja_no_attribute(eval, object, name);
        return true;
    }
    *out = jinja_undefined(
        arena_printf(&eval->arena, "%s object has no such element", jinja_type_name(object)));
    return true;
}

/* ---- slices ---- */

struct bounds {
    int64_t first, step;
    size_t count;
};

/* Python's slice.indices. False (nothing raised) when a part is no integer: the slice is undefined.
 */
static bool find_bounds(const struct value_slice *slice, int64_t length, struct bounds *out)
{
    int64_t step = 1, first, last;
    if (slice->step.type != VALUE_NONE && !jinja_as_integer(slice->step, &step))
        return false;
    bool down = step < 0;
    int64_t low = down ? -1 : 0, high = down ? length - 1 : length;
    const struct value *parts[] = { &slice->first, &slice->last };
    int64_t *results[] = { &first, &last };
    for (int i = 0; i < 2; i++) {
        bool is_start = i == 0;
        int64_t at = is_start == down ? high : low;
        if (parts[i]->type != VALUE_NONE) {
            if (!jinja_as_integer(*parts[i], &at))
                return false;
            at = at < 0 ? at + length : at;
            at = at < low ? low : at > high ? high : at;
        }
        *results[i] = at;
    }
    out->first = first;
    out->step = step;
    int64_t distance = down ? first - last : last - first;
    uint64_t stride = down ? 0 - (uint64_t)step : (uint64_t)step;
    out->count = distance <= 0 || stride == 0 ? 0 : ((uint64_t)distance - 1) / stride + 1;
    return true;
}

/* Every step-th code point; text is at least `first` long. */
static bool slice_points(struct jinja_eval *eval, struct value string, struct bounds bounds,
                         struct value *out)
{
    struct str text = traced_str(string.string);
    if (!jinja_work(eval, text.size))
        return false;
    if (bounds.step == 1) {
        size_t first = point_offset(text, (size_t)bounds.first);
        size_t last = first;
        for (size_t i = 0; i < bounds.count; i++)
            jinja_next_point(text, &last);
        *out = value_text(jinja_piece(string, first, last));
        out->markup = string.markup;
        return true;
    }
    size_t *offsets = arena_array(&eval->arena, jinja_length_points(text) + 1, sizeof *offsets);
    if (!offsets)
        return jinja_no_memory(eval);
    size_t n = 0;
    for (size_t at = 0; at < text.size; jinja_next_point(text, &at))
        offsets[n++] = at;
    offsets[n] = text.size;
    struct traced_builder builder;
    jinja_text_begin(eval, &builder);
    for (size_t i = 0; i < bounds.count; i++) {
        size_t at = (size_t)(bounds.first + (int64_t)i * bounds.step);
        traced_add_text(&builder, jinja_piece(string, offsets[at], offsets[at + 1]));
    }
    if (!jinja_text_end(eval, &builder, out))
        return false;
    out->markup = string.markup;
    return true;
}

static bool slice_range(struct jinja_eval *eval, const struct value_range *range,
                        struct bounds bounds, struct value *out)
{
    struct value_range *part = arena_alloc(&eval->arena, sizeof *part);
    if (!part)
        return jinja_no_memory(eval);
    int64_t length = (int64_t)bounds.count;
    if (__builtin_mul_overflow(range->step, bounds.step, &part->step))
        return jinja_raise(eval, "limit of integers: the result does not fit 64 bits");
    part->first = jinja_range_at(range, bounds.first);
    part->size = bounds.count;
    part->last = jinja_range_at(part, length);
    *out = (struct value){ .type = VALUE_RANGE, .range = part };
    return true;
}

bool jinja_slice(struct jinja_eval *eval, struct value object, const struct value_slice *slice,
                 struct value *out)
{
    size_t length = 0;
    struct bounds bounds;
    if (object.type != VALUE_STRING && object.type != VALUE_LIST && object.type != VALUE_TUPLE &&
        object.type != VALUE_RANGE)
        return jinja_raise(eval, "'%s' object cannot be sliced", jinja_type_name(object));
    jinja_length(object, &length);
    if (!find_bounds(slice, (int64_t)length, &bounds))
        return jinja_raise(eval, "slice indices must be integers or None");
    if (bounds.step == 0)
        return jinja_raise(eval, "slice step cannot be zero");
    if (object.type == VALUE_STRING)
        return slice_points(eval, object, bounds, out);
    if (object.type == VALUE_RANGE)
        return slice_range(eval, object.range, bounds, out);
    struct value part;
    if (!jinja_steps(eval, bounds.count / 8))
        return false;
    if (!value_list_new(&eval->arena, object.type, &part))
        return jinja_no_memory(eval);
    for (size_t i = 0; i < bounds.count; i++) {
        size_t at = (size_t)(bounds.first + (int64_t)i * bounds.step);
        if (!value_list_add(&eval->arena, &part, object.list->items[at]))
            return jinja_no_memory(eval);
    }
    *out = part;
    return true;
}

/* ---- paths of filters ---- */

static bool get_part(struct jinja_eval *eval, struct value object, struct value path,
                     struct str part, const struct value *otherwise, struct value *out)
{
    uint64_t number;
    size_t offset = (size_t)(part.data - traced_str(path.string).data);
    struct value key = value_text(jinja_piece(path, offset, offset + part.size));
    if (part.size > 0 && part.data[0] >= '0' && part.data[0] <= '9' && str_to_u64(part, &number) &&
        number <= INT64_MAX)
        key = value_integer((int64_t)number);
    if (!jinja_get_item(eval, object, key, out))
        return false;
    if (otherwise && otherwise->type != VALUE_NONE && out->type == VALUE_UNDEFINED)
        *out = *otherwise;
    return true;
}

bool jinja_get_path(struct jinja_eval *eval, struct value object, struct value path,
                    const struct value *otherwise, struct value *out)
{
    *out = object;
    if (path.type == VALUE_NONE)
        return true;
    if (path.type != VALUE_STRING) {
        if (!jinja_get_item(eval, object, path, out))
            return false;
        if (otherwise && otherwise->type != VALUE_NONE && out->type == VALUE_UNDEFINED)
            *out = *otherwise;
        return true;
    }
    struct str rest = traced_str(path.string), part;
    if (rest.size == 0)
        return jinja_get_item(eval, object, path, out);
    while (str_split(&rest, '.', &part))
        if (!get_part(eval, *out, path, part, otherwise, out))
            return false;
    return true;
}
