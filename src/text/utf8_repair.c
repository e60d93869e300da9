/* A bad part is the longest run that begins as a character does (Unicode 16, table 3-7), or one
 * byte that begins none. Runs of ASCII are taken eight bytes at a time. */
#include "text/utf8_repair.h"

#include <stdint.h>
#include <string.h>

size_t utf8_bad_part(struct str bytes)
{
    const uint8_t *p = (const uint8_t *)bytes.data;
    const uint8_t lead = p[0];
    if (lead < 0xc2 || lead > 0xf4 || bytes.size < 2)
        return 1;
    const uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < low || p[1] > high)
        return 1;
    const size_t whole = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    size_t size = 2;
    while (size < whole && size < bytes.size && (p[size] & 0xc0) == 0x80)
        size++;
    return size;
}

size_t utf8_valid_prefix(struct str bytes)
{
    size_t at = 0;
    while (at < bytes.size) {
        uint64_t eight;
        if (bytes.size - at >= sizeof eight) {
            memcpy(&eight, bytes.data + at, sizeof eight);
            if (!(eight & 0x8080808080808080u)) {
                at += sizeof eight;
                continue;
            }
        }
        uint32_t code_point;
        const size_t size = utf8_decode(str_slice(bytes, at, bytes.size), &code_point);
        if (size == 0)
            break;
        at += size;
    }
    return at;
}

void utf8_repair(struct str bytes, struct buf *out)
{
    while (bytes.size > 0) {
        const size_t good = utf8_valid_prefix(bytes);
        buf_add(out, bytes.data, good);
        bytes = str_slice(bytes, good, bytes.size);
        if (bytes.size == 0)
            break;
        buf_add_str(out, UTF8_REPLACEMENT);
        bytes = str_slice(bytes, utf8_bad_part(bytes), bytes.size);
    }
}
