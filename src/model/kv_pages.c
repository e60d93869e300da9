/* How the transaction works: plan walks the rows in order and keeps, for each sequence it meets,
 * the length that the rows so far give it. When a row is the first that is written to a page, the
 * page must be the sequence's alone: it is taken from the free list when the table has none there,
 * and replaced when it is shared. Every table entry that is set is written down in `changes` with
 * what it was, and the old page keeps its holder until the end, so undoing is walking the list
 * backwards. Pages behind a sequence that was stepped back stay in its table until commit.
 *
 * Rows that are stepped over are overwritten in place when their page is not shared: copying a page
 * at each rejected draft token would cost more than the one case it saves, a failure in the middle
 * of such a step, and there the sequence is cut to where its rows are still the old ones. */
#include "model/kv_pages.h"

#include <stdlib.h>

#include "base/memory.h"

struct kv_change {
    uint32_t sequence, index;
    uint32_t old_page; // KV_PAGE_NONE: there was none
};

void kv_pages_init(struct kv_pages *pages, uint32_t n_pages, uint32_t max_sequences,
                   uint32_t ctx_size, uint32_t max_rows)
{
    must(max_sequences > 0 && ctx_size > 0);
    const uint32_t table_cap = (ctx_size - 1) / KV_PAGE_ROWS + 1;
    *pages = (struct kv_pages){
        .n_pages = n_pages,
        .max_sequences = max_sequences,
        .ctx_size = ctx_size,
        .max_rows = max_rows,
        .table_cap = table_cap,
        .refs = xcalloc(n_pages, sizeof(uint32_t)),
        .free_list = xcalloc(n_pages, sizeof(uint32_t)),
        .n_free = n_pages,
        .sequences = xcalloc(max_sequences, sizeof(struct kv_sequence)),
        .tables = xcalloc((size_t)max_sequences * table_cap, sizeof(uint32_t)),
        .changes = xcalloc(max_rows, sizeof(struct kv_change)),
        .copies = xcalloc(max_rows, sizeof(struct kv_page_copy)),
    };
    for (uint32_t page = 0; page < n_pages; page++) {
        pages->free_list[page] = n_pages - 1 - page; // page 0 is taken first
    }
    for (uint32_t sequence = 0; sequence < max_sequences; sequence++)
        pages->sequences[sequence].table = pages->tables + (size_t)sequence * table_cap;
}

void kv_pages_release(struct kv_pages *pages)
{
    free(pages->refs);
    free(pages->free_list);
    free(pages->sequences);
    free(pages->tables);
    free(pages->changes);
    free(pages->copies);
    *pages = (struct kv_pages){ 0 };
}

static void let_go(struct kv_pages *pages, uint32_t page)
{
    must(pages->refs[page] > 0);
    if (--pages->refs[page] == 0)
        pages->free_list[pages->n_free++] = page;
}

/* Gives back the pages behind the first `rows` rows. */
static void cut_table(struct kv_pages *pages, struct kv_sequence *sequence, uint32_t rows)
{
    const uint32_t keep = (rows + KV_PAGE_ROWS - 1) / KV_PAGE_ROWS;
    while (sequence->n_pages > keep)
        let_go(pages, sequence->table[--sequence->n_pages]);
}

/* Makes the page of `position`, the first position written to it, the sequence's own. */
static bool own_page(struct kv_pages *pages, uint32_t number, uint32_t position, struct err *err)
{
    struct kv_sequence *sequence = &pages->sequences[number];
    const uint32_t index = position / KV_PAGE_ROWS;
    const bool is_held = index < sequence->n_pages;
    if (is_held && pages->refs[sequence->table[index]] == 1)
        return true;
    if (pages->n_free == 0)
        return err_set(err, ERR_BUSY, "no KV page is free (all %u are in use)", pages->n_pages);
    const uint32_t page = pages->free_list[--pages->n_free];
    const uint32_t old_page = is_held ? sequence->table[index] : KV_PAGE_NONE;
    pages->refs[page] = 1;
    pages->changes[pages->n_changes++] =
        (struct kv_change){ .sequence = number, .index = index, .old_page = old_page };
    if (is_held && position % KV_PAGE_ROWS != 0) {
        pages->copies[pages->n_copies++] =
            (struct kv_page_copy){ .from = old_page, .to = page, .rows = position % KV_PAGE_ROWS };
    }
    sequence->table[index] = page;
    if (!is_held)
        sequence->n_pages = index + 1;
    return true;
}

static bool plan_row(struct kv_pages *pages, struct kv_row row, struct err *err)
{
    if (row.sequence >= pages->max_sequences) {
        return err_set(err, ERR_BATCH_LOST, "sequence %u: there are only %u", row.sequence,
                       pages->max_sequences);
    }
    struct kv_sequence *sequence = &pages->sequences[row.sequence];
    const bool is_first = !sequence->in_batch;
    if (is_first ? row.position > sequence->length : row.position != sequence->length) {
        return err_set(err, ERR_BATCH_LOST, "sequence %u has %u rows; position %u does not follow",
                       row.sequence, sequence->length, row.position);
    }
    if (row.position >= pages->ctx_size) {
        return err_set(err, ERR_BATCH_LOST, "position %u of sequence %u is past the context of %u",
                       row.position, row.sequence, pages->ctx_size);
    }
    if (is_first) {
        sequence->in_batch = true;
        sequence->old_length = sequence->length;
        sequence->old_n_pages = sequence->n_pages;
        sequence->first = row.position;
    }
    if ((is_first || row.position % KV_PAGE_ROWS == 0) &&
        !own_page(pages, row.sequence, row.position, err))
        return false;
    sequence->length = row.position + 1;
    return true;
}

/* Sets every table entry back to what it was. */
static void undo_changes(struct kv_pages *pages)
{
    while (pages->n_changes > 0) {
        const struct kv_change *change = &pages->changes[--pages->n_changes];
        struct kv_sequence *sequence = &pages->sequences[change->sequence];
        let_go(pages, sequence->table[change->index]);
        if (change->old_page != KV_PAGE_NONE)
            sequence->table[change->index] = change->old_page;
    }
    pages->n_copies = 0;
}

bool kv_pages_plan(struct kv_pages *pages, const struct kv_row *rows, uint32_t n_rows,
                   struct err *err)
{
    must(n_rows <= pages->max_rows && pages->n_changes == 0);
    pages->n_copies = 0;
    for (uint32_t i = 0; i < n_rows; i++) {
        if (plan_row(pages, rows[i], err))
            continue;
        undo_changes(pages);
        for (uint32_t number = 0; number < pages->max_sequences; number++) {
            struct kv_sequence *sequence = &pages->sequences[number];
            if (sequence->in_batch) {
                sequence->length = sequence->old_length;
                sequence->n_pages = sequence->old_n_pages;
                sequence->in_batch = false;
            }
        }
        return false;
    }
    return true;
}

void kv_pages_commit(struct kv_pages *pages)
{
    for (uint32_t i = 0; i < pages->n_changes; i++) {
        if (pages->changes[i].old_page != KV_PAGE_NONE)
            let_go(pages, pages->changes[i].old_page);
    }
    pages->n_changes = 0;
    pages->n_copies = 0;
    for (uint32_t number = 0; number < pages->max_sequences; number++) {
        struct kv_sequence *sequence = &pages->sequences[number];
        if (sequence->in_batch) {
            sequence->in_batch = false;
            cut_table(pages, sequence, sequence->length);
        }
    }
}

void kv_pages_abort(struct kv_pages *pages)
{
    undo_changes(pages);
    for (uint32_t number = 0; number < pages->max_sequences; number++) {
        struct kv_sequence *sequence = &pages->sequences[number];
        if (sequence->in_batch) {
            sequence->in_batch = false;
            sequence->n_pages = sequence->old_n_pages;
            sequence->length = sequence->first;
            cut_table(pages, sequence, sequence->length);
        }
    }
}

void kv_pages_keep(struct kv_pages *pages, uint32_t from, uint32_t to, uint32_t rows)
{
    if (from >= pages->max_sequences || to >= pages->max_sequences)
        return;
    const struct kv_sequence *source = &pages->sequences[from];
    struct kv_sequence *target = &pages->sequences[to];
    const uint32_t length = rows < source->length ? rows : source->length;
    if (from != to) {
        kv_pages_drop(pages, to);
        target->n_pages = (length + KV_PAGE_ROWS - 1) / KV_PAGE_ROWS;
        for (uint32_t index = 0; index < target->n_pages; index++) {
            target->table[index] = source->table[index];
            pages->refs[source->table[index]]++;
        }
    }
    target->length = length;
    cut_table(pages, target, length);
}

void kv_pages_drop(struct kv_pages *pages, uint32_t sequence)
{
    if (sequence < pages->max_sequences) {
        cut_table(pages, &pages->sequences[sequence], 0);
        pages->sequences[sequence].length = 0;
    }
}
