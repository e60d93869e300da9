/* The engine without a model: it says the last user message back.
 *
 * For first runs and for tests of everything above the waist: no weights, no numbers that could
 * differ, and yet every duty of an engine. It keeps the ids of each sequence in KV pages of the
 * real book, so that keep, drop, stepping back and running out of pages are the real ones. Its
 * logits are a pure function of the ids up to the row. And rows really pass through the stages:
 * each layer adds its own share to every carry value, and the last one refuses a row whose sum is
 * not what exactly all layers make of this token at this position, so that stages in the wrong
 * order, a layer run twice or a row of somebody else's are found by the tests that use it.
 *
 * Vocabulary: 256 bytes, then the marks of user, assistant and system, then the end. */
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "model/kv_pages.h"

enum {
    MOCK_USER = 256,
    MOCK_ASSISTANT = 257,
    MOCK_SYSTEM = 258,
    MOCK_END = 259,
    MOCK_VOCAB = 260,
};

#define MOCK_LAYERS 8u
#define MOCK_CARRY 16u
#define MOCK_PAGE_BYTES (KV_PAGE_ROWS * sizeof(int32_t))
/* Far above what penalties or a temperature could level: sampled text is greedy text. */
#define MOCK_CERTAIN 100.0f

static const char *const mock_devices[] = { "cpu", NULL };

struct mock {
    uint32_t layer_first, layer_end;
    uint32_t ctx_size, max_rows;
    struct kv_pages pages;
    int32_t *ids;        // [n_pages][KV_PAGE_ROWS]
    struct kv_row *rows; // [max_rows] of the batch, for the book
    float *carry;        // [max_rows][MOCK_CARRY] of the last stage
    int32_t *text;       // [ctx_size] scratch: the ids of one sequence
};

static void mock_close(struct engine *engine)
{
    struct mock *mock = engine->state;
    if (mock == NULL)
        return;
    kv_pages_release(&mock->pages);
    free(mock->ids);
    free(mock->rows);
    free(mock->carry);
    free(mock->text);
    free(mock);
    engine->state = NULL;
}

static uint32_t mock_count_pages(const struct engine_options *options, uint32_t ctx_size)
{
    /* A page more than it could fill, for each sequence: a shared page is copied before it is let
     * go. */
    const uint32_t useful =
        options->max_sequences * ((ctx_size + KV_PAGE_ROWS - 1) / KV_PAGE_ROWS + 1);
    const uint64_t asked = options->kv_memory_bytes / MOCK_PAGE_BYTES;
    return options->kv_memory_bytes != 0 && asked < useful ? (uint32_t)asked : useful;
}

static bool mock_check(const struct engine_options *options, uint32_t layer_end, struct err *err)
{
    if (layer_end > MOCK_LAYERS || options->layer_first >= layer_end) {
        return err_set(err, ERR_ARGUMENT, "layers %u to %u: the mock model has %u",
                       options->layer_first, layer_end, MOCK_LAYERS);
    }
    if (options->ctx_size > ENGINE_CTX_SIZE_DEFAULT_CAP) {
        return err_set(err, ERR_ARGUMENT, "a context of %u: the mock model has %u",
                       options->ctx_size, ENGINE_CTX_SIZE_DEFAULT_CAP);
    }
    return true;
}

static bool mock_open(struct engine *engine, const struct engine_options *options,
                      struct engine_info *info, struct err *err)
{
    const uint32_t layer_end = options->layer_end != 0 ? options->layer_end : MOCK_LAYERS;
    if (!mock_check(options, layer_end, err))
        return false;
    const uint32_t ctx_size =
        options->ctx_size != 0 ? options->ctx_size : ENGINE_CTX_SIZE_DEFAULT_CAP;
    const uint32_t n_pages = mock_count_pages(options, ctx_size);
    if (n_pages == 0) {
        return err_set(err, ERR_ARGUMENT, "a KV memory of %llu bytes holds no page of %zu bytes",
                       (unsigned long long)options->kv_memory_bytes, MOCK_PAGE_BYTES);
    }
    struct mock *mock = xcalloc(1, sizeof(*mock));
    *mock = (struct mock){
        .layer_first = options->layer_first,
        .layer_end = layer_end,
        .ctx_size = ctx_size,
        .max_rows = options->max_rows,
        .ids = xcalloc(n_pages, MOCK_PAGE_BYTES),
        .rows = xcalloc(options->max_rows, sizeof(*mock->rows)),
        .carry = xcalloc((size_t)options->max_rows * MOCK_CARRY, sizeof(*mock->carry)),
        .text = xcalloc(ctx_size, sizeof(*mock->text)),
    };
    kv_pages_init(&mock->pages, n_pages, options->max_sequences, ctx_size, options->max_rows);
    engine->state = mock;
    *info = (struct engine_info){
        .n_layers = MOCK_LAYERS,
        .layer_first = options->layer_first,
        .layer_end = layer_end,
        .max_rows = options->max_rows,
        .max_sequences = options->max_sequences,
        .n_pages = n_pages,
        .page_rows = KV_PAGE_ROWS,
        .vocab_size = MOCK_VOCAB,
        .ctx_size = ctx_size,
        .carry = MOCK_CARRY,
        .rewind = REWIND_ROWS,
        .model_hash = hash_xxh3("mock-model", 10),
        .settings_hash = hash_xxh3("mock", 4),
    };
    return true;
}

/* What value `i` of a row's carry is behind `n_layers` layers: whole numbers below 2^24. */
static float mock_carry(struct row row, uint32_t i, uint32_t n_layers)
{
    const uint32_t what = i % 2 == 0 ? (uint32_t)row.token : row.position;
    return (float)(what * 512 + i) + (float)((1u << n_layers) - 1);
}

static void mock_run_layers(const struct mock *mock, const struct row *rows, uint32_t n_rows,
                            const float *in, float *out)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t i = 0; i < MOCK_CARRY; i++) {
            const size_t at = (size_t)r * MOCK_CARRY + i;
            float value = mock->layer_first == 0 ? mock_carry(rows[r], i, 0) : in[at];
            for (uint32_t layer = mock->layer_first; layer < mock->layer_end; layer++)
                value += (float)(1u << layer);
            out[at] = value;
        }
    }
}

static bool mock_verify(const struct row *row, const float *carry, struct err *err)
{
    for (uint32_t i = 0; i < MOCK_CARRY; i++) {
        if (carry[i] != mock_carry(*row, i, MOCK_LAYERS)) {
            return err_set(err, ERR_BATCH_LOST,
                           "the values of sequence %u, position %u did not pass through all layers",
                           row->sequence, row->position);
        }
    }
    return true;
}

static int32_t mock_next(const int32_t *ids, uint32_t n_ids)
{
    uint32_t user = n_ids;
    while (user > 0 && ids[user - 1] != MOCK_USER)
        user--;
    if (user == 0) {
        return ids[n_ids - 1]; // no conversation: the last byte again and again
    }
    uint32_t end = user;
    while (end < n_ids && ids[end] != MOCK_END)
        end++;
    uint32_t answer = end;
    while (answer < n_ids && ids[answer] != MOCK_ASSISTANT)
        answer++;
    if (answer >= n_ids)
        return MOCK_END;
    const uint32_t said = n_ids - answer - 1;
    return said < end - user ? ids[user + said] : MOCK_END;
}

static void mock_write_logits(struct mock *mock, const struct row *row, float *logits)
{
    for (uint32_t position = 0; position <= row->position; position++) {
        const uint32_t page = kv_pages_of(&mock->pages, row->sequence, position);
        mock->text[position] = mock->ids[(size_t)page * KV_PAGE_ROWS + position % KV_PAGE_ROWS];
    }
    memset(logits, 0, MOCK_VOCAB * sizeof(*logits));
    logits[mock_next(mock->text, row->position + 1)] = MOCK_CERTAIN;
}

static bool mock_check_rows(const struct mock *mock, const struct batch *in, struct err *err)
{
    if (in->n_rows > mock->max_rows) {
        return err_set(err, ERR_BATCH_LOST, "a batch of %u rows; at most %u", in->n_rows,
                       mock->max_rows);
    }
    for (uint32_t r = 0; r < in->n_rows; r++) {
        if (in->rows[r].token < 0 || in->rows[r].token >= MOCK_VOCAB) {
            return err_set(err, ERR_BATCH_LOST, "token %d is not one of %d", in->rows[r].token,
                           MOCK_VOCAB);
        }
    }
    return true;
}

static void mock_store_rows(struct mock *mock, const struct batch *in)
{
    for (uint32_t i = 0; i < mock->pages.n_copies; i++) {
        const struct kv_page_copy copy = mock->pages.copies[i];
        memcpy(&mock->ids[(size_t)copy.to * KV_PAGE_ROWS],
               &mock->ids[(size_t)copy.from * KV_PAGE_ROWS], copy.rows * sizeof(*mock->ids));
    }
    for (uint32_t r = 0; r < in->n_rows; r++) {
        const struct row *row = &in->rows[r];
        const uint32_t page = kv_pages_of(&mock->pages, row->sequence, row->position);
        mock->ids[(size_t)page * KV_PAGE_ROWS + row->position % KV_PAGE_ROWS] = row->token;
    }
}

/* The last layer's rows in, logits out. */
static bool mock_finish(struct mock *mock, const struct batch *in, const float *carry,
                        struct batch *out, struct err *err)
{
    for (uint32_t r = 0; r < in->n_rows; r++) {
        if (!mock_verify(&in->rows[r], carry + (size_t)r * MOCK_CARRY, err))
            return false;
    }
    out->n_logits = 0;
    for (uint32_t r = 0; r < in->n_rows; r++) {
        if ((in->rows[r].flags & (ROW_SAMPLE | ROW_LOGITS)) != 0) {
            mock_write_logits(mock, &in->rows[r],
                              out->values + (size_t)out->n_logits++ * MOCK_VOCAB);
        }
    }
    return true;
}

static bool mock_step(struct engine *engine, const struct batch *in, struct batch *out,
                      struct err *err)
{
    struct mock *mock = engine->state;
    if (!mock_check_rows(mock, in, err))
        return false;
    for (uint32_t r = 0; r < in->n_rows; r++)
        mock->rows[r] = (struct kv_row){ in->rows[r].sequence, in->rows[r].position };
    if (!kv_pages_plan(&mock->pages, mock->rows, in->n_rows, err))
        return false;
    mock_store_rows(mock, in);
    batch_copy_rows(out, in);
    out->n_logits = 0;
    if (mock->layer_end < MOCK_LAYERS) {
        must(out->values_cap >= (size_t)in->n_rows * MOCK_CARRY);
        mock_run_layers(mock, in->rows, in->n_rows, in->values, out->values);
    } else {
        must(out->values_cap >= (size_t)batch_count_logits(in) * MOCK_VOCAB);
        mock_run_layers(mock, in->rows, in->n_rows, in->values, mock->carry);
        if (!mock_finish(mock, in, mock->carry, out, err)) {
            kv_pages_abort(&mock->pages);
            return false;
        }
    }
    kv_pages_commit(&mock->pages);
    return true;
}

static void mock_keep(struct engine *engine, uint32_t from, uint32_t to, uint32_t rows)
{
    struct mock *mock = engine->state;
    kv_pages_keep(&mock->pages, from, to, rows);
}

static void mock_drop(struct engine *engine, uint32_t sequence)
{
    struct mock *mock = engine->state;
    kv_pages_drop(&mock->pages, sequence);
}

const struct engine_ops engine_mock = {
    .name = "mock",
    .summary = "says the last user message back; for first runs and tests, needs no model",
    .devices = mock_devices,
    .open = mock_open,
    .step = mock_step,
    .keep = mock_keep,
    .drop = mock_drop,
    .close = mock_close,
};
