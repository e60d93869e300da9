/* Compiling and rendering, joined from the parts of the interpreter (jinja_internal.h). */
#include "text/template.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "text/jinja_internal.h"

#define COMPILED_BYTES_CAP ((size_t)128 << 20)

const struct template_limits template_limits_default = {
    .steps_cap = 2000000,
    .steps_a_message = 10000,
    .time_ms_cap = 2000,
    .string_bytes_cap = (size_t)16 << 20,
    .output_bytes_cap = (size_t)16 << 20,
    .memory_bytes_cap = (size_t)64 << 20,
    .depth_cap = 1024,
    .macro_depth_cap = 64,
    .range_cap = 100000,
};

struct template *template_compile(struct str source, struct err *err)
{
    struct jinja_tokens tokens;
    if (source.size > TEMPLATE_SOURCE_BYTES_CAP) {
        err_set(err, ERR_FORMAT, "limit of template source: %zu bytes, more than %zu", source.size,
                TEMPLATE_SOURCE_BYTES_CAP);
        return NULL;
    }
    struct template *template = xcalloc(1, sizeof *template);
    arena_init(&template->arena, COMPILED_BYTES_CAP);
    if (!jinja_lex(&template->arena, source, &tokens, err) ||
        !jinja_parse(template, &tokens, err)) {
        template_free(template);
        return NULL;
    }
    return template;
}

void template_free(struct template *template)
{
    if (!template)
        return;
    arena_release(&template->arena);
    free(template);
}

/* Copies what was rendered out of the arena. */
static void take_rendering(const struct traced_builder *text, struct rendering *out)
{
    const struct traced_store *store = text->store;
    *out =
        (struct rendering){ .size = store ? store->used : 0, .n_runs = store ? store->n_runs : 0 };
    out->bytes = xmalloc(out->size + 1);
    out->bytes[out->size] = '\0';
    out->runs = xcalloc(out->n_runs + 1, sizeof *out->runs);
    if (!store)
        return;
    memcpy(out->bytes, store->bytes, out->size);
    memcpy(out->runs, store->runs, out->n_runs * sizeof *out->runs);
}

/* Some templates look back over all messages for each one. */
static uint64_t steps_cap(const struct template_limits *limits, const struct value *context)
{
    const struct value *messages = value_dict_get(context, STR("messages"));
    bool is_list = messages && messages->type == VALUE_LIST;
    return limits->steps_cap + (is_list ? messages->list->size * limits->steps_a_message : 0);
}

bool template_render(const struct template *template, const struct value *context,
                     const struct template_options *options, struct rendering *out, struct err *err)
{
    const struct template_limits *limits =
        options->limits ? options->limits : &template_limits_default;
    struct jinja_eval eval = { .template = template,
                               .limits = limits,
                               .steps_cap = steps_cap(limits, context),
                               .context = context,
                               .err = err,
                               .now_unix_seconds = options->now_unix_seconds,
                               .deadline_ms = clock_ms() + limits->time_ms_cap };
    struct traced_builder text;
    eval.output = &text;
    arena_init(&eval.arena, limits->memory_bytes_cap);
    traced_begin(&text, &eval.arena, limits->output_bytes_cap);
    struct jinja_scope *scope = jinja_scope_new(&eval, NULL);
    bool ok = scope && jinja_execute(&eval, scope, &template->body, &text) != FLOW_FAILED;
    if (ok)
        take_rendering(&text, out);
    arena_release(&eval.arena);
    return ok;
}

void rendering_release(struct rendering *rendering)
{
    free(rendering->bytes);
    free(rendering->runs);
    *rendering = (struct rendering){ 0 };
}
