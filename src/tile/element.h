// The type of a kernel's elements.
#ifndef STROBE_SRC_TILE_ELEMENT_H_
#define STROBE_SRC_TILE_ELEMENT_H_

#include "isa/isa.h"

namespace strobe::STROBE_TARGET {

template <Dtype kDtype>
struct ElementOf;
template <>
struct ElementOf<Dtype::kBf16> {
  using Type = bf16;
};
template <>
struct ElementOf<Dtype::kF16> {
  using Type = f16;
};
template <>
struct ElementOf<Dtype::kF32> {
  using Type = f32;
};
template <Dtype kDtype>
using Element = typename ElementOf<kDtype>::Type;

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_TILE_ELEMENT_H_
