/* GBNF, the grammar notation of llama.cpp: rules `name ::= alternatives` of "literals", [classes],
 * `.`, (groups) and names, repeated with * + ? {m} {m,} {m,n} {,n}; # begins a comment. The text is
 * what `root` matches. A line may begin with the `|` of the rule before.
 *
 * Pure: any thread. */
#ifndef CASCADIA_SAMPLE_GBNF_H
#define CASCADIA_SAMPLE_GBNF_H

#include "base/err.h"
#include "sample/grammar_rules.h"

#define GBNF_NESTING_CAP 100u
#define GBNF_REPEAT_CAP 10000u
#define GBNF_NAME_BYTES_CAP 128u
#define GBNF_CLASS_RANGES_CAP 4096u

/* Adds the rules and sets the root. ERR_ARGUMENT with line and column. */
bool gbnf_read(struct str text, struct grammar_rules *rules, struct err *err);

#endif
