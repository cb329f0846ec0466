// Conversions to and from 16-bit floats, to nearest even.
#include <cmath>

#include "core/types.h"
#include "emu/ops.h"

namespace strobe::emu {

std::uint16_t bf16_bits(float x) {
  const auto bits = core::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return 0x7FFF;
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

float f16_value(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t magnitude = h & 0x7FFFu;
  if (magnitude >= 0x7C00u)
    return core::bit_cast<float>(sign | 0x7F800000u | (magnitude & 0x3FFu) << 13);
  if (magnitude < 0x400u) {
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return sign ? -value : value;
  }
  return core::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
}

std::uint16_t f16_bits(float x) {
  const auto bits = core::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const float magnitude = std::fabs(x);
  if (std::isnan(x)) return 0x7FFF;
  if (magnitude >= 65520.0f) return sign | 0x7C00u;
  if (magnitude < 0x1p-14f) {  // subnormal: a multiple of 2^-24
    return sign | static_cast<std::uint16_t>(std::nearbyint(magnitude * 0x1p24f));
  }
  const std::uint32_t m = bits & 0x7FFFFFFFu;
  return sign | static_cast<std::uint16_t>((m - (112u << 23) + 0xFFFu + (m >> 13 & 1)) >> 13);
}

}  // namespace strobe::emu
