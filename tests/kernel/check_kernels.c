/* What check_kernels.h promises, the vector family, and the program. How fast the rungs are is
 * `cascadia bench kernels`. */
#include "check_kernels.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xmmintrin.h>

#include "base/hash.h"
#include "kernel/fmath.h"

enum { GUARD_BYTES = 4096 };

/* ---- drawing ---- */

/* splitmix64: a pure function of the counter. */
uint32_t draw_u32(struct draw *draw)
{
    uint64_t z = draw->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 32);
}

uint32_t draw_below(struct draw *draw, uint32_t n)
{
    return (uint32_t)((uint64_t)draw_u32(draw) * n >> 32);
}

uint32_t draw_between(struct draw *draw, uint32_t low, uint32_t high)
{
    return low + draw_below(draw, high - low + 1);
}

float draw_float(struct draw *draw)
{
    return (float)((int32_t)(draw_u32(draw) >> 7) - (1 << 24)) * 0x1p-24f;
}

uint32_t draw_size(struct draw *draw, uint32_t large)
{
    return draw_below(draw, 16) ? draw_between(draw, 1, 70) : draw_between(draw, 1, large);
}

/* ---- memory ---- */

struct guarded guarded_new(size_t bytes)
{
    struct guarded g = { .bytes = bytes };
    const size_t body = (bytes + GUARD_BYTES - 1) / GUARD_BYTES * GUARD_BYTES + GUARD_BYTES;
    g.map_bytes = body + GUARD_BYTES;
    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.map == MAP_FAILED || mprotect(g.map + body, GUARD_BYTES, PROT_NONE) != 0) {
        perror("guarded memory");
        exit(1);
    }
    memset(g.map, CANARY, body);
    g.data = g.map + body - bytes;
    return g;
}

void guarded_free(struct guarded *g)
{
    munmap(g->map, g->map_bytes);
    *g = (struct guarded){ 0 };
}

bool guarded_intact(const struct guarded *g)
{
    for (const uint8_t *at = g->map; at < g->data; at++) {
        if (*at != CANARY)
            return false;
    }
    return true;
}

float *guarded_floats(struct guarded *g, size_t n, struct draw *draw)
{
    *g = guarded_new(n * sizeof(float));
    float *const values = (float *)(void *)g->data;
    for (size_t i = 0; i < n; i++)
        values[i] = draw_float(draw);
    return values;
}

/* ---- judging ---- */

static struct {
    size_t n_checks, n_failures;
    bool is_quiet; // failures are wanted
    bool is_brief;
    struct hash_stream *pinned; // NULL: the family's results are not hashed now
} judge;

void expect(bool ok, const char *format, ...)
{
    judge.n_checks++;
    if (ok)
        return;
    va_list arguments;
    va_start(arguments, format);
    if (judge.n_failures++ < 20 && !judge.is_quiet) {
        printf("FAILED: ");
        vprintf(format, arguments);
        printf("\n");
    }
    va_end(arguments);
}

void pin(const void *bytes, size_t n)
{
    if (judge.pinned)
        hash_stream_add(judge.pinned, bytes, n);
}

uint32_t check_count(uint32_t n)
{
    return judge.is_brief ? (n + 39) / 40 : n;
}

/* ---- vectors ---- */

/* The vectors of one case: three inputs, and one place in which each rung works. */
struct vec_case {
    struct guarded a, b, c, scalar, other;
    size_t n;
};

static struct vec_case vec_case_new(size_t n, struct draw *draw)
{
    struct vec_case v = { .n = n };
    float *const a = guarded_floats(&v.a, n, draw);
    for (size_t i = 0; i < n; i++)
        a[i] *= 20.0f;
    guarded_floats(&v.b, n, draw);
    guarded_floats(&v.c, n, draw);
    v.scalar = guarded_new(n * sizeof(float));
    v.other = guarded_new(n * sizeof(float));
    return v;
}

static void vec_case_free(struct vec_case *v)
{
    guarded_free(&v->a);
    guarded_free(&v->b);
    guarded_free(&v->c);
    guarded_free(&v->scalar);
    guarded_free(&v->other);
}

static void vec_case_judge(const struct vec_case *v, const char *what, const struct kernel *kernel)
{
    const size_t bytes = v->n * sizeof(float);
    expect(memcmp(v->scalar.data, v->other.data, bytes) == 0 && guarded_intact(&v->other),
           "%s %s n %zu", kernel->name, what, v->n);
    pin(v->scalar.data, bytes);
    memset(v->scalar.data, CANARY, bytes);
    memset(v->other.data, CANARY, bytes);
}

static float *floats(const struct guarded *g)
{
    return (float *)(void *)g->data;
}

static void check_elementwise(const struct vec_case *v, const struct vec_ops *scalar,
                              const struct kernel *kernel)
{
    const struct vec_ops *const ops = kernel->vec;
    const float *const a = floats(&v->a), *const b = floats(&v->b);
    const size_t n = v->n;
    scalar->rmsnorm(a, b, (uint32_t)n, 1e-5f, floats(&v->scalar));
    ops->rmsnorm(a, b, (uint32_t)n, 1e-5f, floats(&v->other));
    vec_case_judge(v, "rmsnorm", kernel);
    scalar->rmsnorm(a, NULL, (uint32_t)n, 1e-6f, floats(&v->scalar));
    ops->rmsnorm(a, NULL, (uint32_t)n, 1e-6f, floats(&v->other));
    vec_case_judge(v, "rmsnorm without weight", kernel);
    memcpy(v->scalar.data, a, n * sizeof(float));
    memcpy(v->other.data, a, n * sizeof(float));
    scalar->add(floats(&v->scalar), b, n);
    ops->add(floats(&v->other), b, n);
    vec_case_judge(v, "add", kernel);
    scalar->silu_mul(a, b, n, floats(&v->scalar));
    ops->silu_mul(a, b, n, floats(&v->other));
    vec_case_judge(v, "silu_mul", kernel);
}

static void check_exp_sum(const struct vec_case *v, const struct vec_ops *scalar,
                          const struct kernel *kernel, struct draw *draw)
{
    float *const a = floats(&v->a);
    const float shift = draw_float(draw) * 100.0f;
    if (v->n > 3) {
        a[1] = -INFINITY;
        a[2] = 300.0f;
        a[3] = -86.98f + shift;
    }
    const float sums[3] = { scalar->exp_sum(a, v->n, shift, floats(&v->scalar)),
                            kernel->vec->exp_sum(a, v->n, shift, floats(&v->other)),
                            kernel->vec->exp_sum(a, v->n, shift, NULL) };
    expect(memcmp(&sums[0], &sums[1], 4) == 0 && memcmp(&sums[0], &sums[2], 4) == 0,
           "%s exp_sum n %zu: %a, %a, %a", kernel->name, v->n, sums[0], sums[1], sums[2]);
    pin(&sums[0], sizeof(sums[0]));
    vec_case_judge(v, "exp_sum", kernel);
}

static void check_argmax(const struct vec_case *v, const struct vec_ops *scalar,
                         const struct kernel *kernel, struct draw *draw)
{
    float *const a = floats(&v->b);
    uint32_t expected = 0, found = 0;
    for (size_t i = 0; i < v->n; i++)
        a[i] = (float)draw_below(draw, 9) - 12.0f; // many ties, all below zero
    expect(scalar->argmax(a, v->n, &expected) && kernel->vec->argmax(a, v->n, &found) &&
               expected == found,
           "%s argmax n %zu: %u, %u", kernel->name, v->n, expected, found);
    pin(&expected, sizeof(expected));
    for (size_t i = 0; i < v->n; i++)
        a[i] = -INFINITY;
    expect(kernel->vec->argmax(a, v->n, &found) && found == 0, "%s argmax of -inf", kernel->name);
    found = 77;
    a[draw_below(draw, (uint32_t)v->n)] = NAN;
    expect(!kernel->vec->argmax(a, v->n, &found) && !scalar->argmax(a, v->n, &found) && found == 77,
           "%s argmax takes a NaN at n %zu", kernel->name, v->n);
    expect(!kernel->vec->argmax(a, 0, &found), "%s argmax of nothing", kernel->name);
}

static void check_rope(const struct vec_ops *scalar, const struct kernel *kernel, struct draw *draw)
{
    const uint32_t n_heads = draw_between(draw, 1, 5);
    const uint32_t head_dim = 2 * draw_between(draw, 1, 70);
    const uint32_t rotary = 2 * draw_between(draw, 1, head_dim / 2);
    struct vec_case v = vec_case_new((size_t)n_heads * head_dim, draw);
    struct guarded cos, sin;
    guarded_floats(&cos, rotary / 2, draw);
    guarded_floats(&sin, rotary / 2, draw);
    memcpy(v.scalar.data, v.a.data, v.a.bytes);
    memcpy(v.other.data, v.a.data, v.a.bytes);
    scalar->rope(floats(&v.scalar), n_heads, head_dim, rotary, floats(&cos), floats(&sin));
    kernel->vec->rope(floats(&v.other), n_heads, head_dim, rotary, floats(&cos), floats(&sin));
    vec_case_judge(&v, "rope", kernel);
    guarded_free(&cos);
    guarded_free(&sin);
    vec_case_free(&v);
}

void check_vec(const struct kernel *scalar, const struct kernel *kernel)
{
    static const uint32_t large[] = { 576, 1536, 4099 };
    struct draw draw = { 1 };
    for (uint32_t i = 0; i < 70 + sizeof(large) / sizeof(*large); i++) {
        struct vec_case v = vec_case_new(i < 70 ? i + 1 : large[i - 70], &draw);
        check_elementwise(&v, scalar->vec, kernel);
        check_exp_sum(&v, scalar->vec, kernel, &draw);
        check_argmax(&v, scalar->vec, kernel, &draw);
        vec_case_free(&v);
        check_rope(scalar->vec, kernel, &draw);
    }
}

/* ---- functions ---- */

static double ulps(double value, double exact)
{
    return exact == 0.0 ? (value != 0.0) * 1e9 : fabs(value - exact) / (fabs(exact) * 0x1p-23);
}

void check_fmath(void)
{
    struct draw draw = { 2 };
    expect(fmath_exp(0.0f) == 1.0f && fmath_exp(-INFINITY) == 0.0f && fmath_exp(-87.0f) == 0.0f &&
               isfinite(fmath_exp(INFINITY)) && isnan(fmath_exp(NAN)),
           "exp at its ends");
    expect(fmath_log(1.0f) == 0.0f && fmath_log(0.0f) == -INFINITY && isnan(fmath_log(NAN)) &&
               isinf(fmath_log(INFINITY)),
           "log at its ends");
    for (uint32_t i = 0; i < 20000; i++) {
        const float x = draw_float(&draw), e = x * 86.0f, l = fabsf(x) * 1000.0f + 1e-6f;
        const double angle = (double)x * 1e6;
        expect(ulps(fmath_exp(e), exp((double)e)) < 1.5, "exp(%a)", (double)e);
        expect(fabs(fmath_log(l) - log((double)l)) < 2.5e-7 * fmax(1.0, fabs(log((double)l))),
               "log(%a)", (double)l);
        expect(fabs(fmath_sin(angle) - sin(angle)) < 1e-14, "sin(%a)", angle);
        expect(fabs(fmath_cos(angle) - cos(angle)) < 1e-14, "cos(%a)", angle);
        expect(fabs(fmath_exp64(x * 600.0) / exp(x * 600.0) - 1.0) < 1e-14, "exp64(%a)", (double)x);
        expect(fabs(fmath_log64(l) - log((double)l)) < 1e-14 * fmax(1.0, fabs(log((double)l))),
               "log64(%a)", (double)l);
        expect(fabs(fmath_pow(1e6, x) / pow(1e6, x) - 1.0) < 2e-14, "pow(1e6, %a)", (double)x);
        const double results[] = { fmath_exp(e),     fmath_log(l),     fmath_silu(e),
                                   fmath_sin(angle), fmath_cos(angle), fmath_pow(5e5, x) };
        pin(results, sizeof(results));
    }
}

/* ---- families ---- */

typedef void family_check(const struct kernel *scalar, const struct kernel *kernel);

/* What each family's scalar results hash to. They change with the cases that are drawn and with the
 * arithmetic; in the second case the numerics version rises too. */
static const struct family {
    const char *name;
    family_check *check;
    uint64_t pinned, pinned_brief;
} families[] = {
    { "vec", check_vec, 0x6ec9853da0230a97, 0x6ec9853da0230a97 },
    { "matmul", check_matmul, 0xa787a74a7ba67c09, 0xa2801de85a90b412 },
    { "matmul modes", check_matmul_modes, 0x0d4cab533b6865d6, 0xc0c7a7fab6d089f0 },
    { "attend", check_attend, 0x370d287400690ea7, 0x6f2d6d1170de6e15 },
    { "attend q8", check_attend_q8, 0x1a434ca6eeb949ea, 0xc32f4a21d9c26967 },
};

/* ---- the judge ---- */

/* Wrong in the last bit of one value. */
static void spoil(float *value)
{
    uint32_t bits;
    memcpy(&bits, value, sizeof(bits));
    bits ^= 1;
    memcpy(value, &bits, sizeof(bits));
}

static void wrong_add(float *x, const float *y, size_t n)
{
    kernels[0]->vec->add(x, y, n);
    spoil(x + n - 1);
}

static void wrong_product(const struct matmul *mm, uint32_t first, uint32_t end)
{
    kernels[0]->matmul->run(mm, first, end);
    if (first == 0)
        spoil(mm->parts[0].out);
}

static void wrong_attention(const struct attend *a, void *scratch)
{
    kernels[0]->attend->run(a, scratch);
    spoil(a->out);
}

/* A rung with one wrong bit in each family must fail. */
static void check_judge(void)
{
    struct vec_ops vec = *kernels[0]->vec;
    struct matmul_ops matmul = *kernels[0]->matmul;
    struct attend_ops attend = *kernels[0]->attend;
    vec.add = wrong_add;
    matmul.run = wrong_product;
    attend.run = wrong_attention;
    const struct kernel wrong = {
        .name = "wrong", .vec = &vec, .matmul = &matmul, .attend = &attend
    };
    bool is_found = true;
    judge.is_quiet = true;
    for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++) {
        const size_t before = judge.n_failures;
        families[i].check(kernels[0], &wrong);
        is_found = is_found && judge.n_failures > before;
        judge.n_failures = before;
    }
    judge.is_quiet = false;
    expect(is_found, "a wrong bit goes unseen");
}

/* ---- the ladder ---- */

/* True when the kernel of the machine lists `flag` among the first processor's. */
static bool has_flag(const char *flags, const char *flag)
{
    const size_t n = strlen(flag);
    for (const char *at = strstr(flags, flag); at; at = strstr(at + n, flag)) {
        if (at > flags && at[-1] == ' ' && (at[n] == ' ' || at[n] == '\n'))
            return true;
    }
    return false;
}

/* What the program finds by CPUID against what the operating system says; names and tables. */
static void check_ladder(void)
{
    static char flags[8192];
    FILE *const file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(flags, sizeof(flags), file) && strncmp(flags, "flags", 5) != 0)
        continue;
    if (file)
        fclose(file);
    const bool avx2 = has_flag(flags, "avx2") && has_flag(flags, "fma") && has_flag(flags, "f16c");
    const bool avx512 = avx2 && has_flag(flags, "avx512f") && has_flag(flags, "avx512bw") &&
                        has_flag(flags, "avx512dq") && has_flag(flags, "avx512vl") &&
                        has_flag(flags, "avx512_vnni");
    const bool avxvnni = avx2 && has_flag(flags, "avx_vnni");
    expect((kernel_find("avx2") != NULL) == avx2, "avx2 is not what /proc/cpuinfo says");
    expect((kernel_find("avxvnni") != NULL) == avxvnni, "avxvnni is not what /proc/cpuinfo says");
    expect((kernel_find("avx512") != NULL) == avx512, "avx512 is not what /proc/cpuinfo says");
    expect(kernel_find("scalar") == kernels[0], "scalar is not the first rung");
    expect(kernel_find("") == NULL && kernel_find("avx") == NULL, "a rung that is none is found");
    const char *choice = KERNEL_NAMES;
    for (uint32_t i = 0; kernels[i]; i++) {
        const struct kernel *const k = kernels[i];
        const size_t length = strlen(k->name);
        expect(strncmp(choice, k->name, length) == 0 &&
                   choice[length] == (kernels[i + 1] ? '|' : 0),
               "%s is not in its place among the choices", k->name);
        choice += choice[length] == '|' ? length + 1 : length;
        expect(k->name && k->summary && k->vec && k->matmul && k->attend, "rung %u lacks a part",
               i);
        expect(!kernel_usable(k) || kernel_find(k->name) == k, "%s is not found", k->name);
    }
    const char *const best = avx512 ? "avx512" : avxvnni ? "avxvnni" : avx2 ? "avx2" : "scalar";
    expect(kernel_best() == kernel_find(best), "%s is the best rung here, and not %s", best,
           kernel_best()->name);
}

/* ---- the program ---- */

static const uint64_t fmath_pinned = 0x2103197bb27ac9e2;

static void judge_hash(const char *name, uint64_t pinned)
{
    const uint64_t found = hash_stream_value(judge.pinned);
    hash_stream_free(judge.pinned);
    judge.pinned = NULL;
    expect(found == pinned, "%s: results hash to 0x%016llx, pinned is 0x%016llx", name,
           (unsigned long long)found, (unsigned long long)pinned);
}

static void check_rung(const struct kernel *kernel)
{
    for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++) {
        const size_t before = judge.n_checks;
        judge.pinned = hash_stream_new();
        families[i].check(kernels[0], kernel);
        judge_hash(families[i].name,
                   judge.is_brief ? families[i].pinned_brief : families[i].pinned);
        printf("%s %s: %zu checks\n", kernel->name, families[i].name, judge.n_checks - before);
    }
    check_tunings(kernels[0], kernel);
}

/* What an emulated CPU has time for. Scalar goes along with each of the others. */
static int check_briefly(const char *best)
{
    judge.is_brief = true;
    for (uint32_t i = 1; kernels[i]; i++) {
        if (kernel_usable(kernels[i]))
            check_rung(kernels[i]);
    }
    check_ladder();
    expect(strcmp(kernel_best()->name, best) == 0, "%s is chosen here, and not %s",
           kernel_best()->name, best);
    printf("%s is chosen\n", kernel_best()->name);
    printf("%zu checks, %zu failed\n", judge.n_checks, judge.n_failures);
    return judge.n_failures != 0;
}

int main(int argc, char **argv)
{
    _mm_setcsr(_mm_getcsr() | 0x8040); // flush to zero, denormals are zero: as on a team
    if (argc == 3 && strcmp(argv[1], "--brief") == 0)
        return check_briefly(argv[2]);
    for (uint32_t i = 0; kernels[i]; i++) {
        if (!kernel_usable(kernels[i]))
            printf("SKIPPED %s: this CPU lacks it\n", kernels[i]->name);
        else
            check_rung(kernels[i]);
    }
    judge.pinned = hash_stream_new();
    check_fmath();
    judge_hash("fmath", fmath_pinned);
    check_judge();
    check_ladder();
    check_definition();
    check_attend_definition();
    printf("%zu checks, %zu failed\n", judge.n_checks, judge.n_failures);
    return judge.n_failures != 0;
}
