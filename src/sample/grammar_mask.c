/* Which tokens can come next: the tree of tokens walked along the automaton.
 *
 * A token may read past the end of its frame, so what it may be depends on the stack; but only
 * there. The walk from a state is therefore done once and remembered: the tokens that stay within
 * the frame, and the exits, places in the tree where the frame may end and a byte comes that can
 * follow it. The mask of a state on a stack is the first plus a walk on from each exit along the
 * frames below, which is short: few tokens reach an exit, and most do not go on far. Within a text
 * of a JSON string that is 100,000 tokens against a few hundred exits.
 *
 * In a loop the count is not known when the walk is remembered. Each token is kept with the
 * repetitions that it begins, each exit with those that it completes; whoever uses them has the
 * count to compare.
 *
 * Finished masks are kept as well, by the set of configs they are of. */
#include <stdlib.h>

#include "base/hash.h"
#include "base/memory.h"
#include "sample/grammar_internal.h"

#define FEW_IDS 512u // up to so many ids are kept as a list
#define ENTRIES_FIRST 256u

struct walk {
    struct grammar *grammar;
    uint64_t *words; // of a mask; or
    struct memo_draft *draft;
    uint32_t n_steps;
    bool overflowed;
};

/* A memo as it is gathered. */
struct memo_draft {
    uint32_t *ids, *needs;
    uint32_t n_ids, ids_room;
    struct mask_exit *exits;
    uint32_t n_exits, exits_room;
};

/* A frame about to read the tokens of a subtree. */
struct frame {
    uint32_t state, count, stack;
    uint32_t need;  // repetitions that the base frame has begun
    bool has_begun; // else it may not end yet
};

static void draft_id(struct memo_draft *draft, uint32_t id, uint32_t need)
{
    if (draft->n_ids == draft->ids_room) {
        draft->ids_room = draft->ids_room ? 2 * draft->ids_room : 256;
        draft->ids = xreallocarray(draft->ids, draft->ids_room, sizeof *draft->ids);
        draft->needs = xreallocarray(draft->needs, draft->ids_room, sizeof *draft->needs);
    }
    draft->ids[draft->n_ids] = id;
    draft->needs[draft->n_ids++] = need;
}

static void draft_exit(struct memo_draft *draft, uint32_t node, uint32_t count)
{
    if (draft->n_exits == draft->exits_room) {
        draft->exits_room = draft->exits_room ? 2 * draft->exits_room : 64;
        draft->exits = xreallocarray(draft->exits, draft->exits_room, sizeof *draft->exits);
    }
    draft->exits[draft->n_exits++] = (struct mask_exit){ .node = node, .count = count };
}

static void mark_tokens(struct walk *walk, uint32_t node, uint32_t need)
{
    const struct token_trie *trie = walk->grammar->trie;
    for (uint32_t i = trie->firsts[node]; i < trie->firsts[node + 1]; i++) {
        const uint32_t id = trie->tokens[i];
        if (walk->draft != NULL)
            draft_id(walk->draft, id, need);
        else
            walk->words[id >> 6] |= 1ull << (id & 63);
    }
}

static void walk_frame(struct walk *walk, uint32_t first, uint32_t end, struct frame frame);

/* The frame ends before `node`; what is below goes on with it. */
static void walk_below(struct walk *walk, uint32_t node, const struct frame *frame, uint32_t count)
{
    const struct grammar *grammar = walk->grammar;
    if (frame->stack == STACK_BASE) {
        draft_exit(walk->draft, node, count);
        return;
    }
    if (frame->stack == STACK_EMPTY)
        return;
    const struct stack_node below = grammar->stacks.nodes[frame->stack];
    const bool is_base = below.parent == STACK_BASE; // its count is only what was added to it
    const bool arrives = grammar->automaton.flags[below.returns] & AUTOMATON_HEAD;
    const uint32_t returned = is_base
                                  ? below.count + arrives
                                  : count_after(&grammar->automaton, below.returns, below.count);
    walk_frame(walk, node, grammar->trie->ends[node],
               (struct frame){ .state = below.returns,
                               .count = returned,
                               .stack = below.parent,
                               .need = frame->need,
                               .has_begun = true });
}

static void walk_calls(struct walk *walk, uint32_t node, uint32_t class, const struct frame *caller,
                       uint32_t need)
{
    struct grammar *grammar = walk->grammar;
    const struct automaton_state *state = &grammar->automaton.states[caller->state];
    for (uint32_t i = 0; i < state->n_calls; i++) {
        const struct automaton_call *call = &grammar->automaton.calls[state->first_call + i];
        if (!automaton_set_has(&call->first, class))
            continue;
        const uint32_t stack =
            stack_push(&grammar->stacks, call->returns, caller->count, caller->stack);
        if (stack == STACK_NONE) {
            walk->overflowed = true;
            return;
        }
        walk_frame(walk, node, grammar->trie->ends[node],
                   (struct frame){ .state = call->callee, .stack = stack, .need = need });
    }
}

/* Reads all tokens of the nodes [first, end), siblings and what is below them. The inner loop is
 * what a mask costs; states with neither calls nor an end touch only its first and last lines. */
static void walk_frame(struct walk *walk, uint32_t first, uint32_t end, struct frame frame)
{
    struct grammar *grammar = walk->grammar;
    const struct automaton *automaton = &grammar->automaton;
    const struct token_trie *trie = grammar->trie;
    const uint32_t base_depth = trie->depths[first] - 1u;
    const uint32_t loop_index = automaton->states[frame.state].loop;
    const struct automaton_loop *loop =
        loop_index != AUTOMATON_NO_LOOP ? &automaton->loops[loop_index] : NULL;
    const bool is_open = loop != NULL && frame.stack == STACK_BASE; // its count is not known
    const uint32_t saved_state = grammar->states[base_depth];
    const uint32_t saved_count = grammar->counts[base_depth];
    grammar->states[base_depth] = frame.state;
    grammar->counts[base_depth] = frame.count;
    for (uint32_t node = first; node < end && !walk->overflowed;) {
        const uint32_t depth = trie->depths[node] - 1u;
        const uint32_t class = automaton->class_of[trie->bytes[node]];
        const uint32_t state = grammar->states[depth];
        uint32_t count = grammar->counts[depth];
        const uint8_t flags = automaton->flags[state];
        bool can_go = true;
        if (++walk->n_steps > GRAMMAR_STEPS_CAP)
            walk->overflowed = true;
        if (flags != 0) {
            const bool is_head = flags & AUTOMATON_HEAD;
            const struct frame here = { state, count, frame.stack, frame.need, true };
            can_go = !is_head || is_open || count < loop->max;
            if ((flags & AUTOMATON_ACCEPTS) && (frame.has_begun || depth > base_depth) &&
                (!is_head || is_open || count >= loop->min) &&
                automaton_set_has(&automaton->states[state].follow, class))
                walk_below(walk, node, &here, count);
            if ((flags & AUTOMATON_CALLS) && can_go)
                walk_calls(walk, node, class, &here, is_open ? count + 1 : frame.need);
        }
        const uint32_t next = automaton->next[(size_t)state * automaton->n_classes + class];
        if (next == AUTOMATON_DEAD || !can_go) {
            node = trie->ends[node];
            continue;
        }
        const bool arrives = automaton->flags[next] & AUTOMATON_HEAD;
        if (arrives)
            count = is_open ? count + 1 : loop_arrive(loop, count);
        grammar->states[depth + 1] = next;
        grammar->counts[depth + 1] = count;
        mark_tokens(walk, node, is_open ? count + !arrives : frame.need);
        node++;
    }
    grammar->states[base_depth] = saved_state;
    grammar->counts[base_depth] = saved_count;
}

/* ---- memos ---- */

/* Lists the ids of a mask if they are few, else copies it. */
static void keep_words(const struct grammar *grammar, const uint64_t *words, uint64_t **out_words,
                       uint32_t **out_ids, uint32_t *n_ids)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < grammar->n_words; i++)
        n += (uint32_t)__builtin_popcountll(words[i]);
    *n_ids = n;
    if (n > FEW_IDS) {
        *out_words = xcalloc(grammar->n_words, sizeof *words);
        memcpy(*out_words, words, grammar->n_words * sizeof *words);
        return;
    }
    *out_ids = xcalloc(n + 1u, sizeof **out_ids);
    n = 0;
    for (uint32_t i = 0; i < grammar->n_words; i++) {
        for (uint64_t left = words[i]; left != 0; left &= left - 1)
            (*out_ids)[n++] = i * 64 + (uint32_t)__builtin_ctzll(left);
    }
}

static void add_words(const struct grammar *grammar, const uint64_t *words, const uint32_t *ids,
                      uint32_t n_ids, uint64_t *out)
{
    if (words != NULL) {
        for (uint32_t i = 0; i < grammar->n_words; i++)
            out[i] |= words[i];
        return;
    }
    for (uint32_t i = 0; i < n_ids; i++)
        out[ids[i] >> 6] |= 1ull << (ids[i] & 63);
}

/* Sorts the ids by what they need. */
static void sort_by_need(struct state_memo *memo, const struct memo_draft *draft)
{
    uint32_t n_needs = 1;
    for (uint32_t i = 0; i < draft->n_ids; i++)
        n_needs = draft->needs[i] >= n_needs ? draft->needs[i] + 1 : n_needs;
    memo->n_needs = n_needs;
    memo->need_ends = xcalloc(n_needs + 1, sizeof *memo->need_ends);
    memo->by_need = xcalloc(draft->n_ids + 1u, sizeof *memo->by_need);
    for (uint32_t i = 0; i < draft->n_ids; i++)
        memo->need_ends[draft->needs[i] + 1]++;
    for (uint32_t i = 1; i <= n_needs; i++)
        memo->need_ends[i] += memo->need_ends[i - 1];
    for (uint32_t i = 0; i < draft->n_ids; i++) // need_ends[need] moves from begin to end
        memo->by_need[memo->need_ends[draft->needs[i]]++] = draft->ids[i];
}

static void keep_memo(struct grammar *grammar, uint32_t state, const struct memo_draft *draft)
{
    struct state_memo *memo = &grammar->memos[state];
    const uint32_t loop = grammar->automaton.states[state].loop;
    memset(grammar->words, 0, grammar->n_words * sizeof *grammar->words);
    for (uint32_t i = 0; i < draft->n_ids; i++)
        grammar->words[draft->ids[i] >> 6] |= 1ull << (draft->ids[i] & 63);
    keep_words(grammar, grammar->words, &memo->words, &memo->ids, &memo->n_ids);
    if (draft->n_exits > 0) {
        memo->n_exits = draft->n_exits;
        memo->exits = xcalloc(draft->n_exits, sizeof *memo->exits);
        memcpy(memo->exits, draft->exits, draft->n_exits * sizeof *memo->exits);
    }
    if (loop != AUTOMATON_NO_LOOP && grammar->automaton.loops[loop].max != GRAMMAR_NO_MAX)
        sort_by_need(memo, draft);
    memo->is_known = true;
    grammar->cache_bytes += memo->n_exits * sizeof *memo->exits + FEW_IDS * sizeof(uint32_t) +
                            (memo->words ? grammar->n_words * sizeof(uint64_t) : 0) +
                            (memo->by_need ? draft->n_ids * sizeof(uint32_t) : 0);
}

/* False: too many steps. */
static bool learn_state(struct walk *outer, uint32_t state)
{
    struct grammar *grammar = outer->grammar;
    struct memo_draft draft = { 0 };
    struct walk walk = { .grammar = grammar, .draft = &draft };
    walk_frame(&walk, 1, grammar->trie->n_nodes,
               (struct frame){ .state = state, .stack = STACK_BASE, .has_begun = true });
    if (!walk.overflowed)
        keep_memo(grammar, state, &draft);
    free(draft.ids);
    free(draft.needs);
    free(draft.exits);
    outer->overflowed |= walk.overflowed;
    return !walk.overflowed;
}

/* ---- masks ---- */

static void add_config(struct walk *walk, const struct grammar_config *config)
{
    struct grammar *grammar = walk->grammar;
    const struct automaton *automaton = &grammar->automaton;
    const uint32_t loop_index = automaton->states[config->state].loop;
    struct automaton_loop loop = { .min = 0, .max = GRAMMAR_NO_MAX };
    uint32_t room = UINT32_MAX;
    const struct state_memo *memo = &grammar->memos[config->state];
    if (loop_index != AUTOMATON_NO_LOOP) {
        loop = automaton->loops[loop_index];
        room = loop.max == GRAMMAR_NO_MAX ? UINT32_MAX : loop.max - config->count;
    }
    if (memo->by_need != NULL && room < memo->n_needs)
        add_words(grammar, NULL, memo->by_need, memo->need_ends[room], walk->words);
    else
        add_words(grammar, memo->words, memo->ids, memo->n_ids, walk->words);
    if (config->stack == STACK_EMPTY)
        return;
    const struct frame frame = { .stack = config->stack, .has_begun = true };
    for (uint32_t i = 0; i < memo->n_exits && !walk->overflowed; i++) {
        const struct mask_exit *exit = &memo->exits[i];
        if (loop_index == AUTOMATON_NO_LOOP ||
            (exit->count <= room && (uint64_t)config->count + exit->count >= loop.min))
            walk_below(walk, exit->node, &frame, 0);
    }
}

static void add_ends(const struct grammar *grammar, uint64_t *words)
{
    for (uint32_t i = 0; i < grammar->trie->n_end_ids; i++) {
        const uint32_t id = grammar->trie->end_ids[i];
        words[id >> 6] |= 1ull << (id & 63);
    }
}

/* Into grammar->words. */
static bool compute(struct grammar *grammar, const struct grammar_place *place, struct err *err)
{
    struct walk walk = { .grammar = grammar, .words = grammar->words };
    bool good = true;
    for (uint32_t i = 0; i < place->n_configs && good; i++) {
        const uint32_t state = place->configs[i].state;
        if (!grammar->memos[state].is_known)
            good = learn_state(&walk, state); // uses grammar->words
    }
    memset(grammar->words, 0, grammar->n_words * sizeof *grammar->words);
    for (uint32_t i = 0; i < place->n_configs && good; i++)
        add_config(&walk, &place->configs[i]);
    if (walk.overflowed)
        return err_set(err, ERR_UNSUPPORTED,
                       "the grammar is too ambiguous: which tokens may come next takes more than "
                       "%u steps to find",
                       GRAMMAR_STEPS_CAP);
    if (grammar_may_end(grammar, place))
        add_ends(grammar, grammar->words);
    return true;
}

static void grow_entries(struct grammar *grammar)
{
    struct mask_entry *old = grammar->entries;
    const uint32_t n_old = old ? grammar->entry_mask + 1 : 0;
    grammar->entry_mask = (n_old ? 2 * n_old : ENTRIES_FIRST) - 1;
    grammar->entries = xcalloc(grammar->entry_mask + 1u, sizeof *grammar->entries);
    for (uint32_t i = 0; i < n_old; i++) {
        if (old[i].hash == 0)
            continue;
        uint32_t at = (uint32_t)old[i].hash & grammar->entry_mask;
        while (grammar->entries[at].hash != 0)
            at = (at + 1) & grammar->entry_mask;
        grammar->entries[at] = old[i];
    }
    free(old);
}

/* The entry of the configs, or where it belongs. */
static struct mask_entry *find_entry(struct grammar *grammar, const struct grammar_place *place,
                                     uint64_t hash)
{
    const size_t bytes = place->n_configs * sizeof place->configs[0];
    if (grammar->n_entries * 2 >= grammar->entry_mask)
        grow_entries(grammar);
    uint32_t at = (uint32_t)hash & grammar->entry_mask;
    for (; grammar->entries[at].hash != 0; at = (at + 1) & grammar->entry_mask) {
        const struct mask_entry *entry = &grammar->entries[at];
        if (entry->hash == hash && entry->n_configs == place->n_configs &&
            memcmp(entry->configs, place->configs, bytes) == 0)
            break;
    }
    return &grammar->entries[at];
}

const uint64_t *grammar_mask(struct grammar *grammar, const struct grammar_place *place,
                             struct err *err)
{
    const size_t bytes = place->n_configs * sizeof place->configs[0];
    must(place->generation == grammar->generation);
    if (place->has_ended) {
        memset(grammar->words, 0, grammar->n_words * sizeof *grammar->words);
        add_ends(grammar, grammar->words);
        return grammar->words;
    }
    const uint64_t hash = hash_xxh3(place->configs, bytes) | 1; // 0: free
    struct mask_entry *entry = find_entry(grammar, place, hash);
    if (entry->hash != 0) {
        if (entry->words != NULL)
            return entry->words;
        memset(grammar->words, 0, grammar->n_words * sizeof *grammar->words);
        add_words(grammar, NULL, entry->ids, entry->n_ids, grammar->words);
        return grammar->words;
    }
    if (!compute(grammar, place, err))
        return NULL;
    *entry = (struct mask_entry){ .hash = hash, .n_configs = place->n_configs };
    entry->configs = xcalloc(place->n_configs, sizeof place->configs[0]);
    memcpy(entry->configs, place->configs, bytes);
    keep_words(grammar, grammar->words, &entry->words, &entry->ids, &entry->n_ids);
    grammar->n_entries++;
    grammar->cache_bytes +=
        bytes + (entry->words ? grammar->n_words * sizeof(uint64_t) : FEW_IDS * sizeof(uint32_t));
    return grammar->words;
}

void mask_caches_release(struct grammar *grammar)
{
    for (uint32_t i = 0; grammar->entries != NULL && i <= grammar->entry_mask; i++) {
        free(grammar->entries[i].configs);
        free(grammar->entries[i].words);
        free(grammar->entries[i].ids);
    }
    for (uint32_t i = 0; i < grammar->automaton.n_states; i++) {
        struct state_memo *memo = &grammar->memos[i];
        free(memo->words);
        free(memo->ids);
        free(memo->exits);
        free(memo->by_need);
        free(memo->need_ends);
        *memo = (struct state_memo){ 0 };
    }
    free(grammar->entries);
    grammar->entries = NULL;
    grammar->n_entries = grammar->entry_mask = 0;
    grammar->cache_bytes = 0;
}
