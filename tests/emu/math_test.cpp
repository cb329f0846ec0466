// Conversions and approximations of the emulator.
#include <cmath>
#include <limits>

#include "warp.h"

namespace strobe::STROBE_TARGET {
namespace {

constexpr f32 kInf = std::numeric_limits<f32>::infinity();
constexpr f32 kNan = std::numeric_limits<f32>::quiet_NaN();

// A 16-bit float by IEEE 754's definition.
template <class T>
struct Format;
template <>
struct Format<f16> {
  static constexpr int kMantissa = 10, kBias = 15;
};
template <>
struct Format<bf16> {
  static constexpr int kMantissa = 7, kBias = 127;
};
template <class T>
double defined(u32 bits) {
  constexpr int kM = Format<T>::kMantissa, kBias = Format<T>::kBias;
  const int exponent = static_cast<int>(bits >> kM & ((1u << (15 - kM)) - 1));
  const int mantissa = static_cast<int>(bits & ((1u << kM) - 1));
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << (15 - kM)) - 1) return mantissa ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - kBias - kM);
  return sign * std::ldexp(mantissa + (1 << kM), exponent - kBias - kM);
}

template <class T>
class ConversionTest : public testing::Test {};
using Types = testing::Types<bf16, f16>;
TYPED_TEST_SUITE(ConversionTest, Types);

TYPED_TEST(ConversionTest, AllValues) {
  using T = TypeParam;
  for (u32 bits = 0; bits < 65536; ++bits) {
    const f32 x = isa::to_float(T{static_cast<u16>(bits)});
    const double want = defined<T>(bits);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(x)) << bits;
      ASSERT_TRUE(std::isnan(isa::to_float(isa::from_float<T>(x)))) << bits;
      continue;
    }
    ASSERT_EQ(x, want) << bits;
    ASSERT_EQ(std::signbit(x), bits >= 0x8000) << bits;
    ASSERT_EQ(isa::from_float<T>(x).bits, bits);
  }
}

TYPED_TEST(ConversionTest, RoundsToNearestEven) {
  using T = TypeParam;
  const u32 infinite = isa::from_float<T>(kInf).bits;
  for (u32 bits = 0; bits < infinite; ++bits) {
    for (const u32 sign : {0u, 0x8000u}) {
      const double low = defined<T>(bits);
      // The next value, or where it would be if the format went on.
      const double high =
          bits + 1 < infinite ? defined<T>(bits + 1) : low + (low - defined<T>(bits - 1));
      const double middle = low / 2 + high / 2;
      const auto tie = static_cast<f32>(middle);
      ASSERT_EQ(tie, middle) << "a tie is exact in float32";
      const auto round = [&](f32 x) -> u32 { return isa::from_float<T>(sign ? -x : x).bits; };
      ASSERT_EQ(round(tie), sign | (bits + (bits & 1))) << bits;
      ASSERT_EQ(round(std::nextafter(tie, 0.0f)), sign | bits) << bits;
      ASSERT_EQ(round(std::nextafter(tie, kInf)), sign | (bits + 1)) << bits;
    }
  }
}

TYPED_TEST(ConversionTest, SpecialValues) {
  using T = TypeParam;
  EXPECT_EQ(isa::pack<T>(1.0f, -2.0f),
            static_cast<u32>(isa::from_float<T>(-2.0f).bits) << 16 | isa::from_float<T>(1.0f).bits);
  EXPECT_EQ(isa::from_float<T>(kNan).bits, 0x7FFF);
  EXPECT_EQ(isa::from_float<T>(-kNan).bits, 0x7FFF);
  EXPECT_EQ(isa::from_float<T>(std::numeric_limits<f32>::max()).bits,
            isa::from_float<T>(kInf).bits);
  EXPECT_EQ(isa::from_float<T>(std::numeric_limits<f32>::denorm_min()).bits, 0);
}

// The approximations run in a fiber: they count.
template <class F>
void in_fiber(F f) {
  run_threads(1, 0, f);
}

TEST(Math, Ex2) {
  in_fiber([] {
    EXPECT_EQ(isa::ex2(0.0f), 1.0f);
    EXPECT_EQ(isa::ex2(-0.0f), 1.0f);
    EXPECT_EQ(isa::ex2(10.0f), 1024.0f);
    EXPECT_EQ(isa::ex2(-kInf), 0.0f);
    EXPECT_EQ(isa::ex2(kInf), kInf);
    EXPECT_EQ(isa::ex2(128.0f), kInf);
    EXPECT_EQ(isa::ex2(-126.0f), 0x1p-126f);
    EXPECT_EQ(isa::ex2(-126.5f), 0.0f);  // a subnormal, flushed
    EXPECT_EQ(isa::ex2(-127.0f), 0.0f);
    EXPECT_EQ(isa::ex2(0x1p-140f), 1.0f);
    EXPECT_TRUE(std::isnan(isa::ex2(kNan)));
  });
}

TEST(Math, Lg2) {
  in_fiber([] {
    EXPECT_EQ(isa::lg2(1.0f), 0.0f);
    EXPECT_EQ(isa::lg2(8.0f), 3.0f);
    EXPECT_EQ(isa::lg2(0.0f), -kInf);
    EXPECT_EQ(isa::lg2(-0.0f), -kInf);
    EXPECT_EQ(isa::lg2(0x1p-130f), -kInf);  // a subnormal, flushed
    EXPECT_EQ(isa::lg2(kInf), kInf);
    EXPECT_TRUE(std::isnan(isa::lg2(-1.0f)));
    EXPECT_TRUE(std::isnan(isa::lg2(kNan)));
  });
}

TEST(Math, Rcp) {
  in_fiber([] {
    EXPECT_EQ(isa::rcp(4.0f), 0.25f);
    EXPECT_EQ(isa::rcp(0.0f), kInf);
    EXPECT_EQ(isa::rcp(-0.0f), -kInf);
    EXPECT_EQ(isa::rcp(0x1p-130f), kInf);
    EXPECT_EQ(isa::rcp(-0x1p-130f), -kInf);
    EXPECT_EQ(isa::rcp(kInf), 0.0f);
    EXPECT_EQ(isa::rcp(0x1p127f), 0.0f);  // 2^-127 is subnormal
    EXPECT_TRUE(std::isnan(isa::rcp(kNan)));
  });
}

TEST(Math, FmaFlushesOperandsAndResult) {
  in_fiber([] {
    EXPECT_EQ(isa::fma(2.0f, 3.0f, 4.0f), 10.0f);
    EXPECT_EQ(isa::fma(1 + 0x1p-23f, 1 - 0x1p-23f, -1.0f), -0x1p-46f);  // one rounding
    EXPECT_EQ(isa::fma(0x1p-100f, 0x1p-30f, 0.0f), 0.0f);
    EXPECT_EQ(isa::fma(0x1p-130f, 0x1p100f, 0.0f), 0.0f);
    EXPECT_EQ(isa::fma(0.0f, 1.0f, 0x1p-130f), 0.0f);
  });
}

TEST(Math, MaxAndMin) {
  EXPECT_EQ(isa::max(1.0f, 2.0f), 2.0f);
  EXPECT_EQ(isa::min(1.0f, 2.0f), 1.0f);
  EXPECT_EQ(isa::max_nan(1.0f, 2.0f), 2.0f);
  EXPECT_EQ(isa::max(kNan, 2.0f), 2.0f);
  EXPECT_EQ(isa::max(2.0f, kNan), 2.0f);
  EXPECT_EQ(isa::min(kNan, 2.0f), 2.0f);
  EXPECT_EQ(isa::min(2.0f, kNan), 2.0f);
  EXPECT_TRUE(std::isnan(isa::max_nan(kNan, 2.0f)));
  EXPECT_TRUE(std::isnan(isa::max_nan(2.0f, kNan)));
}

TEST(Math, Counts) {
  const auto report = run_threads(32, 0, [] {
    isa::ex2(1.0f);
    isa::rcp(isa::ex2(2.0f));
    isa::count(core::Op::kRescale, 5);
  });
  const auto& ops = report.counters.ops;
  EXPECT_EQ(ops[static_cast<int>(core::Op::kExp)], 64u);
  EXPECT_EQ(ops[static_cast<int>(core::Op::kDivide)], 32u);
  EXPECT_EQ(ops[static_cast<int>(core::Op::kRescale)], 160u);
}

}  // namespace
}  // namespace strobe::STROBE_TARGET
