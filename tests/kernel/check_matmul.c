/* Matrix products: random shapes, formats, epilogues and cuts, each rung against scalar; and scalar
 * against sums in double of the values that quant/ decodes. */
#include "check_kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/tuning.h"

/* ---- weights ---- */

/* A scale or a minimum as f16: any finite value, zeros and subnormals among them. */
static uint16_t draw_f16(struct draw *draw)
{
    const uint32_t kind = draw_below(draw, 16);
    if (kind == 0)
        return (uint16_t)draw_below(draw, 0x400);
    return quant_f32_to_f16(kind == 1 ? 0.0f : draw_float(draw) * 0.05f);
}

static void put_u16(uint8_t *at, uint16_t value)
{
    memcpy(at, &value, sizeof(value));
}

static void draw_headers(const struct matrix *m, uint8_t *data, size_t bytes, struct draw *draw)
{
    const uint32_t header = quant_formats[m->format]->header_bytes;
    const size_t block =
        header + (size_t)QUANT_PANEL_ROWS * m->group * quant_formats[m->format]->value_bits / 8;
    for (size_t at = 0; at < bytes; at += block) {
        for (uint32_t i = 0; i < header / 2; i++)
            put_u16(data + at + 2 * i, draw_f16(draw));
        for (uint32_t i = 64; m->format == QUANT_INT4_ASYM && i < 96; i++)
            data[at + i] = (uint8_t)draw_below(draw, 17);
    }
}

static struct guarded draw_weights(struct matrix *m, struct draw *draw)
{
    size_t bytes = 0;
    expect(quant_matrix_bytes(m->format, m->rows, m->cols, m->group, &bytes), "bytes of a matrix");
    struct guarded g = guarded_new(bytes);
    for (size_t i = 0; i < bytes; i += m->format == QUANT_F16 || m->format == QUANT_BF16 ? 2 : 4) {
        const uint32_t bits = draw_u32(draw);
        const float value = draw_float(draw);
        if (m->format == QUANT_F32)
            memcpy(g.data + i, &value, 4);
        else if (m->format == QUANT_F16)
            put_u16(g.data + i, draw_f16(draw));
        else if (m->format == QUANT_BF16)
            put_u16(g.data + i, quant_f32_to_bf16(value));
        else
            memcpy(g.data + i, &bits, 4);
    }
    if (m->group)
        draw_headers(m, g.data, bytes, draw);
    m->data = g.data;
    return g;
}

static struct matrix draw_matrix(struct draw *draw, enum quant_format format, uint32_t rows,
                                 uint32_t cols)
{
    return (struct matrix){
        .format = format,
        .group = quant_formats[format]->is_float ? 0 : 32u << draw_below(draw, 3),
        .rows = rows,
        .cols = cols,
    };
}

/* ---- one case ---- */

struct product {
    uint32_t rows, cols, n_parts;
    enum activation_mode mode;
    const struct matmul_tuning *tuning; // NULL: the rung's own
    struct guarded x;
    size_t x_stride;
    struct guarded weights[MATMUL_PARTS_CAP], bias[MATMUL_PARTS_CAP], up_bias[MATMUL_PARTS_CAP];
    struct guarded scalar[MATMUL_PARTS_CAP], other[MATMUL_PARTS_CAP];
    struct matmul mm; // outputs and activation are set by run_product
};

/* Panels of gate and up alternate, each padded by itself. */
static uint32_t stored_rows(enum matmul_epilogue epilogue, uint32_t columns)
{
    const uint32_t panels = (columns + QUANT_PANEL_ROWS - 1) / QUANT_PANEL_ROWS;
    return epilogue == MATMUL_SILU_MUL ? 2 * panels * QUANT_PANEL_ROWS : columns;
}

static void draw_part(struct product *p, uint32_t i, enum quant_format format,
                      enum matmul_epilogue epilogue, uint32_t columns, struct draw *draw)
{
    struct matmul_part *const part = &p->mm.parts[i];
    struct matrix m = draw_matrix(draw, format, stored_rows(epilogue, columns), p->cols);
    p->weights[i] = draw_weights(&m, draw);
    m.rows = epilogue == MATMUL_SILU_MUL ? 2 * columns : columns;
    *part = (struct matmul_part){ .weights = m, .epilogue = epilogue };
    part->out_stride = columns + draw_below(draw, 20);
    const float *const bias = guarded_floats(&p->bias[i], columns, draw);
    const float *const up_bias = guarded_floats(&p->up_bias[i], columns, draw);
    part->bias = draw_below(draw, 2) ? bias : NULL;
    part->up_bias = draw_below(draw, 2) ? up_bias : NULL;
    const size_t floats = (p->rows - 1) * part->out_stride + columns;
    guarded_floats(&p->scalar[i], floats, draw);
    p->other[i] = guarded_new(floats * sizeof(float));
    memcpy(p->other[i].data, p->scalar[i].data, floats * sizeof(float));
}

static void draw_x(struct product *p, struct draw *draw)
{
    p->x_stride = p->cols + draw_below(draw, 9);
    float *const x = guarded_floats(&p->x, (p->rows - 1) * p->x_stride + p->cols, draw);
    for (uint32_t row = 0; row < p->rows; row++) {
        float *const values = x + row * p->x_stride;
        const uint32_t kind = draw_below(draw, 8);
        for (uint32_t k = 0; k < p->cols; k++) {
            if (kind == 0)
                values[k] = 0.0f;
            else if (kind == 1)
                values[k] *= 0x1p-118f; // around the smallest scale
            else if (k % 97 == 0)
                values[k] *= 30.0f;
        }
    }
}

static void product_free(struct product *p)
{
    for (uint32_t i = 0; i < p->n_parts; i++) {
        guarded_free(&p->weights[i]);
        guarded_free(&p->bias[i]);
        guarded_free(&p->up_bias[i]);
        guarded_free(&p->scalar[i]);
        guarded_free(&p->other[i]);
    }
    guarded_free(&p->x);
}

/* Runs the product on one rung into `outs`; items in pieces of `chunk`, the last piece first. */
static bool run_product(struct product *p, const struct kernel *kernel, struct guarded *outs,
                        uint32_t chunk)
{
    struct activation a;
    struct guarded memory = guarded_new(activation_bytes(p->rows, p->cols));
    bool quantised = false;
    for (uint32_t i = 0; i < p->n_parts; i++) {
        quantised |= p->mm.parts[i].weights.group != 0;
        p->mm.parts[i].out = (float *)(void *)outs[i].data;
    }
    activation_init(&a, kernel, memory.data,
                    &(struct activation_options){
                        .x = (const float *)(void *)p->x.data,
                        .x_stride = p->x_stride,
                        .rows = p->rows,
                        .cols = p->cols,
                        .mode = p->mode,
                        .quantised = quantised,
                    });
    bool finite = true;
    for (uint32_t tile = a.n_tiles; tile-- > 0;)
        finite &= kernel->matmul->pack(&a, tile, tile + 1);
    p->mm.activation = &a;
    p->mm.tuning = p->tuning;
    p->mm.n_parts = p->n_parts;
    const uint32_t items = matmul_items(&p->mm);
    for (uint32_t first = (items - 1) / chunk * chunk;; first -= chunk) {
        kernel->matmul->run(&p->mm, first, first + chunk < items ? first + chunk : items);
        if (first == 0)
            break;
    }
    expect(guarded_intact(&memory), "%s writes before an activation", kernel->name);
    guarded_free(&memory);
    return finite;
}

static void judge_product(struct product *p, const struct kernel *scalar,
                          const struct kernel *kernel, struct draw *draw)
{
    expect(run_product(p, scalar, p->scalar, 1), "scalar finds a value that is not finite");
    expect(run_product(p, kernel, p->other, draw_between(draw, 1, 9)),
           "%s finds a value that is not finite", kernel->name);
    for (uint32_t i = 0; i < p->n_parts; i++) {
        const struct matrix *const m = &p->mm.parts[i].weights;
        pin(p->scalar[i].data, p->scalar[i].bytes);
        expect(memcmp(p->scalar[i].data, p->other[i].data, p->scalar[i].bytes) == 0 &&
                   guarded_intact(&p->other[i]),
               "%s matmul %s group %u, mode %s, %u x %u, %u rows, epilogue %d, part %u of %u",
               kernel->name, quant_formats[m->format]->name, m->group,
               activation_mode_names[p->mode], m->rows, m->cols, p->rows,
               (int)p->mm.parts[i].epilogue, i, p->n_parts);
    }
}

static void check_product(const struct kernel *scalar, const struct kernel *kernel,
                          enum activation_mode mode, uint32_t rows, uint32_t cols,
                          struct draw *draw)
{
    struct product p = { .rows = rows, .cols = cols, .mode = mode };
    p.n_parts = draw_below(draw, 3) ? 1 : draw_between(draw, 1, MATMUL_PARTS_CAP);
    draw_x(&p, draw);
    for (uint32_t i = 0; i < p.n_parts; i++) {
        const uint32_t format = draw_below(draw, QUANT_FORMAT_COUNT);
        const uint32_t epilogue = draw_below(draw, 3);
        const uint32_t columns = draw_size(draw, 300);
        draw_part(&p, i, (enum quant_format)format, (enum matmul_epilogue)epilogue, columns, draw);
    }
    judge_product(&p, scalar, kernel, draw);
    product_free(&p);
}

/* Every format and group at every number of rows up to 30: all tiles of all rungs. Brief: in the
 * default mode; every seventh in others. */
static void check_tiles(const struct kernel *scalar, const struct kernel *kernel,
                        enum activation_mode mode, struct draw *draw)
{
    const uint32_t step = mode == ACTIVATION_G128 || check_count(2) == 2 ? 1 : 7;
    for (uint32_t format = 0; format < QUANT_FORMAT_COUNT; format++) {
        for (uint32_t rows = 1; rows <= 30; rows += step) {
            struct product p = {
                .rows = rows, .cols = draw_between(draw, 1, 200), .n_parts = 1, .mode = mode
            };
            draw_x(&p, draw);
            draw_part(&p, 0, (enum quant_format)format, (enum matmul_epilogue)(rows % 3),
                      rows % 3 ? 32 : 48, draw);
            judge_product(&p, scalar, kernel, draw);
            product_free(&p);
        }
    }
}

/* What is not finite is found wherever it is, by every rung, quantised or not. */
static void check_not_finite(const struct kernel *kernel, enum activation_mode mode,
                             struct draw *draw)
{
    static const float bad[] = { INFINITY, -INFINITY, NAN };
    for (uint32_t cols = 1; cols <= 300; cols += draw_between(draw, 1, 40)) {
        struct product p = {
            .rows = draw_between(draw, 1, 20), .cols = cols, .n_parts = 1, .mode = mode
        };
        draw_x(&p, draw);
        draw_part(&p, 0, cols % 2 ? QUANT_INT4 : QUANT_F16, MATMUL_STORE, 32, draw);
        float *const x = (float *)(void *)p.x.data;
        const size_t row = draw_below(draw, p.rows);
        x[row * p.x_stride + draw_below(draw, cols)] = bad[cols % 3];
        expect(!run_product(&p, kernel, p.other, 1), "%s takes %f as finite, %u cols", kernel->name,
               (double)bad[cols % 3], cols);
        product_free(&p);
    }
}

static void check_mode(const struct kernel *scalar, const struct kernel *kernel,
                       enum activation_mode mode, struct draw *draw)
{
    check_tiles(scalar, kernel, mode, draw);
    for (uint32_t i = 0; i < check_count(300); i++) {
        const uint32_t rows = draw_size(draw, 90), cols = draw_size(draw, 1000);
        check_product(scalar, kernel, mode, rows, cols, draw);
    }
    check_product(scalar, kernel, mode, 1, 1536, draw);
    check_product(scalar, kernel, mode, check_count(70), 576, draw);
}

void check_matmul(const struct kernel *scalar, const struct kernel *kernel)
{
    struct draw draw = { 3 };
    check_mode(scalar, kernel, ACTIVATION_G128, &draw);
    check_not_finite(kernel, ACTIVATION_G128, &draw);
}

/* How weights are walked is seen in no bit, whatever the candidate. */
void check_tunings(const struct kernel *scalar, const struct kernel *kernel)
{
    struct draw draw = { 6 };
    const uint32_t step = check_count(2) == 2 ? 1 : 5; // divides neither count
    for (uint32_t i = 0; i < TUNING_CANDIDATES * QUANT_FORMAT_COUNT; i += step) {
        struct product p = { .rows = draw_between(&draw, 1, 18),
                             .cols = draw_between(&draw, 1, 400),
                             .n_parts = 1,
                             .mode = ACTIVATION_G32,
                             .tuning = &tuning_candidates[i % TUNING_CANDIDATES] };
        draw_x(&p, &draw);
        draw_part(&p, 0, (enum quant_format)(i / TUNING_CANDIDATES),
                  (enum matmul_epilogue)draw_below(&draw, 3), draw_between(&draw, 1, 300), &draw);
        judge_product(&p, scalar, kernel, &draw);
        product_free(&p);
    }
}

void check_matmul_modes(const struct kernel *scalar, const struct kernel *kernel)
{
    struct draw draw = { 5 };
    for (uint32_t mode = 0; mode < ACTIVATION_MODE_COUNT; mode++) {
        if (mode == ACTIVATION_G128) // check_matmul's
            continue;
        check_mode(scalar, kernel, (enum activation_mode)mode, &draw);
        check_not_finite(kernel, (enum activation_mode)mode, &draw);
    }
}

/* ---- the definition ---- */

/* |out - exact| within what int8 activations and f32 sums may lose. */
static void judge_row(const struct product *p, const float *w, uint32_t column, uint32_t row)
{
    const struct matmul_part *const part = &p->mm.parts[0];
    const float *const x = (const float *)(const void *)p->x.data + row * p->x_stride;
    static const uint32_t groups[ACTIVATION_MODE_COUNT] = { 32, 64, 128, 1u << 20, 0 };
    const uint32_t group = part->weights.group ? groups[p->mode] : 0;
    double sum = 0.0, loss = 1e-6;
    for (uint32_t k = 0; k < p->cols; k++) {
        double largest = 0.0;
        const uint32_t first = group ? k / group * group : p->cols;
        for (uint32_t i = first; i < p->cols && i < first + group; i++)
            largest = fmax(largest, fabs((double)x[i]));
        sum += (double)w[k] * x[k];
        loss += fabs((double)w[k]) * (largest / 250.0) + fabs((double)w[k] * x[k]) * 1e-5;
    }
    const double out =
        ((const float *)(const void *)p->scalar[0].data)[row * part->out_stride + column];
    expect(fabs(out - sum) <= loss, "%s %u x %u: %g is not %g (within %g)",
           quant_formats[part->weights.format]->name, part->weights.rows, p->cols, out, sum, loss);
}

/* The scalar rung against what quant/ says the rows mean. */
static void check_meaning(enum quant_format format, enum activation_mode mode, struct draw *draw)
{
    struct product p = {
        .rows = 3, .cols = draw_between(draw, 1, 300), .n_parts = 1, .mode = mode
    };
    const uint32_t columns = draw_between(draw, 1, 70);
    draw_x(&p, draw);
    draw_part(&p, 0, format, MATMUL_STORE, columns, draw);
    p.mm.parts[0].bias = NULL;
    expect(run_product(&p, kernels[0], p.scalar, 1), "scalar finds a value that is not finite");
    struct guarded row_values = guarded_new(p.cols * sizeof(float));
    float *const w = (float *)(void *)row_values.data;
    for (uint32_t column = 0; column < columns; column++) {
        matrix_decode_row(&p.mm.parts[0].weights, column, w);
        for (uint32_t row = 0; row < p.rows; row++)
            judge_row(&p, w, column, row);
    }
    guarded_free(&row_values);
    product_free(&p);
}

void check_definition(void)
{
    struct draw draw = { 4 };
    for (uint32_t i = 0; i < 5 * QUANT_FORMAT_COUNT; i++) {
        for (uint32_t mode = 0; mode < ACTIVATION_MODE_COUNT; mode++)
            check_meaning((enum quant_format)(i % QUANT_FORMAT_COUNT), (enum activation_mode)mode,
                          &draw);
    }
}
