/* Subset construction: a state is the set of nodes that the text so far may have led to. Calls are
 * symbols of the alphabet like bytes, so several rules called at one place run side by side, and
 * calls of one rule from several nodes are one call with one return state.
 *
 * Bytes that no node tells apart are one class; the table has a column a class. It is what a mask
 * costs time in, so it is dense: one load a byte.
 *
 * The head of a loop must be a state of its own, since only then is "arrived at the head" one
 * repetition more and nothing else. Where the body could also go on (as in ([0-9]+){2,50}), the
 * set of the state has more than the head in it; that repetition is then written out, and all is
 * built again. */
#include "sample/automaton.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/memory.h"
#include "sample/automaton_internal.h"

#define LEFT_BYTES_ROUNDS 64u // of an estimate

struct builder {
    struct automaton *automaton;
    struct nfa *nfa;
    /* Sets of nodes: state i has members[offsets[i] .. offsets[i + 1]). */
    uint32_t *members, *offsets;
    uint32_t n_members, members_room, states_room;
    uint32_t *slots; // states by hash of their set
    uint32_t slot_mask;
    /* The set being gathered. */
    uint32_t *marks, mark; // [n_nodes] == mark: is in it, or has been looked at
    uint32_t *set;         // [n_nodes] those that count
    uint32_t n_set;
    uint32_t *stack;        // [n_nodes]
    uint32_t *entry_states; // [n_entries] AUTOMATON_DEAD: not yet there
    uint32_t calls_room;
    uint32_t class_low[256]; // first byte of each class
    bool *unrolled;          // [n_nodes of rules] repetitions that cannot be loops
    bool again;              // one was added
    bool overflowed;
};

/* ---- sets of nodes ---- */

static void begin_set(struct builder *builder)
{
    builder->mark++;
    builder->n_set = 0;
}

/* Adds a node and what it leads to without a byte. */
static void add_to_set(struct builder *builder, uint32_t first)
{
    uint32_t depth = 0;
    if (first != NODE_NONE && builder->marks[first] != builder->mark) {
        builder->marks[first] = builder->mark;
        builder->stack[depth++] = first;
    }
    while (depth > 0) {
        const uint32_t id = builder->stack[--depth];
        const struct nfa_node *node = &builder->nfa->nodes[id];
        const uint32_t outs[2] = { node->x, node->kind == NFA_SPLIT ? node->y : NODE_NONE };
        if (node->kind != NFA_SPLIT)
            builder->set[builder->n_set++] = id;
        if (node->kind != NFA_SPLIT && node->kind != NFA_HEAD)
            continue;
        for (int i = 0; i < 2; i++) {
            if (outs[i] != NODE_NONE && builder->marks[outs[i]] != builder->mark) {
                builder->marks[outs[i]] = builder->mark;
                builder->stack[depth++] = outs[i];
            }
        }
    }
}

static int compare_ids(const void *a, const void *b)
{
    const uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

static void insert_slot(struct builder *builder, uint64_t hash, uint32_t state)
{
    uint32_t at = (uint32_t)hash & builder->slot_mask;
    while (builder->slots[at] != 0)
        at = (at + 1) & builder->slot_mask;
    builder->slots[at] = state;
}

static uint64_t hash_of(const struct builder *builder, uint32_t state)
{
    const uint32_t first = builder->offsets[state];
    return hash_xxh3(builder->members + first,
                     (builder->offsets[state + 1] - first) * sizeof(uint32_t));
}

static void grow_states(struct builder *builder)
{
    struct automaton *automaton = builder->automaton;
    const uint32_t room = builder->states_room = 2 * builder->states_room;
    builder->offsets = xreallocarray(builder->offsets, room + 1, sizeof(uint32_t));
    automaton->states = xreallocarray(automaton->states, room, sizeof *automaton->states);
    automaton->flags = xreallocarray(automaton->flags, room, 1);
    automaton->next =
        xreallocarray(automaton->next, (size_t)room * automaton->n_classes, sizeof(uint32_t));
    free(builder->slots);
    builder->slot_mask = 4 * room - 1;
    builder->slots = xcalloc(4 * (size_t)room, sizeof(uint32_t));
    for (uint32_t i = 1; i < automaton->n_states; i++)
        insert_slot(builder, hash_of(builder, i), i);
}

static uint32_t add_state(struct builder *builder)
{
    struct automaton *automaton = builder->automaton;
    if (automaton->n_states >= AUTOMATON_STATES_CAP ||
        (uint64_t)automaton->n_states * automaton->n_classes >= AUTOMATON_CELLS_CAP ||
        builder->n_members + builder->n_set > AUTOMATON_MEMBERS_CAP) {
        builder->overflowed = true;
        return AUTOMATON_DEAD;
    }
    if (automaton->n_states == builder->states_room)
        grow_states(builder);
    if (builder->n_members + builder->n_set > builder->members_room) {
        builder->members_room = 2 * (builder->n_members + builder->n_set);
        builder->members = xreallocarray(builder->members, builder->members_room, sizeof(uint32_t));
    }
    memcpy(builder->members + builder->n_members, builder->set, builder->n_set * sizeof(uint32_t));
    const uint32_t state = automaton->n_states++;
    builder->n_members += builder->n_set;
    builder->offsets[state + 1] = builder->n_members;
    automaton->states[state] = (struct automaton_state){ .loop = AUTOMATON_NO_LOOP };
    automaton->flags[state] = 0;
    return state;
}

/* The state of the gathered set. */
static uint32_t state_of_set(struct builder *builder)
{
    if (builder->n_set == 0)
        return AUTOMATON_DEAD;
    qsort(builder->set, builder->n_set, sizeof(uint32_t), compare_ids);
    const uint64_t hash = hash_xxh3(builder->set, builder->n_set * sizeof(uint32_t));
    for (uint32_t at = (uint32_t)hash & builder->slot_mask; builder->slots[at] != 0;
         at = (at + 1) & builder->slot_mask) {
        const uint32_t state = builder->slots[at], first = builder->offsets[state];
        if (builder->offsets[state + 1] - first == builder->n_set &&
            memcmp(builder->members + first, builder->set, builder->n_set * sizeof(uint32_t)) == 0)
            return state;
    }
    const uint32_t state = add_state(builder);
    if (state != AUTOMATON_DEAD)
        insert_slot(builder, hash, state);
    return state;
}

/* ---- states ---- */

static uint32_t entry_state(struct builder *builder, uint32_t entry)
{
    if (builder->entry_states[entry] == AUTOMATON_DEAD) {
        begin_set(builder);
        add_to_set(builder, builder->nfa->entries[entry].node);
        builder->entry_states[entry] = state_of_set(builder);
    }
    return builder->entry_states[entry];
}

/* Flags of a state, and whether a head is where it may not be. */
static void describe_state(struct builder *builder, uint32_t state)
{
    struct automaton *automaton = builder->automaton;
    for (uint32_t i = builder->offsets[state]; i < builder->offsets[state + 1]; i++) {
        const struct nfa_node *node = &builder->nfa->nodes[builder->members[i]];
        if (node->kind == NFA_ACCEPT)
            automaton->flags[state] |= AUTOMATON_ACCEPTS;
        if (node->kind != NFA_HEAD)
            continue;
        automaton->flags[state] |= AUTOMATON_ACCEPTS | AUTOMATON_HEAD;
        automaton->states[state].loop = node->y;
        const uint32_t repeat = builder->nfa->loop_repeats[node->y];
        if (builder->entry_states[builder->nfa->loop_entries[repeat]] != state)
            builder->unrolled[repeat] = builder->again = true;
    }
}

static void add_call(struct builder *builder, uint32_t state, uint32_t callee, uint32_t returns)
{
    struct automaton *automaton = builder->automaton;
    struct automaton_state *caller = &automaton->states[state];
    if (automaton->n_calls == builder->calls_room) {
        builder->calls_room = builder->calls_room ? 2 * builder->calls_room : 64;
        automaton->calls =
            xreallocarray(automaton->calls, builder->calls_room, sizeof *automaton->calls);
    }
    if (caller->n_calls == 0)
        caller->first_call = automaton->n_calls;
    caller->n_calls++;
    automaton->flags[state] |= AUTOMATON_CALLS;
    automaton->calls[automaton->n_calls++] =
        (struct automaton_call){ .callee = callee, .returns = returns };
}

/* One call an entry, returning to wherever any of its calls here returns. */
static void add_calls(struct builder *builder, uint32_t state)
{
    const struct nfa *nfa = builder->nfa;
    const uint32_t first = builder->offsets[state], end = builder->offsets[state + 1];
    for (uint32_t i = first; i < end; i++) {
        const struct nfa_node node = nfa->nodes[builder->members[i]];
        bool is_first = node.kind == NFA_CALL;
        for (uint32_t j = first; j < i && is_first; j++) {
            const struct nfa_node *other = &nfa->nodes[builder->members[j]];
            is_first = other->kind != NFA_CALL || other->y != node.y;
        }
        if (!is_first)
            continue;
        const uint32_t callee = entry_state(builder, node.y);
        begin_set(builder);
        for (uint32_t j = i; j < end; j++) {
            const struct nfa_node *other = &nfa->nodes[builder->members[j]];
            if (other->kind == NFA_CALL && other->y == node.y)
                add_to_set(builder, other->x);
        }
        const uint32_t returns = state_of_set(builder);
        if (!builder->overflowed)
            add_call(builder, state, callee, returns);
    }
}

static void add_edges(struct builder *builder, uint32_t state)
{
    struct automaton *automaton = builder->automaton;
    const uint32_t first = builder->offsets[state], end = builder->offsets[state + 1];
    for (uint32_t class = 0; class < automaton->n_classes && !builder->overflowed; class ++) {
        const uint32_t byte = builder->class_low[class];
        begin_set(builder);
        for (uint32_t i = first; i < end; i++) {
            const struct nfa_node *node = &builder->nfa->nodes[builder->members[i]];
            if (node->kind == NFA_BYTES && node->low <= byte && byte <= node->high)
                add_to_set(builder, node->x);
        }
        const uint32_t next = state_of_set(builder); // may move the table
        automaton->next[(size_t)state * automaton->n_classes + class] = next;
    }
}

static void find_classes(struct builder *builder)
{
    struct automaton *automaton = builder->automaton;
    bool begins[257] = { true };
    for (uint32_t i = 0; i < builder->nfa->n_nodes; i++) {
        const struct nfa_node *node = &builder->nfa->nodes[i];
        if (node->kind == NFA_BYTES) {
            begins[node->low] = true;
            begins[node->high + 1] = true;
        }
    }
    for (uint32_t byte = 0; byte < 256; byte++) {
        if (begins[byte])
            builder->class_low[automaton->n_classes++] = byte;
        automaton->class_of[byte] = (uint8_t)(automaton->n_classes - 1);
    }
}

static void build_states(struct builder *builder)
{
    struct automaton *automaton = builder->automaton;
    begin_set(builder);
    add_to_set(builder, builder->nfa->root);
    automaton->start = state_of_set(builder);
    for (uint32_t state = 1; state < automaton->n_states && !builder->overflowed; state++) {
        describe_state(builder, state);
        add_edges(builder, state);
        add_calls(builder, state);
    }
}

/* ---- what is known of states ---- */

static bool join(struct automaton_set *set, const struct automaton_set *more)
{
    bool changed = false;
    for (int i = 0; i < 4; i++) {
        changed |= (more->words[i] & ~set->words[i]) != 0;
        set->words[i] |= more->words[i];
    }
    return changed;
}

/* Classes that a frame in this state can read next. Frames cannot begin with themselves (left
 * recursion is refused), so this ends. */
static void find_first(const struct automaton *automaton, uint32_t state, struct automaton_set *out)
{
    const uint32_t *row = automaton->next + (size_t)state * automaton->n_classes;
    for (uint32_t class = 0; class < automaton->n_classes; class ++) {
        if (row[class] != AUTOMATON_DEAD)
            out->words[class >> 6] |= 1ull << (class & 63);
    }
    const struct automaton_state *info = &automaton->states[state];
    for (uint32_t i = 0; i < info->n_calls; i++)
        join(out, &automaton->calls[info->first_call + i].first);
}

/* Calls come after the states they are made in, and a frame may begin with a call of a state found
 * later: again until nothing changes. */
static void find_firsts(struct automaton *automaton)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = automaton->n_calls; i-- > 0;) {
            struct automaton_set first = { 0 };
            find_first(automaton, automaton->calls[i].callee, &first);
            changed |= join(&automaton->calls[i].first, &first);
        }
    }
}

/* Frames that may begin one in the other before a byte is read. */
static uint32_t call_depth(const struct automaton *automaton, uint32_t state, uint32_t depth)
{
    const struct automaton_state *info = &automaton->states[state];
    uint32_t deepest = depth;
    for (uint32_t i = 0; i < info->n_calls && deepest <= AUTOMATON_CALL_DEPTH_CAP; i++) {
        const uint32_t callee = automaton->calls[info->first_call + i].callee;
        const uint32_t deep = call_depth(automaton, callee, depth + 1);
        deepest = deep > deepest ? deep : deepest;
    }
    return deepest;
}

/* What may come behind a frame comes to the callee's start from the return states of its calls,
 * and from a frame's start to all its states. */
static void find_follows(struct automaton *automaton)
{
    struct automaton_state *states = automaton->states;
    const uint32_t n_classes = automaton->n_classes;
    for (uint32_t i = 0; i < automaton->n_calls; i++) {
        struct automaton_set first = { 0 };
        find_first(automaton, automaton->calls[i].returns, &first);
        join(&states[automaton->calls[i].callee].follow, &first);
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t state = 1; state < automaton->n_states; state++) {
            const uint32_t *row = automaton->next + (size_t)state * n_classes;
            for (uint32_t class = 0; class < n_classes; class ++) {
                if (row[class] != AUTOMATON_DEAD && (class == 0 || row[class] != row[class - 1]))
                    changed |= join(&states[row[class]].follow, &states[state].follow);
            }
            for (uint32_t i = 0; i < states[state].n_calls; i++) {
                const struct automaton_call *call = &automaton->calls[states[state].first_call + i];
                changed |= join(&states[call->returns].follow, &states[state].follow);
                if (automaton->flags[call->returns] & AUTOMATON_ACCEPTS)
                    changed |= join(&states[call->callee].follow, &states[call->returns].follow);
            }
        }
    }
}

static uint32_t left_from(const struct automaton *automaton, uint32_t state)
{
    const struct automaton_state *info = &automaton->states[state];
    const uint32_t *row = automaton->next + (size_t)state * automaton->n_classes;
    uint32_t least = automaton->flags[state] & AUTOMATON_ACCEPTS ? 0 : UINT32_MAX;
    for (uint32_t class = 0; class < automaton->n_classes; class ++) {
        const uint32_t left = row[class] ? automaton->states[row[class]].left_bytes : UINT32_MAX;
        if (left != UINT32_MAX && left + 1 < least)
            least = left + 1;
    }
    for (uint32_t i = 0; i < info->n_calls; i++) {
        const struct automaton_call *call = &automaton->calls[info->first_call + i];
        const uint32_t callee = automaton->states[call->callee].left_bytes;
        const uint32_t returns = automaton->states[call->returns].left_bytes;
        if (callee != UINT32_MAX && returns != UINT32_MAX && callee + returns < least)
            least = callee + returns;
    }
    return least;
}

static void find_left_bytes(struct automaton *automaton)
{
    for (uint32_t state = 0; state < automaton->n_states; state++)
        automaton->states[state].left_bytes = UINT32_MAX;
    bool changed = true;
    for (uint32_t round = 0; changed && round < LEFT_BYTES_ROUNDS; round++) {
        changed = false;
        for (uint32_t state = automaton->n_states; state-- > 1;) {
            const uint32_t left = left_from(automaton, state);
            if (left < automaton->states[state].left_bytes) {
                automaton->states[state].left_bytes = left;
                changed = true;
            }
        }
    }
}

/* Every state of a loop's frame knows the loop; its nodes are in no other frame. */
static void find_loops(struct automaton *automaton, const struct builder *builder)
{
    struct automaton_state *states = automaton->states;
    for (uint32_t i = 0; i < automaton->n_loops; i++) {
        const uint32_t entry = builder->nfa->loop_entries[builder->nfa->loop_repeats[i]];
        automaton->loops[i].head = builder->entry_states[entry];
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t state = 1; state < automaton->n_states; state++) {
            const uint32_t loop = states[state].loop;
            if (loop == AUTOMATON_NO_LOOP)
                continue;
            const uint32_t *row = automaton->next + (size_t)state * automaton->n_classes;
            for (uint32_t class = 0; class < automaton->n_classes; class ++) {
                changed |= row[class] != AUTOMATON_DEAD && states[row[class]].loop != loop;
                if (row[class] != AUTOMATON_DEAD)
                    states[row[class]].loop = loop;
            }
            for (uint32_t c = 0; c < states[state].n_calls; c++) {
                const uint32_t returns = automaton->calls[states[state].first_call + c].returns;
                changed |= states[returns].loop != loop;
                states[returns].loop = loop;
            }
        }
    }
}

/* ---- life ---- */

static void init_builder(struct builder *builder, struct automaton *automaton, struct nfa *nfa,
                         bool *unrolled)
{
    const size_t n_nodes = nfa->n_nodes;
    *automaton = (struct automaton){ .n_states = 1 }; // the dead one
    *builder = (struct builder){
        .automaton = automaton, .nfa = nfa, .states_room = 64, .unrolled = unrolled
    };
    builder->marks = xcalloc(n_nodes, sizeof(uint32_t));
    builder->set = xcalloc(n_nodes, sizeof(uint32_t));
    builder->stack = xcalloc(n_nodes, sizeof(uint32_t));
    builder->entry_states = xcalloc((size_t)nfa->n_entries + 1, sizeof(uint32_t));
    find_classes(builder);
    builder->offsets = xcalloc(2, sizeof(uint32_t));
    grow_states(builder);
    automaton->states[AUTOMATON_DEAD] = (struct automaton_state){ .loop = AUTOMATON_NO_LOOP };
    automaton->flags[AUTOMATON_DEAD] = 0;
    memset(automaton->next, 0, automaton->n_classes * sizeof(uint32_t));
    builder->offsets[0] = builder->offsets[1] = 0;
}

static void release_builder(struct builder *builder)
{
    free(builder->members);
    free(builder->offsets);
    free(builder->slots);
    free(builder->marks);
    free(builder->set);
    free(builder->stack);
    free(builder->entry_states);
}

enum outcome { OUTCOME_GOOD, OUTCOME_AGAIN, OUTCOME_TOO_LARGE, OUTCOME_TOO_DEEP };

/* One attempt; AGAIN: a repetition was added to `unrolled`. */
static enum outcome attempt(struct automaton *automaton, const struct grammar_rules *rules,
                            const struct rules_facts *facts, bool *unrolled)
{
    struct nfa nfa;
    struct builder builder;
    bool too_deep = false;
    if (!nfa_build(&nfa, rules, facts, unrolled)) {
        nfa_release(&nfa);
        return OUTCOME_TOO_LARGE;
    }
    init_builder(&builder, automaton, &nfa, unrolled);
    build_states(&builder);
    const enum outcome outcome = builder.again        ? OUTCOME_AGAIN
                                 : builder.overflowed ? OUTCOME_TOO_LARGE
                                                      : OUTCOME_GOOD;
    if (outcome == OUTCOME_GOOD) {
        automaton->accepts_empty = facts->min_bytes[rules->root] == 0;
        automaton->loops = nfa.loops;
        automaton->n_loops = nfa.n_loops;
        nfa.loops = NULL;
        find_loops(automaton, &builder);
        find_firsts(automaton);
        find_follows(automaton);
        find_left_bytes(automaton);
        for (uint32_t state = 1; state < automaton->n_states; state++)
            too_deep |= call_depth(automaton, state, 0) > AUTOMATON_CALL_DEPTH_CAP;
    }
    if (outcome != OUTCOME_GOOD || too_deep) {
        automaton_release(automaton);
    }
    release_builder(&builder);
    nfa_release(&nfa);
    return too_deep ? OUTCOME_TOO_DEEP : outcome;
}

bool automaton_build(struct automaton *automaton, const struct grammar_rules *rules,
                     struct err *err)
{
    struct rules_facts facts;
    *automaton = (struct automaton){ 0 };
    if (!grammar_rules_check(rules, &facts, err))
        return false;
    bool *unrolled = xcalloc(rules->n_nodes, sizeof *unrolled); // only grows: it ends
    enum outcome outcome;
    do
        outcome = attempt(automaton, rules, &facts, unrolled);
    while (outcome == OUTCOME_AGAIN);
    free(unrolled);
    rules_facts_release(&facts);
    if (outcome == OUTCOME_GOOD)
        return true;
    if (outcome == OUTCOME_TOO_DEEP)
        return err_set(err, ERR_UNSUPPORTED,
                       "more than %u rules begin with each other, one within the other",
                       AUTOMATON_CALL_DEPTH_CAP);
    return err_set(err, ERR_UNSUPPORTED,
                   "the grammar is too large: its automaton would have more than %u states, or %u "
                   "cells",
                   AUTOMATON_STATES_CAP, AUTOMATON_CELLS_CAP);
}

void automaton_release(struct automaton *automaton)
{
    free(automaton->next);
    free(automaton->flags);
    free(automaton->states);
    free(automaton->calls);
    free(automaton->loops);
    *automaton = (struct automaton){ 0 };
}
