/* The kernel team: a list of loops with one barrier each, one journey of a cache line long.
 *
 * A forward pass of a small model is some two hundred loops of ten microseconds. A futex or a
 * condition variable for each would cost more than the work (20 us a round trip); a fork and a join
 * are two journeys of a cache line between cores, which on a large server are 0.15 us each. All
 * threads therefore know the whole list, and each says in a line of its own what it has done: who
 * reads in those lines that all chunks of an op are done goes on by itself. Nobody is told.
 *
 *     front    a thread's run: op number << 24 | chunks taken of it. An older number says that
 *              nobody has taken one in this op yet, so nobody has to reset it
 *     done     what a thread did: op number << 24 | chunks that it has finished in it, of whatever
 *              run. Written first when its own run is empty: then there is nothing to take from it.
 *              A number beyond an op says that the op is over
 *
 * The list is copied into slots of the team. Everything that threads race for carries the number of
 * the op that it is about, and numbers never come back (40 bits: months of ops). A thread that was
 * off its core for a while may hold an old slot in its hand, and finds out in time: a slot is read
 * as under a seqlock, and a chunk is claimed by exchanging a word that names its op. A claim that
 * succeeds proves that its op is not done, which is why no thread ever has to be waited for: only
 * chunks have.
 *
 * Sleeping. After the spin a thread that waits for others in the middle of a list gives its core
 * away some times, for one of them may have been put off it by another program; then it sleeps on
 * the `bell`; who sees the end of an op while some sleep rings it. A thread's `done` and its look
 * at `sleepers` are a store and a load, which the processor may swap, and a fence would add a
 * journey to each op. So a sleeper in the middle of a list looks again after SLEEP_NS, and only the
 * start of a list, which idle workers may have slept before for ever, pays for a fence. */
#include "base/team.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/processors.h"
#include "base/thread.h"

#include <immintrin.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPIN_NS 50000u    // before sleeping
#define SLEEP_NS 1000000u // in the middle of a list
#define YIELDS 8u         // between the two: whoever is waited for may want this very core
#define POLLS 64u         // without a pause between them: most waits are shorter
#define PAUSES 16u        // between looks at the clock
#define SLOTS 256u        // a power of two; longer lists are cut
#define COUNT_BITS 24u
#define FLUSH_DENORMALS 0x8040u // FTZ and DAZ in MXCSR

/* An op, readable by a thread that is late. */
struct slot {
    _Alignas(64) _Atomic uint64_t number; // 0 while it is written
    _Atomic(team_body *) body;
    _Atomic(team_prepare *) prepare;
    _Atomic(void *) context;
    _Atomic uint32_t n_items, chunk, n_chunks;
    _Atomic bool each; // chunk i is for thread i alone
};

/* A copy of a slot that is known to be whole. */
struct op {
    uint64_t number;
    team_body *body;
    team_prepare *prepare;
    void *context;
    uint32_t n_items, chunk, n_chunks;
    bool each;
};

/* Two lines: the owner's claims must not be disturbed by those who look at what it has done. */
struct line {
    _Alignas(64) _Atomic uint64_t front;
    _Alignas(64) _Atomic uint64_t done;
};

struct worker {
    struct team *team;
    struct thread thread;
    uint32_t index;
};

struct team {
    uint32_t n_threads;
    struct worker *workers; // [n_threads], 0 unused
    struct line *lines;     // [n_threads]
    struct slot *slots;     // [SLOTS]
    uint32_t *held;         // [n_held] processors that workers are held to; none: to no other
    uint32_t n_held;
    /* Written by the caller between lists. */
    _Alignas(64) _Atomic uint64_t first, end; // numbers of the list at hand
    _Atomic(const atomic_bool *) stop;
    _Alignas(64) _Atomic uint32_t bell; // a futex
    _Atomic uint32_t sleepers;
    _Atomic bool stopping;
};

static uint64_t number_of(uint64_t word)
{
    return word >> COUNT_BITS;
}

static uint32_t count_of(uint64_t word)
{
    return (uint32_t)word & TEAM_CHUNKS_CAP;
}

/* ---- sleeping ---- */

static void ring(struct team *team)
{
    atomic_fetch_add(&team->bell, 1);
    syscall(SYS_futex, &team->bell, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* One sleep, if the bell has not rung since `heard`. */
static void sleep_once(struct team *team, uint32_t heard, const struct timespec *longest)
{
    syscall(SYS_futex, &team->bell, FUTEX_WAIT_PRIVATE, heard, longest, NULL, 0);
}

/* A spin that is bounded in time; false when it is over. */
struct spin {
    uint32_t polls;
    uint64_t start_ns;
};

static bool spin_once(struct spin *spin)
{
    if (++spin->polls <= POLLS)
        return true;
    _mm_pause();
    if (spin->polls % PAUSES)
        return true;
    const uint64_t now = clock_ns();
    if (spin->start_ns == 0)
        spin->start_ns = now;
    return now - spin->start_ns < SPIN_NS;
}

/* ---- slots ---- */

static void write_slot(struct team *team, uint64_t number, const struct team_op *from, bool each)
{
    struct slot *slot = &team->slots[number % SLOTS];
    must(from->chunk > 0);
    const uint32_t n_chunks = from->n_items / from->chunk + (from->n_items % from->chunk != 0);
    must(n_chunks <= TEAM_CHUNKS_CAP);
    /* Who reads one of the fields also sees the 0. */
    atomic_store_explicit(&slot->number, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->body, from->body, memory_order_release);
    atomic_store_explicit(&slot->prepare, from->prepare, memory_order_release);
    atomic_store_explicit(&slot->context, from->context, memory_order_release);
    atomic_store_explicit(&slot->n_items, from->n_items, memory_order_release);
    atomic_store_explicit(&slot->chunk, from->chunk, memory_order_release);
    atomic_store_explicit(&slot->n_chunks, n_chunks, memory_order_release);
    atomic_store_explicit(&slot->each, each, memory_order_release);
    atomic_store_explicit(&slot->number, number, memory_order_release);
}

/* False when the slot holds another op than `number` by now. */
static bool read_slot(struct team *team, uint64_t number, struct op *op)
{
    struct slot *slot = &team->slots[number % SLOTS];
    if (atomic_load_explicit(&slot->number, memory_order_acquire) != number)
        return false;
    *op = (struct op){
        .number = number,
        .body = atomic_load_explicit(&slot->body, memory_order_acquire),
        .prepare = atomic_load_explicit(&slot->prepare, memory_order_acquire),
        .context = atomic_load_explicit(&slot->context, memory_order_acquire),
        .n_items = atomic_load_explicit(&slot->n_items, memory_order_acquire),
        .chunk = atomic_load_explicit(&slot->chunk, memory_order_acquire),
        .n_chunks = atomic_load_explicit(&slot->n_chunks, memory_order_acquire),
        .each = atomic_load_explicit(&slot->each, memory_order_acquire),
    };
    return atomic_load_explicit(&slot->number, memory_order_relaxed) == number;
}

/* ---- one op ---- */

/* What a thread knows of the op that it is at. */
struct part {
    struct team *team;
    const struct op *op;
    uint32_t thread;
    uint32_t n_done; // chunks that it has finished
};

/* The first chunk of a thread's run; thread 0 has the one of a single chunk. */
static uint32_t run_begin(const struct part *part, uint32_t thread)
{
    const uint32_t n_threads = part->team->n_threads;
    return (uint32_t)(((uint64_t)part->op->n_chunks * thread + n_threads - 1) / n_threads);
}

/* Takes a chunk of `owner`'s run. False: none is left, or the op is over. */
static bool claim(const struct part *part, uint32_t owner, uint32_t *at)
{
    _Atomic uint64_t *front = &part->team->lines[owner].front;
    const uint64_t number = part->op->number;
    const uint32_t begin = run_begin(part, owner), end = run_begin(part, owner + 1);
    uint64_t old = atomic_load_explicit(front, memory_order_relaxed);
    for (;;) {
        const uint32_t next = number_of(old) == number ? count_of(old) : begin;
        if (number_of(old) > number || next >= end)
            return false;
        if (atomic_compare_exchange_weak_explicit(front, &old, number << COUNT_BITS | (next + 1),
                                                  memory_order_acquire, memory_order_relaxed)) {
            *at = next;
            return true;
        }
    }
}

static void run_chunk(struct part *part, uint32_t at)
{
    const struct op *op = part->op;
    const atomic_bool *stop = atomic_load_explicit(&part->team->stop, memory_order_relaxed);
    const uint32_t first = at * op->chunk, left = op->n_items - first;
    if (stop == NULL || !atomic_load_explicit(stop, memory_order_relaxed)) {
        if (part->n_done == 0 && op->prepare != NULL)
            op->prepare(op->context, part->thread);
        op->body(op->context, first, first + (left < op->chunk ? left : op->chunk), part->thread);
    }
    part->n_done++;
}

/* Takes what is left of `owner`'s run, and says so. */
static void drain(struct part *part, uint32_t owner)
{
    uint32_t at;
    const uint32_t before = part->n_done;
    while (claim(part, owner, &at))
        run_chunk(part, at);
    if (owner == part->thread || part->n_done != before)
        atomic_store_explicit(&part->team->lines[part->thread].done,
                              part->op->number << COUNT_BITS | part->n_done, memory_order_release);
}

/* Looks at what the others have done. Gives the number of the op that is next, or 0 when this one
 * is not over. */
static uint64_t look(const struct part *part)
{
    const uint64_t number = part->op->number;
    uint32_t n_done = part->n_done;
    uint64_t latest = number;
    for (uint32_t i = 1, other = part->thread; i < part->team->n_threads; i++) {
        other = other + 1 < part->team->n_threads ? other + 1 : 0;
        const uint64_t done =
            atomic_load_explicit(&part->team->lines[other].done, memory_order_acquire);
        if (number_of(done) > latest)
            latest = number_of(done);
        else if (number_of(done) == number)
            n_done += count_of(done);
    }
    if (latest > number)
        return latest;
    return n_done == part->op->n_chunks ? number + 1 : 0;
}

/* Takes what the others have not begun; behind it nothing of the op is left to take. */
static void help(struct part *part)
{
    const uint32_t n_threads = part->team->n_threads;
    for (uint32_t i = 1, other = part->thread; i < n_threads && !part->op->each; i++) {
        other = other + 1 < n_threads ? other + 1 : 0;
        const uint64_t done =
            atomic_load_explicit(&part->team->lines[other].done, memory_order_relaxed);
        if (number_of(done) < part->op->number)
            drain(part, other);
    }
}

static uint64_t wait_asleep(const struct part *part)
{
    const struct timespec longest = { .tv_nsec = SLEEP_NS };
    uint64_t next;
    for (uint32_t i = 0; i < YIELDS; i++) {
        sched_yield();
        next = look(part);
        if (next != 0)
            return next;
    }
    atomic_fetch_add(&part->team->sleepers, 1);
    for (;;) {
        const uint32_t heard = atomic_load(&part->team->bell);
        next = look(part);
        if (next != 0)
            break;
        sleep_once(part->team, heard, &longest);
    }
    atomic_fetch_sub(&part->team->sleepers, 1);
    return next;
}

/* Takes part in an op until it is over; gives the number of the next. The others are left alone for
 * a moment: mostly they are as good as done, and a look at their fronts would slow them down. */
static uint64_t take_part(struct team *team, const struct op *op, uint32_t thread)
{
    struct part part = { team, op, thread, 0 };
    struct spin spin = { 0 };
    uint64_t next = 0;
    __builtin_prefetch(&team->slots[(op->number + 2) % SLOTS]);
    drain(&part, thread);
    while ((next = look(&part)) == 0 && spin_once(&spin)) {
        if (spin.polls == POLLS)
            help(&part);
    }
    if (next == 0)
        next = wait_asleep(&part);
    if (atomic_load_explicit(&team->sleepers, memory_order_relaxed))
        ring(team);
    return next;
}

/* ---- workers ---- */

/* Waits until the list goes beyond `number`; false when the team ends. */
static bool await_list(struct team *team, uint64_t number)
{
    struct spin spin = { 0 };
    do {
        if (atomic_load_explicit(&team->end, memory_order_acquire) > number)
            return true;
    } while (spin_once(&spin));
    bool more, stopping;
    atomic_fetch_add(&team->sleepers, 1);
    for (;;) {
        const uint32_t heard = atomic_load(&team->bell);
        more = atomic_load(&team->end) > number;
        stopping = atomic_load(&team->stopping);
        if (more || stopping)
            break;
        sleep_once(team, heard, NULL);
    }
    atomic_fetch_sub(&team->sleepers, 1);
    return more;
}

static void work(void *context)
{
    struct worker *worker = context;
    struct team *team = worker->team;
    uint64_t number = 1;
    if (team->n_held > 0)
        thread_hold(team->held, team->n_held);
    _mm_setcsr(_mm_getcsr() | FLUSH_DENORMALS);
    while (await_list(team, number)) {
        struct op op;
        /* A slot that holds another op is one of a list that begins later. */
        if (read_slot(team, number, &op))
            number = take_part(team, &op, worker->index);
        else
            number = atomic_load_explicit(&team->first, memory_order_acquire);
    }
}

/* ---- lists ---- */

/* At most SLOTS ops. */
static void run_some(struct team *team, const struct team_op *ops, uint32_t n_ops, bool each,
                     uint64_t *ended_ns)
{
    const uint64_t first = atomic_load_explicit(&team->end, memory_order_relaxed);
    const uint64_t end = first + n_ops;
    for (uint32_t i = 0; i < n_ops; i++)
        write_slot(team, first + i, &ops[i], each);
    atomic_store_explicit(&team->first, first, memory_order_release);
    atomic_store(&team->end, end);
    if (atomic_load(&team->sleepers))
        ring(team);
    for (uint64_t number = first; number < end;) {
        struct op op;
        must(read_slot(team, number, &op));
        const uint64_t next = take_part(team, &op, 0);
        for (const uint64_t now = ended_ns != NULL ? clock_ns() : 0; number < next; number++) {
            if (ended_ns != NULL)
                ended_ns[number - first] = now;
        }
    }
}

static void run(struct team *team, const struct team_op *ops, uint32_t n_ops,
                const struct team_watch *watch, bool each)
{
    const uint32_t mode = _mm_getcsr();
    uint64_t *ended_ns = watch != NULL ? watch->ended_ns : NULL;
    _mm_setcsr(mode | FLUSH_DENORMALS);
    atomic_store_explicit(&team->stop, watch != NULL ? watch->stop : NULL, memory_order_relaxed);
    for (uint32_t at = 0; at < n_ops; at += SLOTS) {
        run_some(team, ops + at, n_ops - at < SLOTS ? n_ops - at : SLOTS, each,
                 ended_ns != NULL ? ended_ns + at : NULL);
    }
    _mm_setcsr(mode);
}

void team_run(struct team *team, const struct team_op *ops, uint32_t n_ops,
              const struct team_watch *watch)
{
    run(team, ops, n_ops, watch, false);
}

void team_for(struct team *team, uint32_t n_items, uint32_t chunk, team_body *body, void *context)
{
    const struct team_op op = {
        .body = body, .context = context, .n_items = n_items, .chunk = chunk
    };
    run(team, &op, 1, NULL, false);
}

void team_each(struct team *team, team_body *body, void *context)
{
    const struct team_op op = {
        .body = body, .context = context, .n_items = team->n_threads, .chunk = 1
    };
    run(team, &op, 1, NULL, true);
}

static void choose_processors(struct team *team, uint32_t n_threads)
{
    struct processors processors;
    processors_read(&processors, &(struct processors_source){ 0 });
    const uint32_t usual = processors_threads(&processors);
    team->n_threads = n_threads ? n_threads : usual < TEAM_THREADS_CAP ? usual : TEAM_THREADS_CAP;
    team->n_held = processors_hold(&processors, team->n_threads);
    team->held = xcalloc(team->n_held + 1, sizeof *team->held);
    for (uint32_t i = 0; i < team->n_held; i++)
        team->held[i] = processors.of[i].id;
    processors_release(&processors);
}

struct team *team_new(uint32_t n_threads, struct err *err)
{
    if (n_threads > TEAM_THREADS_CAP) {
        err_set(err, ERR_ARGUMENT, "%u threads: at most %u", n_threads, TEAM_THREADS_CAP);
        return NULL;
    }
    struct team *team = xaligned(sizeof *team);
    choose_processors(team, n_threads);
    n_threads = team->n_threads;
    team->workers = xcalloc(n_threads, sizeof *team->workers);
    team->lines = xaligned(n_threads * sizeof *team->lines);
    team->slots = xaligned(SLOTS * sizeof *team->slots);
    atomic_store(&team->first, 1); // 0 is no op
    atomic_store(&team->end, 1);
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
    atomic_store(&team->stopping, true);
    ring(team);
    for (uint32_t i = 1; i < team->n_threads; i++)
        thread_join(&team->workers[i].thread);
    free(team->workers);
    free(team->held);
    free(team->lines);
    free(team->slots);
    free(team);
}

uint32_t team_threads(const struct team *team)
{
    return team->n_threads;
}
