/* The best of uniform logits: every allowed token is as likely as any other, and where a string may
 * go on that is nearly all of the vocabulary. Of the ways out those of one byte are tried: a
 * shortest text is made of them wherever the vocabulary has all bytes, and nearly so elsewhere. */
#include "sample/grammar_random.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "sample/sampler.h"

#define TRIES 64u // of longer tokens, where no single byte is allowed

struct random_text {
    struct grammar *grammar;
    const struct token_trie *trie;
    const struct grammar_random_options *options;
    struct sampler *sampler;
    float *logits;
    int32_t *ids;
    uint32_t n_ids;
    struct grammar_place place;
    uint64_t counter;
};

static bool is_allowed(const uint64_t *mask, uint32_t id)
{
    return mask[id >> 6] >> (id & 63) & 1;
}

static bool is_end(const struct token_trie *trie, int32_t id)
{
    for (uint32_t i = 0; i < trie->n_end_ids; i++) {
        if (trie->end_ids[i] == (uint32_t)id)
            return true;
    }
    return false;
}

/* splitmix64: a token a nanosecond, where philox would take longer than all else. */
static float next_logit(uint64_t *counter)
{
    uint64_t z = *counter += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (float)((z ^ z >> 31) >> 40);
}

static bool draw(struct random_text *text, const uint64_t *mask, int32_t *id, struct err *err)
{
    struct sampling_params params;
    struct sampled_token sampled;
    sampling_params_init(&params);
    for (uint32_t i = 0; i < text->trie->vocab_size; i++)
        text->logits[i] = next_logit(&text->counter);
    const struct sampler_row row = { .logits = text->logits,
                                     .params = &params,
                                     .ids = text->ids,
                                     .n_ids = text->n_ids,
                                     .allowed = mask };
    if (!sampler_draw(text->sampler, &row, &sampled, err))
        return err_wrap(err, "a dead end");
    *id = sampled.token;
    return true;
}

/* How far from its end the text is after the token. */
static uint32_t left_after(struct random_text *text, uint32_t id)
{
    struct grammar_place place = text->place;
    struct err err;
    text->ids[text->n_ids] = (int32_t)id;
    if (!grammar_follow(text->grammar, &place, text->ids, text->n_ids + 1, &err))
        return UINT32_MAX;
    return grammar_left_bytes(text->grammar, &place);
}

/* The end if it may be, else the token that leads nearest to it. */
static bool leave(struct random_text *text, const uint64_t *lent_mask, int32_t *id, struct err *err)
{
    const struct token_trie *trie = text->trie;
    const size_t mask_bytes = ((size_t)trie->vocab_size + 63) / 64 * sizeof(uint64_t);
    uint32_t least = UINT32_MAX, n_longer = 0;
    if (grammar_may_end(text->grammar, &text->place)) {
        *id = (int32_t)trie->end_ids[0];
        return true;
    }
    uint64_t *mask = xmalloc(mask_bytes);
    memcpy(mask, lent_mask, mask_bytes);
    for (uint32_t pass = 0; pass < 2 && least == UINT32_MAX; pass++) {
        for (uint32_t token = 0; token < trie->vocab_size && n_longer < TRIES; token++) {
            const bool is_byte = trie->texts[token].size == 1;
            if (!is_allowed(mask, token) || trie->texts[token].size == 0 || is_byte != (pass == 0))
                continue;
            n_longer += pass;
            const uint32_t left = left_after(text, token);
            if (left < least) {
                least = left;
                *id = (int32_t)token;
            }
        }
    }
    free(mask);
    return least != UINT32_MAX || err_set(err, ERR_BATCH_LOST, "a dead end: no way leads out");
}

static bool run(struct random_text *text, struct buf *out, struct grammar_random_cost *cost,
                struct err *err)
{
    while (text->n_ids < text->options->n_tokens_cap) {
        const uint64_t start_ns = clock_ns();
        int32_t id = -1;
        if (!grammar_follow(text->grammar, &text->place, text->ids, text->n_ids, err))
            return false;
        const uint64_t *mask = grammar_mask(text->grammar, &text->place, err);
        if (mask == NULL)
            return false;
        if (cost != NULL && cost->ns != NULL)
            cost->ns[cost->n_masks] = clock_ns() - start_ns;
        if (cost != NULL)
            cost->n_masks++;
        if (!(text->n_ids < text->options->n_random ? draw(text, mask, &id, err)
                                                    : leave(text, mask, &id, err)))
            return err_wrap(err, "after %u tokens", text->n_ids);
        if (is_end(text->trie, id))
            return true;
        text->ids[text->n_ids++] = id;
        buf_add_str(out, text->trie->texts[id]);
    }
    return err_set(err, ERR_BATCH_LOST, "the text has not ended after %u tokens", text->n_ids);
}

bool grammar_random(struct grammar *grammar, const struct token_trie *trie,
                    const struct grammar_random_options *options, struct buf *out,
                    struct grammar_random_cost *cost, struct err *err)
{
    struct random_text text = {
        .grammar = grammar, .trie = trie, .options = options, .counter = options->seed
    };
    text.sampler = sampler_new(trie->vocab_size, err);
    if (text.sampler == NULL)
        return false;
    text.logits = xcalloc(trie->vocab_size, sizeof *text.logits);
    text.ids = xcalloc(options->n_tokens_cap + 1u, sizeof *text.ids);
    const bool good = run(&text, out, cost, err);
    sampler_free(text.sampler);
    free(text.logits);
    free(text.ids);
    return good;
}
