/* POSIX threads. Conditions run on the monotonic clock, so that setting the wall clock wakes
 * nobody. */
#include "base/thread.h"

#include "base/memory.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct start {
    void (*run)(void *context);
    void *context;
    char name[16];
};

static void *enter(void *argument)
{
    struct start start = *(struct start *)argument;
    free(argument);
    pthread_setname_np(pthread_self(), start.name);
    start.run(start.context);
    return NULL;
}

bool thread_start(struct thread *thread, const char *name, void (*run)(void *context),
                  void *context, struct err *err)
{
    struct start *start = xmalloc(sizeof *start);
    *start = (struct start){ .run = run, .context = context };
    snprintf(start->name, sizeof start->name, "%s", name);
    int failure = pthread_create(&thread->handle, NULL, enter, start);
    if (failure) {
        free(start);
        errno = failure;
        return err_set_errno(err, "cannot start thread %s", name);
    }
    thread->running = true;
    return true;
}

void thread_join(struct thread *thread)
{
    if (!thread->running)
        return;
    pthread_join(thread->handle, NULL);
    thread->running = false;
}

void thread_hold(const uint32_t *ids, uint32_t n)
{
    uint32_t highest = 0;
    for (uint32_t i = 0; i < n; i++)
        highest = ids[i] > highest ? ids[i] : highest;
    cpu_set_t *mask = CPU_ALLOC(highest + 1);
    const size_t bytes = CPU_ALLOC_SIZE(highest + 1);
    must(mask != NULL);
    CPU_ZERO_S(bytes, mask);
    for (uint32_t i = 0; i < n; i++)
        CPU_SET_S(ids[i], bytes, mask);
    sched_setaffinity(0, bytes, mask);
    CPU_FREE(mask);
}

void mutex_init(struct mutex *mutex)
{
    must(pthread_mutex_init(&mutex->handle, NULL) == 0);
}

void mutex_release(struct mutex *mutex)
{
    pthread_mutex_destroy(&mutex->handle);
}

void mutex_lock(struct mutex *mutex)
{
    must(pthread_mutex_lock(&mutex->handle) == 0);
}

void mutex_unlock(struct mutex *mutex)
{
    must(pthread_mutex_unlock(&mutex->handle) == 0);
}

void condition_init(struct condition *condition)
{
    pthread_condattr_t attributes;
    must(pthread_condattr_init(&attributes) == 0);
    must(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    must(pthread_cond_init(&condition->handle, &attributes) == 0);
    pthread_condattr_destroy(&attributes);
}

void condition_release(struct condition *condition)
{
    pthread_cond_destroy(&condition->handle);
}

void condition_wait(struct condition *condition, struct mutex *mutex)
{
    pthread_cond_wait(&condition->handle, &mutex->handle);
}

bool condition_wait_for(struct condition *condition, struct mutex *mutex, uint64_t timeout_ms)
{
    struct timespec until;
    if (timeout_ms > 1000000000u) { // beyond a decade is for ever
        condition_wait(condition, mutex);
        return true;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(timeout_ms / 1000);
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    return pthread_cond_timedwait(&condition->handle, &mutex->handle, &until) != ETIMEDOUT;
}

void condition_signal(struct condition *condition)
{
    pthread_cond_signal(&condition->handle);
}

void condition_broadcast(struct condition *condition)
{
    pthread_cond_broadcast(&condition->handle);
}
