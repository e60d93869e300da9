/* What two stages must agree on before a row passes between them (docs/wire.md, Handshake).
 *
 * The one who dials says HELLO, the other answers WELCOME, both with the same struct; both hold it
 * against their own with handshake_check, which is symmetric, so that both say the same sentence.
 *
 * Capacities are passed down the chain narrowed: those of a HELLO are the smallest of all stages up
 * to its sender. The last stage's HELLO to the head therefore has the smallest of the whole chain,
 * and that it arrives proves that every link is there. Plain data, any thread. */
#ifndef CASCADIA_PIPELINE_HANDSHAKE_H
#define CASCADIA_PIPELINE_HANDSHAKE_H

#include "base/err.h"
#include "engine/engine.h"
#include "net/address.h"
#include "pipeline/frame.h"

#include <stdbool.h>
#include <stdint.h>

#define HANDSHAKE_PROGRAM_CAP 32 // with its NUL
#define HANDSHAKE_RANKS_CAP 256u

enum handshake_role {
    HANDSHAKE_NEIGHBOUR = 1, // rank r to rank r + 1
    HANDSHAKE_LAST_TO_HEAD = 2,
    HANDSHAKE_ROLE_COUNT,
};

struct handshake {
    enum handshake_role role;
    char program[HANDSHAKE_PROGRAM_CAP]; // version of the sender's program
    uint32_t rank, total;                // of the sender; stages of the chain
    enum frame_dtype wire;               // how rows travel
    /* Of the sender: layers. Of all stages up to the sender: max_rows, max_sequences, n_pages,
     * ctx_size, rewind, n_checkpoints. Of the model: the rest. */
    struct engine_info info;
    /* HELLO to a neighbour: where the last stage dials; else "". Not definite: rank 1 still has to
     * put the head's machine into it, as it sees it (handshake_find_head). */
    uint32_t head_is_definite;
    char head[ADDRESS_TEXT_CAP];
};

/* The sender's own, with this program's version and f32. */
void handshake_init(struct handshake *handshake, enum handshake_role role, uint32_t rank,
                    uint32_t total, const struct engine_info *info);

/* Appends the payload to a frame that was started as HELLO or WELCOME. */
void handshake_write(struct frame *frame, const struct handshake *handshake);
/* ERR_FORMAT for what no stage could be. */
bool handshake_read(const struct frame *frame, struct handshake *out, struct err *err);

/* A stage that could be: within the limits of the wire, layers in order. ERR_UNSUPPORTED. */
bool handshake_check_info(const struct engine_info *info, struct err *err);
/* ERR_ARGUMENT (ERR_UNSUPPORTED for versions and wire types) with a sentence that names both sides.
 */
bool handshake_check(const struct handshake *dialled, const struct handshake *answered,
                     struct err *err);

/* Narrows the capacities of `chain` to what `stage` also has. */
void handshake_narrow(struct engine_info *chain, const struct engine_info *stage);

/* Adds what the stages before read in a step to what `chain` does. */
void handshake_add_reads(struct engine_info *chain, const struct engine_info *before);

/* Where the last stage finds the head: the port that the head listens at, on the machine that the
 * first neighbour's link came from (`peer`, "" if that is not known). */
void handshake_find_head(const char *listen, const char *peer, char out[ADDRESS_TEXT_CAP]);

#endif
