/* Nodes lie in arrays and name each other by index, so that a grammar of many thousand is a few
 * allocations and is walked without pointers.
 *
 * The checks are fixed points over rules. Shortest texts fall from "none" until nothing changes:
 * what stays there can only be matched by a text without end and is cut out by the automaton, so
 * that generation never enters what it cannot leave. Left recursion (a rule that reaches itself
 * before it has read a byte) would send the automaton in circles and is refused by name. */
#include "sample/grammar_rules.h"

#include <stdlib.h>

#include "base/memory.h"

#define NAMES_BYTES_CAP ((size_t)16 << 20)

void grammar_rules_init(struct grammar_rules *rules)
{
    *rules = (struct grammar_rules){ 0 };
    arena_init(&rules->names, NAMES_BYTES_CAP);
    rules->nodes_room = 64;
    rules->nodes = xcalloc(rules->nodes_room, sizeof *rules->nodes);
    rules->nodes[RULES_NOTHING].kind = RULES_KIND_NOTHING;
    rules->nodes[RULES_EMPTY].kind = RULES_KIND_EMPTY;
    rules->n_nodes = 2;
}

void grammar_rules_release(struct grammar_rules *rules)
{
    free(rules->nodes);
    free(rules->rules);
    free(rules->children);
    free(rules->ranges);
    free(rules->bytes);
    arena_release(&rules->names);
    *rules = (struct grammar_rules){ 0 };
}

/* Room for `more` items of a growing array; false past the ceiling. */
static bool make_room(struct grammar_rules *rules, void **items, size_t item_bytes, uint32_t used,
                      uint32_t *room, size_t more, uint32_t cap)
{
    if (more > cap - used) {
        rules->overflowed = true;
        return false;
    }
    if (used + more <= *room)
        return true;
    uint32_t wanted = *room ? *room : 64;
    while (wanted < used + more)
        wanted *= 2;
    *items = xreallocarray(*items, wanted, item_bytes);
    *room = wanted;
    return true;
}

static uint32_t add_node(struct grammar_rules *rules, struct rules_node node)
{
    void *items = rules->nodes;
    if (!make_room(rules, &items, sizeof node, rules->n_nodes, &rules->nodes_room, 1,
                   GRAMMAR_NODES_CAP))
        return RULES_NOTHING;
    rules->nodes = items;
    rules->nodes[rules->n_nodes] = node;
    return rules->n_nodes++;
}

uint32_t rules_text(struct grammar_rules *rules, struct str text)
{
    if (text.size == 0)
        return RULES_EMPTY;
    if (text.size > GRAMMAR_LITERAL_BYTES_CAP - rules->n_bytes) {
        rules->overflowed = true;
        return RULES_NOTHING;
    }
    if (rules->n_bytes + text.size > rules->bytes_room) {
        rules->bytes_room = 2 * (rules->n_bytes + text.size);
        rules->bytes = xrealloc(rules->bytes, rules->bytes_room);
    }
    memcpy(rules->bytes + rules->n_bytes, text.data, text.size);
    const struct rules_node node = { .kind = RULES_KIND_TEXT,
                                     .first = (uint32_t)rules->n_bytes,
                                     .count = (uint32_t)text.size };
    rules->n_bytes += text.size;
    return add_node(rules, node);
}

static int compare_ranges(const void *a, const void *b)
{
    const struct code_range *left = a, *right = b;
    return left->first < right->first ? -1 : left->first > right->first;
}

size_t code_ranges_normalise(struct code_range *ranges, size_t n_ranges)
{
    size_t n = 0;
    qsort(ranges, n_ranges, sizeof *ranges, compare_ranges);
    for (size_t i = 0; i < n_ranges; i++) {
        const struct code_range range = ranges[i];
        if (range.first > range.last)
            continue;
        if (n > 0 && range.first <= ranges[n - 1].last + 1) {
            if (range.last > ranges[n - 1].last)
                ranges[n - 1].last = range.last;
        } else {
            ranges[n++] = range;
        }
    }
    return n;
}

size_t code_ranges_invert(const struct code_range *ranges, size_t n_ranges, struct code_range *out)
{
    size_t n = 0;
    uint32_t next = 0;
    for (size_t i = 0; i < n_ranges; i++) {
        if (ranges[i].first > next)
            out[n++] = (struct code_range){ next, ranges[i].first - 1 };
        next = ranges[i].last + 1;
    }
    if (next <= GRAMMAR_CODE_POINT_CAP)
        out[n++] = (struct code_range){ next, GRAMMAR_CODE_POINT_CAP };
    return n;
}

size_t code_ranges_intersect(const struct code_range *a, size_t n_a, const struct code_range *b,
                             size_t n_b, struct code_range *out)
{
    size_t n = 0;
    for (size_t i = 0, j = 0; i < n_a && j < n_b;) {
        const uint32_t first = a[i].first > b[j].first ? a[i].first : b[j].first;
        const uint32_t last = a[i].last < b[j].last ? a[i].last : b[j].last;
        if (first <= last)
            out[n++] = (struct code_range){ first, last };
        if (a[i].last < b[j].last)
            i++;
        else
            j++;
    }
    return n;
}

uint32_t rules_class(struct grammar_rules *rules, const struct code_range *ranges, size_t n_ranges)
{
    static const struct code_range characters[] = { { 0, 0xd7ff },
                                                    { 0xe000, GRAMMAR_CODE_POINT_CAP } };
    void *items = rules->ranges;
    if (n_ranges > GRAMMAR_RANGES_CAP ||
        !make_room(rules, &items, sizeof *ranges, rules->n_ranges, &rules->ranges_room,
                   n_ranges + 2, GRAMMAR_RANGES_CAP)) {
        rules->overflowed = true;
        return RULES_NOTHING;
    }
    rules->ranges = items;
    struct code_range *sorted = xcalloc(n_ranges + 1, sizeof *sorted);
    memcpy(sorted, ranges, n_ranges * sizeof *ranges);
    const size_t n_sorted = code_ranges_normalise(sorted, n_ranges);
    const size_t n =
        code_ranges_intersect(sorted, n_sorted, characters, 2, rules->ranges + rules->n_ranges);
    free(sorted);
    if (n == 0)
        return RULES_NOTHING;
    const struct rules_node node = { .kind = RULES_KIND_CLASS,
                                     .first = rules->n_ranges,
                                     .count = (uint32_t)n };
    rules->n_ranges += (uint32_t)n;
    return add_node(rules, node);
}

static uint32_t add_parent(struct grammar_rules *rules, enum rules_kind kind, const uint32_t *parts,
                           size_t n_parts, uint32_t left_out)
{
    size_t n = 0;
    uint32_t only = left_out;
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i] != left_out) {
            only = parts[i];
            n++;
        }
    }
    if (n <= 1)
        return only;
    void *items = rules->children;
    if (!make_room(rules, &items, sizeof *parts, rules->n_children, &rules->children_room, n,
                   GRAMMAR_CHILDREN_CAP))
        return RULES_NOTHING;
    rules->children = items;
    const struct rules_node node = { .kind = kind,
                                     .first = rules->n_children,
                                     .count = (uint32_t)n };
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i] != left_out)
            rules->children[rules->n_children++] = parts[i];
    }
    return add_node(rules, node);
}

uint32_t rules_sequence(struct grammar_rules *rules, const uint32_t *parts, size_t n_parts)
{
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i] == RULES_NOTHING)
            return RULES_NOTHING;
    }
    return add_parent(rules, RULES_KIND_SEQUENCE, parts, n_parts, RULES_EMPTY);
}

uint32_t rules_choice(struct grammar_rules *rules, const uint32_t *parts, size_t n_parts)
{
    return add_parent(rules, RULES_KIND_CHOICE, parts, n_parts, RULES_NOTHING);
}

uint32_t rules_repeat(struct grammar_rules *rules, uint32_t child, uint32_t min, uint32_t max)
{
    if (min > max || (child == RULES_NOTHING && min > 0))
        return RULES_NOTHING;
    if (max == 0 || child == RULES_NOTHING || child == RULES_EMPTY)
        return RULES_EMPTY;
    if (min == 1 && max == 1)
        return child;
    return add_node(rules, (struct rules_node){
                               .kind = RULES_KIND_REPEAT, .first = child, .min = min, .max = max });
}

uint32_t rules_call(struct grammar_rules *rules, uint32_t rule)
{
    if (rule >= rules->n_rules)
        return RULES_NOTHING; // of a declaration past the ceiling
    return add_node(rules, (struct rules_node){ .kind = RULES_KIND_CALL, .first = rule });
}

uint32_t rules_declare(struct grammar_rules *rules, struct str name)
{
    void *items = rules->rules;
    const struct str copy = arena_str(&rules->names, name);
    if (!make_room(rules, &items, sizeof *rules->rules, rules->n_rules, &rules->rules_room, 1,
                   GRAMMAR_RULES_CAP) ||
        copy.data == NULL) {
        rules->overflowed = true;
        return GRAMMAR_NO_RULE;
    }
    rules->rules = items;
    rules->rules[rules->n_rules] = (struct grammar_rule){ .name = copy };
    return rules->n_rules++;
}

void rules_define(struct grammar_rules *rules, uint32_t rule, uint32_t body)
{
    if (rule >= rules->n_rules)
        return;
    rules->rules[rule].body = body;
    rules->rules[rule].is_defined = true;
}

static bool has_character(const struct code_range *characters, size_t n_characters, uint32_t point)
{
    size_t low = 0, high = n_characters;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (characters[middle].last < point)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n_characters && characters[low].first <= point;
}

static bool text_is_written(const struct grammar_rules *rules, const struct rules_node *node,
                            const struct code_range *characters, size_t n_characters)
{
    struct str rest = { rules->bytes + node->first, node->count };
    while (rest.size > 0) {
        uint32_t point;
        const size_t used = utf8_decode(rest, &point);
        if (used == 0 || !has_character(characters, n_characters, point))
            return false;
        rest = str_slice(rest, used, rest.size);
    }
    return true;
}

void grammar_rules_restrict(struct grammar_rules *rules, const struct code_range *characters,
                            size_t n_characters)
{
    const uint32_t n_nodes = rules->n_nodes;
    for (uint32_t i = 0; i < n_nodes; i++) {
        struct rules_node *node = &rules->nodes[i];
        if (node->kind == RULES_KIND_TEXT &&
            !text_is_written(rules, node, characters, n_characters))
            *node = (struct rules_node){ .kind = RULES_KIND_NOTHING };
        if (node->kind != RULES_KIND_CLASS)
            continue;
        struct code_range *both = xcalloc(node->count + n_characters, sizeof *both);
        const size_t n = code_ranges_intersect(rules->ranges + node->first, node->count, characters,
                                               n_characters, both);
        const uint32_t class = rules_class(rules, both, n);
        free(both);
        rules->nodes[i] = rules->nodes[class];
    }
}

void rules_list_add(struct rules_list *list, uint32_t part)
{
    if (list->n_parts == list->room) {
        list->room = list->room ? 2 * list->room : 16;
        list->parts = xreallocarray(list->parts, list->room, sizeof *list->parts);
    }
    list->parts[list->n_parts++] = part;
}

void rules_list_release(struct rules_list *list)
{
    free(list->parts);
    *list = (struct rules_list){ 0 };
}

/* ---- checks ---- */

static uint32_t add_saturated(uint32_t a, uint32_t b)
{
    return a > UINT32_MAX - 1 - b ? UINT32_MAX - 1 : a + b;
}

uint32_t rules_min_bytes(const struct grammar_rules *rules, const struct rules_facts *facts,
                         uint32_t node)
{
    const struct rules_node *n = &rules->nodes[node];
    uint32_t least, sum = 0;
    switch (n->kind) {
    case RULES_KIND_NOTHING:
        return UINT32_MAX;
    case RULES_KIND_EMPTY:
        return 0;
    case RULES_KIND_TEXT:
        return n->count;
    case RULES_KIND_CLASS: {
        char bytes[4];
        return (uint32_t)utf8_write(rules->ranges[n->first].first, bytes);
    }
    case RULES_KIND_SEQUENCE:
        for (uint32_t i = 0; i < n->count; i++) {
            least = rules_min_bytes(rules, facts, rules->children[n->first + i]);
            if (least == UINT32_MAX)
                return UINT32_MAX;
            sum = add_saturated(sum, least);
        }
        return sum;
    case RULES_KIND_CHOICE:
        sum = UINT32_MAX;
        for (uint32_t i = 0; i < n->count; i++) {
            least = rules_min_bytes(rules, facts, rules->children[n->first + i]);
            sum = least < sum ? least : sum;
        }
        return sum;
    case RULES_KIND_REPEAT:
        if (n->min == 0)
            return 0;
        least = rules_min_bytes(rules, facts, n->first);
        if (least == UINT32_MAX)
            return UINT32_MAX;
        return (uint64_t)least * n->min >= UINT32_MAX ? UINT32_MAX - 1 : least * n->min;
    case RULES_KIND_CALL:
        return facts->min_bytes[n->first];
    }
    return UINT32_MAX;
}

static void find_min_bytes(const struct grammar_rules *rules, struct rules_facts *facts)
{
    for (uint32_t i = 0; i < rules->n_rules; i++)
        facts->min_bytes[i] = UINT32_MAX;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = rules->n_rules; i-- > 0;) { // callees are mostly declared later
            const uint32_t least = rules_min_bytes(rules, facts, rules->rules[i].body);
            /* Only whether it is finite must settle; a later, shorter one is of no interest once
             * a rule can end, and stopping there bounds the rounds by the number of rules. */
            if (facts->min_bytes[i] == UINT32_MAX && least != UINT32_MAX) {
                facts->min_bytes[i] = least;
                changed = true;
            } else if (least == 0 && facts->min_bytes[i] != 0) {
                facts->min_bytes[i] = 0;
                changed = true;
            }
        }
    }
}

enum visit { VISIT_NONE, VISIT_OPEN, VISIT_DONE };

struct left_walk {
    const struct grammar_rules *rules;
    const struct rules_facts *facts;
    uint8_t *visits; // [n_rules] of enum visit
    uint32_t depth;
    uint32_t culprit;
};

#define LEFT_DEPTH_CAP 5000u // rules that begin with each other, one in the other

static bool walk_left_rule(struct left_walk *walk, uint32_t rule);

/* Visits the rules that an expression may begin with; false: one of them is being visited. */
static bool walk_left(struct left_walk *walk, uint32_t node)
{
    const struct rules_node *n = &walk->rules->nodes[node];
    const uint32_t *children = walk->rules->children;
    switch (n->kind) {
    case RULES_KIND_SEQUENCE:
        for (uint32_t i = 0; i < n->count; i++) {
            if (!walk_left(walk, children[n->first + i]))
                return false;
            if (rules_min_bytes(walk->rules, walk->facts, children[n->first + i]) != 0)
                return true;
        }
        return true;
    case RULES_KIND_CHOICE:
        for (uint32_t i = 0; i < n->count; i++) {
            if (!walk_left(walk, children[n->first + i]))
                return false;
        }
        return true;
    case RULES_KIND_REPEAT:
        return walk_left(walk, n->first);
    case RULES_KIND_CALL:
        return walk_left_rule(walk, n->first);
    default:
        return true;
    }
}

static bool walk_left_rule(struct left_walk *walk, uint32_t rule)
{
    if (walk->visits[rule] == VISIT_DONE)
        return true;
    if (walk->visits[rule] == VISIT_OPEN || walk->depth >= LEFT_DEPTH_CAP) {
        walk->culprit = rule;
        return false;
    }
    walk->visits[rule] = VISIT_OPEN;
    walk->depth++;
    const bool good = walk_left(walk, walk->rules->rules[rule].body);
    walk->depth--;
    walk->visits[rule] = VISIT_DONE;
    return good;
}

static bool check_left(const struct grammar_rules *rules, const struct rules_facts *facts,
                       struct err *err)
{
    struct left_walk walk = { .rules = rules, .facts = facts };
    bool good = true;
    walk.visits = xcalloc(rules->n_rules + 1, 1);
    for (uint32_t i = 0; i < rules->n_rules && good; i++)
        good = walk_left_rule(&walk, i);
    free(walk.visits);
    if (good)
        return true;
    const struct str name = rules->rules[walk.culprit].name;
    return err_set(err, ERR_ARGUMENT,
                   "rule \"%.*s\" begins with itself: write left recursion as a repetition",
                   name.size > 64 ? 64 : (int)name.size, name.data);
}

bool grammar_rules_check(const struct grammar_rules *rules, struct rules_facts *facts,
                         struct err *err)
{
    *facts = (struct rules_facts){ 0 };
    if (rules->overflowed)
        return err_set(err, ERR_UNSUPPORTED,
                       "the grammar is too large: at most %u rules and %u expressions",
                       GRAMMAR_RULES_CAP, GRAMMAR_NODES_CAP);
    for (uint32_t i = 0; i < rules->n_rules; i++) {
        const struct str name = rules->rules[i].name;
        if (!rules->rules[i].is_defined)
            return err_set(err, ERR_ARGUMENT, "rule \"%.*s\" is used and not defined",
                           name.size > 64 ? 64 : (int)name.size, name.data);
    }
    must(rules->root < rules->n_rules);
    facts->min_bytes = xcalloc(rules->n_rules, sizeof *facts->min_bytes);
    find_min_bytes(rules, facts);
    if (facts->min_bytes[rules->root] == UINT32_MAX) {
        rules_facts_release(facts);
        return err_set(err, ERR_ARGUMENT, "there is no text that satisfies it");
    }
    if (!check_left(rules, facts, err)) {
        rules_facts_release(facts);
        return false;
    }
    return true;
}

void rules_facts_release(struct rules_facts *facts)
{
    free(facts->min_bytes);
    *facts = (struct rules_facts){ 0 };
}
