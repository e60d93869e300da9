/* The sorted array is the trie: the tokens that share a prefix are a range of it, and one more byte
 * narrows the range by binary search. A token equal to the prefix stands first in its range.
 * Gemma has 6,414 added tokens; nearly all text has none and pays one table look-up a byte. */
#include "text/added_tokens.h"

#include "text/unicode_table.h"

static uint8_t byte_at(const struct added_tokens *added, uint32_t token, size_t depth)
{
    return (uint8_t)added->bytes[added->tokens[token].first + depth];
}

void added_tokens_index(struct added_tokens *added)
{
    uint32_t token = 0;
    for (unsigned b = 0; b < 256; b++) {
        added->starts[b] = token;
        while (token < added->n_tokens && byte_at(added, token, 0) == b)
            token++;
    }
    added->starts[256] = token;
}

/* The first token of [low, high), all of which are longer than depth, whose byte there is >= b. */
static uint32_t lower_bound(const struct added_tokens *added, uint32_t low, uint32_t high,
                            size_t depth, unsigned b)
{
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (byte_at(added, middle, depth) < b)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest allowed token at `at`, or NULL. */
static const struct added_token *longest_at(const struct added_tokens *added,
                                            struct marked_text text, bool allow_control, size_t at)
{
    const struct added_token *found = NULL;
    const uint8_t start = (uint8_t)text.text.data[at];
    uint32_t low = added->starts[start], high = added->starts[start + 1];
    size_t marked = text.marks ? at : text.text.size; // control tokens may reach up to here
    if (!text.marks && !allow_control)
        marked = at;
    for (size_t depth = 1; low < high; depth++) {
        while (text.marks && marked < at + depth && text.marks[marked])
            marked++;
        const struct added_token *token = &added->tokens[low];
        if (token->size == depth) {
            if (!(token->flags & ADDED_TOKEN_CONTROL) || marked >= at + depth)
                found = token;
            low++;
        }
        if (at + depth >= text.text.size)
            break;
        const uint8_t next = (uint8_t)text.text.data[at + depth];
        low = lower_bound(added, low, high, depth, next);
        high = lower_bound(added, low, high, depth, next + 1u);
    }
    return found;
}

static unsigned properties_before(struct str text, size_t at, size_t *first)
{
    size_t begin = at - 1;
    while (begin > 0 && ((uint8_t)text.data[begin] & 0xc0) == 0x80)
        begin--;
    *first = begin;
    unsigned size;
    return unicode_properties(unicode_next(text.data + begin, &size));
}

static bool touches_word(struct str text, size_t first, size_t last)
{
    size_t begin;
    unsigned size;
    return (first > 0 && properties_before(text, first, &begin) & UNICODE_WORD) ||
           (last < text.size &&
            unicode_properties(unicode_next(text.data + last, &size)) & UNICODE_WORD);
}

bool added_tokens_find(const struct added_tokens *added, struct marked_text text,
                       bool allow_control, size_t *from, struct added_match *match)
{
    const struct str bytes = text.text;
    size_t at = *from;
    while (at < bytes.size) {
        const uint8_t start = (uint8_t)bytes.data[at];
        const struct added_token *token = added->starts[start] == added->starts[start + 1]
                                              ? NULL
                                              : longest_at(added, text, allow_control, at);
        if (!token) {
            at++;
            continue;
        }
        size_t first = at, last = at + token->size, begin;
        at = last;
        if (token->flags & ADDED_TOKEN_SINGLE_WORD && touches_word(bytes, first, last))
            continue;
        while (token->flags & ADDED_TOKEN_LEFT_STRIP && first > *from &&
               properties_before(bytes, first, &begin) & UNICODE_SPACE)
            first = begin;
        unsigned size;
        while (token->flags & ADDED_TOKEN_RIGHT_STRIP && last < bytes.size &&
               unicode_properties(unicode_next(bytes.data + last, &size)) & UNICODE_SPACE)
            last += size;
        *match = (struct added_match){ first, last, token->id };
        *from = last;
        return true;
    }
    *from = bytes.size;
    return false;
}
