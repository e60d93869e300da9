/* Rules made runnable: a deterministic automaton over bytes with calls.
 *
 * A state reads a byte and becomes another, or calls: the callee's start state goes on with a frame
 * of its own, and the caller's return state waits on a stack. A frame may end where a state
 * accepts; whoever runs the automaton then goes on from the return state below. Small rules and
 * calls at the end of a rule are not calls but parts of the automaton, so most texts need few
 * frames.
 *
 * A long repetition is a loop: a frame with a counter. Its head state is also its start; to arrive
 * at the head again is one repetition more. From the head the body may begin while the count is
 * below max, and the frame may end from min on.
 *
 * A frame does not end before it has read a byte: that a rule may be empty is known to its caller.
 * Every state can reach the end of its frame. Immutable: any thread. */
#ifndef CASCADIA_SAMPLE_AUTOMATON_H
#define CASCADIA_SAMPLE_AUTOMATON_H

#include "base/err.h"
#include "sample/grammar_rules.h"

#include <stdbool.h>
#include <stdint.h>

#define AUTOMATON_STATES_CAP (1u << 16)
#define AUTOMATON_CELLS_CAP (1u << 23) // states times byte classes
#define AUTOMATON_NODES_CAP (1u << 20) // before it is made deterministic
#define AUTOMATON_MEMBERS_CAP (1u << 24)
#define AUTOMATON_CALL_DEPTH_CAP 32u // frames that begin at one byte
#define AUTOMATON_DEAD 0u            // the state that nothing leads out of
#define AUTOMATON_NO_LOOP UINT32_MAX

enum automaton_flag {
    AUTOMATON_ACCEPTS = 1 << 0, // the frame may end here (a head: from min on)
    AUTOMATON_CALLS = 1 << 1,   // has calls
    AUTOMATON_HEAD = 1 << 2,    // head of its loop
};

/* A set of byte classes. */
struct automaton_set {
    uint64_t words[4];
};

static inline bool automaton_set_has(const struct automaton_set *set, uint32_t class)
{
    return set->words[class >> 6] >> (class & 63) & 1;
}

struct automaton_call {
    uint32_t callee;            // start state of the new frame
    uint32_t returns;           // state that the caller goes on from
    struct automaton_set first; // classes that the new frame can begin with
};

struct automaton_state {
    uint32_t first_call, n_calls;
    uint32_t loop;               // AUTOMATON_NO_LOOP, or the loop whose frame it belongs to
    uint32_t left_bytes;         // fewest bytes to the end of the frame, about
    struct automaton_set follow; // accepting states: classes that can come behind the frame
};

struct automaton_loop {
    uint32_t head;     // state
    uint32_t min, max; // GRAMMAR_NO_MAX: none
};

struct automaton {
    uint32_t start;
    bool accepts_empty; // the empty text is one of the grammar's
    uint32_t n_states, n_classes, n_calls, n_loops;
    uint8_t class_of[256];
    uint32_t *next; // [n_states][n_classes]
    uint8_t *flags; // [n_states] of enum automaton_flag
    struct automaton_state *states;
    struct automaton_call *calls;
    struct automaton_loop *loops;
};

/* ERR_UNSUPPORTED when a ceiling is reached, or what grammar_rules_check says. On failure the
 * automaton is zeroed. */
bool automaton_build(struct automaton *automaton, const struct grammar_rules *rules,
                     struct err *err);
void automaton_release(struct automaton *automaton); // zeroed values are fine

#endif
