#include "base/file.h"
#include "base/memory.h"
#include "base/processors.h"
#include "base/team.h"
#include "helpers/cm.h"
#include "helpers/temporary.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A machine made of files. */
static char *root;

static void put(const char *path, const char *text)
{
    struct err err = { 0 };
    char *full = xasprintf("%s%s", root, path);
    char *slash = strrchr(full, '/');
    *slash = '\0';
    assert_true(dir_make(full, &err));
    *slash = '/';
    assert_true(file_write_atomic(full, str_from(text), &err));
    free(full);
}

/* Processors 0 .. n-1, `threads` of them a core, next to each other or n / threads apart. */
static void put_cores(uint32_t n, uint32_t threads, bool apart)
{
    for (uint32_t id = 0; id < n; id++) {
        char path[128], list[64];
        const uint32_t cores = n / threads;
        if (apart)
            snprintf(list, sizeof list, "%u,%u\n", id % cores, id % cores + cores);
        else
            snprintf(list, sizeof list, "%u-%u\n", id / threads * threads,
                     id / threads * threads + threads - 1);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list",
                 id);
        put(path, list);
    }
}

static int setup(void **state)
{
    (void)state;
    root = temporary_dir();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    temporary_remove(root);
    return 0;
}

static struct processors read_with(const char *allowed)
{
    struct processors processors;
    processors_read(&processors, &(struct processors_source){ .root = root, .allowed = allowed });
    return processors;
}

#define ASSERT_ORDER(processors, ...)                                                              \
    do {                                                                                           \
        const uint32_t order[] = { __VA_ARGS__ };                                                  \
        assert_int_equal((processors).n, sizeof order / sizeof order[0]);                          \
        for (uint32_t at = 0; at < (processors).n; at++)                                           \
            assert_int_equal((processors).of[at].id, order[at]);                                   \
    } while (0)

static void test_nothing_known_is_a_plain_machine(void **state)
{
    (void)state;
    struct processors p = read_with("0-3");
    ASSERT_ORDER(p, 0, 1, 2, 3);
    assert_int_equal(p.n_cores, 4);
    assert_int_equal(p.n_nodes, 1);
    assert_int_equal(processors_threads(&p), 4);
    assert_int_equal(processors_hold(&p, 4), 0);
    processors_release(&p);
}

static void test_one_thread_a_core_first(void **state)
{
    (void)state;
    put_cores(8, 2, false);
    struct processors p = read_with("0-7");
    ASSERT_ORDER(p, 0, 2, 4, 6, 1, 3, 5, 7);
    assert_int_equal(processors_threads(&p), 4);
    assert_int_equal(processors_hold(&p, 4), 0);
    processors_release(&p);
    p = read_with("1,3,6-7"); // the halves that the mask allows
    ASSERT_ORDER(p, 1, 3, 6, 7);
    assert_int_equal(processors_threads(&p), 3);
    processors_release(&p);
    put_cores(8, 2, true); // as servers number them
    p = read_with("0-7");
    ASSERT_ORDER(p, 0, 1, 2, 3, 4, 5, 6, 7);
    assert_int_equal(processors_threads(&p), 4);
    processors_release(&p);
}

/* Four performance cores of two threads, then four efficient ones. */
static void put_hybrid_cores(void)
{
    put_cores(8, 2, false);
    for (uint32_t id = 8; id < 12; id++) {
        char path[128], list[16];
        snprintf(list, sizeof list, "%u\n", id);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/core_cpus_list", id);
        put(path, list);
    }
}

static uint32_t leaf_of_hybrid(void *context, uint32_t id)
{
    uint32_t *n_asked = context;
    ++*n_asked;
    return id < 8 ? 0x40000001u : 0x20000001u;
}

static void check_hybrid(struct processors *p)
{
    ASSERT_ORDER(*p, 0, 2, 4, 6, 8, 9, 10, 11, 1, 3, 5, 7);
    assert_int_equal(p->n_cores, 4);
    assert_int_equal(p->n_efficient, 4);
    assert_int_equal(processors_threads(p), 4);
    assert_int_equal(processors_hold(p, 2), 4); // to any of the four
    assert_int_equal(processors_hold(p, 4), 4);
    assert_int_equal(processors_hold(p, 5), 0); // efficient cores join
}

static void test_hybrid_chips_by_sysfs_and_by_leaf(void **state)
{
    (void)state;
    put_hybrid_cores();
    uint32_t n_asked = 0;
    struct processors_source source = {
        .root = root, .allowed = "0-11", .leaf_1a = leaf_of_hybrid, .context = &n_asked
    };
    struct processors p;
    processors_read(&p, &source);
    assert_int_equal(n_asked, 12);
    check_hybrid(&p);
    processors_release(&p);
    put("/sys/devices/cpu_core/cpus", "0-7\n");
    put("/sys/devices/cpu_atom/cpus", "8-11\n");
    processors_read(&p, &source);
    assert_int_equal(n_asked, 12); // the kernel knows
    check_hybrid(&p);
    processors_release(&p);
}

static void test_efficient_cores_alone_are_cores(void **state)
{
    (void)state;
    put_hybrid_cores();
    put("/sys/devices/cpu_core/cpus", "0-7\n");
    put("/sys/devices/cpu_atom/cpus", "8-11\n");
    struct processors p = read_with("8-10");
    ASSERT_ORDER(p, 8, 9, 10);
    assert_int_equal(processors_threads(&p), 3);
    assert_int_equal(processors_hold(&p, 3), 0);
    processors_release(&p);
}

static void check_quota(double quota, uint32_t threads)
{
    struct processors p = read_with("0-3");
    assert_true(p.quota == quota);
    assert_int_equal(processors_threads(&p), threads);
    processors_release(&p);
}

static void test_quota_of_version_2(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/machine/pod\n");
    check_quota(0, 4);
    put("/sys/fs/cgroup/machine/pod/cpu.max", "max 100000\n");
    check_quota(0, 4);
    put("/sys/fs/cgroup/machine/cpu.max", "300000 100000\n"); // of the group above
    check_quota(3, 3);
    put("/sys/fs/cgroup/machine/pod/cpu.max", "150000 100000\n");
    check_quota(1.5, 2);
    put("/sys/fs/cgroup/machine/pod/cpu.max", "140000 100000\n");
    check_quota(1.4, 1);
    put("/sys/fs/cgroup/machine/pod/cpu.max", "20000 100000\n");
    check_quota(0.2, 1);
    put("/sys/fs/cgroup/machine/pod/cpu.max", "900000 100000\n");
    check_quota(3, 3);
    put("/sys/fs/cgroup/machine/cpu.max", "nonsense\n");
    check_quota(9, 4);
}

static void test_quota_of_version_1(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "3:cpuset:/\n2:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    check_quota(0, 4);
    /* In a container the path is the host's, and its own group is what is mounted. */
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n");
    check_quota(2.5, 3);
    put("/proc/self/cgroup", "2:cpu:/docker/abc\n");
    check_quota(0, 4);
    put("/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "50000\n");
    put("/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "50000\n");
    check_quota(1, 1);
}

static void test_memory_nodes(void **state)
{
    (void)state;
    struct buf text;
    put("/sys/devices/system/node/online", "0-1\n");
    put("/sys/devices/system/node/node0/cpulist", "0-1,4-5\n");
    put("/sys/devices/system/node/node1/cpulist", "2-3,6-7\n");
    struct processors p = read_with("0-2");
    assert_int_equal(p.n_nodes, 2);
    assert_int_equal(p.of[1].node, 0);
    assert_int_equal(p.of[2].node, 1);
    buf_init(&text, 512);
    processors_describe(&p, &text);
    assert_string_equal(text.data, "3 processors: 3 cores; 2 memory nodes");
    buf_release(&text);
    processors_release(&p);
    p = read_with("0,1");
    assert_int_equal(p.n_nodes, 1); // of those that may be used
    processors_release(&p);
}

static void test_what_is_said_of_a_hybrid_chip(void **state)
{
    (void)state;
    struct buf text;
    put_hybrid_cores();
    put("/sys/devices/cpu_core/cpus", "0-7\n");
    put("/sys/devices/cpu_atom/cpus", "8-11\n");
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/cpu.max", "350000 100000\n");
    struct processors p = read_with("0-11");
    buf_init(&text, 512);
    processors_describe(&p, &text);
    assert_string_equal(text.data,
                        "12 processors: 4 performance cores, 4 efficient; quota of 3.50");
    buf_release(&text);
    processors_release(&p);
}

/* Files that are no lists say nothing. */
static void test_nonsense_is_nothing(void **state)
{
    (void)state;
    put("/sys/devices/system/cpu/cpu0/topology/core_cpus_list", "many\n");
    put("/sys/devices/system/cpu/cpu1/topology/core_cpus_list", "0-99999999999\n");
    put("/sys/devices/cpu_atom/cpus", "1\n"); // without its sister
    put("/sys/devices/system/node/online", "?\n");
    put("/proc/self/cgroup", "::::\n\nx\n0:\n");
    struct processors p = read_with("0,1");
    assert_int_equal(p.n, 2);
    assert_int_equal(p.n_efficient, 0);
    assert_int_equal(p.n_nodes, 1);
    assert_true(p.quota == 0);
    processors_release(&p);
}

static void say_mask(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    cpu_set_t *masks = context;
    (void)first, (void)last;
    assert_int_equal(sched_getaffinity(0, sizeof masks[thread], &masks[thread]), 0);
}

/* What the mask forbids is not used, and making a team changes nobody's mask. */
static void test_this_machine_within_its_mask(void **state)
{
    struct err err = { 0 };
    cpu_set_t before, one, masks[2], after;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    struct processors p;
    processors_read(&p, &(struct processors_source){ 0 });
    assert_int_equal(p.n, CPU_COUNT(&before));
    for (uint32_t i = 0; i < p.n; i++)
        assert_true(CPU_ISSET(p.of[i].id, &before));
    CPU_ZERO(&one);
    CPU_SET(p.of[p.n - 1].id, &one);
    processors_release(&p);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(processors_threads_here(), 1);
    struct team *team = team_new(2, &err);
    team_each(team, say_mask, masks);
    assert_true(CPU_EQUAL(&masks[0], &one));
    assert_true(CPU_EQUAL(&masks[1], &one));
    team_free(team);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    team = team_new(2, &err);
    team_free(team);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&after, &before));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_nothing_known_is_a_plain_machine),
        TEST(test_one_thread_a_core_first),
        TEST(test_hybrid_chips_by_sysfs_and_by_leaf),
        TEST(test_efficient_cores_alone_are_cores),
        TEST(test_quota_of_version_2),
        TEST(test_quota_of_version_1),
        TEST(test_memory_nodes),
        TEST(test_what_is_said_of_a_hybrid_chip),
        TEST(test_nonsense_is_nothing),
        TEST(test_this_machine_within_its_mask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
