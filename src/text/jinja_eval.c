/* Expressions to values, by walking the tree.
 *
 * A chat template runs for microseconds before a model runs for seconds, so the tree is walked as
 * it is. What costs thought is safety: every node is a step, steps and depth are limited, and the C
 * stack holds no arrays whose size the template chooses. */
#include "text/jinja_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define STEPS_BETWEEN_CLOCKS 1024

bool jinja_raise(struct jinja_eval *eval, const char *format, ...)
{
    char sentence[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    return err_set(eval->err, ERR_ARGUMENT, "template line %u: %s", eval->line, sentence);
}

bool jinja_no_memory(struct jinja_eval *eval)
{
    return err_set(eval->err, ERR_NO_MEMORY,
                   "template line %u: limit of memory: the rendering needs more than %zu bytes",
                   eval->line, eval->limits->memory_bytes_cap);
}

bool jinja_steps(struct jinja_eval *eval, size_t count)
{
    uint64_t before = eval->steps;
    eval->steps += count;
    if (eval->steps > eval->steps_cap)
        return jinja_raise(eval, "limit of steps: more than %llu",
                           (unsigned long long)eval->steps_cap);
    if (before / STEPS_BETWEEN_CLOCKS == eval->steps / STEPS_BETWEEN_CLOCKS ||
        clock_ms() < eval->deadline_ms)
        return true;
    return err_set(eval->err, ERR_TIMEOUT, "template line %u: limit of time: more than %llu ms",
                   eval->line, (unsigned long long)eval->limits->time_ms_cap);
}

bool jinja_step(struct jinja_eval *eval)
{
    return jinja_steps(eval, 1);
}

#define BYTES_A_STEP 256

bool jinja_work(struct jinja_eval *eval, size_t bytes)
{
    return bytes < BYTES_A_STEP || jinja_steps(eval, bytes / BYTES_A_STEP);
}

struct value jinja_undefined(const char *sentence)
{
    return (struct value){ .type = VALUE_UNDEFINED, .missing = sentence };
}

void jinja_text_begin(struct jinja_eval *eval, struct traced_builder *builder)
{
    traced_begin(builder, &eval->arena, eval->limits->string_bytes_cap);
}

bool jinja_text_end(struct jinja_eval *eval, struct traced_builder *builder, struct value *out)
{
    struct traced text;
    if (builder->overflowed)
        return jinja_raise(eval, "limit of string size: more than %zu bytes", builder->size_cap);
    if (!traced_finish(builder, &text))
        return jinja_no_memory(eval);
    *out = value_text(text);
    return true;
}

bool jinja_text(struct jinja_eval *eval, struct str bytes, struct value *out)
{
    return value_string(&eval->arena, bytes, true, out) || jinja_no_memory(eval);
}

size_t jinja_length_points(struct str text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.size; i++)
        n += ((unsigned char)text.data[i] & 0xc0) != 0x80;
    return n;
}

uint32_t jinja_next_point(struct str text, size_t *at)
{
    uint32_t point;
    unsigned char first = (unsigned char)text.data[*at];
    if (first < 0x80) {
        (*at)++;
        return first;
    }
    size_t size = utf8_decode(str_slice(text, *at, text.size), &point);
    if (size == 0) {
        (*at)++;
        return 0xfffd;
    }
    *at += size;
    return point;
}

struct traced jinja_piece(struct value string, size_t first, size_t last)
{
    return traced_slice(string.string, first, last);
}

/* ---- names ---- */

struct jinja_scope *jinja_scope_new(struct jinja_eval *eval, struct jinja_scope *parent)
{
    struct jinja_scope *scope = arena_alloc(&eval->arena, sizeof *scope);
    if (!scope) {
        jinja_no_memory(eval);
        return NULL;
    }
    scope->parent = parent;
    return scope;
}

bool jinja_scope_set(struct jinja_eval *eval, struct jinja_scope *scope, uint32_t name,
                     struct value value)
{
    for (size_t i = 0; i < scope->size; i++)
        if (scope->bindings[i].name == name) {
            scope->bindings[i].value = value;
            return true;
        }
    if (scope->size == scope->room) {
        size_t room = scope->room ? scope->room * 2 : 4;
        struct jinja_binding *bindings = arena_array(&eval->arena, room, sizeof *bindings);
        if (!bindings)
            return jinja_no_memory(eval);
        if (scope->size > 0)
            memcpy(bindings, scope->bindings, scope->size * sizeof *bindings);
        scope->bindings = bindings;
        scope->room = room;
    }
    scope->bindings[scope->size++] = (struct jinja_binding){ name, value };
    return true;
}

static struct value find_name(struct jinja_eval *eval, const struct jinja_scope *scope,
                              uint32_t name)
{
    for (; scope; scope = scope->parent)
        for (size_t i = 0; i < scope->size; i++)
            if (scope->bindings[i].name == name)
                return scope->bindings[i].value;
    struct str text = eval->template->name_texts[name];
    const struct value *found = value_dict_get(eval->context, text);
    struct value global;
    if (found)
        return *found;
    if (jinja_global(text, &global))
        return global;
    return jinja_undefined(arena_printf(&eval->arena, "'%.*s' is undefined", STR_ARG(text)));
}

/* ---- kinds of nodes ---- */

static bool evaluate_items(struct jinja_eval *eval, struct jinja_scope *scope,
                           const struct jinja_node *node, enum value_type type, struct value *out)
{
    struct value list, item;
    if (!value_list_new(&eval->arena, type, &list))
        return jinja_no_memory(eval);
    for (size_t i = 0; i < node->items.size; i++) {
        if (!jinja_evaluate(eval, scope, node->items.nodes[i], &item))
            return false;
        if (!value_list_add(&eval->arena, &list, item))
            return jinja_no_memory(eval);
    }
    *out = list;
    return true;
}

static bool evaluate_dict(struct jinja_eval *eval, struct jinja_scope *scope,
                          const struct jinja_node *node, struct value *out)
{
    struct value dict, key, item;
    if (!value_dict_new(&eval->arena, &dict))
        return jinja_no_memory(eval);
    for (size_t i = 0; i < node->items.size; i += 2) {
        if (!jinja_evaluate(eval, scope, node->items.nodes[i], &key) ||
            !jinja_evaluate(eval, scope, node->items.nodes[i + 1], &item))
            return false;
        if (!value_hashable(key))
            return jinja_raise(eval, "unhashable type: '%s'", jinja_type_name(key));
        if (!value_dict_set(&eval->arena, &dict, key, item))
            return jinja_no_memory(eval);
    }
    *out = dict;
    return true;
}

static bool evaluate_chain(struct jinja_eval *eval, struct jinja_scope *scope,
                           const struct jinja_node *node, struct value *out)
{
    struct value sum, next;
    if (!jinja_evaluate(eval, scope, node->items.nodes[0], &sum))
        return false;
    for (size_t i = 1; i < node->items.size; i++) {
        if (!jinja_evaluate(eval, scope, node->items.nodes[i], &next) ||
            !jinja_arithmetic(eval, node->operators[i - 1], sum, next, &sum))
            return false;
    }
    *out = sum;
    return true;
}

static bool evaluate_concat(struct jinja_eval *eval, struct jinja_scope *scope,
                            const struct jinja_node *node, struct value *out)
{
    struct value texts;
    struct traced_builder builder;
    if (!evaluate_items(eval, scope, node, VALUE_LIST, &texts))
        return false;
    jinja_text_begin(eval, &builder);
    for (size_t i = 0; i < texts.list->size; i++)
        if (!jinja_print(eval, texts.list->items[i], &builder))
            return false;
    return jinja_text_end(eval, &builder, out);
}

/* `and`, `or`: the operand that decides is the value. */
static bool evaluate_logic(struct jinja_eval *eval, struct jinja_scope *scope,
                           const struct jinja_node *node, struct value *out)
{
    bool stop_at = node->type == NODE_OR;
    struct value value;
    for (size_t i = 0; i < node->items.size; i++) {
        if (!jinja_evaluate(eval, scope, node->items.nodes[i], &value))
            return false;
        if (jinja_truth(value) == stop_at)
            break;
    }
    *out = value;
    return true;
}

static bool evaluate_compare(struct jinja_eval *eval, struct jinja_scope *scope,
                             const struct jinja_node *node, struct value *out)
{
    struct value left, right;
    bool holds = true;
    if (!jinja_evaluate(eval, scope, node->items.nodes[0], &left))
        return false;
    for (size_t i = 1; holds && i < node->items.size; i++) {
        if (!jinja_evaluate(eval, scope, node->items.nodes[i], &right) ||
            !jinja_compare(eval, node->operators[i - 1], left, right, &holds))
            return false;
        left = right;
    }
    *out = value_bool(holds);
    return true;
}

static bool evaluate_condition(struct jinja_eval *eval, struct jinja_scope *scope,
                               const struct jinja_node *node, struct value *out)
{
    struct value test;
    if (!jinja_evaluate(eval, scope, node->items.nodes[0], &test))
        return false;
    const struct jinja_node *chosen = node->items.nodes[jinja_truth(test) ? 1 : 2];
    if (chosen)
        return jinja_evaluate(eval, scope, chosen, out);
    *out = jinja_undefined("the inline if-expression without else");
    return true;
}

static bool evaluate_attribute(struct jinja_eval *eval, struct jinja_scope *scope,
                               const struct jinja_node *node, struct value *out)
{
    struct value object;
    return jinja_evaluate(eval, scope, node->left, &object) &&
           jinja_get_attribute(eval, object, node->text, out);
}

static bool evaluate_item(struct jinja_eval *eval, struct jinja_scope *scope,
                          const struct jinja_node *node, struct value *out)
{
    struct value object, key;
    if (!jinja_evaluate(eval, scope, node->left, &object) ||
        !jinja_evaluate(eval, scope, node->right, &key))
        return false;
    return jinja_get_item(eval, object, key, out);
}

static bool evaluate_slice(struct jinja_eval *eval, struct jinja_scope *scope,
                           const struct jinja_node *node, struct value *out)
{
    struct value_slice *slice = arena_alloc(&eval->arena, sizeof *slice);
    if (!slice)
        return jinja_no_memory(eval);
    struct value *parts[] = { &slice->first, &slice->last, &slice->step };
    for (size_t i = 0; i < 3; i++) {
        *parts[i] = value_none();
        if (node->items.nodes[i] && !jinja_evaluate(eval, scope, node->items.nodes[i], parts[i]))
            return false;
    }
    *out = (struct value){ .type = VALUE_SLICE, .slice = slice };
    return true;
}

static bool evaluate_call(struct jinja_eval *eval, struct jinja_scope *scope,
                          const struct jinja_node *node, struct value *out)
{
    struct value callee;
    struct jinja_args args;
    if (!jinja_evaluate(eval, scope, node->left, &callee) ||
        !jinja_evaluate_args(eval, scope, node->args, &args))
        return false;
    eval->line = node->line;
    return jinja_call(eval, callee, &args, out);
}

static bool evaluate_filter(struct jinja_eval *eval, struct jinja_scope *scope,
                            const struct jinja_node *node, struct value *out)
{
    struct value subject;
    struct jinja_args args;
    if (!node->filter)
        return jinja_raise(eval, "no filter named '%.*s'", STR_ARG(node->called));
    if (!jinja_evaluate(eval, scope, node->left, &subject) ||
        !jinja_evaluate_args(eval, scope, node->args, &args))
        return false;
    eval->line = node->line;
    return jinja_apply_filter(eval, node->filter, subject, &args, out);
}

static bool evaluate_test(struct jinja_eval *eval, struct jinja_scope *scope,
                          const struct jinja_node *node, struct value *out)
{
    struct value subject;
    struct jinja_args args;
    bool holds;
    if (!node->test)
        return jinja_raise(eval, "no test named '%.*s'", STR_ARG(node->called));
    if (!jinja_evaluate(eval, scope, node->left, &subject) ||
        !jinja_evaluate_args(eval, scope, node->args, &args) ||
        !jinja_apply_test(eval, node->test, subject, &args, &holds))
        return false;
    *out = value_bool(holds);
    return true;
}

static bool evaluate_unary(struct jinja_eval *eval, struct jinja_scope *scope,
                           const struct jinja_node *node, struct value *out)
{
    struct value value;
    if (!jinja_evaluate(eval, scope, node->left, &value))
        return false;
    if (node->type != NODE_NOT)
        return jinja_negate(eval, value, node->type == NODE_PLUS, out);
    *out = value_bool(!jinja_truth(value));
    return true;
}

static bool evaluate_node(struct jinja_eval *eval, struct jinja_scope *scope,
                          const struct jinja_node *node, struct value *out)
{
    switch (node->type) {
    case NODE_CONSTANT:
        *out = node->constant;
        return true;
    case NODE_NAME:
        *out = find_name(eval, scope, node->name);
        return true;
    case NODE_BODY_TEXT:
        *out = eval->body_text;
        return true;
    case NODE_LIST:
        return evaluate_items(eval, scope, node, VALUE_LIST, out);
    case NODE_TUPLE:
        return evaluate_items(eval, scope, node, VALUE_TUPLE, out);
    case NODE_DICT:
        return evaluate_dict(eval, scope, node, out);
    case NODE_CHAIN:
    case NODE_POWER:
        return evaluate_chain(eval, scope, node, out);
    case NODE_CONCAT:
        return evaluate_concat(eval, scope, node, out);
    case NODE_AND:
    case NODE_OR:
        return evaluate_logic(eval, scope, node, out);
    case NODE_NOT:
    case NODE_NEGATE:
    case NODE_PLUS:
        return evaluate_unary(eval, scope, node, out);
    case NODE_COMPARE:
        return evaluate_compare(eval, scope, node, out);
    case NODE_CONDITION:
        return evaluate_condition(eval, scope, node, out);
    case NODE_ATTRIBUTE:
        return evaluate_attribute(eval, scope, node, out);
    case NODE_ITEM:
        return evaluate_item(eval, scope, node, out);
    case NODE_SLICE:
        return evaluate_slice(eval, scope, node, out);
    case NODE_CALL:
        return evaluate_call(eval, scope, node, out);
    case NODE_FILTER:
        return evaluate_filter(eval, scope, node, out);
    case NODE_TEST:
        return evaluate_test(eval, scope, node, out);
    default:
        must(false); // a statement is no expression
        return false;
    }
}

bool jinja_evaluate(struct jinja_eval *eval, struct jinja_scope *scope,
                    const struct jinja_node *node, struct value *out)
{
    if (node->type == NODE_CONSTANT) {
        *out = node->constant;
        return true;
    }
    if (!jinja_step(eval))
        return false;
    if (eval->depth >= eval->limits->depth_cap)
        return jinja_raise(eval, "limit of evaluation depth: more than %u",
                           eval->limits->depth_cap);
    eval->depth++;
    bool ok = evaluate_node(eval, scope, node, out);
    eval->depth--;
    return ok;
}
