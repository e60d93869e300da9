/* Matrix products with AVX-VNNI: the 256-bit dot products of client processors, in VEX encoding.
 *
 * vpdpbusd takes 4 unsigned weights and 4 signed activations a lane and sums in int32, so nothing
 * has to fit 16 bits and int8 weights go the way of nibbles. Sums start at -offset x sum(q), which
 * is packed with the activations, for formats with a fixed zero point. The instruction has no
 * broadcast operand in this encoding: one register holds the word for both halves of a strip. It is
 * inline assembly because compilers copy accumulators around the intrinsic.
 *
 * Panels leave high nibbles where they are: they sum to 16 times their value in accumulators of
 * their own, shifted once per group, since shifts and dots share ports.
 *
 * DOT_ENCODING may be set to "evex" by who builds this file once more, to time the form that the
 * same instruction has on processors with AVX-512; results cannot differ. */
#define STRIP_ROWS 6 // 12 registers of sums: fewer would wait for the dot, 5 clocks long
#include "kernel/matmul_256.h"

#ifndef DOT_ENCODING
#define DOT_ENCODING "vex"
#define MATMUL_OPS matmul_avxvnni
#endif

/* ---- dots ---- */

LEAF_INLINE int32_t dots_offset(enum quant_format format, uint32_t dot_group)
{
    (void)dot_group;
    return is_int8(format) ? 128 : format == QUANT_INT4 ? 8 : 0;
}

LEAF_INLINE uint32_t start_columns(uint32_t dot_group)
{
    return dot_group;
}

/* What row i's sums start with: -offset x sum(q). */
LEAF_INLINE __m256i first_sums(const struct group_view *view, uint32_t i,
                               const enum quant_format format)
{
    if (format == QUANT_INT4_ASYM || format == QUANT_INT4_MIN)
        return _mm256_setzero_si256();
    const __m256i start = _mm256_set1_epi32((int)view->starts[i]); // -8 x sum
    return is_int8(format) ? _mm256_slli_epi32(start, 4) : start;
}

/* sum += 4 weights (unsigned) x 4 activations (signed) in each lane. */
#define DOT(sum, weights, activations)                                                             \
    __asm__("%{" DOT_ENCODING "%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(weights), "x"(activations))

LEAF_INLINE void panel_dots_int4(const uint8_t *lines, const struct panel_job *job,
                                 const struct group_view *view, __m256i (*dots)[2],
                                 const enum quant_format format, const uint32_t rows)
{
    const __m256i low = _mm256_set1_epi8(15);
    const int8_t *q = view->q;
    __m256i high[2][2];
    UNROLL_2(i, rows, {
        dots[0][i] = dots[1][i] = first_sums(view, i, format);
        high[0][i] = high[1][i] = _mm256_setzero_si256();
    })
    for (uint32_t j = 0; j < SUM_GROUP / (2 * QUAD) * view->n_subs; j += 2) {
        UNROLL_2(line, 2, {
            ask_ahead(lines, job->tuning);
            const __m256i w[2] = { load_256(lines), load_256(lines + LINE / 2) };
            UNROLL_2(i, rows, {
                const __m256i x0 = broadcast_word(q + i * QUAD);
                const __m256i x1 = broadcast_word(q + (rows + i) * QUAD);
                UNROLL_2(n, 2, {
                    DOT(dots[n][i], _mm256_and_si256(w[n], low), x0);
                    DOT(high[n][i], _mm256_andnot_si256(low, w[n]), x1);
                })
            })
            lines += LINE;
            q += 2 * QUAD * rows;
        })
    }
    UNROLL_2(i, rows, UNROLL_2(n, 2, {
                 dots[n][i] = _mm256_add_epi32(dots[n][i], _mm256_srai_epi32(high[n][i], 4));
             }))
}

LEAF_INLINE void panel_dots_int8(const uint8_t *lines, const struct panel_job *job,
                                 const struct group_view *view, __m256i (*dots)[2],
                                 const enum quant_format format, const uint32_t rows)
{
    const int8_t *q = view->q;
    UNROLL_2(i, rows, dots[0][i] = dots[1][i] = first_sums(view, i, format);)
    for (uint32_t j = 0; j < SUM_GROUP / QUAD * view->n_subs; j += 4) {
        UNROLL_4(line, 4, {
            ask_ahead(lines, job->tuning);
            const __m256i w0 = load_256(lines), w1 = load_256(lines + LINE / 2);
            UNROLL_2(i, rows, {
                const __m256i word = broadcast_word(q + i * QUAD);
                DOT(dots[0][i], w0, word);
                DOT(dots[1][i], w1, word);
            })
            lines += LINE;
            q += QUAD * rows;
        })
    }
}

LEAF_INLINE void panel_dots(const uint8_t *lines, const struct panel_job *job,
                            const struct group_view *view, __m256i (*dots)[2],
                            const enum quant_format format, const uint32_t rows)
{
    if (is_int8(format))
        panel_dots_int8(lines, job, view, dots, format, rows);
    else
        panel_dots_int4(lines, job, view, dots, format, rows);
}

struct word {
    int8_t q[QUAD];
};

/* sums[0..1] += w0, w1 (8 rows each) times one word. */
#define STEP(sums, w0, w1, at)                                                                     \
    do {                                                                                           \
        __m256i word_;                                                                             \
        __asm__ volatile("vpbroadcastd %3, %2\n\t"                                                 \
                         "%{" DOT_ENCODING "%} vpdpbusd %2, %4, %0\n\t"                            \
                         "%{" DOT_ENCODING "%} vpdpbusd %2, %5, %1"                                \
                         : "+x"((sums)[0]), "+x"((sums)[1]), "=&x"(word_)                          \
                         : "m"(*(const struct word *)(const void *)(at)), "x"(w0), "x"(w1));       \
    } while (0)

LEAF_INLINE void strip_dots(const uint8_t *lines, const struct panel_job *job,
                            const struct group_view *view, __m256i (*dots)[2],
                            const enum quant_format format, const uint32_t rows)
{
    const size_t step = (size_t)view->size * QUAD;
    const int8_t *q = view->q;
    (void)job;
    UNROLL_6(i, rows, dots[i][0] = dots[i][1] = first_sums(view, i, format);)
    for (uint32_t j = 0; j < SUM_GROUP / QUAD * view->n_subs; j += 4) {
        UNROLL_4(quad, 4, {
            const __m256i w0 = load_256(lines), w1 = load_256(lines + LINE / 2);
            UNROLL_6(i, rows, STEP(dots[i], w0, w1, q + i * QUAD);)
            lines += LINE;
            q += step;
        })
    }
}

/* ---- the rung ---- */

static const struct activation_leaves activation_leaves = {
    .measure = measure_avx2,
    .quantise = quantise_avx2,
    .starts = STARTS_SUM,
};

static bool pack(struct activation *a, uint32_t first, uint32_t end)
{
    return activation_pack(a, first, end, &activation_leaves);
}

static const struct matmul_leaves leaves = MATMUL_256_LEAVES(.prefetch_bytes = 4096, .n_panels = 1);

static void run(const struct matmul *mm, uint32_t first, uint32_t end)
{
    matmul_drive(mm, first, end, &leaves);
}

const struct matmul_ops MATMUL_OPS = {
    .tile_rows = TILE_ROWS,
    .pack = pack,
    .run = run,
};
