/* Rules over characters: what the front ends (gbnf.h, pattern.h, json_schema.h) write and the
 * automaton (automaton.h) is built of.
 *
 * An expression is a number: the index of a node that no longer changes. Expressions are built from
 * the leaves up and may be used in several places; recursion goes through rules, which are declared
 * first and get their body later. What can never match is folded away while it is built, so a
 * choice without parts is the same as RULES_NOTHING.
 *
 * Past a ceiling nothing more is added, expressions become RULES_NOTHING, and grammar_rules_check
 * says so once at the end. One owner. */
#ifndef CASCADIA_SAMPLE_GRAMMAR_RULES_H
#define CASCADIA_SAMPLE_GRAMMAR_RULES_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRAMMAR_NODES_CAP (1u << 19)
#define GRAMMAR_RULES_CAP (1u << 16)
#define GRAMMAR_CHILDREN_CAP (1u << 20)
#define GRAMMAR_RANGES_CAP (1u << 20)
#define GRAMMAR_LITERAL_BYTES_CAP ((size_t)16 << 20)
#define GRAMMAR_CODE_POINT_CAP 0x10ffffu
#define GRAMMAR_NO_MAX UINT32_MAX // of a repetition
#define GRAMMAR_NO_RULE UINT32_MAX

/* Characters [first, last]. Surrogates are no characters and are left out wherever they appear. */
struct code_range {
    uint32_t first, last;
};

enum rules_kind {
    RULES_KIND_NOTHING,  // matches no text at all
    RULES_KIND_EMPTY,    // matches the empty text
    RULES_KIND_TEXT,     // a literal
    RULES_KIND_CLASS,    // one character of a set
    RULES_KIND_SEQUENCE, // one after the other
    RULES_KIND_CHOICE,   // one of
    RULES_KIND_REPEAT,   // the child, min to max times
    RULES_KIND_CALL,     // a rule
};

#define RULES_NOTHING 0u // the expressions of these two kinds
#define RULES_EMPTY 1u

struct rules_node {
    enum rules_kind kind;
    uint32_t first, count; // text: bytes; class: ranges; sequence, choice: children; repeat: the
                           // child in `first`; call: the rule in `first`
    uint32_t min, max;     // of a repetition
};

struct grammar_rule {
    struct str name; // for messages
    uint32_t body;
    bool is_defined;
};

struct grammar_rules {
    struct rules_node *nodes;
    uint32_t n_nodes, nodes_room;
    struct grammar_rule *rules;
    uint32_t n_rules, rules_room;
    uint32_t *children;
    uint32_t n_children, children_room;
    struct code_range *ranges;
    uint32_t n_ranges, ranges_room;
    char *bytes;
    size_t n_bytes, bytes_room;
    struct arena names;
    uint32_t root;   // rule
    bool overflowed; // a ceiling was reached
};

void grammar_rules_init(struct grammar_rules *rules);
void grammar_rules_release(struct grammar_rules *rules); // zeroed values are fine

/* Expressions. Inputs are copied. */
uint32_t rules_text(struct grammar_rules *rules, struct str text); // UTF-8
uint32_t rules_class(struct grammar_rules *rules, const struct code_range *ranges, size_t n_ranges);
uint32_t rules_sequence(struct grammar_rules *rules, const uint32_t *parts, size_t n_parts);
uint32_t rules_choice(struct grammar_rules *rules, const uint32_t *parts, size_t n_parts);
uint32_t rules_repeat(struct grammar_rules *rules, uint32_t child, uint32_t min, uint32_t max);
uint32_t rules_call(struct grammar_rules *rules, uint32_t rule);

/* Rules. The name is copied; names need not differ here. */
uint32_t rules_declare(struct grammar_rules *rules, struct str name);
void rules_define(struct grammar_rules *rules, uint32_t rule, uint32_t body);

/* Leaves only texts of the given characters, which are normalised: for vocabularies that cannot
 * write all. */
void grammar_rules_restrict(struct grammar_rules *rules, const struct code_range *characters,
                            size_t n_characters);

/* Puts ranges in order and joins those that touch; returns how many are left. */
size_t code_ranges_normalise(struct code_range *ranges, size_t n_ranges);
/* All characters that are in none of the normalised ranges; out[n_ranges + 1]. */
size_t code_ranges_invert(const struct code_range *ranges, size_t n_ranges, struct code_range *out);
/* Characters in both of two normalised sets; out[n_a + n_b]. */
size_t code_ranges_intersect(const struct code_range *a, size_t n_a, const struct code_range *b,
                             size_t n_b, struct code_range *out);

/* A growing list of expressions, for building sequences and choices. */
struct rules_list {
    uint32_t *parts;
    size_t n_parts, room;
};
void rules_list_add(struct rules_list *list, uint32_t part);
void rules_list_release(struct rules_list *list); // zeroed values are fine

/* What can be known of a whole grammar before it runs. Arrays are the caller's to free. */
struct rules_facts {
    uint32_t *min_bytes; // [n_rules] shortest text; UINT32_MAX: no text of finite length
};

/* ERR_UNSUPPORTED past a ceiling; ERR_ARGUMENT, naming the rule, when one is undefined, begins with
 * itself (left recursion), or when the root matches no text. */
bool grammar_rules_check(const struct grammar_rules *rules, struct rules_facts *facts,
                         struct err *err);
void rules_facts_release(struct rules_facts *facts);

/* Fewest bytes that an expression matches; UINT32_MAX: it matches nothing. */
uint32_t rules_min_bytes(const struct grammar_rules *rules, const struct rules_facts *facts,
                         uint32_t node);

#endif
