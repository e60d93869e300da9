/* Three cases, cheapest first: one valid segment is used where it is; segments that agree are
 * joined; others are joined with marks. Repair comes after joining and in place of the whole: it is
 * for input that should not occur. */
#include "text/gather.h"

#include <string.h>

#include "text/utf8_repair.h"

void gathered_release(struct gathered *gathered)
{
    buf_release(&gathered->text);
    buf_release(&gathered->marks);
}

static void add_marks(struct buf *marks, int mark, size_t size)
{
    char *to = buf_reserve(marks, size);
    if (!to)
        return;
    memset(to, mark, size);
    marks->size += size;
}

/* The text with bad parts replaced, and its marks, if it has any. */
static void repair(struct gathered *gathered, struct marked_text in)
{
    struct gathered fixed;
    buf_init(&fixed.text, 3 * TOKENIZER_TEXT_BYTES_CAP);
    buf_init(&fixed.marks, 3 * TOKENIZER_TEXT_BYTES_CAP);
    for (size_t at = 0; at < in.text.size;) {
        const struct str rest = str_slice(in.text, at, in.text.size);
        const size_t good = utf8_valid_prefix(rest);
        buf_add(&fixed.text, rest.data, good);
        if (in.marks)
            buf_add(&fixed.marks, in.marks + at, good);
        at += good;
        if (at == in.text.size)
            break;
        const size_t bad = utf8_bad_part(str_slice(in.text, at, in.text.size));
        buf_add_str(&fixed.text, UTF8_REPLACEMENT);
        if (in.marks)
            add_marks(&fixed.marks, !memchr(in.marks + at, 0, bad), UTF8_REPLACEMENT.size);
        at += bad;
    }
    gathered_release(gathered);
    *gathered = fixed;
}

bool gather_segments(const struct tokenizer_segment *segments, size_t n_segments,
                     struct gathered *gathered, struct marked_text *out, bool *allow_control,
                     struct err *err)
{
    size_t size = 0;
    bool agree = true;
    for (size_t i = 0; i < n_segments; i++) {
        if (segments[i].text.size > TOKENIZER_TEXT_BYTES_CAP - size)
            return err_set(err, ERR_ARGUMENT, "a text of more than %zu bytes",
                           TOKENIZER_TEXT_BYTES_CAP);
        size += segments[i].text.size;
        agree = agree && segments[i].allow_control == segments[0].allow_control;
    }
    *allow_control = n_segments > 0 && agree && segments[0].allow_control;
    *out = (struct marked_text){ .text = STR("") };
    if (n_segments == 1 && segments[0].text.size > 0)
        out->text = segments[0].text;
    if (n_segments > 1) {
        buf_init(&gathered->text, TOKENIZER_TEXT_BYTES_CAP);
        buf_init(&gathered->marks, TOKENIZER_TEXT_BYTES_CAP);
        for (size_t i = 0; i < n_segments; i++) {
            buf_add_str(&gathered->text, segments[i].text);
            if (!agree)
                add_marks(&gathered->marks, segments[i].allow_control, segments[i].text.size);
        }
        out->text = gathered->text.size ? buf_view(&gathered->text) : STR("");
        out->marks = agree ? NULL : (const uint8_t *)gathered->marks.data;
    }
    if (utf8_valid_prefix(out->text) < out->text.size) {
        repair(gathered, *out);
        out->text = buf_view(&gathered->text);
        out->marks = out->marks ? (const uint8_t *)gathered->marks.data : NULL;
    }
    return true;
}
