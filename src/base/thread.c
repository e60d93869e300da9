/* POSIX threads. Conditions run on the monotonic clock, so that setting the wall clock wakes
 * nobody. */
#include "base/thread.h"

#include "base/memory.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

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

/* Whole processors that the control group's quota allows, or UINT32_MAX. */
static uint32_t quota_processors(void)
{
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    unsigned long long quota, period;
    if (!file)
        return UINT32_MAX;
    bool limited = fscanf(file, "%llu %llu", &quota, &period) == 2 && period > 0;
    fclose(file);
    if (!limited)
        return UINT32_MAX;
    return quota < period ? 1 : (uint32_t)(quota / period);
}

uint32_t thread_processors(void)
{
    cpu_set_t set;
    uint32_t allowed = 1, quota = quota_processors();
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        allowed = (uint32_t)CPU_COUNT(&set);
    else if (sysconf(_SC_NPROCESSORS_ONLN) > 0)
        allowed = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    return allowed < quota ? allowed : quota;
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
