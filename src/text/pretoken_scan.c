/* The expressions are relatives: contractions, words with something in front, numbers, punctuation
 * with something behind, line ends, blanks. A scanner is a row that says how each is done; one
 * function reads the row. An alternative is tried in the order of the expression, and what its
 * backtracking would find is computed directly:
 *
 *   \s*[\r\n]+       ends behind the last line end of the run of blanks
 *   \s+(?!\S)        the run of blanks but its last, unless the text ends with it
 *   U*L+, U+L*       (cased words) see cased_word
 */
#include "text/pretoken_scan.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "text/unicode_table.h"

enum contractions {
    CONTRACTIONS_NONE,
    CONTRACTIONS_LOWER, // 's|'t|'re|'ve|'m|'ll|'d as the first alternative
    CONTRACTIONS_ANY,   // (?i:...), the same in any case
    CONTRACTIONS_AFTER, // (?i:...)? behind a cased word
};

enum words {
    WORDS_SPACED, // " ?\p{L}+"
    WORDS_LED,    // "[^\r\n\p{L}\p{N}]?\p{L}+"
    WORDS_MARKED, // "[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"
    WORDS_CASED,  // capitals, then small letters, led by the same; see cased_word
};

struct pretoken_scan {
    const char *name;
    const char *pattern;
    enum contractions contractions;
    enum words words;
    unsigned digits_cap; // of a number; 0: " ?\p{N}+"
    const char *tail;    // what may follow punctuation, "" for nothing
    bool lines;          // "\s*[\r\n]+" is an alternative
};

#define CONTRACTION_LIST "'s|'t|'re|'ve|'m|'ll|'d"
#define LED "[^\\r\\n\\p{L}\\p{N}]?"
#define CAPITALS "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALL "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BLANKS "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define OTHER " ?[^\\s\\p{L}\\p{N}]+"
#define CASED(after) LED CAPITALS "*" SMALL "+" after "|" LED CAPITALS "+" SMALL "*" after

static const struct pretoken_scan scans[] = {
    { "gpt2", CONTRACTION_LIST "| ?\\p{L}+| ?\\p{N}+|" OTHER "|\\s+(?!\\S)|\\s+",
      CONTRACTIONS_LOWER, WORDS_SPACED, 0, "", false },
    { "llama3", "(?i:" CONTRACTION_LIST ")|" LED "\\p{L}+|\\p{N}{1,3}|" OTHER "[\\r\\n]*|" BLANKS,
      CONTRACTIONS_ANY, WORDS_LED, 3, "\r\n", true },
    { "qwen2", "(?i:" CONTRACTION_LIST ")|" LED "\\p{L}+|\\p{N}|" OTHER "[\\r\\n]*|" BLANKS,
      CONTRACTIONS_ANY, WORDS_LED, 1, "\r\n", true },
    { "qwen35",
      "(?i:" CONTRACTION_LIST ")|" LED
      "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" BLANKS,
      CONTRACTIONS_ANY, WORDS_MARKED, 1, "\r\n", true },
    { "o200k", CASED("(?i:" CONTRACTION_LIST ")?") "|\\p{N}{1,3}|" OTHER "[\\r\\n/]*|" BLANKS,
      CONTRACTIONS_AFTER, WORDS_CASED, 3, "\r\n/", true },
    { "tekken", CASED("") "|\\p{N}|" OTHER "[\\r\\n/]*|" BLANKS, CONTRACTIONS_NONE, WORDS_CASED, 1,
      "\r\n/", true },
};

const struct pretoken_scan *pretoken_scan_at(size_t index)
{
    return index < sizeof scans / sizeof scans[0] ? &scans[index] : NULL;
}

const char *pretoken_scan_name(const struct pretoken_scan *scan)
{
    return scan->name;
}

struct str pretoken_scan_pattern(const struct pretoken_scan *scan)
{
    return str_from(scan->pattern);
}

const struct pretoken_scan *pretoken_scan_find(struct str pattern)
{
    for (size_t i = 0; pretoken_scan_at(i); i++) {
        if (str_is(pattern, scans[i].pattern))
            return &scans[i];
    }
    return NULL;
}

const struct pretoken_scan *pretoken_scan_named(const char *name)
{
    for (size_t i = 0; pretoken_scan_at(i); i++) {
        if (strcmp(name, scans[i].name) == 0)
            return &scans[i];
    }
    return NULL;
}

/* The properties of the character at `at` and its size; 0 and 0 at the end. */
static unsigned look(struct str text, size_t at, unsigned *size)
{
    if (at >= text.size) {
        *size = 0;
        return 0;
    }
    return unicode_properties(unicode_next(text.data + at, size));
}

/* Behind the run of characters that have one of `wanted`. */
static size_t run_of(struct str text, size_t at, unsigned wanted)
{
    unsigned size;
    while (look(text, at, &size) & wanted)
        at += size;
    return at;
}

static bool is_line_end(struct str text, size_t at)
{
    return at < text.size && (text.data[at] == '\r' || text.data[at] == '\n');
}

/* Behind a contraction that begins at `at`, or `at` itself. */
static size_t contraction(struct str text, size_t at, bool any_case)
{
    static const char *const endings[] = { "s", "t", "re", "ve", "m", "ll", "d" };
    if (at + 1 >= text.size || text.data[at] != '\'')
        return at;
    const struct str rest = str_slice(text, at + 1, text.size);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const struct str ending = str_from(endings[i]);
        if (str_starts(rest, ending))
            return at + 1 + ending.size;
        if (any_case && rest.size >= ending.size &&
            str_equal_nocase(str_slice(rest, 0, ending.size), ending))
            return at + 1 + ending.size;
    }
    if (any_case && str_starts(rest, STR("\xc5\xbf"))) // U+017F is an "s" in any case
        return at + 3;
    return at;
}

/* CAPITALS*SMALL+ at `at`, or `at` itself. Letters without case and marks are in both sets: the
 * capitals take all they can and give back until a small one is there. When a purely small letter
 * follows them nothing is given back; else the match ends behind the last of the run that is in
 * both sets. */
static size_t small_word(struct str text, size_t at)
{
    const unsigned both = UNICODE_CASELESS | UNICODE_MARK;
    size_t last_both = at, end = at;
    unsigned size, properties;
    while ((properties = look(text, end, &size)) & (UNICODE_UPPER | both)) {
        end += size;
        if (properties & both)
            last_both = end;
    }
    if (properties & UNICODE_LOWER)
        return run_of(text, end, UNICODE_LOWER | both);
    return last_both;
}

/* CAPITALS+SMALL* at `at`, or `at` itself. */
static size_t capital_word(struct str text, size_t at)
{
    const unsigned both = UNICODE_CASELESS | UNICODE_MARK;
    const size_t end = run_of(text, at, UNICODE_UPPER | both);
    return end == at ? at : run_of(text, end, UNICODE_LOWER | both);
}

/* The two alternatives of CASED, each tried with the character in front and then without; only a
 * mark can be a word without being led, and then the first alternative takes it. */
static size_t cased_word(struct str text, size_t at, size_t led)
{
    size_t end = small_word(text, led);
    if (end > led)
        return end;
    if (led > at && (end = small_word(text, at)) > at)
        return end;
    end = capital_word(text, led);
    return end > led ? end : at;
}

/* The word alternatives at `at`; `at` itself when there is no word. */
static size_t word(const struct pretoken_scan *scan, struct str text, size_t at)
{
    unsigned size;
    const unsigned properties = look(text, at, &size);
    const bool leads =
        scan->words == WORDS_SPACED
            ? text.data[at] == ' '
            : !(properties & (UNICODE_LETTER | UNICODE_NUMBER)) && !is_line_end(text, at);
    const size_t led = leads ? at + size : at;
    if (scan->words == WORDS_CASED) {
        const size_t end = cased_word(text, at, led);
        return end > at && scan->contractions == CONTRACTIONS_AFTER ? contraction(text, end, true)
                                                                    : end;
    }
    const unsigned wanted =
        scan->words == WORDS_MARKED ? UNICODE_LETTER | UNICODE_MARK : UNICODE_LETTER;
    const size_t end = run_of(text, led, wanted);
    return end > led ? end : run_of(text, at, wanted);
}

static size_t number(const struct pretoken_scan *scan, struct str text, size_t at)
{
    if (scan->digits_cap == 0) {
        const size_t first = text.data[at] == ' ' ? at + 1 : at;
        const size_t end = run_of(text, first, UNICODE_NUMBER);
        return end > first ? end : at;
    }
    unsigned size;
    for (unsigned n = 0; n < scan->digits_cap && look(text, at, &size) & UNICODE_NUMBER; n++)
        at += size;
    return at;
}

static size_t punctuation(const struct pretoken_scan *scan, struct str text, size_t at)
{
    unsigned others = UNICODE_SPACE | UNICODE_LETTER | UNICODE_NUMBER;
    if (scan->words == WORDS_MARKED)
        others |= UNICODE_MARK;
    const size_t first = text.data[at] == ' ' ? at + 1 : at;
    size_t end = first;
    unsigned size;
    while (!(look(text, end, &size) & others) && size > 0)
        end += size;
    if (end == first)
        return at;
    while (end < text.size && text.data[end] && strchr(scan->tail, text.data[end]))
        end++;
    return end;
}

static size_t blanks(const struct pretoken_scan *scan, struct str text, size_t at)
{
    size_t end = at, last = at, behind_line = at; // `last`: where the last blank begins
    unsigned size;
    while (look(text, end, &size) & UNICODE_SPACE) {
        last = end;
        end += size;
        if (is_line_end(text, last))
            behind_line = end;
    }
    if (scan->lines && behind_line > at)
        return behind_line;
    return end == text.size || last == at ? end : last;
}

size_t pretoken_scan_next(const struct pretoken_scan *scan, struct str text, size_t at)
{
    size_t end = at;
    if (scan->contractions == CONTRACTIONS_LOWER || scan->contractions == CONTRACTIONS_ANY)
        end = contraction(text, at, scan->contractions == CONTRACTIONS_ANY);
    if (end == at)
        end = word(scan, text, at);
    if (end == at)
        end = number(scan, text, at);
    if (end == at)
        end = punctuation(scan, text, at);
    return end > at ? end : blanks(scan, text, at);
}
