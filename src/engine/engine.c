/* The register of engines, and what all of them share: finding one by name and device, and the
 * defaults and ceilings of options that mean the same for each. */
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/memory.h"

const struct engine_ops *const engines[] = { &engine_native, &engine_mock, NULL };

enum engine_kv_type engine_kv_type_named(const char *name)
{
    if (name == NULL)
        return ENGINE_KV_DEFAULT;
    return strcmp(name, "f16") == 0  ? ENGINE_KV_F16
           : strcmp(name, "q8") == 0 ? ENGINE_KV_Q8
                                     : ENGINE_KV_F32;
}

enum engine_activation engine_activation_named(const char *name)
{
    static const char *const names[] = {
        [ENGINE_ACTIVATION_WEIGHT] = "weight", [ENGINE_ACTIVATION_32] = "32",
        [ENGINE_ACTIVATION_64] = "64",         [ENGINE_ACTIVATION_128] = "128",
        [ENGINE_ACTIVATION_ROW] = "row",       [ENGINE_ACTIVATION_NONE] = "none",
    };
    for (size_t i = ENGINE_ACTIVATION_WEIGHT; name != NULL && i < sizeof(names) / sizeof(names[0]);
         i++) {
        if (strcmp(name, names[i]) == 0)
            return (enum engine_activation)i;
    }
    must(name == NULL);
    return ENGINE_ACTIVATION_DEFAULT;
}

static bool has_device(const struct engine_ops *ops, const char *device)
{
    for (size_t i = 0; ops->devices[i] != NULL; i++) {
        if (strcmp(ops->devices[i], device) == 0)
            return true;
    }
    return false;
}

/* "native on cpu; mock on cpu" */
static void list_engines(struct buf *out)
{
    for (size_t i = 0; engines[i] != NULL; i++) {
        buf_printf(out, "%s%s on", i == 0 ? "" : "; ", engines[i]->name);
        for (size_t d = 0; engines[i]->devices[d] != NULL; d++)
            buf_printf(out, "%s %s", d == 0 ? "" : ",", engines[i]->devices[d]);
    }
}

static bool no_such_engine(const char *what, struct err *err)
{
    struct buf list;
    buf_init(&list, 400);
    list_engines(&list);
    err_set(err, ERR_NOT_FOUND, "there is no %s; there are: %s", what, list.data);
    buf_release(&list);
    return false;
}

bool engine_find(const struct engine_options *options, const struct engine_ops **ops,
                 struct err *err)
{
    char what[160];
    for (size_t i = 0; engines[i] != NULL; i++) {
        must(engines[i]->open && engines[i]->step && engines[i]->keep && engines[i]->drop &&
             engines[i]->close && engines[i]->devices && engines[i]->devices[0]);
        if (options->engine != NULL && strcmp(options->engine, engines[i]->name) != 0)
            continue;
        if (options->device != NULL && !has_device(engines[i], options->device)) {
            snprintf(what, sizeof(what), "device \"%s\" for engine %s", options->device,
                     engines[i]->name);
            return no_such_engine(what, err);
        }
        *ops = engines[i];
        return true;
    }
    snprintf(what, sizeof(what), "engine \"%s\"", options->engine);
    return no_such_engine(what, err);
}

static bool fill_in(struct engine_options *options, struct err *err)
{
    if (options->max_rows == 0)
        options->max_rows = ENGINE_MAX_ROWS_DEFAULT;
    if (options->max_sequences == 0)
        options->max_sequences = ENGINE_MAX_SEQUENCES_DEFAULT;
    if (options->max_rows > ENGINE_MAX_ROWS_CAP) {
        return err_set(err, ERR_ARGUMENT, "a batch of %u rows; at most %u", options->max_rows,
                       ENGINE_MAX_ROWS_CAP);
    }
    if (options->max_sequences > ENGINE_MAX_SEQUENCES_CAP) {
        return err_set(err, ERR_ARGUMENT, "%u sequences; at most %u", options->max_sequences,
                       ENGINE_MAX_SEQUENCES_CAP);
    }
    return true;
}

bool engine_open(struct engine *engine, const struct engine_options *options,
                 struct engine_info *info, struct err *err)
{
    *engine = (struct engine){ 0 };
    struct engine_options filled = *options;
    struct engine opened = { 0 };
    struct engine_info opened_info = { 0 };
    if (!engine_find(options, &opened.ops, err) || !fill_in(&filled, err))
        return false;
    filled.engine = opened.ops->name;
    if (filled.device == NULL)
        filled.device = opened.ops->devices[0];
    if (!opened.ops->open(&opened, &filled, &opened_info, err))
        return err_wrap(err, "engine %s", opened.ops->name);
    *engine = opened;
    *info = opened_info;
    return true;
}

static uint32_t whole_u32(double value)
{
    return value >= (double)UINT32_MAX ? UINT32_MAX : (uint32_t)(value + 0.5);
}

void engine_info_limits(struct engine_info *info)
{
    const struct engine_cost *cost = &info->cost;
    info->step_read_ns = info->position_read_ps = 0;
    if (cost->read_bytes_per_s <= 0)
        return;
    info->step_read_ns = whole_u32((double)cost->weights_bytes * 1e9 / cost->read_bytes_per_s);
    info->position_read_ps =
        whole_u32((double)cost->position_bytes * 1e12 / cost->read_bytes_per_s);
}

void engine_close(struct engine *engine)
{
    if (engine->ops != NULL)
        engine->ops->close(engine);
    *engine = (struct engine){ 0 };
}
