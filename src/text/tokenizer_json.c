/* tokenizer.json as Hugging Face's library reads it: the model, the added tokens, and the rules
 * around them (tokenizer_json_rules.h). The document stays in memory while the spec borrows its
 * strings. Limits are those of tokenizer_spec.h. */
#include "text/tokenizer_json.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/memory.h"
#include "text/token_index.h"
#include "text/tokenizer_image.h"
#include "text/tokenizer_json_rules.h"

/* A document being read. */
struct reading {
    struct tokenizer_spec spec;
    struct decoder decoder;
    struct json *document, *config;
    struct str *contents; // [spec.n_tokens] of the model's vocabulary; data NULL: no such id
    struct token_index index;
};

/* A field that must be absent, null or empty for our merging to be right. */
static bool check_absent(const struct json *model, const char *key, struct err *err)
{
    const struct json *value = json_get(model, key);
    const enum json_kind kind = json_kind(value);
    const bool empty = kind == JSON_KIND_STRING && json_text(value).size == 0;
    const bool zero =
        (kind == JSON_KIND_REAL || kind == JSON_KIND_INTEGER) && json_number(value, 1) == 0;
    if (kind == JSON_KIND_MISSING || kind == JSON_KIND_NULL || empty || zero)
        return true;
    return err_set(err, ERR_UNSUPPORTED, "model: %s is not supported", key);
}

static bool check_model(const struct json *model, struct err *err)
{
    static const char *const absent[] = { "dropout", "continuing_subword_prefix",
                                          "end_of_word_suffix" };
    if (json_kind(model) != JSON_KIND_OBJECT)
        return err_set(err, ERR_FORMAT, "no model");
    const struct json *type = json_get(model, "type");
    const struct str name = json_text(type);
    if (type ? !str_is(name, "BPE") : !json_get(model, "merges"))
        return err_set(err, ERR_UNSUPPORTED, "model \"%.*s\" is not supported (only BPE is)",
                       (int)(name.size < 80 ? name.size : 80), name.data ? name.data : "");
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) {
        if (!check_absent(model, absent[i], err))
            return false;
    }
    return true;
}

/* The highest id of the vocabulary and the added tokens, plus one. */
static bool count_tokens(struct reading *reading, const struct json *vocab,
                         const struct json *added, struct err *err)
{
    uint32_t id, last = 0;
    for (void *it = json_first(vocab); it; it = json_next(vocab, it)) {
        if (!json_read_u32(json_member_value(it), &id) || id >= TOKENIZER_TOKENS_CAP)
            return err_set(err, ERR_FORMAT, "model.vocab: bad id of \"%.*s\"",
                           STR_ARG(json_member_key(it)));
        last = id > last ? id : last;
    }
    if (json_size(added) > TOKENIZER_ADDED_CAP)
        return err_set(err, ERR_FORMAT, "%zu added tokens (at most %zu)", json_size(added),
                       TOKENIZER_ADDED_CAP);
    for (size_t i = 0; i < json_size(added); i++) {
        if (!json_read_u32(json_get(json_at(added, i), "id"), &id) || id >= TOKENIZER_TOKENS_CAP)
            return err_set(err, ERR_FORMAT, "added_tokens: item %zu has no good id", i);
        last = id > last ? id : last;
    }
    reading->spec.n_tokens = (size_t)last + 1;
    return true;
}

static bool read_vocab(struct reading *reading, const struct json *vocab, struct err *err)
{
    struct tokenizer_spec *spec = &reading->spec;
    spec->tokens = xcalloc(spec->n_tokens, sizeof spec->tokens[0]);
    reading->contents = xcalloc(spec->n_tokens, sizeof reading->contents[0]);
    for (void *it = json_first(vocab); it; it = json_next(vocab, it)) {
        uint32_t id;
        must(json_read_u32(json_member_value(it), &id) && id < spec->n_tokens);
        if (reading->contents[id].data)
            return err_set(err, ERR_FORMAT, "model.vocab: two tokens have the id %u", id);
        const struct str content = json_member_key(it);
        struct tokenizer_spec_token *token = &spec->tokens[id];
        reading->contents[id] = content;
        token->key = content;
        token->in_model = content.size > 0;
        if (spec->byte_level) {
            char *bytes = arena_alloc(&spec->arena, content.size + 1);
            size_t n;
            if (!bytes)
                return err_set(err, ERR_FORMAT, "a vocabulary of more than %zu bytes",
                               TOKENIZER_BYTES_CAP);
            token->in_model = tokenizer_spec_read_letters(content, bytes, &n) && n > 0;
            if (token->in_model)
                token->key = (struct str){ bytes, n };
        }
    }
    token_index_init(&reading->index, reading->contents, spec->n_tokens);
    return true;
}

/* A merge is "left right" in older files and ["left", "right"] in newer ones. */
static bool read_merge(const struct json *json, struct str *left, struct str *right)
{
    struct str text;
    if (json_read_string(json, &text)) {
        const size_t blank = str_find_char(text, ' ');
        if (blank == SIZE_MAX)
            return false;
        *left = str_slice(text, 0, blank);
        *right = str_slice(text, blank + 1, text.size);
        return str_find_char(*right, ' ') == SIZE_MAX;
    }
    return json_size(json) == 2 && json_read_string(json_at(json, 0), left) &&
           json_read_string(json_at(json, 1), right);
}

static bool read_merges(struct reading *reading, const struct json *merges, struct err *err)
{
    struct tokenizer_spec *spec = &reading->spec;
    const size_t n = json_size(merges);
    if (json_kind(merges) != JSON_KIND_ARRAY || n > TOKENIZER_MERGES_CAP)
        return err_set(err, ERR_FORMAT, "model.merges is no list of at most %zu pairs",
                       TOKENIZER_MERGES_CAP);
    spec->merges = xcalloc(n ? n : 1, sizeof spec->merges[0]);
    for (size_t i = 0; i < n; i++) {
        struct str left, right;
        if (!read_merge(json_at(merges, i), &left, &right))
            return err_set(err, ERR_FORMAT, "model.merges: item %zu is no pair", i);
        const struct bpe_merge merge = {
            .left = token_index_find(&reading->index, left),
            .right = token_index_find(&reading->index, right),
            .rank = (uint32_t)i,
            .id = token_index_find_joined(&reading->index, left, right),
        };
        if (merge.left == TOKEN_INDEX_NONE || merge.right == TOKEN_INDEX_NONE ||
            merge.id == TOKEN_INDEX_NONE)
            return err_set(err, ERR_FORMAT,
                           "model.merges: item %zu names a token that is not in the vocabulary", i);
        spec->merges[spec->n_merges++] = merge;
    }
    return true;
}

static bool read_added(struct reading *reading, const struct json *list, struct err *err)
{
    struct tokenizer_spec *spec = &reading->spec;
    const size_t n = json_size(list);
    spec->added = xcalloc(n ? n : 1, sizeof spec->added[0]);
    for (size_t i = 0; i < n; i++) {
        const struct json *json = json_at(list, i);
        struct tokenizer_spec_added added = {
            .single_word = json_bool(json_get(json, "single_word"), false),
            .left_strip = json_bool(json_get(json, "lstrip"), false),
            .right_strip = json_bool(json_get(json, "rstrip"), false),
        };
        if (!json_read_string(json_get(json, "content"), &added.content) ||
            !json_read_u32(json_get(json, "id"), &added.id))
            return err_set(err, ERR_FORMAT, "added_tokens: item %zu has no content", i);
        const bool special = json_bool(json_get(json, "special"), false);
        added.normalized = json_bool(json_get(json, "normalized"), !special);
        /* A content that the model's vocabulary has keeps its id there. */
        const uint32_t known = token_index_find(&reading->index, added.content);
        if (known != TOKEN_INDEX_NONE)
            added.id = known;
        else if (reading->contents[added.id].data)
            return err_set(err, ERR_FORMAT, "added_tokens: item %zu has the id of another token",
                           i);
        struct tokenizer_spec_token *token = &spec->tokens[added.id];
        if (known == TOKEN_INDEX_NONE)
            token->key = added.content;
        token->special = token->special || special;
        token->control = token->special || tokenizer_spec_is_structural(added.content);
        spec->added[spec->n_added++] = added;
    }
    return true;
}

/* Added tokens that are found in normalised text are also shown in it, as Hugging Face's library
 * does: their contents become the normalised ones. */
static bool normalize_added(struct reading *reading, struct err *err)
{
    struct tokenizer_spec *spec = &reading->spec;
    struct normalizer *normalizer = normalizer_new(spec->normalizers, spec->n_normalizers, err);
    struct normalizer_scratch *scratch = normalizer_scratch_new();
    bool good = normalizer != NULL;
    for (size_t i = 0; good && i < spec->n_added; i++) {
        const struct tokenizer_spec_added *added = &spec->added[i];
        struct marked_text text = { .text = added->content };
        if (!added->normalized)
            continue;
        good = normalizer_run(normalizer, scratch, text, TOKENIZER_TOKEN_BYTES_CAP, &text, err);
        if (good)
            reading->contents[added->id] = arena_str(&spec->arena, text.text);
    }
    normalizer_scratch_free(scratch);
    normalizer_free(normalizer);
    return good;
}

/* What each token decodes to: of its content as the file has it. */
static bool decode_tokens(struct reading *reading, struct err *err)
{
    if (!normalize_added(reading, err))
        return false;
    struct tokenizer_spec *spec = &reading->spec;
    for (size_t id = 0; id < spec->n_tokens; id++) {
        struct tokenizer_spec_token *token = &spec->tokens[id];
        if (!token->key.data)
            continue;
        const struct str content = reading->contents[id].data ? reading->contents[id] : token->key;
        token->text = decoder_apply(&reading->decoder, &spec->arena, content);
        if (!token->text.data)
            return err_set(err, ERR_FORMAT, "a vocabulary of more than %zu bytes",
                           TOKENIZER_BYTES_CAP);
    }
    return true;
}

/* The id of a special token of tokenizer_config.json: its text, or an object with the text. */
static uint32_t config_id(const struct reading *reading, const char *name)
{
    const struct json *json = json_get(reading->config, name);
    struct str content;
    if (!json_read_string(json, &content) && !json_read_string(json_get(json, "content"), &content))
        return UINT32_MAX;
    return tokenizer_spec_find(&reading->spec, content);
}

static bool find_special_ids(struct reading *reading, struct err *err)
{
    static const char *const names[] = {
        "<s>", "<|begin_of_text|>", "<bos>", "<|startoftext|>",
        "<\xef\xbd\234begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"
    };
    struct tokenizer_spec *spec = &reading->spec;
    const uint32_t eos = config_id(reading, "eos_token");
    spec->bos_id = config_id(reading, "bos_token");
    if (spec->bos_id == UINT32_MAX && spec->n_before > 0)
        spec->bos_id = spec->before[0];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (spec->bos_id == UINT32_MAX && !reading->config)
            spec->bos_id = tokenizer_spec_find(spec, str_from(names[i]));
    }
    if (eos != UINT32_MAX && !tokenizer_spec_add_end_id(spec, eos, err))
        return false;
    return tokenizer_spec_add_known_ends(spec, err);
}

static bool read_model(struct reading *reading, const struct json *model, struct err *err)
{
    struct tokenizer_spec *spec = &reading->spec;
    const struct json *added = json_get(reading->document, "added_tokens");
    const struct json *vocab = json_get(model, "vocab");
    if (!check_model(model, err))
        return false;
    if (json_kind(vocab) != JSON_KIND_OBJECT)
        return err_set(err, ERR_FORMAT, "no model.vocab");
    spec->byte_fallback = json_bool(json_get(model, "byte_fallback"), false);
    spec->fuse_unknown = json_bool(json_get(model, "fuse_unk"), false);
    spec->ignore_merges = json_bool(json_get(model, "ignore_merges"), false);
    if (!count_tokens(reading, vocab, added, err) || !read_vocab(reading, vocab, err) ||
        !read_added(reading, added, err) || !read_merges(reading, json_get(model, "merges"), err))
        return false;
    const struct str unknown = json_text(json_get(model, "unk_token"));
    if (unknown.data) // one that is no token of the model is like none
        spec->unknown_id = token_index_find(&reading->index, unknown);
    return true;
}

static bool read_document(struct reading *reading, struct err *err)
{
    struct tokenizer_spec *spec = &reading->spec;
    const struct json *root = reading->document;
    if (json_kind(root) != JSON_KIND_OBJECT)
        return err_set(err, ERR_FORMAT, "no JSON object");
    return tokenizer_json_normalizer(spec, json_get(root, "normalizer"), err) &&
           tokenizer_json_pretokenizer(spec, json_get(root, "pre_tokenizer"), err) &&
           read_model(reading, json_get(root, "model"), err) &&
           tokenizer_json_decoder(spec, json_get(root, "decoder"), &reading->decoder, err) &&
           decode_tokens(reading, err) &&
           tokenizer_json_processor(spec, json_get(root, "post_processor"), err) &&
           find_special_ids(reading, err);
}

struct tokenizer *tokenizer_load_json(struct str tokenizer_json, struct str tokenizer_config,
                                      struct err *err)
{
    if (tokenizer_json.size > TOKENIZER_JSON_BYTES_CAP) {
        err_set(err, ERR_FORMAT, "tokenizer.json has more than %zu bytes",
                TOKENIZER_JSON_BYTES_CAP);
        return NULL;
    }
    struct reading reading = { 0 };
    struct tokenizer *tokenizer = NULL;
    tokenizer_spec_init(&reading.spec);
    reading.spec.source_hash = hash_xxh3(tokenizer_json.data, tokenizer_json.size);
    reading.document = json_parse(tokenizer_json, err);
    if (!reading.document)
        goto done;
    if (tokenizer_config.data) {
        reading.config = json_parse(tokenizer_config, err);
        if (!reading.config) {
            err_wrap(err, "tokenizer_config.json");
            goto done;
        }
    }
    if (read_document(&reading, err))
        tokenizer = tokenizer_open_spec(&reading.spec, err);
done:
    tokenizer_spec_release(&reading.spec);
    token_index_release(&reading.index);
    free(reading.contents);
    json_free(reading.document);
    json_free(reading.config);
    return tokenizer;
}
