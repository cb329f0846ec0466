// Fragments of mma.sync m16n8k16 and how they are read from swizzled tiles.
#ifndef STROBE_SRC_TILE_FRAGMENT_H_
#define STROBE_SRC_TILE_FRAGMENT_H_

#include "isa/isa.h"
#include "tile/smem_tile.h"

namespace strobe::STROBE_TARGET {

// A warp's accumulator of kM x kN floats: 16 x 8 atoms. Lane l holds, of each atom, rows l / 4 and
// l / 4 + 8, columns 2 (l % 4) and the next.
template <int kM, int kN>
struct Accumulator {
  static constexpr int kMTiles = kM / 16, kNTiles = kN / 8;
  static constexpr int kRowsPerLane = 2 * kMTiles;
  f32 x[kMTiles][kNTiles][4];

  STROBE_DEVICE void clear() {
    STROBE_UNROLL
    for (int m = 0; m < kMTiles; ++m) {
      STROBE_UNROLL
      for (int n = 0; n < kNTiles; ++n) {
        STROBE_UNROLL
        for (int r = 0; r < 4; ++r) x[m][n][r] = 0;
      }
    }
  }

  // f(element, i, j): i counts this lane's rows (row(i) of the tile), j its columns.
  template <class F>
  STROBE_DEVICE void for_each(F f) {
    STROBE_UNROLL
    for (int m = 0; m < kMTiles; ++m) {
      STROBE_UNROLL
      for (int n = 0; n < kNTiles; ++n) {
        STROBE_UNROLL
        for (int r = 0; r < 4; ++r) f(x[m][n][r], 2 * m + r / 2, 2 * n + r % 2);
      }
    }
  }

  // Row of the tile that is this lane's i-th, and column that is its j-th.
  STROBE_DEVICE static int row(int i, u32 lane) {
    return 16 * (i / 2) + 8 * (i % 2) + static_cast<int>(lane / 4);
  }
  STROBE_DEVICE static int col(int j, u32 lane) {
    return 8 * (j / 2) + j % 2 + 2 * static_cast<int>(lane % 4);
  }
};

// A 16 x 16 operand A from rows [row, row + 16) and columns [16 k, 16 k + 16) of a row-major tile.
template <class Tile>
STROBE_DEVICE u32x4 load_a(const Tile& tile, int row, int k, u32 lane, Here here = {}) {
  return isa::ldmatrix_x4(tile.at(row + lane % 16, 2 * k + lane / 16), here);
}
// The same operand from the transposed tile: element (m, k) lies at tile row k, column m.
template <class Tile>
STROBE_DEVICE u32x4 load_a_transposed(const Tile& tile, int m, int k, u32 lane, Here here = {}) {
  return isa::ldmatrix_x4_trans(
      tile.at(16 * k + lane % 8 + 8 * (lane / 16), m / 8 + (lane / 8) % 2), here);
}
// Two operands B, 16 x 8 each, for columns n and n + 8 of the product, where B's column n is the
// tile's row n (K of S = Q K^T): registers 0, 1 are of the first, 2, 3 of the second.
template <class Tile>
STROBE_DEVICE u32x4 load_b(const Tile& tile, int n, int k, u32 lane, Here here = {}) {
  return isa::ldmatrix_x4(tile.at(n + lane % 8 + 8 * (lane / 16), 2 * k + (lane / 8) % 2), here);
}
// The same where B's column n is the tile's column n (V of O = P V).
template <class Tile>
STROBE_DEVICE u32x4 load_b_transposed(const Tile& tile, int n, int k, u32 lane, Here here = {}) {
  return isa::ldmatrix_x4_trans(tile.at(16 * k + lane % 16, n / 8 + lane / 16), here);
}

// D += A B over kK columns. a(m, k) and b(n, k) give the operands, b of the two atoms 2 n, 2 n + 1.
// Each is fetched one pair ahead of the products that use it.
template <class T, int kK, int kM, int kN, class A, class B>
STROBE_DEVICE void mma(Accumulator<kM, kN>& d, A a, B b, Here here = {}) {
  constexpr int kSteps = kK / 16, kMTiles = kM / 16, kPairs = kN / 16;
  u32x4 fa[2][kMTiles], fb[2];
  const auto fetch = [&](int i) {
    const int k = i / kPairs, n = i % kPairs;
    if (n == 0) {
      STROBE_UNROLL
      for (int m = 0; m < kMTiles; ++m) fa[k % 2][m] = a(m, k);
    }
    fb[i % 2] = b(n, k);
  };
  fetch(0);
  STROBE_UNROLL
  for (int i = 0; i < kSteps * kPairs; ++i) {
    if (i + 1 < kSteps * kPairs) fetch(i + 1);
    const int k = i / kPairs, n = i % kPairs;
    STROBE_UNROLL
    for (int m = 0; m < kMTiles; ++m) {
      isa::mma_m16n8k16<T>(d.x[m][2 * n], fa[k % 2][m], fb[i % 2][0], fb[i % 2][1], here);
      isa::mma_m16n8k16<T>(d.x[m][2 * n + 1], fa[k % 2][m], fb[i % 2][2], fb[i % 2][3], here);
    }
  }
}

// Accumulator columns [16 k, 16 k + 16) of rows m as operand A of a further product, rounded to T:
// the layouts agree, lane by lane.
template <class T, int kM, int kN>
STROBE_DEVICE u32x4 as_a(const Accumulator<kM, kN>& s, int m, int k) {
  const auto& left = s.x[m][2 * k];
  const auto& right = s.x[m][2 * k + 1];
  return {isa::pack<T>(left[0], left[1]), isa::pack<T>(left[2], left[3]),
          isa::pack<T>(right[0], right[1]), isa::pack<T>(right[2], right[3])};
}

}  // namespace strobe::STROBE_TARGET

#endif  // STROBE_SRC_TILE_FRAGMENT_H_
