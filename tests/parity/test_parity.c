/* The parity laws that hold inside one process: whatever instruction set, number of threads, cut
 * into stages or chunks, and company in a batch, the logits of a row have the same bits. Families,
 * weight formats, KV types and activation groups are walked; what the CPU lacks is printed. The
 * hashes are pinned so that other machines, compilers and C libraries prove them too: a change of
 * one is a change of arithmetic and raises the numerics version (docs/numerics.md). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/hash.h"
#include "helpers/engine_suite.h"
#include "helpers/golden.h"
#include "kernel/kernel.h"
#include "shard/quantise.h"
#include "weights/weights.h"

#define TEXT 150u
#define VOCAB 272u

struct subject {
    const char *model, *format;
    enum engine_kv_type kv_type;
    const char *pin; // XXH3 of the logits
    enum engine_activation activation;
};

static const struct subject subjects[] = {
    { "llama", "f32", ENGINE_KV_DEFAULT, "3e8c95bc86fc37c6", ENGINE_ACTIVATION_DEFAULT },
    { "llama", "int8", ENGINE_KV_DEFAULT, "2884f04354ac990d", ENGINE_ACTIVATION_DEFAULT },
    { "qwen2", "int4-asym", ENGINE_KV_F32, "0ab626c91a285703", ENGINE_ACTIVATION_DEFAULT },
    { "qwen3", "bf16", ENGINE_KV_F16, "42b4f1c39b10251a", ENGINE_ACTIVATION_DEFAULT },
    { "mistral", "f16", ENGINE_KV_DEFAULT, "22e6ce920840770f", ENGINE_ACTIVATION_DEFAULT },
    { "mistral", "int4", ENGINE_KV_DEFAULT, "3684340b03d9c590", ENGINE_ACTIVATION_128 },
    { "llama", "int4", ENGINE_KV_DEFAULT, "40e8931a31a85103", ENGINE_ACTIVATION_32 },
    { "llama", "int4", ENGINE_KV_DEFAULT, "40e8931a31a85103", ENGINE_ACTIVATION_DEFAULT },
    { "qwen2", "int4-asym", ENGINE_KV_DEFAULT, "886a12ed8bcc5078", ENGINE_ACTIVATION_64 },
    { "mistral", "int8", ENGINE_KV_DEFAULT, "6f3fa5f436e2a457", ENGINE_ACTIVATION_ROW },
    { "qwen3", "int4", ENGINE_KV_DEFAULT, "b6f968ce3e0535a1", ENGINE_ACTIVATION_NONE },
    { "qwen2", "int4", ENGINE_KV_Q8, "71902542f26ca161", ENGINE_ACTIVATION_DEFAULT },
    { "mistral", "f16", ENGINE_KV_Q8, "b031701f329fa222", ENGINE_ACTIVATION_DEFAULT },
};
#define N_SUBJECTS (sizeof(subjects) / sizeof(subjects[0]))

static char *directory;
static char *shards[N_SUBJECTS];
static int32_t ids[TEXT];
static float reference[TEXT * VOCAB];

static struct engine_options options_of(size_t subject, const char *isa, uint32_t threads)
{
    return (struct engine_options){
        .model = shards[subject],
        .engine = "native",
        .isa = isa,
        .threads = threads,
        .kv_type = subjects[subject].kv_type,
        .activation = subjects[subject].activation,
    };
}

static void open_chain(struct engine_chain *chain, const struct engine_options *options,
                       const uint32_t *cuts, uint32_t n_cuts)
{
    struct err err = { 0 };
    if (!engine_chain_open(chain, options, cuts, n_cuts, &err))
        fail_msg("%s", err.text);
}

static void run_and_compare(struct engine_chain *chain, uint32_t sequence, uint32_t first,
                            uint32_t end, const char *what)
{
    struct err err = { 0 };
    const struct batch *out = engine_chain_run(chain, sequence, ids, first, end, &err);
    if (out == NULL)
        fail_msg("%s", err.text);
    if (memcmp(out->values, reference + (size_t)first * VOCAB,
               (size_t)(end - first) * VOCAB * sizeof(float)) != 0)
        fail_msg("%s: rows %u to %u differ", what, first, end);
}

/* The definition: the scalar rung, one thread, one batch. */
static void make_reference(size_t subject)
{
    struct engine_chain chain;
    struct err err = { 0 };
    const struct engine_options options = options_of(subject, "scalar", 1);
    open_chain(&chain, &options, NULL, 0);
    const struct batch *out = engine_chain_run(&chain, 0, ids, 0, TEXT, &err);
    assert_non_null(out);
    memcpy(reference, out->values, sizeof(reference));
    engine_chain_close(&chain);
}

static void check_rungs_and_threads(size_t subject)
{
    for (size_t i = 0; kernels[i] != NULL; i++) {
        if (!kernel_usable(kernels[i])) {
            print_message("  not on this CPU: %s\n", kernels[i]->name);
            continue;
        }
        for (uint32_t threads = 1; threads <= 3; threads++) {
            struct engine_chain chain;
            char what[64];
            snprintf(what, sizeof(what), "%s, %u threads", kernels[i]->name, threads);
            const struct engine_options options = options_of(subject, kernels[i]->name, threads);
            open_chain(&chain, &options, NULL, 0);
            run_and_compare(&chain, 0, 0, TEXT, what); // many rows
            run_and_compare(&chain, 1, 0, 70, what);
            for (uint32_t position = 70; position < 76; position++) { // one row, then some
                run_and_compare(&chain, 1, position, position + 1, what);
            }
            run_and_compare(&chain, 1, 76, 79, what);
            run_and_compare(&chain, 1, 79, 89, what);
            engine_chain_close(&chain);
        }
    }
}

static void check_stages(size_t subject)
{
    static const uint32_t cuts[] = { 1, 2 };
    const struct engine_options options = options_of(subject, NULL, 2);
    struct engine_chain chain;
    for (size_t first = 0; first < 2; first++) {
        for (uint32_t n_cuts = 1; first + n_cuts <= 2; n_cuts++) {
            struct err err = { 0 };
            if (!engine_chain_open(&chain, &options, cuts + first, n_cuts, &err)) {
                assert_non_null(strstr(err.text, "the model has 2")); // qwen: two layers
                continue;
            }
            run_and_compare(&chain, 0, 0, 100, "stages");
            run_and_compare(&chain, 0, 100, 101, "stages");
            run_and_compare(&chain, 0, 60, TEXT, "stages, stepped back");
            engine_chain_close(&chain);
        }
    }
}

/* Sequences at different places, each as if alone. */
static void check_company(size_t subject)
{
    const struct engine_options options = options_of(subject, NULL, 2);
    struct engine_chain chain;
    struct err err = { 0 };
    open_chain(&chain, &options, NULL, 0);
    for (uint32_t sequence = 0; sequence < 12; sequence++)
        run_and_compare(&chain, sequence, 0, 1 + 11 * sequence, "a beginning");
    for (uint32_t sequence = 0; sequence < 12; sequence++) {
        const uint32_t position = 1 + 11 * sequence;
        engine_chain_add(&chain, sequence, position, ids[position], ROW_SAMPLE);
    }
    const struct batch *out = engine_chain_step(&chain, &err);
    assert_non_null(out);
    for (uint32_t sequence = 0; sequence < 12; sequence++) {
        assert_memory_equal(out->values + (size_t)sequence * VOCAB,
                            reference + (size_t)(1 + 11 * sequence) * VOCAB, VOCAB * sizeof(float));
    }
    engine_chain_close(&chain);
}

/* Past a segment of the cache (512 positions) the few rows of a step are split among threads. */
static void test_long_past(void **state)
{
    (void)state;
    enum { LONG = 610, TAIL = 8 };
    static int32_t text[LONG];
    static float expected[TAIL * VOCAB];
    struct err err = { 0 };
    for (uint32_t i = 0; i < LONG; i++)
        text[i] = (int32_t)((i * 31 + i * i * 5) % VOCAB);
    /* Full and sliding attention, over pages of each type. */
    static const size_t chosen[] = { 0, 4, N_SUBJECTS - 2, N_SUBJECTS - 1 };
    for (size_t i = 0; i < sizeof(chosen) / sizeof(chosen[0]); i++) {
        struct engine_options options = options_of(chosen[i], "scalar", 1);
        struct engine_chain chain;
        options.ctx_size = LONG;
        options.max_rows = LONG;
        open_chain(&chain, &options, NULL, 0);
        const struct batch *out = engine_chain_run(&chain, 0, text, 0, LONG, &err);
        assert_non_null(out);
        memcpy(expected, out->values + (size_t)(LONG - TAIL) * VOCAB, sizeof(expected));
        engine_chain_close(&chain);
        options.isa = NULL;
        options.threads = 4;
        open_chain(&chain, &options, NULL, 0);
        assert_non_null(engine_chain_run(&chain, 0, text, 0, LONG - TAIL, &err));
        for (uint32_t first = 0; first < TAIL; first = first == 0 ? 1 : first * 2) {
            const uint32_t end = first == 0 ? 1 : first * 2;
            out = engine_chain_run(&chain, 0, text, LONG - TAIL + first, LONG - TAIL + end, &err);
            assert_non_null(out);
            assert_memory_equal(out->values, expected + (size_t)first * VOCAB,
                                (end - first) * VOCAB * sizeof(float));
        }
        engine_chain_close(&chain);
    }
}

static void test_laws(void **state)
{
    (void)state;
    uint32_t n_wrong = 0;
    for (size_t subject = 0; subject < N_SUBJECTS; subject++) {
        char hash[17];
        make_reference(subject);
        check_rungs_and_threads(subject);
        check_stages(subject);
        check_company(subject);
        hash_hex(hash_xxh3(reference, sizeof(reference)), hash);
        print_message("  %s %s: %s\n", subjects[subject].model, subjects[subject].format, hash);
        n_wrong += strcmp(hash, subjects[subject].pin) != 0;
    }
    assert_int_equal(n_wrong, 0);
}

/* What a shard holds, opened again, is what the quantiser makes of the source, to the byte. */
static void check_matrix(const struct source *source, const struct tensor *tensor)
{
    const struct source_tensor *from = source_find(source, tensor->layer, tensor->role);
    size_t panel_bytes;
    assert_non_null(from);
    assert_true(quant_panel_bytes(tensor->format, tensor->cols, tensor->group, &panel_bytes));
    float *values = calloc(QUANT_PANEL_ROWS * (size_t)tensor->cols, sizeof(float));
    uint8_t *panel = calloc(1, panel_bytes);
    for (uint32_t row = 0; row < tensor->rows; row += QUANT_PANEL_ROWS) {
        const uint32_t left = tensor->rows - row;
        const uint32_t n_rows = left < QUANT_PANEL_ROWS ? left : QUANT_PANEL_ROWS;
        for (uint32_t i = 0; i < n_rows; i++) {
            quant_sources[from->kind]->decode_row(source_row(from, row + i), tensor->cols,
                                                  values + (size_t)i * tensor->cols);
        }
        quant_formats[tensor->format]->encode_panel(values, tensor->cols, n_rows, tensor->cols,
                                                    tensor->group, NULL, panel);
        assert_memory_equal(panel, tensor->data + row / QUANT_PANEL_ROWS * panel_bytes,
                            panel_bytes);
    }
    free(values);
    free(panel);
}

static void test_shard_then_read(void **state)
{
    (void)state;
    for (size_t subject = 0; subject < N_SUBJECTS; subject++) {
        char path[512];
        struct source source;
        struct err err = { 0 };
        uint32_t n_checked = 0;
        snprintf(path, sizeof(path), SOURCE_DIR "/tests/golden/%s", subjects[subject].model);
        assert_true(source_open(&source, path, &err));
        struct weights *weights = weights_open(shards[subject], NULL, &err);
        assert_non_null(weights);
        for (size_t i = 0; i < weights_count(weights); i++) {
            const struct tensor *tensor = weights_at(weights, i);
            if (tensor_role_info(tensor->role)->is_matrix && tensor->role != TENSOR_GATE_UP) {
                check_matrix(&source, tensor);
                n_checked++;
            }
        }
        assert_true(n_checked >= 11); // q, k, v, o, down of two layers, and the embedding
        weights_close(weights);
        source_close(&source);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_laws),
        cmocka_unit_test(test_long_past),
        cmocka_unit_test(test_shard_then_read),
    };
    directory = golden_make_directory();
    for (size_t subject = 0; subject < N_SUBJECTS; subject++) {
        char source[512], name[32];
        struct err err = { 0 };
        snprintf(source, sizeof(source), SOURCE_DIR "/tests/golden/%s", subjects[subject].model);
        snprintf(name, sizeof(name), "shard-%zu", subject);
        shards[subject] = path_join(directory, name);
        if (!golden_export(source, subjects[subject].format, shards[subject], &err)) {
            print_error("%s\n", err.text);
            return 1;
        }
    }
    for (uint32_t i = 0; i < TEXT; i++)
        ids[i] = (int32_t)((i * 53 + i * i * 7) % VOCAB);
    const int failed = cmocka_run_group_tests_name("parity", tests, NULL, NULL);
    for (size_t subject = 0; subject < N_SUBJECTS; subject++)
        free(shards[subject]);
    golden_remove_directory(directory);
    return failed;
}
