/* engines: what this program can run models on, and which instruction sets this machine adds. */
#include "cli/command.h"

#include <stdio.h>

#include "engine/engine.h"
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

static void print_rungs(void)
{
    const struct kernel *best = kernel_best();
    printf("\ninstruction sets of the native engine:\n");
    for (size_t i = 0; kernels[i] != NULL; i++) {
        printf("  %-8s %s%s\n", kernels[i]->name, kernels[i]->summary,
               kernels[i] == best          ? " (used)"
               : kernel_usable(kernels[i]) ? ""
                                           : " (not on this machine)");
    }
}

static int engines_run(const struct command *command, int argc, char **argv)
{
    size_t n_words;
    if (!command_parse(command, argc, argv, NULL, 0, 0, &n_words))
        return 2;
    print_engines();
    print_rungs();
    return 0;
}

const struct command command_engines = {
    .name = "engines",
    .usage = "",
    .summary = "list the engines, their devices and instruction sets",
    .run = engines_run,
};
