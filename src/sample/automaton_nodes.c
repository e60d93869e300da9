/* Expressions to nodes, from behind: each is built with the node that comes after it, so nothing
 * needs to be patched.
 *
 * A rule is called, spliced in, or jumped to. Jumped to when nothing comes after it: then its end
 * is the caller's end. Spliced in when it is small and not recursive: a frame costs more than a
 * few states. Otherwise called, and its states, with the masks computed for them, are shared by
 * all who call it.
 *
 * Characters are bytes of UTF-8 here. A class becomes the sequences of byte ranges that spell it
 * (as in RE2), with common endings shared. */
#include "sample/automaton_internal.h"

#include <stdlib.h>

#include "base/memory.h"

#define SPLICE_NODES_CAP 24u  // largest rule that is spliced in
#define UNROLL_NODES_CAP 192u // largest repetition that is written out if it could be a loop
#define ENDINGS_CAP 64u       // endings of a class that are remembered

static uint32_t add_node(struct nfa *nfa, struct nfa_node node)
{
    if (nfa->n_nodes >= AUTOMATON_NODES_CAP) {
        nfa->overflowed = true;
        return NODE_ACCEPT; // any valid one: nothing of it will be used
    }
    if (nfa->n_nodes == nfa->nodes_room) {
        nfa->nodes_room *= 2;
        nfa->nodes = xreallocarray(nfa->nodes, nfa->nodes_room, sizeof *nfa->nodes);
    }
    nfa->nodes[nfa->n_nodes] = node;
    return nfa->n_nodes++;
}

static uint32_t add_split(struct nfa *nfa, uint32_t x, uint32_t y)
{
    return add_node(nfa, (struct nfa_node){ .kind = NFA_SPLIT, .x = x, .y = y });
}

static uint32_t add_bytes(struct nfa *nfa, uint8_t low, uint8_t high, uint32_t next)
{
    return add_node(nfa,
                    (struct nfa_node){ .kind = NFA_BYTES, .low = low, .high = high, .x = next });
}

/* ---- classes of characters ---- */

struct class_builder {
    struct nfa *nfa;
    uint32_t start; // the choice so far
    uint32_t n_endings;
    struct {
        uint8_t low, high;
        uint32_t next, node;
    } endings[ENDINGS_CAP];
};

/* A byte range before `next`; the same one is not made twice. */
static uint32_t ending(struct class_builder *builder, uint8_t low, uint8_t high, uint32_t next)
{
    for (uint32_t i = 0; i < builder->n_endings; i++) {
        if (builder->endings[i].low == low && builder->endings[i].high == high &&
            builder->endings[i].next == next)
            return builder->endings[i].node;
    }
    const uint32_t node = add_bytes(builder->nfa, low, high, next);
    if (builder->n_endings < ENDINGS_CAP) {
        builder->endings[builder->n_endings].low = low;
        builder->endings[builder->n_endings].high = high;
        builder->endings[builder->n_endings].next = next;
        builder->endings[builder->n_endings++].node = node;
    }
    return node;
}

/* Adds the code points [first, last], whose encodings have the same number of bytes. Splits until
 * first and last differ in a run of whole ranges: all but their last bytes 80..BF. */
static void add_same_size(struct class_builder *builder, uint32_t first, uint32_t last,
                          uint32_t next)
{
    char low[4], high[4];
    const size_t size = utf8_write(first, low);
    utf8_write(last, high);
    for (size_t i = 1; i < size; i++) {
        const uint32_t mask = (1u << (6 * i)) - 1; // of the last i bytes
        if ((first & ~mask) == (last & ~mask))
            continue;
        if ((first & mask) != 0) {
            add_same_size(builder, first, first | mask, next);
            add_same_size(builder, (first | mask) + 1, last, next);
            return;
        }
        if ((last & mask) != mask) {
            add_same_size(builder, first, (last & ~mask) - 1, next);
            add_same_size(builder, last & ~mask, last, next);
            return;
        }
    }
    for (size_t i = size; i-- > 0;)
        next = ending(builder, (uint8_t)low[i], (uint8_t)high[i], next);
    builder->start =
        builder->start == NODE_NONE ? next : add_split(builder->nfa, next, builder->start);
}

static uint32_t build_class(struct nfa *nfa, const struct rules_node *node, uint32_t next)
{
    static const uint32_t size_ends[4] = { 0x7f, 0x7ff, 0xffff, GRAMMAR_CODE_POINT_CAP };
    struct class_builder builder = { .nfa = nfa, .start = NODE_NONE };
    for (uint32_t i = 0; i < node->count; i++) {
        struct code_range range = nfa->rules->ranges[node->first + i];
        for (uint32_t size = 0; size < 4 && range.first <= range.last; size++) {
            if (range.first > size_ends[size])
                continue;
            const uint32_t last = range.last < size_ends[size] ? range.last : size_ends[size];
            add_same_size(&builder, range.first, last, next);
            range.first = last + 1;
        }
    }
    return builder.start;
}

/* ---- rules ---- */

/* About how many nodes an expression takes, or more than `budget`. */
static uint32_t measure(const struct nfa *nfa, uint32_t node, uint32_t budget)
{
    const struct rules_node *n = &nfa->rules->nodes[node];
    uint64_t sum = 1;
    switch (n->kind) {
    case RULES_KIND_TEXT:
        return n->count;
    case RULES_KIND_CLASS:
        return n->count * (nfa->rules->ranges[n->first + n->count - 1].last > 0x7f ? 6 : 2);
    case RULES_KIND_SEQUENCE:
    case RULES_KIND_CHOICE:
        for (uint32_t i = 0; i < n->count && sum <= budget; i++)
            sum += measure(nfa, nfa->rules->children[n->first + i], budget);
        break;
    case RULES_KIND_REPEAT:
        sum += (uint64_t)measure(nfa, n->first, budget) *
               (n->max != GRAMMAR_NO_MAX ? n->max : n->min + 1);
        break;
    case RULES_KIND_CALL: // one less each time, so that recursion runs out
        if (budget > 0)
            sum += measure(nfa, nfa->rules->rules[n->first].body, budget - 1);
        break;
    default:
        break;
    }
    return sum <= budget ? (uint32_t)sum : budget + 1;
}

static bool is_spliced(const struct nfa *nfa, uint32_t rule)
{
    return measure(nfa, nfa->rules->rules[rule].body, SPLICE_NODES_CAP) <= SPLICE_NODES_CAP;
}

/* Where the rule's own copy begins; made when its turn comes. */
static uint32_t rule_start(struct nfa *nfa, uint32_t rule)
{
    if (nfa->rule_starts[rule] == NODE_NONE) {
        nfa->rule_starts[rule] = add_split(nfa, NODE_NONE, NODE_NONE);
        nfa->queue[nfa->n_queue++] = rule;
    }
    return nfa->rule_starts[rule];
}

static uint32_t add_entry(struct nfa *nfa, uint32_t node, uint32_t loop)
{
    if (nfa->n_entries == nfa->entries_room) {
        nfa->entries_room = nfa->entries_room ? 2 * nfa->entries_room : 16;
        nfa->entries = xreallocarray(nfa->entries, nfa->entries_room, sizeof *nfa->entries);
    }
    nfa->entries[nfa->n_entries] = (struct nfa_entry){ .node = node, .loop = loop };
    return nfa->n_entries++;
}

static uint32_t build(struct nfa *nfa, uint32_t node, uint32_t next);

static uint32_t add_call(struct nfa *nfa, uint32_t entry, uint32_t next, bool can_be_empty)
{
    const uint32_t call =
        add_node(nfa, (struct nfa_node){ .kind = NFA_CALL, .x = next, .y = entry });
    return can_be_empty ? add_split(nfa, call, next) : call;
}

static uint32_t build_call(struct nfa *nfa, uint32_t rule, uint32_t next)
{
    if (nfa->facts->min_bytes[rule] == UINT32_MAX)
        return NODE_NONE;
    if (next == NODE_ACCEPT)
        return rule_start(nfa, rule);
    if (is_spliced(nfa, rule))
        return build(nfa, nfa->rules->rules[rule].body, next);
    if (nfa->rule_entries[rule] == NODE_NONE)
        nfa->rule_entries[rule] = add_entry(nfa, rule_start(nfa, rule), AUTOMATON_NO_LOOP);
    return add_call(nfa, nfa->rule_entries[rule], next, nfa->facts->min_bytes[rule] == 0);
}

/* ---- repetitions ---- */

static uint32_t build_unrolled(struct nfa *nfa, const struct rules_node *node, uint32_t next)
{
    uint32_t start = next;
    if (node->max == GRAMMAR_NO_MAX) {
        start = add_split(nfa, NODE_NONE, next);
        const uint32_t body = build(nfa, node->first, start);
        nfa->nodes[start].x = body;
    }
    for (uint32_t i = node->min; node->max != GRAMMAR_NO_MAX && i < node->max && !nfa->overflowed;
         i++)
        start = add_split(nfa, build(nfa, node->first, start), next);
    for (uint32_t i = 0; i < node->min && !nfa->overflowed; i++)
        start = build(nfa, node->first, start);
    return start;
}

static uint32_t add_loop(struct nfa *nfa, uint32_t repeat)
{
    const struct rules_node *node = &nfa->rules->nodes[repeat];
    if (nfa->n_loops == nfa->loops_room) {
        nfa->loops_room = nfa->loops_room ? 2 * nfa->loops_room : 16;
        nfa->loops = xreallocarray(nfa->loops, nfa->loops_room, sizeof *nfa->loops);
        nfa->loop_repeats =
            xreallocarray(nfa->loop_repeats, nfa->loops_room, sizeof *nfa->loop_repeats);
    }
    const uint32_t loop = nfa->n_loops++;
    nfa->loops[loop] = (struct automaton_loop){ .min = node->min, .max = node->max };
    nfa->loop_repeats[loop] = repeat;
    const uint32_t head =
        add_node(nfa, (struct nfa_node){ .kind = NFA_HEAD, .x = NODE_NONE, .y = loop });
    nfa->loop_entries[repeat] = add_entry(nfa, head, loop);
    const uint32_t body = build(nfa, node->first, head);
    nfa->nodes[head].x = body;
    return nfa->loop_entries[repeat];
}

static uint32_t build_repeat(struct nfa *nfa, uint32_t repeat, uint32_t next)
{
    const struct rules_node *node = &nfa->rules->nodes[repeat];
    const uint32_t least = rules_min_bytes(nfa->rules, nfa->facts, node->first);
    if (least == UINT32_MAX)
        return node->min == 0 ? next : NODE_NONE;
    const bool counts = node->min > 1 || (node->max != GRAMMAR_NO_MAX && node->max > 1);
    if (!counts || least == 0 || nfa->unrolled[repeat] ||
        measure(nfa, repeat, UNROLL_NODES_CAP) <= UNROLL_NODES_CAP)
        return build_unrolled(nfa, node, next);
    const uint32_t entry =
        nfa->loop_entries[repeat] != NODE_NONE ? nfa->loop_entries[repeat] : add_loop(nfa, repeat);
    return add_call(nfa, entry, next, node->min == 0);
}

/* ---- expressions ---- */

static uint32_t build_text(struct nfa *nfa, const struct rules_node *node, uint32_t next)
{
    for (uint32_t i = node->count; i-- > 0;) {
        const uint8_t byte = (uint8_t)nfa->rules->bytes[node->first + i];
        next = add_bytes(nfa, byte, byte, next);
    }
    return next;
}

static uint32_t build_sequence(struct nfa *nfa, const struct rules_node *node, uint32_t next)
{
    for (uint32_t i = node->count; i-- > 0 && next != NODE_NONE;)
        next = build(nfa, nfa->rules->children[node->first + i], next);
    return next;
}

static uint32_t build_choice(struct nfa *nfa, const struct rules_node *node, uint32_t next)
{
    uint32_t start = NODE_NONE;
    for (uint32_t i = node->count; i-- > 0;) {
        const uint32_t part = build(nfa, nfa->rules->children[node->first + i], next);
        if (part != NODE_NONE)
            start = start == NODE_NONE ? part : add_split(nfa, part, start);
    }
    return start;
}

/* The node where the expression, followed by `next`, begins; NODE_NONE: it cannot match. */
static uint32_t build(struct nfa *nfa, uint32_t node, uint32_t next)
{
    const struct rules_node *n = &nfa->rules->nodes[node];
    if (nfa->overflowed)
        return NODE_ACCEPT;
    switch (n->kind) {
    case RULES_KIND_NOTHING:
        return NODE_NONE;
    case RULES_KIND_EMPTY:
        return next;
    case RULES_KIND_TEXT:
        return build_text(nfa, n, next);
    case RULES_KIND_CLASS:
        return build_class(nfa, n, next);
    case RULES_KIND_SEQUENCE:
        if (rules_min_bytes(nfa->rules, nfa->facts, node) == UINT32_MAX)
            return NODE_NONE; // nothing is built of what cannot end
        return build_sequence(nfa, n, next);
    case RULES_KIND_CHOICE:
        return build_choice(nfa, n, next);
    case RULES_KIND_REPEAT:
        return build_repeat(nfa, node, next);
    case RULES_KIND_CALL:
        return build_call(nfa, n->first, next);
    }
    return NODE_NONE;
}

bool nfa_build(struct nfa *nfa, const struct grammar_rules *rules, const struct rules_facts *facts,
               const bool *unrolled)
{
    *nfa = (struct nfa){ .rules = rules, .facts = facts, .unrolled = unrolled, .nodes_room = 256 };
    nfa->nodes = xcalloc(nfa->nodes_room, sizeof *nfa->nodes);
    nfa->rule_starts = xcalloc(rules->n_rules, sizeof(uint32_t));
    nfa->rule_entries = xcalloc(rules->n_rules, sizeof(uint32_t));
    nfa->queue = xcalloc(rules->n_rules, sizeof(uint32_t));
    nfa->loop_entries = xcalloc(rules->n_nodes, sizeof(uint32_t));
    for (uint32_t i = 0; i < rules->n_rules; i++)
        nfa->rule_starts[i] = nfa->rule_entries[i] = NODE_NONE;
    for (uint32_t i = 0; i < rules->n_nodes; i++)
        nfa->loop_entries[i] = NODE_NONE;
    nfa->nodes[NODE_ACCEPT].kind = NFA_ACCEPT;
    nfa->n_nodes = 1;
    nfa->root = rule_start(nfa, rules->root);
    while (nfa->n_queue > 0 && !nfa->overflowed) {
        const uint32_t rule = nfa->queue[--nfa->n_queue];
        const uint32_t body = build(nfa, rules->rules[rule].body, NODE_ACCEPT);
        nfa->nodes[nfa->rule_starts[rule]].x = body;
    }
    return !nfa->overflowed;
}

void nfa_release(struct nfa *nfa)
{
    free(nfa->nodes);
    free(nfa->entries);
    free(nfa->rule_starts);
    free(nfa->rule_entries);
    free(nfa->loop_entries);
    free(nfa->loops);
    free(nfa->loop_repeats);
    free(nfa->queue);
    *nfa = (struct nfa){ 0 };
}
