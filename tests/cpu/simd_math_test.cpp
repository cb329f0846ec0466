// exp, tanh and the 16-bit loads of src/cpu/simd-inl.h on every SIMD target, against double.
#if (defined(__x86_64__) || defined(_M_X64)) && !defined(HWY_DISABLED_TARGETS)
#define HWY_DISABLED_TARGETS (0xFFLL | (1LL << 12))  // as src/cpu/targets.cpp
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/simd_math_test.cpp"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#if HWY_HAVE_SCALABLE == 0
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strobe::cpu::HWY_NAMESPACE {

// to[n] = f(from[n]) for a whole number of vectors.
template <class F>
void Map(const float* from, float* to, size_t count, const F& f) {
  for (size_t n = 0; n < count; n += kLanes) {
    hn::StoreU(f(hn::LoadU(Tag(), from + n)), Tag(), to + n);
  }
}
void TestExp(float factor, const float* from, float* to, size_t count) {
  const Exp exp(factor);
  Map(from, to, count, [&](Vec x) { return exp.operator()<true>(x); });
}
void TestTanh(const float* from, float* to, size_t count) {
  Map(from, to, count, [](Vec x) { return Tanh(x); });
}
void TestLoadBf16(const uint16_t* from, float* to, size_t count) {
  for (size_t n = 0; n < count; n += kLanes) hn::StoreU(LoadBf16(from + n), Tag(), to + n);
}
void TestLoadF16(const uint16_t* from, float* to, size_t count) {
  for (size_t n = 0; n < count; n += kLanes) hn::StoreU(LoadF16(from + n), Tag(), to + n);
}

}  // namespace strobe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "cpu/convert.h"

namespace strobe::cpu {

HWY_EXPORT(TestExp);
HWY_EXPORT(TestTanh);
HWY_EXPORT(TestLoadBf16);
HWY_EXPORT(TestLoadF16);

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Runs `body` on each target in turn: HWY_DYNAMIC_DISPATCH then takes that one.
template <class Body>
void on_every_target(const Body& body) {
  int tested = 0;
  for (std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    body();
    ++tested;
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  EXPECT_GT(tested, 0);
}

// Every `step`-th float between two of one sign, their ends included.
std::vector<float> floats(float from, float to, std::uint32_t step) {
  std::vector<float> all;
  const auto [first, last] =
      std::minmax({std::bit_cast<std::uint32_t>(from), std::bit_cast<std::uint32_t>(to)});
  for (std::uint64_t bits = first; bits < last; bits += step) {
    all.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  all.push_back(std::bit_cast<float>(last));
  return all;
}

template <class Run>
std::vector<float> mapped(std::vector<float> x, const Run& run) {
  const std::size_t count = x.size();
  x.resize((count + 63) / 64 * 64);
  std::vector<float> y(x.size());
  run(x.data(), y.data(), x.size());
  y.resize(count);
  return y;
}

// Allowed relative error of exp(t). Beside the polynomial's: log2(e) * factor is one float, whose
// rounding counts in proportion to t, and without a fused multiply-add so does that of the product.
double exp_bound(double t) { return 2e-7 + std::fabs(t) * 0x1p-23; }

TEST(SimdMath, ExpIsAccurate) {
  on_every_target([] {
    for (const float factor : {1.0f, 0.125f, 0.0883883476f, 3.0f}) {
      const std::vector<float> x = floats(-1e-30f / factor, -86.99f / factor, 1009);
      const std::vector<float> y = mapped(x, [&](auto... args) {
        HWY_DYNAMIC_DISPATCH(TestExp)
        (factor, args...);
      });
      double worst = 0;
      for (std::size_t n = 0; n < x.size(); ++n) {
        const double t = static_cast<double>(factor) * x[n];
        const double error = std::fabs(y[n] - std::exp(t));
        ASSERT_LT(error, 2e-7) << t;  // next to exp(0) = 1, the largest of a row
        worst = std::max(worst, error / std::exp(t) / exp_bound(t));
      }
      EXPECT_LT(worst, 1) << "factor " << factor;
    }
  });
}

TEST(SimdMath, ExpAtItsEnds) {
  on_every_target([] {
    for (const float factor : {1.0f, 0.125f, 1e-20f, 1e20f}) {
      const std::vector<float> x = {0.0f,
                                    -0.0f,
                                    -kInfinity,
                                    std::max(-87.5f / factor, -std::numeric_limits<float>::max()),
                                    -std::numeric_limits<float>::max(),
                                    kNaN,
                                    kInfinity,
                                    88.5f / factor};
      const std::vector<float> y = mapped(x, [&](auto... args) {
        HWY_DYNAMIC_DISPATCH(TestExp)
        (factor, args...);
      });
      EXPECT_EQ(y[0], 1) << factor;
      EXPECT_EQ(y[1], 1) << factor;
      EXPECT_EQ(y[2], 0) << factor;
      EXPECT_EQ(y[3], 0) << factor;
      EXPECT_EQ(y[4], 0) << factor;
      EXPECT_TRUE(std::isnan(y[5])) << factor;
      EXPECT_EQ(y[6], kInfinity) << factor;
      EXPECT_EQ(y[7], kInfinity) << factor;
    }
  });
}

TEST(SimdMath, ExpGrowsAboveZero) {
  on_every_target([] {
    const std::vector<float> x = floats(1e-30f, 88.2f, 1009);
    const std::vector<float> y = mapped(x, [&](auto... args) {
      HWY_DYNAMIC_DISPATCH(TestExp)
      (1.0f, args...);
    });
    for (std::size_t n = 0; n < x.size(); ++n) {
      const double error = std::fabs(y[n] / std::exp(double{x[n]}) - 1);
      ASSERT_LT(error, exp_bound(x[n])) << x[n];
    }
  });
}

TEST(SimdMath, TanhIsWithinFourUnits) {
  on_every_target([] {
    for (const float sign : {1.0f, -1.0f}) {
      const std::vector<float> x = floats(sign * 1e-30f, sign * 30.0f, 1009);
      const std::vector<float> y = mapped(x, [&](auto... args) {
        HWY_DYNAMIC_DISPATCH(TestTanh)
        (args...);
      });
      for (std::size_t n = 0; n < x.size(); ++n) {
        const double exact = std::tanh(double{x[n]});
        const double unit = std::ldexp(1, std::ilogb(exact) - 23);
        ASSERT_LE(std::fabs(y[n] - exact), 4 * unit) << x[n];
      }
    }
    const std::vector<float> y =
        mapped({0.0f, -0.0f, kInfinity, -kInfinity, 3e38f, kNaN}, [&](auto... args) {
          HWY_DYNAMIC_DISPATCH(TestTanh)(args...);
        });
    EXPECT_EQ(y[0], 0);
    EXPECT_EQ(y[1], 0);
    EXPECT_EQ(y[2], 1);
    EXPECT_EQ(y[3], -1);
    EXPECT_EQ(y[4], 1);
    EXPECT_TRUE(std::isnan(y[5]));
  });
}

TEST(SimdMath, SixteenBitLoadsAreThoseOfConvertH) {
  std::vector<std::uint16_t> bits(65536);
  for (std::size_t n = 0; n < bits.size(); ++n) bits[n] = static_cast<std::uint16_t>(n);
  on_every_target([&] {
    std::vector<float> bf16(bits.size()), f16(bits.size());
    HWY_DYNAMIC_DISPATCH(TestLoadBf16)(bits.data(), bf16.data(), bits.size());
    HWY_DYNAMIC_DISPATCH(TestLoadF16)(bits.data(), f16.data(), bits.size());
    for (std::size_t n = 0; n < bits.size(); ++n) {
      const auto same = [](float a, float b) {
        return std::isnan(a) ? std::isnan(b)
                             : std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
      };
      ASSERT_TRUE(same(bf16[n], bf16_to_float(bits[n]))) << n;
      ASSERT_TRUE(same(f16[n], f16_to_float(bits[n]))) << n;
    }
  });
}

}  // namespace
}  // namespace strobe::cpu
#endif
