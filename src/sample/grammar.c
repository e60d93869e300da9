/* Following a text byte by byte, along every way it can be read. A config is a state of the
 * automaton with its loop's count and its stack; most texts have one, those that can be read in
 * several ways have a few until the next bytes decide.
 *
 * Places keep nothing but configs, and configs are numbers that the grammar gives a meaning. When
 * its memory of stacks is full it forgets all of them and counts a generation more; a place of an
 * older one is read again from its ids. */
#include "sample/grammar.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/memory.h"
#include "sample/gbnf.h"
#include "sample/grammar_internal.h"
#include "sample/json_schema.h"
#include "sample/pattern.h"

/* ---- compiling ---- */

static bool read_source(const struct sampling_grammar *source, struct grammar_rules *rules,
                        struct err *err)
{
    switch (source->language) {
    case SAMPLING_GRAMMAR_JSON_SCHEMA:
        return json_schema_read(source->text, rules, err);
    case SAMPLING_GRAMMAR_GBNF:
        return gbnf_read(source->text, rules, err);
    case SAMPLING_GRAMMAR_REGEX:
        return pattern_read(source->text, rules, err);
    case SAMPLING_GRAMMAR_NONE:
        break;
    }
    return err_set(err, ERR_ARGUMENT, "no grammar");
}

static bool compile(const struct sampling_grammar *source, const struct token_trie *trie,
                    struct automaton *out, struct err *err)
{
    struct grammar_rules rules;
    if (source->text.size > SAMPLING_GRAMMAR_BYTES_CAP)
        return err_set(err, ERR_UNSUPPORTED, "the grammar has %zu bytes; at most %u go",
                       source->text.size, SAMPLING_GRAMMAR_BYTES_CAP);
    grammar_rules_init(&rules);
    bool good = read_source(source, &rules, err);
    if (good && trie != NULL && trie->characters != NULL)
        grammar_rules_restrict(&rules, trie->characters, trie->n_characters);
    good = good && automaton_build(out, &rules, err);
    grammar_rules_release(&rules);
    return good;
}

bool grammar_check(const struct sampling_grammar *source, struct err *err)
{
    struct automaton automaton;
    if (!compile(source, NULL, &automaton, err))
        return false;
    automaton_release(&automaton);
    return true;
}

struct grammar *grammar_new(const struct sampling_grammar *source, const struct token_trie *trie,
                            struct err *err)
{
    struct automaton automaton;
    if (trie->n_end_ids == 0) {
        err_set(err, ERR_UNSUPPORTED, "the model has no token that ends an answer");
        return NULL;
    }
    if (!compile(source, trie, &automaton, err))
        return NULL;
    struct grammar *grammar = xcalloc(1, sizeof *grammar);
    grammar->automaton = automaton;
    grammar->trie = trie;
    grammar->n_words = (trie->vocab_size + 63) / 64;
    grammar->generation = 1;
    grammar->words = xcalloc(grammar->n_words, sizeof *grammar->words);
    grammar->memos = xcalloc(automaton.n_states, sizeof *grammar->memos);
    stack_pool_init(&grammar->stacks);
    return grammar;
}

void grammar_free(struct grammar *grammar)
{
    if (grammar == NULL)
        return;
    mask_caches_release(grammar);
    stack_pool_release(&grammar->stacks);
    automaton_release(&grammar->automaton);
    free(grammar->memos);
    free(grammar->words);
    free(grammar);
}

void grammar_forget(struct grammar *grammar)
{
    mask_caches_release(grammar);
    stack_pool_release(&grammar->stacks);
    stack_pool_init(&grammar->stacks);
    grammar->generation++;
}

/* ---- stacks ---- */

void stack_pool_init(struct stack_pool *pool)
{
    *pool = (struct stack_pool){ .room = 256, .slot_mask = 1023, .n_nodes = 2 };
    pool->nodes = xcalloc(pool->room, sizeof *pool->nodes);
    pool->slots = xcalloc(pool->slot_mask + 1u, sizeof *pool->slots);
}

void stack_pool_release(struct stack_pool *pool)
{
    free(pool->nodes);
    free(pool->slots);
    *pool = (struct stack_pool){ 0 };
}

static uint32_t slot_of(const struct stack_pool *pool, uint32_t returns, uint32_t count,
                        uint32_t parent)
{
    uint64_t hash = (uint64_t)returns * 0x9e3779b97f4a7c15u;
    hash = (hash ^ hash >> 29 ^ parent) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ hash >> 32 ^ count) * 0x94d049bb133111ebu;
    return (uint32_t)(hash >> 33) & pool->slot_mask;
}

static void grow_pool(struct stack_pool *pool)
{
    pool->room *= 2;
    pool->nodes = xreallocarray(pool->nodes, pool->room, sizeof *pool->nodes);
    free(pool->slots);
    pool->slot_mask = 4 * pool->room - 1;
    pool->slots = xcalloc(pool->slot_mask + 1u, sizeof *pool->slots);
    for (uint32_t i = 2; i < pool->n_nodes; i++) {
        const struct stack_node *node = &pool->nodes[i];
        uint32_t at = slot_of(pool, node->returns, node->count, node->parent);
        while (pool->slots[at] != 0)
            at = (at + 1) & pool->slot_mask;
        pool->slots[at] = i;
    }
}

uint32_t stack_push(struct stack_pool *pool, uint32_t returns, uint32_t count, uint32_t parent)
{
    uint32_t at = slot_of(pool, returns, count, parent);
    for (; pool->slots[at] != 0; at = (at + 1) & pool->slot_mask) {
        const struct stack_node *node = &pool->nodes[pool->slots[at]];
        if (node->returns == returns && node->count == count && node->parent == parent)
            return pool->slots[at];
    }
    if (pool->n_nodes >= STACK_NODES_CAP)
        return STACK_NONE;
    if (pool->n_nodes == pool->room) {
        grow_pool(pool);
        return stack_push(pool, returns, count, parent);
    }
    pool->nodes[pool->n_nodes] = (struct stack_node){
        .returns = returns, .count = count, .parent = parent, .depth = pool->nodes[parent].depth + 1
    };
    pool->slots[at] = pool->n_nodes;
    return pool->n_nodes++;
}

/* ---- following ---- */

/* The configs after a byte, as they are gathered. */
struct stepping {
    struct grammar *grammar;
    uint32_t class; // of the byte
    struct grammar_place *out;
    enum { STEP_FINE, STEP_AMBIGUOUS, STEP_DEEP, STEP_FULL } outcome;
};

static void add_config(struct stepping *stepping, struct grammar_config config)
{
    struct grammar_place *out = stepping->out;
    for (uint32_t i = 0; i < out->n_configs; i++) {
        const struct grammar_config *have = &out->configs[i];
        if (have->state == config.state && have->count == config.count &&
            have->stack == config.stack)
            return;
    }
    if (out->n_configs == GRAMMAR_CONFIGS_CAP)
        stepping->outcome = STEP_AMBIGUOUS;
    else if (stepping->grammar->stacks.nodes[config.stack].depth > GRAMMAR_DEPTH_CAP)
        stepping->outcome = STEP_DEEP;
    else
        out->configs[out->n_configs++] = config;
}

/* Reads the byte from `at`, from what it may call, and from what it may return to. `is_entry`: the
 * frame has just begun and may not end. */
static void step(struct stepping *stepping, struct grammar_config at, bool is_entry)
{
    struct grammar *grammar = stepping->grammar;
    const struct automaton *automaton = &grammar->automaton;
    const struct automaton_state *state = &automaton->states[at.state];
    const uint8_t flags = automaton->flags[at.state];
    bool can_go = true, can_end = flags & AUTOMATON_ACCEPTS;
    if (flags & AUTOMATON_HEAD) {
        const struct automaton_loop *loop = &automaton->loops[state->loop];
        can_go = at.count < loop->max;
        can_end = at.count >= loop->min;
    }
    if (stepping->outcome != STEP_FINE)
        return;
    const uint32_t next =
        automaton->next[(size_t)at.state * automaton->n_classes + stepping->class];
    if (can_go && next != AUTOMATON_DEAD)
        add_config(stepping,
                   (struct grammar_config){ .state = next,
                                            .count = count_after(automaton, next, at.count),
                                            .stack = at.stack });
    for (uint32_t i = 0; i < state->n_calls && can_go; i++) {
        const struct automaton_call *call = &automaton->calls[state->first_call + i];
        if (!automaton_set_has(&call->first, stepping->class))
            continue;
        const uint32_t stack = stack_push(&grammar->stacks, call->returns, at.count, at.stack);
        if (stack == STACK_NONE)
            stepping->outcome = STEP_FULL;
        else
            step(stepping, (struct grammar_config){ .state = call->callee, .stack = stack }, true);
    }
    if (can_end && !is_entry && at.stack != STACK_EMPTY &&
        automaton_set_has(&state->follow, stepping->class)) {
        const struct stack_node node = grammar->stacks.nodes[at.stack];
        step(stepping,
             (struct grammar_config){ .state = node.returns,
                                      .count = count_after(automaton, node.returns, node.count),
                                      .stack = node.parent },
             false);
    }
}

static int compare_configs(const void *a, const void *b)
{
    const struct grammar_config *left = a, *right = b;
    if (left->state != right->state)
        return left->state < right->state ? -1 : 1;
    if (left->stack != right->stack)
        return left->stack < right->stack ? -1 : 1;
    return left->count < right->count ? -1 : left->count > right->count;
}

static void begin(const struct grammar *grammar, struct grammar_place *place)
{
    place->n_ids = 0;
    place->generation = grammar->generation;
    place->has_ended = false;
    place->n_configs = 1;
    place->configs[0] =
        (struct grammar_config){ .state = grammar->automaton.start, .stack = STACK_EMPTY };
}

static bool is_end(const struct token_trie *trie, int32_t id)
{
    for (uint32_t i = 0; i < trie->n_end_ids; i++) {
        if (trie->end_ids[i] == (uint32_t)id)
            return true;
    }
    return false;
}

static bool fail_step(const struct stepping *stepping, struct err *err)
{
    switch (stepping->outcome) {
    case STEP_AMBIGUOUS:
        return err_set(err, ERR_UNSUPPORTED,
                       "the grammar reads the text in more than %u ways at once",
                       GRAMMAR_CONFIGS_CAP);
    case STEP_DEEP:
        return err_set(err, ERR_UNSUPPORTED, "the text is nested more than %u levels deep",
                       GRAMMAR_DEPTH_CAP);
    case STEP_FULL:
        return err_set(err, ERR_UNSUPPORTED, "the grammar needs more than %u stacks",
                       STACK_NODES_CAP);
    case STEP_FINE:
        break;
    }
    return err_set(err, ERR_BATCH_LOST, "the grammar does not allow the text");
}

/* Reads a token's text from place into place. */
static bool read_text(struct grammar *grammar, struct grammar_place *place, struct str text,
                      struct err *err)
{
    struct grammar_place from;
    for (size_t i = 0; i < text.size; i++) {
        struct stepping stepping = { .grammar = grammar, .out = place };
        stepping.class = grammar->automaton.class_of[(uint8_t)text.data[i]];
        from.n_configs = place->n_configs;
        memcpy(from.configs, place->configs, place->n_configs * sizeof place->configs[0]);
        place->n_configs = 0;
        for (uint32_t c = 0; c < from.n_configs; c++)
            step(&stepping, from.configs[c], false);
        if (place->n_configs == 0 || stepping.outcome != STEP_FINE)
            return fail_step(&stepping, err);
    }
    qsort(place->configs, place->n_configs, sizeof place->configs[0], compare_configs);
    return true;
}

static bool read_id(struct grammar *grammar, struct grammar_place *place, int32_t id,
                    struct err *err)
{
    const struct token_trie *trie = grammar->trie;
    if (is_end(trie, id) && (place->has_ended || grammar_may_end(grammar, place))) {
        place->has_ended = true;
    } else if (id < 0 || (uint32_t)id >= trie->vocab_size || trie->texts[id].size == 0 ||
               place->has_ended) {
        return err_set(err, ERR_BATCH_LOST, "the grammar does not allow token %d", id);
    } else if (!read_text(grammar, place, trie->texts[id], err)) {
        return false;
    }
    place->n_ids++;
    return true;
}

bool grammar_follow(struct grammar *grammar, struct grammar_place *place, const int32_t *ids,
                    uint32_t n_ids, struct err *err)
{
    if (grammar->stacks.n_nodes > STACK_NODES_CAP / 2 ||
        grammar->cache_bytes > GRAMMAR_CACHE_BYTES_CAP)
        grammar_forget(grammar);
    if (place->generation != grammar->generation || place->n_ids > n_ids)
        begin(grammar, place);
    while (place->n_ids < n_ids) {
        if (!read_id(grammar, place, ids[place->n_ids], err)) {
            const uint32_t at = place->n_ids;
            place->generation = 0;
            return err_wrap(err, "token %u of the answer", at);
        }
    }
    return true;
}

/* The frame of a config may end, and all frames below it. */
static bool config_may_end(const struct grammar *grammar, struct grammar_config at)
{
    const struct automaton *automaton = &grammar->automaton;
    for (;;) {
        if (!(automaton->flags[at.state] & AUTOMATON_ACCEPTS))
            return false;
        if ((automaton->flags[at.state] & AUTOMATON_HEAD) &&
            at.count < automaton->loops[automaton->states[at.state].loop].min)
            return false;
        if (at.stack == STACK_EMPTY)
            return true;
        const struct stack_node *node = &grammar->stacks.nodes[at.stack];
        at = (struct grammar_config){ .state = node->returns,
                                      .count = count_after(automaton, node->returns, node->count),
                                      .stack = node->parent };
    }
}

bool grammar_may_end(const struct grammar *grammar, const struct grammar_place *place)
{
    for (uint32_t i = 0; i < place->n_configs; i++) {
        if (config_may_end(grammar, place->configs[i]))
            return true;
    }
    return false;
}

uint32_t grammar_left_bytes(const struct grammar *grammar, const struct grammar_place *place)
{
    const struct automaton_state *states = grammar->automaton.states;
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < place->n_configs; i++) {
        uint64_t left = states[place->configs[i].state].left_bytes;
        for (uint32_t at = place->configs[i].stack; at != STACK_EMPTY;
             at = grammar->stacks.nodes[at].parent)
            left += states[grammar->stacks.nodes[at].returns].left_bytes;
        least = left < least ? (uint32_t)left : least;
    }
    return least;
}
