/* The functions of docs/numerics.md rule 5, one value at a time.
 *
 * Each is a fixed sequence of IEEE operations (add, multiply, fma, divide, square root), so every
 * machine, compiler and C library gives the same bits. The rungs compute exp and silu with the same
 * steps on many values at once. Not libm: its results differ by version and CPU. Any thread. */
#ifndef CASCADIA_KERNEL_FMATH_H
#define CASCADIA_KERNEL_FMATH_H

/* e^x within 1.5 ulp; exactly 1 at 0; 0 below -86.98; never infinite: what is above 88.37 gives
 * exp(88.37). NaN stays NaN. */
float fmath_exp(float x);

/* Natural logarithm within 2 ulp of a positive normal value; -infinity at 0 and below, infinity at
 * infinity. NaN stays NaN. */
float fmath_log(float x);

/* x / (1 + e^-x) */
float fmath_silu(float x);

/* In double, for tables that are made once (rope); relative error below 1e-14 (sin, cos: absolute,
 * for |x| < 1e8). */
double fmath_sin(double x);
double fmath_cos(double x);
double fmath_exp64(double x);         // |x| <= 700
double fmath_log64(double x);         // x > 0, normal
double fmath_pow(double x, double y); // x > 0

#endif
