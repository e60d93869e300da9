#define _XOPEN_SOURCE 700 // mkdtemp
#include "golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "engine_suite.h"
#include "shard/export.h"
#include "weights/safetensors.h"

#define STEPS 32u

char *golden_make_directory(void)
{
    char *directory = xstrdup("/tmp/cascadia-test-XXXXXX");
    assert_non_null(mkdtemp(directory));
    return directory;
}

void golden_remove_directory(char *directory)
{
    struct err err = { 0 };
    if (directory != NULL && !dir_remove(directory, &err))
        fail_msg("%s", err.text);
    free(directory);
}

bool golden_export(const char *from, const char *format, const char *to, struct err *err)
{
    struct source source;
    struct export_options options = {
        .stage = EXPORT_ALL_STAGES,
        .threads = 1,
        .force = true,
        .quiet = true,
        .tool_version = "test",
    };
    struct export_report report;
    if (!source_open(&source, from, err))
        return false;
    const bool ok = quantise_settings_parse(str_from(format), 32, &options.quantise, err) &&
                    split_even(source.config.n_layers, 1, &options.split, err) &&
                    export_shard(&source, to, &options, &report, err);
    source_close(&source);
    return ok;
}

struct prompt {
    const char *name;
    int32_t ids[256];
    uint32_t n_ids;
    int32_t greedy[STEPS];
    const float *logits; // [n_ids] or NULL
    const float *steps;  // [n_steps]
    uint32_t n_steps;
};

struct golden {
    struct json *json;
    struct safetensors tensors;
    uint32_t vocab_size;
    const char *shard;
    const struct engine_options *options;
    struct golden_result *result;
};

static const float *find_rows(const struct golden *golden, const char *name, const char *what,
                              uint32_t *n_rows)
{
    char full[64];
    snprintf(full, sizeof(full), "%s.%s", name, what);
    const struct safetensors_tensor *tensor = safetensors_find(&golden->tensors, str_from(full));
    if (tensor == NULL)
        return NULL;
    assert_int_equal(tensor->n_dims, 2);
    assert_int_equal(tensor->dims[1], golden->vocab_size);
    assert_string_equal(tensor->dtype, "F32");
    *n_rows = (uint32_t)tensor->dims[0];
    return (const float *)(const void *)tensor->data;
}

static void read_prompt(const struct golden *golden, const struct json *json, char *name,
                        size_t name_bytes, struct prompt *prompt)
{
    uint32_t n_rows;
    const struct json *ids = json_get(json, "ids"), *greedy = json_get(json, "greedy");
    snprintf(name, name_bytes, "%.*s", STR_ARG(json_text(json_get(json, "name"))));
    *prompt = (struct prompt){ .name = name, .n_ids = (uint32_t)json_size(ids) };
    assert_true(prompt->n_ids > 0 && prompt->n_ids + STEPS <= 256);
    assert_int_equal(json_size(greedy), STEPS);
    for (uint32_t i = 0; i < prompt->n_ids; i++)
        prompt->ids[i] = (int32_t)json_int(json_at(ids, i), -1);
    for (uint32_t i = 0; i < STEPS; i++)
        prompt->greedy[i] = (int32_t)json_int(json_at(greedy, i), -1);
    prompt->logits = find_rows(golden, name, "logits", &n_rows);
    prompt->steps = find_rows(golden, name, "steps", &prompt->n_steps);
    assert_non_null(prompt->steps);
}

static void compare_rows(struct golden *golden, const float *logits, const float *expected,
                         uint32_t n_rows)
{
    for (size_t i = 0; i < (size_t)n_rows * golden->vocab_size; i++) {
        const float distance = fabsf(logits[i] - expected[i]);
        if (!(distance <= golden->result->worst)) { // a NaN is the worst
            golden->result->worst = distance;
        }
    }
    golden->result->n_rows += n_rows;
}

static void compare_best(struct golden *golden, const float *logits, int32_t expected)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < golden->vocab_size; i++)
        best = logits[i] > logits[best] ? i : best;
    golden->result->n_wrong += (int32_t)best != expected;
}

static bool open_chain(const struct golden *golden, uint32_t ctx_size, struct engine_chain *chain,
                       struct err *err)
{
    struct engine_options options = *golden->options;
    options.model = golden->shard;
    options.ctx_size = ctx_size;
    return engine_chain_open(chain, &options, NULL, 0, err);
}

/* The prompt at once, then token by token. */
static bool run_prompt(struct golden *golden, struct prompt *prompt, struct err *err)
{
    struct engine_chain chain;
    if (!open_chain(golden, prompt->n_ids + STEPS - 1, &chain, err))
        return false;
    const struct batch *out = engine_chain_run(&chain, 0, prompt->ids, 0, prompt->n_ids, err);
    if (out != NULL && prompt->logits != NULL)
        compare_rows(golden, out->values, prompt->logits, prompt->n_ids);
    for (uint32_t step = 0; out != NULL && step < STEPS; step++) {
        const uint32_t at = prompt->n_ids + step;
        const float *logits = out->values + (size_t)(out->n_logits - 1) * golden->vocab_size;
        if (step < prompt->n_steps)
            compare_rows(golden, logits, prompt->steps + (size_t)step * golden->vocab_size, 1);
        compare_best(golden, logits, prompt->greedy[step]);
        prompt->ids[at] = prompt->greedy[step];
        if (step + 1 < STEPS)
            out = engine_chain_run(&chain, 0, prompt->ids, at, at + 1, err);
    }
    engine_chain_close(&chain);
    return out != NULL;
}

/* Each step a model of its own, opened with the context that the step has. */
static bool run_recomputed(struct golden *golden, struct prompt *prompt, struct err *err)
{
    for (uint32_t step = 0; step < prompt->n_steps; step++) {
        const uint32_t n_ids = prompt->n_ids + step;
        struct engine_chain chain;
        if (!open_chain(golden, n_ids, &chain, err))
            return false;
        const struct batch *out = engine_chain_run(&chain, 0, prompt->ids, 0, n_ids, err);
        if (out != NULL) {
            const float *logits = out->values + (size_t)(n_ids - 1) * golden->vocab_size;
            compare_rows(golden, logits, prompt->steps + (size_t)step * golden->vocab_size, 1);
            compare_best(golden, logits, prompt->greedy[step]);
        }
        engine_chain_close(&chain);
        if (out == NULL)
            return false;
        prompt->ids[n_ids] = prompt->greedy[step];
    }
    return true;
}

static bool run_all(struct golden *golden, struct err *err)
{
    const struct json *prompts = json_get(golden->json, "prompts");
    for (size_t i = 0; i < json_size(prompts); i++) {
        const struct json *json = json_at(prompts, i);
        const struct str decode = json_text(json_get(json, "decode"));
        char name[64];
        struct prompt prompt;
        read_prompt(golden, json, name, sizeof(name), &prompt);
        const bool is_recomputed = str_is(decode, "recompute");
        assert_true(is_recomputed || str_is(decode, "any") || str_is(decode, "cached"));
        if (!str_is(decode, "cached") &&
            !(is_recomputed ? run_recomputed : run_prompt)(golden, &prompt, err))
            return err_wrap(err, "prompt %s", name);
    }
    return true;
}

bool golden_compare(const char *folder, const char *shard, const struct engine_options *options,
                    struct golden_result *result, struct err *err)
{
    *result = (struct golden_result){ 0 };
    struct golden golden = { .shard = shard, .options = options, .result = result };
    char *json_path = path_join(folder, "golden.json");
    char *tensors_path = path_join(folder, "golden.safetensors");
    bool ok = false;
    golden.json = json_parse_file(json_path, 1 << 20, err);
    if (golden.json != NULL && safetensors_open(&golden.tensors, tensors_path, err)) {
        golden.vocab_size = (uint32_t)json_int(json_get(golden.json, "vocab"), 0);
        ok = run_all(&golden, err);
    }
    safetensors_close(&golden.tensors);
    json_free(golden.json);
    free(json_path);
    free(tensors_path);
    return ok;
}
