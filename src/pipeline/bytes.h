/* Little-endian numbers in wire bytes, without alignment. Any thread. */
#ifndef CASCADIA_PIPELINE_BYTES_H
#define CASCADIA_PIPELINE_BYTES_H

#include "base/buf.h"

#include <stdint.h>
#include <string.h>

/* Rows of floats are copied as they lie in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire and the machine agree");

static inline void bytes_put_u16(void *to, uint16_t value)
{
    memcpy(to, &value, sizeof value);
}

static inline void bytes_put_u32(void *to, uint32_t value)
{
    memcpy(to, &value, sizeof value);
}

static inline void bytes_put_u64(void *to, uint64_t value)
{
    memcpy(to, &value, sizeof value);
}

static inline uint16_t bytes_get_u16(const void *from)
{
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline uint32_t bytes_get_u32(const void *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline uint64_t bytes_get_u64(const void *from)
{
    uint64_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline float bytes_get_f32(const void *from)
{
    float value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline void bytes_add_u32(struct buf *out, uint32_t value)
{
    buf_add(out, &value, sizeof value);
}

static inline void bytes_add_u64(struct buf *out, uint64_t value)
{
    buf_add(out, &value, sizeof value);
}

static inline void bytes_add_f32(struct buf *out, float value)
{
    buf_add(out, &value, sizeof value);
}

#endif
