/* The native engine: the model on this machine's processors, by the numerics contract.
 *
 * A thin face: model/ does the work; here options become its options, rows its rows, and a kernel
 * is chosen by name. The engine owns nothing else. */
#include "engine/engine.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/memory.h"
#include "kernel/kernel.h"
#include "model/kv_pages.h"
#include "model/model.h"

static const char *const native_devices[] = { "cpu", NULL };

struct native {
    struct model *model;
    struct model_row *rows; // [max_rows]
    uint32_t max_rows;
    bool is_last;
    uint32_t width; // floats of a row of output
};

static void native_close(struct engine *engine)
{
    struct native *native = engine->state;
    if (native == NULL)
        return;
    model_close(native->model);
    free(native->rows);
    free(native);
    engine->state = NULL;
}

static bool choose_kernel(const char *isa, const struct kernel **kernel, struct err *err)
{
    *kernel = isa == NULL ? kernel_best() : kernel_find(isa);
    if (*kernel != NULL)
        return true;
    struct buf list;
    buf_init(&list, 256);
    for (size_t i = 0; kernels[i] != NULL; i++) {
        if (kernel_usable(kernels[i]))
            buf_printf(&list, "%s%s", list.size == 0 ? "" : ", ", kernels[i]->name);
    }
    err_set(err, ERR_NOT_FOUND, "this processor has no instruction set \"%s\"; it has: %s", isa,
            list.data);
    buf_release(&list);
    return false;
}

static struct model_options model_options_of(const struct engine_options *options)
{
    static const enum model_kv kv_types[] = {
        [ENGINE_KV_DEFAULT] = MODEL_KV_DEFAULT,
        [ENGINE_KV_F16] = MODEL_KV_F16,
        [ENGINE_KV_F32] = MODEL_KV_F32,
        [ENGINE_KV_Q8] = MODEL_KV_Q8,
    };
    static const enum model_activation activations[] = {
        [ENGINE_ACTIVATION_DEFAULT] = MODEL_ACTIVATION_DEFAULT,
        [ENGINE_ACTIVATION_WEIGHT] = MODEL_ACTIVATION_WEIGHT,
        [ENGINE_ACTIVATION_32] = MODEL_ACTIVATION_G32,
        [ENGINE_ACTIVATION_64] = MODEL_ACTIVATION_G64,
        [ENGINE_ACTIVATION_128] = MODEL_ACTIVATION_G128,
        [ENGINE_ACTIVATION_ROW] = MODEL_ACTIVATION_ROW,
        [ENGINE_ACTIVATION_NONE] = MODEL_ACTIVATION_NONE,
    };
    return (struct model_options){
        .layer_first = options->layer_first,
        .layer_end = options->layer_end,
        .ctx_size = options->ctx_size,
        .ctx_size_cap = ENGINE_CTX_SIZE_DEFAULT_CAP,
        .kv_memory_bytes = options->kv_memory_bytes,
        .max_rows = options->max_rows,
        .max_sequences = options->max_sequences,
        .threads = options->threads,
        .kv = kv_types[options->kv_type],
        .activation = activations[options->activation],
        .observer = options->observer,
        .record_dir = options->record_dir,
        .prefault = options->prefault,
        .lock = options->mlock,
        .profile = options->profile,
    };
}

static bool native_open(struct engine *engine, const struct engine_options *options,
                        struct engine_info *info, struct err *err)
{
    struct model_options model_options = model_options_of(options);
    if (options->model == NULL)
        return err_set(err, ERR_ARGUMENT, "no model is named");
    if (!choose_kernel(options->isa, &model_options.kernel, err))
        return false;
    struct model *model = model_open(options->model, &model_options, err);
    if (model == NULL)
        return false;
    const struct model_info *of = model_info(model);
    *info = (struct engine_info){
        .n_layers = of->n_layers,
        .layer_first = of->layer_first,
        .layer_end = of->layer_end,
        .max_rows = options->max_rows,
        .max_sequences = options->max_sequences,
        .n_pages = of->n_pages,
        .page_rows = KV_PAGE_ROWS,
        .vocab_size = of->vocab_size,
        .ctx_size = of->ctx_size,
        .carry = of->hidden,
        .rewind = REWIND_ROWS,
        .model_hash = of->model_hash,
        .settings_hash = of->settings_hash,
        .cost = {
            .weights_bytes = of->cost.weights_bytes,
            .position_bytes = of->cost.position_bytes,
            .row_macs = of->cost.row_macs,
            .logits_macs = of->cost.logits_macs,
            .read_bytes_per_s = of->cost.read_bytes_per_s,
        },
    };
    engine_info_limits(info);
    struct native *native = xcalloc(1, sizeof(*native));
    *native = (struct native){
        .model = model,
        .rows = xcalloc(options->max_rows, sizeof(*native->rows)),
        .max_rows = options->max_rows,
        .is_last = engine_is_last(info),
        .width = engine_is_last(info) ? info->vocab_size : info->carry,
    };
    engine->state = native;
    return true;
}

static bool native_step(struct engine *engine, const struct batch *in, struct batch *out,
                        struct err *err)
{
    struct native *native = engine->state;
    if (in->n_rows > native->max_rows) {
        return err_set(err, ERR_BATCH_LOST, "a batch of %u rows; at most %u", in->n_rows,
                       native->max_rows);
    }
    const uint32_t n_logits = native->is_last ? batch_count_logits(in) : 0;
    const size_t n_out = native->is_last ? n_logits : in->n_rows;
    must(out->values_cap >= n_out * native->width);
    for (uint32_t r = 0; r < in->n_rows; r++) {
        native->rows[r] = (struct model_row){
            .sequence = in->rows[r].sequence,
            .position = in->rows[r].position,
            .token = in->rows[r].token,
            .wants_logits = (in->rows[r].flags & (ROW_SAMPLE | ROW_LOGITS)) != 0,
        };
    }
    if (!model_step(native->model, native->rows, in->n_rows, in->values, out->values, err))
        return false;
    batch_copy_rows(out, in);
    out->n_logits = n_logits;
    return true;
}

static void native_keep(struct engine *engine, uint32_t from, uint32_t to, uint32_t rows)
{
    struct native *native = engine->state;
    model_keep(native->model, from, to, rows);
}

static void native_drop(struct engine *engine, uint32_t sequence)
{
    struct native *native = engine->state;
    model_drop(native->model, sequence);
}

const struct engine_ops engine_native = {
    .name = "native",
    .summary = "runs a shard on this machine's processors",
    .devices = native_devices,
    .open = native_open,
    .step = native_step,
    .keep = native_keep,
    .drop = native_drop,
    .close = native_close,
};
