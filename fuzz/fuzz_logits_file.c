/* Any bytes as a file of log-probabilities: what is accepted can be read to its last value. */
#include "base/memory.h"
#include "cli/logits_file.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct logits_file file;
    struct err err = { 0 };
    uint32_t top;
    if (!logits_file_view(&file, (struct str){ (const char *)data, size }, &err)) {
        must(err.code == ERR_FORMAT && err.text[0]);
        return 0;
    }
    const struct logits_shape *shape = &file.shape;
    int32_t *ids = xcalloc(shape->window, sizeof(*ids));
    float *values = xcalloc((size_t)shape->vocab_size * 2, sizeof(*values));
    for (uint32_t w = 0; w < shape->n_windows; w++) {
        logits_file_ids(&file, w, ids, &err);
        for (uint32_t row = 0; row < logits_shape_rows(shape); row++) {
            if (logits_file_row(&file, kernel_best()->vec, w, row, values,
                                values + shape->vocab_size, &top))
                must(top < shape->vocab_size && isfinite(values[top]));
        }
    }
    free(values);
    free(ids);
    return 0;
}
