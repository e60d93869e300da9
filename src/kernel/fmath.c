/* Range reduction and a polynomial each, every step one IEEE operation, fma where a product is
 * added.
 *
 * The rungs repeat fmath_exp step by step on vectors (kernel_internal.h has the coefficients): what
 * changes here changes there, raises the numerics version and changes the pinned hashes. The f32
 * polynomials are Chebyshev fits made for this range; the f64 ones are Taylor series, long enough
 * that their remainder is below the last bit. Rounding to an integer adds and subtracts 1.5 x 2^23
 * (2^52): unlike rint() it needs no instruction that a baseline x86-64 lacks. */
#include "kernel/fmath.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernel/kernel_internal.h"

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static uint64_t bits64_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static double double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

float fmath_exp(float x)
{
    const float c = EXP_MAX < x ? EXP_MAX : x; // a NaN stays
    const float t = fmaf(c, EXP_LOG2E, EXP_ROUND);
    const float n = t - EXP_ROUND;
    const float r = fmaf(n, -EXP_LN2_LOW, fmaf(n, -EXP_LN2_HIGH, c));
    float p = fmaf(EXP_C6, r, EXP_C5);
    p = fmaf(p, r, EXP_C4);
    p = fmaf(p, r, EXP_C3);
    p = fmaf(p, r, EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    const float power = float_of((bits_of(t) << 23) + 0x3f800000u); // 2^n
    return x < EXP_MIN ? 0.0f : p * power;
}

float fmath_silu(float x)
{
    return x / (1.0f + fmath_exp(-x));
}

/* x = m 2^e with m in [sqrt(1/2), sqrt(2)); ln m = 2 atanh(s), s = (m - 1) / (m + 1). */
float fmath_log(float x)
{
    if (!(x > 0.0f))
        return x <= 0.0f ? -INFINITY : x;
    if (isinf(x))
        return x;
    const uint32_t shifted = bits_of(x) - 0x3f3504f3u; // 0x3f3504f3 is sqrt(1/2)
    const float e = (float)((int32_t)shifted >> 23);
    const float m = float_of((shifted & 0x007fffffu) + 0x3f3504f3u);
    const float s = (m - 1.0f) / (m + 1.0f);
    const float z = s * s;
    float q = fmaf(0x1.ddd4dap-3f, z, 0x1.245c28p-2f);
    q = fmaf(q, z, 0x1.9999ecp-2f);
    q = fmaf(q, z, 0x1.555556p-1f);
    const float tail = fmaf(s * z, q, e * 0x1.7f7d1cp-20f);
    return fmaf(e, 0x1.62e4p-1f, fmaf(2.0f, s, tail));
}

#define ROUND64 0x1.8p52

double fmath_exp64(double x)
{
    const double t = fma(x, 0x1.71547652b82fep+0, ROUND64);
    const double n = t - ROUND64;
    const double r = fma(n, -0x1.abc9e3b39803fp-56, fma(n, -0x1.62e42fefa39efp-1, x));
    double p = 1.0 / 87178291200.0; // 1 / 14!
    static const double inverse_factorials[] = {
        1.0 / 6227020800.0,
        1.0 / 479001600.0,
        1.0 / 39916800.0,
        1.0 / 3628800.0,
        1.0 / 362880.0,
        1.0 / 40320.0,
        1.0 / 5040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        1.0 / 2.0,
        1.0,
        1.0,
    };
    for (unsigned i = 0; i < sizeof(inverse_factorials) / sizeof(*inverse_factorials); i++)
        p = fma(p, r, inverse_factorials[i]);
    return p * double_of((bits64_of(t) << 52) + 0x3ff0000000000000u);
}

double fmath_log64(double x)
{
    const uint64_t root = 0x3fe6a09e667f3bcdu; // sqrt(1/2)
    const uint64_t shifted = bits64_of(x) - root;
    const double e = (double)((int64_t)shifted >> 52);
    const double m = double_of((shifted & 0x000fffffffffffffu) + root);
    const double s = (m - 1.0) / (m + 1.0);
    const double z = s * s;
    double q = 2.0 / 23.0;
    for (int odd = 21; odd >= 3; odd -= 2)
        q = fma(q, z, 2.0 / odd);
    const double tail = fma(s * z, q, e * 0x1.abc9e3b39803fp-56);
    return fma(e, 0x1.62e42fefa39efp-1, fma(2.0, s, tail));
}

double fmath_pow(double x, double y)
{
    return fmath_exp64(y * fmath_log64(x));
}

/* sin of r and cos of r for |r| <= pi/4. */
static double sin_near(double r)
{
    const double z = r * r;
    double p = 1.0 / 355687428096000.0; // 1 / 17!
    p = fma(p, z, -1.0 / 1307674368000.0);
    p = fma(p, z, 1.0 / 6227020800.0);
    p = fma(p, z, -1.0 / 39916800.0);
    p = fma(p, z, 1.0 / 362880.0);
    p = fma(p, z, -1.0 / 5040.0);
    p = fma(p, z, 1.0 / 120.0);
    p = fma(p, z, -1.0 / 6.0);
    return fma(p * z, r, r);
}

static double cos_near(double r)
{
    const double z = r * r;
    double p = -1.0 / 6402373705728000.0; // -1 / 18!
    p = fma(p, z, 1.0 / 20922789888000.0);
    p = fma(p, z, -1.0 / 87178291200.0);
    p = fma(p, z, 1.0 / 479001600.0);
    p = fma(p, z, -1.0 / 3628800.0);
    p = fma(p, z, 1.0 / 40320.0);
    p = fma(p, z, -1.0 / 720.0);
    p = fma(p, z, 1.0 / 24.0);
    p = fma(p, z, -0.5);
    return fma(p, z, 1.0);
}

/* sin(x + quarter * pi/2) */
static double sin_turned(double x, uint64_t quarter)
{
    const double t = fma(x, 0x1.45f306dc9c883p-1, ROUND64);
    const double n = t - ROUND64;
    const double r = fma(n, -0x1.1a62633145c07p-54, fma(n, -0x1.921fb54442d18p+0, x));
    const uint64_t turn = bits64_of(t) + quarter;
    const double value = turn & 1 ? cos_near(r) : sin_near(r);
    return turn & 2 ? -value : value;
}

double fmath_sin(double x)
{
    return sin_turned(x, 0);
}

double fmath_cos(double x)
{
    return sin_turned(x, 1);
}
