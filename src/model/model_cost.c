/* The read limit is that of the weights themselves, where they are and as they are mapped, read by
 * the team that will read them: pieces of all matrices, some megabytes a window.
 *
 * A page is touched before it is timed, so that no page fault counts, and its other lines come from
 * memory. Weights that fit the sample as a whole are read once more, because steps find them as
 * that second pass does: partly in the caches, if those are large. The median over windows
 * bears with a neighbour. A disk that is slower than the budget ends the sample early. */
#include "model/model_cost.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "kernel/ceiling.h"

#define PIECE_BYTES ((size_t)2 << 20)
#define PIECE_BYTES_LOW (PIECE_BYTES / 16) // shorter ones only where there are no others
#define SAMPLE_BYTES ((size_t)32 << 20)
#define PIECES_CAP 2048u
#define WINDOW_BYTES ((size_t)4 << 20) // of pieces that are timed together
#define BUDGET_NS UINT64_C(20000000)
#define PAGE_BYTES 4096u

struct piece {
    const uint8_t *data;
    size_t bytes;
};

struct sample {
    const struct ceiling_read *read;
    uint32_t n_threads;
    struct piece pieces[PIECES_CAP];
    uint32_t n_pieces;
    uint32_t first, end;      // pieces of the window at hand
    bool is_whole;            // it holds all weights, but for their odd ends
    double rates[PIECES_CAP]; // of windows, bytes a second
    uint32_t n_rates;
};

/* The embedding is a table that ids look up in, unless it is the head too. */
static bool is_read(const struct tensor *tensor, const struct weights *weights, bool has_head)
{
    if (tensor->role == TENSOR_EMBEDDING)
        return has_head && weights_manifest(weights)->is_tied;
    return tensor_role_info(tensor->role)->is_matrix;
}

static void count(struct model_cost *cost, const struct weights *weights, bool has_head)
{
    for (size_t i = 0; i < weights_count(weights); i++) {
        const struct tensor *const tensor = weights_at(weights, i);
        if (!is_read(tensor, weights, has_head))
            continue;
        const uint64_t macs = (uint64_t)tensor->rows * tensor->cols;
        cost->weights_bytes += tensor->bytes;
        if (tensor->layer == TENSOR_NO_LAYER)
            cost->logits_macs += macs;
        else
            cost->row_macs += macs;
    }
}

/* Every n-th piece of all weights, n such that the sample holds as many as it may. */
static void draw(struct sample *sample, const struct model_cost *cost,
                 const struct weights *weights, bool has_head, size_t bytes_low)
{
    const size_t every = (size_t)(cost->weights_bytes / SAMPLE_BYTES) + 1;
    size_t index = 0;
    sample->is_whole = every == 1;
    for (size_t i = 0; i < weights_count(weights); i++) {
        const struct tensor *const tensor = weights_at(weights, i);
        if (!is_read(tensor, weights, has_head))
            continue;
        for (size_t at = 0; at < tensor->bytes; at += PIECE_BYTES) {
            const size_t left = tensor->bytes - at;
            const size_t bytes =
                (left < PIECE_BYTES ? left : PIECE_BYTES) / CEILING_READ_UNIT * CEILING_READ_UNIT;
            if (bytes < bytes_low || index++ % every != 0)
                continue;
            if (sample->n_pieces == PIECES_CAP) {
                sample->is_whole = false;
                return;
            }
            sample->pieces[sample->n_pieces++] = (struct piece){ tensor->data + at, bytes };
        }
    }
}

static void touch(const struct piece *piece)
{
    volatile uint8_t sink;
    for (size_t at = 0; at < piece->bytes; at += PAGE_BYTES)
        sink = piece->data[at];
    (void)sink;
}

/* The thread's part of each piece of the window. */
static void read_window(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct sample *const sample = context;
    volatile uint64_t sink;
    (void)thread;
    for (uint32_t i = sample->first; i < sample->end; i++) {
        const struct piece *const piece = &sample->pieces[i];
        const size_t units = piece->bytes / CEILING_READ_UNIT;
        const size_t from = units * first / sample->n_threads * CEILING_READ_UNIT;
        const size_t to = units * last / sample->n_threads * CEILING_READ_UNIT;
        sink = sample->read->run(piece->data + from, to - from, 1);
        (void)sink;
    }
}

static void pass(struct sample *sample, struct team *team, bool is_first)
{
    const uint64_t start = clock_ns();
    sample->n_rates = 0;
    for (sample->end = 0; sample->end < sample->n_pieces && clock_ns() - start < BUDGET_NS;) {
        size_t bytes = 0;
        for (sample->first = sample->end; sample->end < sample->n_pieces && bytes < WINDOW_BYTES;
             sample->end++) {
            if (is_first)
                touch(&sample->pieces[sample->end]);
            bytes += sample->pieces[sample->end].bytes;
        }
        const uint64_t before = clock_ns();
        team_each(team, read_window, sample);
        const uint64_t took_ns = clock_ns() - before;
        sample->rates[sample->n_rates++] = (double)bytes * 1e9 / (double)(took_ns ? took_ns : 1);
    }
    sample->is_whole &= sample->end == sample->n_pieces;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void model_cost_measure(struct model_cost *cost, const struct weights *weights, bool has_head,
                        const struct kv_cache *kv, struct team *team)
{
    *cost = (struct model_cost){ .position_bytes = kv->page_bytes / KV_PAGE_ROWS };
    count(cost, weights, has_head);
    struct sample *const sample = xcalloc(1, sizeof(*sample));
    sample->read = ceiling_read_best();
    sample->n_threads = team_threads(team);
    draw(sample, cost, weights, has_head, PIECE_BYTES_LOW);
    if (sample->n_pieces == 0)
        draw(sample, cost, weights, has_head, CEILING_READ_UNIT);
    pass(sample, team, true);
    if (sample->is_whole)
        pass(sample, team, false);
    qsort(sample->rates, sample->n_rates, sizeof(*sample->rates), compare);
    if (sample->n_rates)
        cost->read_bytes_per_s = sample->rates[sample->n_rates / 2];
    free(sample);
}
