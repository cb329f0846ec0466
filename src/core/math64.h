// exp, log and tanh in float64 from plain arithmetic: kernels include no toolkit header, and all
// compilers get the same code. Within a few units in the last place.
#ifndef STROBE_SRC_CORE_MATH64_H_
#define STROBE_SRC_CORE_MATH64_H_

#include "core/types.h"

namespace strobe::core {

constexpr double kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;

STROBE_HOST_DEVICE constexpr double infinity64() {
  return bit_cast<double>(u64{0x7FF0000000000000});
}
STROBE_HOST_DEVICE constexpr double nan64() { return bit_cast<double>(u64{0x7FF8000000000000}); }

// 2^n for n in [-1022, 1023].
STROBE_HOST_DEVICE constexpr double power_of_two(int n) {
  return bit_cast<double>(static_cast<u64>(n + 1023) << 52);
}

// exp(x) = 2^n exp(r), |r| <= ln(2) / 2, by its series. exp64(0) is 1 exactly.
STROBE_HOST_DEVICE constexpr double exp64(double x) {
  if (x != x) return x;
  if (x > 709.79) return infinity64();
  if (x < -745.2) return 0;
  const double scaled = x * 1.4426950408889634;
  const int n = static_cast<int>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double sum = 1;
  for (int k = 13; k >= 1; --k) sum = 1 + sum * r / k;
  const int half = n / 2;  // in two steps: 2^n may be no normal number
  return sum * power_of_two(half) * power_of_two(n - half);
}

// log(x) = e ln(2) + 2 atanh(f), f = (m - 1) / (m + 1), x = 2^e m with m near 1.
STROBE_HOST_DEVICE constexpr double log64(double x) {
  if (!(x > 0)) return x == 0 ? -infinity64() : nan64();
  if (x == infinity64()) return x;
  int e = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    e = -54;
  }
  const u64 bits = bit_cast<u64>(x);
  e += static_cast<int>(bits >> 52) - 1023;
  double m = bit_cast<double>((bits & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
  if (m > 1.4142135623730951) {
    m /= 2;
    ++e;
  }
  const double f = (m - 1) / (m + 1), f2 = f * f;
  double sum = 0;
  for (int k = 23; k >= 3; k -= 2) sum = f2 * (sum + 1.0 / k);
  return e * kLn2High + (2 * f + (2 * f * sum + e * kLn2Low));
}

// sinh(x) / cosh(x) by their series, for |x| <= 0.5, where 1 - 2 / (exp(2 x) + 1) would cancel.
// 2 kTerms is the degree of the last term.
template <class Real, int kTerms>
STROBE_HOST_DEVICE constexpr Real tanh_near_0(Real x) {
  const Real x2 = x * x;
  Real s = 1, c = 1;
  for (int k = kTerms; k >= 1; --k) {
    s = 1 + s * x2 / static_cast<Real>(2 * k * (2 * k + 1));
    c = 1 + c * x2 / static_cast<Real>(2 * k * (2 * k - 1));
  }
  return x * s / c;
}

STROBE_HOST_DEVICE constexpr double tanh64(double x) {
  if (x > -0.5 && x < 0.5) return tanh_near_0<double, 8>(x);
  return 1 - 2 / (exp64(2 * x) + 1);
}

}  // namespace strobe::core

#endif  // STROBE_SRC_CORE_MATH64_H_
