/* The book of KV pages: which page holds which 64 positions of which sequence.
 *
 * Bookkeeping only; what a page holds is its user's affair (kv_cache: keys and values). Pages are
 * counted by their holders, so that sequences can share a beginning; a page that is shared is
 * replaced by a copy before it is written. A batch is a transaction: kv_pages_plan makes room for
 * all its rows or changes nothing, then the user copies what plan lists and writes rows, then
 * kv_pages_commit or kv_pages_abort ends it. Nothing allocates after init. One owner. */
#ifndef CASCADIA_MODEL_KV_PAGES_H
#define CASCADIA_MODEL_KV_PAGES_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define KV_PAGE_ROWS 64u
#define KV_PAGE_NONE UINT32_MAX

/* One row of a batch, as far as pages are concerned. */
struct kv_row {
    uint32_t sequence, position;
};

/* The first `rows` rows of page `from` are to be copied to page `to`. */
struct kv_page_copy {
    uint32_t from, to, rows;
};

struct kv_sequence {
    uint32_t length;                         // rows
    uint32_t n_pages;                        // entries of the table in use
    uint32_t *table;                         // [table_cap] page numbers
    bool in_batch;                           // the transaction touches it:
    uint32_t old_length, old_n_pages, first; // before it; the batch's first position
};

struct kv_change; // an entry of a table that the transaction replaced

struct kv_pages {
    uint32_t n_pages, max_sequences, ctx_size, max_rows;
    uint32_t table_cap;  // pages of one sequence: ctx_size / 64, rounded up
    uint32_t *refs;      // [n_pages] holders
    uint32_t *free_list; // [n_pages], the first n_free are free
    uint32_t n_free;
    struct kv_sequence *sequences; // [max_sequences]
    uint32_t *tables;
    struct kv_change *changes; // [max_rows]
    uint32_t n_changes;
    struct kv_page_copy *copies; // [max_rows] of the transaction
    uint32_t n_copies;
};

/* ctx_size and max_sequences at least 1. */
void kv_pages_init(struct kv_pages *pages, uint32_t n_pages, uint32_t max_sequences,
                   uint32_t ctx_size, uint32_t max_rows);
void kv_pages_release(struct kv_pages *pages); // zeroed values are fine

/* Makes room for rows[n_rows], whose sequences are cut to their first position first. Lists in
 * `copies` what to copy before writing. On failure nothing has changed: ERR_BATCH_LOST (a row that
 * does not follow its sequence, or is past the context), ERR_BUSY (no page is free). On success a
 * commit or an abort must follow. */
bool kv_pages_plan(struct kv_pages *pages, const struct kv_row *rows, uint32_t n_rows,
                   struct err *err);
void kv_pages_commit(struct kv_pages *pages);
/* Each sequence has its old length again; but one that was stepped back has lost what may be
 * overwritten: it ends before the batch's first row of it. */
void kv_pages_abort(struct kv_pages *pages);

/* The first `rows` rows of `from` (at most its length) become all of `to`. from == to cuts. */
void kv_pages_keep(struct kv_pages *pages, uint32_t from, uint32_t to, uint32_t rows);
void kv_pages_drop(struct kv_pages *pages, uint32_t sequence);

static inline uint32_t kv_pages_length(const struct kv_pages *pages, uint32_t sequence)
{
    return pages->sequences[sequence].length;
}

/* The page that holds a position of a sequence; valid for planned positions too. */
static inline uint32_t kv_pages_of(const struct kv_pages *pages, uint32_t sequence,
                                   uint32_t position)
{
    return pages->sequences[sequence].table[position / KV_PAGE_ROWS];
}

#endif
