/* The gated MLP: h += down(silu(gate x) * up x), with biases where the family has them.
 *
 * Gate and up usually lie panel by panel beside each other, and the activation is the epilogue of
 * their one product; stored apart (sources that mix formats) they are two parts of one product with
 * the activation behind. Both give the same bits. */
#include "model/block.h"

#include "base/memory.h"

struct mlp {
    struct product input; // gate and up
    struct product down;
    bool is_apart;
    uint32_t intermediate;
};

static bool open_biases(const struct block_parts *parts, uint32_t layer, const float **gate,
                        const float **up, const float **down, struct err *err)
{
    return !parts->config->has_mlp_bias ||
           (block_vector(parts, layer, TENSOR_GATE_BIAS, gate, err) &&
            block_vector(parts, layer, TENSOR_UP_BIAS, up, err) &&
            block_vector(parts, layer, TENSOR_DOWN_BIAS, down, err));
}

static bool mlp_open(struct block *block, const struct block_parts *parts, struct err *err)
{
    struct mlp *mlp = arena_alloc(parts->arena, sizeof(*mlp));
    const uint32_t layer = block->layer, width = parts->config->intermediate;
    struct workspace *ws = parts->ws;
    const float *gate_bias = NULL, *up_bias = NULL, *down_bias = NULL;
    struct matrix first, up, down;
    must(mlp != NULL);
    *mlp = (struct mlp){
        .is_apart = weights_find(parts->weights, layer, TENSOR_GATE_UP) == NULL,
        .intermediate = width,
    };
    if (!open_biases(parts, layer, &gate_bias, &up_bias, &down_bias, err) ||
        !block_matrix(parts, layer, mlp->is_apart ? TENSOR_GATE : TENSOR_GATE_UP, &first, err) ||
        (mlp->is_apart && !block_matrix(parts, layer, TENSOR_UP, &up, err)) ||
        !block_matrix(parts, layer, TENSOR_DOWN, &down, err))
        return false;
    mlp->input = block_input(block, parts, "gate, up", TENSOR_GATE);
    product_add(&mlp->input, &(struct matmul_part){
                                 .weights = first,
                                 .bias = gate_bias,
                                 .up_bias = mlp->is_apart ? NULL : up_bias,
                                 .epilogue = mlp->is_apart ? MATMUL_STORE : MATMUL_SILU_MUL,
                                 .out = ws->gate,
                                 .out_stride = width,
                             });
    if (mlp->is_apart) {
        product_add(&mlp->input, &(struct matmul_part){
                                     .weights = up,
                                     .bias = up_bias,
                                     .epilogue = MATMUL_STORE,
                                     .out = ws->up,
                                     .out_stride = width,
                                 });
    }
    mlp->down = block_product(parts, "down", TENSOR_DOWN, ws->gate);
    product_add(&mlp->down, &(struct matmul_part){
                                .weights = down,
                                .bias = down_bias,
                                .epilogue = MATMUL_ADD,
                                .out = ws->hidden,
                                .out_stride = parts->config->hidden,
                            });
    block->state = mlp;
    return true;
}

struct activating {
    const struct step *step;
    uint32_t width;
};

static void activate_rows(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct activating *activating = context;
    const struct workspace *ws = activating->step->ws;
    const size_t at = (size_t)first * activating->width;
    (void)thread;
    activating->step->kernel->vec->silu_mul(
        ws->gate + at, ws->up + at, (size_t)(last - first) * activating->width, ws->gate + at);
}

static void mlp_step(const struct block *block, struct step *step)
{
    struct mlp *mlp = block->state;
    step_product(step, &mlp->input);
    if (mlp->is_apart) {
        step_add(step, &(struct step_loop){
                           .name = "activate",
                           .body = activate_rows,
                           .context = &(struct activating){ step, mlp->intermediate },
                           .context_bytes = sizeof(struct activating),
                           .n_items = step->n_rows,
                           .chunk = 4,
                       });
    }
    step_product(step, &mlp->down);
}

const struct block_ops block_mlp = {
    .name = "MLP",
    .open = mlp_open,
    .step = mlp_step,
};
