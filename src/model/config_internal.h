/* Reading config.json, in two halves: dimensions and switches (config.c), rotation (config_rope.c).
 * The small readers they share: a key that is absent or null takes the fallback; one of the wrong
 * type or out of range is an error that names it. */
#ifndef CASCADIA_MODEL_CONFIG_INTERNAL_H
#define CASCADIA_MODEL_CONFIG_INTERNAL_H

#include "base/json.h"
#include "model/config.h"

static inline bool config_has(const struct json *object, const char *key)
{
    const enum json_kind type = json_kind(json_get(object, key));
    return type != JSON_KIND_MISSING && type != JSON_KIND_NULL;
}

bool config_u32(const struct json *object, const char *key, uint32_t low, uint32_t high,
                uint32_t *out, struct err *err); // required
bool config_double(const struct json *object, const char *key, double fallback, double low,
                   double high, double *out, struct err *err);
bool config_flag(const struct json *object, const char *key, bool fallback, bool *out,
                 struct err *err);

/* Fills config->rope. head_dim, max_positions and family are read already. */
bool config_read_rope(struct model_config *config, const struct json *root, struct err *err);

#endif
