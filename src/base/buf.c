/* A growing buffer with a ceiling. Growth doubles; past the ceiling nothing is written and the fact
 * is kept, so that a long run of writers is checked once. */
#include "base/buf.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>

void buf_init(struct buf *buf, size_t size_cap)
{
    *buf = (struct buf){ .size_cap = size_cap };
}

void buf_release(struct buf *buf)
{
    if (!buf)
        return;
    free(buf->data);
    *buf = (struct buf){ .size_cap = buf->size_cap };
}

void buf_clear(struct buf *buf)
{
    buf->size = 0;
    buf->overflowed = false;
    if (buf->data)
        buf->data[0] = '\0';
}

bool buf_ok(const struct buf *buf)
{
    return !buf->overflowed;
}

void *buf_reserve(struct buf *buf, size_t size)
{
    if (size > buf->size_cap - buf->size) {
        buf->overflowed = true;
        return NULL;
    }
    size_t need = buf->size + size + 1;
    if (need > buf->room) {
        size_t room = buf->room ? buf->room * 2 : 64;
        buf->room = room < need ? need : room;
        buf->data = xrealloc(buf->data, buf->room);
        buf->data[buf->size] = '\0';
    }
    return buf->data + buf->size;
}

void buf_add(struct buf *buf, const void *bytes, size_t size)
{
    char *to = buf_reserve(buf, size);
    if (!to)
        return;
    if (size)
        memcpy(to, bytes, size);
    buf->size += size;
    buf->data[buf->size] = '\0';
}

void buf_add_str(struct buf *buf, struct str s)
{
    buf_add(buf, s.data, s.size);
}

void buf_add_text(struct buf *buf, const char *text)
{
    buf_add(buf, text, strlen(text));
}

void buf_add_char(struct buf *buf, char c)
{
    buf_add(buf, &c, 1);
}

void buf_vprintf(struct buf *buf, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int size = vsnprintf(NULL, 0, format, again);
    va_end(again);
    must(size >= 0);
    char *to = buf_reserve(buf, (size_t)size);
    if (!to)
        return;
    vsnprintf(to, (size_t)size + 1, format, arguments);
    buf->size += (size_t)size;
}

void buf_printf(struct buf *buf, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    buf_vprintf(buf, format, arguments);
    va_end(arguments);
}

void buf_drop_front(struct buf *buf, size_t size)
{
    must(size <= buf->size);
    if (size == 0)
        return;
    memmove(buf->data, buf->data + size, buf->size - size + 1);
    buf->size -= size;
}

struct str buf_view(const struct buf *buf)
{
    return (struct str){ .data = buf->data ? buf->data : "", .size = buf->size };
}

char *buf_take(struct buf *buf)
{
    char *data = buf->data ? buf->data : xstrdup("");
    *buf = (struct buf){ .size_cap = buf->size_cap };
    return data;
}
