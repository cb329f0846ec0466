// Products and loads of kernels that show an algorithm rather than squeeze the machine: no work is
// interleaved with the tensor core's, and rows may lie anywhere.
#ifndef STROBE_SRC_KERNELS_PLAIN_PRODUCT_H_
#define STROBE_SRC_KERNELS_PLAIN_PRODUCT_H_

#include "tile/copy.h"
#include "tile/fragment.h"

namespace strobe::STROBE_TARGET {

// D += A B over kK columns. a(m, k) and b(n, k) give the operands, b of the two atoms 2 n, 2 n + 1,
// fetched one pair ahead of the products that use it.
template <class T, int kK, int kM, int kN, class A, class B>
STROBE_DEVICE void multiply_add(Accumulator<kM, kN>& d, A a, B b, Here here = {}) {
  constexpr int kPairs = kN / 16, kAll = kK / 16 * kPairs;
  u32x4 fa[kM / 16], fb[2];
  fb[0] = b(0, 0);
  STROBE_UNROLL
  for (int i = 0; i < kAll; ++i) {
    const int k = i / kPairs, n = i % kPairs;
    if (n == 0) {
      STROBE_UNROLL
      for (int m = 0; m < kM / 16; ++m) fa[m] = a(m, k);
    }
    if (i + 1 < kAll) fb[(i + 1) % 2] = b((i + 1) % kPairs, (i + 1) / kPairs);
    STROBE_UNROLL
    for (int m = 0; m < kM / 16; ++m) {
      isa::mma_m16n8k16<T>(d.x[m][2 * n], fa[m], fb[i % 2][0], fb[i % 2][1], here);
      isa::mma_m16n8k16<T>(d.x[m][2 * n + 1], fa[m], fb[i % 2][2], fb[i % 2][3], here);
    }
  }
}

// Columns [16 k, 16 k + 16) of rows m of an accumulator as operand A, rounded to T: the layouts
// agree, lane by lane.
template <class T, int kM, int kN>
STROBE_DEVICE u32x4 rounded_a(const Accumulator<kM, kN>& s, int m, int k) {
  const auto& left = s.x[m][2 * k];
  const auto& right = s.x[m][2 * k + 1];
  return {isa::pack<T>(left[0], left[1]), isa::pack<T>(left[2], left[3]),
          isa::pack<T>(right[0], right[1]), isa::pack<T>(right[2], right[3])};
}

// A tile by all kThreads threads. address(row) -> first element of the row, or null where the tile
// has zeros.
template <int kThreads, class Tile, class Address>
STROBE_DEVICE void load_rows(const Tile& tile, Address address, int dim, bool vector,
                             Here here = {}) {
  constexpr u32 kTotal = Tile::kRows * Tile::kChunks;
  STROBE_NO_UNROLL  // addresses of many rows at once cost more registers than they save time
      for (u32 c = isa::thread_id(); c < kTotal; c += kThreads) {
    const u32 row = c / Tile::kChunks;
    const auto* from = address(static_cast<int>(row));
    copy_chunk(tile, row, c % Tile::kChunks, from, from != nullptr, dim, vector, here);
  }
}

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_KERNELS_PLAIN_PRODUCT_H_
