/* The template interpreter: the input is a template, a zero byte, and a context in JSON. What comes
 * out must be told from errors, keep its runs in order, and be the same when rendered again. */
#include "base/arena.h"
#include "base/json.h"
#include "text/template.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool read_context(struct arena *arena, struct str text, struct value *out)
{
    struct err err;
    struct json *json = text.size > 0 ? json_parse(text, &err) : NULL;
    bool ok = json && value_from_json(arena, json, false, out, &err);
    json_free(json);
    return (ok && out->type == VALUE_DICT) || value_dict_new(arena, out);
}

static void check(const struct rendering *rendering)
{
    size_t at = 0;
    for (size_t i = 0; i < rendering->n_runs; i++) {
        must(rendering->runs[i].end > at);
        must(i == 0 || rendering->runs[i].from_template != rendering->runs[i - 1].from_template);
        at = rendering->runs[i].end;
    }
    must(at == rendering->size);
    must(utf8_valid((struct str){ rendering->bytes, rendering->size }));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Small ones, so that the fuzzer spends its time on code and not on loops. */
    struct template_limits limits = template_limits_default;
    limits.steps_cap = 20000;
    limits.string_bytes_cap = limits.output_bytes_cap = 1 << 16;
    limits.memory_bytes_cap = 1 << 22;
    limits.time_ms_cap = 60000; // the same result twice must not depend on the clock
    const struct template_options options = { .limits = &limits, .now_unix_seconds = 1 };
    struct str input = { (const char *)data, size };
    size_t end = str_find_char(input, '\0');
    struct str source = str_slice(input, 0, end == SIZE_MAX ? size : end);
    struct str json = end == SIZE_MAX ? STR_NONE : str_slice(input, end + 1, size);
    struct rendering first = { 0 }, second = { 0 };
    struct err err = { 0 }, again = { 0 };
    struct arena arena;
    struct value context;
    arena_init(&arena, 1 << 22);
    struct template *template = template_compile(source, &err);
    if (template && read_context(&arena, json, &context)) {
        bool ok = template_render(template, &context, &options, &first, &err);
        must(template_render(template, &context, &options, &second, &again) == ok);
        must(ok ? first.size == second.size && memcmp(first.bytes, second.bytes, first.size) == 0
                : strcmp(err.text, again.text) == 0);
        if (ok)
            check(&first);
    }
    must(template || err.code != ERR_NONE);
    rendering_release(&first);
    rendering_release(&second);
    template_free(template);
    arena_release(&arena);
    return 0;
}
