/* Two ways to say where a model is cut. */
#include "shard/split.h"

bool split_even(uint32_t n_layers, uint32_t n_stages, struct split *out, struct err *err)
{
    if (n_stages == 0 || n_stages > n_layers || n_stages > SPLIT_STAGES_CAP)
        return err_set(err, ERR_ARGUMENT, "%u stages of %u layers; there can be 1 to %u", n_stages,
                       n_layers, n_layers < SPLIT_STAGES_CAP ? n_layers : SPLIT_STAGES_CAP);
    uint32_t each = n_layers / n_stages, left_over = n_layers % n_stages, next = 0;
    for (uint32_t i = 0; i < n_stages; i++) {
        uint32_t end = next + each + (i < left_over);
        out->stages[i] = (struct manifest_stage){ next, end };
        next = end;
    }
    out->n_stages = n_stages;
    return true;
}

bool split_parse(struct str boundaries, uint32_t n_layers, struct split *out, struct err *err)
{
    struct split split = { .n_stages = 0 };
    struct str rest = boundaries, part;
    uint32_t next = 0;
    while (str_split(&rest, ',', &part)) {
        uint64_t boundary;
        if (!str_to_u64(str_trim(part), &boundary) || boundary <= next || boundary >= n_layers)
            return err_set(err, ERR_ARGUMENT,
                           "layer split \"%.*s\": the boundaries must rise between 1 and %u",
                           STR_ARG(boundaries), n_layers - 1);
        if (split.n_stages + 2 > SPLIT_STAGES_CAP)
            return err_set(err, ERR_ARGUMENT, "more than %u stages", SPLIT_STAGES_CAP);
        split.stages[split.n_stages++] = (struct manifest_stage){ next, (uint32_t)boundary };
        next = (uint32_t)boundary;
    }
    split.stages[split.n_stages++] = (struct manifest_stage){ next, n_layers };
    *out = split;
    return true;
}
