/* The bytes of every token that a text may be made of, as a tree: what grammars (grammar.h) walk to
 * find which tokens can come next.
 *
 * Nodes lie in depth-first order, so a subtree is a run of nodes and of tokens, and to leave one
 * out is one jump. Special and control tokens, those without bytes and those longer than
 * TOKEN_TRIE_DEPTH_CAP are not in it. Immutable: any thread. */
#ifndef CASCADIA_SAMPLE_TOKEN_TRIE_H
#define CASCADIA_SAMPLE_TOKEN_TRIE_H

#include "base/str.h"
#include "sample/grammar_rules.h"

#include <stdbool.h>
#include <stdint.h>

#define TOKEN_TRIE_DEPTH_CAP 256u

struct tokenizer;

struct token_trie {
    uint32_t vocab_size; // of the model: ids in masks are below
    uint32_t n_nodes;    // node 0 is the root
    uint8_t *bytes;      // [n_nodes] what leads to the node; [0] has no meaning
    uint16_t *depths;    // [n_nodes] the root's is 0
    uint32_t *ends;      // [n_nodes] one past the last node of the subtree
    uint32_t *firsts;    // [n_nodes + 1] node i is the end of tokens[firsts[i] .. firsts[i + 1])
    uint32_t *tokens;
    uint32_t n_tokens;
    uint32_t *end_ids; // end-of-generation
    uint32_t n_end_ids;
    struct str *texts; // [vocab_size] borrowed from the tokenizer; size 0: not in the tree
    /* Characters that can be written token by token whatever came before; NULL: all. Vocabularies
     * with a token for every byte have them all. */
    struct code_range *characters;
    size_t n_characters;
};

/* Reads tokenizer, which outlives the trie. Ids from vocab_size on are left out. */
struct token_trie *token_trie_new(const struct tokenizer *tokenizer, uint32_t vocab_size);
void token_trie_free(struct token_trie *trie); // NULL is fine

#endif
