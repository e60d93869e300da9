/* Calls: arguments, macros, methods, and the functions that every template sees. */
#include "text/jinja_internal.h"

#include <string.h>

#include "base/clock.h"

/* ---- arguments ---- */

static bool add_spread(struct jinja_eval *eval, struct value spread, struct value *list)
{
    struct value items;
    if (!jinja_collect(eval, spread, VALUE_LIST, &items))
        return false;
    for (size_t i = 0; i < items.list->size; i++)
        if (!value_list_add(&eval->arena, list, items.list->items[i]))
            return jinja_no_memory(eval);
    return true;
}

static bool evaluate_positional(struct jinja_eval *eval, struct jinja_scope *scope,
                                const struct jinja_call_args *nodes, struct jinja_args *out)
{
    struct value list, item;
    if (nodes->positional.size == 0 && !nodes->spread)
        return true;
    if (!value_list_new(&eval->arena, VALUE_LIST, &list))
        return jinja_no_memory(eval);
    for (size_t i = 0; i < nodes->positional.size; i++) {
        if (!jinja_evaluate(eval, scope, nodes->positional.nodes[i], &item))
            return false;
        if (!value_list_add(&eval->arena, &list, item))
            return jinja_no_memory(eval);
    }
    if (nodes->spread &&
        (!jinja_evaluate(eval, scope, nodes->spread, &item) || !add_spread(eval, item, &list)))
        return false;
    out->items = list.list->items;
    out->size = list.list->size;
    return true;
}

static bool evaluate_named(struct jinja_eval *eval, struct jinja_scope *scope,
                           const struct jinja_call_args *nodes, struct jinja_args *out)
{
    struct value spread = { 0 };
    if (nodes->spread_named) {
        if (!jinja_evaluate(eval, scope, nodes->spread_named, &spread))
            return false;
        if (spread.type != VALUE_DICT)
            return jinja_raise(eval, "argument after ** must be a mapping, not %s",
                               jinja_type_name(spread));
    }
    size_t extra = spread.type == VALUE_DICT ? spread.dict->size : 0;
    out->n_named = 0;
    if (nodes->named.size + extra == 0)
        return true;
    out->named = arena_array(&eval->arena, nodes->named.size + extra, sizeof *out->named);
    if (!out->named)
        return jinja_no_memory(eval);
    for (size_t i = 0; i < nodes->named.size; i++) {
        struct jinja_named_arg *arg = &out->named[out->n_named++];
        arg->name = nodes->names[i];
        arg->from_template = true;
        if (!jinja_evaluate(eval, scope, nodes->named.nodes[i], &arg->value))
            return false;
    }
    for (size_t i = 0; i < extra; i++) {
        const struct value_entry *entry = &spread.dict->entries[i];
        if (entry->key.type != VALUE_STRING)
            return jinja_raise(eval, "keywords must be strings");
        struct str name = traced_str(entry->key.string);
        for (size_t j = 0; j < nodes->named.size; j++)
            if (str_equal(nodes->names[j], name))
                return jinja_raise(eval, "got multiple values for keyword argument '%.*s'",
                                   STR_ARG(name));
        size_t end = 0;
        bool from_template = name.size > 0 && traced_origin(entry->key.string, 0, &end);
        out->named[out->n_named++] =
            (struct jinja_named_arg){ name, from_template && end == name.size, entry->value };
    }
    return true;
}

bool jinja_evaluate_args(struct jinja_eval *eval, struct jinja_scope *scope,
                         const struct jinja_call_args *nodes, struct jinja_args *out)
{
    *out = (struct jinja_args){ 0 };
    return !nodes || (evaluate_positional(eval, scope, nodes, out) &&
                      evaluate_named(eval, scope, nodes, out));
}

bool jinja_arg_key(struct jinja_eval *eval, const struct jinja_named_arg *arg, struct value *out)
{
    return value_string(&eval->arena, arg->name, arg->from_template, out) || jinja_no_memory(eval);
}

/* The parameter at the front of the list, without its "="; false at the end. */
static bool next_parameter(struct str *list, struct str *name, bool *optional)
{
    if (list->size == 0 || !str_split(list, ' ', name))
        return false;
    *optional = str_ends(*name, STR("="));
    name->size -= *optional;
    return true;
}

static bool find_parameter(const char *parameters, struct str wanted, size_t *at)
{
    struct str list = str_from(parameters), name;
    bool optional;
    for (*at = 0; next_parameter(&list, &name, &optional); (*at)++)
        if (str_equal(name, wanted))
            return true;
    return false;
}

bool jinja_bind(struct jinja_eval *eval, const char *called, const char *parameters,
                const struct jinja_args *args, struct jinja_bound *out)
{
    bool positional_only = parameters[0] == '/';
    parameters += positional_only;
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < args->n_named; i++) {
        size_t at;
        struct str name = args->named[i].name;
        if (positional_only || !find_parameter(parameters, name, &at))
            return jinja_raise(eval, "%s got an unexpected keyword argument '%.*s'", called,
                               STR_ARG(name));
        if (at < args->size)
            return jinja_raise(eval, "%s got multiple values for argument '%.*s'", called,
                               STR_ARG(name));
        out->values[at] = args->named[i].value;
        out->given[at] = true;
    }
    struct str list = str_from(parameters), name;
    bool optional;
    size_t n = 0;
    for (; next_parameter(&list, &name, &optional); n++) {
        if (n < args->size) {
            out->values[n] = args->items[n];
            out->given[n] = true;
        }
        if (!out->given[n] && !optional)
            return jinja_raise(eval, "%s is missing the argument '%.*s'", called, STR_ARG(name));
    }
    return args->size <= n ||
           jinja_raise(eval, "%s takes at most %zu arguments (%zu given)", called, n, args->size);
}

/* ---- macros ---- */

static bool take_named(struct jinja_args *args, struct str name, struct value *out)
{
    for (size_t i = 0; i < args->n_named; i++)
        if (str_equal(args->named[i].name, name)) {
            *out = args->named[i].value;
            args->n_named--;
            memmove(&args->named[i], &args->named[i + 1],
                    (args->n_named - i) * sizeof args->named[0]);
            return true;
        }
    return false;
}

/* A macro being called: its arguments, less those that have found their parameter. */
struct macro_call {
    const struct jinja_macro *node;
    struct jinja_args args;
    struct jinja_scope *scope; // of the body
};

/* What parameter `i` gets: the positional argument, the named one, or the default. */
static bool parameter_value(struct jinja_eval *eval, struct macro_call *call, size_t i,
                            struct value *out)
{
    if (i < call->args.size) {
        *out = call->args.items[i];
        return true;
    }
    if (take_named(&call->args, call->node->parameter_names[i], out))
        return true;
    if (call->node->defaults[i])
        return jinja_evaluate(eval, call->scope, call->node->defaults[i], out);
    *out = jinja_undefined("a parameter was not provided");
    return true;
}

/* Parameters in order, so that a default may use those before it. */
static bool bind_parameters(struct jinja_eval *eval, struct macro_call *call)
{
    for (size_t i = 0; i < call->node->n_parameters; i++) {
        struct value value;
        if (!parameter_value(eval, call, i, &value) ||
            !jinja_scope_set(eval, call->scope, call->node->parameters[i], value))
            return false;
    }
    return true;
}

static bool bind_caller(struct jinja_eval *eval, struct macro_call *call)
{
    struct value caller;
    if (!call->node->uses_caller)
        return true;
    for (size_t i = 0; i < call->node->n_parameters; i++)
        if (call->node->parameters[i] == eval->template->id_caller)
            return true;
    if (!take_named(&call->args, STR("caller"), &caller))
        caller = jinja_undefined("No caller defined");
    return jinja_scope_set(eval, call->scope, eval->template->id_caller, caller);
}

/* `kwargs`, for a macro that uses the name; for any other one there may be none left. */
static bool bind_kwargs(struct jinja_eval *eval, const struct macro_call *call)
{
    const struct jinja_args *args = &call->args;
    struct value rest, key;
    if (!call->node->uses_kwargs)
        return args->n_named == 0 ||
               jinja_raise(eval, "macro '%.*s' takes no keyword argument '%.*s'",
                           STR_ARG(call->node->name), STR_ARG(args->named[0].name));
    if (!value_dict_new(&eval->arena, &rest))
        return jinja_no_memory(eval);
    for (size_t i = 0; i < args->n_named; i++) {
        if (!jinja_arg_key(eval, &args->named[i], &key))
            return false;
        if (!value_dict_set(&eval->arena, &rest, key, args->named[i].value))
            return jinja_no_memory(eval);
    }
    return jinja_scope_set(eval, call->scope, eval->template->id_kwargs, rest);
}

/* The same for `varargs`. */
static bool bind_varargs(struct jinja_eval *eval, const struct macro_call *call)
{
    struct value rest;
    size_t n = call->node->n_parameters;
    if (!call->node->uses_varargs)
        return call->args.size <= n ||
               jinja_raise(eval, "macro '%.*s' takes not more than %zu argument(s)",
                           STR_ARG(call->node->name), n);
    if (!value_list_new(&eval->arena, VALUE_TUPLE, &rest))
        return jinja_no_memory(eval);
    for (size_t i = n; i < call->args.size; i++)
        if (!value_list_add(&eval->arena, &rest, call->args.items[i]))
            return jinja_no_memory(eval);
    return jinja_scope_set(eval, call->scope, eval->template->id_varargs, rest);
}

bool jinja_call_macro(struct jinja_eval *eval, const struct value_macro *macro,
                      const struct jinja_args *given, struct value *out)
{
    struct macro_call call = { .node = macro->node, .args = *given };
    if (eval->macro_depth >= eval->limits->macro_depth_cap)
        return jinja_raise(eval, "limit of macro recursion: more than %u",
                           eval->limits->macro_depth_cap);
    call.scope = jinja_scope_new(eval, macro->scope);
    if (!call.scope)
        return false;
    if (given->n_named > 0) { // names are taken out of a copy
        call.args.named = arena_array(&eval->arena, given->n_named, sizeof *call.args.named);
        if (!call.args.named)
            return jinja_no_memory(eval);
        memcpy(call.args.named, given->named, given->n_named * sizeof *call.args.named);
    }
    eval->macro_depth++;
    bool ok = bind_parameters(eval, &call) && bind_caller(eval, &call) &&
              bind_kwargs(eval, &call) && bind_varargs(eval, &call) &&
              jinja_capture(eval, call.scope, &macro->node->body, out);
    eval->macro_depth--;
    return ok;
}

/* ---- the functions of every template ---- */

static bool call_raise_exception(struct jinja_eval *eval, const struct jinja_args *args,
                                 struct value *out)
{
    struct jinja_bound bound;
    struct value message;
    (void)out;
    if (!jinja_bind(eval, "raise_exception()", "message", args, &bound) ||
        !jinja_to_text(eval, bound.values[0], &message))
        return false;
    return err_set(eval->err, ERR_ARGUMENT, "%.*s", STR_ARG(traced_str(message.string)));
}

static bool call_strftime_now(struct jinja_eval *eval, const struct jinja_args *args,
                              struct value *out)
{
    struct jinja_bound bound;
    char formatted[512];
    if (!jinja_bind(eval, "strftime_now()", "format", args, &bound))
        return false;
    if (bound.values[0].type != VALUE_STRING)
        return jinja_raise(eval, "strftime() argument 1 must be str, not %s",
                           jinja_type_name(bound.values[0]));
    char *format = arena_strdup(&eval->arena, traced_str(bound.values[0].string));
    if (!format)
        return jinja_no_memory(eval);
    size_t size = clock_format(eval->now_unix_seconds, format, formatted, sizeof formatted);
    if (size == 0 && format[0] != '\0')
        return jinja_raise(eval, "strftime_now: the result is longer than %zu bytes",
                           sizeof formatted - 1);
    return jinja_text(eval, (struct str){ formatted, size }, out);
}

/* How many steps lead from first to last; 0 when they lead away. */
static uint64_t range_size(int64_t first, int64_t last, int64_t step)
{
    if (step > 0 ? first >= last : first <= last)
        return 0;
    uint64_t distance =
        step > 0 ? (uint64_t)last - (uint64_t)first : (uint64_t)first - (uint64_t)last;
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    return (distance - 1) / stride + 1;
}

static bool call_range(struct jinja_eval *eval, const struct jinja_args *args, struct value *out)
{
    struct jinja_bound bound;
    int64_t numbers[3] = { 0, 0, 1 };
    if (!jinja_bind(eval, "range()", "/first last= step=", args, &bound))
        return false;
    for (size_t i = 0; i < 3; i++)
        if (bound.given[i] && !jinja_as_integer(bound.values[i], &numbers[i])) {
            if (bound.values[i].type == VALUE_UNDEFINED)
                return jinja_raise_undefined(eval, bound.values[i]);
            return jinja_raise(eval, "'%s' object cannot be interpreted as an integer",
                               jinja_type_name(bound.values[i]));
        }
    if (!bound.given[1]) {
        numbers[1] = numbers[0];
        numbers[0] = 0;
    }
    if (numbers[2] == 0)
        return jinja_raise(eval, "range() arg 3 must not be zero");
    struct value_range *range = arena_alloc(&eval->arena, sizeof *range);
    if (!range)
        return jinja_no_memory(eval);
    range->first = numbers[0];
    range->last = numbers[1];
    range->step = numbers[2];
    range->size = range_size(numbers[0], numbers[1], numbers[2]);
    if (range->size > eval->limits->range_cap)
        return jinja_raise(eval,
                           "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%u).",
                           eval->limits->range_cap);
    *out = (struct value){ .type = VALUE_RANGE, .range = range };
    return true;
}

/* A pair of a sequence of pairs, as dict() takes them. */
static bool add_pair(struct jinja_eval *eval, struct value pair, struct value *dict)
{
    struct value items;
    if (!jinja_collect(eval, pair, VALUE_TUPLE, &items))
        return false;
    if (items.list->size != 2)
        return jinja_raise(eval, "dictionary update sequence element has length %zu; 2 is required",
                           items.list->size);
    if (!value_hashable(items.list->items[0]))
        return jinja_raise(eval, "unhashable type: '%s'", jinja_type_name(items.list->items[0]));
    return value_dict_set(&eval->arena, dict, items.list->items[0], items.list->items[1]) ||
           jinja_no_memory(eval);
}

/* What dict() and namespace() do: a mapping or pairs, then keywords. */
static bool make_dict(struct jinja_eval *eval, const char *called, const struct jinja_args *args,
                      struct value *out)
{
    struct value dict, key;
    if (args->size > 1)
        return jinja_raise(eval, "%s expected at most 1 argument, got %zu", called, args->size);
    if (!value_dict_new(&eval->arena, &dict))
        return jinja_no_memory(eval);
    if (args->size == 1 && args->items[0].type == VALUE_DICT) {
        const struct value_dict *from = args->items[0].dict;
        for (size_t i = 0; i < from->size; i++)
            if (!value_dict_set(&eval->arena, &dict, from->entries[i].key, from->entries[i].value))
                return jinja_no_memory(eval);
    } else if (args->size == 1) {
        struct value pairs;
        if (!jinja_collect(eval, args->items[0], VALUE_LIST, &pairs))
            return false;
        for (size_t i = 0; i < pairs.list->size; i++)
            if (!add_pair(eval, pairs.list->items[i], &dict))
                return false;
    }
    for (size_t i = 0; i < args->n_named; i++)
        if (!jinja_arg_key(eval, &args->named[i], &key) ||
            (!value_dict_set(&eval->arena, &dict, key, args->named[i].value) &&
             !jinja_no_memory(eval)))
            return false;
    *out = dict;
    return true;
}

static bool call_dict(struct jinja_eval *eval, const struct jinja_args *args, struct value *out)
{
    return make_dict(eval, "dict", args, out);
}

static bool call_namespace(struct jinja_eval *eval, const struct jinja_args *args,
                           struct value *out)
{
    struct value_namespace *space = arena_alloc(&eval->arena, sizeof *space);
    if (!space)
        return jinja_no_memory(eval);
    if (!make_dict(eval, "namespace", args, &space->attributes))
        return false;
    *out = (struct value){ .type = VALUE_NAMESPACE, .space = space };
    return true;
}

static bool call_cycler(struct jinja_eval *eval, const struct jinja_args *args, struct value *out)
{
    struct value_cycler *cycler = arena_alloc(&eval->arena, sizeof *cycler);
    struct value items;
    if (args->n_named > 0)
        return jinja_raise(eval, "cycler() takes no keyword arguments");
    if (args->size == 0)
        return jinja_raise(eval, "at least one item has to be provided");
    if (!cycler || !value_list_new(&eval->arena, VALUE_TUPLE, &items))
        return jinja_no_memory(eval);
    for (size_t i = 0; i < args->size; i++)
        if (!value_list_add(&eval->arena, &items, args->items[i]))
            return jinja_no_memory(eval);
    cycler->items = items.list;
    *out = (struct value){ .type = VALUE_CYCLER, .cycler = cycler };
    return true;
}

static bool call_joiner(struct jinja_eval *eval, const struct jinja_args *args, struct value *out)
{
    struct jinja_bound bound;
    if (!jinja_bind(eval, "joiner()", "sep=", args, &bound))
        return false;
    struct value_cycler *joiner = arena_alloc(&eval->arena, sizeof *joiner);
    if (!joiner)
        return jinja_no_memory(eval);
    joiner->separator = bound.values[0];
    if (!bound.given[0] && !jinja_text(eval, STR(", "), &joiner->separator))
        return false;
    *out = (struct value){ .type = VALUE_JOINER, .cycler = joiner };
    return true;
}

static const struct value_function functions[] = {
    { "range", call_range },
    { "dict", call_dict },
    { "namespace", call_namespace },
    { "cycler", call_cycler },
    { "joiner", call_joiner },
    { "raise_exception", call_raise_exception },
    { "strftime_now", call_strftime_now },
};

bool jinja_global(struct str name, struct value *out)
{
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (str_is(name, functions[i].name)) {
            *out = (struct value){ .type = VALUE_FUNCTION, .function = &functions[i] };
            return true;
        }
    return false;
}

/* ---- calling ---- */

static bool call_method(struct jinja_eval *eval, const struct value_method *value,
                        const struct jinja_args *args, struct value *out)
{
    const struct jinja_method *method = value->method;
    struct jinja_bound bound;
    if (!method->parameters)
        return method->apply_args(eval, value->self, args, out);
    return jinja_bind(eval, method->name, method->parameters, args, &bound) &&
           method->apply(eval, value->self, &bound, out);
}

static bool call_joiner_value(struct jinja_eval *eval, struct value_cycler *joiner,
                              const struct jinja_args *args, struct value *out)
{
    if (args->size + args->n_named > 0)
        return jinja_raise(eval, "a joiner takes no arguments");
    if (joiner->used) {
        *out = joiner->separator;
        return true;
    }
    joiner->used = true;
    return jinja_text(eval, STR_NONE, out);
}

bool jinja_is_callable(struct value value)
{
    switch (value.type) {
    case VALUE_UNDEFINED: // it has a __call__, which raises
    case VALUE_MACRO:
    case VALUE_METHOD:
    case VALUE_FUNCTION:
    case VALUE_LOOP:
    case VALUE_JOINER:
        return true;
    default:
        return false;
    }
}

bool jinja_call(struct jinja_eval *eval, struct value callee, const struct jinja_args *args,
                struct value *out)
{
    switch (callee.type) {
    case VALUE_FUNCTION:
        return callee.function->call(eval, args, out);
    case VALUE_MACRO:
        return jinja_call_macro(eval, callee.macro, args, out);
    case VALUE_METHOD:
        return call_method(eval, callee.method, args, out);
    case VALUE_JOINER:
        return call_joiner_value(eval, callee.cycler, args, out);
    case VALUE_LOOP:
        if (args->size != 1 || args->n_named > 0)
            return jinja_raise(eval, "loop() takes exactly one argument");
        return jinja_loop_again(eval, callee.loop, args->items[0], out);
    case VALUE_UNDEFINED:
        return jinja_raise_undefined(eval, callee);
    default:
        return jinja_raise(eval, "'%s' object is not callable", jinja_type_name(callee));
    }
}
