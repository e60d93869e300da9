/* The translation walks the pattern once, knowing only what can differ: escapes, classes, groups
 * that begin with "(?", and quantifiers. Everything else means the same to both engines.
 *
 *   \s \S \w \W \d \D    written out as Unicode properties: PCRE2's own also hold U+180E, lack
 *                        marks, and so on
 *   \p{Han}              \p{sc:Han}: PCRE2 means script extensions
 *   [A&&[^B]]            (?:(?!B)A)
 *   ^ $ .                the same in PCRE2's multi-line mode with "\n" as the line end
 *
 * Matching uses the JIT with a stack of its own, since the 32 KiB that it takes from the machine
 * stack make long matches fail. When the JIT gives up (its stack is bounded, too) the interpreter
 * tries once more under PCRE2's limits, and a failure there is an error, not "no match". */
#include "text/regex.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define JIT_STACK_BYTES ((size_t)32 << 10)
#define JIT_STACK_BYTES_CAP ((size_t)64 << 20)
#define MATCH_LIMIT 50000000u
#define DEPTH_LIMIT 1000000u
#define HEAP_KIB_CAP (512u << 10)

struct regex {
    pcre2_code *code;
};

struct regex_state {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* What is left of the pattern, and the translation so far. */
struct translation {
    struct str rest;
    struct buf *out;
    struct str pattern; // for sentences
};

static const char CLASS_SPACE[] = "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}"
                                  "\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
static const char CLASS_WORD[] = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}";
static const char CLASS_DIGIT[] = "\\p{Nd}";

static bool refuse(const struct translation *t, const char *what, struct err *err)
{
    return err_set(err, ERR_UNSUPPORTED, "regular expression \"%.200s\": %s",
                   t->pattern.size ? t->pattern.data : "", what);
}

static char peek(const struct translation *t, size_t ahead)
{
    return ahead < t->rest.size ? t->rest.data[ahead] : '\0';
}

static void skip(struct translation *t, size_t n)
{
    t->rest = str_slice(t->rest, n, t->rest.size);
}

static void copy(struct translation *t, size_t n)
{
    buf_add(t->out, t->rest.data, n);
    skip(t, n);
}

/* \p{...} or \P{...}; inside and outside classes alike. */
static bool property(struct translation *t, struct err *err)
{
    const size_t end = str_find_char(t->rest, '}');
    if (peek(t, 2) != '{' || end == SIZE_MAX)
        return refuse(t, "a property is written \\p{Name}", err);
    const bool caret = peek(t, 3) == '^';
    const struct str name = str_slice(t->rest, caret ? 4 : 3, end);
    const bool negative = (peek(t, 1) == 'P') != caret;
    static const char *const scripts[] = { "Han",    "Hiragana", "Katakana", "Hangul",
                                           "Latin",  "Greek",    "Cyrillic", "Arabic",
                                           "Hebrew", "Thai",     NULL };
    static const char *const categories[] = { "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn",
                                              "Mc", "Me", "N",  "Nd", "Nl", "No", "P",  "Pc",
                                              "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm",
                                              "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", NULL };
    for (size_t i = 0; scripts[i]; i++) {
        if (str_is(name, scripts[i])) {
            buf_printf(t->out, "\\%c{sc:%s}", negative ? 'P' : 'p', scripts[i]);
            skip(t, end + 1);
            return true;
        }
    }
    for (size_t i = 0; categories[i]; i++) {
        if (str_is(name, categories[i])) {
            buf_printf(t->out, "\\%c{%s}", negative ? 'P' : 'p', categories[i]);
            skip(t, end + 1);
            return true;
        }
    }
    return refuse(t, "a property that is not known", err);
}

/* \x{HHHH}, \xHH or \uHHHH: written as \x{...}. */
static bool code_point(struct translation *t, struct err *err)
{
    size_t first = 2, last = peek(t, 1) == 'u' ? 6 : 4;
    if (peek(t, 1) == 'x' && peek(t, 2) == '{') {
        first = 3;
        last = str_find_char(t->rest, '}');
    }
    if (last > t->rest.size || last <= first || last - first > 6)
        return refuse(t, "a bad code point", err);
    const struct str digits = str_slice(t->rest, first, last);
    for (size_t i = 0; i < digits.size; i++) {
        if (!strchr("0123456789abcdefABCDEF", digits.data[i]))
            return refuse(t, "a bad code point", err);
    }
    buf_printf(t->out, "\\x{%.*s}", STR_ARG(digits));
    skip(t, first == 3 ? last + 1 : last);
    return true;
}

/* The set of \s, \w or \d, in any case; NULL for other letters. */
static const char *shorthand(char letter)
{
    switch (letter) {
    case 's':
    case 'S':
        return CLASS_SPACE;
    case 'w':
    case 'W':
        return CLASS_WORD;
    case 'd':
    case 'D':
        return CLASS_DIGIT;
    default:
        return NULL;
    }
}

static bool escape(struct translation *t, bool in_class, struct err *err)
{
    const char letter = peek(t, 1);
    const char *set = shorthand(letter);
    if (set) {
        const bool negative = letter < 'a';
        if (in_class && negative && letter == 'S') {
            /* The complement of White_Space, as ranges. */
            buf_add_text(
                t->out, "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}"
                        "\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}"
                        "\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{d7ff}"
                        "\\x{e000}-\\x{10ffff}");
        } else if (in_class && negative && letter == 'D') {
            buf_add_text(t->out, "\\P{Nd}");
        } else if (in_class && negative) {
            return refuse(t, "\\W in a class", err);
        } else {
            buf_printf(t->out, in_class ? "%s%s" : "[%s%s]", negative ? "^" : "", set);
        }
        skip(t, 2);
        return true;
    }
    if (letter == 'p' || letter == 'P')
        return property(t, err);
    if (letter == 'x' || letter == 'u')
        return code_point(t, err);
    if (letter == '\0')
        return refuse(t, "ends in a backslash", err);
    if (strchr("tnrfeaAzZ", letter) || (letter == 'b' && in_class)) {
        if (in_class && strchr("AzZ", letter))
            return refuse(t, "an anchor in a class", err);
        copy(t, 2);
        return true;
    }
    if ((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
        (letter >= '1' && letter <= '9'))
        return refuse(t, "an escape that means different things to different engines", err);
    copy(t, 2); // an escaped sign, or the first byte of a character, which stands for itself
    return true;
}

/* The inside of a class up to its "]", which is consumed; no nested classes. */
static bool class_items(struct translation *t, struct err *err)
{
    if (peek(t, 0) == ']') {
        buf_add_text(t->out, "\\]");
        skip(t, 1);
    }
    while (t->rest.size > 0) {
        const char c = peek(t, 0);
        if (c == ']') {
            skip(t, 1);
            return true;
        }
        if (c == '&' && peek(t, 1) == '&')
            return refuse(t, "an intersection of this form", err);
        if (c == '[')
            return refuse(t, "a class in a class", err);
        if (c == '\\') {
            if (!escape(t, true, err))
                return false;
        } else {
            copy(t, 1);
        }
    }
    return refuse(t, "a class that does not end", err);
}

/* Where "&&[^" begins in the class that starts here; SIZE_MAX when it has none. */
static size_t intersection(const struct translation *t)
{
    for (size_t i = 1; i < t->rest.size; i++) {
        const char c = peek(t, i);
        if (c == '\\')
            i++;
        else if (c == '&' && peek(t, i + 1) == '&')
            return peek(t, i + 2) == '[' && peek(t, i + 3) == '^' ? i : SIZE_MAX;
        else if (c == ']' && i > 1)
            return SIZE_MAX;
    }
    return SIZE_MAX;
}

/* [A&&[^B]] as (?:(?!B)A). */
static bool class_difference(struct translation *t, size_t at, struct err *err)
{
    struct translation left = *t;
    char *items = xasprintf("%.*s]", (int)(at - 1), t->rest.data + 1);
    left.rest = str_from(items);
    skip(t, at + 4);
    buf_add_text(t->out, "(?:(?![");
    bool done = class_items(t, err);
    if (done && peek(t, 0) != ']')
        done = refuse(t, "an intersection of this form", err);
    if (done) {
        skip(t, 1);
        buf_add_text(t->out, "])[");
        done = class_items(&left, err);
        buf_add_text(t->out, "])");
    }
    free(items);
    return done;
}

static bool class_whole(struct translation *t, struct err *err)
{
    const size_t at = intersection(t);
    if (at != SIZE_MAX)
        return class_difference(t, at, err);
    copy(t, peek(t, 1) == '^' ? 2 : 1);
    if (!class_items(t, err))
        return false;
    buf_add_char(t->out, ']');
    return true;
}

/* "(?" groups: those that mean the same, and (?i: ... ). */
static bool group(struct translation *t, struct err *err)
{
    static const char *const same[] = { "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:" };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        if (str_starts(t->rest, str_from(same[i]))) {
            copy(t, strlen(same[i]));
            return true;
        }
    }
    if (str_starts(t->rest, STR("(?i)")) && t->rest.data == t->pattern.data) {
        copy(t, 4); // further on Ruby lets it end with the group, alternatives included
        return true;
    }
    return refuse(t, "a kind of group that is not known", err);
}

/* "{n}", "{n,}" and "{n,m}", not followed by "+", which Ruby reads as a repetition. */
static bool braces(struct translation *t, struct err *err)
{
    size_t i = 1;
    while (peek(t, i) >= '0' && peek(t, i) <= '9')
        i++;
    bool good = i > 1;
    if (peek(t, i) == ',') {
        i++;
        while (peek(t, i) >= '0' && peek(t, i) <= '9')
            i++;
    }
    good = good && peek(t, i) == '}' && peek(t, i + 1) != '+';
    if (!good)
        return refuse(t, "braces that are no plain repetition", err);
    copy(t, i + 1);
    return true;
}

bool regex_translate(struct str pattern, struct buf *out, struct err *err)
{
    if (pattern.size > REGEX_PATTERN_BYTES_CAP)
        return err_set(err, ERR_UNSUPPORTED, "a regular expression of %zu bytes (at most %zu)",
                       pattern.size, REGEX_PATTERN_BYTES_CAP);
    if (!utf8_valid(pattern) || memchr(pattern.data ? pattern.data : "", '\0', pattern.size))
        return err_set(err, ERR_FORMAT, "a regular expression that is no UTF-8 text");
    char *text = xstrndup(pattern.data ? pattern.data : "", pattern.size); // NUL behind, for peek
    struct translation t = { .rest = str_from(text), .out = out, .pattern = str_from(text) };
    bool good = true;
    while (good && t.rest.size > 0) {
        switch (peek(&t, 0)) {
        case '\\':
            good = escape(&t, false, err);
            break;
        case '[':
            good = class_whole(&t, err);
            break;
        case '(':
            if (peek(&t, 1) == '?')
                good = group(&t, err);
            else if (peek(&t, 1) == '*')
                good = refuse(&t, "a verb", err);
            else
                copy(&t, 1);
            break;
        case '{':
            good = braces(&t, err);
            break;
        default:
            copy(&t, 1);
        }
    }
    free(text);
    return good;
}

struct regex *regex_new(struct str pattern, struct err *err)
{
    struct buf translated;
    buf_init(&translated, 64 * REGEX_PATTERN_BYTES_CAP);
    struct regex *regex = NULL;
    pcre2_compile_context *context = NULL;
    if (!regex_translate(pattern, &translated, err))
        goto done;
    context = pcre2_compile_context_create(NULL);
    must(context && buf_ok(&translated));
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int error;
    size_t offset;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)(translated.data ? translated.data : ""), translated.size,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                      &offset, context);
    if (!code) {
        unsigned char message[128] = "";
        pcre2_get_error_message(error, message, sizeof message);
        err_set(err, ERR_UNSUPPORTED, "regular expression \"%.200s\": %s",
                translated.data ? translated.data : "", (const char *)message);
        goto done;
    }
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); // without it the interpreter matches
    regex = xcalloc(1, sizeof *regex);
    regex->code = code;
done:
    pcre2_compile_context_free(context);
    buf_release(&translated);
    return regex;
}

void regex_free(struct regex *regex)
{
    if (!regex)
        return;
    pcre2_code_free(regex->code);
    free(regex);
}

struct regex_state *regex_state_new(void)
{
    struct regex_state *state = xcalloc(1, sizeof *state);
    state->data = pcre2_match_data_create(1, NULL);
    state->context = pcre2_match_context_create(NULL);
    state->stack = pcre2_jit_stack_create(JIT_STACK_BYTES, JIT_STACK_BYTES_CAP, NULL);
    must(state->data && state->context);
    pcre2_set_match_limit(state->context, MATCH_LIMIT);
    pcre2_set_depth_limit(state->context, DEPTH_LIMIT);
    pcre2_set_heap_limit(state->context, HEAP_KIB_CAP);
    pcre2_jit_stack_assign(state->context, NULL, state->stack);
    return state;
}

void regex_state_free(struct regex_state *state)
{
    if (!state)
        return;
    pcre2_match_data_free(state->data);
    pcre2_match_context_free(state->context);
    pcre2_jit_stack_free(state->stack);
    free(state);
}

enum regex_result regex_find(const struct regex *regex, struct regex_state *state, struct str text,
                             size_t from, size_t *first, size_t *last, struct err *err)
{
    const PCRE2_SPTR subject = (PCRE2_SPTR)(text.data ? text.data : "");
    int n = pcre2_match(regex->code, subject, text.size, from, PCRE2_NO_UTF_CHECK, state->data,
                        state->context);
    if (n == PCRE2_ERROR_JIT_STACKLIMIT)
        n = pcre2_match(regex->code, subject, text.size, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        state->data, state->context);
    if (n == PCRE2_ERROR_NOMATCH)
        return REGEX_NONE;
    if (n < 0) {
        unsigned char message[128] = "";
        pcre2_get_error_message(n, message, sizeof message);
        err_set(err, ERR_ARGUMENT, "a text that the model's regular expression cannot split: %s",
                (const char *)message);
        return REGEX_FAILED;
    }
    const size_t *found = pcre2_get_ovector_pointer(state->data);
    *first = found[0];
    *last = found[1];
    return REGEX_FOUND;
}
