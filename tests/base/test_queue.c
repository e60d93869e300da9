#include "base/clock.h"
#include "base/queue.h"
#include "base/thread.h"
#include "helpers/cm.h"

#include <stdatomic.h>

static void test_order_bound_and_close(void **state)
{
    struct queue *queue = queue_new(sizeof(int), 3);
    int item = 0;
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_true(queue_push(queue, &i));
    assert_false(queue_push(queue, &item));
    assert_true(queue_pop(queue, &item) && item == 0);
    item = 3;
    assert_true(queue_push(queue, &item));  // wraps
    assert_false(queue_push(queue, &item)); // full again
    queue_close(queue);
    assert_false(queue_push(queue, &item));
    for (int i = 1; i <= 3; i++)
        assert_true(queue_pop_wait(queue, &item, UINT64_MAX) && item == i);
    assert_false(queue_pop_wait(queue, &item, UINT64_MAX));
    assert_true(queue_closed(queue));
    queue_free(queue);
}

static void test_waits_no_longer_than_asked(void **state)
{
    struct queue *queue = queue_new(1, 1);
    char item;
    uint64_t start = clock_ms();
    (void)state;
    assert_false(queue_pop_wait(queue, &item, 20));
    assert_true(clock_ms() - start >= 19);
    queue_free(queue);
}

#define PER_SENDER 2000

struct traffic {
    struct queue *queue;
    _Atomic uint64_t sum;
};

static void send_all(void *context)
{
    struct traffic *traffic = context;
    for (uint32_t i = 1; i <= PER_SENDER; i++)
        queue_push_wait(traffic->queue, &i, UINT64_MAX);
}

static void receive_all(void *context)
{
    struct traffic *traffic = context;
    uint32_t item;
    while (queue_pop_wait(traffic->queue, &item, UINT64_MAX))
        atomic_fetch_add(&traffic->sum, item);
}

static void test_many_threads_lose_nothing(void **state)
{
    struct traffic traffic = { .queue = queue_new(sizeof(uint32_t), 8) };
    struct thread senders[3] = { 0 }, receivers[2] = { 0 };
    struct err err = { 0 };
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_true(thread_start(&senders[i], "send", send_all, &traffic, &err));
    for (int i = 0; i < 2; i++)
        assert_true(thread_start(&receivers[i], "receive", receive_all, &traffic, &err));
    for (int i = 0; i < 3; i++)
        thread_join(&senders[i]);
    queue_close(traffic.queue);
    for (int i = 0; i < 2; i++)
        thread_join(&receivers[i]);
    assert_int_equal(traffic.sum, 3ull * PER_SENDER * (PER_SENDER + 1) / 2);
    queue_free(traffic.queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_bound_and_close),
        cmocka_unit_test(test_waits_no_longer_than_asked),
        cmocka_unit_test(test_many_threads_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
