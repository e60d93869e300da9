/* A growing byte buffer, born with its ceiling.
 *
 * Writers never fail one by one: past the ceiling the buffer stops growing and remembers it, and
 * buf_ok says so once at the end. `data` is always NUL-terminated behind `size`. One owner. */
#ifndef CASCADIA_BASE_BUF_H
#define CASCADIA_BASE_BUF_H

#include "base/str.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *data;      // never NULL after the first write; NUL behind size
    size_t size;     // bytes
    size_t room;     // bytes allocated
    size_t size_cap; // the ceiling
    bool overflowed; // something did not fit
};

void buf_init(struct buf *buf, size_t size_cap);
void buf_release(struct buf *buf);  // zeroed and NULL values are fine
void buf_clear(struct buf *buf);    // size 0, overflow forgotten, memory kept
bool buf_ok(const struct buf *buf); // nothing was dropped
void buf_add(struct buf *buf, const void *bytes, size_t size);
void buf_add_str(struct buf *buf, struct str s);
void buf_add_text(struct buf *buf, const char *text);
void buf_add_char(struct buf *buf, char c);
void buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *buf, const char *format, va_list arguments);
void buf_drop_front(struct buf *buf, size_t size); // forgets the first bytes
void *buf_reserve(struct buf *buf, size_t size);   // room for size more; NULL past the ceiling
struct str buf_view(const struct buf *buf);        // valid until the next write
char *buf_take(struct buf *buf);                   // caller frees; the buffer is empty again

#endif
