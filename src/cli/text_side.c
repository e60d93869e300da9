/* A model without a template is served all the same, for text completions; one whose template does
 * not compile is not, since that is a fault that somebody can mend.
 *
 * Templates print bos_token and eos_token. A shard keeps no tokenizer_config.json; the texts of the
 * ids say the same: what the tokenizer begins a text with, and the eos_token_id of config.json. */
#include "cli/text_side.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "shard/tokenizer_source.h"
#include "text/chat.h"
#include "text/template.h"
#include "text/tokenizer.h"
#include "text/tokenizer_mock.h"

#define CONFIG_BYTES_CAP ((size_t)16 << 20)

static const char mock_template[] =
    "{% for message in messages %}{{ '<|' + message.role + '|>' + message.content + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";

/* The parsed file of that name, or NULL and no error if there is none. */
static bool read_config(const char *model, const char *name, struct json **out, struct err *err)
{
    char *const path = path_join(model, name);

    *out = NULL;
    if (file_exists(path))
        *out = json_parse_file(path, CONFIG_BYTES_CAP, err);
    const bool good = *out != NULL || !file_exists(path);
    free(path);
    return good;
}

static void read_default(const struct json *config, const char *name, float low, float high,
                         float *out)
{
    const double value = json_number(json_get(config, name), *out);

    if (value >= (double)low && value <= (double)high)
        *out = (float)value;
    else
        log_warn("generation_config.json: %s is out of range and ignored", name);
}

static bool read_defaults(struct sampling_params *defaults, const char *model, struct err *err)
{
    struct json *config = NULL;

    sampling_params_init(defaults);
    defaults->temperature = 1;
    if (model == NULL)
        return true;
    if (!read_config(model, "generation_config.json", &config, err))
        return false;
    read_default(config, "temperature", 0, 2, &defaults->temperature);
    read_default(config, "top_p", 0, 1, &defaults->top_p);
    read_default(config, "min_p", 0, 1, &defaults->min_p);
    read_default(config, "repetition_penalty", 0.01f, 10, &defaults->repetition_penalty);
    json_read_u32(json_get(config, "top_k"), &defaults->top_k);
    json_free(config);
    return true;
}

/* The text of config.json's eos_token_id, or of the first of a list. */
static bool find_eos(const struct text_side *side, const char *model, struct str *out,
                     struct err *err)
{
    struct json *config = NULL;
    uint32_t id;

    if (model != NULL && !read_config(model, "config.json", &config, err))
        return false;
    const struct json *ids = json_get(config, "eos_token_id");
    if (json_kind(ids) == JSON_KIND_ARRAY)
        ids = json_at(ids, 0);
    if (json_read_u32(ids, &id))
        *out = tokenizer_token_bytes(side->tokenizer, id);
    json_free(config);
    return true;
}

/* What to compile: the file or name that was asked for, else the model's own. Empty: none. */
static bool read_template(const char *model, const char *asked, struct buf *out, struct err *err)
{
    const char *names = NULL;

    if (asked == NULL && model == NULL) {
        buf_add_text(out, mock_template);
        return true;
    }
    if (asked == NULL) {
        char *const path = path_join(model, "chat_template.jinja");
        const bool good = !file_exists(path) || file_read(path, out, err);
        free(path);
        return good;
    }
    if (file_exists(asked))
        return file_read(asked, out, err);
    const char *const builtin = chat_template_builtin(asked, &names);
    if (builtin == NULL)
        return err_set(err, ERR_NOT_FOUND,
                       "--chat-template %s is neither a file nor one of the built-in ones: %s",
                       asked, names);
    buf_add_text(out, builtin);
    return true;
}

static bool open_chat(struct text_side *side, const char *model, const char *asked, struct err *err)
{
    struct chat_token tokens[2] = { { .name = "bos_token" }, { .name = "eos_token" } };
    struct buf template;
    uint32_t bos;

    buf_init(&template, TEMPLATE_SOURCE_BYTES_CAP);
    bool good =
        read_template(model, asked, &template, err) && find_eos(side, model, &tokens[1].text, err);
    if (good && template.size > 0) {
        if (tokenizer_bos(side->tokenizer, &bos))
            tokens[0].text = tokenizer_token_bytes(side->tokenizer, bos);
        side->chat = chat_open(&(struct chat_options){ .template_text = buf_view(&template),
                                                       .tokens = tokens,
                                                       .n_tokens = 2 },
                               err);
        good = side->chat != NULL || err_wrap(err, "chat template");
    } else if (good) {
        log_warn("the model has no chat template: only /v1/completions will work");
    }
    buf_release(&template);
    return good;
}

bool text_side_open(struct text_side *side, const char *model, const char *chat_template,
                    struct err *err)
{
    *side = (struct text_side){ 0 };
    side->tokenizer = model == NULL ? tokenizer_load_mock() : tokenizer_source_load(model, err);
    if (side->tokenizer == NULL || !read_defaults(&side->defaults, model, err) ||
        !open_chat(side, model, chat_template, err)) {
        text_side_close(side);
        return false;
    }
    return true;
}

void text_side_close(struct text_side *side)
{
    chat_close(side->chat);
    tokenizer_free(side->tokenizer);
    *side = (struct text_side){ 0 };
}
