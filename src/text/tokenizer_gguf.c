/* GGUF says which tokens there are and, by a name, how text is split; this file knows the names.
 *
 * Only names are in the table whose splitting is known exactly and, but for three, was compared
 * with ids made by the model's own tokenizer (tests/peers/tokenizer.py): a guess gives wrong ids
 * that nobody sees. What GGUF cannot say is taken from the models that use a name: NFC for Qwen's,
 * whole pieces first for Llama 3's.
 *
 * Of a SentencePiece vocabulary ("llama") the merges are made here: every way to cut a token in two
 * tokens is one, with the place of the token's score among all scores as its rank, so that equal
 * scores are decided by place, as SentencePiece does. */
#include "text/tokenizer_gguf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "text/pretoken_scan.h"
#include "text/token_index.h"
#include "text/tokenizer_image.h"

#define BLANK_MARK STR("\xe2\x96\x81") // U+2581

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };

struct scheme {
    const char *names;       // with blanks between
    const char *scan;        // by pretoken_scan_named, the last step; NULL: none
    const char *patterns[4]; // isolated one after the other, before it
    bool nfc, ignore_merges, add_bos;
};

static const struct scheme schemes[] = {
    { .names = "llama-bpe llama3 llama-v3",
      .scan = "llama3",
      .ignore_merges = true,
      .add_bos = true },
    { .names = "qwen2 deepseek-r1-qwen", .scan = "qwen2", .nfc = true },
    { .names = "tekken", .scan = "tekken", .ignore_merges = true, .add_bos = true },
    { .names = "gpt-2 phi-2", .scan = "gpt2" },
    { .names = "mpt", .scan = "gpt2", .nfc = true },
    { .names = "smollm starcoder refact", .scan = "gpt2", .patterns = { "\\p{N}" } },
    { .names = "command-r", .scan = "gpt2", .patterns = { "\\p{N}" }, .nfc = true },
    { .names = "deepseek-coder",
      .patterns = { "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
                    "[\xe4\xb8\x80-\xe9\xbe\xa5\xe0\xa0\x80-\xe4\xb8\x80"
                    "\xea\xb0\x80-\xed\x9f\xbf]+" } },
};

void tokenizer_gguf_init(struct tokenizer_gguf *gguf)
{
    *gguf = (struct tokenizer_gguf){
        .bos_id = TOKENIZER_GGUF_NO_ID,
        .eos_id = TOKENIZER_GGUF_NO_ID,
        .eot_id = TOKENIZER_GGUF_NO_ID,
        .eom_id = TOKENIZER_GGUF_NO_ID,
        .unknown_id = TOKENIZER_GGUF_NO_ID,
    };
}

static const struct scheme *find_scheme(struct str pre)
{
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        struct str names = str_from(schemes[i].names), name;
        while (str_split(&names, ' ', &name)) {
            if (str_equal(name, pre))
                return &schemes[i];
        }
    }
    return NULL;
}

static int type_of(const struct tokenizer_gguf *gguf, size_t id)
{
    return gguf->token_types ? gguf->token_types[id] : TYPE_NORMAL;
}

/* A token that is found in text before anything else: control, unknown and user-defined ones. */
static void add_added(struct tokenizer_spec *spec, size_t id, int type)
{
    struct tokenizer_spec_token *token = &spec->tokens[id];
    token->special = type != TYPE_USER;
    token->control = token->special || tokenizer_spec_is_structural(token->key);
    spec->added[spec->n_added++] =
        (struct tokenizer_spec_added){ .content = token->key, .id = (uint32_t)id };
}

static bool add_tokens(struct tokenizer_spec *spec, const struct tokenizer_gguf *gguf,
                       struct err *err)
{
    if (gguf->n_tokens == 0 || gguf->n_tokens > TOKENIZER_TOKENS_CAP)
        return err_set(err, ERR_FORMAT, "a vocabulary of %zu tokens (at most %u)", gguf->n_tokens,
                       TOKENIZER_TOKENS_CAP);
    spec->n_tokens = gguf->n_tokens;
    spec->tokens = xcalloc(spec->n_tokens, sizeof spec->tokens[0]);
    spec->added = xcalloc(spec->n_tokens, sizeof spec->added[0]);
    for (size_t id = 0; id < spec->n_tokens; id++) {
        const int type = type_of(gguf, id);
        if (type < TYPE_NORMAL || type > TYPE_BYTE)
            return err_set(err, ERR_FORMAT, "token %zu has the unknown type %d", id, type);
        const struct str text = gguf->tokens[id].data ? gguf->tokens[id] : STR("");
        spec->tokens[id].key = spec->tokens[id].text = text;
        if (type == TYPE_CONTROL || type == TYPE_UNKNOWN || type == TYPE_USER)
            add_added(spec, id, type);
    }
    return true;
}

/* Writes a text with blanks for blank marks into the arena. */
static struct str unmarked(struct arena *arena, struct str text)
{
    char *out = arena_alloc(arena, text.size + 1);
    size_t n = 0;
    while (out && text.size > 0) {
        const bool mark = str_starts(text, BLANK_MARK);
        out[n++] = mark ? ' ' : text.data[0];
        text = str_slice(text, mark ? BLANK_MARK.size : 1, text.size);
    }
    return (struct str){ out, n };
}

static bool too_large(struct err *err)
{
    return err_set(err, ERR_FORMAT, "a vocabulary of more than %zu bytes", TOKENIZER_BYTES_CAP);
}

/* Keys and texts of a byte-level vocabulary: the bytes that the letters stand for. */
static bool decode_letters(struct tokenizer_spec *spec, const struct tokenizer_gguf *gguf,
                           struct err *err)
{
    for (size_t id = 0; id < spec->n_tokens; id++) {
        struct tokenizer_spec_token *token = &spec->tokens[id];
        const int type = type_of(gguf, id);
        if (type != TYPE_NORMAL && type != TYPE_BYTE)
            continue;
        char *bytes = arena_alloc(&spec->arena, token->key.size + 1);
        size_t n;
        if (!bytes)
            return too_large(err);
        if (tokenizer_spec_read_letters(token->key, bytes, &n)) {
            token->key = token->text = (struct str){ bytes, n };
            token->in_model = n > 0;
        }
    }
    return true;
}

static bool add_merges(struct tokenizer_spec *spec, const struct tokenizer_gguf *gguf,
                       struct err *err)
{
    if (gguf->n_merges > TOKENIZER_MERGES_CAP)
        return err_set(err, ERR_FORMAT, "%zu merges (at most %zu)", gguf->n_merges,
                       TOKENIZER_MERGES_CAP);
    spec->merges = xcalloc(gguf->n_merges ? gguf->n_merges : 1, sizeof spec->merges[0]);
    struct token_index index;
    token_index_init(&index, gguf->tokens, gguf->n_tokens);
    bool good = true;
    for (size_t i = 0; good && i < gguf->n_merges; i++) {
        const struct str text = gguf->merges[i];
        const size_t blank =
            text.size > 1 ? str_find_char(str_slice(text, 1, text.size), ' ') : SIZE_MAX;
        if (blank == SIZE_MAX) {
            good = err_set(err, ERR_FORMAT, "merge %zu (\"%.*s\") is no pair", i, STR_ARG(text));
            break;
        }
        const struct str left = str_slice(text, 0, blank + 1);
        const struct str right = str_slice(text, blank + 2, text.size);
        const struct bpe_merge merge = {
            .left = token_index_find(&index, left),
            .right = token_index_find(&index, right),
            .rank = (uint32_t)i,
            .id = token_index_find_joined(&index, left, right),
        };
        if (merge.left == TOKEN_INDEX_NONE || merge.right == TOKEN_INDEX_NONE ||
            merge.id == TOKEN_INDEX_NONE)
            good = err_set(err, ERR_FORMAT, "merge %zu (\"%.*s\") is not of the vocabulary", i,
                           (int)(text.size < 200 ? text.size : 200), text.data);
        spec->merges[spec->n_merges++] = merge;
    }
    token_index_release(&index);
    return good;
}

static void add_split(struct tokenizer_spec *spec, struct str pattern)
{
    spec->pretokens[spec->n_pretokens++] =
        (struct pretoken_rule){ .kind = PRETOKEN_SPLIT_REGEX, .pattern = pattern };
}

static void add_scheme(struct tokenizer_spec *spec, const struct scheme *scheme)
{
    if (scheme->nfc)
        spec->normalizers[spec->n_normalizers++] =
            (struct normalizer_rule){ .kind = NORMALIZER_NFC };
    for (size_t i = 0; i < 4 && scheme->patterns[i]; i++) {
        if (strcmp(scheme->patterns[i], "\\p{N}") == 0)
            spec->pretokens[spec->n_pretokens++] =
                (struct pretoken_rule){ .kind = PRETOKEN_NUMBERS };
        else
            add_split(spec, str_from(scheme->patterns[i]));
    }
    if (scheme->scan)
        add_split(spec, pretoken_scan_pattern(pretoken_scan_named(scheme->scan)));
    else
        spec->pretokens[spec->n_pretokens++] = (struct pretoken_rule){ .kind = PRETOKEN_NUMBERS };
    spec->ignore_merges = scheme->ignore_merges;
}

static bool load_gpt2(struct tokenizer_spec *spec, const struct tokenizer_gguf *gguf, bool *add_bos,
                      struct err *err)
{
    const struct scheme *scheme = find_scheme(gguf->pre);
    if (!scheme)
        return err_set(err, ERR_UNSUPPORTED,
                       gguf->pre.size ? "tokenizer.ggml.pre \"%.*s\" is not known"
                                      : "no tokenizer.ggml.pre%.*s: how text is split is not said",
                       STR_ARG(gguf->pre));
    *add_bos = scheme->add_bos;
    spec->byte_level = true;
    add_scheme(spec, scheme);
    return decode_letters(spec, gguf, err) && add_merges(spec, gguf, err);
}

/* A score and its token, for ranking. */
struct scored {
    float score;
    uint32_t id;
};

static int compare_scores(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    return (x->score < y->score) - (x->score > y->score); // highest first
}

/* ranks[id]: 0 for the highest score, the same for equal ones. */
static bool rank_scores(const struct tokenizer_gguf *gguf, uint32_t *ranks, struct err *err)
{
    struct scored *order = xcalloc(gguf->n_tokens, sizeof order[0]);
    bool good = true;
    for (size_t id = 0; good && id < gguf->n_tokens; id++) {
        order[id] = (struct scored){ gguf->scores[id], (uint32_t)id };
        if (isnan(gguf->scores[id]))
            good = err_set(err, ERR_FORMAT, "token %zu has no number for a score", id);
    }
    if (good)
        qsort(order, gguf->n_tokens, sizeof order[0], compare_scores);
    uint32_t rank = 0;
    for (size_t i = 0; good && i < gguf->n_tokens; i++) {
        rank += i > 0 && order[i].score < order[i - 1].score;
        ranks[order[i].id] = rank;
    }
    free(order);
    return good;
}

/* Every way to cut the token in two tokens that merges may join. */
static bool add_cuts(struct tokenizer_spec *spec, const struct token_index *index, uint32_t id,
                     uint32_t rank, size_t *room, struct err *err)
{
    const struct str key = spec->tokens[id].key;
    for (size_t at = 1; at < key.size; at++) {
        if (((uint8_t)key.data[at] & 0xc0) == 0x80)
            continue;
        const uint32_t left = token_index_find(index, str_slice(key, 0, at));
        const uint32_t right = token_index_find(index, str_slice(key, at, key.size));
        if (left == TOKEN_INDEX_NONE || right == TOKEN_INDEX_NONE)
            continue;
        if (spec->n_merges == TOKENIZER_MERGES_CAP)
            return err_set(err, ERR_FORMAT, "more than %zu merges", TOKENIZER_MERGES_CAP);
        if (spec->n_merges == *room) {
            *room = *room ? *room * 2 : 4096;
            spec->merges = xreallocarray(spec->merges, *room, sizeof spec->merges[0]);
        }
        spec->merges[spec->n_merges++] = (struct bpe_merge){ left, right, rank, id };
    }
    return true;
}

static bool add_scored_merges(struct tokenizer_spec *spec, const struct tokenizer_gguf *gguf,
                              struct err *err)
{
    uint32_t *ranks = xcalloc(spec->n_tokens, sizeof ranks[0]);
    struct str *names = xcalloc(spec->n_tokens, sizeof names[0]);
    for (size_t id = 0; id < spec->n_tokens; id++) {
        if (type_of(gguf, id) == TYPE_NORMAL)
            names[id] = spec->tokens[id].key;
    }
    struct token_index index;
    token_index_init(&index, names, spec->n_tokens);
    size_t room = 0;
    bool good = rank_scores(gguf, ranks, err);
    for (uint32_t id = 0; good && id < spec->n_tokens; id++) {
        if (names[id].data && token_index_find(&index, names[id]) == id)
            good = add_cuts(spec, &index, id, ranks[id], &room, err);
    }
    token_index_release(&index);
    free(names);
    free(ranks);
    return good;
}

static bool load_llama(struct tokenizer_spec *spec, const struct tokenizer_gguf *gguf,
                       bool *add_bos, struct err *err)
{
    if (!gguf->scores)
        return err_set(err, ERR_FORMAT, "no tokenizer.ggml.scores");
    *add_bos = true;
    spec->byte_fallback = true;
    spec->fuse_unknown = true;
    spec->unknown_id = gguf->unknown_id;
    if (gguf->add_space_prefix != TOKENIZER_GGUF_NO) {
        spec->normalizers[spec->n_normalizers++] =
            (struct normalizer_rule){ .kind = NORMALIZER_PREPEND, .with = BLANK_MARK };
        spec->start = TOKENIZER_START_STRIP;
        spec->n_strip = 1;
    }
    spec->normalizers[spec->n_normalizers++] = (struct normalizer_rule){ .kind = NORMALIZER_REPLACE,
                                                                         .find = STR(" "),
                                                                         .with = BLANK_MARK };
    for (size_t id = 0; id < spec->n_tokens; id++) {
        struct tokenizer_spec_token *token = &spec->tokens[id];
        const int type = type_of(gguf, id);
        uint8_t byte;
        if (type == TYPE_NORMAL)
            token->text = unmarked(&spec->arena, token->key);
        else if (type == TYPE_BYTE && tokenizer_spec_read_byte(token->key, &byte))
            token->text = arena_str(&spec->arena, (struct str){ (const char *)&byte, 1 });
        else if (type == TYPE_BYTE)
            return err_set(err, ERR_FORMAT, "byte token %zu is not called <0x..>", id);
        if (!token->text.data)
            return too_large(err);
        token->in_model = (type == TYPE_NORMAL || type == TYPE_BYTE) && token->key.size > 0;
    }
    return add_scored_merges(spec, gguf, err);
}

static bool add_ids(struct tokenizer_spec *spec, const struct tokenizer_gguf *gguf, bool add_bos,
                    struct err *err)
{
    const uint32_t ids[] = { gguf->bos_id, gguf->eos_id, gguf->eot_id, gguf->eom_id,
                             gguf->unknown_id };
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        if (ids[i] != TOKENIZER_GGUF_NO_ID && ids[i] >= spec->n_tokens)
            return err_set(err, ERR_FORMAT, "special token %u of a vocabulary of %zu", ids[i],
                           spec->n_tokens);
    }
    for (size_t i = 1; i < 4; i++) { // eos, eot, eom
        if (ids[i] != TOKENIZER_GGUF_NO_ID && !tokenizer_spec_add_end_id(spec, ids[i], err))
            return false;
    }
    spec->bos_id = gguf->bos_id;
    if (gguf->add_bos != TOKENIZER_GGUF_UNSAID)
        add_bos = gguf->add_bos == TOKENIZER_GGUF_YES;
    if (add_bos && gguf->bos_id != TOKENIZER_GGUF_NO_ID)
        spec->before[spec->n_before++] = gguf->bos_id;
    if (gguf->add_eos == TOKENIZER_GGUF_YES && gguf->eos_id != TOKENIZER_GGUF_NO_ID)
        spec->behind[spec->n_behind++] = gguf->eos_id;
    return tokenizer_spec_add_known_ends(spec, err);
}

/* Of the names, in order: what makes two vocabularies the same. */
static uint64_t hash_tokens(const struct tokenizer_gguf *gguf)
{
    struct hash_stream *stream = hash_stream_new();
    hash_stream_add(stream, gguf->pre.data, gguf->pre.size);
    for (size_t i = 0; i < gguf->n_tokens; i++) {
        hash_stream_add(stream, gguf->tokens[i].data, gguf->tokens[i].size);
        hash_stream_add(stream, "", 1);
    }
    const uint64_t hash = hash_stream_value(stream);
    hash_stream_free(stream);
    return hash;
}

struct tokenizer *tokenizer_load_gguf(const struct tokenizer_gguf *gguf, struct err *err)
{
    struct tokenizer_spec spec;
    struct tokenizer *tokenizer = NULL;
    bool add_bos = false, good;
    tokenizer_spec_init(&spec);
    if (!add_tokens(&spec, gguf, err))
        goto done;
    if (str_is(gguf->model, "gpt2"))
        good = load_gpt2(&spec, gguf, &add_bos, err);
    else if (str_is(gguf->model, "llama"))
        good = load_llama(&spec, gguf, &add_bos, err);
    else
        good = err_set(err, ERR_UNSUPPORTED, "tokenizer.ggml.model \"%.*s\" is not supported",
                       STR_ARG(gguf->model));
    if (!good || !add_ids(&spec, gguf, add_bos, err))
        goto done;
    spec.source_hash = hash_tokens(gguf);
    tokenizer = tokenizer_open_spec(&spec, err);
done:
    tokenizer_spec_release(&spec);
    return tokenizer;
}
