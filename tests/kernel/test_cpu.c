/* Real chips by what their CPUID answers (published dumps), what an operating system may take away
 * from them, and which rung each gets. */
#include "helpers/cm.h"
#include "kernel/cpu.h"

#include <string.h>

#include "kernel/kernel.h"

#define AVX2_SET (CPU_AVX2 | CPU_FMA | CPU_F16C)
#define AVX512_SET (AVX2_SET | CPU_AVX512F | CPU_AVX512BW | CPU_AVX512DQ | CPU_AVX512VL)

struct chip {
    const char *brand;
    enum cpu_vendor vendor;
    uint32_t version_eax, version_ecx;
    uint32_t ebx, ecx, edx; // of leaf 7
    uint32_t more_eax;      // of leaf 7, subleaf 1
    uint64_t xcr0;          // an operating system that saves all there is
    uint32_t family, model, stepping;
    enum cpu_microarch microarch;
    uint32_t features;
    const char *rung;
};

static const struct chip chips[] = {
    { "AMD EPYC 7742 64-Core Processor", CPU_VENDOR_AMD, 0x00830f10, 0x7ef8320b, 0x219c91a9,
      0x00400004, 0, 0, 0x207, 0x17, 0x31, 0, CPU_ZEN2, AVX2_SET, "avx2" },
    { "AMD Ryzen 9 5950X 16-Core Processor", CPU_VENDOR_AMD, 0x00a20f10, 0x7ed8320b, 0x219c97a9,
      0x0040068c, 0x10, 0, 0x207, 0x19, 0x21, 0, CPU_ZEN3, AVX2_SET, "avx2" },
    { "AMD Ryzen 5 7600X 6-Core Processor", CPU_VENDOR_AMD, 0x00a60f12, 0x7ef8320b, 0xf1bf97a9,
      0x00405fce, 0x10000010, 0x20, 0x2e7, 0x19, 0x61, 2, CPU_ZEN4,
      AVX512_SET | CPU_AVX512_VNNI | CPU_AVX512_BF16, "avx512" },
    { "AMD Ryzen 9 9950X 16-Core Processor", CPU_VENDOR_AMD, 0x00b40f40, 0x7ed8320b, 0xf1bf97ab,
      0x19405fce, 0x10000110, 0x30, 0x2e7, 0x1a, 0x44, 0, CPU_ZEN5,
      AVX512_SET | CPU_AVX512_VNNI | CPU_AVX512_BF16 | CPU_AVX_VNNI, "avx512" },
    { "Intel(R) Xeon(R) CPU E5-2699 v3 @ 2.30GHz", CPU_VENDOR_INTEL, 0x000306f2, 0x7dfefbff,
      0x00003fbb, 0, 0, 0, 0x7, 6, 0x3f, 2, CPU_HASWELL, AVX2_SET, "avx2" },
    { "Intel(R) Xeon(R) Gold 6154 CPU @ 3.00GHz", CPU_VENDOR_INTEL, 0x00050654, 0x7ffefbff,
      0xd39ffffb, 0x8, 0, 0, 0x2ff, 6, 0x55, 4, CPU_SKYLAKE_SP, AVX512_SET, "avx2" },
    { "Intel(R) Xeon(R) Gold 5215 CPU @ 2.50GHz", CPU_VENDOR_INTEL, 0x00050657, 0x7ffefbff,
      0xd39ffffb, 0x808, 0xbc000400, 0, 0x2ff, 6, 0x55, 7, CPU_CASCADE_LAKE,
      AVX512_SET | CPU_AVX512_VNNI, "avx512" },
    { "Intel(R) Core(TM) i7-1065G7 CPU @ 1.30GHz", CPU_VENDOR_INTEL, 0x000706e5, 0x7ffafbbf,
      0xf2bf27ef, 0x40405f4e, 0xbc000410, 0, 0x2e7, 6, 0x7e, 5, CPU_ICE_LAKE,
      AVX512_SET | CPU_AVX512_VNNI, "avx512" },
    { "12th Gen Intel(R) Core(TM) i9-12900K", CPU_VENDOR_INTEL, 0x00090672, 0x7ffafbff, 0xf3bfa7eb,
      0x98c07fee, 0xfc9cc510, 0x00401c30, 0x2e7, 6, 0x97, 2, CPU_ALDER_LAKE,
      AVX512_SET | CPU_AVX512_VNNI | CPU_AVX512_BF16 | CPU_AVX_VNNI | CPU_HYBRID, "avx512" },
    { "13th Gen Intel(R) Core(TM) i9-13900K", CPU_VENDOR_INTEL, 0x000b0671, 0x7ffafbff, 0x239c27eb,
      0x98c027ac, 0xfc1cc410, 0x00400810, 0x207, 6, 0xb7, 1, CPU_RAPTOR_LAKE,
      AVX2_SET | CPU_AVX_VNNI | CPU_HYBRID, "avxvnni" },
    { "Intel(R) Core(TM) Ultra 5 125H", CPU_VENDOR_INTEL, 0x000a06a4, 0x7ffafbff, 0x239c27eb,
      0x994007ac, 0xfc18c410, 0x40400910, 0x207, 6, 0xaa, 4, CPU_METEOR_LAKE,
      AVX2_SET | CPU_AVX_VNNI | CPU_HYBRID, "avxvnni" },
    { "Intel(R) Core(TM) Ultra 9 275HX", CPU_VENDOR_INTEL, 0x000c0662, 0x7ffafbff, 0x239ca7eb,
      0x994007ac, 0xfc18c430, 0x44c009d7, 0x207, 6, 0xc6, 2, CPU_ARROW_LAKE,
      AVX2_SET | CPU_AVX_VNNI | CPU_HYBRID, "avxvnni" },
    { "Intel(R) Core(TM) Ultra 9 288V", CPU_VENDOR_INTEL, 0x000b06d1, 0x7ffafbff, 0x239ca7eb,
      0x994027ac, 0xfc1cc430, 0x44c009d7, 0x207, 6, 0xbd, 1, CPU_LUNAR_LAKE,
      AVX2_SET | CPU_AVX_VNNI | CPU_HYBRID, "avxvnni" },
    { "Intel(R) N95", CPU_VENDOR_INTEL, 0x000b06e0, 0x7ffafbbf, 0x239ca7eb, 0x98c007ac, 0xfc184410,
      0x810, 0x207, 6, 0xbe, 0, CPU_GRACEMONT, AVX2_SET | CPU_AVX_VNNI, "avxvnni" },
    { "Intel(R) Xeon(R) w7-2475X", CPU_VENDOR_INTEL, 0x000806f8, 0x7ffefbff, 0xf3bfbffb, 0xbb417fee,
      0xffdd4430, 0x1c30, 0x602e7, 6, 0x8f, 8, CPU_SAPPHIRE_RAPIDS,
      AVX512_SET | CPU_AVX512_VNNI | CPU_AVX512_BF16 | CPU_AVX_VNNI | CPU_AMX_TILE | CPU_AMX_INT8,
      "avx512" },
    { "Intel(R) Xeon(R) 658X", CPU_VENDOR_INTEL, 0x000a06d1, 0x7ffefbff, 0xf3bfbffb, 0xbb417fee,
      0xffdd4430, 0x40201d30, 0x602e7, 6, 0xad, 1, CPU_GRANITE_RAPIDS,
      AVX512_SET | CPU_AVX512_VNNI | CPU_AVX512_BF16 | CPU_AVX_VNNI | CPU_AMX_TILE | CPU_AMX_INT8,
      "avx512" },
};

enum { N_CHIPS = sizeof(chips) / sizeof(*chips) };

static void put_text(void *registers, const char *text, size_t bytes)
{
    memset(registers, 0, bytes);
    memcpy(registers, text, strlen(text) < bytes ? strlen(text) : bytes);
}

static struct cpu_leaves leaves_of(const struct chip *chip)
{
    static const char *const vendors[] = { "VIA VIA VIA ", "GenuineIntel", "AuthenticAMD" };
    struct cpu_leaves leaves = { 0 };
    uint32_t vendor[3]; // ebx, edx, ecx
    put_text(vendor, vendors[chip->vendor], sizeof(vendor));
    leaves.vendor = (struct cpu_registers){ 7, vendor[0], vendor[2], vendor[1] };
    leaves.version.eax = chip->version_eax;
    leaves.version.ecx = chip->version_ecx;
    leaves.features = (struct cpu_registers){ 1, chip->ebx, chip->ecx, chip->edx };
    leaves.more.eax = chip->more_eax;
    put_text(leaves.brand, chip->brand, sizeof(leaves.brand));
    leaves.xcr0 = chip->xcr0;
    return leaves;
}

static void test_real_chips(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CHIPS; i++) {
        const struct chip *const chip = &chips[i];
        const struct cpu_leaves leaves = leaves_of(chip);
        const struct cpu cpu = cpu_decode(&leaves);
        assert_string_equal(cpu.brand, chip->brand);
        assert_int_equal(cpu.vendor, chip->vendor);
        assert_int_equal(cpu.family, chip->family);
        assert_int_equal(cpu.model, chip->model);
        assert_int_equal(cpu.stepping, chip->stepping);
        assert_int_equal(cpu.microarch, chip->microarch);
        assert_int_equal(cpu.features, chip->features);
        assert_string_equal(kernel_best_of(&cpu)->name, chip->rung);
    }
}

/* Features go with the registers that the system does not save. */
static void test_what_the_system_hides(void **state)
{
    (void)state;
    const struct chip *const chip = &chips[N_CHIPS - 2];
    assert_int_equal(chip->microarch, CPU_SAPPHIRE_RAPIDS);
    struct cpu_leaves leaves = leaves_of(chip);
    leaves.xcr0 = 0x2e7;
    struct cpu cpu = cpu_decode(&leaves);
    assert_int_equal(cpu.features, chip->features & ~(uint32_t)(CPU_AMX_TILE | CPU_AMX_INT8));
    leaves.xcr0 = 0x7;
    cpu = cpu_decode(&leaves);
    assert_int_equal(cpu.features, AVX2_SET | CPU_AVX_VNNI);
    leaves.xcr0 = 0;
    cpu = cpu_decode(&leaves);
    assert_int_equal(cpu.features, 0);
    assert_int_equal(cpu.microarch, CPU_SAPPHIRE_RAPIDS);
    assert_string_equal(kernel_best_of(&cpu)->name, "scalar");
}

/* A rung asks for all of its bundle. */
static void test_half_of_a_bundle(void **state)
{
    (void)state;
    struct cpu_leaves leaves = leaves_of(&chips[0]);
    leaves.version.ecx &= ~(1u << 29); // F16C
    const struct cpu cpu = cpu_decode(&leaves);
    assert_int_equal(cpu.features, CPU_AVX2 | CPU_FMA);
    assert_true(cpu_has(&cpu, CPU_AVX2 | CPU_FMA) && !cpu_has(&cpu, AVX2_SET));
    assert_string_equal(kernel_best_of(&cpu)->name, "scalar");
}

static void test_strangers(void **state)
{
    (void)state;
    struct chip chip = chips[0];
    chip.vendor = CPU_VENDOR_OTHER;
    chip.brand = "  a core with spaces  ";
    struct cpu_leaves leaves = leaves_of(&chip);
    struct cpu cpu = cpu_decode(&leaves);
    assert_int_equal(cpu.microarch, CPU_MICROARCH_UNKNOWN);
    assert_string_equal(cpu.brand, "a core with spaces");
    assert_string_equal(kernel_best_of(&cpu)->name, "avx2"); // unknown, and as able as it says
    chip = chips[0];
    chip.version_eax = 0x00c00f10; // a family to come
    leaves = leaves_of(&chip);
    cpu = cpu_decode(&leaves);
    assert_int_equal(cpu.family, 0x1b);
    assert_int_equal(cpu.microarch, CPU_MICROARCH_UNKNOWN);
    chip.vendor = CPU_VENDOR_INTEL;
    chip.version_eax = 0x000006f1; // a Core 2
    chip.brand = "";
    leaves = leaves_of(&chip);
    cpu = cpu_decode(&leaves);
    assert_int_equal(cpu.model, 0x0f);
    assert_int_equal(cpu.microarch, CPU_MICROARCH_UNKNOWN);
    assert_string_equal(cpu.brand, "");
}

static void test_names(void **state)
{
    (void)state;
    for (int i = 0; i < CPU_MICROARCH_COUNT; i++) {
        assert_non_null(cpu_microarch_name((enum cpu_microarch)i));
        for (int j = 0; j < i; j++)
            assert_string_not_equal(cpu_microarch_name((enum cpu_microarch)i),
                                    cpu_microarch_name((enum cpu_microarch)j));
    }
    assert_string_equal(cpu_microarch_name(CPU_SAPPHIRE_RAPIDS), "Sapphire Rapids");
    assert_string_equal(cpu_feature_name(CPU_AVX2), "avx2");
    assert_string_equal(cpu_feature_name(CPU_AVX512_VNNI), "avx512_vnni");
    assert_string_equal(cpu_feature_name(CPU_HYBRID), "hybrid");
    assert_true(CPU_HYBRID == 1u << (CPU_FEATURE_COUNT - 1));
}

/* The processor at hand says the same twice, and what it can run is a rung. */
static void test_this_processor(void **state)
{
    (void)state;
    const struct cpu first = cpu_detect(), second = cpu_detect();
    assert_int_equal(first.features, second.features);
    assert_int_equal(first.model, second.model);
    assert_string_equal(first.brand, second.brand);
    assert_ptr_equal(kernel_best(), kernel_best_of(&first));
    assert_true(kernel_usable(kernel_best()));
    print_message("%s: %s\n", first.brand, cpu_microarch_name(first.microarch));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real_chips),
        cmocka_unit_test(test_what_the_system_hides),
        cmocka_unit_test(test_half_of_a_bundle),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_this_processor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
