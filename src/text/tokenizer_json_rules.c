/* Each list is an object with a type, and the type Sequence holds more of them: one reader of
 * sequences walks all four kinds. A table of names would not be shorter, since nearly every type
 * has fields of its own.
 *
 * The decoder is applied here, token by token, so that nothing is left to do in a stream; the one
 * rule that looks at the whole text (dropping a blank at its start, behind Fuse) is kept as a rule.
 * What would need more than that is refused. */
#include "text/tokenizer_json_rules.h"

#include <string.h>

#include "text/vocab.h"

#define BLANK_MARK STR("\xe2\x96\x81") // U+2581
#define DEPTH_CAP 8

/* What walks a list: reads one object that is no Sequence. */
struct walk {
    struct tokenizer_spec *spec;
    struct decoder *decoder; // for decoders
    const char *member;      // where a Sequence keeps its list
    const char *what;        // for sentences
    bool (*read)(struct walk *walk, const struct json *rule, struct str type, struct err *err);
};

static bool refuse(const struct walk *walk, struct str type, const char *why, struct err *err)
{
    return err_set(err, ERR_UNSUPPORTED, "%s \"%.*s\"%s", walk->what,
                   (int)(type.size < 80 ? type.size : 80), type.data ? type.data : "", why);
}

static bool walk_rules(struct walk *walk, const struct json *rule, unsigned depth, struct err *err)
{
    const enum json_kind kind = json_kind(rule);
    if (kind == JSON_KIND_MISSING || kind == JSON_KIND_NULL)
        return true;
    const struct str type = json_text(json_get(rule, "type"));
    if (kind != JSON_KIND_OBJECT || !type.data)
        return err_set(err, ERR_FORMAT, "%s: no object with a type", walk->what);
    if (!str_is(type, "Sequence"))
        return walk->read(walk, rule, type, err);
    const struct json *list = json_get(rule, walk->member);
    if (json_kind(list) != JSON_KIND_ARRAY || depth == DEPTH_CAP)
        return err_set(err, ERR_FORMAT, "%s: a Sequence without a list \"%s\"", walk->what,
                       walk->member);
    for (size_t i = 0; i < json_size(list); i++) {
        if (!walk_rules(walk, json_at(list, i), depth + 1, err))
            return false;
    }
    return true;
}

/* {"String": "..."} or {"Regex": "..."}. */
static bool read_pattern(const struct walk *walk, const struct json *rule, struct str *pattern,
                         bool *is_regex, struct err *err)
{
    const struct json *json = json_get(rule, "pattern");
    *is_regex = json_read_string(json_get(json, "Regex"), pattern);
    if (*is_regex || (json_read_string(json_get(json, "String"), pattern) && pattern->size > 0))
        return true;
    return err_set(err, ERR_FORMAT, "%s: no pattern", walk->what);
}

static bool read_normalizer(struct walk *walk, const struct json *rule, struct str type,
                            struct err *err)
{
    static const struct {
        const char *name;
        enum normalizer_kind kind;
    } plain[] = {
        { "NFC", NORMALIZER_NFC },
        { "NFD", NORMALIZER_NFD },
        { "NFKC", NORMALIZER_NFKC },
        { "NFKD", NORMALIZER_NFKD },
        { "Lowercase", NORMALIZER_LOWERCASE },
    };
    struct normalizer_rule out = { 0 };
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        if (str_is(type, plain[i].name))
            out.kind = plain[i].kind;
    }
    if (str_is(type, "Prepend")) {
        out.kind = NORMALIZER_PREPEND;
        if (!json_read_string(json_get(rule, "prepend"), &out.with))
            return err_set(err, ERR_FORMAT, "normalizer Prepend: nothing to prepend");
    } else if (str_is(type, "Strip")) {
        out.kind = NORMALIZER_STRIP;
        out.left = json_bool(json_get(rule, "strip_left"), true);
        out.right = json_bool(json_get(rule, "strip_right"), true);
    } else if (str_is(type, "Replace")) {
        bool is_regex;
        if (!read_pattern(walk, rule, &out.find, &is_regex, err))
            return false;
        out.kind = is_regex ? NORMALIZER_REPLACE_REGEX : NORMALIZER_REPLACE;
        if (!json_read_string(json_get(rule, "content"), &out.with))
            return err_set(err, ERR_FORMAT, "normalizer Replace: no content");
    }
    if (!out.kind)
        return refuse(walk, type, " is not supported", err);
    if (walk->spec->n_normalizers == TOKENIZER_RULES_CAP)
        return err_set(err, ERR_FORMAT, "more than %zu normalizers", TOKENIZER_RULES_CAP);
    walk->spec->normalizers[walk->spec->n_normalizers++] = out;
    return true;
}

bool tokenizer_json_normalizer(struct tokenizer_spec *spec, const struct json *normalizer,
                               struct err *err)
{
    struct walk walk = { spec, NULL, "normalizers", "normalizer", read_normalizer };
    return walk_rules(&walk, normalizer, 0, err);
}

static bool read_behaviour(const struct json *json, enum pretoken_behaviour *behaviour)
{
    static const char *const names[] = { "Isolated", "Removed", "MergedWithPrevious",
                                         "MergedWithNext", "Contiguous" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (str_is(json_text(json), names[i])) {
            *behaviour = (enum pretoken_behaviour)i;
            return true;
        }
    }
    return false;
}

static bool add_pretoken(struct tokenizer_spec *spec, struct pretoken_rule rule, struct err *err)
{
    if (spec->n_pretokens == TOKENIZER_RULES_CAP)
        return err_set(err, ERR_FORMAT, "more than %zu pre-tokenizers", TOKENIZER_RULES_CAP);
    spec->pretokens[spec->n_pretokens++] = rule;
    return true;
}

/* The scheme of a Metaspace: prepend_scheme, or add_prefix_space in older files. */
static bool read_prefix(const struct json *rule, enum pretoken_prefix *prefix)
{
    const struct str scheme = json_text(json_get(rule, "prepend_scheme"));
    *prefix = json_bool(json_get(rule, "add_prefix_space"), true) ? PRETOKEN_PREFIX_ALWAYS
                                                                  : PRETOKEN_PREFIX_NEVER;
    if (str_is(scheme, "always"))
        *prefix = PRETOKEN_PREFIX_ALWAYS;
    else if (str_is(scheme, "never"))
        *prefix = PRETOKEN_PREFIX_NEVER;
    else if (str_is(scheme, "first"))
        *prefix = PRETOKEN_PREFIX_FIRST;
    else
        return !scheme.data;
    return true;
}

static bool read_metaspace(struct walk *walk, const struct json *rule, struct err *err)
{
    struct pretoken_rule out = { .kind = PRETOKEN_METASPACE };
    if (!json_read_string(json_get(rule, "replacement"), &out.pattern) || !out.pattern.size ||
        !read_prefix(rule, &out.prefix))
        return err_set(err, ERR_FORMAT, "pre-tokenizer Metaspace: bad replacement or scheme");
    if (!add_pretoken(walk->spec, out, err))
        return false;
    return !json_bool(json_get(rule, "split"), true) ||
           add_pretoken(walk->spec,
                        (struct pretoken_rule){ .kind = PRETOKEN_SPLIT_TEXT,
                                                .behaviour = PRETOKEN_MERGED_WITH_NEXT,
                                                .pattern = out.pattern },
                        err);
}

static bool read_byte_level(struct walk *walk, const struct json *rule, struct err *err)
{
    static const char gpt2[] =
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    if (json_bool(json_get(rule, "add_prefix_space"), true) &&
        !add_pretoken(walk->spec, (struct pretoken_rule){ .kind = PRETOKEN_BLANK_PREFIX }, err))
        return false;
    if (json_bool(json_get(rule, "use_regex"), true) &&
        !add_pretoken(
            walk->spec,
            (struct pretoken_rule){ .kind = PRETOKEN_SPLIT_REGEX, .pattern = str_from(gpt2) }, err))
        return false;
    walk->spec->byte_level = true;
    return true;
}

static bool read_pretokenizer(struct walk *walk, const struct json *rule, struct str type,
                              struct err *err)
{
    if (walk->spec->byte_level)
        return refuse(walk, type, " behind ByteLevel is not supported", err);
    if (str_is(type, "ByteLevel"))
        return read_byte_level(walk, rule, err);
    if (str_is(type, "Metaspace"))
        return read_metaspace(walk, rule, err);
    struct pretoken_rule out = { 0 };
    if (str_is(type, "Split")) {
        bool is_regex;
        if (!read_pattern(walk, rule, &out.pattern, &is_regex, err))
            return false;
        out.kind = is_regex ? PRETOKEN_SPLIT_REGEX : PRETOKEN_SPLIT_TEXT;
        out.invert = json_bool(json_get(rule, "invert"), false);
        if (!read_behaviour(json_get(rule, "behavior"), &out.behaviour))
            return err_set(err, ERR_FORMAT, "pre-tokenizer Split: unknown behavior");
    } else if (str_is(type, "Digits")) {
        out.kind = PRETOKEN_NUMBERS;
        out.behaviour = json_bool(json_get(rule, "individual_digits"), false) ? PRETOKEN_ISOLATED
                                                                              : PRETOKEN_CONTIGUOUS;
    } else if (str_is(type, "Punctuation")) {
        out.kind = PRETOKEN_PUNCTUATION;
        if (json_get(rule, "behavior") &&
            !read_behaviour(json_get(rule, "behavior"), &out.behaviour))
            return err_set(err, ERR_FORMAT, "pre-tokenizer Punctuation: unknown behavior");
    } else if (str_is(type, "WhitespaceSplit")) {
        out.kind = PRETOKEN_WHITE_SPACE;
        out.behaviour = PRETOKEN_REMOVED;
    } else if (str_is(type, "Whitespace")) {
        out = (struct pretoken_rule){ .kind = PRETOKEN_SPLIT_REGEX,
                                      .pattern = STR("\\w+|[^\\w\\s]+"),
                                      .behaviour = PRETOKEN_REMOVED,
                                      .invert = true };
    } else {
        return refuse(walk, type, " is not supported", err);
    }
    return add_pretoken(walk->spec, out, err);
}

bool tokenizer_json_pretokenizer(struct tokenizer_spec *spec, const struct json *pretokenizer,
                                 struct err *err)
{
    struct walk walk = { spec, NULL, "pretokenizers", "pre-tokenizer", read_pretokenizer };
    return walk_rules(&walk, pretokenizer, 0, err);
}

/* Puts ids in front of what is already before a text, and behind what is behind it. */
static bool wrap_ids(struct tokenizer_spec *spec, const uint32_t *before, size_t n_before,
                     const uint32_t *behind, size_t n_behind, struct err *err)
{
    if (spec->n_before + n_before > TOKENIZER_AROUND_CAP ||
        spec->n_behind + n_behind > TOKENIZER_AROUND_CAP)
        return err_set(err, ERR_FORMAT, "post-processor: more than %zu ids around a text",
                       TOKENIZER_AROUND_CAP);
    memmove(spec->before + n_before, spec->before, spec->n_before * sizeof before[0]);
    memcpy(spec->before, before, n_before * sizeof before[0]);
    memcpy(spec->behind + spec->n_behind, behind, n_behind * sizeof behind[0]);
    spec->n_before += n_before;
    spec->n_behind += n_behind;
    return true;
}

/* Appends the ids of a template's special token. */
static bool read_special(const struct json *processor, struct str name, uint32_t *ids, size_t *n,
                         struct err *err)
{
    const struct json *known = json_get(processor, "special_tokens");
    const struct json *list = NULL;
    for (void *it = json_first(known); it; it = json_next(known, it)) {
        if (str_equal(json_member_key(it), name))
            list = json_get(json_member_value(it), "ids");
    }
    if (json_kind(list) != JSON_KIND_ARRAY)
        return err_set(err, ERR_FORMAT, "post-processor: no special token \"%.*s\"",
                       (int)(name.size < 80 ? name.size : 80), name.data ? name.data : "");
    for (size_t i = 0; i < json_size(list); i++) {
        if (*n == TOKENIZER_AROUND_CAP || !json_read_u32(json_at(list, i), &ids[*n]))
            return err_set(err, ERR_FORMAT, "post-processor: bad ids of a special token");
        ++*n;
    }
    return true;
}

static bool read_template(struct walk *walk, const struct json *rule, struct err *err)
{
    uint32_t before[TOKENIZER_AROUND_CAP], behind[TOKENIZER_AROUND_CAP];
    size_t n_before = 0, n_behind = 0;
    bool text_seen = false;
    const struct json *single = json_get(rule, "single");
    for (size_t i = 0; i < json_size(single); i++) {
        const struct json *piece = json_at(single, i);
        const struct json *special = json_get(piece, "SpecialToken");
        if (json_get(piece, "Sequence")) {
            if (text_seen || !str_is(json_text(json_get(json_get(piece, "Sequence"), "id")), "A"))
                return refuse(walk, STR("TemplateProcessing"), " that repeats the text", err);
            text_seen = true;
        } else if (!read_special(rule, json_text(json_get(special, "id")),
                                 text_seen ? behind : before, text_seen ? &n_behind : &n_before,
                                 err)) {
            return false;
        }
    }
    if (!text_seen)
        return err_set(err, ERR_FORMAT, "post-processor: a template without the text");
    return wrap_ids(walk->spec, before, n_before, behind, n_behind, err);
}

static bool read_processor(struct walk *walk, const struct json *rule, struct str type,
                           struct err *err)
{
    if (str_is(type, "ByteLevel"))
        return true; // about offsets only
    if (str_is(type, "TemplateProcessing"))
        return read_template(walk, rule, err);
    if (str_is(type, "BertProcessing") || str_is(type, "RobertaProcessing")) {
        uint32_t cls, sep; // each is ["text", id]
        if (!json_read_u32(json_at(json_get(rule, "cls"), 1), &cls) ||
            !json_read_u32(json_at(json_get(rule, "sep"), 1), &sep))
            return err_set(err, ERR_FORMAT, "post-processor: no cls and sep");
        return wrap_ids(walk->spec, &cls, 1, &sep, 1, err);
    }
    return refuse(walk, type, " is not supported", err);
}

bool tokenizer_json_processor(struct tokenizer_spec *spec, const struct json *processor,
                              struct err *err)
{
    struct walk walk = { spec, NULL, "processors", "post-processor", read_processor };
    if (!walk_rules(&walk, processor, 0, err))
        return false;
    for (size_t i = 0; i < spec->n_before + spec->n_behind; i++) {
        const uint32_t id = i < spec->n_before ? spec->before[i] : spec->behind[i - spec->n_before];
        if (id >= spec->n_tokens || !spec->tokens[id].key.data)
            return err_set(err, ERR_FORMAT, "post-processor: no token has the id %u", id);
    }
    return true;
}

static bool add_step(struct walk *walk, struct str type, struct decoder_step step, struct err *err)
{
    if (walk->decoder->fused)
        return refuse(walk, type, " behind Fuse is not supported", err);
    if (walk->decoder->n_steps == TOKENIZER_RULES_CAP)
        return err_set(err, ERR_FORMAT, "more than %zu decoders", TOKENIZER_RULES_CAP);
    walk->decoder->steps[walk->decoder->n_steps++] = step;
    return true;
}

static bool read_strip(struct walk *walk, const struct json *rule, struct str type, struct err *err)
{
    struct str content;
    uint32_t left, right;
    if (!json_read_string(json_get(rule, "content"), &content) ||
        !json_read_u32(json_get(rule, "start"), &left) ||
        !json_read_u32(json_get(rule, "stop"), &right))
        return err_set(err, ERR_FORMAT, "decoder Strip: no content, start and stop");
    if (!walk->decoder->fused)
        return add_step(walk, type,
                        (struct decoder_step){
                            .kind = DECODER_STRIP, .find = content, .left = left, .right = right },
                        err);
    if (!str_is(content, " ") || right != 0 || walk->spec->start != TOKENIZER_START_KEEP)
        return refuse(walk, type, " of this form behind Fuse is not supported", err);
    walk->spec->start = TOKENIZER_START_STRIP;
    walk->spec->n_strip = left;
    return true;
}

static bool read_decoder(struct walk *walk, const struct json *rule, struct str type,
                         struct err *err)
{
    if (str_is(type, "Fuse")) {
        walk->decoder->fused = true;
        return true;
    }
    if (str_is(type, "ByteLevel"))
        return add_step(walk, type, (struct decoder_step){ .kind = DECODER_BYTE_LEVEL }, err);
    if (str_is(type, "ByteFallback"))
        return add_step(walk, type, (struct decoder_step){ .kind = DECODER_BYTE_FALLBACK }, err);
    if (str_is(type, "Strip"))
        return read_strip(walk, rule, type, err);
    struct decoder_step step = { .kind = DECODER_REPLACE, .with = STR(" ") };
    if (str_is(type, "Replace")) {
        bool is_regex;
        if (!read_pattern(walk, rule, &step.find, &is_regex, err))
            return false;
        if (is_regex || !json_read_string(json_get(rule, "content"), &step.with))
            return refuse(walk, type, " of this form is not supported", err);
        return add_step(walk, type, step, err);
    }
    if (str_is(type, "Metaspace")) {
        enum pretoken_prefix prefix;
        if (!str_equal(json_text(json_get(rule, "replacement")), BLANK_MARK) ||
            !read_prefix(rule, &prefix) || walk->decoder->n_steps > 0)
            return refuse(walk, type, " of this form is not supported", err);
        if (prefix != PRETOKEN_PREFIX_NEVER)
            walk->spec->start = TOKENIZER_START_MARKS;
        step.find = BLANK_MARK;
        return add_step(walk, type, step, err);
    }
    return refuse(walk, type, " is not supported", err);
}

bool tokenizer_json_decoder(struct tokenizer_spec *spec, const struct json *json,
                            struct decoder *decoder, struct err *err)
{
    *decoder = (struct decoder){ 0 };
    struct walk walk = { spec, decoder, "decoders", "decoder", read_decoder };
    if (json_kind(json) != JSON_KIND_OBJECT)
        return err_set(err, ERR_UNSUPPORTED, "a tokenizer without a decoder");
    return walk_rules(&walk, json, 0, err);
}

static struct str replace_all(struct arena *arena, struct str text, const struct decoder_step *step)
{
    size_t n = 0;
    for (struct str rest = text; rest.size > 0;) {
        const size_t at = str_find(rest, step->find);
        if (at == SIZE_MAX)
            break;
        n++;
        rest = str_slice(rest, at + step->find.size, rest.size);
    }
    if (n == 0)
        return text;
    char *out = arena_alloc(arena, text.size + n * step->with.size + 1);
    size_t size = 0;
    while (out && text.size > 0) {
        const bool found = str_starts(text, step->find);
        const struct str with = found ? step->with : str_slice(text, 0, 1);
        memcpy(out + size, with.data, with.size);
        size += with.size;
        text = str_slice(text, found ? step->find.size : 1, text.size);
    }
    return (struct str){ out, size };
}

static struct str strip(struct str text, const struct decoder_step *step)
{
    for (size_t i = 0; i < step->left && str_starts(text, step->find); i++)
        text = str_slice(text, step->find.size, text.size);
    for (size_t i = 0; i < step->right && str_ends(text, step->find); i++)
        text = str_slice(text, 0, text.size - step->find.size);
    return text;
}

struct str decoder_apply(const struct decoder *decoder, struct arena *arena, struct str token)
{
    for (size_t i = 0; i < decoder->n_steps && token.data; i++) {
        const struct decoder_step *step = &decoder->steps[i];
        uint8_t byte;
        size_t n;
        char *bytes;
        switch (step->kind) {
        case DECODER_BYTE_LEVEL:
            bytes = arena_alloc(arena, token.size + 1);
            if (!bytes)
                return STR_NONE;
            if (tokenizer_spec_read_letters(token, bytes, &n))
                token = (struct str){ bytes, n };
            break;
        case DECODER_BYTE_FALLBACK:
            if (tokenizer_spec_read_byte(token, &byte))
                token = arena_str(arena, (struct str){ (const char *)&byte, 1 });
            break;
        case DECODER_REPLACE:
            token = replace_all(arena, token, step);
            break;
        case DECODER_STRIP:
            token = strip(token, step);
            break;
        }
    }
    return token;
}
