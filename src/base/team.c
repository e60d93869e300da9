/* The kernel team: fork-join over a loop in a tenth of a microsecond.
 *
 * A forward pass of a small model is some two hundred loops of ten microseconds. A futex or a
 * condition variable for each would cost more than the work (20 us a round trip), an unbounded spin
 * collapses when another process wants the core. So workers spin on one word for some tens of
 * microseconds, then sleep on it.
 *
 * A loop is cut into one contiguous range a thread: streams stay sequential, which memory likes.
 * Chunks are taken from the front of the own range; who is done takes from the fullest other, so a
 * preempted or slower core costs its chunk and not its range. A worker that is still asleep when
 * the loop ends is not waited for: it has to pass the gate to touch a loop, and the caller closes
 * the gate behind the last chunk. The gate is one 64-bit word: generation, open bit, threads
 * inside. */
#include "base/team.h"

#include "base/memory.h"
#include "base/thread.h"

#include <immintrin.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPINS 1500u // pauses before sleeping: 50 to 100 us
#define GATE_OPEN (UINT64_C(1) << 31)
#define GATE_INSIDE (GATE_OPEN - 1)
#define FLUSH_DENORMALS 0x8040u // FTZ and DAZ in MXCSR

struct range {
    _Alignas(64) _Atomic uint32_t next;
    uint32_t end;
};

struct worker {
    struct team *team;
    struct thread thread;
    uint32_t index;
};

struct team {
    uint32_t n_threads;
    uint32_t generation_count;
    struct worker *workers; // [n_threads], 0 unused
    struct range *ranges;   // [n_threads]
    /* The loop at hand: written by the caller while the gate is shut. */
    team_body *body;
    void *context;
    uint32_t chunk;
    bool each; // every thread takes part, once
    _Alignas(64) _Atomic uint64_t gate;
    _Alignas(64) _Atomic uint32_t signal; // bumped a loop: workers spin and sleep on it
    _Atomic uint32_t sleepers;
    _Alignas(64) _Atomic uint32_t finished; // of an `each`
    _Atomic bool stopping;
};

static void futex_sleep(_Atomic uint32_t *word, uint32_t expected)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static uint32_t range_left(struct range *range)
{
    uint32_t next = atomic_load_explicit(&range->next, memory_order_relaxed);
    return next < range->end ? range->end - next : 0;
}

/* Works on a range until it is empty. The check before the claim keeps `next` from running far past
 * the end, where it could wrap. */
static void drain(struct team *team, struct range *range, uint32_t thread)
{
    while (range_left(range)) {
        uint32_t first = atomic_fetch_add_explicit(&range->next, team->chunk, memory_order_relaxed);
        if (first >= range->end)
            return;
        uint32_t left = range->end - first;
        team->body(team->context, first, first + (left < team->chunk ? left : team->chunk), thread);
    }
}

static struct range *fullest(struct team *team)
{
    struct range *best = NULL;
    uint32_t most = 0;
    for (uint32_t i = 0; i < team->n_threads; i++) {
        uint32_t left = range_left(&team->ranges[i]);
        if (left > most) {
            most = left;
            best = &team->ranges[i];
        }
    }
    return best;
}

static void take_part(struct team *team, uint32_t thread)
{
    if (team->each) {
        team->body(team->context, thread, thread + 1, thread);
        atomic_fetch_add_explicit(&team->finished, 1, memory_order_release);
        return;
    }
    drain(team, &team->ranges[thread], thread);
    for (struct range *other; (other = fullest(team));)
        drain(team, other, thread);
}

/* Passes the gate if it is open. */
static bool enter(struct team *team)
{
    uint64_t gate = atomic_load_explicit(&team->gate, memory_order_acquire);
    while (gate & GATE_OPEN) {
        if (atomic_compare_exchange_weak_explicit(&team->gate, &gate, gate + 1,
                                                  memory_order_acquire, memory_order_acquire))
            return true;
    }
    return false;
}

/* Waits until the signal differs from `seen`. */
static uint32_t await_signal(struct team *team, uint32_t seen)
{
    for (uint32_t spin = 0; spin < SPINS; spin++) {
        uint32_t now = atomic_load_explicit(&team->signal, memory_order_acquire);
        if (now != seen)
            return now;
        _mm_pause();
    }
    atomic_fetch_add(&team->sleepers, 1);
    while (atomic_load(&team->signal) == seen)
        futex_sleep(&team->signal, seen);
    atomic_fetch_sub(&team->sleepers, 1);
    return atomic_load_explicit(&team->signal, memory_order_acquire);
}

static void work(void *context)
{
    struct worker *worker = context;
    struct team *team = worker->team;
    uint32_t seen = 0;
    _mm_setcsr(_mm_getcsr() | FLUSH_DENORMALS);
    while (!atomic_load_explicit(&team->stopping, memory_order_acquire)) {
        seen = await_signal(team, seen);
        if (!enter(team))
            continue;
        take_part(team, worker->index);
        atomic_fetch_sub_explicit(&team->gate, 1, memory_order_release);
    }
}

/* Waits, on the caller, with a bounded spin and then by giving the core away. */
static void relax(uint32_t *spins)
{
    if (++*spins < SPINS)
        _mm_pause();
    else
        usleep(10);
}

static void open_gate(struct team *team)
{
    team->generation_count++;
    atomic_store_explicit(&team->gate, (uint64_t)team->generation_count << 32 | GATE_OPEN,
                          memory_order_release);
    atomic_fetch_add(&team->signal, 1);
    if (atomic_load(&team->sleepers))
        futex_wake_all(&team->signal);
}

static void shut_gate(struct team *team)
{
    uint32_t spins = 0;
    atomic_fetch_and_explicit(&team->gate, ~GATE_OPEN, memory_order_acq_rel);
    while (atomic_load_explicit(&team->gate, memory_order_acquire) & GATE_INSIDE)
        relax(&spins);
}

static void run(struct team *team, team_body *body, void *context)
{
    uint32_t mode = _mm_getcsr();
    uint32_t spins = 0;
    _mm_setcsr(mode | FLUSH_DENORMALS);
    team->body = body;
    team->context = context;
    if (team->n_threads > 1)
        open_gate(team);
    take_part(team, 0);
    while (team->each &&
           atomic_load_explicit(&team->finished, memory_order_acquire) < team->n_threads)
        relax(&spins);
    if (team->n_threads > 1)
        shut_gate(team);
    _mm_setcsr(mode);
}

void team_for(struct team *team, uint32_t n_items, uint32_t chunk, team_body *body, void *context)
{
    must(chunk > 0 && n_items <= UINT32_MAX / 2);
    uint32_t n_chunks = n_items / chunk + (n_items % chunk != 0);
    if (n_chunks <= 1) { // nothing to share: the others are not called
        uint32_t mode = _mm_getcsr();
        _mm_setcsr(mode | FLUSH_DENORMALS);
        if (n_items > 0)
            body(context, 0, n_items, 0);
        _mm_setcsr(mode);
        return;
    }
    for (uint32_t i = 0, first = 0; i < team->n_threads; i++) {
        uint32_t last = (uint32_t)((uint64_t)n_chunks * (i + 1) / team->n_threads) * chunk;
        last = last < n_items ? last : n_items;
        atomic_store_explicit(&team->ranges[i].next, first, memory_order_relaxed);
        team->ranges[i].end = last;
        first = last;
    }
    team->chunk = chunk;
    team->each = false;
    run(team, body, context);
}

void team_each(struct team *team, team_body *body, void *context)
{
    team->each = true;
    atomic_store_explicit(&team->finished, 0, memory_order_relaxed);
    run(team, body, context);
}

struct team *team_new(uint32_t n_threads, struct err *err)
{
    n_threads = n_threads ? n_threads : thread_processors();
    if (n_threads > TEAM_THREADS_CAP) {
        err_set(err, ERR_ARGUMENT, "%u threads: at most %u", n_threads, TEAM_THREADS_CAP);
        return NULL;
    }
    struct team *team = xaligned(sizeof *team);
    team->n_threads = n_threads;
    team->workers = xcalloc(n_threads, sizeof *team->workers);
    team->ranges = xaligned(n_threads * sizeof *team->ranges);
    for (uint32_t i = 1; i < n_threads; i++) {
        char name[16];
        snprintf(name, sizeof name, "team-%u", i);
        team->workers[i] = (struct worker){ .team = team, .index = i };
        if (!thread_start(&team->workers[i].thread, name, work, &team->workers[i], err)) {
            team_free(team);
            return NULL;
        }
    }
    return team;
}

void team_free(struct team *team)
{
    if (!team)
        return;
    atomic_store_explicit(&team->stopping, true, memory_order_release);
    atomic_fetch_add(&team->signal, 1);
    futex_wake_all(&team->signal);
    for (uint32_t i = 1; i < team->n_threads; i++)
        thread_join(&team->workers[i].thread);
    free(team->workers);
    free(team->ranges);
    free(team);
}

uint32_t team_threads(const struct team *team)
{
    return team->n_threads;
}
