/* Pre-tokenizers: how text is cut into the pieces that merges never cross. Steps in order; each
 * cuts (and some rewrite) what the step before gave.
 *
 * A pretoken is immutable: any thread. A run belongs to one encoding. */
#ifndef CASCADIA_TEXT_PRETOKEN_H
#define CASCADIA_TEXT_PRETOKEN_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

enum pretoken_kind {           // the numbers are those of tokenizer.bin
    PRETOKEN_SPLIT_TEXT = 1,   // at each `pattern`
    PRETOKEN_SPLIT_REGEX = 2,  // at each match of `pattern`
    PRETOKEN_NUMBERS = 3,      // at each numeric character
    PRETOKEN_PUNCTUATION = 4,  // at each punctuation character
    PRETOKEN_WHITE_SPACE = 5,  // at each white-space character
    PRETOKEN_METASPACE = 6,    // blanks become `pattern`; see prefix
    PRETOKEN_BLANK_PREFIX = 7, // a blank in front of what does not begin with one
    PRETOKEN_KIND_END,
};

enum pretoken_behaviour { // what becomes of the places where a split matches
    PRETOKEN_ISOLATED = 0,
    PRETOKEN_REMOVED = 1,
    PRETOKEN_MERGED_WITH_PREVIOUS = 2,
    PRETOKEN_MERGED_WITH_NEXT = 3,
    PRETOKEN_CONTIGUOUS = 4, // isolated, neighbours in one
    PRETOKEN_BEHAVIOUR_END,
};

enum pretoken_prefix { // where PRETOKEN_METASPACE puts its mark in front of a text
    PRETOKEN_PREFIX_NEVER = 0,
    PRETOKEN_PREFIX_FIRST = 1, // only where the whole text begins
    PRETOKEN_PREFIX_ALWAYS = 2,
    PRETOKEN_PREFIX_END,
};

struct pretoken_rule {
    enum pretoken_kind kind;
    enum pretoken_behaviour behaviour;
    bool invert; // the matches are what is between
    enum pretoken_prefix prefix;
    struct str pattern;
};

#define PRETOKEN_RULES_CAP 16

struct pretoken;
struct pretoken_run;

/* The rules' texts are borrowed for its life. ERR_UNSUPPORTED for a regex that cannot be done. */
struct pretoken *pretoken_new(const struct pretoken_rule *rules, size_t n_rules, struct err *err);
void pretoken_free(struct pretoken *pretoken); // NULL is fine

/* Takes the pieces in order. A false return (with `err` set) ends the splitting. */
typedef bool pretoken_sink(void *context, struct str piece, struct err *err);

struct pretoken_run *pretoken_run_new(const struct pretoken *pretoken);
void pretoken_run_free(struct pretoken_run *run); // NULL is fine

/* Splits valid UTF-8; `at_start`: the text is the beginning of all text. No piece is empty. */
bool pretoken_split(struct pretoken_run *run, struct str text, bool at_start, pretoken_sink *sink,
                    void *context, struct err *err);

#endif
