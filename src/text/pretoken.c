/* The steps run depth first: a piece of step k goes through all later steps before the next piece
 * of step k is looked for, so that no list of pieces is ever kept.
 *
 * A split is three things in a row: a matcher says where the pattern is (and so which spans lie
 * between), the behaviour joins or drops spans, and what is left goes down a step. Nearly all text
 * takes the short way: a scanner whose matches cover the text, each of them a piece. */
#include "text/pretoken.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/memory.h"
#include "text/pretoken_scan.h"
#include "text/regex.h"
#include "text/tokenizer.h"
#include "text/unicode_table.h"

struct pretoken_step {
    struct pretoken_rule rule;
    const struct pretoken_scan *scan; // PRETOKEN_SPLIT_REGEX: one of these two
    struct regex *regex;
};

struct pretoken {
    size_t n_steps;
    struct pretoken_step steps[PRETOKEN_RULES_CAP];
};

struct pretoken_run {
    const struct pretoken *pretoken;
    struct buf rewritten[PRETOKEN_RULES_CAP]; // the text of the steps that rewrite
    struct regex_state *regex_states[PRETOKEN_RULES_CAP];
    pretoken_sink *sink;
    void *context;
};

struct pretoken *pretoken_new(const struct pretoken_rule *rules, size_t n_rules, struct err *err)
{
    must(n_rules <= PRETOKEN_RULES_CAP);
    struct pretoken *pretoken = xcalloc(1, sizeof *pretoken);
    for (size_t i = 0; i < n_rules; i++) {
        struct pretoken_step *step = &pretoken->steps[pretoken->n_steps++];
        step->rule = rules[i];
        if (rules[i].kind != PRETOKEN_SPLIT_REGEX)
            continue;
        step->scan = pretoken_scan_find(rules[i].pattern);
        if (!step->scan)
            step->regex = regex_new(rules[i].pattern, err);
        if (!step->scan && !step->regex) {
            pretoken_free(pretoken);
            return NULL;
        }
    }
    return pretoken;
}

void pretoken_free(struct pretoken *pretoken)
{
    if (!pretoken)
        return;
    for (size_t i = 0; i < pretoken->n_steps; i++)
        regex_free(pretoken->steps[i].regex);
    free(pretoken);
}

struct pretoken_run *pretoken_run_new(const struct pretoken *pretoken)
{
    struct pretoken_run *run = xcalloc(1, sizeof *run);
    run->pretoken = pretoken;
    for (size_t i = 0; i < pretoken->n_steps; i++) {
        buf_init(&run->rewritten[i], 4 * TOKENIZER_TEXT_BYTES_CAP);
        if (pretoken->steps[i].regex)
            run->regex_states[i] = regex_state_new();
    }
    return run;
}

void pretoken_run_free(struct pretoken_run *run)
{
    if (!run)
        return;
    for (size_t i = 0; i < PRETOKEN_RULES_CAP; i++) {
        buf_release(&run->rewritten[i]);
        regex_state_free(run->regex_states[i]);
    }
    free(run);
}

/* One step at work on one text. */
struct splitter {
    struct pretoken_run *run;
    size_t level;
    struct str text;
    bool at_start;
    size_t first, last; // a span that waits for what comes next; first == last: none
    bool is_match;      // of that span
};

static bool descend(struct pretoken_run *run, size_t level, struct str text, bool at_start,
                    struct err *err);

static bool give(struct splitter *splitter, size_t first, size_t last, struct err *err)
{
    return descend(splitter->run, splitter->level + 1, str_slice(splitter->text, first, last),
                   splitter->at_start && first == 0, err);
}

static bool give_waiting(struct splitter *splitter, struct err *err)
{
    const size_t first = splitter->first;
    splitter->first = splitter->last;
    return first == splitter->last || give(splitter, first, splitter->last, err);
}

/* The next span of the text: joined with the waiting one, dropped, or the new waiting one. */
static bool add_span(struct splitter *splitter, size_t first, size_t last, bool is_match,
                     struct err *err)
{
    const struct pretoken_rule *rule = &splitter->run->pretoken->steps[splitter->level].rule;
    const bool waiting = splitter->first < splitter->last;
    is_match = is_match != rule->invert;
    if (first == last && rule->behaviour != PRETOKEN_ISOLATED)
        return true;
    bool join = false;
    switch (rule->behaviour) {
    case PRETOKEN_REMOVED:
        return is_match || give(splitter, first, last, err);
    case PRETOKEN_ISOLATED:
    case PRETOKEN_BEHAVIOUR_END:
        return first == last || give(splitter, first, last, err);
    case PRETOKEN_CONTIGUOUS:
        join = waiting && splitter->is_match == is_match;
        break;
    case PRETOKEN_MERGED_WITH_PREVIOUS:
        join = waiting && is_match && !splitter->is_match;
        break;
    case PRETOKEN_MERGED_WITH_NEXT:
        join = waiting && !is_match && splitter->is_match;
        break;
    }
    if (!join) {
        if (!give_waiting(splitter, err))
            return false;
        splitter->first = first;
    }
    splitter->last = last;
    splitter->is_match = is_match;
    return true;
}

/* The match of the step's pattern at or after `from`. */
static enum regex_result find_match(const struct splitter *splitter, size_t from, size_t *first,
                                    size_t *last, struct err *err)
{
    const struct pretoken_step *step = &splitter->run->pretoken->steps[splitter->level];
    const struct str text = splitter->text;
    unsigned wanted = 0;
    switch (step->rule.kind) {
    case PRETOKEN_SPLIT_REGEX:
        if (step->regex)
            return regex_find(step->regex, splitter->run->regex_states[splitter->level], text, from,
                              first, last, err);
        if (from == text.size)
            return REGEX_NONE;
        *first = from;
        *last = pretoken_scan_next(step->scan, text, from);
        return REGEX_FOUND;
    case PRETOKEN_SPLIT_TEXT: {
        const size_t at = str_find(str_slice(text, from, text.size), step->rule.pattern);
        if (at == SIZE_MAX)
            return REGEX_NONE;
        *first = from + at;
        *last = *first + step->rule.pattern.size;
        return REGEX_FOUND;
    }
    case PRETOKEN_NUMBERS:
        wanted = UNICODE_NUMBER;
        break;
    case PRETOKEN_PUNCTUATION:
        wanted = UNICODE_PUNCTUATION;
        break;
    default:
        wanted = UNICODE_SPACE;
    }
    unsigned size;
    for (size_t at = from; at < text.size; at += size) {
        const uint32_t code = unicode_next(text.data + at, &size);
        const unsigned properties = unicode_properties(code);
        const bool ascii_sign = code < 0x80 && (properties & UNICODE_SYMBOL);
        if ((properties & wanted) || (wanted == UNICODE_PUNCTUATION && ascii_sign)) {
            *first = at;
            *last = at + size;
            return REGEX_FOUND;
        }
    }
    return REGEX_NONE;
}

static bool split(struct splitter *splitter, struct err *err)
{
    const struct str text = splitter->text;
    size_t done = 0, from = 0, first, last;
    bool matched = false; // `done` is the end of a match
    while (from <= text.size) {
        const enum regex_result result = find_match(splitter, from, &first, &last, err);
        if (result == REGEX_FAILED)
            return false;
        if (result == REGEX_NONE)
            break;
        unsigned step = 0; // behind an empty match the search goes on a character later
        if (first == last && last < text.size)
            unicode_next(text.data + last, &step);
        else if (first == last)
            step = 1;
        from = last + step;
        if (first == last && matched && first == done)
            continue; // an empty match that touches the one before does not count
        if (done < first && !add_span(splitter, done, first, false, err))
            return false;
        if (!add_span(splitter, first, last, true, err))
            return false;
        done = last;
        matched = true;
    }
    if (done < text.size && !add_span(splitter, done, text.size, false, err))
        return false;
    return give_waiting(splitter, err);
}

/* Blanks to marks, and a mark in front where the rule wants one. */
static bool metaspace(struct splitter *splitter, struct err *err)
{
    const struct pretoken_rule *rule = &splitter->run->pretoken->steps[splitter->level].rule;
    struct buf *out = &splitter->run->rewritten[splitter->level];
    struct str rest = splitter->text;
    const bool marked = rest.data[0] == ' ' || str_starts(rest, rule->pattern);
    buf_clear(out);
    if (!marked && (rule->prefix == PRETOKEN_PREFIX_ALWAYS ||
                    (rule->prefix == PRETOKEN_PREFIX_FIRST && splitter->at_start)))
        buf_add_str(out, rule->pattern);
    for (;;) {
        const size_t blank = str_find_char(rest, ' ');
        if (blank == SIZE_MAX)
            break;
        buf_add(out, rest.data, blank);
        buf_add_str(out, rule->pattern);
        rest = str_slice(rest, blank + 1, rest.size);
    }
    buf_add_str(out, rest);
    if (!buf_ok(out))
        return err_set(err, ERR_ARGUMENT, "a text that is too long with its blanks marked");
    return descend(splitter->run, splitter->level + 1, buf_view(out), splitter->at_start, err);
}

static bool blank_prefix(struct splitter *splitter, struct err *err)
{
    struct buf *out = &splitter->run->rewritten[splitter->level];
    if (splitter->text.data[0] == ' ')
        return descend(splitter->run, splitter->level + 1, splitter->text, splitter->at_start, err);
    buf_clear(out);
    buf_add_char(out, ' ');
    buf_add_str(out, splitter->text);
    return descend(splitter->run, splitter->level + 1, buf_view(out), splitter->at_start, err);
}

/* Text through the steps from `level` on. */
static bool descend(struct pretoken_run *run, size_t level, struct str text, bool at_start,
                    struct err *err)
{
    if (level == run->pretoken->n_steps)
        return run->sink(run->context, text, err);
    struct splitter splitter = { .run = run, .level = level, .text = text, .at_start = at_start };
    switch (run->pretoken->steps[level].rule.kind) {
    case PRETOKEN_METASPACE:
        return metaspace(&splitter, err);
    case PRETOKEN_BLANK_PREFIX:
        return blank_prefix(&splitter, err);
    default:
        return split(&splitter, err);
    }
}

bool pretoken_split(struct pretoken_run *run, struct str text, bool at_start, pretoken_sink *sink,
                    void *context, struct err *err)
{
    run->sink = sink;
    run->context = context;
    return text.size == 0 || descend(run, 0, text, at_start, err);
}
