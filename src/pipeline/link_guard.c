/* The order matters: who waits asks first whether the end has come, under the same lock that the
 * end is declared with, so an end is never missed between the two. */
#include "pipeline/link_guard.h"

void link_guard_init(struct link_guard *guard)
{
    *guard = (struct link_guard){ 0 };
    mutex_init(&guard->mutex);
}

void link_guard_release(struct link_guard *guard)
{
    mutex_release(&guard->mutex);
}

bool link_guard_hold(struct link_guard *guard, struct link *link)
{
    mutex_lock(&guard->mutex);
    bool ended = guard->ended;
    guard->link = ended ? NULL : link;
    mutex_unlock(&guard->mutex);
    return !ended;
}

void link_guard_let_go(struct link_guard *guard)
{
    mutex_lock(&guard->mutex);
    guard->link = NULL;
    mutex_unlock(&guard->mutex);
}

void link_guard_cut(struct link_guard *guard)
{
    mutex_lock(&guard->mutex);
    if (guard->link)
        link_cut(guard->link);
    mutex_unlock(&guard->mutex);
}

void link_guard_end(struct link_guard *guard)
{
    mutex_lock(&guard->mutex);
    guard->ended = true;
    if (guard->link)
        link_cut(guard->link);
    mutex_unlock(&guard->mutex);
}

bool link_guard_ended(struct link_guard *guard)
{
    mutex_lock(&guard->mutex);
    bool ended = guard->ended;
    mutex_unlock(&guard->mutex);
    return ended;
}
