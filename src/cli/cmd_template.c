/* template: renders a chat template with variables from a file, to see what a model is told. */
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/command.h"
#include "text/template.h"

#include <stdio.h>

#define CONTEXT_BYTES_CAP ((size_t)64 << 20)

static struct template_command_options {
    const char *context;
    bool origins;
    uint64_t now;
} options;

static const struct option_row rows[] = {
    OPTION_TEXT(struct template_command_options, context, "context", "FILE",
                "a JSON object: messages, tools, add_generation_prompt, bos_token, ..."),
    OPTION_BOOL(struct template_command_options, origins, "origins",
                "prints [[from_template, text], ...] instead: what may be a control token"),
    OPTION_U64(struct template_command_options, now, "now", "SECONDS", 0, 253402300799,
               "what strftime_now shows, since 1970; 0: the clock"),
    OPTION_END
};

static size_t template_tables(struct option_table *tables, size_t cap)
{
    if (cap == 0)
        return 0;
    tables[0] = (struct option_table){ .rows = rows, .target = &options };
    return 1;
}

static void print_origins(const struct rendering *rendering)
{
    struct buf out;
    size_t at = 0;
    buf_init(&out, SIZE_MAX / 2);
    buf_add_text(&out, "[");
    for (size_t i = 0; i < rendering->n_runs; i++) {
        struct str text = { rendering->bytes + at, rendering->runs[i].end - at };
        buf_printf(&out, "%s[%s, ", i ? ", " : "",
                   rendering->runs[i].from_template ? "true" : "false");
        json_write_string(&out, text);
        buf_add_text(&out, "]");
        at = rendering->runs[i].end;
    }
    buf_add_text(&out, "]\n");
    fwrite(out.data, 1, out.size, stdout);
    buf_release(&out);
}

static bool read_context(struct arena *arena, struct value *out, struct err *err)
{
    if (!options.context)
        return value_dict_new(arena, out);
    struct json *json = json_parse_file(options.context, CONTEXT_BYTES_CAP, err);
    if (!json)
        return false;
    bool ok = value_from_json(arena, json, false, out, err);
    json_free(json);
    if (ok && out->type != VALUE_DICT)
        return err_set(err, ERR_ARGUMENT, "%s: the context must be a JSON object", options.context);
    return ok;
}

static bool render(const char *path, struct err *err)
{
    struct buf source;
    struct arena arena;
    struct value context;
    struct rendering rendering = { 0 };
    struct template *template = NULL;
    struct template_options how = { .now_unix_seconds = (int64_t)options.now };
    if (options.now == 0)
        how.now_unix_seconds = clock_unix_seconds();
    buf_init(&source, TEMPLATE_SOURCE_BYTES_CAP + 1);
    arena_init(&arena, CONTEXT_BYTES_CAP * 8);
    bool ok = file_read(path, &source, err) && read_context(&arena, &context, err) &&
              (template = template_compile(buf_view(&source), err)) != NULL &&
              template_render(template, &context, &how, &rendering, err);
    if (ok && options.origins)
        print_origins(&rendering);
    else if (ok)
        fwrite(rendering.bytes, 1, rendering.size, stdout);
    if (ok && fflush(stdout) != 0)
        ok = err_set_errno(err, "cannot write the rendering");
    rendering_release(&rendering);
    template_free(template);
    arena_release(&arena);
    buf_release(&source);
    return ok;
}

static int template_run(const struct command *command, int argc, char **argv)
{
    const char *words[1];
    size_t n_words;
    struct err err;
    if (!command_parse(command, argc, argv, words, 1, 1, &n_words))
        return 2;
    if (render(words[0], &err))
        return 0;
    command_failed(command, &err);
    return 1; // an error of the template is no error of usage
}

const struct command command_template = {
    .name = "template",
    .usage = "FILE.jinja [--context FILE] [--origins] [--now SECONDS]",
    .summary = "render a chat template, or show its error",
    .help = "Prints exactly what the template renders, without a newline of its own. When the\n"
            "template raises, the status is 1 and standard error has its message.\n"
            "\n"
            "  cascadia template chat_template.jinja --context conversation.json\n",
    .run = template_run,
    .options = template_tables,
};
