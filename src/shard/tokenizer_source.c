/* The one place that decides from a path how a tokenizer is read, and that carries the vocabulary
 * of a GGUF (weights/) to the tokenizer (text/), which know nothing of each other. */
#include "shard/tokenizer_source.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "text/tokenizer.h"
#include "text/tokenizer_bin.h"
#include "text/tokenizer_gguf.h"
#include "text/tokenizer_json.h"
#include "weights/gguf.h"

#define CONFIG_BYTES_CAP ((size_t)16 << 20)

static void read_id(const struct gguf *gguf, const char *key, uint32_t *id)
{
    uint32_t value;
    if (gguf_read_u32(gguf_find(gguf, key), &value))
        *id = value;
}

static void read_flag(const struct gguf *gguf, const char *key, enum tokenizer_gguf_flag *flag)
{
    bool value;
    if (gguf_read_bool(gguf_find(gguf, key), &value))
        *flag = value ? TOKENIZER_GGUF_YES : TOKENIZER_GGUF_NO;
}

/* The arrays of the vocabulary, and who frees them. */
struct arrays {
    struct str *tokens, *merges;
    float *scores;
    int64_t *wide_types;
    int32_t *types;
};

static void arrays_release(struct arrays *arrays)
{
    free(arrays->tokens);
    free(arrays->merges);
    free(arrays->scores);
    free(arrays->wide_types);
    free(arrays->types);
}

static bool read_arrays(const struct gguf *gguf, struct arrays *arrays, struct tokenizer_gguf *out,
                        struct err *err)
{
    size_t n;
    if (!gguf_read_strings(gguf_find(gguf, "tokenizer.ggml.tokens"), &arrays->tokens, &n))
        return err_set(err, ERR_NOT_FOUND, "no tokenizer.ggml.tokens");
    out->tokens = arrays->tokens;
    out->n_tokens = n;
    if (gguf_read_floats(gguf_find(gguf, "tokenizer.ggml.scores"), &arrays->scores, &n)) {
        if (n != out->n_tokens)
            return err_set(err, ERR_FORMAT, "%zu scores for %zu tokens", n, out->n_tokens);
        out->scores = arrays->scores;
    }
    if (gguf_read_integers(gguf_find(gguf, "tokenizer.ggml.token_type"), &arrays->wide_types, &n)) {
        if (n != out->n_tokens)
            return err_set(err, ERR_FORMAT, "%zu types for %zu tokens", n, out->n_tokens);
        arrays->types = xcalloc(n ? n : 1, sizeof arrays->types[0]);
        for (size_t i = 0; i < n; i++) {
            const int64_t type = arrays->wide_types[i];
            arrays->types[i] = type >= 0 && type <= INT32_MAX ? (int32_t)type : 0;
        }
        out->token_types = arrays->types;
    }
    if (gguf_read_strings(gguf_find(gguf, "tokenizer.ggml.merges"), &arrays->merges, &n)) {
        out->merges = arrays->merges;
        out->n_merges = n;
    }
    return true;
}

struct tokenizer *tokenizer_source_load_gguf(const struct gguf *gguf, struct err *err)
{
    struct tokenizer_gguf vocabulary;
    struct str json;
    if (gguf_read_str(gguf_find(gguf, "tokenizer.huggingface.json"), &json))
        return tokenizer_load_json(json, STR_NONE, err);
    tokenizer_gguf_init(&vocabulary);
    if (!gguf_read_str(gguf_find(gguf, "tokenizer.ggml.model"), &vocabulary.model)) {
        err_set(err, ERR_NOT_FOUND, "no tokenizer.ggml.model: the file has no vocabulary");
        return NULL;
    }
    (void)gguf_read_str(gguf_find(gguf, "tokenizer.ggml.pre"), &vocabulary.pre);
    read_id(gguf, "tokenizer.ggml.bos_token_id", &vocabulary.bos_id);
    read_id(gguf, "tokenizer.ggml.eos_token_id", &vocabulary.eos_id);
    read_id(gguf, "tokenizer.ggml.eot_token_id", &vocabulary.eot_id);
    read_id(gguf, "tokenizer.ggml.eom_token_id", &vocabulary.eom_id);
    read_id(gguf, "tokenizer.ggml.unknown_token_id", &vocabulary.unknown_id);
    read_flag(gguf, "tokenizer.ggml.add_bos_token", &vocabulary.add_bos);
    read_flag(gguf, "tokenizer.ggml.add_eos_token", &vocabulary.add_eos);
    read_flag(gguf, "tokenizer.ggml.add_space_prefix", &vocabulary.add_space_prefix);
    struct arrays arrays = { 0 };
    struct tokenizer *tokenizer = NULL;
    if (read_arrays(gguf, &arrays, &vocabulary, err))
        tokenizer = tokenizer_load_gguf(&vocabulary, err);
    arrays_release(&arrays);
    return tokenizer;
}

/* eos_token_id of a configuration: a number, a list, or not there. */
static bool add_ends(struct tokenizer *tokenizer, const struct json *ids, struct err *err)
{
    uint32_t id;
    if (json_read_u32(ids, &id))
        return tokenizer_add_end_id(tokenizer, id, err);
    for (size_t i = 0; i < json_size(ids); i++) {
        if (!json_read_u32(json_at(ids, i), &id))
            return err_set(err, ERR_FORMAT, "eos_token_id: item %zu is no id", i);
        if (!tokenizer_add_end_id(tokenizer, id, err))
            return false;
    }
    return true;
}

/* The file in the directory as text; false only when it is there and cannot be read. */
static bool read_beside(const char *directory, const char *name, size_t bytes_cap, struct buf *out,
                        bool *there, struct err *err)
{
    char *path = path_join(directory, name);
    buf_init(out, bytes_cap);
    *there = file_exists(path);
    const bool good = !*there || file_read(path, out, err);
    free(path);
    return good;
}

static bool add_config_ends(struct tokenizer *tokenizer, const char *directory, struct err *err)
{
    static const char *const names[] = { "config.json", "generation_config.json" };
    for (size_t i = 0; i < 2; i++) {
        struct buf text;
        bool there;
        bool good = read_beside(directory, names[i], CONFIG_BYTES_CAP, &text, &there, err);
        struct json *config = NULL;
        if (good && there) {
            config = json_parse(buf_view(&text), err);
            good = config && add_ends(tokenizer, json_get(config, "eos_token_id"), err);
            if (!good)
                err_wrap(err, "%s/%s", directory, names[i]);
        }
        json_free(config);
        buf_release(&text);
        if (!good)
            return false;
    }
    return true;
}

/* tokenizer.json at `path`, with the tokenizer_config.json of its directory, if there is one. */
static struct tokenizer *load_json(const char *path, const char *directory, struct err *err)
{
    struct buf text, config;
    struct tokenizer *tokenizer = NULL;
    bool there;
    buf_init(&text, TOKENIZER_JSON_BYTES_CAP);
    if (read_beside(directory, "tokenizer_config.json", CONFIG_BYTES_CAP, &config, &there, err) &&
        file_read(path, &text, err)) {
        tokenizer = tokenizer_load_json(buf_view(&text), there ? buf_view(&config) : STR_NONE, err);
        if (!tokenizer)
            err_wrap(err, "%s", path);
    }
    buf_release(&text);
    buf_release(&config);
    return tokenizer;
}

/* A directory without a tokenizer that can be read. One that has another kind is not like one that
 * has none: a model must not be served without its tokenizer because nobody looked. */
static void refuse_directory(const char *path, struct err *err)
{
    static const char *const others[] = { "tokenizer.model", "tekken.json", "tiktoken.model",
                                          "vocab.json" };
    err_set(err, ERR_NOT_FOUND, "%s: no tokenizer.bin and no tokenizer.json", path);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char *other = path_join(path, others[i]);
        if (file_exists(other))
            err_set(err, ERR_UNSUPPORTED, "%s is not read; a tokenizer.json is needed", other);
        free(other);
    }
}

static struct tokenizer *load_directory(const char *path, struct err *err)
{
    struct tokenizer *tokenizer = NULL;
    char *bin = path_join(path, "tokenizer.bin");
    char *json = path_join(path, "tokenizer.json");
    if (file_exists(bin))
        tokenizer = tokenizer_load_bin(bin, err);
    else if (file_exists(json))
        tokenizer = load_json(json, path, err);
    else
        refuse_directory(path, err);
    free(bin);
    free(json);
    return tokenizer;
}

struct tokenizer *tokenizer_source_load(const char *path, struct err *err)
{
    struct file_stat stat;
    if (!file_stat(path, &stat, err))
        return NULL;
    if (!stat.is_directory && gguf_is_file(path)) {
        struct gguf gguf;
        if (!gguf_open(&gguf, path, err))
            return NULL;
        struct tokenizer *tokenizer = tokenizer_source_load_gguf(&gguf, err);
        if (!tokenizer)
            err_wrap(err, "%s", path);
        gguf_close(&gguf);
        return tokenizer;
    }
    const size_t stem = (size_t)(path_base(path) - path);
    char *directory = stat.is_directory ? xstrdup(path)
                      : stem            ? xstrndup(path, stem)
                                        : xstrdup(".");
    struct tokenizer *tokenizer =
        stat.is_directory ? load_directory(path, err) : load_json(path, directory, err);
    if (tokenizer && !add_config_ends(tokenizer, directory, err)) {
        tokenizer_free(tokenizer);
        tokenizer = NULL;
    }
    free(directory);
    return tokenizer;
}
