/* Bytes in, whole characters out. What is pending is always a proper prefix of a character, hence
 * at most three bytes; a token's bytes are joined to it, the complete part goes out (bad parts as
 * U+FFFD), the rest is pending again.
 *
 * The context is replayed from its last few tokens only: a character has at most four bytes, and
 * the rule about the first blank asks only whether anything came before. */
#include "text/detokenizer.h"

#include <string.h>

#include "base/err.h"
#include "text/tokenizer.h"
#include "text/tokenizer_internal.h"
#include "text/utf8_repair.h"

#define CONTEXT_TOKENS_CAP 8 // of the context that are replayed; empty ones do not count

/* True when the token gives text here. */
static bool is_shown(const struct detokenizer *detokenizer, uint32_t id)
{
    return id < tokenizer_n_tokens(detokenizer->tokenizer) &&
           !(detokenizer->skip_special && tokenizer_is_special(detokenizer->tokenizer, id));
}

void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer,
                      bool skip_special, const uint32_t *context, size_t n_context)
{
    *detokenizer = (struct detokenizer){
        .tokenizer = tokenizer,
        .skip_special = skip_special,
        .at_start = true,
        .n_strip =
            tokenizer->header->start == TOKENIZER_START_STRIP ? tokenizer->header->n_strip : 0,
    };
    size_t first = n_context, n_shown = 0;
    while (first > 0 && n_shown < CONTEXT_TOKENS_CAP)
        n_shown += is_shown(detokenizer, context[--first]);
    if (n_shown == CONTEXT_TOKENS_CAP) { // more came before: this is no start
        detokenizer->at_start = false;
        detokenizer->n_strip = 0;
    }
    struct buf dropped;
    buf_init(&dropped, SIZE_MAX / 2);
    for (size_t i = first; i < n_context; i++)
        detokenizer_push(detokenizer, context[i], &dropped);
    buf_release(&dropped);
}

/* Appends what is complete of pending and bytes. */
static void push_bytes(struct detokenizer *detokenizer, struct str bytes, struct buf *out)
{
    while (detokenizer->n_pending > 0 && bytes.size > 0) {
        /* Byte by byte until the character begun earlier is whole or broken. */
        detokenizer->pending[detokenizer->n_pending++] = (uint8_t)bytes.data[0];
        bytes = str_slice(bytes, 1, bytes.size);
        const struct str pending = { (const char *)detokenizer->pending, detokenizer->n_pending };
        const size_t done = utf8_complete_prefix(pending);
        utf8_repair(str_slice(pending, 0, done), out);
        detokenizer->n_pending -= (uint32_t)done;
        memmove(detokenizer->pending, detokenizer->pending + done, detokenizer->n_pending);
    }
    const size_t done = utf8_complete_prefix(bytes);
    utf8_repair(str_slice(bytes, 0, done), out);
    if (done < bytes.size) {
        must(detokenizer->n_pending == 0 && bytes.size - done < sizeof detokenizer->pending);
        detokenizer->n_pending = (uint32_t)(bytes.size - done);
        memcpy(detokenizer->pending, bytes.data + done, detokenizer->n_pending);
    }
}

/* The first token's bytes without its blank marks, which decode to blanks. */
static void push_unmarked(struct detokenizer *detokenizer, uint32_t id, struct str bytes,
                          struct buf *out)
{
    const struct str mark = STR("\xe2\x96\x81");
    struct str key = vocab_key(&detokenizer->tokenizer->vocab, id);
    if (str_find(key, mark) == SIZE_MAX) {
        push_bytes(detokenizer, bytes, out);
        return;
    }
    for (size_t at; (at = str_find(key, mark)) != SIZE_MAX;
         key = str_slice(key, at + mark.size, key.size))
        push_bytes(detokenizer, str_slice(key, 0, at), out);
    push_bytes(detokenizer, key, out);
}

void detokenizer_push(struct detokenizer *detokenizer, uint32_t id, struct buf *out)
{
    if (!is_shown(detokenizer, id))
        return;
    struct str bytes = tokenizer_token_bytes(detokenizer->tokenizer, id);
    const bool first = detokenizer->at_start;
    detokenizer->at_start = false;
    if (first && detokenizer->tokenizer->header->start == TOKENIZER_START_MARKS) {
        push_unmarked(detokenizer, id, bytes, out);
        return;
    }
    while (detokenizer->n_strip > 0 && bytes.size > 0) {
        if (bytes.data[0] != ' ') {
            detokenizer->n_strip = 0;
            break;
        }
        detokenizer->n_strip--;
        bytes = str_slice(bytes, 1, bytes.size);
    }
    push_bytes(detokenizer, bytes, out);
}

void detokenizer_finish(struct detokenizer *detokenizer, struct buf *out)
{
    const struct str pending = { (const char *)detokenizer->pending, detokenizer->n_pending };
    utf8_repair(pending, out);
    detokenizer->n_pending = 0;
}
