/* A greeting's payload: any bytes give an error, or a stage that could be. */
#include "pipeline/handshake.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct handshake handshake;
    struct frame frame;
    struct err err;
    char head[ADDRESS_TEXT_CAP];
    frame_init(&frame);
    frame_start(&frame, FRAME_HELLO, 1);
    buf_add(&frame.payload, data, size < FRAME_GREETING_CAP ? size : FRAME_GREETING_CAP);
    if (handshake_read(&frame, &handshake, &err)) {
        if (!handshake_check_info(&handshake.info, &err)) // what is read must be sendable
            abort();
        handshake_find_head(handshake.head, handshake.program, head);
        handshake_check(&handshake, &handshake, &err);
    }
    frame_release(&frame);
    return 0;
}
