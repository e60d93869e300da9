/* The formulas are those of transformers' modeling_rope_utils (shared with the papers they come
 * from), each with its own small function; what they have in common is theta^(-2i/d). Every step is
 * in double and rounded to f32 once, behind the attention factor. */
#include "model/rope.h"

#include <math.h>

#include "base/memory.h"
#include "kernel/fmath.h"
#include "kernel/kernel.h"

#define TWO_PI 6.283185307179586476925286766559
#define ANGLE_CAP 1e8 // what fmath_sin and fmath_cos promise

/* theta^(-2i/d) */
static void plain_frequencies(double theta, uint32_t head_dim, double *frequencies)
{
    for (uint32_t i = 0; i < head_dim / 2; i++)
        frequencies[i] = fmath_pow(theta, -2.0 * i / head_dim);
}

static double dynamic_theta(const struct rope_config *config, uint32_t head_dim,
                            uint32_t max_positions, uint32_t ctx_size)
{
    if (head_dim == 2) {
        return config->theta; // one pair, and its frequency is 1 whatever theta is
    }
    const double length = ctx_size > max_positions ? ctx_size : max_positions;
    const double stretch = config->factor * length / max_positions - (config->factor - 1);
    return config->theta * fmath_pow(stretch, head_dim / (head_dim - 2.0));
}

/* Waves shorter than original / high stay, those longer than original / low are stretched. */
static double llama3_frequency(const struct rope_config *config, double frequency)
{
    const double turns = config->original_positions * frequency / TWO_PI; // original / wavelength
    if (turns > config->high_freq_factor)
        return frequency;
    if (turns < config->low_freq_factor)
        return frequency / config->factor;
    const double smooth =
        (turns - config->low_freq_factor) / (config->high_freq_factor - config->low_freq_factor);
    return (1 - smooth) * frequency / config->factor + smooth * frequency;
}

/* The (fractional) pair that turns `turns` times within the original context. */
static double yarn_pair(const struct rope_config *config, uint32_t head_dim, double turns)
{
    return head_dim * fmath_log64(config->original_positions / (turns * TWO_PI)) /
           (2 * fmath_log64(config->theta));
}

static void yarn_frequencies(const struct rope_config *config, uint32_t head_dim,
                             double *frequencies)
{
    double low = yarn_pair(config, head_dim, config->beta_fast);
    double high = yarn_pair(config, head_dim, config->beta_slow);
    if (config->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = low < 0 ? 0 : low;
    high = high > head_dim - 1.0 ? head_dim - 1.0 : high;
    if (low == high)
        high += 0.001;
    for (uint32_t i = 0; i < head_dim / 2; i++) {
        double ramp = (i - low) / (high - low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        frequencies[i] = frequencies[i] / config->factor * ramp + frequencies[i] * (1 - ramp);
    }
}

static double yarn_scale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * fmath_log64(factor) + 1;
}

static double yarn_attention_factor(const struct rope_config *config)
{
    if (config->attention_factor != 0)
        return config->attention_factor;
    if (config->mscale != 0 && config->mscale_all_dim != 0) {
        return yarn_scale(config->factor, config->mscale) /
               yarn_scale(config->factor, config->mscale_all_dim);
    }
    return yarn_scale(config->factor, 1);
}

static double longrope_attention_factor(const struct rope_config *config, uint32_t max_positions)
{
    if (config->attention_factor != 0)
        return config->attention_factor;
    const double original = config->original_positions;
    const double factor = config->factor != 0 ? config->factor : max_positions / original;
    return factor <= 1 || original < 2 ? 1 : sqrt(1 + fmath_log64(factor) / fmath_log64(original));
}

void rope_frequencies(const struct rope_config *config, uint32_t head_dim, uint32_t max_positions,
                      uint32_t ctx_size, double *frequencies, double *attention_factor)
{
    const uint32_t n_pairs = head_dim / 2;
    const double *divisors = NULL;
    double theta = config->theta;
    *attention_factor = 1;
    if (config->type == ROPE_DYNAMIC)
        theta = dynamic_theta(config, head_dim, max_positions, ctx_size);
    plain_frequencies(theta, head_dim, frequencies);
    switch (config->type) {
    case ROPE_LINEAR:
        for (uint32_t i = 0; i < n_pairs; i++)
            frequencies[i] /= config->factor;
        break;
    case ROPE_LLAMA3:
        for (uint32_t i = 0; i < n_pairs; i++)
            frequencies[i] = llama3_frequency(config, frequencies[i]);
        break;
    case ROPE_YARN:
        yarn_frequencies(config, head_dim, frequencies);
        *attention_factor = yarn_attention_factor(config);
        break;
    case ROPE_LONGROPE:
        divisors =
            ctx_size > config->original_positions ? config->long_divisors : config->short_divisors;
        *attention_factor = longrope_attention_factor(config, max_positions);
        break;
    case ROPE_DIVISORS:
        divisors = config->divisors;
        break;
    case ROPE_DEFAULT:
    case ROPE_DYNAMIC:
    case ROPE_TYPE_COUNT:
        break;
    }
    for (uint32_t i = 0; divisors != NULL && i < n_pairs; i++)
        frequencies[i] /= divisors[i];
}

struct fill {
    const struct rope_table *table;
    const double *frequencies;
    double attention_factor;
};

static void fill_positions(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct fill *fill = context;
    const uint32_t n_pairs = fill->table->n_pairs;
    (void)thread;
    for (uint32_t position = first; position < last; position++) {
        float *cos = fill->table->cos + (size_t)position * n_pairs;
        float *sin = fill->table->sin + (size_t)position * n_pairs;
        for (uint32_t i = 0; i < n_pairs; i++) {
            const double angle = position * fill->frequencies[i];
            cos[i] = (float)(fmath_cos(angle) * fill->attention_factor);
            sin[i] = (float)(fmath_sin(angle) * fill->attention_factor);
        }
    }
}

bool rope_table_init(struct rope_table *table, const struct rope_config *config, uint32_t head_dim,
                     uint32_t max_positions, uint32_t ctx_size, struct team *team, struct err *err)
{
    double frequencies[ATTEND_HEAD_DIM_CAP / 2];
    double attention_factor;
    must(head_dim <= ATTEND_HEAD_DIM_CAP);
    *table = (struct rope_table){ 0 };
    rope_frequencies(config, head_dim, max_positions, ctx_size, frequencies, &attention_factor);
    for (uint32_t i = 0; i < head_dim / 2; i++) {
        if (!(fabs(frequencies[i]) * ctx_size < ANGLE_CAP) || !isfinite(attention_factor)) {
            return err_set(err, ERR_FORMAT, "the rotation's settings give pair %u no usable angle",
                           i);
        }
    }
    size_t half, bytes;
    if (!size_mul((size_t)ctx_size * sizeof(float), head_dim / 2, &half) ||
        !size_mul(half, 2, &bytes))
        return err_set(err, ERR_NO_MEMORY, "rotation tables of %u positions", ctx_size);
    float *values = memory_pages(bytes, err);
    if (values == NULL)
        return err_wrap(err, "rotation tables of %u positions", ctx_size);
    *table = (struct rope_table){
        .n_positions = ctx_size,
        .n_pairs = head_dim / 2,
        .cos = values,
        .sin = values + half / sizeof(float),
        .bytes = bytes,
    };
    struct fill fill = { table, frequencies, attention_factor };
    team_for(team, ctx_size, 64, fill_positions, &fill);
    return true;
}

void rope_table_release(struct rope_table *table)
{
    memory_pages_free(table->cos, table->bytes);
    *table = (struct rope_table){ 0 };
}
