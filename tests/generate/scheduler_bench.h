/* A scheduler over the fake pipeline, and clients that read from it. */
#ifndef CASCADIA_TESTS_SCHEDULER_BENCH_H
#define CASCADIA_TESTS_SCHEDULER_BENCH_H

#include "base/buf.h"
#include "base/thread.h"
#include "generate/scheduler.h"
#include "generate/scheduler_fake.h"

struct bench {
    struct pipeline *fake;
    struct scheduler *scheduler;
    struct tokenizer *tokenizer; // the mock's
    struct mutex mutex;
    struct condition woken;
    uint64_t n_wakes;
};

/* wishes: may be NULL; the fields that the bench itself needs are set. */
struct bench *bench_open(const struct engine_info *info, const struct scheduler_options *wishes,
                         bool ready);
void bench_close(struct bench *bench);

/* Waits until a condition of the scheduler holds. */
void bench_wait(struct bench *bench, bool (*holds)(const struct scheduler *scheduler));

/* The prompt's bytes are its ids; options NULL: greedy, seed 0. Fails the test when refused. */
struct request *bench_submit(struct bench *bench, const char *prompt,
                             const struct request_options *options);

struct client {
    struct request *request;
    struct buf text;
    struct request_event end;
    uint32_t n_ends;
};

void client_init(struct client *client, struct request *request); // takes the request
void client_start(struct client *client, struct bench *bench, const char *prompt,
                  uint32_t max_tokens);
bool client_take(struct client *client); // what is there; true once the end has come
void client_wait(struct bench *bench, struct client *client); // for the end
void client_leave(struct client *client);                     // at any time
void client_finish(struct client *client);                    // after the end, the only one

/* Done, with the first n_tokens that the fake's model says to the prompt, worked out anew. */
void client_check_done(const struct client *client, const char *prompt, uint64_t seed,
                       uint32_t n_tokens);
char *client_expected_text(const char *prompt, uint64_t seed, uint32_t n_tokens); // caller frees

#endif
