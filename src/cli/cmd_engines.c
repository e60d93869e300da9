/* engines: what this program can run models on, what processor this is, and which instruction sets
 * it adds. */
#include "cli/command.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/processors.h"
#include "engine/engine.h"
#include "kernel/cpu.h"
#include "kernel/kernel.h"

static void print_engines(void)
{
    for (size_t i = 0; engines[i] != NULL; i++) {
        printf("%-8s %s\n         devices:", engines[i]->name, engines[i]->summary);
        for (size_t d = 0; engines[i]->devices[d] != NULL; d++)
            printf(" %s", engines[i]->devices[d]);
        putchar('\n');
    }
}

static void print_cpu(const struct cpu *cpu)
{
    printf("\nprocessor: %s (%s)\n  features:", cpu->brand[0] ? cpu->brand : "without a name",
           cpu_microarch_name(cpu->microarch));
    for (uint32_t i = 0; i < CPU_FEATURE_COUNT; i++) {
        const enum cpu_feature feature = (enum cpu_feature)(1u << i);
        if (cpu_has(cpu, feature))
            printf(" %s", cpu_feature_name(feature));
    }
    putchar('\n');
}

static void print_processors(void)
{
    struct processors processors;
    struct buf text;
    buf_init(&text, 512);
    processors_read(&processors, &(struct processors_source){ 0 });
    processors_describe(&processors, &text);
    const uint32_t n_threads = processors_threads(&processors);
    printf("  %s; %u thread%s unless told otherwise\n", text.data, n_threads,
           n_threads == 1 ? "" : "s");
    processors_release(&processors);
    buf_release(&text);
}

static void print_rungs(const struct cpu *cpu)
{
    const struct kernel *best = kernel_best_of(cpu);
    printf("\ninstruction sets of the native engine:\n");
    for (size_t i = 0; kernels[i] != NULL; i++) {
        printf("  %-8s %s%s\n", kernels[i]->name, kernels[i]->summary,
               kernels[i] == best                   ? " (used)"
               : cpu_has(cpu, kernels[i]->features) ? ""
                                                    : " (not on this machine)");
    }
}

static int engines_run(const struct command *command, int argc, char **argv)
{
    size_t n_words;
    if (!command_parse(command, argc, argv, NULL, 0, 0, &n_words))
        return 2;
    const struct cpu cpu = cpu_detect();
    print_engines();
    print_cpu(&cpu);
    print_processors();
    print_rungs(&cpu);
    return 0;
}

const struct command command_engines = {
    .name = "engines",
    .usage = "",
    .summary = "list the engines, their devices and instruction sets",
    .run = engines_run,
};
