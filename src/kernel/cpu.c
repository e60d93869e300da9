/* A feature counts only when the processor has it and the operating system saves the registers it
 * needs: a hypervisor or a kernel option may hide either. Family and model name the core: features
 * cannot, since a guest may see a Sapphire Rapids without AMX, and what a core is tuned for
 * (prefetch distances, panels walked together) follows the core and not what is hidden. */
#include "kernel/cpu.h"

#include <cpuid.h>
#include <string.h>

enum {
    XCR0_YMM = 0x06,     // SSE and AVX state
    XCR0_ZMM = 0xe6,     // the above, mask registers and both halves of the ZMM file
    XCR0_TILE = 0x60000, // tile configuration and tile data
};

/* ---- reading ---- */

static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Zeros when the processor has no such leaf. */
static struct cpu_registers read_leaf(uint32_t leaf, uint32_t subleaf)
{
    struct cpu_registers r = { 0 };
    if (!__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx))
        return (struct cpu_registers){ 0 };
    return r;
}

struct cpu_leaves cpu_read(void)
{
    struct cpu_leaves leaves = {
        .vendor = read_leaf(0, 0),
        .version = read_leaf(1, 0),
        .features = read_leaf(7, 0),
    };
    if (leaves.features.eax >= 1) // its eax is the last subleaf
        leaves.more = read_leaf(7, 1);
    for (uint32_t i = 0; i < 3; i++)
        leaves.brand[i] = read_leaf(0x80000002u + i, 0);
    if (leaves.version.ecx & bit_OSXSAVE)
        leaves.xcr0 = read_xcr0();
    return leaves;
}

/* ---- which core ---- */

/* Models [first, last] of one family. */
struct model_range {
    uint8_t first, last;
    enum cpu_microarch microarch;
};

static const struct model_range amd_17h[] = {
    { 0x00, 0x2f, CPU_ZEN1 }, { 0x30, 0x4f, CPU_ZEN2 },        { 0x50, 0x5f, CPU_ZEN1 },
    { 0x60, 0x7f, CPU_ZEN2 }, { 0x90, 0x91, CPU_ZEN2 },        { 0x98, 0x98, CPU_ZEN2 },
    { 0xa0, 0xaf, CPU_ZEN2 }, { 0, 0, CPU_MICROARCH_UNKNOWN },
};

static const struct model_range amd_19h[] = {
    { 0x00, 0x0f, CPU_ZEN3 }, { 0x10, 0x1f, CPU_ZEN4 },        { 0x20, 0x5f, CPU_ZEN3 },
    { 0x60, 0xaf, CPU_ZEN4 }, { 0, 0, CPU_MICROARCH_UNKNOWN },
};

static const struct model_range amd_1ah[] = {
    { 0x00, 0x2f, CPU_ZEN5 },
    { 0x40, 0x4f, CPU_ZEN5 },
    { 0x60, 0x7f, CPU_ZEN5 },
    { 0, 0, CPU_MICROARCH_UNKNOWN },
};

static const struct model_range intel_6[] = {
    { 0x3c, 0x3c, CPU_HASWELL },        { 0x3f, 0x3f, CPU_HASWELL },
    { 0x45, 0x46, CPU_HASWELL },        { 0x3d, 0x3d, CPU_BROADWELL },
    { 0x47, 0x47, CPU_BROADWELL },      { 0x4f, 0x4f, CPU_BROADWELL },
    { 0x56, 0x56, CPU_BROADWELL },      { 0x4e, 0x4e, CPU_SKYLAKE },
    { 0x5e, 0x5e, CPU_SKYLAKE },        { 0x8e, 0x8e, CPU_SKYLAKE },
    { 0x9e, 0x9e, CPU_SKYLAKE },        { 0xa5, 0xa6, CPU_SKYLAKE },
    { 0x55, 0x55, CPU_SKYLAKE_SP },     { 0x6a, 0x6a, CPU_ICE_LAKE_SP },
    { 0x6c, 0x6c, CPU_ICE_LAKE_SP },    { 0x7d, 0x7e, CPU_ICE_LAKE },
    { 0x8c, 0x8d, CPU_ICE_LAKE },       { 0x9d, 0x9d, CPU_ICE_LAKE },
    { 0xa7, 0xa7, CPU_ICE_LAKE },       { 0xbe, 0xbe, CPU_GRACEMONT },
    { 0x97, 0x97, CPU_ALDER_LAKE },     { 0x9a, 0x9a, CPU_ALDER_LAKE },
    { 0xb7, 0xb7, CPU_RAPTOR_LAKE },    { 0xba, 0xba, CPU_RAPTOR_LAKE },
    { 0xbf, 0xbf, CPU_RAPTOR_LAKE },    { 0xaa, 0xaa, CPU_METEOR_LAKE },
    { 0xac, 0xac, CPU_METEOR_LAKE },    { 0xb5, 0xb5, CPU_ARROW_LAKE },
    { 0xc5, 0xc6, CPU_ARROW_LAKE },     { 0xbd, 0xbd, CPU_LUNAR_LAKE },
    { 0xcc, 0xcc, CPU_PANTHER_LAKE },   { 0x8f, 0x8f, CPU_SAPPHIRE_RAPIDS },
    { 0xcf, 0xcf, CPU_EMERALD_RAPIDS }, { 0xad, 0xae, CPU_GRANITE_RAPIDS },
    { 0xaf, 0xaf, CPU_CRESTMONT_SP },   { 0xb6, 0xb6, CPU_CRESTMONT_SP },
    { 0, 0, CPU_MICROARCH_UNKNOWN },
};

static enum cpu_microarch find_model(const struct model_range *ranges, uint32_t model)
{
    const struct model_range *range = ranges;
    while (range->microarch != CPU_MICROARCH_UNKNOWN &&
           (model < range->first || model > range->last))
        range++;
    return range->microarch;
}

static enum cpu_microarch find_microarch(const struct cpu *cpu)
{
    if (cpu->vendor == CPU_VENDOR_AMD) {
        switch (cpu->family) {
        case 0x17:
            return find_model(amd_17h, cpu->model);
        case 0x19:
            return find_model(amd_19h, cpu->model);
        case 0x1a:
            return find_model(amd_1ah, cpu->model);
        default:
            return CPU_MICROARCH_UNKNOWN;
        }
    }
    if (cpu->vendor != CPU_VENDOR_INTEL || cpu->family != 6)
        return CPU_MICROARCH_UNKNOWN;
    const enum cpu_microarch found = find_model(intel_6, cpu->model);
    /* One model number for three server lines, told apart by the stepping. */
    return found == CPU_SKYLAKE_SP && cpu->stepping >= 5 ? CPU_CASCADE_LAKE : found;
}

/* ---- what it can run ---- */

static uint32_t when(uint32_t bits, uint32_t bit, uint32_t feature)
{
    return bits & bit ? feature : 0;
}

static uint32_t find_features(const struct cpu_leaves *leaves)
{
    const struct cpu_registers *const version = &leaves->version;
    const struct cpu_registers *const features = &leaves->features, *const more = &leaves->more;
    uint32_t found = when(features->edx, 1u << 15, CPU_HYBRID);
    if (!(version->ecx & bit_AVX) || (leaves->xcr0 & XCR0_YMM) != XCR0_YMM)
        return found;
    found |= when(version->ecx, bit_FMA, CPU_FMA) | when(version->ecx, bit_F16C, CPU_F16C) |
             when(features->ebx, bit_AVX2, CPU_AVX2) | when(more->eax, 1u << 4, CPU_AVX_VNNI);
    if ((leaves->xcr0 & XCR0_ZMM) == XCR0_ZMM)
        found |= when(features->ebx, bit_AVX512F, CPU_AVX512F) |
                 when(features->ebx, bit_AVX512BW, CPU_AVX512BW) |
                 when(features->ebx, bit_AVX512DQ, CPU_AVX512DQ) |
                 when(features->ebx, bit_AVX512VL, CPU_AVX512VL) |
                 when(features->ecx, bit_AVX512VNNI, CPU_AVX512_VNNI) |
                 when(more->eax, 1u << 5, CPU_AVX512_BF16);
    if ((leaves->xcr0 & XCR0_TILE) == XCR0_TILE)
        found |= when(features->edx, 1u << 24, CPU_AMX_TILE) |
                 when(features->edx, 1u << 25, CPU_AMX_INT8);
    return found;
}

static enum cpu_vendor find_vendor(const struct cpu_registers *r)
{
    char name[12];
    memcpy(name, &r->ebx, 4);
    memcpy(name + 4, &r->edx, 4);
    memcpy(name + 8, &r->ecx, 4);
    return memcmp(name, "GenuineIntel", 12) == 0   ? CPU_VENDOR_INTEL
           : memcmp(name, "AuthenticAMD", 12) == 0 ? CPU_VENDOR_AMD
                                                   : CPU_VENDOR_OTHER;
}

static void copy_brand(const struct cpu_leaves *leaves, char *brand)
{
    char text[sizeof(leaves->brand) + 1] = { 0 };
    memcpy(text, leaves->brand, sizeof(leaves->brand));
    const char *const first = text + strspn(text, " ");
    size_t n = strlen(first);
    while (n > 0 && first[n - 1] == ' ')
        n--;
    memcpy(brand, first, n);
    brand[n] = '\0';
}

struct cpu cpu_decode(const struct cpu_leaves *leaves)
{
    const uint32_t eax = leaves->version.eax, family = eax >> 8 & 15;
    struct cpu cpu = {
        .vendor = find_vendor(&leaves->vendor),
        .family = family == 15 ? family + (eax >> 20 & 255) : family,
        .model = eax >> 4 & 15,
        .stepping = eax & 15,
        .features = find_features(leaves),
    };
    if (family == 15 || family == 6)
        cpu.model |= eax >> 12 & 0xf0;
    cpu.microarch = find_microarch(&cpu);
    copy_brand(leaves, cpu.brand);
    return cpu;
}

struct cpu cpu_detect(void)
{
    const struct cpu_leaves leaves = cpu_read();
    return cpu_decode(&leaves);
}

bool cpu_has(const struct cpu *cpu, uint32_t features)
{
    return (cpu->features & features) == features;
}

/* ---- names ---- */

const char *cpu_microarch_name(enum cpu_microarch microarch)
{
    static const char *const names[CPU_MICROARCH_COUNT] = {
        [CPU_MICROARCH_UNKNOWN] = "unknown",
        [CPU_ZEN1] = "Zen",
        [CPU_ZEN2] = "Zen 2",
        [CPU_ZEN3] = "Zen 3",
        [CPU_ZEN4] = "Zen 4",
        [CPU_ZEN5] = "Zen 5",
        [CPU_HASWELL] = "Haswell",
        [CPU_BROADWELL] = "Broadwell",
        [CPU_SKYLAKE] = "Skylake",
        [CPU_SKYLAKE_SP] = "Skylake-SP",
        [CPU_CASCADE_LAKE] = "Cascade Lake",
        [CPU_ICE_LAKE] = "Ice Lake",
        [CPU_ICE_LAKE_SP] = "Ice Lake-SP",
        [CPU_GRACEMONT] = "Gracemont",
        [CPU_ALDER_LAKE] = "Alder Lake",
        [CPU_RAPTOR_LAKE] = "Raptor Lake",
        [CPU_METEOR_LAKE] = "Meteor Lake",
        [CPU_ARROW_LAKE] = "Arrow Lake",
        [CPU_LUNAR_LAKE] = "Lunar Lake",
        [CPU_PANTHER_LAKE] = "Panther Lake",
        [CPU_SAPPHIRE_RAPIDS] = "Sapphire Rapids",
        [CPU_EMERALD_RAPIDS] = "Emerald Rapids",
        [CPU_GRANITE_RAPIDS] = "Granite Rapids",
        [CPU_CRESTMONT_SP] = "Sierra Forest",
    };
    return names[microarch];
}

const char *cpu_feature_name(enum cpu_feature feature)
{
    static const char *const names[CPU_FEATURE_COUNT] = {
        "avx2",        "fma",         "f16c",     "avx512f",  "avx512bw", "avx512dq", "avx512vl",
        "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile", "amx_int8", "hybrid",
    };
    return names[__builtin_ctz(feature)];
}
