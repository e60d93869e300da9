#include "helpers/echo.h"
#include "helpers/cm.h"

#include "base/clock.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

#define ROWS_CAP 512u
#define ANSWER_MS 20000

enum { ECHO_USER = 256, ECHO_ASSISTANT = 257, ECHO_END = 259 };

struct stream {
    uint32_t position; // rows that are in the chain
    size_t said;       // characters heard
    int32_t last;      // token to feed
    bool done;
};

struct talk {
    struct pipeline *pipeline;
    const struct echo_options *options;
    struct stream streams[ECHO_STREAMS_CAP];
    struct batch batch;
    struct row rows[ROWS_CAP];
    uint64_t next_batch;
};

bool echo_wait_ready(struct pipeline *pipeline, uint64_t timeout_ms)
{
    const struct pipeline_result *result;
    uint64_t started = clock_ms();
    while (pipeline_state(pipeline) != PIPELINE_READY) {
        if (clock_ms() - started > timeout_ms)
            return false;
        pipeline_poll(pipeline, 20, &result);
    }
    return true;
}

static void add_row(struct talk *talk, uint32_t sequence, int32_t token, uint32_t flags)
{
    assert_true(talk->batch.n_rows < ROWS_CAP);
    talk->rows[talk->batch.n_rows++] =
        (struct row){ sequence, talk->streams[sequence].position++, token, flags };
}

/* The text that stream i says: its number, then the common part. */
static int32_t spoken(const struct talk *talk, uint32_t i, size_t at)
{
    if (at == 0)
        return '0' + (int32_t)i;
    const char *text = talk->options->text;
    return at - 1 < strlen(text) ? (unsigned char)text[at - 1] : ECHO_END;
}

static void add_prompt(struct talk *talk, uint32_t i)
{
    int32_t token;
    add_row(talk, i, ECHO_USER, 0);
    for (size_t at = 0; (token = spoken(talk, i, at)) != ECHO_END; at++)
        add_row(talk, i, token, 0);
    add_row(talk, i, ECHO_END, 0);
    add_row(talk, i, ECHO_ASSISTANT, ROW_SAMPLE | ROW_LAST_OF_PROMPT);
}

/* One row, or the prompt, of every stream that goes on. */
static void submit(struct talk *talk)
{
    static const struct sampling_params greedy = { .top_p = 1, .repetition_penalty = 1 };
    const struct sampling_params *params[ECHO_STREAMS_CAP];
    uint32_t sequences[ECHO_STREAMS_CAP], n = 0;
    struct err err;
    talk->batch.id = talk->next_batch++;
    talk->batch.n_rows = 0;
    for (uint32_t i = 0; i < talk->options->n_streams; i++) {
        if (talk->streams[i].done)
            continue;
        if (talk->streams[i].position == 0)
            add_prompt(talk, i);
        else
            add_row(talk, i, talk->streams[i].last, ROW_SAMPLE);
        sequences[n] = i;
        params[n++] = &greedy;
    }
    if (!pipeline_submit(talk->pipeline, &talk->batch, sequences, params, n, &err))
        fail_msg("submit: %s", err.text);
}

static void take_tokens(struct talk *talk, const struct pipeline_result *result)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < talk->batch.n_rows; i++) {
        struct stream *stream = &talk->streams[talk->rows[i].sequence];
        if (!(talk->rows[i].flags & ROW_SAMPLE))
            continue;
        assert_true(n < result->n_tokens);
        assert_int_equal(result->rows[n], i);
        stream->last = result->tokens[n++].token;
        assert_int_equal(stream->last, spoken(talk, talk->rows[i].sequence, stream->said++));
        stream->done = stream->last == ECHO_END;
    }
    assert_int_equal(n, result->n_tokens);
}

static bool is_over(const struct talk *talk)
{
    for (uint32_t i = 0; i < talk->options->n_streams; i++) {
        if (!talk->streams[i].done)
            return false;
    }
    return true;
}

static bool talk_on(struct talk *talk, uint32_t step, struct err *err)
{
    const struct pipeline_result *result;
    uint64_t started = clock_ms();
    if (pipeline_state(talk->pipeline) != PIPELINE_READY)
        return err_set(err, ERR_PEER_LOST, "lost between two batches");
    submit(talk);
    if (talk->options->in_flight)
        talk->options->in_flight(talk->options->context, step);
    while (!pipeline_poll(talk->pipeline, 100, &result))
        assert_true(clock_ms() - started < ANSWER_MS);
    assert_true(result->batch == talk->batch.id);
    if (result->failed) {
        *err = result->err;
        return false;
    }
    take_tokens(talk, result);
    return true;
}

bool echo_talk(struct pipeline *pipeline, const struct echo_options *options, struct err *err)
{
    struct talk *talk = xcalloc(1, sizeof *talk);
    bool good = true;
    assert_true(options->n_streams <= ECHO_STREAMS_CAP);
    talk->pipeline = pipeline;
    talk->options = options;
    talk->batch.rows = talk->rows;
    talk->batch.rows_cap = ROWS_CAP;
    for (uint32_t i = 0; i < options->n_streams; i++)
        pipeline_drop(pipeline, i);
    for (uint32_t step = 0; good && !is_over(talk); step++)
        good = talk_on(talk, step, err);
    free(talk);
    return good;
}
