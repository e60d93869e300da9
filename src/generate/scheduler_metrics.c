/* The scheduler's figures as metrics: a row each, over struct scheduler_stats. */
#include "generate/scheduler.h"

#define COUNTER(field, name, labels, help)                                                         \
    METRIC_COUNTER_U64(struct scheduler_stats, field, name, labels, help)
#define GAUGE_U32(field, name, help) METRIC_GAUGE_U32(struct scheduler_stats, field, name, help)
#define GAUGE(field, name, help) METRIC_GAUGE_DOUBLE(struct scheduler_stats, field, name, help)
#define HISTOGRAM(field, name, help) METRIC_HISTOGRAM(struct scheduler_stats, field, name, help)

#define ENDED "Requests by how they ended; refused ones were never accepted."

const struct metric_row scheduler_metrics[] = {
    GAUGE_U32(running, "requests_running", "Requests that have a sequence now."),
    GAUGE_U32(waiting, "requests_waiting", "Requests that wait for a sequence or KV pages."),
    COUNTER(requests_total, "requests_accepted_total", NULL, "Requests taken into the queue."),
    COUNTER(done_total, "requests_total", "outcome=\"done\"", ENDED),
    COUNTER(cancelled_total, "requests_total", "outcome=\"cancelled\"", ENDED),
    COUNTER(failed_total, "requests_total", "outcome=\"failed\"", ENDED),
    COUNTER(refused_total, "requests_total", "outcome=\"refused\"", ENDED),
    COUNTER(preempted_total, "requests_preempted_total", NULL,
            "Times that a running request gave its KV pages back and was computed again."),
    COUNTER(prompt_rows_total, "prompt_tokens_total", NULL,
            "Tokens of prompts computed, those computed again included."),
    COUNTER(generated_total, "generated_tokens_total", NULL, "Tokens drawn."),
    GAUGE(prefill_rate, "prefill_tokens_per_second",
          "Tokens of prompts a second, over the last seconds with work."),
    GAUGE(decode_rate, "decode_tokens_per_second",
          "Tokens drawn a second, of all requests, over the last seconds with work."),
    GAUGE(read_share, "decode_read_share",
          "Time that reading weights, keys and values would take at the read bandwidth measured at "
          "start, over the time that steps of decoding took, over the last seconds with work; NaN: "
          "not known."),
    GAUGE(
        read_limit_s, "decode_step_limit_seconds",
        "Time that reading all weights once takes at the read bandwidth of the machines; NaN: not "
        "known."),
    GAUGE_U32(pages_used, "kv_pages_used", "KV pages that running requests have."),
    GAUGE_U32(pages_total, "kv_pages", "KV pages that there are."),
    HISTOGRAM(first_token_s, "time_to_first_token_seconds",
              "From a request's acceptance to its first token."),
    HISTOGRAM(inter_token_s, "inter_token_seconds", "From one token of a request to its next."),
    METRIC_END,
};
