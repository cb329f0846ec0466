// float <-> bf16 and f16, one element at a time. Rounds to nearest even; NaN stays NaN, overflow
// becomes infinity.
#ifndef STROBE_SRC_CPU_CONVERT_H_
#define STROBE_SRC_CPU_CONVERT_H_

#include <bit>
#include <cstdint>

namespace strobe::cpu {

inline float bf16_to_float(std::uint16_t x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16);
}

inline std::uint16_t float_to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet_nan = (bits >> 16) | 0x40u;
  return static_cast<std::uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet_nan : rounded);
}

inline float f16_to_float(std::uint16_t x) {
  const std::uint32_t magnitude = x & 0x7FFFu;
  std::uint32_t bits = (magnitude << 13) + (112u << 23);  // rebias the exponent from 15 to 127
  if (magnitude < 0x400u)
    bits = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  if (magnitude > 0x7BFFu) bits |= 0x7F800000u;
  return std::bit_cast<float>(bits | static_cast<std::uint32_t>(x & 0x8000u) << 16);
}

inline std::uint16_t float_to_f16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  // Below 2^-14 the result is subnormal: adding 0.5 leaves it, rounded, in the low mantissa bits.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
  const std::uint32_t normal = (magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  std::uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
  if (magnitude >= 0x477FF000u) result = 0x7C00u;  // rounds to 65536 or more
  if (magnitude > 0x7F800000u) result = 0x7E00u;
  return static_cast<std::uint16_t>(sign | result);
}

}  // namespace strobe::cpu

#endif  // STROBE_SRC_CPU_CONVERT_H_
