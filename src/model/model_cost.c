/* The read limit is that of the weights themselves, where they are and as they are mapped, read by
 * as many threads as will read them: pieces of all matrices.
 *
 * A small model is read as a whole, twice, and the second pass counts: steps find the weights as
 * that pass does, partly in the caches if those are large. Of a larger one a sample is read once.
 * Pages are touched before anything is timed, so that no page fault counts; their other lines come
 * from memory.
 *
 * The threads are new ones, each held to a processor of its own and gone afterwards: those of a
 * team that has just been made share a processor for some tens of milliseconds, until the
 * scheduler has spread them. Each reads its part of every piece and takes the median of its
 * windows, which bears with a neighbour; their sum is the limit. A disk that is slower than the
 * budget ends a pass early. */
#include "model/model_cost.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/processors.h"
#include "base/thread.h"
#include "kernel/ceiling.h"

#define PIECE_BYTES ((size_t)2 << 20)
#define PIECE_BYTES_LOW (PIECE_BYTES / 16) // shorter ones only where there are no others
#define WHOLE_BYTES ((size_t)128 << 20)    // a small model
#define SAMPLE_BYTES ((size_t)32 << 20)    // of a larger one
#define PIECES_CAP 2048u
#define WINDOW_BYTES ((size_t)1 << 20) // of one thread
#define WAIT_NS UINT64_C(5000000)      // for the other threads to be there
#define BUDGET_NS UINT64_C(20000000)   // of a pass
#define PAGE_BYTES 4096u

struct piece {
    const uint8_t *data;
    size_t bytes; // multiple of CEILING_READ_UNIT
};

struct sample {
    const struct ceiling_read *read;
    struct piece pieces[PIECES_CAP];
    uint32_t n_pieces;
    bool is_whole; // it holds all weights, but for their odd ends
    uint32_t n_threads;
    _Atomic uint32_t n_arrived; // threads, once at each meeting
};

struct reader {
    struct sample *sample;
    struct thread thread;
    uint32_t index, processor;
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
    const size_t every =
        cost->weights_bytes <= WHOLE_BYTES ? 1 : (size_t)(cost->weights_bytes / SAMPLE_BYTES);
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

/* The thread's part of a piece. */
static struct piece part_of(const struct reader *reader, uint32_t index)
{
    const struct piece *const piece = &reader->sample->pieces[index];
    const size_t units = piece->bytes / CEILING_READ_UNIT, n = reader->sample->n_threads;
    const size_t from = units * reader->index / n * CEILING_READ_UNIT;
    const size_t to = units * (reader->index + 1) / n * CEILING_READ_UNIT;
    return (struct piece){ piece->data + from, to - from };
}

static void touch(const struct reader *reader)
{
    volatile uint8_t sink;
    for (uint32_t i = 0; i < reader->sample->n_pieces; i++) {
        const struct piece part = part_of(reader, i);
        for (size_t at = 0; at < part.bytes; at += PAGE_BYTES)
            sink = part.data[at];
    }
    (void)sink;
}

/* Until all threads have come here for the n-th time, or for as long as they may take. */
static void meet(struct sample *sample, uint32_t n)
{
    const uint64_t until = clock_ns() + WAIT_NS;
    atomic_fetch_add(&sample->n_arrived, 1);
    while (atomic_load(&sample->n_arrived) < n * sample->n_threads && clock_ns() < until)
        continue;
}

static void pass(struct reader *reader)
{
    const struct sample *const sample = reader->sample;
    const uint64_t start = clock_ns();
    uint64_t before = start;
    size_t bytes = 0;
    reader->n_rates = 0;
    for (uint32_t i = 0; i < sample->n_pieces && before - start < BUDGET_NS; i++) {
        const struct piece part = part_of(reader, i);
        volatile uint64_t sink = sample->read->run(part.data, part.bytes, 1);
        (void)sink;
        bytes += part.bytes;
        if (bytes < WINDOW_BYTES && i + 1 < sample->n_pieces)
            continue;
        const uint64_t now = clock_ns();
        if (now > before && bytes)
            reader->rates[reader->n_rates++] = (double)bytes * 1e9 / (double)(now - before);
        before = now;
        bytes = 0;
    }
}

static void read_pieces(void *context)
{
    struct reader *const reader = context;
    thread_hold(&reader->processor, 1);
    touch(reader);
    meet(reader->sample, 1);
    pass(reader);
    if (!reader->sample->is_whole)
        return;
    meet(reader->sample, 2);
    pass(reader);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Bytes a second of all threads; 0 when there are no threads to be had. */
static double read_rate(struct sample *sample)
{
    struct reader *const readers = xcalloc(sample->n_threads, sizeof(*readers));
    struct processors processors;
    struct err err;
    double rate = 0.0;
    processors_read(&processors, &(struct processors_source){ 0 });
    for (uint32_t i = 0; i < sample->n_threads; i++) {
        readers[i] = (struct reader){ .sample = sample,
                                      .index = i,
                                      .processor = processors.of[i % processors.n].id };
        thread_start(&readers[i].thread, "read-limit", read_pieces, &readers[i], &err);
    }
    for (uint32_t i = 0; i < sample->n_threads; i++) {
        struct reader *const reader = &readers[i];
        thread_join(&reader->thread);
        qsort(reader->rates, reader->n_rates, sizeof(*reader->rates), compare);
        rate += reader->n_rates ? reader->rates[reader->n_rates / 2] : 0.0;
    }
    processors_release(&processors);
    free(readers);
    return rate;
}

void model_cost_measure(struct model_cost *cost, const struct weights *weights, bool has_head,
                        const struct kv_cache *kv, uint32_t n_threads)
{
    *cost = (struct model_cost){ .position_bytes = kv->page_bytes / KV_PAGE_ROWS };
    count(cost, weights, has_head);
    struct sample *const sample = xcalloc(1, sizeof(*sample));
    sample->read = ceiling_read_best();
    sample->n_threads = n_threads;
    draw(sample, cost, weights, has_head, PIECE_BYTES_LOW);
    if (sample->n_pieces == 0)
        draw(sample, cost, weights, has_head, CEILING_READ_UNIT);
    cost->read_bytes_per_s = read_rate(sample);
    free(sample);
}
