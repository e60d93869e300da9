/* One place for how figures look. Ratios have two decimals: what is behind them is noise. */
#include "bench/bench_report.h"

#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "bench/noise.h"

static void add_bytes(struct buf *out, const char *name, size_t bytes)
{
    if (bytes >= (size_t)1 << 20)
        buf_printf(out, ", %s %zu MiB", name, bytes >> 20);
    else if (bytes)
        buf_printf(out, ", %s %zu KiB", name, bytes >> 10);
}

void report_machine(struct buf *out, const struct machine *machine, const struct kernel *kernel)
{
    buf_printf(out, "%s (%s), %u thread%s", machine->cpu.brand,
               cpu_microarch_name(machine->cpu.microarch), machine->threads,
               machine->threads == 1 ? "" : "s");
    add_bytes(out, "L1d", machine->l1d_bytes);
    add_bytes(out, "L2", machine->l2_bytes);
    add_bytes(out, "L3", machine->l3_bytes);
    buf_printf(out, "\nrung %s (%s)\n", kernel->name, kernel->summary);
}

void report_noise(struct buf *out, const struct bench_noise *noise)
{
    buf_printf(out, "lost to others: %.1f %% of the time before, %.1f %% after",
               100 * noise->before, 100 * noise->after);
    if (fmax(noise->before, noise->after) > NOISE_LOST_CAP)
        buf_printf(out, ": too noisy to judge (more than %.0f %%); run it again",
                   100 * NOISE_LOST_CAP);
    buf_add_char(out, '\n');
}

void report_ceilings(struct buf *out, const struct ceilings *ceilings)
{
    buf_printf(out, "\n%-32s %7s %7s %9s %9s %9s %9s\n", "ceiling", "threads", "streams", "p25",
               "median", "p75", "best");
    for (uint32_t i = 0; i < ceilings->n_rows; i++) {
        const struct ceiling_row *const row = &ceilings->rows[i];
        buf_printf(out, "%-32s %7u ", row->what, row->threads);
        if (row->streams)
            buf_printf(out, "%7u", row->streams);
        else
            buf_printf(out, "%7s", "");
        buf_printf(out, " %9.2f %9.2f %9.2f %9.2f %s\n", row->low, row->median, row->high,
                   row->best, row->unit);
    }
}

void report_bar(struct buf *out, const struct bar *bar, const struct bar_result *result)
{
    buf_printf(out, "%-4s %-58s ", bar->id, bar->what);
    if (result->state == BAR_MEASURED)
        buf_printf(out, "%6.2f  ", result->figure);
    else
        buf_printf(out, "%6s  ", "-");
    buf_printf(out, "must %s %.2f, stretch %.2f  %s", bar->is_time ? "<=" : ">=", bar->must,
               bar->stretch, bar_verdict(bar, result));
    if (result->state != BAR_MEASURED)
        buf_printf(out, ": %s", result->why);
    buf_add_char(out, '\n');
    for (uint32_t i = 0; i < result->n_cases; i++) {
        const struct bar_case *const c = &result->cases[i];
        buf_printf(out, "       %-55s %6.2f", c->what, c->figure);
        if (c->low < c->figure || c->high > c->figure)
            buf_printf(out, "  (%.2f .. %.2f)", c->low, c->high);
        else
            buf_printf(out, "                ");
        buf_printf(out, "  %s\n", c->rate);
    }
}

static void add_model_row(struct buf *out, const struct model_bench_row *row)
{
    const bool is_decode = row->kind == MODEL_BENCH_DECODE;
    char what[48];
    int n = snprintf(what, sizeof(what), "%s %u", is_decode ? "decode at" : "prefill", row->length);
    if (is_decode && row->batch > 1)
        snprintf(what + n, sizeof(what) - (size_t)n, ", %u sequences", row->batch);
    buf_printf(out, "%-30s %7u ", what, row->threads);
    if (row->why) {
        buf_printf(out, " not measured: %s\n", row->why);
        return;
    }
    buf_printf(out, "%9.1f  (%.1f .. %.1f)", row->rate, row->rate_low, row->rate_high);
    if (row->has_share)
        buf_printf(out, "  %.2f (%.2f .. %.2f) of the %s", row->share, row->share_low,
                   row->share_high, is_decode ? "read" : "dot product");
    buf_printf(out, "  %u rounds\n", row->rounds);
}

void report_model(struct buf *out, const struct model_bench_result *result)
{
    const struct engine_cost *const cost = &result->cost;
    buf_printf(out,
               "a step reads %.1f MB of weights, and %.1f KB for each position; opened in %.0f ms; "
               "this machine reads %.1f GB/s of them\n",
               (double)cost->weights_bytes * 1e-6, (double)cost->position_bytes * 1e-3,
               result->open_s * 1e3, cost->read_bytes_per_s * 1e-9);
    buf_printf(out, "\n%-30s %7s %9s\n", "model", "threads", "tokens/s");
    for (uint32_t i = 0; i < result->n_rows; i++)
        add_model_row(out, &result->rows[i]);
}

/* ---- JSON ---- */

static void member_text(struct buf *out, const char *key, const char *text)
{
    json_write_key(out, key);
    json_write_string(out, str_from(text));
}

static void member_number(struct buf *out, const char *key, double value)
{
    json_write_key(out, key);
    json_write_double(out, value);
}

static void add_features_json(struct buf *out, const struct cpu *cpu)
{
    const char *before = ",\"features\":[";
    for (uint32_t i = 0; i < CPU_FEATURE_COUNT; i++) {
        if (!cpu_has(cpu, 1u << i))
            continue;
        buf_add_text(out, before);
        json_write_string(out, str_from(cpu_feature_name((enum cpu_feature)(1u << i))));
        before = ",";
    }
    buf_add_text(out, before[1] ? ",\"features\":[]" : "]");
}

void report_machine_json(struct buf *out, const struct machine *machine,
                         const struct kernel *kernel)
{
    json_write_key(out, "machine");
    buf_add_char(out, '{');
    member_text(out, "cpu", machine->cpu.brand);
    buf_add_char(out, ',');
    member_text(out, "microarchitecture", cpu_microarch_name(machine->cpu.microarch));
    add_features_json(out, &machine->cpu);
    buf_add_char(out, ',');
    member_text(out, "rung", kernel->name);
    buf_printf(out, ",\"threads\":%u,\"l1d_bytes\":%zu,\"l2_bytes\":%zu,\"l3_bytes\":%zu}",
               machine->threads, machine->l1d_bytes, machine->l2_bytes, machine->l3_bytes);
}

void report_noise_json(struct buf *out, const struct bench_noise *noise)
{
    json_write_key(out, "noise");
    buf_add_char(out, '{');
    member_number(out, "lost_before", noise->before);
    buf_add_char(out, ',');
    member_number(out, "lost_after", noise->after);
    buf_printf(out, ",\"too_noisy\":%s}",
               fmax(noise->before, noise->after) > NOISE_LOST_CAP ? "true" : "false");
}

void report_ceilings_json(struct buf *out, const struct ceilings *ceilings)
{
    json_write_key(out, "ceilings");
    for (uint32_t i = 0; i < ceilings->n_rows; i++) {
        const struct ceiling_row *const row = &ceilings->rows[i];
        buf_add_char(out, i ? ',' : '[');
        buf_add_char(out, '{');
        member_text(out, "what", row->what);
        buf_add_char(out, ',');
        member_text(out, "unit", row->unit);
        buf_printf(out, ",\"threads\":%u,\"streams\":%u,", row->threads, row->streams);
        member_number(out, "p25", row->low);
        buf_add_char(out, ',');
        member_number(out, "median", row->median);
        buf_add_char(out, ',');
        member_number(out, "p75", row->high);
        buf_add_char(out, ',');
        member_number(out, "best", row->best);
        buf_add_char(out, '}');
    }
    buf_add_char(out, ']');
}

static void add_model_row_json(struct buf *out, const struct model_bench_row *row)
{
    const bool is_decode = row->kind == MODEL_BENCH_DECODE;
    buf_printf(out, "{\"what\":\"%s\",\"threads\":%u,\"%s\":%u,\"batch\":%u,\"rounds\":%u",
               is_decode ? "decode" : "prefill", row->threads, is_decode ? "depth" : "rows",
               row->length, row->batch, row->rounds);
    const struct {
        const char *key;
        double value;
        bool is_there;
    } members[] = {
        { "tokens_per_second", row->rate, !row->why },
        { "tokens_per_second_p25", row->rate_low, !row->why },
        { "tokens_per_second_p75", row->rate_high, !row->why },
        { "share", row->share, row->has_share },
        { "share_p25", row->share_low, row->has_share },
        { "share_p75", row->share_high, row->has_share },
    };
    for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
        if (!members[i].is_there)
            continue;
        buf_add_char(out, ',');
        member_number(out, members[i].key, members[i].value);
    }
    if (row->has_share)
        buf_printf(out, ",\"share_of\":\"%s\"", is_decode ? "read" : "dot");
    if (row->why) {
        buf_add_char(out, ',');
        member_text(out, "why_not", row->why);
    }
    buf_add_char(out, '}');
}

void report_model_json(struct buf *out, const struct model_bench_result *result)
{
    const struct engine_cost *const cost = &result->cost;
    json_write_key(out, "model");
    buf_printf(out,
               "{\"weights_bytes\":%llu,\"position_bytes\":%llu,\"row_macs\":%llu,"
               "\"logits_macs\":%llu,",
               (unsigned long long)cost->weights_bytes, (unsigned long long)cost->position_bytes,
               (unsigned long long)cost->row_macs, (unsigned long long)cost->logits_macs);
    member_number(out, "read_bytes_per_second", cost->read_bytes_per_s);
    buf_add_char(out, ',');
    member_number(out, "open_seconds", result->open_s);
    buf_add_text(out, ",\"rows\":[");
    for (uint32_t i = 0; i < result->n_rows; i++) {
        if (i)
            buf_add_char(out, ',');
        add_model_row_json(out, &result->rows[i]);
    }
    buf_add_text(out, "]}");
}

static void add_case_json(struct buf *out, const struct bar_case *c)
{
    buf_add_char(out, '{');
    member_text(out, "what", c->what);
    buf_add_char(out, ',');
    member_number(out, "figure", c->figure);
    buf_add_char(out, ',');
    member_number(out, "p25", c->low);
    buf_add_char(out, ',');
    member_number(out, "p75", c->high);
    buf_add_char(out, ',');
    member_text(out, "rate", c->rate);
    buf_add_char(out, '}');
}

void report_bar_json(struct buf *out, const struct bar *bar, const struct bar_result *result)
{
    buf_add_char(out, '{');
    member_text(out, "id", bar->id);
    buf_add_char(out, ',');
    member_text(out, "what", bar->what);
    buf_add_char(out, ',');
    member_number(out, "must", bar->must);
    buf_add_char(out, ',');
    member_number(out, "stretch", bar->stretch);
    buf_printf(out, ",\"less_is_better\":%s,", bar->is_time ? "true" : "false");
    member_text(out, "verdict", bar_verdict(bar, result));
    if (result->state != BAR_MEASURED) {
        buf_add_char(out, ',');
        member_text(out, "why", result->why);
    } else {
        buf_add_char(out, ',');
        member_number(out, "figure", result->figure);
        buf_printf(out, ",\"rounds\":%u,\"cases\":[", result->rounds);
        for (uint32_t i = 0; i < result->n_cases; i++) {
            if (i)
                buf_add_char(out, ',');
            add_case_json(out, &result->cases[i]);
        }
        buf_add_char(out, ']');
    }
    buf_add_char(out, '}');
}
