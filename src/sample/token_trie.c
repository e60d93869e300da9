/* Tokens sorted by their bytes are the tree in depth-first order: a node is made where a token goes
 * on beyond what it has in common with the one before.
 *
 * No text may get stuck for want of a token, so characters count only if they can be written from
 * wherever a token may end. With a token for each byte of UTF-8 that is all of them. Else a
 * character needs a token of its own or one for each of its bytes; and tokens that end within a
 * character are left out unless each byte that may follow is a token. */
#include "sample/token_trie.h"

#include <stdlib.h>

#include "base/memory.h"
#include "text/tokenizer.h"

struct sorted_token {
    struct str text;
    uint32_t id;
};

static int compare_tokens(const void *a, const void *b)
{
    const struct sorted_token *left = a, *right = b;
    const int order = str_compare(left->text, right->text);
    return order ? order : left->id < right->id ? -1 : 1;
}

/* Which bytes are tokens of their own. */
static void find_bytes(const struct sorted_token *tokens, uint32_t n_tokens, bool has[256])
{
    for (uint32_t i = 0; i < n_tokens; i++) {
        if (tokens[i].text.size == 1)
            has[(uint8_t)tokens[i].text.data[0]] = true;
    }
}

static bool has_all(const bool has[256], unsigned first, unsigned last)
{
    for (unsigned byte = first; byte <= last; byte++) {
        if (!has[byte])
            return false;
    }
    return true;
}

static bool is_spelled(const bool has[256], uint32_t code_point)
{
    char bytes[4];
    const size_t size = utf8_write(code_point, bytes);
    for (size_t i = 0; i < size; i++) {
        if (!has[(uint8_t)bytes[i]])
            return false;
    }
    return true;
}

static void find_characters(struct token_trie *trie, const struct sorted_token *tokens,
                            uint32_t n_tokens, const bool has[256])
{
    size_t room = n_tokens + 64, n = 0;
    struct code_range *ranges = xcalloc(room, sizeof *ranges);
    for (uint32_t i = 0; i < n_tokens; i++) {
        uint32_t code_point;
        if (utf8_decode(tokens[i].text, &code_point) == tokens[i].text.size)
            ranges[n++] = (struct code_range){ code_point, code_point };
    }
    for (uint32_t point = 0; point <= GRAMMAR_CODE_POINT_CAP; point++) {
        if ((point >= 0xd800 && point < 0xe000) || !is_spelled(has, point))
            continue;
        if (n > 0 && ranges[n - 1].last + 1 == point && ranges[n - 1].first <= point) {
            ranges[n - 1].last = point;
            continue;
        }
        if (n == room)
            ranges = xreallocarray(ranges, room *= 2, sizeof *ranges);
        ranges[n++] = (struct code_range){ point, point };
    }
    trie->characters = ranges;
    trie->n_characters = code_ranges_normalise(ranges, n);
}

/* Leaves out what may strand a text; returns how many tokens are left. */
static uint32_t drop_partial(struct sorted_token *tokens, uint32_t n_tokens, const bool has[256])
{
    uint32_t n = 0;
    if (has_all(has, 0x80, 0xbf))
        return n_tokens;
    for (uint32_t i = 0; i < n_tokens; i++) {
        if (utf8_complete_prefix(tokens[i].text) == tokens[i].text.size)
            tokens[n++] = tokens[i];
    }
    return n;
}

static uint32_t common_prefix(struct str a, struct str b)
{
    uint32_t n = 0;
    while (n < a.size && n < b.size && a.data[n] == b.data[n])
        n++;
    return n;
}

static void build_nodes(struct token_trie *trie, const struct sorted_token *tokens)
{
    uint32_t path[TOKEN_TRIE_DEPTH_CAP + 1] = { 0 }; // the node of each depth
    uint32_t depth = 0;
    struct str last = STR_NONE;
    trie->n_nodes = 1;
    for (uint32_t i = 0; i < trie->n_tokens; i++) {
        const struct str text = tokens[i].text;
        const uint32_t shared = common_prefix(last, text);
        for (; depth > shared; depth--)
            trie->ends[path[depth]] = trie->n_nodes;
        for (; depth < text.size; depth++) {
            const uint32_t node = trie->n_nodes++;
            trie->bytes[node] = (uint8_t)text.data[depth];
            trie->depths[node] = (uint16_t)(depth + 1);
            trie->firsts[node] = i;
            path[depth + 1] = node;
        }
        trie->tokens[i] = tokens[i].id;
        trie->texts[tokens[i].id] = text;
        last = text;
    }
    for (; depth > 0; depth--)
        trie->ends[path[depth]] = trie->n_nodes;
    trie->ends[0] = trie->n_nodes;
    trie->firsts[trie->n_nodes] = trie->n_tokens;
}

static uint32_t gather(const struct tokenizer *tokenizer, uint32_t vocab_size,
                       struct sorted_token *out, size_t *n_bytes)
{
    const size_t n_ids = tokenizer_n_tokens(tokenizer);
    uint32_t n = 0;
    for (uint32_t id = 0; id < n_ids && id < vocab_size; id++) {
        const struct str text = tokenizer_token_bytes(tokenizer, id);
        if (text.size == 0 || text.size > TOKEN_TRIE_DEPTH_CAP ||
            tokenizer_is_special(tokenizer, id) || tokenizer_is_control(tokenizer, id) ||
            tokenizer_is_end(tokenizer, id))
            continue;
        out[n++] = (struct sorted_token){ .text = text, .id = id };
        *n_bytes += text.size;
    }
    return n;
}

static void copy_ends(struct token_trie *trie, const struct tokenizer *tokenizer)
{
    size_t n_ids;
    const uint32_t *ids = tokenizer_end_ids(tokenizer, &n_ids);
    trie->end_ids = xcalloc(n_ids + 1, sizeof *trie->end_ids);
    for (size_t i = 0; i < n_ids; i++) {
        if (ids[i] < trie->vocab_size)
            trie->end_ids[trie->n_end_ids++] = ids[i];
    }
}

struct token_trie *token_trie_new(const struct tokenizer *tokenizer, uint32_t vocab_size)
{
    struct token_trie *trie = xcalloc(1, sizeof *trie);
    struct sorted_token *tokens = xcalloc(vocab_size + 1u, sizeof *tokens);
    bool has[256] = { false };
    size_t n_bytes = 0;
    trie->vocab_size = vocab_size;
    uint32_t n = gather(tokenizer, vocab_size, tokens, &n_bytes);
    find_bytes(tokens, n, has);
    if (!has_all(has, 0, 0x7f) || !has_all(has, 0x80, 0xbf) || !has_all(has, 0xc2, 0xf4)) {
        find_characters(trie, tokens, n, has);
        n = drop_partial(tokens, n, has);
    }
    qsort(tokens, n, sizeof *tokens, compare_tokens);
    trie->n_tokens = n;
    trie->bytes = xcalloc(n_bytes + 1, sizeof *trie->bytes);
    trie->depths = xcalloc(n_bytes + 1, sizeof *trie->depths);
    trie->ends = xcalloc(n_bytes + 1, sizeof *trie->ends);
    trie->firsts = xcalloc(n_bytes + 2, sizeof *trie->firsts);
    trie->tokens = xcalloc(n + 1u, sizeof *trie->tokens);
    trie->texts = xcalloc(vocab_size, sizeof *trie->texts);
    build_nodes(trie, tokens);
    free(tokens);
    copy_ends(trie, tokenizer);
    return trie;
}

void token_trie_free(struct token_trie *trie)
{
    if (trie == NULL)
        return;
    free(trie->bytes);
    free(trie->depths);
    free(trie->ends);
    free(trie->firsts);
    free(trie->tokens);
    free(trie->end_ids);
    free(trie->texts);
    free(trie->characters);
    free(trie);
}
