// Two independent roundings to every dtype, the reference's and the harness's, against each other
// and known values.
#include <cmath>
#include <cstring>
#include <limits>

#include "reference/tensor.h"
#include "reference_run.h"

namespace strobe::harness {
namespace {

std::uint16_t reference_bits(DType dtype, double value) {
  std::uint16_t bits;
  reference::store(&bits, static_cast<strobe_dtype>(dtype), 0, value);
  return bits;
}

std::uint16_t harness_bits(DType dtype, double value) {
  Tensor t(dtype, {1, 1, 1, 1});
  t.set({0, 0, 0, 0}, value);
  std::uint16_t bits;
  std::memcpy(&bits, t.data(), sizeof(bits));
  return bits;
}

TEST(Rounding, KnownValues) {
  const double inf = std::numeric_limits<double>::infinity();
  const struct {
    DType dtype;
    double value;
    std::uint16_t bits;
  } kKnown[] = {
      {DType::bf16, 1, 0x3F80},
      {DType::bf16, 1 + std::ldexp(1, -8), 0x3F80},                       // tie: to even
      {DType::bf16, 1 + 3 * std::ldexp(1, -8), 0x3F82},                   // tie: to even
      {DType::bf16, 1 + std::ldexp(1, -8) + std::ldexp(1, -40), 0x3F81},  // float32 would tie
      {DType::bf16, -std::ldexp(255, 120), 0xFF7F},                       // lowest
      {DType::bf16, std::ldexp(511, 119), 0x7F80},                        // overflow
      {DType::bf16, std::ldexp(1, -133), 0x0001},                         // least
      {DType::bf16, std::ldexp(1, -134), 0x0000},                         // tie: to 0
      {DType::bf16, inf, 0x7F80},
      {DType::f16, 1, 0x3C00},
      {DType::f16, 65504, 0x7BFF},
      {DType::f16, 65519.99, 0x7BFF},
      {DType::f16, 65520, 0x7C00},
      {DType::f16, -inf, 0xFC00},
      {DType::f16, std::ldexp(1, -14), 0x0400},
      {DType::f16, std::ldexp(1023, -24), 0x03FF},
      {DType::f16, std::ldexp(2047, -25), 0x0400},
      {DType::f16, std::ldexp(1, -25), 0x0000},
      {DType::f16, -std::ldexp(3, -25), 0x8002},
      {DType::f16, -0.0, 0x8000},
  };
  for (const auto& known : kKnown) {
    EXPECT_EQ(reference_bits(known.dtype, known.value), known.bits) << known.value;
    EXPECT_EQ(harness_bits(known.dtype, known.value), known.bits) << known.value;
  }
}

TEST(Rounding, EveryNumberComesBack) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (std::uint32_t n = 0; n <= 0xFFFF; ++n) {
      const auto bits = static_cast<std::uint16_t>(n);
      Tensor t(dtype, {1, 1, 1, 1});
      std::memcpy(t.data(), &bits, sizeof(bits));
      const double value = t.get({0, 0, 0, 0});
      const double also = reference::load(&bits, static_cast<strobe_dtype>(dtype), 0);
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(also)) << bits;
        ASSERT_TRUE(std::isnan(round_to(dtype, value))) << bits;
        continue;
      }
      ASSERT_EQ(value, also) << bits;
      ASSERT_EQ(harness_bits(dtype, value), bits);
      ASSERT_EQ(reference_bits(dtype, value), bits);
    }
  }
}

TEST(Rounding, HarnessAndReferenceAgreeBetweenNumbers) {
  std::uint64_t state = 1;
  for (int n = 0; n < 100000; ++n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double mantissa = 1 + std::ldexp(static_cast<double>(state >> 12), -52);
    const double value = std::ldexp(mantissa, static_cast<int>(state % 60) - 30) * (n % 2 ? -1 : 1);
    for (const DType dtype : {DType::bf16, DType::f16}) {
      ASSERT_EQ(harness_bits(dtype, value), reference_bits(dtype, value)) << value;
    }
  }
}

}  // namespace
}  // namespace strobe::harness
