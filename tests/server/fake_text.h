/* Bytes as tokens, and a template that writes a mark (id 256) before each message. */
#ifndef CASCADIA_TESTS_SERVER_FAKE_TEXT_H
#define CASCADIA_TESTS_SERVER_FAKE_TEXT_H
#include "base/buf.h"
#include "base/memory.h"
#include "text/chat.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
bool tokenizer_encode(const struct tokenizer *tokenizer, const struct tokenizer_segment *segments,
                      size_t n_segments, const struct tokenizer_encode_options *options,
                      struct token_list *out, struct err *err)
{
    (void)tokenizer;
    (void)options;
    (void)err;
    for (size_t i = 0; i < n_segments; i++) {
        if (segments[i].allow_control)
            token_list_add(out, 256);
        for (size_t j = 0; !segments[i].allow_control && j < segments[i].text.size; j++)
            token_list_add(out, (unsigned char)segments[i].text.data[j]);
    }
    return true;
}
struct str tokenizer_token_bytes(const struct tokenizer *tokenizer, uint32_t id)
{
    static char bytes[256];
    (void)tokenizer;
    bytes[id & 255] = (char)id;
    return (struct str){ .data = &bytes[id & 255], .size = id < 256 };
}
void token_list_init(struct token_list *list, size_t cap)
{
    *list = (struct token_list){ .n_ids_cap = cap };
}
void token_list_release(struct token_list *list)
{
    free(list->ids);
    list->ids = NULL;
}
bool token_list_add(struct token_list *list, uint32_t id)
{
    list->ids = xrealloc(list->ids, (list->n_ids + 1) * sizeof *list->ids);
    list->ids[list->n_ids++] = id;
    return true;
}
void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool skip,
                      const uint32_t *c, size_t n)
{
    (void)d;
    (void)t;
    (void)skip;
    (void)c;
    (void)n;
}
void detokenizer_push(struct detokenizer *d, uint32_t id, struct buf *out)
{
    (void)d;
    buf_add_char(out, (char)id);
}
void detokenizer_finish(struct detokenizer *d, struct buf *out)
{
    (void)d;
    (void)out;
}
bool chat_render(const struct chat *chat, const struct chat_request *request,
                 struct chat_prompt *out, struct err *err)
{
    struct buf all;
    size_t n = 0;
    (void)chat;
    buf_init(&all, 1 << 20);
    *out = (struct chat_prompt){ .segments = xcalloc(200, sizeof *out->segments) };
    size_t ends[200];
    for (size_t i = 0; i < json_size(request->messages) && n < 198; i++) {
        const struct json *content = json_get(json_at(request->messages, i), "content");
        if (str_is(json_text(content), "raise")) {
            chat_prompt_release(out);
            *out = (struct chat_prompt){ 0 };
            buf_release(&all);
            return err_set(err, ERR_ARGUMENT, "the template says no");
        }
        buf_add_char(&all, '|');
        out->segments[n].from_template = true;
        ends[n++] = all.size;
        buf_add_str(&all, json_text(content));
        for (size_t j = 0; j < json_size(content); j++)
            buf_add_str(&all, json_text(json_get(json_at(content, j), "text")));
        ends[n++] = all.size;
    }
    out->size = all.size;
    out->bytes = buf_take(&all);
    for (size_t i = 0; i < n; i++) {
        const size_t first = i ? ends[i - 1] : 0;
        out->segments[i].text = (struct str){ out->bytes + first, ends[i] - first };
    }
    out->n_segments = n;
    return true;
}
void chat_prompt_release(struct chat_prompt *prompt)
{
    free(prompt->bytes);
    free(prompt->segments);
}
#endif
