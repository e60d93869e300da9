/* Any bytes as a GGUF model, all the way into rows: metadata to config.json to configuration,
 * tensors to roles, rows to values and panels. */
#include "base/err.h"
#include "shard/quantise.h"
#include "shard/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first and last panel or vector of each tensor that is not absurdly wide. */
static void quantise_some(const struct source *source)
{
    struct quantise_settings settings = { .format = QUANT_INT4, .group_size = 32 };
    for (uint32_t i = 0; i < source->n_tensors && i < 64; i++) {
        const struct source_tensor *tensor = &source->tensors[i];
        struct quantise_job job;
        struct quantise_scratch scratch;
        struct quantise_error error;
        struct err err = { 0 };
        if (tensor->cols > 65536 ||
            !quantise_job_init(&job, &settings, tensor->role, tensor, NULL, &err) ||
            !quantise_scratch_init(&scratch, job.cols, job.item_bytes, &err))
            continue;
        quantise_item(&job, 0, &scratch, &error, &err);
        quantise_item(&job, job.n_items - 1, &scratch, &error, &err);
        quantise_scratch_release(&scratch);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct source source;
    struct err err = { 0 };
    if (source_open_bytes(&source, data, size, &err)) {
        quantise_some(&source);
        source_close(&source);
    } else {
        must(err.code != ERR_NONE && err.text[0]);
    }
    return 0;
}
