/* Encoding: gather, added tokens of the raw text, normalizer, added tokens of the normalised text,
 * pre-tokenizers, and for each piece the model. No intermediate list is kept: a piece is ids in the
 * output before the next one is cut.
 *
 * A piece that is a whole token (vocab.h) is one look-up. Others begin as symbols, bytes or
 * characters, and are merged (bpe.h). Everything here is immutable or belongs to the call, so that
 * any number of threads encode with one tokenizer. */
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "text/gather.h"
#include "text/tokenizer_bin.h"
#include "text/tokenizer_internal.h"
#include "text/unicode_table.h"

#define BLANK_MARK STR("\xe2\x96\x81") // U+2581

struct tokenizer_work {
    const struct tokenizer *tokenizer;
    struct token_list *out;
    struct normalizer_scratch *normalizer;
    struct pretoken_run *pretoken;
    struct bpe_scratch bpe;
    uint32_t *symbols;
    size_t symbols_room;
};

void tokenizer_free(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    tokenizer_view_release(tokenizer);
    free(tokenizer->memory);
    file_map_close(&tokenizer->map);
    free(tokenizer);
}

struct str tokenizer_image(const struct tokenizer *tokenizer)
{
    return tokenizer->image;
}

struct tokenizer_work *tokenizer_work_new(const struct tokenizer *tokenizer, struct token_list *out)
{
    struct tokenizer_work *work = xcalloc(1, sizeof *work);
    work->tokenizer = tokenizer;
    work->out = out;
    work->normalizer = normalizer_scratch_new();
    work->pretoken = pretoken_run_new(tokenizer->pretoken);
    return work;
}

void tokenizer_work_free(struct tokenizer_work *work)
{
    if (!work)
        return;
    normalizer_scratch_free(work->normalizer);
    pretoken_run_free(work->pretoken);
    bpe_scratch_release(&work->bpe);
    free(work->symbols);
    free(work);
}

static bool add_id(struct tokenizer_work *work, uint32_t id, struct err *err)
{
    return token_list_add(work->out, id) ||
           err_set(err, ERR_ARGUMENT, "a text of more than %zu tokens", work->out->n_ids_cap);
}

/* Symbols of a piece in the making. */
struct symbols {
    uint32_t *ids;
    size_t n;
    bool unknown; // an unknown character waits to be written
};

static void add_symbol(struct symbols *symbols, const struct tokenizer *tokenizer, uint32_t id)
{
    if (symbols->unknown)
        symbols->ids[symbols->n++] = tokenizer->header->unknown_id;
    symbols->unknown = false;
    symbols->ids[symbols->n++] = id;
}

/* A symbol that the vocabulary does not have: its bytes, the unknown token, or nothing. */
static void add_unknown(struct symbols *symbols, const struct tokenizer *tokenizer,
                        struct str character)
{
    bool fallback = tokenizer->byte_fallback;
    for (size_t i = 0; i < character.size; i++)
        fallback = fallback && tokenizer->byte_ids[(uint8_t)character.data[i]] != VOCAB_NO_ID;
    if (fallback) {
        for (size_t i = 0; i < character.size; i++)
            symbols->ids[symbols->n++] = tokenizer->byte_ids[(uint8_t)character.data[i]];
        return;
    }
    if (tokenizer->header->unknown_id == VOCAB_NO_ID)
        return;
    if (symbols->unknown && !tokenizer->fuse_unknown)
        symbols->ids[symbols->n++] = tokenizer->header->unknown_id;
    symbols->unknown = true;
}

static void read_symbols(const struct tokenizer *tokenizer, struct str piece,
                         struct symbols *symbols)
{
    unsigned size = 1;
    for (size_t at = 0; at < piece.size; at += size) {
        const uint8_t byte = (uint8_t)piece.data[at];
        uint32_t id;
        if (tokenizer->byte_level) {
            id = tokenizer->byte_ids[byte];
        } else if (byte < 128) {
            id = tokenizer->ascii_ids[byte];
            size = 1;
        } else {
            unicode_next(piece.data + at, &size);
            id = vocab_find(&tokenizer->vocab, str_slice(piece, at, at + size));
        }
        if (id != VOCAB_NO_ID)
            add_symbol(symbols, tokenizer, id);
        else
            add_unknown(symbols, tokenizer, str_slice(piece, at, at + size));
    }
    if (symbols->unknown)
        symbols->ids[symbols->n++] = tokenizer->header->unknown_id;
}

bool tokenizer_encode_piece(struct tokenizer_work *work, struct str piece, bool merge_only,
                            struct err *err)
{
    const struct tokenizer *tokenizer = work->tokenizer;
    if (!merge_only) {
        const uint32_t id = vocab_find(&tokenizer->vocab, piece);
        if (id != VOCAB_NO_ID && tokenizer->vocab.flags[id] & VOCAB_WHOLE)
            return add_id(work, id, err);
    }
    if (work->symbols_room < piece.size + 1) {
        const size_t room = 2 * piece.size + 64;
        uint32_t *grown = realloc(work->symbols, room * sizeof grown[0]);
        if (!grown)
            return err_set(err, ERR_NO_MEMORY, "no memory for a piece of %zu bytes", piece.size);
        work->symbols = grown;
        work->symbols_room = room;
    }
    struct symbols symbols = { .ids = work->symbols };
    read_symbols(tokenizer, piece, &symbols);
    size_t n_left;
    if (!bpe_apply(&tokenizer->bpe, &work->bpe, symbols.ids, symbols.n, &n_left, err))
        return false;
    for (size_t i = 0; i < n_left; i++) {
        if (!add_id(work, symbols.ids[i], err))
            return false;
    }
    return true;
}

/* Takes the pre-tokenizers' pieces. Where every blank mark begins a token (SentencePiece's
 * vocabularies, whose whole text is one piece) it cuts them further. */
static bool take_piece(void *context, struct str piece, struct err *err)
{
    struct tokenizer_work *work = context;
    const struct str mark = BLANK_MARK;
    size_t done = 0, from = 0;
    while (work->tokenizer->cut_at_marks && from < piece.size) {
        const size_t found = str_find(str_slice(piece, from, piece.size), mark);
        if (found == SIZE_MAX)
            break;
        const size_t at = from + found;
        from = at + mark.size;
        if (at == done || str_ends(str_slice(piece, done, at), mark))
            continue;
        if (!tokenizer_encode_piece(work, str_slice(piece, done, at), false, err))
            return false;
        done = at;
    }
    return tokenizer_encode_piece(work, str_slice(piece, done, piece.size), false, err);
}

static struct marked_text marked_slice(struct marked_text text, size_t first, size_t last)
{
    return (struct marked_text){ str_slice(text.text, first, last),
                                 text.marks ? text.marks + first : NULL };
}

/* One text between added tokens of the raw text. */
static bool encode_plain(struct tokenizer_work *work, struct marked_text text, bool allow_control,
                         bool at_start, struct err *err)
{
    const struct tokenizer *tokenizer = work->tokenizer;
    struct marked_text normal;
    if (!normalizer_run(tokenizer->normalizer, work->normalizer, text, 4 * TOKENIZER_TEXT_BYTES_CAP,
                        &normal, err))
        return false;
    size_t done = 0, from = 0;
    struct added_match match;
    while (added_tokens_find(&tokenizer->added_normal, normal, allow_control, &from, &match)) {
        if (done < match.first &&
            !pretoken_split(work->pretoken, str_slice(normal.text, done, match.first),
                            at_start && done == 0, take_piece, work, err))
            return false;
        if (!add_id(work, match.id, err))
            return false;
        done = match.last;
    }
    return done == normal.text.size ||
           pretoken_split(work->pretoken, str_slice(normal.text, done, normal.text.size),
                          at_start && done == 0, take_piece, work, err);
}

static bool encode_text(struct tokenizer_work *work, struct marked_text text, bool allow_control,
                        struct err *err)
{
    size_t done = 0, from = 0;
    struct added_match match;
    while (added_tokens_find(&work->tokenizer->added, text, allow_control, &from, &match)) {
        if (done < match.first && !encode_plain(work, marked_slice(text, done, match.first),
                                                allow_control, done == 0, err))
            return false;
        if (!add_id(work, match.id, err))
            return false;
        done = match.last;
    }
    return done == text.text.size || encode_plain(work, marked_slice(text, done, text.text.size),
                                                  allow_control, done == 0, err);
}

/* The ids that the post-processor puts around a text. */
static bool encode_around(struct tokenizer_work *work, struct marked_text text, bool allow_control,
                          const struct tokenizer_encode_options *options, struct err *err)
{
    const struct tokenizer *tokenizer = work->tokenizer;
    struct token_list *out = work->out;
    const size_t n_before = options->add_special ? tokenizer->n_before : 0;
    const size_t n_behind = options->add_special ? tokenizer->n_behind : 0;
    const size_t first = out->n_ids;
    for (size_t i = 0; i < n_before; i++) {
        if (!add_id(work, tokenizer->before[i], err))
            return false;
    }
    const size_t text_first = out->n_ids;
    if (!encode_text(work, text, allow_control, err))
        return false;
    const uint32_t bos = tokenizer->header->bos_id;
    if (options->bos_once && n_before > 0 && tokenizer->before[n_before - 1] == bos &&
        text_first < out->n_ids && out->ids[text_first] == bos) {
        memmove(&out->ids[first + n_before - 1], &out->ids[text_first],
                (out->n_ids - text_first) * sizeof out->ids[0]);
        out->n_ids--;
    }
    for (size_t i = 0; i < n_behind; i++) {
        if (!add_id(work, tokenizer->behind[i], err))
            return false;
    }
    return true;
}

bool tokenizer_encode(const struct tokenizer *tokenizer, const struct tokenizer_segment *segments,
                      size_t n_segments, const struct tokenizer_encode_options *options,
                      struct token_list *out, struct err *err)
{
    static const struct tokenizer_encode_options plain = { 0 };
    const size_t n_ids = out->n_ids;
    struct gathered gathered = { 0 };
    struct marked_text text;
    bool allow_control;
    if (!gather_segments(segments, n_segments, &gathered, &text, &allow_control, err))
        return false;
    struct tokenizer_work *work = tokenizer_work_new(tokenizer, out);
    const bool good = encode_around(work, text, allow_control, options ? options : &plain, err);
    tokenizer_work_free(work);
    gathered_release(&gathered);
    if (!good)
        out->n_ids = n_ids;
    return good;
}

struct str tokenizer_token_bytes(const struct tokenizer *tokenizer, uint32_t id)
{
    return id < tokenizer->vocab.n_tokens ? vocab_text(&tokenizer->vocab, id) : STR("");
}

size_t tokenizer_n_tokens(const struct tokenizer *tokenizer)
{
    return tokenizer->vocab.n_tokens;
}

/* The token of a set with this content, or NULL. */
static const struct added_token *find_added(const struct added_tokens *added, struct str text)
{
    size_t low = 0, high = added->n_tokens;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct added_token *token = &added->tokens[middle];
        const int order =
            str_compare((struct str){ added->bytes + token->first, token->size }, text);
        if (order == 0)
            return token;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

bool tokenizer_find(const struct tokenizer *tokenizer, struct str text, uint32_t *id)
{
    const struct added_token *added = find_added(&tokenizer->added, text);
    if (!added)
        added = find_added(&tokenizer->added_normal, text);
    const uint32_t found = added ? added->id : vocab_find(&tokenizer->vocab, text);
    if (found == VOCAB_NO_ID)
        return false;
    *id = found;
    return true;
}

static bool has_flag(const struct tokenizer *tokenizer, uint32_t id, enum vocab_flag flag)
{
    return id < tokenizer->vocab.n_tokens && tokenizer->vocab.flags[id] & flag;
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, uint32_t id)
{
    return has_flag(tokenizer, id, VOCAB_SPECIAL);
}

bool tokenizer_is_control(const struct tokenizer *tokenizer, uint32_t id)
{
    return has_flag(tokenizer, id, VOCAB_CONTROL);
}

bool tokenizer_bos(const struct tokenizer *tokenizer, uint32_t *id)
{
    if (tokenizer->header->bos_id == VOCAB_NO_ID)
        return false;
    *id = tokenizer->header->bos_id;
    return true;
}

const uint32_t *tokenizer_end_ids(const struct tokenizer *tokenizer, size_t *n_ids)
{
    *n_ids = tokenizer->n_end_ids;
    return tokenizer->end_ids;
}

bool tokenizer_is_end(const struct tokenizer *tokenizer, uint32_t id)
{
    for (size_t i = 0; i < tokenizer->n_end_ids; i++) {
        if (tokenizer->end_ids[i] == id)
            return true;
    }
    return false;
}

bool tokenizer_add_end_id(struct tokenizer *tokenizer, uint32_t id, struct err *err)
{
    if (id >= tokenizer->vocab.n_tokens)
        return err_set(err, ERR_ARGUMENT, "end-of-sequence id %u of a vocabulary of %u", id,
                       tokenizer->vocab.n_tokens);
    if (tokenizer_is_end(tokenizer, id))
        return true;
    if (tokenizer->n_end_ids == TOKENIZER_END_IDS_CAP)
        return err_set(err, ERR_ARGUMENT, "more than %zu end-of-sequence ids",
                       TOKENIZER_END_IDS_CAP);
    size_t at = tokenizer->n_end_ids++;
    for (; at > 0 && tokenizer->end_ids[at - 1] > id; at--)
        tokenizer->end_ids[at] = tokenizer->end_ids[at - 1];
    tokenizer->end_ids[at] = id;
    return true;
}

uint64_t tokenizer_source_hash(const struct tokenizer *tokenizer)
{
    return tokenizer->header->source_hash;
}
