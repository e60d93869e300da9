/* Between the two halves of building: nodes that may be in many places at once (automaton_nodes.c),
 * and the states that stand for sets of them (automaton.c). */
#ifndef CASCADIA_SAMPLE_AUTOMATON_INTERNAL_H
#define CASCADIA_SAMPLE_AUTOMATON_INTERNAL_H

#include "sample/automaton.h"

#define NODE_NONE UINT32_MAX
#define NODE_ACCEPT 0u // the end of any frame

enum nfa_kind {
    NFA_ACCEPT, // ends the frame
    NFA_SPLIT,  // goes on at x and y, either may be NODE_NONE
    NFA_BYTES,  // reads a byte from low to high, then x
    NFA_CALL,   // runs entry y, then x
    NFA_HEAD,   // loop y; its body begins at x
};

struct nfa_node {
    uint8_t kind, low, high;
    uint32_t x, y;
};

/* Where frames begin. */
struct nfa_entry {
    uint32_t node;
    uint32_t loop; // AUTOMATON_NO_LOOP: a rule's
};

struct nfa {
    const struct grammar_rules *rules;
    const struct rules_facts *facts;
    struct nfa_node *nodes;
    uint32_t n_nodes, nodes_room;
    struct nfa_entry *entries;
    uint32_t n_entries, entries_room;
    uint32_t *rule_starts;  // [n_rules] node of the rule's own copy; NODE_NONE: not asked for
    uint32_t *rule_entries; // [n_rules]
    uint32_t *loop_entries; // [n_nodes of rules] of a repetition; NODE_NONE: none
    const bool *unrolled;   // [n_nodes of rules] repetitions that cannot be loops
    struct automaton_loop *loops;
    uint32_t *loop_repeats; // [n_loops] the repetition that each is of
    uint32_t n_loops, loops_room;
    uint32_t *queue; // [n_rules] whose copies are still to be made
    uint32_t n_queue;
    uint32_t root; // node
    bool overflowed;
};

/* Nodes of everything the root reaches. False: a ceiling. */
bool nfa_build(struct nfa *nfa, const struct grammar_rules *rules, const struct rules_facts *facts,
               const bool *unrolled);
void nfa_release(struct nfa *nfa);

#endif
