/* A relay between two stages that does to frames what networks and broken programs do.
 *
 * It listens for the one side, dials the other for each connection, and passes frames on whole
 * until a fault is armed: then the next frame of that kind in that direction is treated so, once.
 * It is aware of frames only by their 64-byte header, and recomputes nothing. */
#ifndef CASCADIA_TESTS_HELPERS_FORWARDER_H
#define CASCADIA_TESTS_HELPERS_FORWARDER_H

#include "pipeline/frame.h"

#include <stdbool.h>
#include <stdint.h>

enum forwarder_fault {
    FORWARDER_CUT,             // closes both sides instead of passing the frame on
    FORWARDER_TRUNCATE,        // passes half of it on, then closes
    FORWARDER_STALL,           // passes half of it on, then nothing more, and does not close
    FORWARDER_CORRUPT_HEADER,  // flips a bit
    FORWARDER_CORRUPT_PAYLOAD, // flips a bit; of the header when there is no payload
    FORWARDER_SWALLOW,         // the frame is gone, all else goes on
    FORWARDER_REPEAT,          // passes it on twice
    FORWARDER_REORDER,         // passes the next frame on before it
    FORWARDER_DELAY,           // passes it on FORWARDER_DELAY_MS later
    FORWARDER_FAULT_COUNT,
};
#define FORWARDER_DELAY_MS 300

struct forwarder;

/* `listen` may have port 0. Aborts the test when it cannot be. */
struct forwarder *forwarder_open(const char *listen, const char *target);
void forwarder_close(struct forwarder *forwarder);
const char *forwarder_address(const struct forwarder *forwarder);

/* Arms one fault. `backward`: for frames from the target to the one who dialled. */
void forwarder_arm(struct forwarder *forwarder, enum forwarder_fault fault, enum frame_kind kind,
                   bool backward);
uint32_t forwarder_struck(struct forwarder *forwarder); // faults that have happened

#endif
