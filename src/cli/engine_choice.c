/* The rows of the engine's options. Their ceilings are those of the modules behind them; names that
 * a build does not know are usage errors, names that this machine lacks are the engine's to refuse.
 */
#include "cli/engine_choice.h"

#include "base/team.h"
#include "kernel/kernel.h"
#include "model/config.h"

const struct option_row engine_choice_compute_rows[] = {
    OPTION_U32(
        struct engine_choice, threads, "threads", "N", 0, TEAM_THREADS_CAP,
        "threads that compute; 0: one a physical performance core, within the CPU quota; more "
        "than those also take efficient cores, then second threads of cores"),
    OPTION_CHOICE(struct engine_choice, isa, "isa", KERNEL_NAMES,
                  "instruction set; else the best there is"),
    OPTION_U32(struct engine_choice, ctx_size, "ctx-size", "N", 0, MODEL_CONFIG_POSITIONS_CAP,
               "longest sequence, prompt and answer together; 0: as long as the command needs it, "
               "or the model's own, at most 8192"),
    OPTION_CHOICE(
        struct engine_choice, kv_type, "kv-type", "f16|q8|f32",
        "of keys and values: f16, int8, f32; else f32 with float weights, f16 with others"),
    OPTION_CHOICE(struct engine_choice, activation, "activation-group", ENGINE_ACTIVATION_NAMES,
                  "values of an activation that share a scale when it is rounded to int8 for "
                  "quantised weights: as many as of the weight, so many, a row; none: it is not "
                  "rounded, slow; else weight"),
    OPTION_BOOL(struct engine_choice, prefault, "prefault",
                "reads the weights before the first request instead of during it"),
    OPTION_BOOL(struct engine_choice, mlock, "mlock",
                "keeps the weights in memory; needs a limit of locked memory (ulimit -l) that "
                "holds them"),
    OPTION_END,
};

const struct option_row engine_choice_serve_rows[] = {
    OPTION_TEXT(struct engine_choice, engine, "engine", "NAME",
                "what runs the layers, see cascadia engines; else native, or mock for mock-model"),
    OPTION_TEXT(struct engine_choice, device, "device", "NAME",
                "what the engine runs on; else its first"),
    OPTION_BYTES(struct engine_choice, kv_memory, "kv-memory",
                 "memory for keys and values that all sequences share; 0: enough for some"),
    OPTION_U32(struct engine_choice, max_sequences, "max-sequences", "N", 0,
               ENGINE_MAX_SEQUENCES_CAP, "requests that run at once; 0: 16; more wait"),
    OPTION_END,
};

void engine_choice_take(const struct engine_choice *choice, struct engine_options *options)
{
    options->engine = choice->engine;
    options->device = choice->device;
    options->isa = choice->isa;
    options->kv_type = engine_kv_type_named(choice->kv_type);
    options->activation = engine_activation_named(choice->activation);
    options->ctx_size = choice->ctx_size;
    options->threads = choice->threads;
    options->max_sequences = choice->max_sequences;
    options->kv_memory_bytes = choice->kv_memory;
    options->prefault = choice->prefault;
    options->mlock = choice->mlock;
}
