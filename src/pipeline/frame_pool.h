/* Frames that are used again, so that a running chain allocates none. Any thread. */
#ifndef CASCADIA_PIPELINE_FRAME_POOL_H
#define CASCADIA_PIPELINE_FRAME_POOL_H

#include "pipeline/frame.h"

struct frame_pool;

struct frame_pool *frame_pool_new(void);
void frame_pool_free(struct frame_pool *pool); // frames that were taken are not its any more

struct frame *frame_pool_take(struct frame_pool *pool);             // caller owns; never NULL
void frame_pool_give(struct frame_pool *pool, struct frame *frame); // pool owns; NULL is fine

#endif
