/* A list, newest first: a stage has a few grammars, and looks one up once a request. */
#include "sample/grammar_cache.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/memory.h"

struct cached_grammar {
    struct cached_grammar *next;
    enum sampling_language language;
    uint64_t hash;
    char *text;
    size_t text_bytes;
    uint32_t n_users;
    struct grammar *grammar;
};

struct grammar_cache {
    const struct tokenizer *tokenizer;
    uint32_t vocab_size;
    struct token_trie *trie; // NULL: no grammar has come yet
    struct cached_grammar *first;
};

struct grammar_cache *grammar_cache_new(const struct tokenizer *tokenizer, uint32_t vocab_size)
{
    struct grammar_cache *cache = xcalloc(1, sizeof *cache);
    cache->tokenizer = tokenizer;
    cache->vocab_size = vocab_size;
    return cache;
}

static void free_cached(struct cached_grammar *cached)
{
    grammar_free(cached->grammar);
    free(cached->text);
    free(cached);
}

void grammar_cache_free(struct grammar_cache *cache)
{
    if (cache == NULL)
        return;
    while (cache->first != NULL) {
        struct cached_grammar *cached = cache->first;
        cache->first = cached->next;
        free_cached(cached);
    }
    token_trie_free(cache->trie);
    free(cache);
}

/* Takes the grammar out of the list; NULL: it is not there. */
static struct cached_grammar *unlink_equal(struct grammar_cache *cache,
                                           const struct sampling_grammar *source, uint64_t hash)
{
    for (struct cached_grammar **at = &cache->first; *at != NULL; at = &(*at)->next) {
        struct cached_grammar *cached = *at;
        const struct str text = { cached->text, cached->text_bytes };
        if (cached->hash == hash && cached->language == source->language &&
            str_equal(text, source->text)) {
            *at = cached->next;
            return cached;
        }
    }
    return NULL;
}

/* Lets those go that have not been asked for the longest. */
static void drop_idle(struct grammar_cache *cache)
{
    uint32_t n_idle = 0;
    for (struct cached_grammar **at = &cache->first; *at != NULL;) {
        struct cached_grammar *cached = *at;
        n_idle += cached->n_users == 0;
        if (cached->n_users == 0 && n_idle > GRAMMAR_CACHE_IDLE_CAP) {
            *at = cached->next;
            free_cached(cached);
        } else {
            at = &cached->next;
        }
    }
}

static struct cached_grammar *compile(struct grammar_cache *cache,
                                      const struct sampling_grammar *source, uint64_t hash,
                                      struct err *err)
{
    if (cache->tokenizer == NULL) {
        err_set(err, ERR_UNSUPPORTED, "the last stage has no tokenizer, which grammars need");
        return NULL;
    }
    if (cache->trie == NULL)
        cache->trie = token_trie_new(cache->tokenizer, cache->vocab_size);
    struct grammar *grammar = grammar_new(source, cache->trie, err);
    if (grammar == NULL)
        return NULL;
    struct cached_grammar *cached = xcalloc(1, sizeof *cached);
    cached->language = source->language;
    cached->hash = hash;
    cached->text = xstrndup(source->text.data, source->text.size);
    cached->text_bytes = source->text.size;
    cached->grammar = grammar;
    return cached;
}

struct grammar *grammar_cache_take(struct grammar_cache *cache,
                                   const struct sampling_grammar *source, struct err *err)
{
    const uint64_t hash = hash_xxh3(source->text.data, source->text.size);
    struct cached_grammar *cached = unlink_equal(cache, source, hash);
    if (cached == NULL)
        cached = compile(cache, source, hash, err);
    if (cached == NULL)
        return NULL;
    cached->n_users++;
    cached->next = cache->first;
    cache->first = cached;
    drop_idle(cache);
    return cached->grammar;
}

void grammar_cache_give(struct grammar_cache *cache, struct grammar *grammar)
{
    for (struct cached_grammar *cached = cache->first; cached != NULL; cached = cached->next) {
        if (cached->grammar == grammar && cached->n_users > 0) {
            cached->n_users--;
            return;
        }
    }
}
