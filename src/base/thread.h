/* Threads, a mutex and a condition, under one roof so that another system is one file. */
#ifndef CASCADIA_BASE_THREAD_H
#define CASCADIA_BASE_THREAD_H

#include "base/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct thread {
    pthread_t handle;
    bool running;
};

/* `name` (at most 15 bytes) shows in debuggers. ERR_SYSTEM when there is no thread to be had. */
bool thread_start(struct thread *thread, const char *name, void (*run)(void *context),
                  void *context, struct err *err);
void thread_join(struct thread *thread); // zeroed and joined values are fine

/* Holds the calling thread, and those that it starts later, to n of the processors `ids`. A system
 * that refuses leaves it where it was. */
void thread_hold(const uint32_t *ids, uint32_t n);

struct mutex {
    pthread_mutex_t handle;
};
void mutex_init(struct mutex *mutex);
void mutex_release(struct mutex *mutex);
void mutex_lock(struct mutex *mutex);
void mutex_unlock(struct mutex *mutex);

struct condition {
    pthread_cond_t handle; // on the monotonic clock
};
void condition_init(struct condition *condition);
void condition_release(struct condition *condition);
void condition_wait(struct condition *condition, struct mutex *mutex);
/* False when the time is over. `timeout_ms` UINT64_MAX: for ever. */
bool condition_wait_for(struct condition *condition, struct mutex *mutex, uint64_t timeout_ms);
void condition_signal(struct condition *condition);
void condition_broadcast(struct condition *condition);

#endif
