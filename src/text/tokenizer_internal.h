/* struct tokenizer, for the files that share its inside: opening (tokenizer_bin), use (tokenizer,
 * detokenizer) and compilation, which uses a half-made one to find the whole tokens. */
#ifndef CASCADIA_TEXT_TOKENIZER_INTERNAL_H
#define CASCADIA_TEXT_TOKENIZER_INTERNAL_H

#include "text/token_list.h"
#include "text/tokenizer_image.h"

struct tokenizer {
    struct str image;
    char *memory;        // the image, when it is ours to free
    struct file_map map; // or when it is mapped
    const struct tokenizer_image_header *header;
    struct vocab vocab;
    struct bpe bpe;
    struct added_tokens added, added_normal;
    struct normalizer *normalizer;
    struct pretoken *pretoken;
    const uint32_t *before, *behind;
    size_t n_before, n_behind;
    uint32_t end_ids[TOKENIZER_END_IDS_CAP]; // ascending; grows by tokenizer_add_end_id
    size_t n_end_ids;
    uint32_t byte_ids[256];  // byte-level: of each byte; byte fallback: of <0xXX>; VOCAB_NO_ID
    uint32_t ascii_ids[128]; // symbols of ASCII characters, not byte-level
    bool byte_level, byte_fallback, fuse_unknown, cut_at_marks;
};

/* Points into an image that is laid out as its header says, without looking further; `image` stays
 * the caller's. The regexes may be refused. tokenizer_view_release undoes it. */
bool tokenizer_view(struct tokenizer *tokenizer, struct str image, struct err *err);
void tokenizer_view_release(struct tokenizer *tokenizer);

/* What one encoding needs; reused from piece to piece. */
struct tokenizer_work;
struct tokenizer_work *tokenizer_work_new(const struct tokenizer *tokenizer,
                                          struct token_list *out);
void tokenizer_work_free(struct tokenizer_work *work); // NULL is fine

/* Appends the ids of one piece. `merge_only`: does not ask whether the piece is a whole token. */
bool tokenizer_encode_piece(struct tokenizer_work *work, struct str piece, bool merge_only,
                            struct err *err);

#endif
