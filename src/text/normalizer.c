/* Each step reads one text and writes the next; two pairs of buffers take turns. A step that would
 * change nothing passes its input on, which is what nearly all text needs: NFC looks for a
 * character that could change (unicode_table.h) before it does anything.
 *
 * Normal forms are made cluster by cluster, a stable character and the unstable ones behind it,
 * with utf8proc's data: its own driver orders marks by exchanging neighbours, which is quadratic
 * in a run of marks; here a run is sorted by counting. Marks (the bytes' origins) are also kept
 * cluster by cluster. */
#include "text/normalizer.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/memory.h"
#include "text/regex.h"
#include "text/unicode_table.h"

#define DECOMPOSITION_CAP 32 // code points that one becomes; U+FDFA has 18

struct normalizer {
    struct regex **regexes; // NULL for rules without
    size_t n_rules;
    struct normalizer_rule *rules;
};

struct side {
    struct buf text, marks;
};

struct normalizer_scratch {
    struct side sides[2];
    int32_t *codes, *sorted; // of one cluster
    size_t codes_room;
    struct regex_state *regex;
};

/* One step: from `in` to `out`. */
struct step {
    struct marked_text in;
    struct side *out;
    struct normalizer_scratch *scratch;
};

struct normalizer *normalizer_new(const struct normalizer_rule *rules, size_t n_rules,
                                  struct err *err)
{
    struct normalizer *normalizer = xcalloc(1, sizeof *normalizer);
    normalizer->rules = xcalloc(n_rules ? n_rules : 1, sizeof normalizer->rules[0]);
    normalizer->regexes = xcalloc(n_rules ? n_rules : 1, sizeof normalizer->regexes[0]);
    normalizer->n_rules = n_rules;
    for (size_t i = 0; i < n_rules; i++) {
        normalizer->rules[i] = rules[i];
        if (rules[i].kind != NORMALIZER_REPLACE_REGEX)
            continue;
        normalizer->regexes[i] = regex_new(rules[i].find, err);
        if (!normalizer->regexes[i]) {
            normalizer_free(normalizer);
            return NULL;
        }
    }
    return normalizer;
}

void normalizer_free(struct normalizer *normalizer)
{
    if (!normalizer)
        return;
    for (size_t i = 0; i < normalizer->n_rules; i++)
        regex_free(normalizer->regexes[i]);
    free(normalizer->regexes);
    free(normalizer->rules);
    free(normalizer);
}

struct normalizer_scratch *normalizer_scratch_new(void)
{
    return xcalloc(1, sizeof(struct normalizer_scratch));
}

void normalizer_scratch_free(struct normalizer_scratch *scratch)
{
    if (!scratch)
        return;
    for (size_t i = 0; i < 2; i++) {
        buf_release(&scratch->sides[i].text);
        buf_release(&scratch->sides[i].marks);
    }
    free(scratch->codes);
    free(scratch->sorted);
    regex_state_free(scratch->regex);
    free(scratch);
}

static void emit(struct step *step, struct str text, uint8_t mark)
{
    buf_add_str(&step->out->text, text);
    if (!step->in.marks)
        return;
    uint8_t *marks = buf_reserve(&step->out->marks, text.size);
    if (marks) {
        memset(marks, mark, text.size);
        step->out->marks.size += text.size;
    }
}

/* Bytes [first, last) of the input as they are. */
static void emit_same(struct step *step, size_t first, size_t last)
{
    buf_add(&step->out->text, step->in.text.data + first, last - first);
    if (step->in.marks)
        buf_add(&step->out->marks, step->in.marks + first, last - first);
}

static uint8_t mark_of(const struct step *step, size_t first, size_t last)
{
    if (!step->in.marks)
        return 0;
    return !memchr(step->in.marks + first, 0, last - first);
}

/* 0 for what Unicode 9 does not know as a mark. */
static unsigned combining_class(int32_t code)
{
    if (!(unicode_properties((uint32_t)code) & UNICODE_UNSTABLE))
        return 0;
    return (unsigned)utf8proc_get_property(code)->combining_class;
}

/* A stable sort of each run of marks by their combining class. */
static void order_marks(int32_t *codes, int32_t *sorted, size_t n)
{
    for (size_t first = 0; first < n;) {
        size_t counts[257] = { 0 };
        size_t last = first;
        for (; last < n; last++) {
            const unsigned class = combining_class(codes[last]);
            if (class == 0)
                break;
            counts[class + 1]++;
        }
        if (last - first > 1) {
            for (size_t class = 1; class < 257; class ++)
                counts[class] += counts[class - 1];
            for (size_t i = first; i < last; i++)
                sorted[counts[combining_class(codes[i])]++] = codes[i];
            memcpy(&codes[first], sorted, (last - first) * sizeof codes[0]);
        }
        first = last + 1;
    }
}

static void codes_reserve(struct normalizer_scratch *scratch, size_t n)
{
    if (n <= scratch->codes_room)
        return;
    scratch->codes_room = n * 2;
    scratch->codes = xreallocarray(scratch->codes, n * 2, sizeof scratch->codes[0]);
    scratch->sorted = xreallocarray(scratch->sorted, n * 2, sizeof scratch->sorted[0]);
}

/* Normalises bytes [first, last) of the input, a cluster. */
static void emit_normal(struct step *step, size_t first, size_t last, utf8proc_option_t options)
{
    struct normalizer_scratch *scratch = step->scratch;
    size_t n = 0;
    unsigned size;
    for (size_t at = first; at < last; at += size) {
        codes_reserve(scratch, n + DECOMPOSITION_CAP);
        const uint32_t code = unicode_next(step->in.text.data + at, &size);
        if (!(unicode_properties(code) & (UNICODE_UNSTABLE | UNICODE_DECOMPOSES))) {
            scratch->codes[n++] = (int32_t)code;
            continue;
        }
        int boundary_class = 0;
        const utf8proc_ssize_t added = utf8proc_decompose_char(
            (int32_t)code, scratch->codes + n, DECOMPOSITION_CAP, options, &boundary_class);
        must(added >= 0 && added <= DECOMPOSITION_CAP);
        n += (size_t)added;
    }
    order_marks(scratch->codes, scratch->sorted, n);
    const utf8proc_ssize_t left =
        utf8proc_normalize_utf32(scratch->codes, (utf8proc_ssize_t)n, options);
    must(left >= 0);
    const uint8_t mark = mark_of(step, first, last);
    for (utf8proc_ssize_t i = 0; i < left; i++) {
        char text[4];
        const size_t n_bytes = utf8_write((uint32_t)scratch->codes[i], text);
        emit(step, (struct str){ text, n_bytes }, mark);
    }
}

/* False when the text is in the form as it is. */
static bool normal_form(struct step *step, enum normalizer_kind kind)
{
    const bool compose = kind == NORMALIZER_NFC || kind == NORMALIZER_NFKC;
    const bool compatible = kind == NORMALIZER_NFKC || kind == NORMALIZER_NFKD;
    const utf8proc_option_t options = UTF8PROC_STABLE |
                                      (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                      (compatible ? UTF8PROC_COMPAT : (utf8proc_option_t)0);
    const struct str text = step->in.text;
    size_t done = 0, cluster = 0; // bytes written; where the cluster at hand begins
    bool touched = false;         // the cluster holds something that may change
    for (size_t at = 0; at <= text.size;) {
        unsigned size = 1;
        unsigned properties = 0;
        if (at < text.size)
            properties = unicode_properties(unicode_next(text.data + at, &size));
        if (!(properties & UNICODE_UNSTABLE)) {
            if (touched) {
                emit_same(step, done, cluster);
                emit_normal(step, cluster, at, options);
                done = at;
            }
            cluster = at;
            touched = kind != NORMALIZER_NFC && (properties & UNICODE_DECOMPOSES);
        } else {
            touched = true;
        }
        at += size;
    }
    if (done == 0)
        return false;
    emit_same(step, done, text.size);
    return true;
}

static bool lowercase(struct step *step)
{
    const struct str text = step->in.text;
    unsigned size;
    for (size_t at = 0; at < text.size; at += size) {
        const uint32_t code = unicode_next(text.data + at, &size);
        const uint32_t lower = (uint32_t)utf8proc_tolower((int32_t)code);
        char bytes[4];
        if (code == 0x130) // the one letter whose lower case is two code points
            emit(step, STR("i\xcc\x87"), mark_of(step, at, at + size));
        else if (lower == code)
            emit_same(step, at, at + size);
        else
            emit(step, (struct str){ bytes, utf8_write(lower, bytes) },
                 mark_of(step, at, at + size));
    }
    return true;
}

static bool replace(struct step *step, struct str find, struct str with)
{
    const struct str text = step->in.text;
    size_t done = 0;
    if (find.size == 0)
        return false;
    for (;;) {
        const size_t at = str_find(str_slice(text, done, text.size), find);
        if (at == SIZE_MAX)
            break;
        emit_same(step, done, done + at);
        emit(step, with, mark_of(step, done + at, done + at + find.size));
        done += at + find.size;
    }
    emit_same(step, done, text.size);
    return true;
}

static bool replace_regex(struct step *step, const struct regex *regex, struct str with,
                          struct err *err)
{
    const struct str text = step->in.text;
    if (!step->scratch->regex)
        step->scratch->regex = regex_state_new();
    size_t done = 0, from = 0;
    bool matched = false; // `done` is the end of a match
    while (from <= text.size) {
        size_t first, last;
        const enum regex_result result =
            regex_find(regex, step->scratch->regex, text, from, &first, &last, err);
        if (result == REGEX_FAILED)
            return false;
        if (result == REGEX_NONE)
            break;
        unsigned size = 0; // behind an empty match the search goes on a character later
        if (first == last && last < text.size)
            unicode_next(text.data + last, &size);
        else if (first == last)
            size = 1;
        from = last + size;
        if (first == last && matched && first == done)
            continue; // an empty match that touches the one before does not count
        emit_same(step, done, first);
        emit(step, with, mark_of(step, first, last));
        done = last;
        matched = true;
    }
    emit_same(step, done, text.size);
    return true;
}

static void strip(struct step *step, bool left, bool right)
{
    const struct str text = step->in.text;
    size_t first = 0, last = text.size;
    unsigned size;
    while (left && first < last &&
           unicode_properties(unicode_next(text.data + first, &size)) & UNICODE_SPACE)
        first += size;
    while (right && first < last) {
        size_t at = last - 1;
        while (at > first && ((uint8_t)text.data[at] & 0xc0) == 0x80)
            at--;
        if (!(unicode_properties(unicode_next(text.data + at, &size)) & UNICODE_SPACE))
            break;
        last = at;
    }
    emit_same(step, first, last);
}

/* *written: `out` holds the result; else the step left the text as it is. */
static bool run_step(struct step *step, const struct normalizer_rule *rule,
                     const struct regex *regex, bool *written, struct err *err)
{
    *written = true;
    switch (rule->kind) {
    case NORMALIZER_NFC:
    case NORMALIZER_NFD:
    case NORMALIZER_NFKC:
    case NORMALIZER_NFKD:
        *written = normal_form(step, rule->kind);
        return true;
    case NORMALIZER_LOWERCASE:
        lowercase(step);
        return true;
    case NORMALIZER_PREPEND:
        *written = step->in.text.size > 0;
        if (*written) {
            emit(step, rule->with, mark_of(step, 0, 1));
            emit_same(step, 0, step->in.text.size);
        }
        return true;
    case NORMALIZER_REPLACE:
        *written = replace(step, rule->find, rule->with);
        return true;
    case NORMALIZER_REPLACE_REGEX:
        return replace_regex(step, regex, rule->with, err);
    case NORMALIZER_STRIP:
        strip(step, rule->left, rule->right);
        return true;
    case NORMALIZER_KIND_END:
        break;
    }
    return err_set(err, ERR_UNSUPPORTED, "normalizer %d", (int)rule->kind);
}

bool normalizer_run(const struct normalizer *normalizer, struct normalizer_scratch *scratch,
                    struct marked_text in, size_t size_cap, struct marked_text *out,
                    struct err *err)
{
    size_t turn = 0;
    for (size_t i = 0; i < normalizer->n_rules && in.text.size > 0; i++) {
        struct step step = { .in = in, .out = &scratch->sides[turn], .scratch = scratch };
        step.out->text.size_cap = step.out->marks.size_cap = size_cap;
        buf_clear(&step.out->text);
        buf_clear(&step.out->marks);
        bool written;
        if (!run_step(&step, &normalizer->rules[i], normalizer->regexes[i], &written, err))
            return false;
        if (!buf_ok(&step.out->text))
            return err_set(err, ERR_ARGUMENT, "a text of more than %zu bytes when normalised",
                           size_cap);
        if (!written)
            continue;
        in = (struct marked_text){ buf_view(&step.out->text),
                                   in.marks ? (const uint8_t *)step.out->marks.data : NULL };
        turn ^= 1;
    }
    *out = in;
    return true;
}
