/* The generic frame of a decoder: embedding, layers of blocks, final norm, head.
 *
 * A layer is the list of blocks that its family names; each adds to the residual stream what it
 * makes of the normed one. Nothing here knows a family: dimensions come from config.json, blocks
 * and norms from the family's table, formats from the shard.
 *
 * Opening refuses whatever would fail later: each tensor is looked up and its shape checked, so a
 * step can only fail for its rows, for want of a page, or because values stop being finite (which
 * the packing of each block's input finds; the step ends there and names the place). */
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/team.h"
#include "kernel/cpu.h"
#include "kernel/tuning.h"
#include "model/block.h"
#include "model/profile.h"
#include "weights/weights.h"

/* Part of every settings hash: rises with any change of arithmetic (docs/numerics.md). */
#define MODEL_NUMERICS_VERSION 2u

struct model {
    struct model_info info;
    struct model_config config;
    struct weights *weights;
    const struct kernel *kernel;
    struct matmul_tuning tuning;
    struct team *team;
    struct arena arena; // block states and f32 vectors
    struct rope_table ropes[LAYER_KIND_COUNT];
    struct workspace ws;
    struct kv_cache kv;
    struct block *blocks; // [n_blocks], layer by layer
    uint32_t n_blocks;
    struct matrix embedding; // first stage
    const float *final_norm; // last stage
    struct product head;
    enum model_activation activation;
    struct profile *profile;               // borrowed; NULL: none
    const struct model_observer *observer; // or NULL
    uint32_t max_rows;
    struct kv_row *rows; // [max_rows] of the batch at hand
    uint32_t *wanted;    // [max_rows] those that want logits
};

static bool is_first(const struct model *model)
{
    return model->info.layer_first == 0;
}

static bool is_last(const struct model *model)
{
    return model->info.layer_end == model->info.n_layers;
}

/* ---- open ---- */

static bool choose_range(struct model *model, const struct model_options *options, struct err *err)
{
    const struct model_config *config = &model->config;
    const uint32_t end = options->layer_end != 0 ? options->layer_end : config->n_layers;
    if (end > config->n_layers || options->layer_first >= end) {
        return err_set(err, ERR_ARGUMENT, "layers %u to %u: the model has %u", options->layer_first,
                       end, config->n_layers);
    }
    uint32_t ctx_size = options->ctx_size;
    if (ctx_size == 0) {
        ctx_size = config->max_positions < options->ctx_size_cap ? config->max_positions
                                                                 : options->ctx_size_cap;
    }
    if (ctx_size > MODEL_CONFIG_POSITIONS_CAP)
        return err_set(err, ERR_ARGUMENT, "a context of %u positions", ctx_size);
    if (ctx_size > config->max_positions && !model_config_rope_depends_on_context(config))
        log_warn("a context of %u positions: the model was made for %u", ctx_size,
                 config->max_positions);
    model->info = (struct model_info){
        .family = config->family->name,
        .n_layers = config->n_layers,
        .layer_first = options->layer_first,
        .layer_end = end,
        .hidden = config->hidden,
        .vocab_size = config->vocab_size,
        .ctx_size = ctx_size,
    };
    return true;
}

static bool open_weights(struct model *model, const char *directory, const char *record_dir,
                         struct err *err)
{
    const struct weights_options options = {
        .layer_first = model->info.layer_first,
        .layer_end = model->info.layer_end,
        .record_dir = record_dir,
    };
    model->weights = weights_open(directory, &options, err);
    if (model->weights == NULL)
        return false;
    const struct manifest *manifest = weights_manifest(model->weights);
    if (manifest->n_layers != model->info.n_layers || manifest->is_tied != model->config.is_tied) {
        return err_set(err, ERR_FORMAT,
                       "%s: manifest and config.json disagree: %u layers%s, %u layers%s", directory,
                       manifest->n_layers, manifest->is_tied ? ", tied" : "", model->info.n_layers,
                       model->config.is_tied ? ", tied" : "");
    }
    return true;
}

/* f32 with float weights, else f16. Decided by what the shard was asked to be, which all stages
 * know alike, not by the layers at hand. */
static enum kv_type choose_kv(const struct model *model, enum model_kv asked)
{
    enum quant_format format;
    struct err ignored;
    if (asked != MODEL_KV_DEFAULT)
        return asked == MODEL_KV_F32 ? KV_F32 : asked == MODEL_KV_Q8 ? KV_Q8 : KV_F16;
    const struct str quantization = weights_manifest(model->weights)->quantization;
    return quant_format_find(quantization, &format, &ignored) && quant_formats[format]->is_float
               ? KV_F32
               : KV_F16;
}

/* Mixes 64-bit values by hashing them as text, so that no machine's byte order enters. */
static uint64_t hash_values(const uint64_t *values, size_t n_values)
{
    struct buf text;
    buf_init(&text, 4096);
    for (size_t i = 0; i < n_values; i++)
        buf_printf(&text, "%llx ", (unsigned long long)values[i]);
    const uint64_t hash = hash_xxh3(text.data, text.size);
    buf_release(&text);
    return hash;
}

static void hash_model(struct model *model)
{
    const struct manifest *manifest = weights_manifest(model->weights);
    const struct manifest_file *config = manifest_find_file(manifest, "config.json");
    const uint64_t what[] = {
        config != NULL ? config->xxh3 : 0,
        manifest->settings_hash,
        model->info.n_layers,
    };
    model->info.model_hash = hash_values(what, sizeof(what) / sizeof(what[0]));
    const uint64_t settings[] = {
        MODEL_NUMERICS_VERSION,
        manifest->settings_hash,
        (uint64_t)model->kv.shape.type,
        (uint64_t)model->activation,
        model_config_rope_depends_on_context(&model->config) ? model->info.ctx_size : 0,
    };
    model->info.settings_hash = hash_values(settings, sizeof(settings) / sizeof(settings[0]));
}

static bool open_memory(struct model *model, const struct model_options *options, struct err *err)
{
    const struct model_config *config = &model->config;
    const struct kv_cache_options kv = {
        .shape = { .n_kv_heads = config->n_kv_heads,
                   .head_dim = config->head_dim,
                   .type = choose_kv(model, options->kv) },
        .n_layers = model->info.layer_end - model->info.layer_first,
        .ctx_size = model->info.ctx_size,
        .max_sequences = options->max_sequences,
        .max_rows = options->max_rows,
        .memory_bytes = options->kv_memory_bytes,
    };
    const struct workspace_options ws = {
        .config = config,
        .shape = &kv.shape,
        .max_rows = options->max_rows,
        .n_threads = team_threads(model->team),
        .ctx_size = model->info.ctx_size,
        .n_ops = (kv.n_layers * config->family->n_blocks + 1) * BLOCK_OPS_CAP,
    };
    model->max_rows = options->max_rows;
    model->rows = xcalloc(options->max_rows, sizeof(*model->rows));
    model->wanted = xcalloc(options->max_rows, sizeof(*model->wanted));
    if (!kv_cache_init(&model->kv, &kv, err) || !workspace_init(&model->ws, &ws, err))
        return false;
    model->info.n_pages = model->kv.pages.n_pages;
    for (uint32_t kind = 0; kind < LAYER_KIND_COUNT; kind++) {
        if (config->rope[kind].theta != 0 && // else no layer is of this kind
            !rope_table_init(&model->ropes[kind], &config->rope[kind], config->head_dim,
                             config->max_positions, model->info.ctx_size, model->team, err))
            return false;
    }
    return true;
}

/* What all vectors of the stage need as f32, with room for the blocks' states. */
static size_t arena_ceiling(const struct model *model)
{
    const struct model_config *config = &model->config;
    const size_t of_layer =
        (size_t)4 * (config->n_heads * config->head_dim + 2 * (size_t)config->hidden +
                     2 * (size_t)config->n_kv_heads * config->head_dim + config->hidden * 2 +
                     2 * (size_t)config->intermediate + 2 * (size_t)config->head_dim) +
        ((size_t)16 << 10);
    return of_layer * (model->info.layer_end - model->info.layer_first + 2);
}

static bool open_blocks(struct model *model, const struct block_parts *parts, struct err *err)
{
    const struct family *family = model->config.family;
    const uint32_t n_layers = model->info.layer_end - model->info.layer_first;
    model->n_blocks = n_layers * family->n_blocks;
    model->blocks = arena_array(&model->arena, model->n_blocks, sizeof(*model->blocks));
    must(model->blocks != NULL);
    for (uint32_t i = 0; i < model->n_blocks; i++) {
        const struct family_block *what = &family->blocks[i % family->n_blocks];
        struct block *block = &model->blocks[i];
        block->ops = blocks[what->kind];
        block->layer = model->info.layer_first + i / family->n_blocks;
        if (!block_vector(parts, block->layer, what->norm, &block->norm, err) ||
            !block->ops->open(block, parts, err))
            return false;
    }
    for (uint32_t i = model->n_blocks; is_last(model) && i-- > 0;) {
        if (model->blocks[i].ops->mixes_rows) {
            model->blocks[i].is_last_reader = true;
            break;
        }
    }
    return true;
}

static bool open_ends(struct model *model, const struct block_parts *parts, struct err *err)
{
    if (is_first(model) &&
        !block_matrix(parts, TENSOR_NO_LAYER, TENSOR_EMBEDDING, &model->embedding, err))
        return false;
    if (!is_last(model))
        return true;
    struct matrix head;
    const enum tensor_role role = model->config.is_tied ? TENSOR_EMBEDDING : TENSOR_HEAD;
    if (!block_vector(parts, TENSOR_NO_LAYER, TENSOR_FINAL_NORM, &model->final_norm, err) ||
        !block_matrix(parts, TENSOR_NO_LAYER, role, &head, err))
        return false;
    model->head = (struct product){
        .name = "head",
        .role = TENSOR_HEAD,
        .x = model->ws.hidden,
        .weight = model->final_norm,
        .epsilon = model->config.norm_eps,
        .normed = model->ws.normed,
        .memory = model->ws.input_memory,
        .rounding = model->activation,
    };
    product_add(&model->head, &(struct matmul_part){
                                  .weights = head,
                                  .epilogue = MATMUL_STORE,
                                  .out_stride = model->config.vocab_size,
                              });
    return true;
}

/* By the table of cores; on one that is not in it, by a probe of some milliseconds. The scalar rung
 * computes far below any memory's rate. */
static void choose_tuning(struct model *model)
{
    const struct cpu cpu = cpu_detect();
    model->tuning = tuning_candidates[0];
    if (model->kernel == kernels[0])
        return;
    const bool is_known = tuning_find(cpu.microarch, &model->tuning);
    uint8_t *const memory = is_known ? NULL : aligned_alloc(64, TUNING_PROBE_BYTES);
    if (memory != NULL) {
        memset(memory, 0, TUNING_PROBE_BYTES);
        model->tuning = tuning_probe(model->kernel, memory);
        free(memory);
    }
    log_debug("%s, %s: prefetch %s, %u bytes ahead, %u panels together",
              cpu_microarch_name(cpu.microarch), is_known ? "known" : "probed",
              tuning_hint_name(&model->tuning), model->tuning.prefetch_bytes,
              model->tuning.n_panels);
}

static bool open_all(struct model *model, const char *directory,
                     const struct model_options *options, struct err *err)
{
    model->profile = options->profile;
    model->kernel = options->kernel != NULL ? options->kernel : kernel_best();
    choose_tuning(model);
    model->observer = options->observer;
    model->activation = options->activation != MODEL_ACTIVATION_DEFAULT ? options->activation
                                                                        : MODEL_ACTIVATION_WEIGHT;
    if (!model_config_read(&model->config, directory, err) || !choose_range(model, options, err) ||
        !open_weights(model, directory, options->record_dir, err))
        return false;
    model->team = team_new(options->threads, err);
    if (model->team == NULL || !open_memory(model, options, err))
        return false;
    arena_init(&model->arena, arena_ceiling(model));
    const struct block_parts parts = {
        .config = &model->config,
        .weights = model->weights,
        .ropes = model->ropes,
        .ws = &model->ws,
        .arena = &model->arena,
        .layer_first = model->info.layer_first,
        .activation = model->activation,
    };
    if (!open_blocks(model, &parts, err) || !open_ends(model, &parts, err))
        return err_wrap(err, "%s", directory);
    hash_model(model);
    weights_will_need(model->weights);
    if (options->prefault)
        weights_prefault(model->weights);
    if (options->lock && !weights_lock(model->weights, err))
        return false;
    model_cost_measure(&model->info.cost, model->weights, is_last(model), &model->kv,
                       team_threads(model->team));
    return true;
}

struct model *model_open(const char *directory, const struct model_options *options,
                         struct err *err)
{
    struct model *model = xcalloc(1, sizeof(*model));
    if (!open_all(model, directory, options, err)) {
        model_close(model);
        return NULL;
    }
    return model;
}

void model_close(struct model *model)
{
    if (model == NULL)
        return;
    for (uint32_t kind = 0; kind < LAYER_KIND_COUNT; kind++)
        rope_table_release(&model->ropes[kind]);
    workspace_release(&model->ws);
    kv_cache_release(&model->kv);
    team_free(model->team);
    arena_release(&model->arena);
    weights_close(model->weights);
    model_config_release(&model->config);
    free(model->rows);
    free(model->wanted);
    free(model);
}

const struct model_info *model_info(const struct model *model)
{
    return &model->info;
}

/* ---- step ---- */

struct embedding_run {
    const struct matrix *embedding;
    const struct model_row *rows;
    float *hidden;
};

static void embed_rows(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct embedding_run *run = context;
    (void)thread;
    for (uint32_t row = first; row < last; row++) {
        matrix_decode_row(run->embedding, (uint32_t)run->rows[row].token,
                          run->hidden + (size_t)row * run->embedding->cols);
    }
}

/* Appends what rows go through: the layers, and for those that want logits final norm and head. */
static void add_layers(struct model *model, struct step *step, float *out)
{
    for (uint32_t i = 0; i < model->n_blocks && step->n_rows > 0; i++) {
        step->block = &model->blocks[i];
        step->block->ops->step(step->block, step);
    }
    step->block = NULL;
    if (is_last(model) && step->n_rows > 0) {
        model->head.matmul.parts[0].out = out;
        step_product(step, &model->head);
    }
}

/* The time since start_ns, loop by loop; what came before the first is the list itself. */
static void add_to_profile(struct profile *profile, const struct step *step, uint64_t start_ns,
                           uint64_t listed_ns)
{
    const struct workspace *ws = step->ws;
    uint64_t before = listed_ns;
    profile_add(profile, "making the list", listed_ns - start_ns);
    for (uint32_t i = 0; i < step->n_ops; i++) {
        profile_add(profile, ws->op_names[i], ws->op_ended_ns[i] - before);
        before = ws->op_ended_ns[i];
    }
    profile->n_steps++;
    profile->ns += before - start_ns;
}

/* start_ns: when the step began, if it is to be profiled; else 0. */
static bool run_step(struct model *model, struct step *step, uint64_t start_ns, struct err *err)
{
    const uint64_t listed_ns = start_ns ? clock_ns() : 0;
    model->info.step_ops = step->n_ops;
    team_run(model->team, model->ws.ops, step->n_ops,
             &(struct team_watch){
                 .stop = &step->is_lost,
                 .ended_ns = start_ns ? model->ws.op_ended_ns : NULL,
             });
    if (start_ns)
        add_to_profile(model->profile, step, start_ns, listed_ns);
    if (!atomic_load(&step->is_lost))
        return true;
    const struct block *block = atomic_load(&step->lost);
    if (block == NULL)
        return err_set(err, ERR_BATCH_LOST, "behind the last layer: a value is not finite");
    return err_set(err, ERR_BATCH_LOST, "layer %u, %s: a value is not finite", block->layer,
                   block->ops->name);
}

static bool check_rows(const struct model *model, const struct model_row *rows, uint32_t n_rows,
                       struct err *err)
{
    if (n_rows > model->max_rows) {
        return err_set(err, ERR_BATCH_LOST, "a batch of %u rows; at most %u", n_rows,
                       model->max_rows);
    }
    for (uint32_t row = 0; row < n_rows; row++) {
        if (rows[row].token < 0 || (uint32_t)rows[row].token >= model->config.vocab_size) {
            return err_set(err, ERR_BATCH_LOST, "token %d is not one of %u", rows[row].token,
                           model->config.vocab_size);
        }
    }
    return true;
}

static bool compute(struct model *model, const struct model_row *rows, uint32_t n_rows,
                    const float *in, float *out, struct err *err)
{
    const size_t hidden = model->config.hidden;
    const bool is_profiled = model->profile != NULL && model->profile->n_rows == n_rows;
    const uint64_t start_ns = is_profiled ? clock_ns() : 0;
    uint32_t n_wanted = 0;
    for (uint32_t row = 0; row < n_rows; row++) {
        if (rows[row].wants_logits)
            model->wanted[n_wanted++] = row;
    }
    struct step step = {
        .kernel = model->kernel,
        .tuning = &model->tuning,
        .team = model->team,
        .ws = &model->ws,
        .kv = &model->kv,
        .observer = model->observer,
        .hidden_width = model->config.hidden,
    };
    step_begin(&step, model->rows, n_rows, model->wanted, n_wanted);
    if (is_first(model)) {
        step_add(&step, &(struct step_loop){
                            .name = "embed",
                            .body = embed_rows,
                            .context = &(struct embedding_run){ &model->embedding, rows,
                                                                model->ws.hidden },
                            .context_bytes = sizeof(struct embedding_run),
                            .n_items = n_rows,
                            .chunk = 4,
                        });
    } else {
        memcpy(model->ws.hidden, in, n_rows * hidden * sizeof(float));
    }
    add_layers(model, &step, out);
    if (!run_step(model, &step, start_ns, err))
        return false;
    if (!is_last(model))
        memcpy(out, model->ws.hidden, n_rows * hidden * sizeof(float));
    return true;
}

bool model_step(struct model *model, const struct model_row *rows, uint32_t n_rows, const float *in,
                float *out, struct err *err)
{
    if (!check_rows(model, rows, n_rows, err))
        return false;
    for (uint32_t row = 0; row < n_rows; row++)
        model->rows[row] = (struct kv_row){ rows[row].sequence, rows[row].position };
    if (n_rows == 0)
        return true;
    if (!kv_cache_plan(&model->kv, model->rows, n_rows, err))
        return false;
    if (!compute(model, rows, n_rows, in, out, err)) {
        kv_pages_abort(&model->kv.pages);
        return false;
    }
    kv_pages_commit(&model->kv.pages);
    return true;
}

void model_keep(struct model *model, uint32_t from, uint32_t to, uint32_t rows)
{
    kv_pages_keep(&model->kv.pages, from, to, rows);
}

void model_drop(struct model *model, uint32_t sequence)
{
    kv_pages_drop(&model->kv.pages, sequence);
}
