/* What following a text (grammar.c) and computing masks (grammar_mask.c) share: the automaton, the
 * stacks, and what has been computed. */
#ifndef CASCADIA_SAMPLE_GRAMMAR_INTERNAL_H
#define CASCADIA_SAMPLE_GRAMMAR_INTERNAL_H

#include "sample/automaton.h"
#include "sample/grammar.h"

/* Stacks are numbers too: nodes of a tree that grows towards its leaves, each made once, so that
 * equal stacks are equal numbers. */
#define STACK_EMPTY 0u // below it is the end of the text
#define STACK_BASE 1u  // below it is whatever called: for what does not depend on it
#define STACK_NODES_CAP (1u << 20)
#define STACK_NONE UINT32_MAX

struct stack_node {
    uint32_t returns; // state to go on from
    uint32_t count;   // of its loop
    uint32_t parent;
    uint32_t depth;
};

struct stack_pool {
    struct stack_node *nodes;
    uint32_t n_nodes, room;
    uint32_t *slots;
    uint32_t slot_mask;
};

/* A place in the tree of tokens where the frame may end and what is below would go on. */
struct mask_exit {
    uint32_t node;  // it reads this node's byte
    uint32_t count; // of the frame's loop, from where it was
};

/* What one state allows, whatever is below its frame. */
struct state_memo {
    bool is_known;
    uint64_t *words; // tokens that stay within the frame; or, if they are few,
    uint32_t *ids;   // [n_ids]
    uint32_t n_ids;
    uint32_t n_exits;
    struct mask_exit *exits;
    /* A loop's: the ids again, by the repetitions that they begin; needs[i] is where those with
     * more than i end. NULL: max is far from all of them. */
    uint32_t *by_need, *need_ends;
    uint32_t n_needs;
};

/* The mask of a set of configs. */
struct mask_entry {
    uint64_t hash; // 0: free
    uint32_t n_configs;
    struct grammar_config *configs;
    uint64_t *words; // or, if they are few,
    uint32_t *ids;
    uint32_t n_ids;
};

struct grammar {
    struct automaton automaton;
    const struct token_trie *trie;
    uint32_t n_words;    // of a mask
    uint32_t generation; // of the stacks: rises when they are forgotten
    struct stack_pool stacks;
    struct state_memo *memos; // [n_states]
    struct mask_entry *entries;
    uint32_t n_entries, entry_mask;
    size_t cache_bytes;
    uint64_t *words; // the mask that was asked for last
    /* Scratch of a walk: state and count at each depth of the tree. */
    uint32_t states[TOKEN_TRIE_DEPTH_CAP + 2], counts[TOKEN_TRIE_DEPTH_CAP + 2];
};

/* STACK_NONE past the ceiling. */
uint32_t stack_push(struct stack_pool *pool, uint32_t returns, uint32_t count, uint32_t parent);
void stack_pool_init(struct stack_pool *pool);
void stack_pool_release(struct stack_pool *pool);

/* One more repetition of the loop that `head` is the head of. */
static inline uint32_t loop_arrive(const struct automaton_loop *loop, uint32_t count)
{
    return loop->max == GRAMMAR_NO_MAX && count >= loop->min ? loop->min : count + 1;
}

/* The count with which `returns` goes on when its callee's frame ends. */
static inline uint32_t count_after(const struct automaton *automaton, uint32_t returns,
                                   uint32_t count)
{
    return automaton->flags[returns] & AUTOMATON_HEAD
               ? loop_arrive(&automaton->loops[automaton->states[returns].loop], count)
               : count;
}

/* Masks and stacks are forgotten; places must be followed again. */
void grammar_forget(struct grammar *grammar);
void mask_caches_release(struct grammar *grammar);

#endif
