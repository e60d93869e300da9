/* Shards as they are written: every format and source against the values of the model, interrupted
 * and refused writing, determinism over threads. */
#include "shard/export.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "helpers/cm.h"
#include "helpers/model_files.h"
#include "helpers/shard_files.h"
#include "helpers/temporary.h"
#include "model/family.h"
#include "weights/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct place {
    char *dir, *hf, *gguf, *shard;
};

static void place_make(struct place *place)
{
    struct err err = { 0 };
    place->dir = temporary_dir();
    place->hf = path_join(place->dir, "hf");
    place->gguf = path_join(place->dir, "model.gguf");
    place->shard = path_join(place->dir, "shard");
    assert_true(dir_make(place->hf, &err));
}

static void place_drop(struct place *place)
{
    free(place->hf);
    free(place->gguf);
    free(place->shard);
    temporary_remove(place->dir);
}

/* Row `row` of source tensor `tensor` as the shard holds it, whichever tensor that is in. */
static void read_row(const struct weights *weights, const struct source_tensor *tensor,
                     uint32_t row, float *out)
{
    enum tensor_role role = tensor->role;
    bool is_half = role == TENSOR_GATE || role == TENSOR_UP;
    const struct tensor *found = weights_find(weights, tensor->layer, role);
    if (!found && is_half) { // panels 2i and 2i + 1 of gate_up
        found = weights_find(weights, tensor->layer, TENSOR_GATE_UP);
        row = (row / 32 * 2 + (role == TENSOR_UP)) * 32 + row % 32;
    }
    assert_non_null(found);
    if (tensor_role_info(role)->is_matrix)
        quant_decode_matrix_row(found->format, found->data, row, found->cols, found->group, out);
    else
        memcpy(out, found->data, found->bytes);
}

static void add_distance(const struct weights *weights, const struct source_tensor *tensor,
                         double *squared_error, double *squared)
{
    float made[128], wanted[128];
    for (uint32_t row = 0; row < tensor->rows; row++) {
        read_row(weights, tensor, row, made);
        if (tensor_role_info(tensor->role)->is_matrix)
            quant_sources[tensor->kind]->decode_row(source_row(tensor, row), tensor->cols, wanted);
        else
            source_read_vector(tensor, wanted);
        for (uint32_t k = 0; k < tensor->cols; k++) {
            double miss = (double)made[k] - (double)wanted[k];
            *squared_error += miss * miss;
            *squared += (double)wanted[k] * (double)wanted[k];
        }
    }
}

/* |difference| to the source's own values over |values|, of one tensor and of all. */
static double tensor_distance(const struct weights *weights, const struct source_tensor *tensor)
{
    double squared_error = 0, squared = 0;
    add_distance(weights, tensor, &squared_error, &squared);
    return sqrt(squared_error / squared);
}

static double distance(const struct weights *weights, const struct source *source)
{
    double squared_error = 0, squared = 0;
    for (uint32_t i = 0; i < source->n_tensors; i++)
        add_distance(weights, &source->tensors[i], &squared_error, &squared);
    return sqrt(squared_error / squared);
}

static void check_shard(const char *model, const char *shard, const char *quantization,
                        uint32_t group, double bound)
{
    struct export_report report;
    struct source source;
    struct err err = { 0 };
    if (!shard_files_make(model, shard, quantization, group, 2, EXPORT_ALL_STAGES, &report, &err))
        fail_msg("%s", err.text);
    assert_true(source_open(&source, model, &err));
    struct weights *weights = weights_open(shard, NULL, &err);
    if (!weights)
        fail_msg("%s", err.text);
    double off = distance(weights, &source);
    if (bound == 0 ? off != 0 || report.relative_error_max != 0
                   : off > bound || off == 0 || report.relative_error_max > 1.5 * bound)
        fail_msg("%s %s/%u: off by %g, reported %g (worst %s)", model, quantization, group, off,
                 report.relative_error_max, report.worst);
    for (size_t i = 0; i < weights_count(weights); i++)
        assert_true(family_check_tensor(&source.config, weights_at(weights, i), &err));
    weights_close(weights);
    source_close(&source);
    assert_true(dir_remove(shard, &err));
}

static void test_float_sources(void **state)
{
    struct place place;
    struct small_model model = { .seed = 4 };
    (void)state;
    place_make(&place);
    small_model_write_hf(&model, place.hf);
    check_shard(place.hf, place.shard, "f32", 32, 0);
    check_shard(place.hf, place.shard, "f16", 32, 3e-4);
    check_shard(place.hf, place.shard, "bf16", 32, 3e-3);
    check_shard(place.hf, place.shard, "int8", 32, 0.008);
    check_shard(place.hf, place.shard, "int8", 128, 0.01);
    check_shard(place.hf, place.shard, "int4", 32, 0.08);
    check_shard(place.hf, place.shard, "int4", 64, 0.1);
    check_shard(place.hf, place.shard, "int4-asym", 32, 0.08);
    place_drop(&place);
}

/* Already quantised: the very values, whatever was asked for; and as floats, too. */
static void test_quantised_sources_are_never_touched(void **state)
{
    static const uint32_t types[] = { 2, 3, 8 };
    static const enum quant_format formats[] = { QUANT_INT4, QUANT_INT4_MIN, QUANT_INT8 };
    static const char *const asked[] = { "int4", "int8", "int4-asym", "f32", "bf16" };
    (void)state;
    for (size_t t = 0; t < 3; t++) {
        struct place place;
        struct small_model model = { .seed = 5, .gguf_type = types[t], .is_tied = t == 2 };
        place_make(&place);
        small_model_write_gguf(&model, place.gguf);
        for (size_t a = 0; a < 5; a++) {
            struct err err = { 0 };
            struct export_report report;
            if (!shard_files_make(place.gguf, place.shard, asked[a], 64, 1, EXPORT_ALL_STAGES,
                                  &report, &err))
                fail_msg("%s", err.text);
            struct weights *weights = weights_open(place.shard, NULL, &err);
            struct source source;
            assert_true(source_open(&source, place.gguf, &err));
            const struct tensor *q = weights_find(weights, 1, TENSOR_Q);
            assert_int_equal(q->format, a < 3 ? formats[t] : QUANT_F32);
            for (uint32_t i = 0; i < source.n_tensors; i++) {
                const struct source_tensor *tensor = &source.tensors[i];
                if (!quant_sources[tensor->kind]->repack_panel)
                    continue;
                float made[128], wanted[128];
                for (uint32_t row = 0; row < tensor->rows; row++) {
                    read_row(weights, tensor, row, made);
                    quant_sources[tensor->kind]->decode_row(source_row(tensor, row), tensor->cols,
                                                            wanted);
                    assert_memory_equal(made, wanted, tensor->cols * sizeof(float));
                }
            }
            source_close(&source);
            weights_close(weights);
            assert_true(dir_remove(place.shard, &err));
        }
        place_drop(&place);
    }
}

/* ... unless on demand: then their values are taken as floats, what a format holds exactly stays
 * exact, and the shard says what it is. */
static void test_quantised_again_on_demand(void **state)
{
    static const struct {
        uint32_t gguf_type;
        struct quantise_settings asked;
        double bound; // of the distance; 0: the very values
    } cases[] = {
        { 3, { QUANT_INT8, 64, true, NULL }, 0.01 },
        { 3, { QUANT_INT4, 128, true, NULL }, 0.12 },
        { 3, { QUANT_BF16, 32, true, NULL }, 0.003 },
        { 3, { QUANT_F32, 32, true, NULL }, 0 },
        { 2, { QUANT_INT4_ASYM, 32, true, NULL }, 0.09 },
        { 2, { QUANT_INT4, 32, true, NULL }, 0 },
        { 8, { QUANT_INT4_ASYM, 64, true, NULL }, 0.1 },
        { 8, { QUANT_INT8, 32, true, NULL }, 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct place place;
        struct small_model model = { .seed = 15, .gguf_type = cases[i].gguf_type };
        struct export_report report;
        struct source source;
        struct err err = { 0 };
        struct export_options options = {
            .quantise = cases[i].asked,
            .stage = EXPORT_ALL_STAGES,
            .quiet = true,
            .force = true,
            .tool_version = "t",
        };
        place_make(&place);
        small_model_write_gguf(&model, place.gguf);
        assert_true(source_open(&source, place.gguf, &err));
        assert_true(split_even(2, 1, &options.split, &err));
        uint64_t hashes[2];
        for (int again = 0; again < 2; again++) { // last the one that is looked at
            options.quantise.requantise = again != 0;
            if (!export_shard(&source, place.shard, &options, &report, &err))
                fail_msg("case %zu: %s", i, err.text);
            struct weights *weights = weights_open(place.shard, NULL, &err);
            assert_non_null(weights);
            assert_int_equal(weights_manifest(weights)->is_requantised, again);
            hashes[again] = weights_manifest(weights)->settings_hash;
            const struct tensor *q = weights_find(weights, 1, TENSOR_Q);
            double off = tensor_distance(weights, source_find(&source, 1, TENSOR_Q));
            if (again && (q->format != cases[i].asked.format ||
                          (q->group != 0 && q->group != cases[i].asked.group_size)))
                fail_msg("case %zu: became %s/%u", i, quant_formats[q->format]->name, q->group);
            if (!again || cases[i].bound == 0 ? off != 0 : off == 0 || off > cases[i].bound)
                fail_msg("case %zu, again %d: off by %g", i, again, off);
            weights_close(weights);
        }
        assert_true(hashes[0] != hashes[1]);
        source_close(&source);
        place_drop(&place);
    }
}

/* Gate and up alternate in one tensor only when their formats agree. */
static void test_gate_and_up_of_two_formats(void **state)
{
    struct place place;
    struct small_model model = {
        .seed = 11, .gguf_type = 2, .odd = "blk.1.ffn_up.weight", .odd_type = 8
    };
    struct err err = { 0 };
    struct source source;
    (void)state;
    place_make(&place);
    small_model_write_gguf(&model, place.gguf);
    shard_files_make_default(place.gguf, place.shard, "int4");
    struct weights *weights = weights_open(place.shard, NULL, &err);
    assert_non_null(weights);
    assert_non_null(weights_find(weights, 0, TENSOR_GATE_UP));
    assert_null(weights_find(weights, 1, TENSOR_GATE_UP));
    assert_int_equal(weights_find(weights, 1, TENSOR_GATE)->format, QUANT_INT4);
    assert_int_equal(weights_find(weights, 1, TENSOR_UP)->format, QUANT_INT8);
    assert_int_equal(weights_find(weights, 1, TENSOR_UP)->rows, 40);
    assert_true(source_open(&source, place.gguf, &err));
    for (size_t i = 0; i < weights_count(weights); i++)
        assert_true(family_check_tensor(&source.config, weights_at(weights, i), &err));
    source_close(&source);
    weights_close(weights);
    place_drop(&place);
}

static uint64_t hash_file(const char *directory, const char *name)
{
    struct file_map map;
    struct err err = { 0 };
    char *path = path_join(directory, name);
    if (!file_map_open(&map, path, &err))
        fail_msg("%s", err.text);
    uint64_t hash = hash_xxh3(map.data, map.size);
    file_map_close(&map);
    free(path);
    return hash;
}

/* The same shard, byte for byte, whatever the number of threads; and its manifest says equal hashes
 * for equal content, elsewhere too. */
static void test_the_same_bytes_every_time(void **state)
{
    struct place place;
    struct small_model model = { .seed = 6 };
    struct err err = { 0 };
    uint64_t manifest_hash = 0, layer_hash = 0;
    (void)state;
    place_make(&place);
    small_model_write_hf(&model, place.hf);
    for (uint32_t threads = 1; threads <= 4; threads++) {
        struct source source;
        struct export_report report;
        struct export_options options = {
            .quantise = { .format = QUANT_INT4, .group_size = 32 },
            .stage = EXPORT_ALL_STAGES,
            .threads = threads,
            .quiet = true,
            .force = true,
            .tool_version = "t",
        };
        assert_true(source_open(&source, place.hf, &err));
        assert_true(split_even(2, 1, &options.split, &err));
        assert_true(export_shard(&source, place.shard, &options, &report, &err));
        source_close(&source);
        uint64_t now = hash_file(place.shard, "manifest.json");
        assert_true(threads == 1 || now == manifest_hash);
        manifest_hash = now;
        layer_hash = hash_file(place.shard, "layer-001.weights");
    }
    /* Pinned: another machine, compiler or libc writes these very bytes. */
    char hex[17];
    hash_hex(layer_hash, hex);
    assert_string_equal(hex, "ec40a7d37f3163d4");
    place_drop(&place);
}

static size_t count_entries(const char *directory)
{
    char **names;
    size_t n_names;
    struct err err;
    assert_true(dir_list(directory, &names, &n_names, &err));
    dir_list_free(names, n_names);
    return n_names;
}

static void test_targets(void **state)
{
    struct place place;
    struct small_model model = { .seed = 7 };
    struct export_report report;
    struct err err = { 0 };
    (void)state;
    place_make(&place);
    small_model_write_hf(&model, place.hf);
    shard_files_make_default(place.hf, place.shard, "int4");
    assert_false(
        shard_files_make(place.hf, place.shard, "int4", 32, 1, EXPORT_ALL_STAGES, &report, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "--force"));
    struct source source;
    struct export_options options = {
        .quantise = { .format = QUANT_F32, .group_size = 32 },
        .stage = EXPORT_ALL_STAGES,
        .quiet = true,
        .force = true,
        .tool_version = "t",
    };
    assert_true(source_open(&source, place.hf, &err));
    assert_true(split_even(2, 2, &options.split, &err));
    /* --force never replaces what is no shard */
    assert_false(export_shard(&source, place.hf, &options, &report, &err));
    assert_non_null(strstr(err.text, "no shard"));
    assert_true(export_shard(&source, place.shard, &options, &report, &err));
    struct weights *weights = weights_open(place.shard, NULL, &err);
    assert_int_equal(weights_find(weights, 0, TENSOR_Q)->format, QUANT_F32);
    weights_close(weights);
    /* an interrupted run: the old shard is untouched, nothing is left beside it */
    size_t before = count_entries(place.dir);
    atomic_bool cancel;
    atomic_init(&cancel, true);
    options.cancel = &cancel;
    options.quantise.format = QUANT_INT4;
    assert_false(export_shard(&source, place.shard, &options, &report, &err));
    assert_int_equal(err.code, ERR_CANCELLED);
    assert_int_equal(count_entries(place.dir), before);
    weights = weights_open(place.shard, NULL, &err);
    assert_int_equal(weights_find(weights, 0, TENSOR_Q)->format, QUANT_F32);
    weights_close(weights);
    source_close(&source);
    place_drop(&place);
}

static void test_one_stage_writes_its_files_only(void **state)
{
    struct place place;
    struct small_model model = { .seed = 8 };
    struct export_report report;
    struct err err = { 0 };
    (void)state;
    place_make(&place);
    small_model_write_hf(&model, place.hf);
    assert_true(shard_files_make(place.hf, place.shard, "int4", 32, 2, 1, &report, &err));
    assert_null(weights_open(place.shard, NULL, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "embedding.weights"));
    assert_non_null(strstr(err.text, "--stage"));
    struct weights_options last = { .layer_first = 1, .layer_end = 2 };
    struct weights *weights = weights_open(place.shard, &last, &err);
    assert_non_null(weights);
    assert_int_equal(weights_manifest(weights)->n_stages, 2);
    assert_null(manifest_find_file(weights_manifest(weights), "layer-000.weights"));
    weights_close(weights);
    place_drop(&place);
}

/* Values that a shard must not hold. */
static void test_values_that_are_refused(void **state)
{
    static const struct {
        uint32_t bits;
        const char *quantization, *words;
    } cases[] = {
        { 0x7fc00000u, "f32", "not finite" },
        { 0x7f800000u, "int4", "not finite" },
        { 0x7f000000u, "int4", "too large for int4" },
        { 0x7f000000u, "f16", "too large for f16" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct place place;
        struct small_model model = { .seed = 9 };
        struct export_report report;
        struct err err = { 0 };
        struct buf file;
        place_make(&place);
        small_model_write_hf(&model, place.hf);
        /* the last value of the file is one of lm_head, or of model.norm */
        char *path = path_join(place.hf, "model.safetensors");
        buf_init(&file, 1 << 22);
        assert_true(file_read(path, &file, &err));
        memcpy(file.data + file.size - 4, &cases[i].bits, 4);
        assert_true(file_write_atomic(path, buf_view(&file), &err));
        bool good = shard_files_make(place.hf, place.shard, cases[i].quantization, 32, 1,
                                     EXPORT_ALL_STAGES, &report, &err);
        if (i == 2 ? good || !strstr(err.text, "too large for int8") // the head stays int8
                   : good || !strstr(err.text, cases[i].words) || !strstr(err.text, "lm_head"))
            fail_msg("case %zu: %s", i, good ? "success" : err.text);
        assert_false(file_exists(place.shard));
        buf_release(&file);
        free(path);
        place_drop(&place);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float_sources),
        cmocka_unit_test(test_quantised_sources_are_never_touched),
        cmocka_unit_test(test_quantised_again_on_demand),
        cmocka_unit_test(test_gate_and_up_of_two_formats),
        cmocka_unit_test(test_the_same_bytes_every_time),
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_one_stage_writes_its_files_only),
        cmocka_unit_test(test_values_that_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
