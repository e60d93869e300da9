/* config.json: whatever the bytes are, it is refused with a sentence or becomes a configuration
 * whose tables and rotation can be walked to their ends. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/err.h"
#include "kernel/kernel.h"
#include "model/config.h"
#include "model/family.h"
#include "model/rope.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void walk(const struct model_config *config)
{
    double frequencies[ATTEND_HEAD_DIM_CAP / 2], factor;
    const uint32_t n_needs = family_count_needs(config);
    for (uint32_t i = 0; i < n_needs; i += 1 + n_needs / 64) {
        struct family_need need, again;
        family_need_at(config, i, &need);
        must(family_need_named(config, str_from(need.name), &again));
        must(again.role == need.role && again.layer == need.layer);
    }
    for (uint32_t layer = 0; layer < config->n_layers; layer++)
        must(model_config_window(config, layer) > 0);
    for (uint32_t kind = 0; kind < LAYER_KIND_COUNT; kind++) {
        if (config->rope[kind].theta != 0)
            rope_frequencies(&config->rope[kind], config->head_dim, config->max_positions, 4096,
                             frequencies, &factor);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct model_config config;
    struct err err = { 0 };
    const struct str text = { (const char *)bytes, size };
    if (model_config_parse(&config, text, &err)) {
        walk(&config);
        model_config_release(&config);
    } else {
        must(err.code != ERR_NONE && err.text[0] != '\0' && config.family == NULL);
    }
    return 0;
}
