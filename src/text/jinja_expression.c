/* Expressions: one function a level of precedence, loosest first.
 *
 *     condition   a if b else c
 *     or, and, not
 *     comparison  == != < <= > >= in, not in      (chained as in Python)
 *     sum         + -
 *     concat      ~
 *     product     * / // %
 *     power       **
 *     unary       - +, then postfix: .name [item] (call), then | filter and `is` test
 *
 * Levels that repeat make one node with many items, so that a long sum is not a deep tree: what is
 * deep is refused (TEMPLATE_PARSE_DEPTH_CAP), and the evaluator recurses no deeper than the tree.
 */
#include "text/jinja_internal.h"

#include <string.h>

static struct jinja_node *parse_or(struct jinja_parser *parser);
static struct jinja_node *parse_unary(struct jinja_parser *parser, bool with_filters);

/* ---- helpers ---- */

static struct jinja_node *constant(struct jinja_parser *parser, struct value value)
{
    struct jinja_node *node = jinja_node_new(parser, NODE_CONSTANT, parser->at->line);
    if (node)
        node->constant = value;
    return node;
}

/* A node with one child. */
static struct jinja_node *wrap(struct jinja_parser *parser, enum jinja_node_type type,
                               uint32_t line, struct jinja_node *child)
{
    struct jinja_node *node = child ? jinja_node_new(parser, type, line) : NULL;
    if (!node || !jinja_adopt(parser, node, child))
        return NULL;
    node->left = child;
    return node;
}

static bool add_item(struct jinja_parser *parser, struct jinja_node *node, struct jinja_node *item)
{
    return item && jinja_body_add(parser, node, &node->items, item);
}

/* ---- literals and names ---- */

static struct jinja_node *parse_text(struct jinja_parser *parser)
{
    struct traced_builder text;
    struct arena *arena = &parser->template->arena;
    struct str first = parser->at->text;
    uint32_t line = parser->at->line;
    struct value value;
    bool alone = (parser->at + 1)->type != TOKEN_STRING;
    if (alone) {
        parser->at++;
        if (!value_view(arena, first, true, &value))
            return jinja_fail(parser, line, "out of memory"), NULL;
        return constant(parser, value);
    }
    traced_begin(&text, arena, TEMPLATE_SOURCE_BYTES_CAP);
    for (; parser->at->type == TOKEN_STRING; parser->at++)
        traced_add(&text, parser->at->text, true);
    struct traced joined;
    if (!traced_finish(&text, &joined) ||
        !value_view(arena, traced_str(joined), true, &value)) // sealed: rendering may not append
        return jinja_fail(parser, line, "out of memory"), NULL;
    return constant(parser, value);
}

static void note_special_names(struct jinja_parser *parser, struct str name)
{
    for (size_t i = 0; i < parser->n_macros; i++) {
        parser->macros[i]->uses_caller |= str_is(name, "caller");
        parser->macros[i]->uses_kwargs |= str_is(name, "kwargs");
        parser->macros[i]->uses_varargs |= str_is(name, "varargs");
    }
}

static struct jinja_node *parse_name(struct jinja_parser *parser)
{
    struct str name = parser->at->text;
    uint32_t line = parser->at->line;
    parser->at++;
    if (str_is(name, "true") || str_is(name, "True"))
        return constant(parser, value_bool(true));
    if (str_is(name, "false") || str_is(name, "False"))
        return constant(parser, value_bool(false));
    if (str_is(name, "none") || str_is(name, "None"))
        return constant(parser, value_none());
    note_special_names(parser, name);
    struct jinja_node *node = jinja_node_new(parser, NODE_NAME, line);
    return node && jinja_intern(parser, name, &node->name) ? node : NULL;
}

static struct jinja_node *parse_list(struct jinja_parser *parser)
{
    struct jinja_node *node = jinja_node_new(parser, NODE_LIST, parser->at++->line);
    while (node && !jinja_skip(parser, TOKEN_RBRACKET)) {
        if (node->items.size > 0 && !jinja_expect(parser, TOKEN_COMMA, ","))
            return NULL;
        if (jinja_skip(parser, TOKEN_RBRACKET))
            break;
        if (!add_item(parser, node, jinja_parse_expression(parser)))
            return NULL;
    }
    return node;
}

static struct jinja_node *parse_dict(struct jinja_parser *parser)
{
    struct jinja_node *node = jinja_node_new(parser, NODE_DICT, parser->at++->line);
    while (node && !jinja_skip(parser, TOKEN_RBRACE)) {
        if (node->items.size > 0 && !jinja_expect(parser, TOKEN_COMMA, ","))
            return NULL;
        if (jinja_skip(parser, TOKEN_RBRACE))
            break;
        if (!add_item(parser, node, jinja_parse_expression(parser)) ||
            !jinja_expect(parser, TOKEN_COLON, ":") ||
            !add_item(parser, node, jinja_parse_expression(parser)))
            return NULL;
    }
    return node;
}

static struct jinja_node *parse_primary(struct jinja_parser *parser)
{
    const struct jinja_token *token = parser->at;
    struct jinja_node *node;
    switch (token->type) {
    case TOKEN_NAME:
        return parse_name(parser);
    case TOKEN_STRING:
        return parse_text(parser);
    case TOKEN_INTEGER:
        parser->at++;
        return constant(parser, value_integer(token->integer));
    case TOKEN_FLOAT:
        parser->at++;
        return constant(parser, value_float(token->real));
    case TOKEN_LPAREN:
        parser->at++;
        node = jinja_parse_tuple(parser, TUPLE_PARENTHESES, NULL);
        return node && jinja_expect(parser, TOKEN_RPAREN, ")") ? node : NULL;
    case TOKEN_LBRACKET:
        return parse_list(parser);
    case TOKEN_LBRACE:
        return parse_dict(parser);
    default: {
        struct str name = jinja_token_name(token);
        return jinja_fail(parser, token->line, "unexpected '%.*s'", STR_ARG(name)), NULL;
    }
    }
}

/* ---- subscripts and calls ---- */

/* One of the three parts of a slice, up to the next ':' , ']' or ','. */
static bool parse_slice_part(struct jinja_parser *parser, struct jinja_node *slice)
{
    enum jinja_token_type type = parser->at->type;
    struct jinja_node *part = NULL;
    if (type != TOKEN_COLON && type != TOKEN_RBRACKET && type != TOKEN_COMMA) {
        part = jinja_parse_expression(parser);
        if (!part)
            return false;
    }
    return jinja_body_add(parser, slice, &slice->items, part);
}

static struct jinja_node *parse_subscript_part(struct jinja_parser *parser)
{
    uint32_t line = parser->at->line;
    struct jinja_node *first = NULL;
    if (parser->at->type != TOKEN_COLON) {
        first = jinja_parse_expression(parser);
        if (!first || parser->at->type != TOKEN_COLON)
            return first;
    }
    parser->at++;
    struct jinja_node *slice = jinja_node_new(parser, NODE_SLICE, line);
    if (!slice || !jinja_body_add(parser, slice, &slice->items, first) ||
        !parse_slice_part(parser, slice))
        return NULL;
    if (jinja_skip(parser, TOKEN_COLON))
        return parse_slice_part(parser, slice) ? slice : NULL;
    return jinja_body_add(parser, slice, &slice->items, NULL) ? slice : NULL;
}

static struct jinja_node *parse_brackets(struct jinja_parser *parser)
{
    uint32_t line = parser->at++->line;
    struct jinja_node *tuple = jinja_node_new(parser, NODE_TUPLE, line);
    while (tuple && !jinja_skip(parser, TOKEN_RBRACKET)) {
        if (tuple->items.size > 0 && !jinja_expect(parser, TOKEN_COMMA, ","))
            return NULL;
        if (!add_item(parser, tuple, parse_subscript_part(parser)))
            return NULL;
    }
    return tuple && tuple->items.size == 1 ? tuple->items.nodes[0] : tuple;
}

static struct jinja_node *parse_dot(struct jinja_parser *parser, struct jinja_node *object)
{
    parser->at++;
    const struct jinja_token *token = parser->at++;
    if (token->type == TOKEN_NAME) {
        struct jinja_node *node = wrap(parser, NODE_ATTRIBUTE, token->line, object);
        if (node)
            node->text = token->text;
        return node;
    }
    if (token->type != TOKEN_INTEGER)
        return jinja_fail(parser, token->line, "expected a name or a number after '.'"), NULL;
    struct jinja_node *node = wrap(parser, NODE_ITEM, token->line, object);
    if (node)
        node->right = constant(parser, value_integer(token->integer));
    return node && node->right ? node : NULL;
}

static bool add_named_arg(struct jinja_parser *parser, struct jinja_node *node,
                          struct jinja_call_args *args)
{
    if (args->named.size == args->names_room) {
        size_t room = args->names_room ? args->names_room * 2 : 4;
        struct str *names = arena_array(&parser->template->arena, room, sizeof *names);
        if (!names)
            return jinja_fail(parser, parser->at->line, "out of memory");
        if (args->named.size > 0)
            memcpy(names, args->names, args->named.size * sizeof *names);
        args->names = names;
        args->names_room = room;
    }
    struct str name = parser->at->text;
    for (size_t i = 0; i < args->named.size; i++)
        if (str_equal(args->names[i], name))
            return jinja_fail(parser, parser->at->line, "keyword argument repeated: %.*s",
                              STR_ARG(name));
    args->names[args->named.size] = name;
    parser->at += 2;
    struct jinja_node *value = jinja_parse_expression(parser);
    return value && jinja_body_add(parser, node, &args->named, value);
}

static bool parse_one_arg(struct jinja_parser *parser, struct jinja_node *node,
                          struct jinja_call_args *args)
{
    struct jinja_node *value = NULL;
    bool spread = parser->at->type == TOKEN_MUL, spread_named = parser->at->type == TOKEN_POW;
    bool named = parser->at->type == TOKEN_NAME && (parser->at + 1)->type == TOKEN_ASSIGN;
    if (args->spread_named || (args->spread && !named && !spread_named) ||
        (args->named.size > 0 && !spread && !spread_named && !named))
        return jinja_fail(parser, parser->at->line, "invalid syntax for function call expression");
    if (named)
        return add_named_arg(parser, node, args);
    if (spread || spread_named)
        parser->at++;
    value = jinja_parse_expression(parser);
    if (!value)
        return false;
    if (!spread && !spread_named)
        return jinja_body_add(parser, node, &args->positional, value);
    *(spread ? &args->spread : &args->spread_named) = value;
    return jinja_adopt(parser, node, value);
}

/* The parentheses of a call, filter or test. */
static struct jinja_call_args *parse_args(struct jinja_parser *parser, struct jinja_node *node)
{
    struct jinja_call_args *args = arena_alloc(&parser->template->arena, sizeof *args);
    if (!args)
        return jinja_fail(parser, parser->at->line, "out of memory"), NULL;
    bool first = true;
    parser->at++;
    while (!jinja_skip(parser, TOKEN_RPAREN)) {
        if (!first && !jinja_expect(parser, TOKEN_COMMA, ","))
            return NULL;
        if (!first && jinja_skip(parser, TOKEN_RPAREN))
            break;
        if (!parse_one_arg(parser, node, args))
            return NULL;
        first = false;
    }
    return args;
}

static struct jinja_node *parse_call(struct jinja_parser *parser, struct jinja_node *callee)
{
    struct jinja_node *node = wrap(parser, NODE_CALL, parser->at->line, callee);
    if (!node)
        return NULL;
    node->args = parse_args(parser, node);
    return node->args ? node : NULL;
}

static struct jinja_node *parse_postfix(struct jinja_parser *parser, struct jinja_node *node)
{
    while (node) {
        uint32_t line = parser->at->line;
        if (parser->at->type == TOKEN_DOT) {
            node = parse_dot(parser, node);
        } else if (parser->at->type == TOKEN_LBRACKET) {
            struct jinja_node *key = parse_brackets(parser);
            node = key ? wrap(parser, NODE_ITEM, line, node) : NULL;
            if (node && !jinja_adopt(parser, node, key))
                return NULL;
            if (node)
                node->right = key;
        } else if (parser->at->type == TOKEN_LPAREN) {
            node = parse_call(parser, node);
        } else {
            break;
        }
    }
    return node;
}

/* ---- filters and tests ---- */

/* "name" or "name.name" as one text. */
static bool parse_dotted(struct jinja_parser *parser, struct str *out)
{
    *out = parser->at->text;
    if (!jinja_expect(parser, TOKEN_NAME, "name"))
        return false;
    while (jinja_skip(parser, TOKEN_DOT)) {
        char *joined = arena_printf(&parser->template->arena, "%.*s.%.*s", STR_ARG(*out),
                                    STR_ARG(parser->at->text));
        if (!joined || !jinja_expect(parser, TOKEN_NAME, "name"))
            return false;
        *out = str_from(joined);
    }
    return true;
}

static struct jinja_node *parse_filter(struct jinja_parser *parser, struct jinja_node *subject)
{
    uint32_t line = parser->at->line;
    struct str name;
    if (!parse_dotted(parser, &name))
        return NULL;
    struct jinja_node *node = wrap(parser, NODE_FILTER, line, subject);
    if (!node)
        return NULL;
    node->called = name;
    node->filter = jinja_filter_find(name);
    if (!node->filter && !parser->soft && !parser->unknown)
        parser->unknown = node;
    if (parser->at->type == TOKEN_LPAREN) {
        node->args = parse_args(parser, node);
        if (!node->args)
            return NULL;
    }
    return node;
}

struct jinja_node *jinja_parse_filters(struct jinja_parser *parser, struct jinja_node *node,
                                       bool begun)
{
    while (node && (begun || jinja_skip(parser, TOKEN_PIPE))) {
        node = parse_filter(parser, node);
        begun = false;
    }
    return node;
}

/* A test may have one argument without parentheses: `x is divisibleby 3`. */
static bool starts_test_argument(const struct jinja_token *token)
{
    switch (token->type) {
    case TOKEN_NAME:
        return !jinja_is_word(token, "else") && !jinja_is_word(token, "or") &&
               !jinja_is_word(token, "and");
    case TOKEN_STRING:
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
    case TOKEN_LBRACKET:
    case TOKEN_LBRACE:
        return true;
    default:
        return false;
    }
}

static bool parse_test_args(struct jinja_parser *parser, struct jinja_node *node)
{
    if (parser->at->type == TOKEN_LPAREN) {
        node->args = parse_args(parser, node);
        return node->args != NULL;
    }
    if (!starts_test_argument(parser->at))
        return true;
    if (jinja_is_word(parser->at, "is"))
        return jinja_fail(parser, parser->at->line, "You cannot chain multiple tests with is");
    node->args = arena_alloc(&parser->template->arena, sizeof *node->args);
    if (!node->args)
        return jinja_fail(parser, parser->at->line, "out of memory");
    struct jinja_node *arg = parse_postfix(parser, parse_primary(parser));
    return arg && jinja_body_add(parser, node, &node->args->positional, arg);
}

static struct jinja_node *parse_test(struct jinja_parser *parser, struct jinja_node *subject)
{
    uint32_t line = parser->at++->line;
    bool negated = jinja_skip_word(parser, "not");
    struct str name;
    if (!parse_dotted(parser, &name))
        return NULL;
    struct jinja_node *node = wrap(parser, NODE_TEST, line, subject);
    if (!node)
        return NULL;
    node->called = name;
    node->test = jinja_test_find(name);
    if (!node->test && !parser->soft && !parser->unknown)
        parser->unknown = node;
    if (!parse_test_args(parser, node))
        return NULL;
    return negated ? wrap(parser, NODE_NOT, line, node) : node;
}

static struct jinja_node *parse_filters_and_tests(struct jinja_parser *parser,
                                                  struct jinja_node *node)
{
    while (node) {
        if (jinja_skip(parser, TOKEN_PIPE))
            node = parse_filter(parser, node);
        else if (jinja_is_word(parser->at, "is"))
            node = parse_test(parser, node);
        else if (parser->at->type == TOKEN_LPAREN)
            node = parse_call(parser, node);
        else
            break;
    }
    return node;
}

/* ---- operators ---- */

static struct jinja_node *parse_unary(struct jinja_parser *parser, bool with_filters)
{
    uint32_t line = parser->at->line;
    enum jinja_token_type type = parser->at->type;
    struct jinja_node *node;
    if (!jinja_enter(parser))
        return NULL;
    if (type == TOKEN_SUB || type == TOKEN_ADD) {
        parser->at++;
        node = wrap(parser, type == TOKEN_SUB ? NODE_NEGATE : NODE_PLUS, line,
                    parse_unary(parser, false));
    } else {
        node = parse_primary(parser);
    }
    node = parse_postfix(parser, node);
    parser->depth--;
    return with_filters ? parse_filters_and_tests(parser, node) : node;
}

/* A level of operators: its node, what is below it, and its operators. */
struct level {
    enum jinja_node_type type;
    struct jinja_node *(*below)(struct jinja_parser *parser);
    bool (*read_operator)(struct jinja_parser *parser, enum jinja_token_type *op);
};

static bool add_operator(struct jinja_parser *parser, struct jinja_node *node, size_t *room,
                         enum jinja_token_type op)
{
    size_t n = node->items.size - 1;
    if (n == *room) {
        size_t grown = *room ? *room * 2 : 4;
        enum jinja_token_type *operators =
            arena_array(&parser->template->arena, grown, sizeof *operators);
        if (!operators)
            return jinja_fail(parser, node->line, "out of memory");
        if (n > 0)
            memcpy(operators, node->operators, n * sizeof *operators);
        node->operators = operators;
        *room = grown;
    }
    node->operators[n] = op;
    return true;
}

static struct jinja_node *parse_level(struct jinja_parser *parser, const struct level *level)
{
    uint32_t line = parser->at->line;
    struct jinja_node *first = level->below(parser), *node = NULL;
    enum jinja_token_type op;
    size_t room = 0;
    while (first && level->read_operator(parser, &op)) {
        if (!node) {
            node = jinja_node_new(parser, level->type, line);
            if (!node || !add_item(parser, node, first))
                return NULL;
        }
        if (!add_operator(parser, node, &room, op) || !add_item(parser, node, level->below(parser)))
            return NULL;
    }
    return node ? node : first;
}

static bool read_one_of(struct jinja_parser *parser, const enum jinja_token_type *types,
                        size_t n_types, enum jinja_token_type *op)
{
    for (size_t i = 0; i < n_types; i++)
        if (parser->at->type == types[i]) {
            *op = types[i];
            parser->at++;
            return true;
        }
    return false;
}

static bool read_power(struct jinja_parser *parser, enum jinja_token_type *op)
{
    return read_one_of(parser, (enum jinja_token_type[]){ TOKEN_POW }, 1, op);
}

static bool read_product(struct jinja_parser *parser, enum jinja_token_type *op)
{
    static const enum jinja_token_type types[] = { TOKEN_MUL, TOKEN_DIV, TOKEN_FLOORDIV,
                                                   TOKEN_MOD };
    return read_one_of(parser, types, 4, op);
}

static bool read_tilde(struct jinja_parser *parser, enum jinja_token_type *op)
{
    return read_one_of(parser, (enum jinja_token_type[]){ TOKEN_TILDE }, 1, op);
}

static bool read_sum(struct jinja_parser *parser, enum jinja_token_type *op)
{
    return read_one_of(parser, (enum jinja_token_type[]){ TOKEN_ADD, TOKEN_SUB }, 2, op);
}

static bool read_comparison(struct jinja_parser *parser, enum jinja_token_type *op)
{
    static const enum jinja_token_type types[] = { TOKEN_EQ,   TOKEN_NE, TOKEN_LT,
                                                   TOKEN_LTEQ, TOKEN_GT, TOKEN_GTEQ };
    if (read_one_of(parser, types, 6, op))
        return true;
    if (jinja_skip_word(parser, "in")) {
        *op = TOKEN_IN;
        return true;
    }
    if (!jinja_is_word(parser->at, "not") || !jinja_is_word(parser->at + 1, "in"))
        return false;
    parser->at += 2;
    *op = TOKEN_NOT_IN;
    return true;
}

static bool read_and(struct jinja_parser *parser, enum jinja_token_type *op)
{
    *op = TOKEN_NAME;
    return jinja_skip_word(parser, "and");
}

static bool read_or(struct jinja_parser *parser, enum jinja_token_type *op)
{
    *op = TOKEN_NAME;
    return jinja_skip_word(parser, "or");
}

static struct jinja_node *parse_operand(struct jinja_parser *parser)
{
    return parse_unary(parser, true);
}

static struct jinja_node *parse_power(struct jinja_parser *parser)
{
    return parse_level(parser, &(struct level){ NODE_POWER, parse_operand, read_power });
}

static struct jinja_node *parse_product(struct jinja_parser *parser)
{
    return parse_level(parser, &(struct level){ NODE_CHAIN, parse_power, read_product });
}

static struct jinja_node *parse_concat(struct jinja_parser *parser)
{
    return parse_level(parser, &(struct level){ NODE_CONCAT, parse_product, read_tilde });
}

static struct jinja_node *parse_sum(struct jinja_parser *parser)
{
    return parse_level(parser, &(struct level){ NODE_CHAIN, parse_concat, read_sum });
}

static struct jinja_node *parse_not(struct jinja_parser *parser)
{
    uint32_t line = parser->at->line;
    if (!jinja_skip_word(parser, "not"))
        return parse_level(parser, &(struct level){ NODE_COMPARE, parse_sum, read_comparison });
    if (!jinja_enter(parser))
        return NULL;
    struct jinja_node *node = wrap(parser, NODE_NOT, line, parse_not(parser));
    parser->depth--;
    return node;
}

static struct jinja_node *parse_and(struct jinja_parser *parser)
{
    return parse_level(parser, &(struct level){ NODE_AND, parse_not, read_and });
}

static struct jinja_node *parse_or(struct jinja_parser *parser)
{
    return parse_level(parser, &(struct level){ NODE_OR, parse_and, read_or });
}

static bool add_condition(struct jinja_parser *parser, struct jinja_node *node,
                          struct jinja_node *then)
{
    struct jinja_node *test = parse_or(parser), *otherwise = NULL;
    if (!add_item(parser, node, test) || !add_item(parser, node, then))
        return false;
    if (jinja_skip_word(parser, "else")) {
        if (!jinja_enter(parser))
            return false;
        otherwise = jinja_parse_expression(parser);
        parser->depth--;
        if (!otherwise)
            return false;
    }
    return jinja_body_add(parser, node, &node->items, otherwise);
}

/* An unknown filter is an error of the template, but inside a conditional expression only when it
 * runs; that this is one is known behind its first part. So what is unknown is noted, and forgotten
 * again when an `if` follows. */
struct jinja_node *jinja_parse_expression(struct jinja_parser *parser)
{
    const struct jinja_node *unknown_before = parser->unknown;
    bool conditional = false;
    parser->unknown = NULL;
    struct jinja_node *node = parse_or(parser);
    while (node && jinja_is_word(parser->at, "if")) {
        struct jinja_node *condition = jinja_node_new(parser, NODE_CONDITION, parser->at++->line);
        node = condition && add_condition(parser, condition, node) ? condition : NULL;
        conditional = true;
    }
    if (unknown_before || conditional)
        parser->unknown = unknown_before;
    return node;
}

struct jinja_node *jinja_parse_tuple(struct jinja_parser *parser, enum jinja_tuple_mode mode,
                                     const char *end)
{
    struct jinja_node *first = NULL, *tuple = NULL;
    while (true) {
        enum jinja_token_type type = parser->at->type;
        if (type == TOKEN_VARIABLE_END || type == TOKEN_BLOCK_END || type == TOKEN_RPAREN ||
            (end && jinja_is_word(parser->at, end)))
            break;
        struct jinja_node *item = mode == TUPLE_TARGET         ? parse_primary(parser)
                                  : mode == TUPLE_NO_CONDITION ? parse_or(parser)
                                                               : jinja_parse_expression(parser);
        if (!item || (tuple && !add_item(parser, tuple, item)))
            return NULL;
        first = tuple ? first : item;
        if (!jinja_skip(parser, TOKEN_COMMA))
            return tuple ? tuple : first;
        if (!tuple) {
            tuple = jinja_node_new(parser, NODE_TUPLE, item->line);
            if (!tuple || !add_item(parser, tuple, item))
                return NULL;
        }
    }
    if (tuple || mode == TUPLE_PARENTHESES)
        return tuple ? tuple : jinja_node_new(parser, NODE_TUPLE, parser->at->line);
    struct str name = jinja_token_name(parser->at);
    jinja_fail(parser, parser->at->line, "expected an expression, got '%.*s'", STR_ARG(name));
    return NULL;
}
