// The vectorised loops of standard attention, for the instruction set of the machine (Google
// Highway).
#ifndef STROBE_EXAMPLES_DEMO_STANDARD_SIMD_H_
#define STROBE_EXAMPLES_DEMO_STANDARD_SIMD_H_

#include <cstddef>

namespace strobe::demo {

// Softmax of the first `visible` >= 1 of `size` scores, in place; the others become 0.
void softmax_row(float* row, std::size_t visible, std::size_t size);

constexpr std::size_t kTileRows = 4;
std::size_t tile_columns();  // two vectors

// c[kTileRows, tile_columns()] += alpha a[kTileRows, depth] b[depth, tile_columns()]; b is packed.
void multiply_tile(std::size_t depth, float alpha, const float* a, std::size_t a_stride,
                   const float* b, float* c, std::size_t c_stride);

}  // namespace strobe::demo

#endif  // STROBE_EXAMPLES_DEMO_STANDARD_SIMD_H_
