// Element types of kernels as bits, and register vectors. No toolkit header is needed for them.
#ifndef STROBE_SRC_CORE_TYPES_H_
#define STROBE_SRC_CORE_TYPES_H_

#include "core/portable.h"

namespace strobe::core {

using u8 = unsigned char;
using u16 = unsigned short;
using f32 = float;

struct bf16 {
  u16 bits;
};
struct f16 {
  u16 bits;
};

// The element types a kernel is instantiated for.
enum class Dtype { kBf16, kF16, kF32 };

// N values of T that one instruction moves.
template <class T, int N>
struct alignas(sizeof(T) * N) Vec {
  T x[N];
  STROBE_HOST_DEVICE constexpr T& operator[](int i) { return x[i]; }
  STROBE_HOST_DEVICE constexpr const T& operator[](int i) const { return x[i]; }
};
using u32x2 = Vec<u32, 2>;
using u32x4 = Vec<u32, 4>;
using f32x2 = Vec<f32, 2>;
using f32x4 = Vec<f32, 4>;

template <class To, class From>
STROBE_HOST_DEVICE constexpr To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

template <class T>
STROBE_HOST_DEVICE constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
STROBE_HOST_DEVICE constexpr T max(T a, T b) {
  return a < b ? b : a;
}
template <class T>
STROBE_HOST_DEVICE constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

STROBE_HOST_DEVICE constexpr f32 infinity() { return bit_cast<f32>(0x7F800000u); }

}  // namespace strobe::core

#endif  // STROBE_SRC_CORE_TYPES_H_
