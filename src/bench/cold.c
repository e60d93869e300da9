/* Bit 14 of every 16 is zero: as f16, bf16 or the upper half of f32 that is a number below 2. */
#include "bench/cold.h"

#include <string.h>

#include "base/memory.h"

#define PIECE_ALIGN 4096u
#define FILL_BYTES ((size_t)1 << 20) // of one item of the filling loop

static void fill(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    uint8_t *const data = context;
    (void)thread;
    for (uint32_t item = first; item < last; item++) {
        uint64_t state = item + 1;
        for (size_t at = 0; at < FILL_BYTES; at += sizeof(state)) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            const uint64_t word = (state ^ state >> 33) & 0xbfffbfffbfffbfffu;
            memcpy(data + item * FILL_BYTES + at, &word, sizeof(word));
        }
    }
}

bool cold_init(struct cold *cold, struct team *team, size_t cache_bytes, struct err *err)
{
    const size_t available = memory_available_bytes() / 2;
    size_t bytes = 2 * cache_bytes > COLD_BYTES_MIN ? 2 * cache_bytes : COLD_BYTES_MIN;
    bytes = bytes < available ? bytes : available;
    bytes = bytes / FILL_BYTES * FILL_BYTES;
    if (bytes == 0)
        return err_set(err, ERR_NO_MEMORY, "no memory to measure in");
    uint8_t *const data = memory_pages(bytes, err);
    if (!data)
        return false;
    team_for(team, (uint32_t)(bytes / FILL_BYTES), 1, fill, data);
    *cold = (struct cold){ .data = data, .bytes = bytes };
    return true;
}

void cold_release(struct cold *cold)
{
    if (cold->data)
        memory_pages_free(cold->data, cold->bytes);
    *cold = (struct cold){ 0 };
}

const uint8_t *cold_next(struct cold *cold, size_t bytes)
{
    must(bytes <= cold->bytes / 2);
    if (cold->at + bytes > cold->bytes)
        cold->at = 0;
    const uint8_t *const piece = cold->data + cold->at;
    cold->at += size_round_up(bytes, PIECE_ALIGN);
    return piece;
}
