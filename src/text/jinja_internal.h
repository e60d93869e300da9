/* What the parts of the Jinja interpreter share. Source flows down this list:
 *
 *     jinja_lex        source -> tokens (delimiters, white space control, literals)
 *     jinja_expression,
 *     jinja_parse      tokens -> tree
 *     jinja_eval       expressions of the tree -> values
 *     jinja_exec       statements of the tree -> text; scopes, loops
 *     jinja_call       calls: arguments, macros, the global functions
 *     jinja_filters,
 *     jinja_sequences  value | filter, on single values and on sequences
 *     jinja_tests      value is test
 *     jinja_methods    value.method()
 *     jinja_attributes value.name and value[key]
 *     jinja_operators  arithmetic, order, membership, truth
 *     jinja_iterate    everything that Python can iterate
 *     jinja_print      str(), repr()
 *     jinja_json       json.dumps
 *     jinja_format     'x' % y, 'x'.format(y)
 *
 * All interpreter functions take the evaluation first, return false after a failure that
 * eval->err then tells, and write `out` only on success. */
#ifndef CASCADIA_TEXT_JINJA_INTERNAL_H
#define CASCADIA_TEXT_JINJA_INTERNAL_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "text/template.h"
#include "text/traced.h"
#include "text/value.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- tokens ---- */

enum jinja_token_type {
    TOKEN_DATA,
    TOKEN_VARIABLE_BEGIN,
    TOKEN_VARIABLE_END,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INTEGER,
    TOKEN_FLOAT,
    TOKEN_ADD,
    TOKEN_ASSIGN,
    TOKEN_COLON,
    TOKEN_COMMA,
    TOKEN_DIV,
    TOKEN_DOT,
    TOKEN_EQ,
    TOKEN_FLOORDIV,
    TOKEN_GT,
    TOKEN_GTEQ,
    TOKEN_LBRACE,
    TOKEN_LBRACKET,
    TOKEN_LPAREN,
    TOKEN_LT,
    TOKEN_LTEQ,
    TOKEN_MOD,
    TOKEN_MUL,
    TOKEN_NE,
    TOKEN_PIPE,
    TOKEN_POW,
    TOKEN_RBRACE,
    TOKEN_RBRACKET,
    TOKEN_RPAREN,
    TOKEN_SEMICOLON,
    TOKEN_SUB,
    TOKEN_TILDE,
    TOKEN_EOF,
};

struct jinja_token {
    enum jinja_token_type type;
    uint32_t line;
    struct str text; // as written; of data and strings: what it means
    union {
        int64_t integer;
        double real;
    };
};

struct jinja_tokens {
    struct jinja_token *items; // the last one is TOKEN_EOF
    size_t size, room;
};

/* Tokens and texts live in `arena`. ERR_FORMAT with the line. */
bool jinja_lex(struct arena *arena, struct str source, struct jinja_tokens *out, struct err *err);
/* How a sentence calls the token: its text, or "end of template". */
struct str jinja_token_name(const struct jinja_token *token);

/* ---- tree ---- */

enum jinja_node_type {
    /* expressions */
    NODE_CONSTANT,
    NODE_NAME,
    NODE_LIST,
    NODE_TUPLE,
    NODE_DICT,   // items: key, value, key, value
    NODE_CHAIN,  // a op b op c of one precedence, left to right
    NODE_POWER,  // the same for **
    NODE_CONCAT, // a ~ b ~ c
    NODE_AND,
    NODE_OR,
    NODE_NOT,
    NODE_NEGATE,
    NODE_PLUS,
    NODE_COMPARE,   // a op b op c, as in Python
    NODE_CONDITION, // items: test, then, else or NULL
    NODE_ATTRIBUTE, // left.text
    NODE_ITEM,      // left[right]
    NODE_SLICE,     // items: first, last, step; each may be NULL
    NODE_CALL,
    NODE_FILTER,
    NODE_TEST,
    NODE_BODY_TEXT, // what a filter block or a set block with filters applies them to
    /* statements */
    NODE_OUTPUT, // left
    NODE_IF,     // branches
    NODE_FOR,
    NODE_SET,       // target left, value right
    NODE_SET_BLOCK, // target left, filters right or NULL, body
    NODE_MACRO,
    NODE_CALL_BLOCK,   // macro, right: the call
    NODE_FILTER_BLOCK, // right: filters; body
    NODE_WITH,         // items: target, value, target, value; body
    NODE_SCOPE,        // body in a scope of its own, as a string ({% generation %})
    NODE_BREAK,
    NODE_CONTINUE,
    /* targets */
    NODE_NAMESPACE_TARGET, // name.text
};

struct jinja_node;

struct jinja_body {
    struct jinja_node **nodes;
    size_t size, room;
};

struct jinja_call_args {
    struct jinja_body positional;
    struct jinja_body named; // values; their names in `names`
    struct str *names;
    size_t names_room;
    struct jinja_node *spread;       // *args
    struct jinja_node *spread_named; // **kwargs
};

struct jinja_branch {
    struct jinja_node *test; // NULL: else
    struct jinja_body body;
};

struct jinja_for {
    struct jinja_node *target, *iterable;
    struct jinja_node *filter; // NULL: none
    struct jinja_body body, otherwise;
    bool recursive;
};

struct jinja_macro {
    struct str name;
    uint32_t name_id;
    uint32_t *parameters; // ids
    struct str *parameter_names;
    struct jinja_node **defaults; // NULL: none
    size_t n_parameters, room;
    bool uses_caller, uses_kwargs, uses_varargs;
    struct jinja_body body;
};

struct jinja_filter;
struct jinja_test;

struct jinja_node {
    enum jinja_node_type type;
    uint32_t line;
    uint32_t height; // of the tree below, for the depth limit
    uint32_t name;   // interned name, of NODE_NAME and NODE_NAMESPACE_TARGET
    struct jinja_node *left, *right;
    struct jinja_body items;
    struct jinja_body body; // of the statements that have one and no struct of their own
    union {
        struct value constant;
        struct str text;                  // an attribute's name
        enum jinja_token_type *operators; // of chains: between items; NOT IN is TOKEN_SEMICOLON
        struct {
            struct jinja_call_args *args;
            const struct jinja_filter *filter;
            const struct jinja_test *test;
            struct str called; // name of the filter or test
        };
        struct {
            struct jinja_branch *branches;
            size_t n_branches;
        };
        struct jinja_for *loop;
        struct jinja_macro *macro;
    };
};

/* Operators of comparison that are words. */
#define TOKEN_IN TOKEN_COLON
#define TOKEN_NOT_IN TOKEN_SEMICOLON

struct template
{
    struct arena arena;
    struct jinja_body body;
    struct value names;     // dictionary: name -> id
    struct str *name_texts; // by id
    size_t n_names, names_room;
    uint32_t id_loop, id_caller, id_kwargs, id_varargs;
};

bool jinja_parse(struct template *template, const struct jinja_tokens *tokens, struct err *err);

/* ---- the parser's inside: jinja_parse.c and jinja_expression.c ---- */

struct jinja_parser {
    struct template *template;
    const struct jinja_token *at;
    struct err *err;
    uint32_t depth;
    bool soft; // inside an if: unknown filters and tests fail only when they run
    const struct jinja_node *unknown; // the first of them in this statement, when it matters
    uint32_t loop_depth;              // loops around this place, within the macro
    struct jinja_macro **macros;      // around this place, the outermost first
    size_t n_macros;
};

bool jinja_fail(struct jinja_parser *parser, uint32_t line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
struct jinja_node *jinja_node_new(struct jinja_parser *parser, enum jinja_node_type type,
                                  uint32_t line);
/* Adds a node to a list and its height to the parent's. False after jinja_fail. */
bool jinja_body_add(struct jinja_parser *parser, struct jinja_node *parent, struct jinja_body *body,
                    struct jinja_node *node);
/* The parent is one higher than the child. False when that is too high. */
bool jinja_adopt(struct jinja_parser *parser, struct jinja_node *parent,
                 const struct jinja_node *child);
bool jinja_intern(struct jinja_parser *parser, struct str name, uint32_t *id);
bool jinja_is_word(const struct jinja_token *token, const char *word);
bool jinja_skip(struct jinja_parser *parser, enum jinja_token_type type); // true: it was there
bool jinja_skip_word(struct jinja_parser *parser, const char *word);
bool jinja_expect(struct jinja_parser *parser, enum jinja_token_type type, const char *what);
bool jinja_enter(struct jinja_parser *parser); // counts depth; leave with parser->depth--

enum jinja_tuple_mode {
    TUPLE_FULL,
    TUPLE_NO_CONDITION, // `x if y` is not part of it: for loops and if statements
    TUPLE_TARGET,       // names and literals only
    TUPLE_PARENTHESES,  // () is an empty tuple
};

struct jinja_node *jinja_parse_expression(struct jinja_parser *parser);
/* `end`: a word that ends the tuple too, or NULL. */
struct jinja_node *jinja_parse_tuple(struct jinja_parser *parser, enum jinja_tuple_mode mode,
                                     const char *end);
/* Filters behind `node`; `begun`: the first | has been read. */
struct jinja_node *jinja_parse_filters(struct jinja_parser *parser, struct jinja_node *node,
                                       bool begun);

/* ---- evaluation ---- */

struct jinja_binding {
    uint32_t name;
    struct value value;
};

/* Names of one block. Lives in the arena, because a macro may outlive the block it is made in. */
struct jinja_scope {
    struct jinja_scope *parent; // lexically around
    struct jinja_binding *bindings;
    size_t size, room;
};

struct jinja_eval {
    const struct template *template;
    const struct template_limits *limits;
    const struct value *context;
    struct arena arena;
    struct err *err;
    int64_t now_unix_seconds;
    uint64_t steps, steps_cap;
    uint64_t deadline_ms;
    uint32_t depth, macro_depth;
    uint32_t line;                       // of the statement or call that runs
    const struct traced_builder *output; // of the whole rendering
    struct value body_text;              // what NODE_BODY_TEXT means now
};

/* What a body came to. */
enum jinja_flow {
    FLOW_FAILED,
    FLOW_NEXT,
    FLOW_BREAK,
    FLOW_CONTINUE,
};

/* ERR_ARGUMENT with the line in front. Returns false. */
bool jinja_raise(struct jinja_eval *eval, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool jinja_no_memory(struct jinja_eval *eval);
/* One step of work: false past the limits of steps and time. */
bool jinja_step(struct jinja_eval *eval);
/* Many steps at once, for leaf loops over `count` things. */
bool jinja_steps(struct jinja_eval *eval, size_t count);
/* The steps that passing over so many bytes of text counts as. */
bool jinja_work(struct jinja_eval *eval, size_t bytes);

bool jinja_evaluate(struct jinja_eval *eval, struct jinja_scope *scope,
                    const struct jinja_node *node, struct value *out);
enum jinja_flow jinja_execute(struct jinja_eval *eval, struct jinja_scope *scope,
                              const struct jinja_body *body, struct traced_builder *out);
/* Runs a body and gives its text. */
bool jinja_capture(struct jinja_eval *eval, struct jinja_scope *scope,
                   const struct jinja_body *body, struct value *out);
struct jinja_scope *jinja_scope_new(struct jinja_eval *eval, struct jinja_scope *parent);
bool jinja_scope_set(struct jinja_eval *eval, struct jinja_scope *scope, uint32_t name,
                     struct value value);
/* Assigns to a target: a name, a tuple of targets, an attribute of a namespace. */
bool jinja_assign(struct jinja_eval *eval, struct jinja_scope *scope,
                  const struct jinja_node *target, struct value value);
/* The body of a recursive loop for other items: loop(items). */
bool jinja_loop_again(struct jinja_eval *eval, struct value_loop *loop, struct value items,
                      struct value *out);
/* `sentence` is what using the value raises: "'x' is undefined". */
struct value jinja_undefined(const char *sentence);
/* "'dict object' has no attribute 'x'" */
struct value jinja_no_attribute(struct jinja_eval *eval, struct value object, struct str name);

/* Texts under construction. */
void jinja_text_begin(struct jinja_eval *eval, struct traced_builder *builder);
bool jinja_text_end(struct jinja_eval *eval, struct traced_builder *builder, struct value *out);
/* A string that the interpreter makes itself; counts as the template's. */
bool jinja_text(struct jinja_eval *eval, struct str bytes, struct value *out);
/* Code points first..last of a text; the step of the reader. */
size_t jinja_length_points(struct str text);
/* Decodes the code point at *at and moves on; invalid bytes count one by one. */
uint32_t jinja_next_point(struct str text, size_t *at);
struct traced jinja_piece(struct value string, size_t first, size_t last);

/* ---- calls ---- */

struct jinja_named_arg {
    struct str name;
    bool from_template; // the name's origin
    struct value value;
};

struct jinja_args {
    struct value *items;
    size_t size;
    struct jinja_named_arg *named;
    size_t n_named;
};

#define JINJA_PARAMETERS_CAP 8

/* Arguments bound to a parameter list. */
struct jinja_bound {
    struct value values[JINJA_PARAMETERS_CAP];
    bool given[JINJA_PARAMETERS_CAP];
};

/* Parameter lists are texts: "width first=1 blank=" has two parameters that may be left out;
 * a leading "/" forbids keywords. */
bool jinja_arg_key(struct jinja_eval *eval, const struct jinja_named_arg *arg, struct value *out);
bool jinja_bind(struct jinja_eval *eval, const char *called, const char *parameters,
                const struct jinja_args *args, struct jinja_bound *out);
bool jinja_evaluate_args(struct jinja_eval *eval, struct jinja_scope *scope,
                         const struct jinja_call_args *nodes, struct jinja_args *out);
bool jinja_call(struct jinja_eval *eval, struct value callee, const struct jinja_args *args,
                struct value *out);
bool jinja_is_callable(struct value value);
/* One of the global functions; false if there is none of that name. */
bool jinja_global(struct str name, struct value *out);
bool jinja_call_macro(struct jinja_eval *eval, const struct value_macro *macro,
                      const struct jinja_args *args, struct value *out);

struct value_function {
    const char *name;
    bool (*call)(struct jinja_eval *eval, const struct jinja_args *args, struct value *out);
};

struct value_macro {
    const struct jinja_macro *node;
    struct jinja_scope *scope; // in which it was defined
};

struct value_namespace {
    struct value attributes; // dictionary
};

struct value_cycler {
    struct value_list *items; // of a cycler
    size_t at;
    struct value separator; // of a joiner
    bool used;
};

struct value_slice {
    struct value first, last, step;
};

struct value_range {
    int64_t first, last, step;
    uint64_t size;
};

enum jinja_view {
    VIEW_KEYS,
    VIEW_VALUES,
    VIEW_ITEMS,
};

struct value_dict_view {
    const struct value_dict *dict;
    enum jinja_view view;
};

/* ---- iteration ---- */

/* Walks over anything iterable. */
struct jinja_cursor {
    struct value subject;
    size_t at;
};

/* Fails (raises) when the value is not iterable. */
bool jinja_iterate(struct jinja_eval *eval, struct value subject, struct jinja_cursor *cursor);
/* False in *more at the end. */
bool jinja_next(struct jinja_eval *eval, struct jinja_cursor *cursor, struct value *item,
                bool *more);
bool jinja_is_iterable(struct value value);
/* Python's len(); false (nothing raised) when there is none. */
bool jinja_length(struct value value, size_t *out);
/* Item `at` of what has a length. */
bool jinja_item_at(struct jinja_eval *eval, struct value value, size_t at, struct value *out);
/* Element `at`, in wrapping arithmetic: one behind the last may not fit. */
int64_t jinja_range_at(const struct value_range *range, int64_t at);
/* All items in a new list or tuple. */
bool jinja_collect(struct jinja_eval *eval, struct value subject, enum value_type type,
                   struct value *out);

/* A generator: items made when the first one is asked for. */
struct value_iterator {
    bool (*make)(struct jinja_eval *eval, struct value_iterator *iterator, struct value *list);
    struct value subject;
    struct jinja_args args; // of the filter that made it
    struct value items;     // list, once made
    bool made, making;
    size_t at;
};

bool jinja_iterator_new(struct jinja_eval *eval,
                        bool (*make)(struct jinja_eval *, struct value_iterator *, struct value *),
                        struct value subject, const struct jinja_args *args, struct value *out);
/* A generator over a list that is there. */
bool jinja_iterator_over(struct jinja_eval *eval, struct value list, struct value *out);

/* A running loop, which templates see as `loop`. */
struct value_loop {
    const struct jinja_node *node;
    struct jinja_scope *scope; // around the loop
    struct jinja_scope *test_scope;
    struct jinja_cursor cursor;
    bool filtered; // the cursor's items have passed the loop's filter already
    bool has_length;
    size_t length;
    struct value before, current, after;
    bool has_after, after_is_end; // the item behind has been looked at
    int64_t index0;
    uint32_t depth0;
    struct value changed;
    bool has_changed;
};

bool jinja_loop_next(struct jinja_eval *eval, struct value_loop *loop, struct value *item,
                     bool *more);
/* Like value_dict_get: false in *found when loops have no such attribute. */
bool jinja_loop_attribute(struct jinja_eval *eval, struct value_loop *loop, struct str name,
                          struct value *out, bool *found);

/* ---- operations ---- */

const char *jinja_type_name(struct value value); // Python's: "str", "NoneType", ...
bool jinja_truth(struct value value);
bool jinja_is_number(struct value value);
/* Integers and booleans. */
bool jinja_as_integer(struct value value, int64_t *out);
bool jinja_as_float(struct value value, double *out); // any number
bool jinja_arithmetic(struct jinja_eval *eval, enum jinja_token_type op, struct value a,
                      struct value b, struct value *out);
bool jinja_negate(struct jinja_eval *eval, struct value value, bool plus, struct value *out);
bool jinja_compare(struct jinja_eval *eval, enum jinja_token_type op, struct value a,
                   struct value b, bool *out);
/* a < b; raises on types without order. */
bool jinja_less(struct jinja_eval *eval, struct value a, struct value b, bool *out);
bool jinja_contains(struct jinja_eval *eval, struct value container, struct value item, bool *out);
/* Raises for undefined values: "'x' is undefined". */
bool jinja_raise_undefined(struct jinja_eval *eval, struct value value);

/* The order in which the keys are sorted, stable; items that are equal keep their order in a
 * reverse sort too. Raises on keys without order. */
bool jinja_sort(struct jinja_eval *eval, const struct value *keys, size_t n_keys, bool reverse,
                size_t **order);

/* What Python's getattr gives: methods and properties, no keys. */
bool jinja_own_attribute(struct jinja_eval *eval, struct value object, struct str name,
                         struct value *out, bool *found);
bool jinja_get_attribute(struct jinja_eval *eval, struct value object, struct str name,
                         struct value *out);
bool jinja_get_item(struct jinja_eval *eval, struct value object, struct value key,
                    struct value *out);
/* "a.b.0" as filters take it; `otherwise` may be NULL. */
bool jinja_get_path(struct jinja_eval *eval, struct value object, struct value path,
                    const struct value *otherwise, struct value *out);
/* The part of a sequence that Python's slice gives. */
bool jinja_slice(struct jinja_eval *eval, struct value object, const struct value_slice *slice,
                 struct value *out);

/* ---- printing ---- */

bool jinja_print(struct jinja_eval *eval, struct value value, struct traced_builder *out); // str()
bool jinja_print_repr(struct jinja_eval *eval, struct value value, struct traced_builder *out);
/* Raises when the text under construction has passed its ceiling, so that long ones end early. */
bool jinja_check_room(struct jinja_eval *eval, const struct traced_builder *text);
/* str() as a plain string. */
bool jinja_to_text(struct jinja_eval *eval, struct value value, struct value *out);
/* str(), but a string stays what it is, with its mark. */
bool jinja_soft_text(struct jinja_eval *eval, struct value value, struct value *out);
void jinja_print_float(double real, char out[32]);
bool jinja_escape(struct jinja_eval *eval, struct value value, struct value *out); // to markup

struct jinja_json_style {
    bool ascii, sort_keys;
    bool has_indent;
    struct str indent; // of one level
    struct str item_separator, key_separator;
};
bool jinja_json(struct jinja_eval *eval, struct value value, const struct jinja_json_style *style,
                struct value *out);

/* 'format' % args, and 'format'.format(args). */
bool jinja_format_percent(struct jinja_eval *eval, struct value format, struct value args,
                          struct value *out);
bool jinja_format_braces(struct jinja_eval *eval, struct value format,
                         const struct jinja_args *args, struct value *out);

/* ---- tables ---- */

struct jinja_filter {
    const char *name;
    const char *parameters; // NULL: apply takes args as they are
    bool (*apply)(struct jinja_eval *eval, struct value subject, const struct jinja_bound *args,
                  struct value *out);
    bool (*apply_args)(struct jinja_eval *eval, struct value subject, const struct jinja_args *args,
                       struct value *out);
};

struct jinja_test {
    const char *name;
    const char *parameters;
    bool (*apply)(struct jinja_eval *eval, struct value subject, const struct jinja_bound *args,
                  bool *out);
};

struct jinja_method {
    const char *name;
    const char *parameters; // NULL: apply_args
    bool (*apply)(struct jinja_eval *eval, struct value self, const struct jinja_bound *args,
                  struct value *out);
    bool (*apply_args)(struct jinja_eval *eval, struct value self, const struct jinja_args *args,
                       struct value *out);
};

struct value_method {
    struct value self;
    const struct jinja_method *method;
};

extern const struct jinja_filter jinja_filters[]; // a row without name ends each table
extern const struct jinja_filter jinja_sequence_filters[];
extern const struct jinja_test jinja_tests[];
extern const struct jinja_method jinja_text_methods[];
extern const struct jinja_method jinja_find_methods[];
extern const struct jinja_method jinja_dict_methods[];
extern const struct jinja_method jinja_sequence_methods[];
extern const struct jinja_method jinja_loop_methods[];
extern const struct jinja_method jinja_cycler_methods[];

const struct jinja_filter *jinja_filter_find(struct str name); // NULL: unknown
const struct jinja_test *jinja_test_find(struct str name);
bool jinja_apply_filter(struct jinja_eval *eval, const struct jinja_filter *filter,
                        struct value subject, const struct jinja_args *args, struct value *out);
bool jinja_apply_test(struct jinja_eval *eval, const struct jinja_test *test, struct value subject,
                      const struct jinja_args *args, bool *out);
/* The method of the value, or NULL. */
const struct jinja_method *jinja_method_find(struct value self, struct str name);

/* Text operations that filters and methods share. */
enum jinja_case {
    CASE_UPPER,
    CASE_LOWER,
    CASE_TITLE,
    CASE_SWAP,
    CASE_FOLD,
    CASE_CAPITALIZE,
};
bool jinja_change_case(struct jinja_eval *eval, struct value string, enum jinja_case how,
                       struct value *out);
enum jinja_side {
    SIDE_LEFT = 1,
    SIDE_RIGHT = 2,
    SIDE_BOTH = 3,
};
/* `chars`: undefined or none for white space. */
bool jinja_strip(struct jinja_eval *eval, struct value string, struct value chars,
                 enum jinja_side side, struct value *out);
/* At most `count` times; negative: all. */
bool jinja_replace(struct jinja_eval *eval, struct value string, struct value old,
                   struct value replacement, int64_t count, struct value *out);
bool jinja_pad(struct jinja_eval *eval, struct value string, size_t before, size_t behind,
               struct value fill, struct value *out);
bool jinja_join(struct jinja_eval *eval, struct value items, struct value separator,
                struct value *out);
/* Size of the line that begins at `at`, and of its end: 0 on the last one. */
size_t jinja_line_size(struct str text, size_t at, size_t *end_size);
/* The number that Python's int() or float() reads in a text. */
bool jinja_read_integer(struct str text, int base, int64_t *out);
bool jinja_read_float(struct str text, double *out);

#endif
