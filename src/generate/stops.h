/* Looks for stop texts in an answer that arrives byte by byte.
 *
 * A match is found on its last byte, wherever token borders fall. Of several texts that end on one
 * byte the longest counts; one that ends earlier wins over one that began earlier. One owner. */
#ifndef CASCADIA_GENERATE_STOPS_H
#define CASCADIA_GENERATE_STOPS_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STOPS_CAP 16
#define STOP_BYTES_CAP 1024

struct stops {
    uint32_t n_stops;
    struct stop {
        uint8_t *text;      // [size]
        uint16_t *fallback; // [size] longest proper prefix that ends text[0 .. i]; the first owns
                            // the memory
        uint32_t size;
        uint32_t n_matched; // bytes at the end of the answer that begin this stop
    } stops[STOPS_CAP];
};

/* Copies the texts. ERR_ARGUMENT: too many, or one that is empty, too long or not UTF-8. */
bool stops_init(struct stops *stops, const struct str *texts, uint32_t n_texts, struct err *err);
void stops_release(struct stops *stops); // zeroed values are fine

/* Goes on with one byte of the answer. Returns the size of the stop text that ends with it, or 0.
 */
uint32_t stops_push(struct stops *stops, uint8_t byte);

/* Bytes at the end of the answer that may turn out to be the beginning of a stop text. */
uint32_t stops_held(const struct stops *stops);

#endif
