/* Statements, and what statements and expressions share.
 *
 * The tree is immutable after parsing and lives in the template's arena. Names are interned, so
 * that scopes compare numbers. What Jinja2 finds when it compiles (unknown filters outside of
 * conditions, break outside of loops) is found here. */
#include "text/jinja_internal.h"

#include <stdio.h>
#include <string.h>

bool jinja_fail(struct jinja_parser *parser, uint32_t line, const char *format, ...)
{
    if (parser->err->code != ERR_NONE) // the first one is the cause
        return false;
    char sentence[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    return err_set(parser->err, ERR_FORMAT, "line %u: %s", line, sentence);
}

static bool out_of_memory(struct jinja_parser *parser)
{
    return parser->err->code == ERR_NONE &&
           err_set(parser->err, ERR_NO_MEMORY, "the template needs more than %zu bytes",
                   parser->template->arena.used_bytes_cap);
}

static bool too_deep(struct jinja_parser *parser)
{
    return jinja_fail(parser, parser->at->line, "limit of parse depth: nested deeper than %d",
                      TEMPLATE_PARSE_DEPTH_CAP);
}

struct jinja_node *jinja_node_new(struct jinja_parser *parser, enum jinja_node_type type,
                                  uint32_t line)
{
    struct jinja_node *node = arena_alloc(&parser->template->arena, sizeof *node);
    if (!node) {
        out_of_memory(parser);
        return NULL;
    }
    node->type = type;
    node->line = line;
    node->height = 1;
    return node;
}

bool jinja_adopt(struct jinja_parser *parser, struct jinja_node *parent,
                 const struct jinja_node *child)
{
    if (child->height >= parent->height)
        parent->height = child->height + 1;
    return parent->height <= TEMPLATE_PARSE_DEPTH_CAP || too_deep(parser);
}

bool jinja_body_add(struct jinja_parser *parser, struct jinja_node *parent, struct jinja_body *body,
                    struct jinja_node *node)
{
    if (body->size == body->room) {
        size_t room = body->room ? body->room * 2 : 4;
        struct jinja_node **nodes =
            arena_array(&parser->template->arena, room, sizeof(struct jinja_node *));
        if (!nodes)
            return out_of_memory(parser);
        if (body->size > 0)
            memcpy(nodes, body->nodes, body->size * sizeof(struct jinja_node *));
        body->nodes = nodes;
        body->room = room;
    }
    body->nodes[body->size++] = node;
    return !node || !parent || jinja_adopt(parser, parent, node);
}

bool jinja_intern(struct jinja_parser *parser, struct str name, uint32_t *id)
{
    struct template *template = parser->template;
    const struct value *known = value_dict_get(&template->names, name);
    if (known) {
        *id = (uint32_t)known->integer;
        return true;
    }
    struct value key;
    if (template->n_names == template->names_room) {
        size_t room = template->names_room ? template->names_room * 2 : 32;
        struct str *texts = arena_array(&template->arena, room, sizeof *texts);
        if (!texts)
            return out_of_memory(parser);
        if (template->n_names > 0)
            memcpy(texts, template->name_texts, template->n_names * sizeof *texts);
        template->name_texts = texts;
        template->names_room = room;
    }
    if (!value_string(&template->arena, name, true, &key) ||
        !value_dict_set(&template->arena, &template->names, key,
                        value_integer((int64_t) template->n_names)))
        return out_of_memory(parser);
    template->name_texts[template->n_names] = traced_str(key.string);
    *id = (uint32_t) template->n_names++;
    return true;
}

bool jinja_is_word(const struct jinja_token *token, const char *word)
{
    return token->type == TOKEN_NAME && str_is(token->text, word);
}

bool jinja_skip(struct jinja_parser *parser, enum jinja_token_type type)
{
    if (parser->at->type != type)
        return false;
    parser->at++;
    return true;
}

bool jinja_skip_word(struct jinja_parser *parser, const char *word)
{
    if (!jinja_is_word(parser->at, word))
        return false;
    parser->at++;
    return true;
}

bool jinja_expect(struct jinja_parser *parser, enum jinja_token_type type, const char *what)
{
    if (jinja_skip(parser, type))
        return true;
    struct str name = jinja_token_name(parser->at);
    return jinja_fail(parser, parser->at->line, "expected '%s', got '%.*s'", what, STR_ARG(name));
}

bool jinja_enter(struct jinja_parser *parser)
{
    parser->depth++;
    return parser->depth <= TEMPLATE_PARSE_DEPTH_CAP || too_deep(parser);
}

static bool expect_word(struct jinja_parser *parser, const char *word)
{
    if (jinja_skip_word(parser, word))
        return true;
    struct str name = jinja_token_name(parser->at);
    return jinja_fail(parser, parser->at->line, "expected '%s', got '%.*s'", word, STR_ARG(name));
}

/* ---- targets ---- */

static bool is_target(struct jinja_parser *parser, const struct jinja_node *node)
{
    if (node->type == NODE_NAME)
        return true;
    if (node->type != NODE_TUPLE)
        return jinja_fail(parser, node->line, "can't assign to this expression");
    for (size_t i = 0; i < node->items.size; i++)
        if (!is_target(parser, node->items.nodes[i]))
            return false;
    return true;
}

/* A name, or names with commas. `end`: the word behind it, or NULL. */
static struct jinja_node *parse_target(struct jinja_parser *parser, const char *end)
{
    struct jinja_node *target = jinja_parse_tuple(parser, TUPLE_TARGET, end);
    return target && is_target(parser, target) ? target : NULL;
}

static struct jinja_node *parse_set_target(struct jinja_parser *parser)
{
    if (parser->at->type != TOKEN_NAME || (parser->at + 1)->type != TOKEN_DOT)
        return parse_target(parser, NULL);
    struct jinja_node *target = jinja_node_new(parser, NODE_NAMESPACE_TARGET, parser->at->line);
    if (!target || !jinja_intern(parser, parser->at->text, &target->name))
        return NULL;
    parser->at += 2;
    target->text = parser->at->text;
    return jinja_expect(parser, TOKEN_NAME, "name") ? target : NULL;
}

/* A single name that is being defined: a macro or a parameter. */
static bool parse_definition(struct jinja_parser *parser, struct str *name, uint32_t *id)
{
    static const char *const reserved[] = { "true", "false", "none", "True", "False", "None" };
    *name = parser->at->text;
    if (!jinja_expect(parser, TOKEN_NAME, "name"))
        return false;
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++)
        if (str_is(*name, reserved[i]))
            return jinja_fail(parser, parser->at->line, "can't assign to '%s'", reserved[i]);
    return jinja_intern(parser, *name, id);
}

/* ---- bodies ---- */

static bool parse_statement(struct jinja_parser *parser, struct jinja_node *parent,
                            struct jinja_body *body);

/* A filter that nobody knows fails now, unless a condition may keep it from running. */
static bool check_known(struct jinja_parser *parser)
{
    const struct jinja_node *node = parser->unknown;
    parser->unknown = NULL;
    return !node || parser->soft ||
           jinja_fail(parser, node->line, "no %s named '%.*s'",
                      node->type == NODE_FILTER ? "filter" : "test", STR_ARG(node->called));
}

static bool add_output(struct jinja_parser *parser, struct jinja_node *parent,
                       struct jinja_body *body, struct jinja_node *expression)
{
    if (!expression)
        return false;
    struct jinja_node *node = jinja_node_new(parser, NODE_OUTPUT, expression->line);
    if (!node || !jinja_adopt(parser, node, expression))
        return false;
    node->left = expression;
    return jinja_body_add(parser, parent, body, node);
}

static bool parse_data(struct jinja_parser *parser, struct jinja_node *parent,
                       struct jinja_body *body)
{
    struct jinja_node *node = jinja_node_new(parser, NODE_CONSTANT, parser->at->line);
    if (!node)
        return false;
    if (!value_view(&parser->template->arena, parser->at->text, true, &node->constant))
        return out_of_memory(parser);
    parser->at++;
    return add_output(parser, parent, body, node);
}

static bool is_end_word(const struct jinja_token *token, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (jinja_is_word(token, *ends))
            return true;
    return false;
}

/* Parses up to a tag with one of the words `ends` (NULL-terminated; NULL: end of the template).
 * The parser then stands on that word. */
static bool parse_body(struct jinja_parser *parser, struct jinja_node *parent,
                       const char *const *ends, struct jinja_body *body)
{
    while (parser->at->type != TOKEN_EOF) {
        if (parser->at->type == TOKEN_DATA) {
            if (!parse_data(parser, parent, body))
                return false;
        } else if (jinja_skip(parser, TOKEN_VARIABLE_BEGIN)) {
            struct jinja_node *tuple = jinja_parse_tuple(parser, TUPLE_FULL, NULL);
            if (!add_output(parser, parent, body, tuple) || !check_known(parser) ||
                !jinja_expect(parser, TOKEN_VARIABLE_END, "}}"))
                return false;
        } else {
            parser->at++; // "{%"
            if (is_end_word(parser->at, ends))
                return true;
            if (!parse_statement(parser, parent, body) || !check_known(parser) ||
                !jinja_expect(parser, TOKEN_BLOCK_END, "%}"))
                return false;
        }
    }
    return !ends || jinja_fail(parser, parser->at->line,
                               "unexpected end of template: '%s' is missing", ends[0]);
}

/* The rest of the opening tag, the body, and the closing word. */
static bool parse_block(struct jinja_parser *parser, struct jinja_node *parent,
                        const char *const *ends, struct jinja_body *body)
{
    jinja_skip(parser, TOKEN_COLON);
    return check_known(parser) && jinja_expect(parser, TOKEN_BLOCK_END, "%}") &&
           parse_body(parser, parent, ends, body);
}

/* Everything but if-blocks begins a part of its own, in which unknown filters are errors again.
 * What a block collects as a string cannot be left by a break. */
static bool parse_hard_block(struct jinja_parser *parser, struct jinja_node *parent,
                             const char *const *ends, struct jinja_body *body)
{
    bool soft = parser->soft, collects = parent->type != NODE_FOR && parent->type != NODE_WITH;
    uint32_t loop_depth = parser->loop_depth;
    if (!check_known(parser))
        return false;
    parser->soft = false;
    if (collects)
        parser->loop_depth = 0;
    bool ok = parse_block(parser, parent, ends, body);
    parser->loop_depth = loop_depth;
    parser->soft = soft;
    return ok;
}

/* ---- statements ---- */

static struct jinja_node *parse_for(struct jinja_parser *parser)
{
    static const char *const ends[] = { "endfor", "else", NULL };
    static const char *const last[] = { "endfor", NULL };
    struct jinja_node *node = jinja_node_new(parser, NODE_FOR, parser->at->line);
    struct jinja_for *loop = arena_alloc(&parser->template->arena, sizeof *loop);
    if (!node || !loop)
        return NULL;
    node->loop = loop;
    loop->target = parse_target(parser, "in");
    if (!loop->target || !expect_word(parser, "in"))
        return NULL;
    if (loop->target->type == NODE_NAME && loop->target->name == parser->template->id_loop)
        return jinja_fail(parser, node->line, "can't assign to special loop variable"), NULL;
    loop->iterable = jinja_parse_tuple(parser, TUPLE_NO_CONDITION, "recursive");
    if (!loop->iterable || !jinja_adopt(parser, node, loop->iterable))
        return NULL;
    if (jinja_skip_word(parser, "if")) {
        loop->filter = jinja_parse_expression(parser);
        if (!loop->filter || !jinja_adopt(parser, node, loop->filter))
            return NULL;
    }
    loop->recursive = jinja_skip_word(parser, "recursive");
    parser->loop_depth++;
    if (!parse_hard_block(parser, node, ends, &loop->body))
        return NULL;
    parser->loop_depth--;
    if (!jinja_is_word(parser->at++, "else"))
        return node;
    if (!parse_hard_block(parser, node, last, &loop->otherwise))
        return NULL;
    parser->at++;
    return node;
}

static bool parse_branch(struct jinja_parser *parser, struct jinja_node *node, bool has_test,
                         size_t *room)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL };
    static const char *const last[] = { "endif", NULL };
    if (node->n_branches == *room) {
        size_t grown = *room ? *room * 2 : 2;
        struct jinja_branch *branches =
            arena_array(&parser->template->arena, grown, sizeof *branches);
        if (!branches)
            return out_of_memory(parser);
        if (node->n_branches > 0)
            memcpy(branches, node->branches, node->n_branches * sizeof *branches);
        node->branches = branches;
        *room = grown;
    }
    struct jinja_branch *branch = &node->branches[node->n_branches++];
    if (has_test) {
        branch->test = jinja_parse_tuple(parser, TUPLE_NO_CONDITION, NULL);
        if (!branch->test || !jinja_adopt(parser, node, branch->test))
            return false;
    }
    return parse_block(parser, node, has_test ? ends : last, &branch->body);
}

static struct jinja_node *parse_if(struct jinja_parser *parser)
{
    struct jinja_node *node = jinja_node_new(parser, NODE_IF, parser->at->line);
    size_t room = 0;
    bool soft = parser->soft, has_test = true;
    parser->soft = true;
    while (node) {
        if (!parse_branch(parser, node, has_test, &room))
            return NULL;
        struct str word = parser->at++->text;
        if (str_is(word, "endif"))
            break;
        has_test = str_is(word, "elif");
    }
    parser->soft = soft;
    return node;
}

static struct jinja_node *parse_set(struct jinja_parser *parser)
{
    static const char *const ends[] = { "endset", NULL };
    uint32_t line = parser->at->line;
    struct jinja_node *target = parse_set_target(parser);
    if (!target)
        return NULL;
    bool is_block = !jinja_skip(parser, TOKEN_ASSIGN);
    struct jinja_node *node = jinja_node_new(parser, is_block ? NODE_SET_BLOCK : NODE_SET, line);
    if (!node)
        return NULL;
    node->left = target;
    if (!is_block) {
        node->right = jinja_parse_tuple(parser, TUPLE_FULL, NULL);
        return node->right && jinja_adopt(parser, node, node->right) ? node : NULL;
    }
    if (parser->at->type == TOKEN_PIPE) {
        struct jinja_node *text = jinja_node_new(parser, NODE_BODY_TEXT, line);
        node->right = text ? jinja_parse_filters(parser, text, false) : NULL;
        if (!node->right || !jinja_adopt(parser, node, node->right))
            return NULL;
    }
    if (!parse_hard_block(parser, node, ends, &node->body))
        return NULL;
    parser->at++;
    return node;
}

static bool add_parameter(struct jinja_parser *parser, struct jinja_node *node)
{
    struct jinja_macro *macro = node->macro;
    struct arena *arena = &parser->template->arena;
    if (macro->n_parameters == macro->room) {
        size_t room = macro->room ? macro->room * 2 : 4, n = macro->n_parameters;
        uint32_t *ids = arena_array(arena, room, sizeof *ids);
        struct str *names = arena_array(arena, room, sizeof *names);
        struct jinja_node **defaults = arena_array(arena, room, sizeof(struct jinja_node *));
        if (!ids || !names || !defaults)
            return out_of_memory(parser);
        for (size_t i = 0; i < n; i++) {
            ids[i] = macro->parameters[i];
            names[i] = macro->parameter_names[i];
            defaults[i] = macro->defaults[i];
        }
        macro->parameters = ids;
        macro->parameter_names = names;
        macro->defaults = defaults;
        macro->room = room;
    }
    size_t at = macro->n_parameters;
    if (!parse_definition(parser, &macro->parameter_names[at], &macro->parameters[at]))
        return false;
    for (size_t i = 0; i < at; i++)
        if (macro->parameters[i] == macro->parameters[at])
            return jinja_fail(parser, node->line, "duplicate parameter '%.*s'",
                              STR_ARG(macro->parameter_names[at]));
    macro->n_parameters++;
    if (jinja_skip(parser, TOKEN_ASSIGN)) {
        macro->defaults[at] = jinja_parse_expression(parser);
        return macro->defaults[at] && jinja_adopt(parser, node, macro->defaults[at]);
    }
    return at == 0 || !macro->defaults[at - 1] ||
           jinja_fail(parser, parser->at->line, "non-default argument follows default argument");
}

static bool parse_signature(struct jinja_parser *parser, struct jinja_node *node)
{
    if (!jinja_expect(parser, TOKEN_LPAREN, "("))
        return false;
    while (!jinja_skip(parser, TOKEN_RPAREN)) {
        if (node->macro->n_parameters > 0 && !jinja_expect(parser, TOKEN_COMMA, ","))
            return false;
        if (!add_parameter(parser, node))
            return false;
    }
    return true;
}

static struct jinja_node *new_macro(struct jinja_parser *parser, enum jinja_node_type type)
{
    struct jinja_node *node = jinja_node_new(parser, type, parser->at->line);
    struct jinja_macro *macro = arena_alloc(&parser->template->arena, sizeof *macro);
    if (!node || !macro)
        return NULL;
    node->macro = macro;
    return node;
}

/* The body of a macro or call block; names that it loads decide what a call may pass. */
static bool parse_macro_body(struct jinja_parser *parser, struct jinja_node *node, const char *end)
{
    const char *const ends[] = { end, NULL };
    if (parser->n_macros == TEMPLATE_PARSE_DEPTH_CAP)
        return too_deep(parser);
    parser->macros[parser->n_macros++] = node->macro;
    bool ok = parse_hard_block(parser, node, ends, &node->macro->body);
    parser->n_macros--;
    if (ok)
        parser->at++;
    return ok;
}

static struct jinja_node *parse_macro(struct jinja_parser *parser)
{
    struct jinja_node *node = new_macro(parser, NODE_MACRO);
    if (!node || !parse_definition(parser, &node->macro->name, &node->macro->name_id) ||
        !parse_signature(parser, node) || !parse_macro_body(parser, node, "endmacro"))
        return NULL;
    return node;
}

static struct jinja_node *parse_call_block(struct jinja_parser *parser)
{
    struct jinja_node *node = new_macro(parser, NODE_CALL_BLOCK);
    if (!node)
        return NULL;
    node->macro->name = STR("caller");
    if (parser->at->type == TOKEN_LPAREN && !parse_signature(parser, node))
        return NULL;
    node->right = jinja_parse_expression(parser);
    if (!node->right || !jinja_adopt(parser, node, node->right))
        return NULL;
    if (node->right->type != NODE_CALL)
        return jinja_fail(parser, node->line, "expected call"), NULL;
    return parse_macro_body(parser, node, "endcall") ? node : NULL;
}

static struct jinja_node *parse_filter_block(struct jinja_parser *parser)
{
    static const char *const ends[] = { "endfilter", NULL };
    struct jinja_node *node = jinja_node_new(parser, NODE_FILTER_BLOCK, parser->at->line);
    struct jinja_node *text = jinja_node_new(parser, NODE_BODY_TEXT, parser->at->line);
    if (!node || !text)
        return NULL;
    node->right = jinja_parse_filters(parser, text, true);
    if (!node->right || !jinja_adopt(parser, node, node->right) ||
        !parse_hard_block(parser, node, ends, &node->body))
        return NULL;
    parser->at++;
    return node;
}

static struct jinja_node *parse_with(struct jinja_parser *parser)
{
    static const char *const ends[] = { "endwith", NULL };
    struct jinja_node *node = jinja_node_new(parser, NODE_WITH, parser->at->line);
    while (node && parser->at->type != TOKEN_BLOCK_END) {
        if (node->items.size > 0 && !jinja_expect(parser, TOKEN_COMMA, ","))
            return NULL;
        struct jinja_node *target = parse_target(parser, NULL);
        if (!target || !jinja_expect(parser, TOKEN_ASSIGN, "="))
            return NULL;
        struct jinja_node *value = jinja_parse_expression(parser);
        if (!value || !jinja_body_add(parser, node, &node->items, target) ||
            !jinja_body_add(parser, node, &node->items, value))
            return NULL;
    }
    if (!node || !parse_hard_block(parser, node, ends, &node->body))
        return NULL;
    parser->at++;
    return node;
}

/* {% generation %}: Hugging Face's mark of what the assistant says; it prints its body. Jinja2
 * makes it a call block, so names that are set inside stay there. */
static struct jinja_node *parse_generation(struct jinja_parser *parser)
{
    struct jinja_node *node = new_macro(parser, NODE_SCOPE);
    if (!node)
        return NULL;
    node->macro->name = STR("caller");
    return parse_macro_body(parser, node, "endgeneration") ? node : NULL;
}

static struct jinja_node *parse_loop_control(struct jinja_parser *parser)
{
    const struct jinja_token *word = parser->at - 1;
    bool is_break = jinja_is_word(word, "break");
    if (parser->loop_depth == 0)
        return jinja_fail(parser, word->line, "'%.*s' outside loop", STR_ARG(word->text)), NULL;
    return jinja_node_new(parser, is_break ? NODE_BREAK : NODE_CONTINUE, word->line);
}

static const struct statement {
    const char *word;
    struct jinja_node *(*parse)(struct jinja_parser *parser);
} statements[] = {
    { "for", parse_for },
    { "if", parse_if },
    { "set", parse_set },
    { "macro", parse_macro },
    { "call", parse_call_block },
    { "filter", parse_filter_block },
    { "with", parse_with },
    { "generation", parse_generation },
    { "break", parse_loop_control },
    { "continue", parse_loop_control },
};

/* {% print a, b %} */
static bool parse_print(struct jinja_parser *parser, struct jinja_node *parent,
                        struct jinja_body *body)
{
    for (bool first = true; parser->at->type != TOKEN_BLOCK_END; first = false) {
        if (!first && !jinja_expect(parser, TOKEN_COMMA, ","))
            return false;
        if (!add_output(parser, parent, body, jinja_parse_expression(parser)))
            return false;
    }
    return true;
}

static bool fail_unknown_tag(struct jinja_parser *parser, const struct jinja_token *word)
{
    static const char *const not_done[] = { "include", "extends", "import",
                                            "from",    "block",   "autoescape" };
    for (size_t i = 0; i < sizeof not_done / sizeof not_done[0]; i++)
        if (str_is(word->text, not_done[i]))
            return err_set(parser->err, ERR_UNSUPPORTED,
                           "line %u: the tag '%s' is not supported: templates stand alone",
                           word->line, not_done[i]);
    return jinja_fail(parser, word->line, "Encountered unknown tag '%.*s'.", STR_ARG(word->text));
}

static bool parse_statement(struct jinja_parser *parser, struct jinja_node *parent,
                            struct jinja_body *body)
{
    const struct jinja_token *word = parser->at++;
    if (word->type != TOKEN_NAME)
        return jinja_fail(parser, word->line, "tag name expected");
    if (str_is(word->text, "print"))
        return parse_print(parser, parent, body);
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        if (!str_is(word->text, statements[i].word))
            continue;
        if (!jinja_enter(parser))
            return false;
        struct jinja_node *node = statements[i].parse(parser);
        parser->depth--;
        if (!node)
            return out_of_memory(parser); // unless the cause has been told
        return jinja_body_add(parser, parent, body, node);
    }
    return fail_unknown_tag(parser, word);
}

bool jinja_parse(struct template *template, const struct jinja_tokens *tokens, struct err *err)
{
    struct jinja_macro *macros[TEMPLATE_PARSE_DEPTH_CAP];
    struct jinja_parser parser = {
        .template = template, .at = tokens->items, .err = err, .macros = macros
    };
    err->code = ERR_NONE;
    if (!value_dict_new(&template->arena, &template->names))
        return out_of_memory(&parser);
    if (!jinja_intern(&parser, STR("loop"), &template->id_loop) ||
        !jinja_intern(&parser, STR("caller"), &template->id_caller) ||
        !jinja_intern(&parser, STR("kwargs"), &template->id_kwargs) ||
        !jinja_intern(&parser, STR("varargs"), &template->id_varargs))
        return false;
    return parse_body(&parser, NULL, NULL, &template->body) || out_of_memory(&parser);
}
