/* A progress line. Drawing is rate-limited by one compare-and-swap, so any number of threads may
 * report small steps; the thread that wins the swap draws. */
#include "base/progress.h"

#include "base/clock.h"

#include <stdio.h>
#include <unistd.h>

#define DRAW_MS_TERMINAL 100u
#define DRAW_MS_PLAIN 5000u
#define BAR_CELLS 30u
#define SHORT_SECONDS 0.05 // a rate over less says nothing

void progress_start(struct progress *progress, const char *label, const char *unit, uint64_t total,
                    bool quiet)
{
    *progress = (struct progress){ .label = label, .unit = unit, .total = total };
    progress->started_ms = clock_ms();
    progress->terminal = isatty(STDERR_FILENO);
    progress->quiet = quiet;
}

/* "12.3 MiB" for bytes, "123 rows" for the rest. */
static void format_amount(char *out, size_t out_bytes, double amount, const char *unit)
{
    static const char *const steps[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    size_t step = 0;
    if (unit[0] != 'B' || unit[1] != '\0') {
        snprintf(out, out_bytes, "%.0f %s", amount, unit);
        return;
    }
    for (; amount >= 1024 && step + 1 < sizeof steps / sizeof *steps; step++)
        amount /= 1024;
    snprintf(out, out_bytes, "%.*f %s", step ? 1 : 0, amount, steps[step]);
}

static void draw(struct progress *progress, uint64_t now_ms, bool last)
{
    char done_text[32], total_text[32], rate_text[32], bar[BAR_CELLS + 1];
    uint64_t done = atomic_load(&progress->done);
    double fraction = progress->total ? (double)done / (double)progress->total : 1;
    double seconds = (double)(now_ms - progress->started_ms) / 1000;
    double rate = seconds > 0.001 ? (double)done / seconds : 0;
    fraction = fraction > 1 ? 1 : fraction;
    format_amount(done_text, sizeof done_text, (double)done, progress->unit);
    format_amount(total_text, sizeof total_text, (double)progress->total, progress->unit);
    format_amount(rate_text, sizeof rate_text, rate, progress->unit);
    for (uint32_t i = 0; i < BAR_CELLS; i++)
        bar[i] = (double)i < fraction * BAR_CELLS ? '#' : '.';
    bar[BAR_CELLS] = '\0';
    double left = rate > 0 ? ((double)progress->total - (double)done) / rate : 0;
    if (last && seconds < SHORT_SECONDS)
        fprintf(stderr, "%s%s: %s%s\n", progress->terminal ? "\r" : "", progress->label, done_text,
                progress->terminal ? "\033[K" : "");
    else if (last)
        fprintf(stderr, "%s%s: %s in %.1f s (%s/s)%s\n", progress->terminal ? "\r" : "",
                progress->label, done_text, seconds, rate_text, progress->terminal ? "\033[K" : "");
    else if (progress->terminal)
        fprintf(stderr, "\r%s [%s] %3.0f %%  %s of %s, %s/s, %.0f s left\033[K", progress->label,
                bar, fraction * 100, done_text, total_text, rate_text, left);
    else
        fprintf(stderr, "%s: %.0f %% (%s of %s), %s/s, %.0f s left\n", progress->label,
                fraction * 100, done_text, total_text, rate_text, left);
    fflush(stderr);
}

void progress_add(struct progress *progress, uint64_t amount)
{
    atomic_fetch_add(&progress->done, amount);
    if (progress->quiet)
        return;
    uint64_t now = clock_ms(), due = atomic_load(&progress->next_draw_ms);
    uint64_t interval = progress->terminal ? DRAW_MS_TERMINAL : DRAW_MS_PLAIN;
    if (due == 0) // the first line comes after one interval: short work stays silent
        due = progress->started_ms + interval;
    if (now < due)
        return;
    uint64_t expected = atomic_load(&progress->next_draw_ms);
    if (atomic_compare_exchange_strong(&progress->next_draw_ms, &expected, now + interval))
        draw(progress, now, false);
}

void progress_finish(struct progress *progress)
{
    if (!progress->quiet)
        draw(progress, clock_ms(), true);
}
