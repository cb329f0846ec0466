// float <-> bf16 and f16 of src/cpu/convert.h, against the definition of the formats in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "cpu/convert.h"
#include "harness/shapes.h"

namespace strobe::cpu {
namespace {

struct Format {
  const char* name;
  int exponent_bits, mantissa_bits;
  float (*to_float)(std::uint16_t);
  std::uint16_t (*from_float)(float);

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }

  // The value of 16 bits, by definition.
  double value(std::uint16_t bits) const {
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    const double sign = bits >> 15 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) {
      return mantissa ? std::numeric_limits<double>::quiet_NaN()
                      : sign * std::numeric_limits<double>::infinity();
    }
    const double implicit = exponent == 0 ? 0 : 1 << mantissa_bits;
    return sign * std::ldexp(implicit + mantissa, std::max(exponent, 1) - bias() - mantissa_bits);
  }
  std::uint16_t infinity() const {
    return static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  }
};

constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr Format kFormats[] = {{"bf16", 8, 7, bf16_to_float, float_to_bf16},
                               {"f16", 5, 10, f16_to_float, float_to_f16}};

TEST(Conversions, EveryValueToFloatAndBack) {
  for (const Format& format : kFormats) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const auto narrow = static_cast<std::uint16_t>(bits);
      const double value = format.value(narrow);
      const float wide = format.to_float(narrow);
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(wide)) << format.name << " " << bits;
        ASSERT_TRUE(std::isnan(format.value(format.from_float(wide))))
            << format.name << " " << bits;
        continue;
      }
      ASSERT_EQ(wide, value) << format.name << " " << bits;
      ASSERT_EQ(std::signbit(wide), bits >> 15 != 0) << format.name << " " << bits;
      ASSERT_EQ(format.from_float(wide), narrow) << format.name << " " << bits;
    }
  }
}

// Between each two neighbours: the midpoint goes to the even one, and what is next to it to its own
// side. Past the largest number the "neighbour" is the infinity.
TEST(Conversions, RoundsToNearestEven) {
  for (const Format& format : kFormats) {
    for (std::uint16_t low = 0; low < format.infinity(); ++low) {
      const std::uint16_t high = low + 1;
      const double below = format.value(low);
      const double step = low == 0 ? format.value(1) : below - format.value(low - 1);
      const bool last = high == format.infinity();
      const double midpoint = last ? below + step / 2 : (below + format.value(high)) / 2;
      const auto middle = static_cast<float>(midpoint);
      if (middle != midpoint) continue;  // below the subnormal floats of bf16
      const std::uint16_t even = low % 2 == 0 ? low : high;
      for (const float sign : {1.0f, -1.0f}) {
        const std::uint16_t sign_bit = sign < 0 ? 0x8000 : 0;
        ASSERT_EQ(format.from_float(sign * middle), sign_bit | even) << format.name << " " << low;
        ASSERT_EQ(format.from_float(sign * std::nextafter(middle, 0.0f)), sign_bit | low)
            << format.name << " " << low;
        ASSERT_EQ(format.from_float(sign * std::nextafter(middle, kInfinity)), sign_bit | high)
            << format.name << " " << low;
      }
    }
  }
}

// Any float: the result is nearest among its neighbours.
TEST(Conversions, AnyFloat) {
  harness::Rng rng(3);
  for (const Format& format : kFormats) {
    const double largest = format.value(static_cast<std::uint16_t>(format.infinity() - 1));
    for (int n = 0; n < 300000; ++n) {
      const float x = std::bit_cast<float>(static_cast<std::uint32_t>(rng.next()));
      const std::uint16_t got = format.from_float(x);
      const double value = format.value(got);
      if (std::isnan(x)) {
        ASSERT_TRUE(std::isnan(value));
        continue;
      }
      ASSERT_EQ(got >> 15 != 0, std::signbit(x)) << x;
      if (std::isinf(value)) {
        ASSERT_GT(std::fabs(x), largest) << format.name << " " << x;
        continue;
      }
      const std::uint16_t magnitude = got & 0x7FFF;
      const double error = std::fabs(value - static_cast<double>(x));
      for (int step : {-1, 1}) {
        const int other = magnitude + step;
        if (other < 0 || other >= format.infinity()) continue;
        const double beside = std::copysign(format.value(static_cast<std::uint16_t>(other)), x);
        ASSERT_LE(error, std::fabs(beside - static_cast<double>(x))) << format.name << " " << x;
      }
    }
  }
}

}  // namespace
}  // namespace strobe::cpu
