/* Statements: bodies to text, scopes, and loops.
 *
 * Jinja2 compiles to Python functions whose locals it resolves beforehand; the rules that come out
 * of that are these. A `for` body (each round), an else of a loop, a macro, a call, set, filter,
 * with or generation block has a scope of its own, an `if` has none. `set` writes to the innermost
 * scope; reading walks outwards to where the block stands in the text (not to who called it). */
#include "text/jinja_internal.h"

#include <string.h>

/* ---- assignment ---- */

static bool assign_tuple(struct jinja_eval *eval, struct jinja_scope *scope,
                         const struct jinja_node *target, struct value value)
{
    struct value items;
    if (!jinja_is_iterable(value))
        return jinja_raise(eval, "cannot unpack non-iterable %s object", jinja_type_name(value));
    if (!jinja_collect(eval, value, VALUE_TUPLE, &items))
        return false;
    if (items.list->size != target->items.size)
        return jinja_raise(eval, "%s values to unpack (expected %zu)",
                           items.list->size < target->items.size ? "not enough" : "too many",
                           target->items.size);
    for (size_t i = 0; i < target->items.size; i++)
        if (!jinja_assign(eval, scope, target->items.nodes[i], items.list->items[i]))
            return false;
    return true;
}

static bool assign_attribute(struct jinja_eval *eval, struct jinja_scope *scope,
                             const struct jinja_node *target, struct value value)
{
    struct jinja_node name = { .type = NODE_NAME, .name = target->name, .line = target->line };
    struct value space, key;
    if (!jinja_evaluate(eval, scope, &name, &space))
        return false;
    if (space.type != VALUE_NAMESPACE)
        return jinja_raise(eval, "cannot assign attribute on non-namespace object");
    if (!jinja_text(eval, target->text, &key))
        return false;
    return value_dict_set(&eval->arena, &space.space->attributes, key, value) ||
           jinja_no_memory(eval);
}

bool jinja_assign(struct jinja_eval *eval, struct jinja_scope *scope,
                  const struct jinja_node *target, struct value value)
{
    if (target->type == NODE_NAME)
        return jinja_scope_set(eval, scope, target->name, value);
    if (target->type == NODE_TUPLE)
        return assign_tuple(eval, scope, target, value);
    return assign_attribute(eval, scope, target, value);
}

/* ---- loops ---- */

/* The next item that passes the loop's filter. */
static bool next_filtered(struct jinja_eval *eval, struct value_loop *loop, struct value *item,
                          bool *more)
{
    const struct jinja_for *node = loop->node->loop;
    while (true) {
        struct value holds;
        if (!jinja_next(eval, &loop->cursor, item, more))
            return false;
        if (!*more || !node->filter || loop->filtered)
            return true;
        loop->test_scope->size = 0;
        if (!jinja_step(eval) || !jinja_assign(eval, loop->test_scope, node->target, *item) ||
            !jinja_evaluate(eval, loop->test_scope, node->filter, &holds))
            return false;
        if (jinja_truth(holds))
            return true;
    }
}

bool jinja_loop_next(struct jinja_eval *eval, struct value_loop *loop, struct value *item,
                     bool *more)
{
    if (loop->has_after) {
        *more = !loop->after_is_end;
        *item = loop->after;
        loop->has_after = false;
    } else if (!next_filtered(eval, loop, item, more)) {
        return false;
    }
    if (*more) {
        loop->index0++;
        loop->before = loop->current;
        loop->current = *item;
    }
    return true;
}

/* Looks at the item behind, for loop.last and loop.nextitem; it is not taken. */
static bool peek(struct jinja_eval *eval, struct value_loop *loop)
{
    bool more;
    if (loop->has_after)
        return true;
    if (!next_filtered(eval, loop, &loop->after, &more))
        return false;
    loop->has_after = true;
    loop->after_is_end = !more;
    return true;
}

/* loop.length: of a list its size; of what has none, the rest is read now. */
static bool find_length(struct jinja_eval *eval, struct value_loop *loop)
{
    struct value rest, item;
    bool more = true;
    if (loop->has_length)
        return true;
    loop->has_length = true;
    if (!loop->node->loop->filter && jinja_length(loop->cursor.subject, &loop->length))
        return true;
    if (!value_list_new(&eval->arena, VALUE_LIST, &rest))
        return jinja_no_memory(eval);
    while (true) {
        if (!next_filtered(eval, loop, &item, &more))
            return false;
        if (!more)
            break;
        if (!value_list_add(&eval->arena, &rest, item))
            return jinja_no_memory(eval);
    }
    size_t seen = (size_t)(loop->index0 + 1) + (loop->has_after && !loop->after_is_end);
    loop->length = rest.list->size + seen;
    loop->cursor = (struct jinja_cursor){ .subject = rest };
    loop->filtered = true;
    return true;
}

bool jinja_loop_attribute(struct jinja_eval *eval, struct value_loop *loop, struct str name,
                          struct value *out, bool *found)
{
    *found = true;
    if (str_is(name, "index"))
        *out = value_integer(loop->index0 + 1);
    else if (str_is(name, "index0"))
        *out = value_integer(loop->index0);
    else if (str_is(name, "first"))
        *out = value_bool(loop->index0 == 0);
    else if (str_is(name, "depth"))
        *out = value_integer((int64_t)loop->depth0 + 1);
    else if (str_is(name, "depth0"))
        *out = value_integer(loop->depth0);
    else if (str_is(name, "previtem"))
        *out = loop->index0 == 0 ? jinja_undefined("there is no previous item") : loop->before;
    else if (str_is(name, "last") || str_is(name, "nextitem")) {
        if (!peek(eval, loop))
            return false;
        if (str_is(name, "last"))
            *out = value_bool(loop->after_is_end);
        else
            *out = loop->after_is_end ? jinja_undefined("there is no next item") : loop->after;
    } else if (str_is(name, "length") || str_is(name, "revindex") || str_is(name, "revindex0")) {
        if (!find_length(eval, loop))
            return false;
        int64_t length = (int64_t)loop->length;
        *out = value_integer(str_is(name, "length")     ? length
                             : str_is(name, "revindex") ? length - loop->index0
                                                        : length - loop->index0 - 1);
    } else {
        *found = false;
    }
    return true;
}

/* The rounds of a loop. False after a failure. */
static bool run_loop(struct jinja_eval *eval, struct value_loop *loop, struct traced_builder *out)
{
    const struct jinja_for *node = loop->node->loop;
    struct jinja_scope *scope = jinja_scope_new(eval, loop->scope);
    struct value shown = { .type = VALUE_LOOP, .loop = loop };
    bool ran = false;
    if (!scope)
        return false;
    while (true) {
        struct value item;
        bool more;
        if (!jinja_loop_next(eval, loop, &item, &more))
            return false;
        if (!more)
            break;
        ran = true;
        scope->size = 0; // names of the round before are gone
        if (!jinja_step(eval) || !jinja_scope_set(eval, scope, eval->template->id_loop, shown) ||
            !jinja_assign(eval, scope, node->target, item))
            return false;
        enum jinja_flow flow = jinja_execute(eval, scope, &node->body, out);
        if (flow == FLOW_FAILED)
            return false;
        if (flow == FLOW_BREAK)
            break;
    }
    if (ran || node->otherwise.size == 0)
        return true;
    scope = jinja_scope_new(eval, loop->scope);
    return scope && jinja_execute(eval, scope, &node->otherwise, out) != FLOW_FAILED;
}

static bool begin_loop(struct jinja_eval *eval, struct jinja_scope *scope,
                       const struct jinja_node *node, struct value items, uint32_t depth0,
                       struct traced_builder *out)
{
    struct value_loop *loop = arena_alloc(&eval->arena, sizeof *loop);
    if (!loop)
        return jinja_no_memory(eval);
    *loop = (struct value_loop){ .node = node, .scope = scope, .index0 = -1, .depth0 = depth0 };
    if (node->loop->filter && !(loop->test_scope = jinja_scope_new(eval, scope)))
        return false;
    return jinja_iterate(eval, items, &loop->cursor) && run_loop(eval, loop, out);
}

bool jinja_loop_again(struct jinja_eval *eval, struct value_loop *loop, struct value items,
                      struct value *out)
{
    struct traced_builder text;
    if (!loop->node->loop->recursive)
        return jinja_raise(eval, "The loop must have the 'recursive' marker to be called "
                                 "recursively.");
    if (eval->macro_depth >= eval->limits->macro_depth_cap)
        return jinja_raise(eval, "limit of macro recursion: more than %u",
                           eval->limits->macro_depth_cap);
    eval->macro_depth++;
    jinja_text_begin(eval, &text);
    bool ok = begin_loop(eval, loop->scope, loop->node, items, loop->depth0 + 1, &text);
    eval->macro_depth--;
    return ok && jinja_text_end(eval, &text, out);
}

/* ---- other statements ---- */

static bool execute_for(struct jinja_eval *eval, struct jinja_scope *scope,
                        const struct jinja_node *node, struct traced_builder *out)
{
    struct value items;
    return jinja_evaluate(eval, scope, node->loop->iterable, &items) &&
           begin_loop(eval, scope, node, items, 0, out);
}

static enum jinja_flow execute_if(struct jinja_eval *eval, struct jinja_scope *scope,
                                  const struct jinja_node *node, struct traced_builder *out)
{
    for (size_t i = 0; i < node->n_branches; i++) {
        const struct jinja_branch *branch = &node->branches[i];
        struct value test = value_bool(true);
        if (branch->test && !jinja_evaluate(eval, scope, branch->test, &test))
            return FLOW_FAILED;
        if (jinja_truth(test))
            return jinja_execute(eval, scope, &branch->body, out);
    }
    return FLOW_NEXT;
}

/* Applies the filters of a block (may be NULL) to its text. */
static bool filter_text(struct jinja_eval *eval, struct jinja_scope *scope,
                        const struct jinja_node *filters, struct value *text)
{
    if (!filters)
        return true;
    struct value saved = eval->body_text;
    eval->body_text = *text;
    bool ok = jinja_evaluate(eval, scope, filters, text);
    eval->body_text = saved;
    return ok;
}

static bool capture_block(struct jinja_eval *eval, struct jinja_scope *parent,
                          const struct jinja_body *body, const struct jinja_node *filters,
                          struct value *out)
{
    struct jinja_scope *scope = jinja_scope_new(eval, parent);
    return scope && jinja_capture(eval, scope, body, out) && filter_text(eval, scope, filters, out);
}

static bool execute_set_block(struct jinja_eval *eval, struct jinja_scope *scope,
                              const struct jinja_node *node)
{
    struct value text;
    return capture_block(eval, scope, &node->body, node->right, &text) &&
           jinja_assign(eval, scope, node->left, text);
}

static bool execute_filter_block(struct jinja_eval *eval, struct jinja_scope *scope,
                                 const struct jinja_node *node, struct traced_builder *out)
{
    struct value text;
    return capture_block(eval, scope, &node->body, node->right, &text) &&
           jinja_print(eval, text, out);
}

static bool new_macro(struct jinja_eval *eval, struct jinja_scope *scope,
                      const struct jinja_macro *node, struct value *out)
{
    struct value_macro *macro = arena_alloc(&eval->arena, sizeof *macro);
    if (!macro)
        return jinja_no_memory(eval);
    *macro = (struct value_macro){ node, scope };
    *out = (struct value){ .type = VALUE_MACRO, .macro = macro };
    return true;
}

static bool execute_macro(struct jinja_eval *eval, struct jinja_scope *scope,
                          const struct jinja_node *node)
{
    struct value macro;
    return new_macro(eval, scope, node->macro, &macro) &&
           jinja_scope_set(eval, scope, node->macro->name_id, macro);
}

/* {% call(x) f(y) %}: calls f with the body as `caller`. */
static bool execute_call_block(struct jinja_eval *eval, struct jinja_scope *scope,
                               const struct jinja_node *node, struct traced_builder *out)
{
    struct value callee, result;
    struct jinja_args args;
    if (!jinja_evaluate(eval, scope, node->right->left, &callee) ||
        !jinja_evaluate_args(eval, scope, node->right->args, &args))
        return false;
    struct jinja_named_arg *named = arena_array(&eval->arena, args.n_named + 1, sizeof *named);
    if (!named)
        return jinja_no_memory(eval);
    if (args.n_named > 0)
        memcpy(named, args.named, args.n_named * sizeof *named);
    named[args.n_named].name = STR("caller");
    if (!new_macro(eval, scope, node->macro, &named[args.n_named].value))
        return false;
    args.named = named;
    args.n_named++;
    eval->line = node->line;
    return jinja_call(eval, callee, &args, &result) && jinja_print(eval, result, out);
}

static enum jinja_flow execute_with(struct jinja_eval *eval, struct jinja_scope *parent,
                                    const struct jinja_node *node, struct traced_builder *out)
{
    struct jinja_scope *scope = jinja_scope_new(eval, parent);
    if (!scope)
        return FLOW_FAILED;
    for (size_t i = 0; i < node->items.size; i += 2) {
        struct value value; // the values do not see each other's names
        if (!jinja_evaluate(eval, parent, node->items.nodes[i + 1], &value) ||
            !jinja_assign(eval, scope, node->items.nodes[i], value))
            return FLOW_FAILED;
    }
    return jinja_execute(eval, scope, &node->body, out);
}

static bool execute_generation(struct jinja_eval *eval, struct jinja_scope *scope,
                               const struct jinja_node *node, struct traced_builder *out)
{
    struct value text;
    return capture_block(eval, scope, &node->macro->body, NULL, &text) &&
           jinja_print(eval, text, out);
}

static bool execute_output(struct jinja_eval *eval, struct jinja_scope *scope,
                           const struct jinja_node *node, struct traced_builder *out)
{
    struct value value;
    return jinja_evaluate(eval, scope, node->left, &value) && jinja_print(eval, value, out);
}

static bool execute_set(struct jinja_eval *eval, struct jinja_scope *scope,
                        const struct jinja_node *node)
{
    struct value value;
    return jinja_evaluate(eval, scope, node->right, &value) &&
           jinja_assign(eval, scope, node->left, value);
}

static enum jinja_flow execute_node(struct jinja_eval *eval, struct jinja_scope *scope,
                                    const struct jinja_node *node, struct traced_builder *out)
{
    bool ok;
    switch (node->type) {
    case NODE_OUTPUT:
        ok = execute_output(eval, scope, node, out);
        break;
    case NODE_IF:
        return execute_if(eval, scope, node, out);
    case NODE_FOR:
        ok = execute_for(eval, scope, node, out);
        break;
    case NODE_SET:
        ok = execute_set(eval, scope, node);
        break;
    case NODE_SET_BLOCK:
        ok = execute_set_block(eval, scope, node);
        break;
    case NODE_MACRO:
        ok = execute_macro(eval, scope, node);
        break;
    case NODE_CALL_BLOCK:
        ok = execute_call_block(eval, scope, node, out);
        break;
    case NODE_FILTER_BLOCK:
        ok = execute_filter_block(eval, scope, node, out);
        break;
    case NODE_WITH:
        return execute_with(eval, scope, node, out);
    case NODE_SCOPE:
        ok = execute_generation(eval, scope, node, out);
        break;
    case NODE_BREAK:
        return FLOW_BREAK;
    case NODE_CONTINUE:
        return FLOW_CONTINUE;
    default:
        must(false); // an expression is no statement
        return FLOW_FAILED;
    }
    return ok ? FLOW_NEXT : FLOW_FAILED;
}

enum jinja_flow jinja_execute(struct jinja_eval *eval, struct jinja_scope *scope,
                              const struct jinja_body *body, struct traced_builder *out)
{
    if (eval->depth >= eval->limits->depth_cap) {
        jinja_raise(eval, "limit of evaluation depth: more than %u", eval->limits->depth_cap);
        return FLOW_FAILED;
    }
    eval->depth++;
    enum jinja_flow flow = FLOW_NEXT;
    for (size_t i = 0; i < body->size && flow == FLOW_NEXT; i++) {
        const struct jinja_node *node = body->nodes[i];
        eval->line = node->line;
        flow = jinja_step(eval) ? execute_node(eval, scope, node, out) : FLOW_FAILED;
        if (flow != FLOW_FAILED && !jinja_check_room(eval, out))
            flow = FLOW_FAILED;
    }
    eval->depth--;
    return flow;
}

bool jinja_capture(struct jinja_eval *eval, struct jinja_scope *scope,
                   const struct jinja_body *body, struct value *out)
{
    struct traced_builder text;
    jinja_text_begin(eval, &text);
    return jinja_execute(eval, scope, body, &text) != FLOW_FAILED &&
           jinja_text_end(eval, &text, out);
}
