/* Batches are sized once, at the largest a pipeline agreed on, and reused for every step: the data
 * path allocates nothing between the first and the last token of a request. The arrays come from
 * memory_pages because their size is a product of options (rows times carry or vocabulary), so
 * running out of memory must be an answer and not an abort. */
#include "engine/batch.h"

#include <string.h>

#include "base/memory.h"

bool batch_init(struct batch *batch, uint32_t rows_cap, size_t values_cap, struct err *err)
{
    *batch = (struct batch){ 0 };
    size_t rows_bytes, values_bytes;
    if (!size_mul(rows_cap, sizeof(*batch->rows), &rows_bytes) ||
        !size_mul(values_cap, sizeof(*batch->values), &values_bytes)) {
        return err_set(err, ERR_NO_MEMORY, "a batch of %u rows and %zu values", rows_cap,
                       values_cap);
    }
    struct batch made = { .rows_cap = rows_cap, .values_cap = values_cap };
    if (rows_bytes > 0 && (made.rows = memory_pages(rows_bytes, err)) == NULL)
        goto fail;
    if (values_bytes > 0 && (made.values = memory_pages(values_bytes, err)) == NULL)
        goto fail;
    *batch = made;
    return true;
fail:
    batch_release(&made);
    return err_wrap(err, "a batch of %u rows", rows_cap);
}

void batch_release(struct batch *batch)
{
    memory_pages_free(batch->rows, batch->rows_cap * sizeof(*batch->rows));
    memory_pages_free(batch->values, batch->values_cap * sizeof(*batch->values));
    *batch = (struct batch){ 0 };
}

void batch_copy_rows(struct batch *to, const struct batch *from)
{
    must(from->n_rows <= to->rows_cap);
    to->id = from->id;
    to->n_rows = from->n_rows;
    if (from->n_rows > 0)
        memcpy(to->rows, from->rows, from->n_rows * sizeof(*from->rows));
}

uint32_t batch_count_logits(const struct batch *batch)
{
    uint32_t n_logits = 0;
    for (uint32_t row = 0; row < batch->n_rows; row++)
        n_logits += (batch->rows[row].flags & (ROW_SAMPLE | ROW_LOGITS)) != 0;
    return n_logits;
}
