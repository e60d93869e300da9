/* Reading sysfs, procfs and CPUID. Files are small lists and numbers; a file that is not there or
 * says something else says nothing. Everything is read below a root, so that a directory of files
 * can stand for a machine.
 *
 * Which cores of a hybrid chip are efficient: the kernel says it by the two performance monitoring
 * units it makes of them (devices/cpu_core and cpu_atom); where it does not, as in many virtual
 * machines, CPUID leaf 0x1A says it of the processor that executes it. */
#include "base/processors.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/str.h"

#include <cpuid.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_BYTES_CAP 8192u
#define CORE_TYPE_ATOM 0x20u  // bits 31 to 24 of leaf 0x1A's EAX
#define HYBRID_BIT (1u << 15) // of leaf 7's EDX

/* ---- small files ---- */

/* The text of root/path, trimmed; false when there is none. */
static bool read_text(const char *root, const char *path, char text[TEXT_BYTES_CAP])
{
    char *full = xasprintf("%s%s", root, path);
    FILE *file = fopen(full, "re");
    free(full);
    if (file == NULL)
        return false;
    size_t size = fread(text, 1, TEXT_BYTES_CAP - 1, file);
    fclose(file);
    while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == ' '))
        size--;
    text[size] = '\0';
    return true;
}

/* "0-3,8" as a set; ids from PROCESSORS_CAP on are left out. False when it is no such list. */
static bool parse_list(const char *text, bool set[PROCESSORS_CAP])
{
    struct str rest = str_from(text), part;
    memset(set, 0, PROCESSORS_CAP * sizeof(*set));
    while (str_split(&rest, ',', &part)) {
        const size_t dash = str_find_char(part, '-');
        const struct str first = dash == SIZE_MAX ? part : str_slice(part, 0, dash);
        const struct str last = dash == SIZE_MAX ? part : str_slice(part, dash + 1, part.size);
        uint64_t from, to;
        if (!str_to_u64(first, &from) || !str_to_u64(last, &to))
            return false;
        for (uint64_t id = from; id <= to && id < PROCESSORS_CAP; id++)
            set[id] = true;
    }
    return true;
}

static bool read_list(const char *root, const char *path, bool set[PROCESSORS_CAP])
{
    char text[TEXT_BYTES_CAP];
    return read_text(root, path, text) && parse_list(text, set);
}

static uint32_t lowest(const bool set[PROCESSORS_CAP], uint32_t otherwise)
{
    for (uint32_t id = 0; id < PROCESSORS_CAP; id++) {
        if (set[id])
            return id;
    }
    return otherwise;
}

/* ---- the mask ---- */

static void ask_mask(bool set[PROCESSORS_CAP])
{
    cpu_set_t *mask = CPU_ALLOC(PROCESSORS_CAP);
    const size_t bytes = CPU_ALLOC_SIZE(PROCESSORS_CAP);
    memset(set, 0, PROCESSORS_CAP * sizeof(*set));
    must(mask != NULL);
    if (sched_getaffinity(0, bytes, mask) == 0) {
        for (uint32_t id = 0; id < PROCESSORS_CAP; id++)
            set[id] = CPU_ISSET_S(id, bytes, mask);
    } else { // a machine with still more of them
        const long online = sysconf(_SC_NPROCESSORS_ONLN);
        for (uint32_t id = 0; id < PROCESSORS_CAP && id < online; id++)
            set[id] = true;
    }
    CPU_FREE(mask);
}

/* ---- control groups ---- */

/* Takes the lower one; 0 is none. */
static double lower(double a, double b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* The text of a group's file. */
static bool read_group(const char *root, const char *group, const char *name,
                       char text[TEXT_BYTES_CAP])
{
    char *path = path_join(group, name);
    const bool is_there = read_text(root, path, text);
    free(path);
    return is_there;
}

static double quota_v2(const char *root, const char *group)
{
    char text[TEXT_BYTES_CAP];
    double limit, period;
    if (!read_group(root, group, "cpu.max", text) ||
        sscanf(text, "%lf %lf", &limit, &period) != 2 || !(limit > 0) || !(period > 0))
        return 0; // "max 100000" among others
    return limit / period;
}

static double quota_v1(const char *root, const char *group)
{
    char text[TEXT_BYTES_CAP];
    double limit, period;
    if (!read_group(root, group, "cpu.cfs_quota_us", text) || sscanf(text, "%lf", &limit) != 1 ||
        !(limit > 0))
        return 0; // -1: none
    if (!read_group(root, group, "cpu.cfs_period_us", text) || sscanf(text, "%lf", &period) != 1 ||
        !(period > 0))
        return 0;
    return limit / period;
}

/* The lowest quota of a group and those above it. In a container its path may be that of another
 * name space; the root of what is mounted is its own then. */
static double quota_of(const char *root, const char *mount, struct str group,
                       double (*quota)(const char *root, const char *group))
{
    double least = 0;
    for (;;) {
        char *path = xasprintf("%s%.*s", mount, STR_ARG(group));
        least = lower(least, quota(root, path));
        free(path);
        if (group.size == 0)
            return least;
        do
            group.size--;
        while (group.size > 0 && group.data[group.size] != '/');
    }
}

/* A line of /proc/self/cgroup: number:controllers:path. */
static double quota_of_line(const char *root, struct str line)
{
    struct str number, controllers, controller;
    if (!str_split(&line, ':', &number) || !str_split(&line, ':', &controllers) ||
        line.data == NULL)
        return 0;
    if (controllers.size == 0) {
        const double quota = quota_of(root, "/sys/fs/cgroup", line, quota_v2);
        return lower(quota, quota_of(root, "/sys/fs/cgroup/unified", line, quota_v2));
    }
    const struct str all = controllers;
    bool has_cpu = false;
    while (str_split(&controllers, ',', &controller))
        has_cpu |= str_is(controller, "cpu");
    if (!has_cpu)
        return 0;
    char *mount = xasprintf("/sys/fs/cgroup/%.*s", STR_ARG(all));
    const double quota = lower(quota_of(root, "/sys/fs/cgroup/cpu", line, quota_v1),
                               quota_of(root, mount, line, quota_v1));
    free(mount);
    return quota;
}

static double read_quota(const char *root)
{
    char text[TEXT_BYTES_CAP];
    double least = 0;
    if (!read_text(root, "/proc/self/cgroup", text))
        return 0;
    struct str rest = str_from(text), line;
    while (str_split(&rest, '\n', &line))
        least = lower(least, quota_of_line(root, line));
    return least;
}

/* ---- kinds of cores ---- */

struct probe {
    uint32_t id, eax;
};

static void *probe_leaf(void *context)
{
    struct probe *probe = context;
    uint32_t eax, ebx, ecx, edx;
    if (sched_getcpu() == (int)probe->id && __get_cpuid_count(0x1a, 0, &eax, &ebx, &ecx, &edx))
        probe->eax = eax;
    return NULL;
}

/* In a thread of its own, so that no mask stays behind. */
static uint32_t ask_leaf(void *context, uint32_t id)
{
    struct probe probe = { .id = id };
    pthread_attr_t attributes;
    pthread_t thread;
    cpu_set_t *mask = CPU_ALLOC(PROCESSORS_CAP);
    const size_t bytes = CPU_ALLOC_SIZE(PROCESSORS_CAP);
    (void)context;
    must(mask != NULL && pthread_attr_init(&attributes) == 0);
    CPU_ZERO_S(bytes, mask);
    CPU_SET_S(id, bytes, mask);
    if (pthread_attr_setaffinity_np(&attributes, bytes, mask) == 0 &&
        pthread_create(&thread, &attributes, probe_leaf, &probe) == 0)
        pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    CPU_FREE(mask);
    return probe.eax;
}

static bool chip_is_hybrid(void)
{
    uint32_t eax, ebx, ecx, edx;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & HYBRID_BIT);
}

static void mark_efficient(struct processors *processors, const struct processors_source *source,
                           const char *root)
{
    bool atoms[PROCESSORS_CAP], cores[PROCESSORS_CAP];
    if (read_list(root, "/sys/devices/cpu_atom/cpus", atoms) &&
        read_list(root, "/sys/devices/cpu_core/cpus", cores)) {
        for (uint32_t i = 0; i < processors->n; i++)
            processors->of[i].is_efficient = atoms[processors->of[i].id];
        return;
    }
    uint32_t (*leaf)(void *, uint32_t) = source->leaf_1a;
    if (leaf == NULL && chip_is_hybrid())
        leaf = ask_leaf;
    for (uint32_t i = 0; leaf != NULL && i < processors->n; i++)
        processors->of[i].is_efficient =
            leaf(source->context, processors->of[i].id) >> 24 == CORE_TYPE_ATOM;
}

/* ---- cores and nodes ---- */

static uint32_t core_of(const char *root, uint32_t id)
{
    static const char *const names[] = { "core_cpus_list", "thread_siblings_list" };
    bool siblings[PROCESSORS_CAP];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/%s", id, names[i]);
        if (read_list(root, path, siblings) && siblings[id])
            return lowest(siblings, id);
    }
    return id;
}

static void mark_nodes(struct processors *processors, const char *root)
{
    bool nodes[PROCESSORS_CAP], members[PROCESSORS_CAP];
    processors->n_nodes = 1;
    if (!read_list(root, "/sys/devices/system/node/online", nodes))
        return;
    processors->n_nodes = 0;
    for (uint32_t node = 0; node < PROCESSORS_CAP; node++) {
        char path[128];
        snprintf(path, sizeof path, "/sys/devices/system/node/node%u/cpulist", node);
        if (!nodes[node] || !read_list(root, path, members))
            continue;
        bool any = false;
        for (uint32_t i = 0; i < processors->n; i++) {
            if (members[processors->of[i].id]) {
                processors->of[i].node = node;
                any = true;
            }
        }
        processors->n_nodes += any;
    }
    if (processors->n_nodes == 0)
        processors->n_nodes = 1;
}

static uint32_t rank(const struct processor *processor)
{
    return processor->is_sibling ? 2 : processor->is_efficient ? 1 : 0;
}

static int compare(const void *a, const void *b)
{
    const struct processor *left = a, *right = b;
    if (rank(left) != rank(right))
        return rank(left) < rank(right) ? -1 : 1;
    return left->id < right->id ? -1 : 1;
}

void processors_read(struct processors *processors, const struct processors_source *source)
{
    const char *root = source->root != NULL ? source->root : "";
    bool allowed[PROCESSORS_CAP], seen[PROCESSORS_CAP] = { 0 };
    *processors = (struct processors){ .quota = read_quota(root) };
    if (source->allowed == NULL || !parse_list(source->allowed, allowed))
        ask_mask(allowed);
    processors->of = xcalloc(PROCESSORS_CAP, sizeof *processors->of);
    for (uint32_t id = 0; id < PROCESSORS_CAP; id++) {
        if (!allowed[id])
            continue;
        const uint32_t core = core_of(root, id);
        processors->of[processors->n++] =
            (struct processor){ .id = id, .core = core, .is_sibling = seen[core] };
        seen[core] = true;
    }
    if (processors->n == 0) // no list says so; one there is
        processors->n = 1;
    mark_efficient(processors, source, root);
    mark_nodes(processors, root);
    qsort(processors->of, processors->n, sizeof *processors->of, compare);
    for (uint32_t i = 0; i < processors->n; i++) {
        processors->n_cores += rank(&processors->of[i]) == 0;
        processors->n_efficient += rank(&processors->of[i]) == 1;
    }
    if (processors->n_cores == 0) { // efficient ones alone are the performance to be had
        processors->n_cores = processors->n_efficient;
        processors->n_efficient = 0;
    }
}

void processors_release(struct processors *processors)
{
    free(processors->of);
    *processors = (struct processors){ 0 };
}

/* ---- the rules ---- */

uint32_t processors_threads(const struct processors *processors)
{
    const double paid = processors->quota + 0.5; // 1.5 is two threads, 1.4 is one
    if (processors->quota == 0 || paid >= processors->n_cores)
        return processors->n_cores;
    return paid < 1 ? 1 : (uint32_t)paid;
}

uint32_t processors_threads_here(void)
{
    struct processors processors;
    processors_read(&processors, &(struct processors_source){ 0 });
    const uint32_t n_threads = processors_threads(&processors);
    processors_release(&processors);
    return n_threads;
}

uint32_t processors_hold(const struct processors *processors, uint32_t n_threads)
{
    return processors->n_efficient > 0 && n_threads <= processors->n_cores ? processors->n_cores
                                                                           : 0;
}

void processors_describe(const struct processors *processors, struct buf *out)
{
    buf_printf(out, "%u processor%s: %u %score%s", processors->n, processors->n == 1 ? "" : "s",
               processors->n_cores, processors->n_efficient ? "performance " : "",
               processors->n_cores == 1 ? "" : "s");
    if (processors->n_efficient)
        buf_printf(out, ", %u efficient", processors->n_efficient);
    if (processors->quota != 0)
        buf_printf(out, "; quota of %.2f", processors->quota);
    if (processors->n_nodes > 1)
        buf_printf(out, "; %u memory nodes", processors->n_nodes);
}
