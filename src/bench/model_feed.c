/* What llama-bench calls pp and tg, and the steps that larger measurements are made of. */
#include "bench/model_feed.h"

#include "base/clock.h"

bool model_feed_open(struct model_feed *feed, const struct engine_options *options, struct err *err)
{
    struct engine_options native = *options;
    native.engine = "native";
    native.device = "cpu";
    *feed = (struct model_feed){ 0 };
    if (!engine_open(&feed->engine, &native, &feed->info, err))
        return false;
    const uint32_t rows = feed->info.max_rows, sequences = feed->info.max_sequences;
    if (batch_init(&feed->in, rows > sequences ? rows : sequences, 1, err) &&
        batch_init(&feed->out, feed->in.rows_cap, (size_t)sequences * feed->info.vocab_size, err))
        return true;
    model_feed_close(feed);
    return false;
}

void model_feed_close(struct model_feed *feed)
{
    batch_release(&feed->in);
    batch_release(&feed->out);
    engine_close(&feed->engine);
    *feed = (struct model_feed){ 0 };
}

static int32_t next_id(struct model_feed *feed)
{
    feed->state = feed->state * 1664525u + 1013904223u;
    return (int32_t)((feed->state >> 8) % feed->info.vocab_size);
}

static bool step(struct model_feed *feed, struct err *err)
{
    return feed->engine.ops->step(&feed->engine, &feed->in, &feed->out, err);
}

bool model_feed_rows(struct model_feed *feed, uint32_t sequence, uint32_t position, uint32_t n,
                     bool logits, struct err *err)
{
    while (n) {
        const uint32_t now = n < feed->info.max_rows ? n : feed->info.max_rows;
        feed->in.n_rows = now;
        for (uint32_t i = 0; i < now; i++)
            feed->in.rows[i] = (struct row){ .sequence = sequence,
                                             .position = position + i,
                                             .token = next_id(feed) };
        if (logits && now == n)
            feed->in.rows[now - 1].flags = ROW_LOGITS;
        if (!step(feed, err))
            return false;
        position += now;
        n -= now;
    }
    return true;
}

bool model_feed_step(struct model_feed *feed, uint32_t first, uint32_t n, uint32_t position,
                     struct err *err)
{
    feed->in.n_rows = n;
    for (uint32_t i = 0; i < n; i++)
        feed->in.rows[i] = (struct row){
            .sequence = first + i, .position = position, .token = next_id(feed), .flags = ROW_LOGITS
        };
    return step(feed, err);
}

bool model_feed_round(struct model_feed *feed, uint32_t prefill, uint32_t depth, uint32_t decode,
                      struct model_round *round, struct err *err)
{
    uint64_t start = clock_ns();
    if (!model_feed_rows(feed, 0, 0, prefill, true, err))
        return false;
    const double prefill_s = (double)(clock_ns() - start) * 1e-9;
    feed->engine.ops->drop(&feed->engine, 0);
    if (!model_feed_rows(feed, 0, 0, depth, false, err))
        return false;
    start = clock_ns();
    for (uint32_t i = 0; i < decode; i++) {
        if (!model_feed_step(feed, 0, 1, depth + i, err))
            return false;
    }
    const double decode_s = (double)(clock_ns() - start) * 1e-9;
    feed->engine.ops->drop(&feed->engine, 0);
    *round = (struct model_round){ prefill / prefill_s, decode ? decode / decode_s : 0.0 };
    return true;
}
